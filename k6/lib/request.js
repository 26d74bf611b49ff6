// Sends requests, and records them so that the analysis can rebuild one row per request from the points alone.
//
// `request_sent` is written before the request and `request_answered` after it, both with the same `id`. A request that
// the end of the run cuts off has only `request_sent`. Values that differ between requests go into k6's metadata, never
// into tags.

import exec from 'k6/execution';
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';
import { HEALTH_URL, LAB_URL } from './settings.js';

const requestSent = new Counter('request_sent');
const requestAnswered = new Trend('request_answered', true);

// How many requests this virtual user has sent.
let sequence = 0;

// The virtual user itself. k6 builds a new object each time that a script reads exec.vu.
let vu;

// Sends GET `path`, which takes `askedMs` of service time, as a request of class `name`. Use only a few fixed names.
export function get(name, path, askedMs) {
  return exchange(name, 'GET', path, null, { asked_ms: String(askedMs) });
}

// Sends the same request as a POST without a body, which nobody may send again.
export function post(name, path, askedMs) {
  return exchange(name, 'POST', path, null, { asked_ms: String(askedMs) });
}

// Sends a probe of a service's health as a request of class `name`. It asks for no service time, opens a connection of
// its own, and fails if it is not answered within `timeoutS`.
export function probe(name, path, timeoutS) {
  const params = { timeout: `${timeoutS}s`, headers: { Connection: 'close' } };
  return exchange(name, 'GET', path, null, { asked_ms: '0' }, params, served, 0, HEALTH_URL);
}

// Returns a function `send(name, method, path, body)` for the requests of one visit. Use each name once per visit. A
// request fails if it takes longer than `timeoutS`. It asks for no service time, and does not follow redirects.
export function visit(number, timeoutS) {
  const known = { asked_ms: '0', visit: String(number) };
  const params = { redirects: 0, timeout: `${timeoutS}s` };
  return (name, method, path, body = null) => exchange(name, method, path, body, known, params);
}

// Sends a request to an application that does not name its workers. A wrapper around the application takes the id from
// the header Lab-Id and notes who served the request, so nobody knows beforehand how much work the request asks for.
// With `expected`, a request succeeds with this status alone, otherwise with every status below 400.
export function ask(name, method, path, headers, body, expected = 0) {
  return exchange(name, method, path, body, {}, { redirects: 0, headers }, failed, expected);
}

function exchange(name, method, path, body, known, params = {}, told = served, expected = 0, url = LAB_URL) {
  sequence += 1;
  vu = vu || exec.vu;
  const { tags, metadata } = vu.metrics;
  const id = `${vu.idInTest}-${sequence}`;
  const headers = { ...params.headers, ...(told === failed ? { 'Lab-Id': id } : {}) };
  tags.request = name;
  Object.assign(metadata, { id, ...known });
  requestSent.add(1);

  const response = http.request(method, url + path, body, { ...params, headers });

  const { duration, blocked, connecting } = response.timings;
  Object.assign(metadata, {
    status: String(response.status),
    blocked_ms: String(blocked),
    connecting_ms: String(connecting),
    ...told(response, expected),
  });
  requestAnswered.add(duration);
  for (const field of Object.keys(metadata)) {
    delete metadata[field];
  }
  return response;
}

// Whether a request succeeded. A 302 arrives here only if redirects are not followed, as in a visit.
export function isGood(response) {
  return (response.status === 200 || response.status === 302) && response.error_code === 0;
}

// The error of a request to somebody's own application; nothing if there is none.
function failed(response, expected) {
  if (response.error_code !== 0 && response.status === 0) {
    return { error: response.error || `k6 error ${response.error_code}` };
  }
  const isMeant = expected ? response.status === expected : response.status < 400;
  return isMeant ? {} : { error: `status ${response.status}` };
}

// What the last of an answer's server-sent events says; nothing if the answer has no events.
function lastEvent(response) {
  const isStream = (response.headers['Content-Type'] || '').startsWith('text/event-stream');
  return isStream ? response.body.trim().split('\n').pop().replace('data: ', '') : '';
}

// Which worker served the request, or the error. The answer must name the worker: as JSON, in the header Lab-Served, or
// in the last event of a stream.
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
    answer = JSON.parse(response.headers['Lab-Served'] || lastEvent(response) || response.body);
  } catch (_) {
    return { error: 'the answer is not JSON' };
  }
  if (!answer || !answer.worker || !answer.host || !answer.thread || !answer.began || !answer.ended) {
    return { error: 'the answer does not say which worker served it' };
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
