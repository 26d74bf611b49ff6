// One request, recorded so that the analysis can rebuild one row per request from the points alone.
//
// `request_sent` is written before and `request_answered` after, joined by `id`; a request that the end of the run
// cuts off has only the first. What differs for every request goes into k6's metadata, never into tags.

import exec from 'k6/execution';
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';
import { LAB_URL } from './settings.js';

const requestSent = new Counter('request_sent');
const requestAnswered = new Trend('request_answered', true);

// Sent so far by this virtual user.
let sequence = 0;

// GET `path`, which asks for `askedMs` of service time, as one request of class `name` (a few fixed names).
export function get(name, path, askedMs) {
  sequence += 1;
  const metrics = exec.vu.metrics;
  const id = `${exec.vu.idInTest}-${sequence}`;
  metrics.tags.request = name;
  metrics.metadata.id = id;
  metrics.metadata.asked_ms = String(askedMs);
  requestSent.add(1);

  const response = http.get(LAB_URL + path, { tags: { name } });

  const { duration, blocked, connecting } = response.timings;
  Object.assign(metrics.metadata, {
    status: String(response.status),
    blocked_ms: String(blocked),
    connecting_ms: String(connecting),
    ...served(response),
  });
  requestAnswered.add(duration);
  for (const field of Object.keys(metrics.metadata)) {
    delete metrics.metadata[field];
  }
  return response;
}

// Who served the request, or why nobody did: anything but a 200 with the contract's answer is a failure.
function served(response) {
  if (response.status !== 0 && response.status !== 200) {
    return { error: `status ${response.status}` };
  }
  if (response.error_code !== 0) {
    return { error: response.error || `k6 error ${response.error_code}` };
  }
  let answer;
  try {
    answer = response.json();
  } catch (_) {
    return { error: 'the answer is not JSON' };
  }
  if (!answer || !answer.worker || !answer.host || !answer.thread || !answer.began || !answer.ended) {
    return { error: 'the answer does not say who served it' };
  }
  return {
    worker: `${answer.host}:${answer.worker}`,
    thread: String(answer.thread),
    connection: String(answer.connection || ''),
    began: String(answer.began),
    ended: String(answer.ended),
    server: String(answer.server),
  };
}
