// A trial as the lanes need it: times in ms since the first request, and a place on the page for each request.

const QUEUED_MS = 10;  // A shorter wait is the way to the worker. It is drawn, but gets no place of its own in the line.
const LINE_PX = 60;   // The line at a worker's door is at most this high.
const ROW_PX = 11;    // A thread's row, if there is room.
const WORKER_PX = 130;  // All rows of a worker together are at most this high.

/** Turn the columns of a trial, differences in tenths of a millisecond, into arrays of times. */
function decodeTrial(lanes) {
  const {requests} = lanes;
  const size = requests.sent.length;
  const times = {sent: new Float64Array(size), began: new Float64Array(size),
                 ended: new Float64Array(size), answered: new Float64Array(size), number: new Int32Array(size)};
  let now = 0, number = 0;
  for (let i = 0; i < size; i++) {
    now += requests.sent[i];
    number += requests.number[i];
    times.number[i] = number;
    times.sent[i] = now / 10;
    times.began[i] = (now + requests.wait[i]) / 10;
    times.ended[i] = (now + requests.wait[i] + requests.work[i]) / 10;
    times.answered[i] = (now + requests.wait[i] + requests.work[i] + requests.back[i]) / 10;
  }
  return arranged({
    ...lanes, ...times, size, of: requests, blocked: lanes.blocked && lanes.blocked.map(segments), stalls: segments(lanes.stalls),
    lasted: lanes.lasted / 10, window: lanes.window && lanes.window.map((tenths) => tenths / 10),
  });
}

/** Add to a trial what follows from its times: who waited beside a free thread, and where everything is drawn. */
function arranged(trial) {
  trial.longest = trial.answered.reduce((most, answered, i) => Math.max(most, answered - trial.sent[i]), 0);
  trial.beside = new Float64Array(trial.size);
  trial.parts = new Array(trial.size).fill(null);  // the parts of each wait that counts as beside a free thread
  for (let i = 0; i < trial.size; i++) {
    const parts = besideParts(trial, i);
    for (const [from, to] of parts) trial.beside[i] += to - from;
    if (trial.beside[i] > BESIDE_MS) trial.parts[i] = parts;
  }
  trial.waiting = trial.blocked ? waitingBeside(trial) : null;
  return {...trial, ...places(trial)};
}

/** Turn the differences between begins and ends into pairs of times. */
function segments(turns) {
  const pairs = [];
  let now = 0;
  for (let i = 0; i + 1 < turns.length; i += 2) {
    const from = now + turns[i];
    now = from + turns[i + 1];
    pairs.push([from / 10, now / 10]);
  }
  return pairs;
}

/** Return the parts of a request's wait in which its worker was busy while another worker had a free thread. */
function besideParts(trial, i) {
  const worker = trial.of.worker[i], parts = [];
  if (worker < 0 || !trial.blocked) return parts;
  const blocked = trial.blocked[worker];
  for (let k = firstThat((n) => blocked[n][1] > trial.sent[i], blocked.length); k < blocked.length && blocked[k][0] < trial.began[i]; k++) {
    const part = [Math.max(blocked[k][0], trial.sent[i]), Math.min(blocked[k][1], trial.began[i])];
    if (part[1] > part[0]) parts.push(part);
  }
  return parts;
}

const BESIDE_MS = 50;  // As in stampede/evaluate/metrics/waiting.py: shorter waits in all are the gaps between requests.

/** Return how many requests wait beside a free thread at each time: [time, requests] at each change. */
function waitingBeside(trial) {
  const changes = [];
  for (let i = 0; i < trial.size; i++) {
    for (const [from, to] of trial.parts[i] || []) changes.push([from, 1], [to, -1]);
  }
  changes.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  let count = 0;
  return changes.map(([time, change]) => [time, count += change]);
}

/** Give each request that waits a place in the line of its worker, and say where each worker's lane is. */
function places(trial) {
  const slot = new Int32Array(trial.size).fill(-1);
  const lines = trial.workers.map(() => []);
  const failures = [];
  const order = Array.from({length: trial.size}, (_, i) => i);
  const sentTogether = (i) => Math.floor(trial.sent[i] / 20);  // a burst takes its places in the order of its service
  order.sort((a, b) => sentTogether(a) - sentTogether(b) || trial.began[a] - trial.began[b]);
  for (const i of order) {
    const worker = trial.of.worker[i];
    const line = worker < 0 ? failures : lines[worker];
    if (trial.began[i] - trial.sent[i] < QUEUED_MS && worker >= 0) continue;
    let place = line.findIndex((until) => until <= trial.sent[i]);
    if (place < 0) place = line.length;
    line[place] = trial.began[i];
    slot[i] = place;
  }
  let top = 0;
  const lanes = trial.workers.map((worker, number) => {
    const slots = Math.max(1, lines[number].length);
    const slotPx = Math.max(0.5, Math.min(6, LINE_PX / slots));
    const rowPx = Math.min(ROW_PX, WORKER_PX / worker.rows);
    const lane = {top, slotPx, linePx: Math.min(LINE_PX, slots * slotPx), rowPx};
    top += lane.linePx + worker.rows * rowPx + 9;
    return lane;
  });
  const failed = failures.length
    ? {top, slotPx: Math.max(0.5, Math.min(6, LINE_PX / failures.length)), linePx: Math.min(LINE_PX, 6 * failures.length)}
    : null;
  if (failed) top += failed.linePx + 9;
  return {slot, lanes, failed, height: top};
}

/** Return the first and the last request that a stretch of time may show. */
function visible(trial, from, to) {
  return [firstSent(trial, from - trial.longest), firstSent(trial, to)];
}

/** Return the place of the first of so many sorted things that reaches what is looked for. */
function firstThat(reaches, size) {
  let low = 0, high = size;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (reaches(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

/** Return the first request that was sent at a time or later. */
function firstSent(trial, time) {
  return firstThat((i) => trial.sent[i] >= time, trial.size);
}

/** Return a number in few digits, as the report writes it. */
function shortly(value) {
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 1 ? value.toFixed(1) : value.toFixed(2);
}

/** Return a time in words: in seconds from one second on, and in milliseconds below. */
function inWords(ms) {
  return Math.abs(ms) >= 1000 ? `${shortly(ms / 1000)} s` : `${shortly(ms)} ms`;
}
