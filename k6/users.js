// Virtual users who each send a request, wait for the answer, and pause: a closed loop with one class of request.

import { sleep } from 'k6';
import { get } from './lib/request.js';
import { number } from './lib/settings.js';
import { closedLoop } from './lib/shapes.js';

const USERS = number('USERS');
const DELAY_MIN_S = number('DELAY_MIN_S');
const DELAY_MAX_S = number('DELAY_MAX_S');
const PAUSE_S = number('PAUSE_S');

export const options = {
  scenarios: { user: closedLoop('user', USERS) },
};

export function user() {
  if (__ITER === 0 && PAUSE_S > 0) {
    sleep(Math.random() * PAUSE_S); // otherwise all users would send their requests at the same moments
  }
  const delayS = DELAY_MIN_S + Math.random() * (DELAY_MAX_S - DELAY_MIN_S);
  get('user', `/?delay=${delayS}`, delayS * 1000);
  if (PAUSE_S > 0) {
    sleep(PAUSE_S);
  }
}
