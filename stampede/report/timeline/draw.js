// Draws the lanes of some trials, one under the other, on one time axis.

const LEFT_PX = 134;   // names of workers
const RIGHT_PX = 12;
const HEAD_PX = 40;    // a trial's name and what it says
const COUNT_PX = 26;   // the line of how many requests wait beside a free thread
const AXIS_PX = 34;
const BESIDE = '#d62728';
const STALL = '#e8c95a';

/** Return where each trial's panel is, and the height of all. */
function panelsOf(trials) {
  let top = 0;
  const panels = trials.map((trial) => {
    const countTop = top + HEAD_PX;
    const lanesTop = countTop + (trial.waiting ? COUNT_PX + 8 : 0);
    const panel = {trial, top, countTop, lanesTop, bottom: lanesTop + trial.height};
    top = panel.bottom + 14;
    return panel;
  });
  return {panels, height: top + AXIS_PX};
}

/** Draw everything: view is {from, to} in ms; ink has the colours of the page, and colours those of the classes; chosen is {trial, i} or null; began is when the load began, in ms since 1970, if the axis shows the time of day, or null. */
function drawLanes(pen, {panels, height}, view, width, ink, chosen, colours, began) {
  const right = width - RIGHT_PX;
  const x = (time) => LEFT_PX + (time - view.from) / (view.to - view.from) * (right - LEFT_PX);
  pen.rect(0, 0, width, height, ink.paper);
  const ticks = ticksOf(view, right - LEFT_PX, began);
  for (const {at} of ticks) pen.line([[x(at), HEAD_PX], [x(at), height - AXIS_PX]], ink.grid);
  for (const panel of panels) drawPanel(pen, panel, view, x, right, ink, chosen, colours);
  pen.line([[LEFT_PX, height - AXIS_PX], [right, height - AXIS_PX]], ink.faint);
  for (const {at, label} of ticks) pen.text(x(at), height - AXIS_PX + 14, label, {colour: ink.faint, px: 11, align: 'center'});
  pen.text((LEFT_PX + right) / 2, height - 5, began === null ? 'seconds since the first request was sent' : 'time of day (UTC)', {colour: ink.faint, px: 11, align: 'center'});
}

/** Return round times on the axis, with their labels: seconds, or the time of day if it is known when the load began. */
function ticksOf(view, px, began) {
  const rough = (view.to - view.from) / Math.max(2, px / 90);
  const power = 10 ** Math.floor(Math.log10(rough));
  const ofClock = began === null ? [] : [10, 20, 30, 60, 120, 300, 600, 1200, 3600, 7200].map((one) => one * 1000);
  const step = [...rough < 10000 ? [] : ofClock, ...[1, 2, 5, 10].map((one) => one * power)].find((one) => one >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step / 1000)));
  const ticks = [];
  for (let k = Math.ceil((view.from + (began ?? 0)) / step); k * step <= view.to + (began ?? 0); k++) {
    const clock = () => new Date(Math.round(k * step)).toISOString().slice(11, digits ? 20 + digits : 19);
    ticks.push({at: k * step - (began ?? 0), label: began === null ? (k * step / 1000).toFixed(digits) : clock()});
  }
  return ticks;
}

function drawPanel(pen, panel, view, x, right, ink, chosen, colours) {
  const {trial, top, countTop, lanesTop} = panel;
  pen.text(0, top + 14, trial.variant + (trial.layout ? `: ${trial.layout}` : ''), {colour: ink.text, px: 14, bold: true});
  pen.text(0, top + 31, trial.says, {colour: ink.text, px: 12});
  if (trial.waiting) drawCount(pen, trial, view, x, right, countTop, ink);
  trial.workers.forEach((worker, number) => {
    const lane = trial.lanes[number];
    const rows = lanesTop + lane.top + lane.linePx;
    pen.text(LEFT_PX - 8, Math.min(rows + worker.rows * lane.rowPx / 2 + 4, rows + 60), worker.name, {colour: ink.text, px: 11, align: 'end'});
    for (let row = 0; row < worker.rows; row++) {
      pen.rect(LEFT_PX, rows + row * lane.rowPx, right - LEFT_PX, Math.max(0.5, lane.rowPx - 1), ink.free);
    }
  });
  if (trial.failed) {
    pen.text(LEFT_PX - 8, lanesTop + trial.failed.top + Math.min(12, trial.failed.linePx), 'failed', {colour: ink.text, px: 11, align: 'end'});
  }
  pen.clip(LEFT_PX, lanesTop, right - LEFT_PX, panel.bottom - lanesTop, () => {
    for (const [from, to] of trial.stalls) {
      pen.rect(x(from), lanesTop, x(to) - x(from), panel.bottom - lanesTop, STALL, 0.35);
      pen.text(x(from) + 4, lanesTop + 10, 'the api stalls', {colour: ink.text, px: 10});
    }
  });
  pen.clip(LEFT_PX, top, right - LEFT_PX, panel.bottom - top, () => {
    drawRequests(pen, panel, visible(trial, view.from, view.to), view, x, ink, colours);
    if (trial.window) drawUnseen(pen, panel, view, x, ink);
    if (chosen && chosen.trial === trial) drawChosen(pen, panel, chosen.i, x, ink);
  });
}

