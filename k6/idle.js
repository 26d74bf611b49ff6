// Users who all send a request at about the same moment, again every EVERY_S seconds, so their connections are idle
// meanwhile. Some of them POST. One more user keeps the worker busy, half of the time, with requests that compute for
// BUSY_MS. What happens to a request if the server closes its connection at this moment?

import { sleep } from 'k6';
import { get, post } from './lib/request.js';
import { number } from './lib/settings.js';
import { atOnce, closedLoop, whenAllAreThere } from './lib/shapes.js';

const GETS = number('GETS');
const POSTS = number('POSTS');
const EVERY_S = number('EVERY_S');
const SPREAD_S = number('SPREAD_S');
const DELAY_S = number('DELAY_S');
const BUSY_MS = number('BUSY_MS');

export const options = {
  scenarios: {
    get: atOnce('asks', GETS, EVERY_S),
    post: atOnce('posts', POSTS, EVERY_S),
    busy: closedLoop('computes', 1),
  },
  noConnectionReuse: true, // k6 would send a GET again if the balancer closed its connection
};

export function asks() {
  whenAllAreThere(EVERY_S, Math.random() * SPREAD_S);
  get('get', `/?delay=${DELAY_S}`, DELAY_S * 1000);
}

export function posts() {
  whenAllAreThere(EVERY_S, Math.random() * SPREAD_S);
  post('post', `/?delay=${DELAY_S}`, DELAY_S * 1000);
}

export function computes() {
  get('busy', `/work?cpu_ms=${BUSY_MS}&cpu=hold`, BUSY_MS);
  sleep(BUSY_MS / 1000);
}
