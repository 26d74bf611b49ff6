// The shapes of load that scripts combine: each returns one k6 scenario.

import { sleep } from 'k6';
import execution from 'k6/execution';
import { DURATION, GRACE, START_AFTER, START_AT_MS } from './settings.js';

// Closed loop: `vus` virtual users, each sending its next request when the last one was answered.
export function closedLoop(exec, vus) {
  return {
    executor: 'constant-vus',
    exec,
    vus,
    duration: DURATION,
    startTime: START_AFTER,
    gracefulStop: GRACE,
  };
}

// Open loop: `rateRps` requests a second, each sent by one of at most `usersMax` virtual users. When all of them still
// wait for an answer, k6 drops what is due and counts it; the lab then doubts the trial.
export function openLoop(exec, rateRps, usersMax) {
  return {
    executor: 'constant-arrival-rate',
    exec,
    rate: rateRps,
    timeUnit: '1s',
    preAllocatedVUs: usersMax,
    duration: DURATION,
    startTime: START_AFTER,
    gracefulStop: GRACE,
  };
}

// Open loop in steps of `lastsS` seconds, each with its rate a second.
export function openSteps(exec, ratesPerS, lastsS, usersMax) {
  const due = ratesPerS.reduce((sum, rate) => sum + rate * lastsS, 0);
  return {
    executor: 'ramping-arrival-rate',
    exec,
    startRate: ratesPerS[0],
    timeUnit: '1s',
    // A stage without a length is a jump.
    stages: ratesPerS.flatMap((rate) => [
      { target: rate, duration: '0s' },
      { target: rate, duration: `${lastsS}s` },
    ]),
    preAllocatedVUs: Math.min(usersMax, Math.ceil(due)), // each takes time to make, before and after the start
    startTime: START_AFTER,
    gracefulStop: GRACE,
  };
}

// A burst: `vus` virtual users send one request each at the same moment, and again every `everyS` seconds for as many
// times as fit into the duration, at least once. What a script calls before it sends is whenAllAreThere.
export function atOnce(exec, vus, everyS = 0) {
  return {
    executor: 'per-vu-iterations',
    exec,
    vus,
    iterations: everyS > 0 ? Math.max(1, Math.floor(durationS() / everyS)) : 1,
    maxDuration: `${durationS() + ALL_ARE_THERE_S}s`,
    startTime: START_AFTER,
    gracefulStop: GRACE,
  };
}

// A thousand virtual users need this long to get going.
const ALL_ARE_THERE_S = 2;

// Wait for the moment of this burst, and for `afterS` seconds more.
export function whenAllAreThere(everyS = 0, afterS = 0) {
  const sinceS = ALL_ARE_THERE_S + execution.vu.iterationInScenario * everyS + afterS;
  const startedMs = START_AT_MS || execution.scenario.startTime; // the one that all generators share, if there is one
  sleep(Math.max(0, (startedMs + sinceS * 1000 - Date.now()) / 1000));
}

function durationS() {
  return parseInt(DURATION) * (DURATION.endsWith('m') ? 60 : 1);
}
