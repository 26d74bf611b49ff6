// Users that each ask for waiting and computing in turns, closed loop: who waits for the interpreter lock?

import { get } from './lib/request.js';
import { number, word } from './lib/settings.js';
import { closedLoop } from './lib/shapes.js';

const USERS = number('USERS', 1);
const ROUNDS = number('ROUNDS', 1);
const WAIT_MS = number('WAIT_MS', 0);
const CPU_MS = number('CPU_MS', 0);
const CPU = word('CPU', ['hold', 'burn']);
// Found out for each trial; only holding needs it.
const CALL = CPU === 'hold' ? `&call_us=${number('CALL_US', 1)}` : '';
const PATH = `/work?rounds=${ROUNDS}&wait_ms=${WAIT_MS}&cpu_ms=${CPU_MS}&cpu=${CPU}${CALL}`;

export const options = {
  scenarios: { work: closedLoop('work', USERS) },
};

export function work() {
  get('work', PATH, ROUNDS * (WAIT_MS + CPU_MS));
}
