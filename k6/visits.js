// Visitors of a guest book, who arrive at a rate that climbs in steps: each gets the page, sends the form, and follows.

import exec from 'k6/execution';
import { isGood, visit } from './lib/request.js';
import { number } from './lib/settings.js';
import { openSteps, stepLengthS } from './lib/shapes.js';

const FIRST_PER_S = number('FIRST_PER_S', 1);
const LAST_PER_S = number('LAST_PER_S', 1);
const STEP_S = number('STEP_S', 1);
const TIMEOUT_STEPS = number('TIMEOUT_STEPS', 0.1);
const USERS_MAX = number('USERS_MAX', 1);

const TIMEOUT_S = TIMEOUT_STEPS * stepLengthS(STEP_S);
const REQUESTS = 3;

const PAGE = '/entries';
const TOKEN = /name="csrfmiddlewaretoken" value="(\w+)"/;

export const options = {
  scenarios: { visitor: openSteps('visitor', FIRST_PER_S, LAST_PER_S, STEP_S, USERS_MAX, REQUESTS * TIMEOUT_S) },
  noVUConnectionReuse: true, // each visitor has a browser of its own
};

// A visit ends with the first request that fails, or takes longer than TIMEOUT_STEPS times the length of a step: in a
// shorter load visitors have less patience.
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
