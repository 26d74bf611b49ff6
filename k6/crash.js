// Some requests at once, after CRASH_AFTER_S a request that kills its worker, then more requests. Which requests fail?

import { get } from './lib/request.js';
import { number } from './lib/settings.js';
import { atOnce, whenAllAreThere } from './lib/shapes.js';

const BEFORE = number('BEFORE');
const AFTER = number('AFTER');
const CRASH_AFTER_S = number('CRASH_AFTER_S');
const DELAY_S = number('DELAY_S');

export const options = {
  scenarios: {
    before: atOnce('before', BEFORE),
    crash: atOnce('crash', 1),
    after: atOnce('after', AFTER),
  },
  noConnectionReuse: true,
};

export function before() {
  whenAllAreThere();
  get('before', `/?delay=${DELAY_S}`, DELAY_S * 1000);
}

export function crash() {
  whenAllAreThere(0, CRASH_AFTER_S);
  get('crash', '/crash', 0);
}

export function after() {
  whenAllAreThere(0, 2 * CRASH_AFTER_S);
  get('after', `/?delay=${DELAY_S}`, DELAY_S * 1000);
}
