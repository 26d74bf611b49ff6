// Requests of somebody's own application: classes of paths, each with users who pause, or with a rate.

import { sleep } from 'k6';
import exec from 'k6/execution';
import { ask as send } from './lib/request.js';
import { fill, whole, wholeOf } from './lib/secrets.js';
import { cookiesOfUser, headersOfUser, KEEPS_COOKIES } from './lib/sessions.js';
import { text } from './lib/settings.js';
import { atRate, closedLoop } from './lib/shapes.js';

const CLASSES = JSON.parse(text('CLASSES'));
const USERS_MAX = JSON.parse(text('USERS_MAX'));

export const options = {
  noCookiesReset: KEEPS_COOKIES,
  scenarios: Object.fromEntries(
    Object.entries(CLASSES).map(([name, one]) => [
      name,
      one.users ? closedLoop('ask', one.users) : atRate('ask', one.per_second, USERS_MAX[name]),
    ]),
  ),
};

export function ask() {
  const name = exec.scenario.name;
  const { path, method, headers, body, pause_s: pauseS, expected_status: expected } = CLASSES[name];
  if (pauseS && exec.vu.iterationInScenario === 0) {
    sleep(Math.random() * pauseS); // otherwise all users would send their requests at the same moments
  }
  const ofUser = headersOfUser();
  const cookies = cookiesOfUser();
  const sent = { ...ofUser, ...wholeOf(headers, cookies) };
  send(name, method || 'GET', fill(path, cookies), sent, body ? whole(body, cookies) : null, expected);
  if (pauseS) {
    sleep(pauseS);
  }
}
