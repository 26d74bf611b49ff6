// Classes of requests as somebody describes a service: users who pause, or requests that come at a rate, each with
// durations that are constant, uniform, exponential or drawn from a list. The requests sleep.

import { sleep } from 'k6';
import exec from 'k6/execution';
import { get } from './lib/request.js';
import { number, text } from './lib/settings.js';
import { atRate, closedLoop } from './lib/shapes.js';

const CLASSES = JSON.parse(text('CLASSES'));
const USERS_MAX = JSON.parse(text('USERS_MAX'));
const LONGEST_S = number('LONGEST_S'); // an exponential duration could be longer

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
  const { takes_s: takes, pause_s: pauseS } = CLASSES[name];
  if (pauseS && exec.vu.iterationInScenario === 0) {
    sleep(Math.random() * pauseS); // otherwise all users would send their requests at the same moments
  }
  const delayS = Math.min(drawn(takes), LONGEST_S);
  get(name, `/?delay=${delayS}`, delayS * 1000);
  if (pauseS) {
    sleep(pauseS);
  }
}

function drawn(takes) {
  if (typeof takes === 'number') return takes;
  if (Array.isArray(takes)) return takes[Math.floor(Math.random() * takes.length)];
  if ('mean' in takes) return -takes.mean * Math.log(1 - Math.random());
  return takes.least + Math.random() * (takes.most - takes.least);
}
