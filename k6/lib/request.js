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
  return exchange(name, 'GET', path, null, { asked_ms: String(askedMs) });
}

// Returns a function that sends the requests of one visit, `send(name, method, path, body)`, each at most once by name.
// None may take longer than `timeoutS`; what is sent asks for no service time, and redirects are not followed.
export function visit(number, timeoutS) {
  const known = { asked_ms: '0', visit: String(number) };
  const params = { redirects: 0, timeout: `${timeoutS}s` };
  return (name, method, path, body = null) => exchange(name, method, path, body, known, params);
}

function exchange(name, method, path, body, known, params = {}) {
  sequence += 1;
  const metrics = exec.vu.metrics;
  metrics.tags.request = name;
  Object.assign(metrics.metadata, { id: `${exec.vu.idInTest}-${sequence}`, ...known });
  requestSent.add(1);

  const response = http.request(method, LAB_URL + path, body, { ...params, tags: { name } });

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

// Whether an answer is what was asked for; redirects are seen only where they are not followed.
export function isGood(response) {
  return (response.status === 200 || response.status === 302) && response.error_code === 0;
}

// Who served the request, or why nobody did: anything but an answer that says so, as JSON or in a header, is a failure.
function served(response) {
  if (response.headers['Lab-Error']) {
    return { error: response.headers['Lab-Error'] };
  }
  if (response.status !== 0 && !isGood(response)) {
    return { error: `status ${response.status}` };
  }
  if (response.error_code !== 0) {
    return { error: response.error || `k6 error ${response.error_code}` };
  }
  let answer;
  try {
    answer = JSON.parse(response.headers['Lab-Served'] || response.body);
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
