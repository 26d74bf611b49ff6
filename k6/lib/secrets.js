// What somebody's own application is sent, with the values of secrets. No record of the run has these values.

const SECRETS = JSON.parse(decodeURIComponent(__ENV.LAB_SECRETS || '{}'));

// Puts the values of secrets where a text has ${NAME}.
export function fill(said) {
  return said.replace(/\$\{(\w+)\}/g, (asIs, name) => (name in SECRETS ? SECRETS[name] : asIs));
}

// The same for a text that is percent-encoded where a character does not fit into an env file.
export function whole(said) {
  return fill(decodeURIComponent(said));
}

// The same for headers, or the fields of a form.
export function wholeOf(said) {
  return Object.fromEntries(Object.entries(said || {}).map(([name, value]) => [decodeURIComponent(name), whole(value)]));
}
