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
