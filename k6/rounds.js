// Users that each ask for waiting and computing in turns, closed loop: who waits for the interpreter lock?

import { get } from './lib/request.js';
import { number } from './lib/settings.js';
import { closedLoop } from './lib/shapes.js';
import { rounds } from './lib/work.js';

const USERS = number('USERS', 1);
const ASKED = rounds();

export const options = {
  scenarios: { work: closedLoop('work', USERS) },
};

export function work() {
  get('work', ASKED.path, ASKED.ms);
}
