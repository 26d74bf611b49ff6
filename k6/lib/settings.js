// Settings come from the environment. A script does not start if a setting is missing.
// stampede/experiment/loads/scripts.py declares which values are allowed, and computes values that follow from several
// settings or from the duration.

// A text, e.g. text('ASKS').
export function text(name) {
  const value = __ENV[name];
  if (value === undefined || value === '') {
    throw new Error(`${name} is not set; the .env file beside the script has an example`);
  }
  return value;
}

// A number, e.g. number('LIGHT_VUS').
export function number(name) {
  return asNumber(name, text(name));
}

// Several numbers, separated by commas, e.g. numbers('RATES_PER_S').
export function numbers(name) {
  return text(name)
    .split(',')
    .map((one) => asNumber(name, one));
}

function asNumber(name, value) {
  if (value.trim() === '' || !Number.isFinite(Number(value))) {
    throw new Error(`${name}=${text(name)} is not a number`);
  }
  return Number(value);
}

// How long the load lasts, in k6's own notation.
export const DURATION = text('DURATION');

// How long k6 waits for the last answers after the duration has ended. Then it cuts the requests off.
export const GRACE = `${number('GRACE_S')}s`;

// The address that every request goes to: the balancer or, without a balancer, the server.
export const LAB_URL = text('LAB_URL');

// The address that a health probe goes to, which may be a port of its own.
export const HEALTH_URL = __ENV.LAB_HEALTH_URL || LAB_URL;

// When the load starts, in milliseconds since 1970; 0 means at once. The lab chooses a moment at which every generator
// of a batch has started up. k6/run sets the variable.
export const START_AT_MS = number('START_AT_MS');

// The same moment as a time from now, for k6's startTime. k6 counts startTime from when its virtual users exist, 0.1 to
// 0.3 s later. Generators that share a load differ by less than that.
export const START_AFTER = `${Math.max(0, START_AT_MS - Date.now())}ms`;
