// The lanes while a load runs: asks the lab for what is new twice a second, and draws the last half minute.

const EVERY_MS = 500;
const SHOWN_MS = 30_000;
const PENDING = 'not answered yet';

/** Show what the lab tells in a <section class="lanes">; about is {classes: colours, report: where the report will be}. */
function watchLive(section, about) {
  const canvas = section.querySelector('canvas');
  const choices = [...section.querySelectorAll('select')];
  const stage = section.querySelector('.now');
  const state = {batch: 0, after: 0, now: 0, trials: [], classes: [], shown: [], asked: new Map()};

  async function ask() {
    try {
      const answer = await fetch(`requests?batch=${state.batch}&after=${state.after}`);
      take(await answer.json());
    } catch (error) {
      stage.textContent = `The lab no longer answers. If the run has ended, its report is ${about.report}.`;
      setTimeout(ask, 4 * EVERY_MS);
      return;
    }
    setTimeout(ask, EVERY_MS);
  }

  /** Take what the lab tells: where the run is, its trials, and the requests that are new or were answered. */
  function take(told) {
    stage.textContent = told.stage;
    if (told.batch !== state.batch) {
      state.trials = [];
      state.classes = [];
    }
    if (told.trials.length !== state.trials.length) {
      state.trials = told.trials.map((trial, place) => state.trials[place] || {...trial, rows: new Map(), places: new Map()});
      offer(told.pair);
    }
    told.trials.forEach((trial, place) => { state.trials[place].labels = trial.labels; });
    for (const row of told.rows) state.trials[row[0]].rows.set(row[1], row);
    for (const {rows} of state.trials) {
      for (const [number, row] of rows) {
        if (row[6] !== null && row[6] < told.now - 2 * SHOWN_MS) rows.delete(number);
      }
    }
    state.classes = told.classes;
    [state.batch, state.after, state.now] = [told.batch, told.after, told.now];
    if (state.trials.length) draw();
  }

  /** Offer the variants that are measured now, and keep what was chosen. */
  function offer(pair) {
    const names = state.trials.map((trial) => trial.variant);
    choices.forEach((choice, number) => {
      const wanted = names.includes(state.asked.get(choice)) ? state.asked.get(choice) : pair[number];
      choice.replaceChildren(...names.map((name) => new Option(name, name, false, name === wanted)));
    });
  }

  function draw() {
    const picked = [...new Set(choices.map((choice) => choice.value))];
    const from = Math.max(0, state.now - SHOWN_MS);
    state.shown = state.trials.filter((trial) => picked.includes(trial.variant)).map((trial) => liveTrial(trial, state, from));
    const panels = panelsOf(state.shown);
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(section.clientWidth * scale), Math.round(panels.height * scale)];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    canvas.style.height = `${panels.height}px`;
    canvas.setAttribute('aria-label', state.shown.map((trial) => `${trial.variant}: ${trial.says}.`).join(' '));
    const context = canvas.getContext('2d');
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const colours = Object.fromEntries(state.classes.map((name, place) => [name, about.colours[place % about.colours.length]]));
    const pen = canvasPen(context), ink = inkOf(section);
    drawLanes(pen, panels, {from, to: from + SHOWN_MS}, section.clientWidth, ink, null, colours);
    const share = (state.now - from) / SHOWN_MS, right = section.clientWidth - RIGHT_PX;
    const now = LEFT_PX + Math.min(1, share) * (right - LEFT_PX);
    for (const {lanesTop, bottom} of panels.panels) pen.rect(now, lanesTop, right - now, bottom - lanesTop, ink.paper);
    legend(colours);
  }

  function legend(colours) {
    const list = section.querySelector('.classes');
    if (list.dataset.classes === state.classes.join()) return;
    list.dataset.classes = state.classes.join();
    list.replaceChildren(...Object.entries(colours).map(([name, colour]) => {
      const swatch = document.createElement('i');
      swatch.className = 'swatch';
      swatch.style.background = colour;
      const item = document.createElement('li');
      item.append(swatch, ` ${name} request`);
      return item;
    }));
  }

  choices.forEach((choice) => choice.addEventListener('change', () => {
    state.asked.set(choice, choice.value);
    draw();
  }));
  ask();
  section.live = state;  // what the page's own tests ask
}

