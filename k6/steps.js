// Requests that arrive at a rate that climbs in steps, whether or not earlier requests were answered. At which rate do
// requests begin to wait?

import { get } from './lib/request.js';
import { number, numbers, text } from './lib/settings.js';
import { openSteps } from './lib/shapes.js';

const RATES_RPS = numbers('RATES_RPS');
const STEP_LASTS_S = number('STEP_LASTS_S');
const USERS_MAX = number('USERS_MAX');
const ASKS = text('ASKS');
const ASKED_MS = number('ASKED_MS');

export const options = {
  scenarios: { arrival: openSteps('arrival', RATES_RPS, STEP_LASTS_S, USERS_MAX) },
};

export function arrival() {
  get('arrival', ASKS, ASKED_MS);
}
