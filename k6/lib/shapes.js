// The shapes of load that scripts combine: each returns one k6 scenario.

import { DURATION, START_AFTER } from './settings.js';

// Longer than any wait that a trial should show: what is in flight when the duration ends is answered, not cut off.
const LAST_ANSWER_WITHIN = '60s';

// Closed loop: `vus` virtual users, each sending its next request when the last one was answered.
export function closedLoop(exec, vus) {
  return {
    executor: 'constant-vus',
    exec,
    vus,
    duration: DURATION,
    startTime: START_AFTER,
    gracefulStop: LAST_ANSWER_WITHIN,
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
    gracefulStop: LAST_ANSWER_WITHIN,
  };
}