/** Return a trial as the lanes need it, made of the requests that are under way or were answered lately. */
function liveTrial(trial, {now, classes}, from) {
  const rows = [...trial.rows.values()].sort((a, b) => a[3] - b[3]);
  const names = Object.keys(trial.labels);
  const workers = [
    ...names.map((name) => ({name: trial.labels[name], rows: 1})),
    ...Array.from({length: Math.max(0, trial.workers - names.length)}, (_, place) => ({name: `idle worker ${place + 1}`, rows: 1})),
    {name: PENDING, rows: 0},
  ];
  const column = (value) => rows.map(value);
  const answered = (row) => row[6] ?? Math.max(now, row[3]);
  const of = {
    class: column((row) => classes.indexOf(row[2])),
    worker: column((row) => row[6] === null ? workers.length - 1 : names.indexOf(row[7])),
    error: column((row) => row[9]),
  };
  const live = {
    variant: trial.variant, classes, workers, of, size: rows.length, window: null, stalls: [], lasted: now, threads: trial.threads,
    sent: column((row) => row[3]), began: column((row) => row[4] ?? answered(row)), ended: column((row) => row[5] ?? answered(row)),
    answered: column(answered),
  };
  of.row = threadRows(live, column((row) => row[7]), column((row) => row[8]), trial.places);
  live.blocked = trial.threads ? blockedOf(live, Math.max(trial.workers, names.length)) : null;
  const placed = arranged(live);
  const ended = rows.filter((row) => row[6] !== null && row[6] >= from);
  const failed = ended.filter((row) => row[9] !== null).length;
  const waited = placed.beside.filter((ms, i) => ms > BESIDE_MS && placed.answered[i] >= from).length;
  placed.says = placed.blocked
    ? `${waited || 'none'} of ${ended.length - failed} requests waited while another worker had a free thread`
    : `${ended.length - failed} requests were answered`;
  if (failed) placed.says += `; ${failed} failed`;
  return placed;
}

/**
 * Return the row of each request at its worker: that of its thread, or the first free row if a thread does several at once.
 * In places, each thread keeps its row. If a worker ends threads and starts others, the others get the rows from the first on.
 */
function threadRows(live, names, threads, places) {
  const order = [...live.sent.keys()].filter((i) => names[i] !== null && live.of.worker[i] >= 0);
  order.sort((a, b) => live.began[a] - live.began[b]);
  const keys = threads.map((thread, i) => `${names[i]} ${thread}`);
  const ofThreads = !overlap(live, order, keys);
  const rows = live.workers.map(() => 1), ends = live.workers.map(() => []);
  const found = new Array(live.size).fill(0);
  for (const i of order) {
    const worker = live.of.worker[i], mine = ends[worker];
    if (!places.has(keys[i])) {
      const seen = [...places.keys()].filter((key) => key.startsWith(`${names[i]} `)).length;
      places.set(keys[i], live.threads ? seen % live.threads : seen);
    }
    const free = mine.findIndex((end) => end <= live.began[i]);
    found[i] = ofThreads ? places.get(keys[i]) : free < 0 ? mine.length : free;
    mine[found[i]] = live.ended[i];
    rows[worker] = Math.max(rows[worker], found[i] + 1);
  }
  live.workers.forEach((worker, number) => {
    if (worker.name !== PENDING) worker.rows = Math.max(ofThreads && live.threads || 1, rows[number]);
  });
  return found;
}

/** Return whether any thread works on two requests at once; order is that of their begin. */
function overlap(live, order, keys) {
  const until = new Map();
  return order.some((i) => {
    const busy = live.began[i] < (until.get(keys[i]) ?? -Infinity) - 1;
    until.set(keys[i], Math.max(until.get(keys[i]) ?? -Infinity, live.ended[i]));
    return busy;
  });
}

/** Return for each worker when all its threads were busy while another worker had a free thread. */
function blockedOf(live, count) {
  const changes = [];
  for (let i = 0; i < live.size; i++) {
    const worker = live.of.worker[i];
    if (worker < 0 || live.workers[worker].name === PENDING) continue;
    changes.push([live.began[i], 1, worker], [Math.max(live.began[i], live.ended[i]), -1, worker]);
  }
  changes.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  const busy = live.workers.map(() => 0), since = live.workers.map(() => null), blocked = live.workers.map(() => []);
  for (const [time, change, worker] of changes) {
    busy[worker] += change;
    const full = busy.filter((running) => running >= live.threads).length;
    busy.forEach((running, number) => {
      const is = running >= live.threads && full < count;
      if (is && since[number] === null) since[number] = time;
      if (!is && since[number] !== null) {
        if (time > since[number]) blocked[number].push([since[number], time]);
        since[number] = null;
      }
    });
  }
  return blocked;
}

const live = document.querySelector('section.lanes');
watchLive(live, JSON.parse(live.querySelector('script[type="application/json"]').textContent));
