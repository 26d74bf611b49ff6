// What somebody's own application is sent, with the values of secrets. No record of the run has these values.

const SECRETS = JSON.parse(decodeURIComponent(__ENV.LAB_SECRETS || '{}'));

// Puts the values of secrets, and further values by name, where a text has ${NAME}.
export function fill(said, further = {}) {
  return said.replace(/\$\{([\w.-]+)\}/g, (asIs, name) => SECRETS[name] ?? further[name] ?? asIs);
}

// The same for a text that is percent-encoded where a character does not fit into an env file.
export function whole(said, further) {
  return fill(decodeURIComponent(said), further);
}

// The same for headers, or the fields of a form.
export function wholeOf(said, further) {
  const filled = ([name, value]) => [decodeURIComponent(name), whole(value, further)];
  return Object.fromEntries(Object.entries(said || {}).map(filled));
}
