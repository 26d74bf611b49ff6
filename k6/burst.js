// Each user sends one request at the same moment, again every EVERY_S seconds. In which order are they answered?

import { get } from './lib/request.js';
import { number, text } from './lib/settings.js';
import { atOnce, whenAllAreThere } from './lib/shapes.js';

const BURST = number('BURST');
const EVERY_S = number('EVERY_S');
const ASKS = text('ASKS');
const ASKED_MS = number('ASKED_MS');

export const options = {
  scenarios: { burst: atOnce('burst', BURST, EVERY_S) },
  noConnectionReuse: true,
};

export function burst() {
  whenAllAreThere(EVERY_S);
  get('burst', ASKS, ASKED_MS);
}
