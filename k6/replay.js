// Requests of somebody's own application, at the times at which an access log has them.

import { sleep } from 'k6';
import { SharedArray } from 'k6/data';
import exec from 'k6/execution';
import { ask as send } from './lib/request.js';
import { headersOfUser, KEEPS_COOKIES } from './lib/sessions.js';
import { DURATION, number, text } from './lib/settings.js';
import { inSeconds, openAtTimes } from './lib/shapes.js';

const CLASSES = JSON.parse(text('CLASSES'));
const USERS_MAX = number('USERS_MAX');
const LATE_MS = 1000;

// Each request is [milliseconds after the first, class, method, path], in the order of sending.
const REQUESTS = new SharedArray('requests', () =>
  JSON.parse(open(__ENV.LAB_REPLAY || './replay.json')).filter(
    ([afterMs, name]) => afterMs < 1000 * inSeconds(DURATION) && name in CLASSES,
  ),
);

export const options = {
  noCookiesReset: KEEPS_COOKIES,
  scenarios: { replay: openAtTimes('ask', REQUESTS.length, USERS_MAX) },
};

export function ask() {
  const [afterMs, name, method, path] = REQUESTS[exec.scenario.iterationInTest];
  const earlyMs = exec.scenario.startTime + afterMs - Date.now();
  if (earlyMs < -LATE_MS) {
    throw new Error(`a request was due ${-earlyMs} ms ago, but all ${USERS_MAX} users wait for answers`);
  }
  sleep(Math.max(0, earlyMs / 1000));
  send(name, method, path, headersOfUser(), null);
}
