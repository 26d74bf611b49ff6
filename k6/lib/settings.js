// Settings come from the environment and are checked before anything is sent: a script that lacks one does not start.

// One of a few words, e.g. word('CPU', ['hold', 'burn']).
export function word(name, known) {
  const value = text(name);
  if (!known.includes(value)) {
    throw new Error(`${name}=${value} is not one of ${known.join(', ')}`);
  }
  return value;
}

function text(name) {
  const value = __ENV[name];
  if (value === undefined || value === '') {
    throw new Error(`${name} is not set; the experiment's load.settings must name it`);
  }
  return value;
}

// A number that is at least `atLeast`, e.g. number('LIGHT_VUS', 1).
export function number(name, atLeast) {
  const value = Number(text(name));
  if (!(value >= atLeast)) {
    throw new Error(`${name}=${text(name)} is not a number >= ${atLeast}`);
  }
  return value;
}

// How long the load lasts, in k6's own notation.
export const DURATION = text('DURATION');

// The balancer; every request goes there.
export const LAB_URL = text('LAB_URL');

// When the load starts, in milliseconds since 1970, 0: at once. The lab leaves room for every generator of a batch to
// start up before the first of them sends; k6/run hands it over.
export const START_AT_MS = number('START_AT_MS', 0);

// The same as k6 wants it, counted from now; k6 itself counts from when its virtual users are there, a tenth of a second
// later or three, and several that share a load differ by less.
export const START_AFTER = `${Math.max(0, START_AT_MS - Date.now())}ms`;
