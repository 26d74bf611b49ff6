// Requests that ask a database, and requests that need no connection to it, of users who wait for each answer.

import { sleep } from 'k6';
import { get } from './lib/request.js';
import { number } from './lib/settings.js';
import { closedLoop } from './lib/shapes.js';

const QUERY_VUS = number('QUERY_VUS');
const QUERY_S = number('QUERY_S');
const FREE_VUS = number('FREE_VUS');
const FREE_DELAY_S = number('FREE_DELAY_S');
const FREE_PAUSE_S = number('FREE_PAUSE_S');

export const options = {
  scenarios: { query: closedLoop('query', QUERY_VUS), free: closedLoop('free', FREE_VUS) },
};

export function query() {
  get('query', `/query?takes=${QUERY_S}`, QUERY_S * 1000);
}

export function free() {
  get('free', `/?delay=${FREE_DELAY_S}`, FREE_DELAY_S * 1000);
  sleep(FREE_PAUSE_S);
}
