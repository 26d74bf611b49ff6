// Users who each ask for a Fibonacci number, in a closed loop. The work is fixed; how long it takes, the server decides.

import { get } from './lib/request.js';
import { number } from './lib/settings.js';
import { closedLoop } from './lib/shapes.js';

const USERS = number('USERS');
const N = number('N');

export const options = {
  scenarios: { fibonacci: closedLoop('fibonacci', USERS) },
};

export function fibonacci() {
  get('fibonacci', `/fibonacci?n=${N}`, 0);
}
