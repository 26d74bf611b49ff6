// Requests of somebody's own application: classes of paths, each with users who pause, or with a rate.

import { sleep } from 'k6';
import exec from 'k6/execution';
import { ask as send } from './lib/request.js';
import { text } from './lib/settings.js';
import { atRate, closedLoop } from './lib/shapes.js';

const CLASSES = JSON.parse(text('CLASSES'));
const SECRETS = JSON.parse(decodeURIComponent(__ENV.LAB_SECRETS || '{}'));
const USERS_MAX = JSON.parse(text('USERS_MAX'));

export const options = {
  scenarios: Object.fromEntries(
    Object.entries(CLASSES).map(([name, one]) => [
      name,
      one.users ? closedLoop('ask', one.users) : atRate('ask', one.per_second, USERS_MAX[name]),
    ]),
  ),
};

export function ask() {
  const name = exec.scenario.name;
  const { path, method, headers, body, pause_s: pauseS, expected_status: expected } = CLASSES[name];
  if (pauseS && exec.vu.iterationInScenario === 0) {
    sleep(Math.random() * pauseS); // otherwise all users would send their requests at the same moments
  }
  const filled = Object.fromEntries(Object.entries(headers || {}).map(([header, value]) => [header, whole(value)]));
  send(name, method || 'GET', fill(path), filled, body ? whole(body) : null, expected);
  if (pauseS) {
    sleep(pauseS);
  }
}

// Headers and bodies are percent-encoded where a character does not fit into an env file.
function whole(said) {
  return fill(decodeURIComponent(said));
}

// Puts the values of secrets where a text has ${NAME}. No record of the run has these values.
function fill(said) {
  return said.replace(/\$\{(\w+)\}/g, (asIs, name) => (name in SECRETS ? SECRETS[name] : asIs));
}
