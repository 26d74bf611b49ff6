// Requests that arrive at a fixed rate, whether or not earlier requests were answered: an open loop.

import { get } from './lib/request.js';
import { number } from './lib/settings.js';
import { openLoop } from './lib/shapes.js';

const RATE_RPS = number('RATE_RPS');
const USERS_MAX = number('USERS_MAX');
const DELAY_S = number('DELAY_S');

export const options = {
  scenarios: { arrival: openLoop('arrival', RATE_RPS, USERS_MAX) },
};

export function arrival() {
  get('arrival', `/?delay=${DELAY_S}`, DELAY_S * 1000);
}
