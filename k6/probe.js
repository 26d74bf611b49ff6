// Users who wait for each answer, and a health probe that gives up after a while. Does the probe fail under load?

import { get, probe as ask } from './lib/request.js';
import { number } from './lib/settings.js';
import { atRate, closedLoop } from './lib/shapes.js';

const USERS = number('USERS');
const DELAY_MIN_S = number('DELAY_MIN_S');
const DELAY_MAX_S = number('DELAY_MAX_S');
const PROBE_EVERY_S = number('PROBE_EVERY_S');
const PROBE_TIMEOUT_S = number('PROBE_TIMEOUT_S');
const PROBES_MAX = number('PROBES_MAX');

export const options = {
  scenarios: {
    user: closedLoop('user', USERS),
    probe: atRate('probe', 1 / PROBE_EVERY_S, PROBES_MAX),
  },
};

export function user() {
  const delayS = DELAY_MIN_S + Math.random() * (DELAY_MAX_S - DELAY_MIN_S);
  get('user', `/?delay=${delayS}`, delayS * 1000);
}

export function probe() {
  ask('probe', '/health', PROBE_TIMEOUT_S);
}
