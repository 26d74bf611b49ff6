// Users whose requests wait and compute in turns, in a closed loop. Which requests wait for the interpreter lock?

import { get } from './lib/request.js';
import { number, text } from './lib/settings.js';
import { closedLoop } from './lib/shapes.js';

const USERS = number('USERS');
const ASKS = text('ASKS');
const ASKED_MS = number('ASKED_MS');

export const options = {
  scenarios: { work: closedLoop('work', USERS) },
};

export function work() {
  get('work', ASKS, ASKED_MS);
}
