// Logs users in to somebody's own application before the load. Their cookies and tokens are written to a file in the
// memory of the container, so no record of the run has them. The lab reads the file, and so does sessions.js.

import http from 'k6/http';
import { fill, whole, wholeOf } from './secrets.js';
import { LAB_URL, number, text } from './settings.js';

const LOGIN = JSON.parse(text('LOGIN'));
const SESSIONS = number('SESSIONS');
const PATH = fill(LOGIN.path);
const FORM = LOGIN.form ? wholeOf(LOGIN.form) : null;
const BODY = LOGIN.body ? whole(LOGIN.body) : null;
const HEADERS = wholeOf(LOGIN.headers);
const MOST_SAID = 4096;

export const options = { setupTimeout: '10m' };

export function setup() {
  const sessions = [];
  while (sessions.length < SESSIONS) {
    const session = logIn(new http.CookieJar());
    if (session.problem) {
      return [session];
    }
    sessions.push(session);
  }
  return sessions;
}

export default function () {}

export function handleSummary(data) {
  return { '/tmp/sessions.json': JSON.stringify(data.setup_data) };
}

// A session, or what is the problem and what the application said.
function logIn(jar) {
  const page = FORM ? send(jar, 'GET', null) : null;
  const form = page && page.status !== 405 ? `form:has([name=${JSON.stringify(Object.keys(FORM)[0])}])` : '';
  if (form) {
    if (page.status !== 200) {
      return failed(page, 'the page with the form ');
    }
    if (page.html(form).size() === 0) {
      return failed(page, 'the page with the form ', ` and no form that has the field ${Object.keys(FORM)[0]}`);
    }
  }
  const answer = form ? submit(jar, page, form) : send(jar, LOGIN.method || 'POST', FORM || BODY);
  if (answer.status === 0 || answer.status >= 400) {
    return failed(answer);
  }
  if (pathOf(answer.headers.Location || '') === pathOf(PATH)) {
    return failed(answer);
  }
  if (form && answer.status === 200 && answer.html(form).size() > 0) {
    return failed(answer, '', ' and the same form again');
  }
  return session(jar, answer);
}

function session(jar, answer) {
  const token = LOGIN.token ? valueOf(answer, LOGIN.token) : '';
  if (LOGIN.token && !token) {
    return failed(answer, '', ` and no ${LOGIN.token}`);
  }
  const cookies = Object.entries(jar.cookiesForURL(LAB_URL)).map(([name, [value]]) => [name, value]);
  if (!token && cookies.length === 0) {
    return failed(answer, '', ' and no cookie');
  }
  return { cookies: Object.fromEntries(cookies), token };
}

function valueOf(answer, key) {
  try {
    return answer.json(key);
  } catch (_) {
    return ''; // the answer is not JSON
  }
}

function send(jar, method, body) {
  const kind = String(body).startsWith('{') ? 'application/json' : 'application/x-www-form-urlencoded';
  const headers = typeof body === 'string' ? { 'Content-Type': kind, ...HEADERS } : HEADERS;
  return kept(jar, http.request(method, LAB_URL + PATH, body, { jar, headers, redirects: 0 }));
}

// Sends the form of a page as a browser does: with its hidden fields, and the header Referer.
function submit(jar, page, formSelector) {
  const [, host] = LAB_URL.split('//');
  const referer = `${HEADERS['X-Forwarded-Proto'] || 'http'}://${HEADERS.Host || host}${PATH}`;
  const params = { jar, headers: { Referer: referer, ...HEADERS }, redirects: 0 };
  return kept(jar, page.submitForm({ formSelector, fields: FORM, params }));
}

function pathOf(url) {
  return url.replace(/^https?:\/\/[^/]+/, '').split('?')[0];
}

// Keeps all cookies, also cookies that are for HTTPS alone or for the domain of the service.
function kept(jar, answer) {
  for (const [name, [{ value }]] of Object.entries(answer.cookies)) {
    if (value) {
      jar.set(LAB_URL, name, value);
    }
  }
  return answer;
}

// Why a user is not logged in, and the text that the application answers with.
function failed(answer, what = '', further = '') {
  const location = answer.headers.Location;
  const how = answer.status === 0 ? `not answered: ${answer.error}` : `answered with status ${answer.status}${further}`;
  const isPage = (answer.headers['Content-Type'] || '').includes('html');
  const said = (isPage ? answer.html('body').text() : answer.body) || '';
  return { problem: `${what}is ${how}${location ? `, a redirect to ${location}` : ''}`, said: said.slice(0, MOST_SAID) };
}
