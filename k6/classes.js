// Classes of requests: of users who wait for each answer and pause, or at a rate. A request takes a time that is
// constant, uniform, exponential or drawn from a list, and waits, computes, calls, asks the database or streams.

import { sleep } from 'k6';
import exec from 'k6/execution';
import { get, probe } from './lib/request.js';
import { number, text } from './lib/settings.js';
import { atRate, closedLoop } from './lib/shapes.js';

const CLASSES = JSON.parse(text('CLASSES'));
const PATHS = JSON.parse(text('PATHS'));
const USERS_MAX = JSON.parse(text('USERS_MAX'));
const LONGEST_S = number('LONGEST_S'); // an exponential duration could be longer
const COMPUTING = __ENV.COMPUTING || ''; // how requests compute; without it, the server decides

export const options = {
  scenarios: Object.fromEntries(
    Object.entries(CLASSES).map(([name, one]) => [
      name,
      one.users ? closedLoop('ask', one.users) : atRate('ask', one.per_second, USERS_MAX[name]),
    ]),
  ),
};

export function ask() {
  const name = exec.scenario.name;
  const { takes_s: takes = 0, pause_s: pauseS, timeout_s: timeoutS } = CLASSES[name];
  if (pauseS && exec.vu.iterationInScenario === 0) {
    sleep(Math.random() * pauseS); // otherwise all users would send their requests at the same moments
  }
  const takesS = Math.min(drawn(takes), LONGEST_S);
  if (timeoutS) {
    probe(name, PATHS[name], timeoutS);
  } else {
    get(name, pathOf(name, takesS), takesS * 1000);
  }
  if (pauseS) {
    sleep(pauseS);
  }
}

function pathOf(name, takesS) {
  const { computes = 0, rounds = 1 } = CLASSES[name];
  const roundMs = (takesS * 1000) / rounds;
  const path = PATHS[name].replace('{s}', takesS).replace('{wait_ms}', (1 - computes) * roundMs);
  return path.replace('{cpu_ms}', computes * roundMs) + (computes ? COMPUTING : '');
}

function drawn(takes) {
  if (typeof takes === 'number') return takes;
  if (Array.isArray(takes)) return takes[Math.floor(Math.random() * takes.length)];
  if ('mean' in takes) return -takes.mean * Math.log(1 - Math.random());
  return takes.least + Math.random() * (takes.most - takes.least);
}
