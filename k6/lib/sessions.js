// The sessions of users who have logged in to somebody's own application (login.js), if users log in.

import { SharedArray } from 'k6/data';
import exec from 'k6/execution';
import http from 'k6/http';
import { LAB_URL } from './settings.js';

const SESSIONS = new SharedArray('sessions', () => (__ENV.LOGIN ? JSON.parse(open('/tmp/sessions.json')) : []));

// Whether users keep their cookies. Otherwise each request comes from somebody who was never there.
export const KEEPS_COOKIES = SESSIONS.length > 0;

// The session of this virtual user.
let session;

// The cookies that the jar of this user has now, by the words that requests have for them.
export function cookiesOfUser() {
  const cookies = KEEPS_COOKIES ? Object.entries(http.cookieJar().cookiesForURL(LAB_URL)) : [];
  return Object.fromEntries(cookies.map(([name, [value]]) => [`cookie.${name}`, value]));
}

// The headers of a user who has logged in. The first call puts the cookies into the user's jar.
export function headersOfUser() {
  if (!KEEPS_COOKIES) {
    return {};
  }
  if (!session) {
    session = SESSIONS[(exec.vu.idInTest - 1) % SESSIONS.length];
    for (const [name, value] of Object.entries(session.cookies)) {
      http.cookieJar().set(LAB_URL, name, value);
    }
  }
  return session.token ? { Authorization: `Bearer ${session.token}` } : {};
}
