// Many requests at the same moment, one of each user, and again every EVERY_S: in which order are they answered?

import { get } from './lib/request.js';
import { number } from './lib/settings.js';
import { atOnce, whenAllAreThere } from './lib/shapes.js';
import { asked } from './lib/work.js';

const BURST = number('BURST', 1);
const EVERY_S = number('EVERY_S', 1);
const ASKED = asked();

export const options = {
  scenarios: { burst: atOnce('burst', BURST, EVERY_S) },
  noConnectionReuse: true,
};

export function burst() {
  whenAllAreThere(EVERY_S);
  get('burst', ASKED.path, ASKED.ms);
}
