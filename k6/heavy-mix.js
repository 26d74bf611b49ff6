// Many light requests and a few heavy requests, in a closed loop. Does a light request wait behind a heavy request?

import { get } from './lib/request.js';
import { number } from './lib/settings.js';
import { closedLoop } from './lib/shapes.js';

const LIGHT_VUS = number('LIGHT_VUS');
const LIGHT_DELAY_MAX_S = number('LIGHT_DELAY_MAX_S');
const HEAVY_VUS = number('HEAVY_VUS');
const HEAVY_DELAY_S = number('HEAVY_DELAY_S');

export const options = {
  scenarios: {
    light: closedLoop('light', LIGHT_VUS),
    heavy: closedLoop('heavy', HEAVY_VUS),
  },
};

export function light() {
  sleepAt('light', Math.random() * LIGHT_DELAY_MAX_S);
}

export function heavy() {
  sleepAt('heavy', HEAVY_DELAY_S);
}

function sleepAt(name, delayS) {
  get(name, `/?delay=${delayS}`, delayS * 1000);
}
