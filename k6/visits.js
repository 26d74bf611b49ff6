// Visitors of a guest book, at a rate that climbs in steps. Each gets the page, sends the form, follows the redirect.

import exec from 'k6/execution';
import { isGood, visit } from './lib/request.js';
import { number, numbers } from './lib/settings.js';
import { openSteps } from './lib/shapes.js';

const RATES_PER_S = numbers('RATES_PER_S');
const STEP_LASTS_S = number('STEP_LASTS_S');
const TIMEOUT_S = number('TIMEOUT_S');
const USERS_MAX = number('USERS_MAX');

const PAGE = '/entries';
const TOKEN = /name="csrfmiddlewaretoken" value="(\w+)"/;

export const options = {
  scenarios: { visitor: openSteps('visitor', RATES_PER_S, STEP_LASTS_S, USERS_MAX) },
  noVUConnectionReuse: true, // each visitor opens new connections, as a new browser would
};

// A visit ends with its first request that fails or takes longer than TIMEOUT_S.
export function visitor() {
  const visitNumber = exec.scenario.iterationInTest;
  const ask = visit(visitNumber, TIMEOUT_S);
  const send = (name, ...request) => {
    const response = ask(name, ...request);
    if (response.status >= 400 && response.status < 500) {
      throw new Error(`the ${name} was refused with status ${response.status}: ${response.body}`);
    }
    return response;
  };
  const page = send('page', 'GET', PAGE);
  if (!isGood(page)) {
    return;
  }
  const token = TOKEN.exec(page.body);
  if (!token) {
    throw new Error(`the page has no form: ${page.body}`);
  }
  const written = send('post', 'POST', PAGE, { visit: String(visitNumber), csrfmiddlewaretoken: token[1] });
  if (written.status === 200) {
    throw new Error(`the form was refused: ${written.body}`);
  }
  if (isGood(written)) {
    send('newest', 'GET', written.headers.Location);
  }
}
