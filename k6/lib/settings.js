// Settings come from the environment; a script that lacks one does not start. Which values make sense is declared in
// lab/loads.py, which also computes what follows from several settings and from the duration.

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

// Numbers with commas between them, e.g. numbers('RATES_PER_S').
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

// How long what is in flight when the duration ends may still be answered; after that it is cut off.
export const GRACE = `${number('GRACE_S')}s`;

// The balancer; every request goes there.
export const LAB_URL = text('LAB_URL');

// When the load starts, in milliseconds since 1970, 0: at once. The lab leaves room for every generator of a batch to
// start up before the first of them sends; k6/run hands it over.
export const START_AT_MS = number('START_AT_MS');

// The same as k6 wants it, counted from now; k6 itself counts from when its virtual users are there, a tenth of a second
// later or three, and several that share a load differ by less.
export const START_AFTER = `${Math.max(0, START_AT_MS - Date.now())}ms`;