/** Draw how many requests wait while another worker has a free thread. */
function drawCount(pen, trial, view, x, right, top, ink) {
  const most = trial.waiting.reduce((largest, [, count]) => Math.max(largest, count), 0);
  const bottom = top + COUNT_PX;
  pen.text(LEFT_PX - 8, bottom - 11, 'waiting although', {colour: ink.text, px: 11, align: 'end'});
  pen.text(LEFT_PX - 8, bottom + 1, 'a thread is free', {colour: ink.text, px: 11, align: 'end'});
  pen.line([[LEFT_PX, bottom], [right, bottom]], ink.grid);
  if (!most) return pen.text(LEFT_PX + 4, bottom - 3, 'none', {colour: ink.faint, px: 11});
  const largest = new Array(Math.max(1, Math.ceil(right - LEFT_PX))).fill(0);  // in each column of pixels
  trial.waiting.forEach(([time, count], place) => {
    const until = place + 1 < trial.waiting.length ? trial.waiting[place + 1][0] : time;
    const last = Math.min(largest.length - 1, x(until) - LEFT_PX);
    for (let px = Math.max(0, Math.floor(x(time) - LEFT_PX)); px <= last; px++) largest[px] = Math.max(largest[px], count);
  });
  largest.forEach((count, px) => {
    const height = count / most * (COUNT_PX - 4);
    if (count) pen.rect(LEFT_PX + px, bottom - height, 1, height, BESIDE);
  });
  pen.text(right - 4, top - 4, `at most ${most} at the same time`, {colour: ink.text, px: 11, align: 'end'});
}

/** Return where a request is drawn: in the line at its worker's door, and in the row of its thread. */
function boxOf({trial, lanesTop}, i) {
  const failed = trial.of.worker[i] < 0;
  const lane = failed ? trial.failed : trial.lanes[trial.of.worker[i]];
  const rows = lanesTop + lane.top + lane.linePx;
  const line = rows - Math.min(lane.linePx, (Math.max(0, trial.slot[i]) + 1) * lane.slotPx);
  if (failed) return {line, linePx: lane.slotPx, row: line, rowPx: lane.slotPx};
  return {line, linePx: lane.slotPx, row: rows + trial.of.row[i] * lane.rowPx, rowPx: Math.max(0.5, lane.rowPx - 1)};
}

/** Draw the requests from the first to before the last. A bar within the pixel that was painted last at its height is left out. */
function drawRequests(pen, panel, [first, last], view, x, ink, colours) {
  const {trial} = panel;
  const painted = new Map();
  const isPainted = (y, from, to) => from >= painted.get(y) && to <= painted.get(y) + 1;
  for (let i = first; i < last; i++) {
    if (trial.answered[i] < view.from) continue;
    const box = boxOf(panel, i), sent = x(trial.sent[i]), began = x(trial.began[i]), ended = x(trial.ended[i]);
    if (trial.of.worker[i] < 0) {
      drawFailure(pen, box, sent, x(trial.answered[i]), ink);
      continue;
    }
    const colour = colours[trial.classes[trial.of.class[i]]];
    if (began - sent >= 0.5 && !isPainted(box.line, sent, began)) {
      const parts = trial.parts[i];
      pen.rect(sent, box.line, began - sent, Math.max(0.5, box.linePx - 1), colour, parts ? 1 : 0.45);
      if (parts) drawBeside(pen, parts, box.line, 0.6 * (box.linePx - 1), x);
      if (began - sent < 2) painted.set(box.line, Math.floor(sent));
    }
    if (isPainted(box.row, began, ended)) continue;
    const width = Math.max(0.7, ended - began - 0.5);
    pen.rect(began, box.row, width, box.rowPx, colour);
    if (width < 2) painted.set(box.row, Math.floor(began));
  }
}

function drawFailure(pen, {line, linePx}, sent, until, ink) {
  pen.rect(sent, line, Math.max(1, until - sent), Math.max(0.5, linePx - 1), ink.faint, 0.5);
  pen.rect(until - 1.5, line, 3, linePx, ink.text);
}

/** Draw the parts of a wait in which another worker had a free thread, without parts within half a pixel of another part. */
function drawBeside(pen, parts, top, px, x) {
  let painted = -Infinity;
  for (const [starts, ends] of parts) {
    const left = Math.max(x(starts), painted), right = Math.max(x(ends), x(starts) + 0.5);
    if (right - painted < 0.5) continue;
    pen.rect(left, top, right - left, Math.max(0.5, px), BESIDE);
    painted = right;
  }
}

/** Cover the time before and after the requests that are shown. */
function drawUnseen(pen, {trial, lanesTop, bottom}, view, x, ink) {
  for (const [from, to] of [[0, trial.window[0]], [trial.window[1], trial.lasted]]) {
    if (to <= from || to < view.from || from > view.to) continue;
    const left = x(Math.max(from, view.from)), right = x(Math.min(to, view.to));
    pen.rect(left, lanesTop, right - left, bottom - lanesTop, ink.paper, 0.85);
    if (right - left > 90) pen.text((left + right) / 2, (lanesTop + bottom) / 2, 'not shown', {colour: ink.faint, px: 12, align: 'center'});
  }
}

/** Mark a request, and the requests that held the threads of its worker while it waited. */
function drawChosen(pen, panel, i, x, ink) {
  const {trial} = panel;
  const box = boxOf(panel, i);
  for (const other of holders(trial, i)) {
    const held = boxOf(panel, other);
    pen.frame(x(trial.began[other]), held.row, x(trial.ended[other]) - x(trial.began[other]), held.rowPx, ink.text, 1);
  }
  const began = x(trial.began[i]);
  pen.frame(x(trial.sent[i]) - 1, box.line - 1, Math.max(3, began - x(trial.sent[i])) + 2, box.linePx + 1, ink.chosen, 2);
  pen.line([[began, box.line], [began, box.row + box.rowPx]], ink.chosen, 2);
  pen.frame(began, box.row, Math.max(3, x(trial.ended[i]) - began), box.rowPx, ink.chosen, 2.5);
}

/** Return the colours of the page as it is shown now. */
function inkOf(section) {
  const style = getComputedStyle(section);
  return Object.fromEntries(['paper', 'text', 'faint', 'grid', 'free', 'chosen'].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}
