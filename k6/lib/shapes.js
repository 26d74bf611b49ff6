// The shapes of load that scripts combine. Each function returns one k6 scenario.

import { sleep } from 'k6';
import execution from 'k6/execution';
import { DURATION, GRACE, START_AFTER, START_AT_MS } from './settings.js';

// Closed loop: `vus` virtual users. Each sends its next request after its last request was answered.
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

// Open loop: `perSecond` requests a second, which need not be a whole number, sent by at most `usersMax` virtual users.
// While all users wait for answers, k6 drops and counts the requests that are due, and the lab then doubts the trial.
export function atRate(exec, perSecond, usersMax) {
  return {
    executor: 'constant-arrival-rate',
    exec,
    rate: Math.max(1, Math.round(perSecond * 1000)),
    timeUnit: '1000s',
    preAllocatedVUs: usersMax,
    duration: DURATION,
    startTime: START_AFTER,
    gracefulStop: GRACE,
  };
}

// Open loop in steps of `lastsS` seconds. Each step has its own rate in requests a second.
export function openSteps(exec, ratesPerS, lastsS, usersMax) {
  const due = ratesPerS.reduce((sum, rate) => sum + rate * lastsS, 0);
  return {
    executor: 'ramping-arrival-rate',
    exec,
    startRate: ratesPerS[0],
    timeUnit: '1s',
    // In k6, a stage of 0 s makes the rate jump.
    stages: ratesPerS.flatMap((rate) => [
      { target: rate, duration: '0s' },
      { target: rate, duration: `${lastsS}s` },
    ]),
    preAllocatedVUs: Math.min(usersMax, Math.ceil(due)), // k6 takes time to create each user
    startTime: START_AFTER,
    gracefulStop: GRACE,
  };
}

// Open loop: `count` requests, each at its own time. The script waits for this time before it sends a request.
export function openAtTimes(exec, count, usersMax) {
  return {
    executor: 'shared-iterations',
    exec,
    vus: Math.min(usersMax, count),
    iterations: count,
    maxDuration: `${inSeconds(DURATION) + 1}s`,
    startTime: START_AFTER,
    gracefulStop: GRACE,
  };
}

// Bursts: `vus` virtual users send one request each at the same moment, again every `everyS` seconds for as many times
// as fit into the duration, and at least once. The script must call whenAllAreThere before it sends a request.
export function atOnce(exec, vus, everyS = 0) {
  return {
    executor: 'per-vu-iterations',
    exec,
    vus,
    iterations: everyS > 0 ? Math.max(1, Math.floor(inSeconds(DURATION) / everyS)) : 1,
    maxDuration: `${inSeconds(DURATION) + ALL_ARE_THERE_S}s`,
    startTime: START_AFTER,
    gracefulStop: GRACE,
  };
}

// A thousand virtual users need this long to start.
const ALL_ARE_THERE_S = 2;

// Waits until the moment of this burst, and then `afterS` seconds more.
export function whenAllAreThere(everyS = 0, afterS = 0) {
  const sinceS = ALL_ARE_THERE_S + execution.vu.iterationInScenario * everyS + afterS;
  const startedMs = START_AT_MS || execution.scenario.startTime; // the same moment for all generators, if it is set
  sleep(Math.max(0, (startedMs + sinceS * 1000 - Date.now()) / 1000));
}

// A duration such as 90s or 5m in seconds.
export function inSeconds(duration) {
  return parseInt(duration) * (duration.endsWith('m') ? 60 : 1);
}
