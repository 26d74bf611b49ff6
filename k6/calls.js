// Requests that call a service, and quick requests that do not, at fixed rates. Which wait while the service stalls?

import { get } from './lib/request.js';
import { number } from './lib/settings.js';
import { openLoop } from './lib/shapes.js';

const CALL_RPS = number('CALL_RPS');
const CALL_DELAY_S = number('CALL_DELAY_S');
const QUICK_RPS = number('QUICK_RPS');
const QUICK_DELAY_S = number('QUICK_DELAY_S');
const USERS_MAX = number('USERS_MAX');

export const options = {
  scenarios: {
    call: openLoop('call', CALL_RPS, USERS_MAX),
    quick: openLoop('quick', QUICK_RPS, USERS_MAX),
  },
};

export function call() {
  get('call', `/call?delay=${CALL_DELAY_S}`, CALL_DELAY_S * 1000);
}

export function quick() {
  get('quick', `/?delay=${QUICK_DELAY_S}`, QUICK_DELAY_S * 1000);
}
