// The lanes on the page: choosing variants, zooming, panning, and choosing a request.

/** Show the lanes of one load in a <section class="lanes">; data is made in stampede/report/report.py. */
function showLanes(section, data) {
  const trials = data.trials.map(decodeTrial);
  const canvas = section.querySelector('canvas');
  const tip = section.querySelector('.tip');
  const microscope = section.querySelector('.microscope');
  const choices = [...section.querySelectorAll('select')];
  const lasted = Math.max(...trials.map((trial) => trial.lasted));
  const state = {view: firstView(trials, lasted), chosen: null, shown: [], width: 0, scale: 1, due: false};
  const finding = microscope.querySelector('.finding');

  function chooseVariants() {
    const picked = [...new Set(choices.map((choice) => Number(choice.value)))].filter((place) => place >= 0);
    state.shown = picked.map((place) => trials[place]);
    state.panels = panelsOf(state.shown);
    if (state.chosen && !state.shown.includes(state.chosen.trial)) choose(null);
    const alt = state.shown.map((trial) => `${trial.variant}: ${trial.says}.`).join(' ');
    canvas.setAttribute('aria-label', alt);
    data.alt = alt;
    resize();
  }

  function resize() {
    state.width = section.clientWidth;
    state.scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(state.width * state.scale);
    canvas.height = Math.round(state.panels.height * state.scale);
    canvas.style.height = `${state.panels.height}px`;
    draw();
  }

  function drawNow() {
    state.due = false;
    const context = canvas.getContext('2d');
    context.setTransform(state.scale, 0, 0, state.scale, 0, 0);
    drawLanes(canvasPen(context), state.panels, state.view, state.width, inkOf(section), state.chosen, data.colours, data.began_ms);
  }

  function draw() {
    if (!state.due) requestAnimationFrame(drawNow);
    state.due = true;
  }

  /** Move the view; it stays within the load, and shows at least a millisecond. */
  function look(from, to) {
    const length = Math.min(lasted, Math.max(1, to - from));
    const start = Math.min(Math.max(0, from), lasted - length);
    state.view = {from: start, to: start + length};
    draw();
  }

  function zoom(factor, at = (state.view.from + state.view.to) / 2) {
    look(at - (at - state.view.from) * factor, at + (state.view.to - at) * factor);
  }

  function pan(share) {
    const by = (state.view.to - state.view.from) * share;
    look(state.view.from + by, state.view.to + by);
  }

  const inner = () => state.width - LEFT_PX - RIGHT_PX;
  const timeAt = (px) => state.view.from + (px - LEFT_PX) / inner() * (state.view.to - state.view.from);

  /** Return the request at a place of the canvas; null: there is none. */
  function requestAt(px, py) {
    const panel = state.panels.panels.find((one) => py >= one.lanesTop && py <= one.bottom);
    if (!panel || px < LEFT_PX) return null;
    const {trial} = panel;
    const time = timeAt(px), near = 2 * (state.view.to - state.view.from) / inner();
    const [first, last] = visible(trial, time - near, time + near);
    let best = null, nearest = 7;
    for (let i = first; i < last; i++) {
      const box = boxOf(panel, i);
      const waits = trial.slot[i] >= 0 && py < box.row && time >= trial.sent[i] - near && time <= trial.began[i] + near;
      const works = time >= trial.began[i] - near && time <= trial.ended[i] + near;
      if (!waits && !works) continue;
      const [top, px] = waits ? [box.line, box.linePx] : [box.row, box.rowPx];
      const away = Math.abs(py - top - px / 2) - px / 2;
      if (away < nearest) [best, nearest] = [{trial, i}, away];
    }
    return best;
  }

  /** Return where on the canvas the row of a request of the first shown variant is, at some time. */
  function placeOf(time, i = state.chosen && state.chosen.i) {
    const [panel] = state.panels.panels;
    const box = boxOf(panel, i);
    return [LEFT_PX + (time - state.view.from) / (state.view.to - state.view.from) * inner(), box.row + box.rowPx / 2];
  }

  function choose(request, {bring = false} = {}) {
    state.chosen = request;
    if (request) {
      const {trial, i} = request;
      const length = trial.answered[i] - trial.sent[i];
      if (bring) look(trial.sent[i] - 0.6 * length, trial.answered[i] + 0.6 * length);
      showRequest(microscope, trial, i, data.colours);
    } else {
      finding.textContent = HINT;
      microscope.querySelector('.details').replaceChildren();
    }
    draw();
  }

  /** Choose the request of a class that took longest beyond its work, in the first shown variant that has the class. */
  function chooseSlowest(name) {
    for (const trial of state.shown) {
      let slowest = null;
      for (let i = 0; i < trial.size; i++) {
        if (trial.classes[trial.of.class[i]] !== name || trial.of.worker[i] < 0) continue;
        if (slowest === null || lostOf(trial, i) > lostOf(trial, slowest)) slowest = i;
      }
      if (slowest !== null) return choose({trial, i: slowest}, {bring: true});
    }
    choose(null);
    finding.textContent = `No ${name} request was answered in the variants that are shown.`;
  }

  function search(text) {
    const [trial] = state.shown;
    const i = trial.number.indexOf(Number(text));
    if (i >= 0) return choose({trial, i}, {bring: true});
    choose(null);
    finding.textContent = `${trial.variant} has no request “${text}” here: give a number from ${trial.number[0]} to ` +
      `${trial.number[trial.size - 1]}, in the order of sending.`;
  }

  function step(by) {
    const trial = state.chosen ? state.chosen.trial : state.shown[0];
    const i = state.chosen ? state.chosen.i + by : firstSent(trial, state.view.from);
    if (i >= 0 && i < trial.size) {
      choose({trial, i});
      const at = trial.sent[i];
      if (at < state.view.from || at > state.view.to) pan((at - state.view.from) / (state.view.to - state.view.from) - 0.5);
    }
  }

  const fingers = new Map();
  let dragged = 0;
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button) return;
    fingers.set(event.pointerId, event.offsetX);
    canvas.setPointerCapture(event.pointerId);
    dragged = 0;
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!fingers.has(event.pointerId)) return hover(event);
    const before = [...fingers.values()];
    fingers.set(event.pointerId, event.offsetX);
    const after = [...fingers.values()];
    const length = state.view.to - state.view.from;
    if (after.length === 1) {
      const by = (before[0] - after[0]) / inner() * length;
      dragged += Math.abs(before[0] - after[0]);
      look(state.view.from + by, state.view.to + by);
    } else {
      dragged = Infinity;
      const apart = Math.max(10, Math.abs(after[0] - after[1]));
      zoom(Math.max(10, Math.abs(before[0] - before[1])) / apart, timeAt((after[0] + after[1]) / 2));
    }
  });
  const release = (event) => fingers.delete(event.pointerId);
  canvas.addEventListener('pointerup', (event) => {
    if (!fingers.has(event.pointerId)) return;
    release(event);
    if (dragged < 4) choose(requestAt(event.offsetX, event.offsetY));
  });
  canvas.addEventListener('pointercancel', release);
  canvas.addEventListener('lostpointercapture', release);
  canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
  canvas.addEventListener('dblclick', (event) => zoom(0.4, timeAt(event.offsetX)));
  canvas.addEventListener('wheel', (event) => {
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / 800);
    else if (event.ctrlKey || event.metaKey || document.activeElement === canvas) zoom(1.002 ** event.deltaY, timeAt(event.offsetX));
    else return;  // the page scrolls
    event.preventDefault();
  }, {passive: false});
  canvas.addEventListener('keydown', (event) => {
    const action = {
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), '+': () => zoom(0.6), '=': () => zoom(0.6), '-': () => zoom(1 / 0.6),
      Home: () => look(0, lasted), '0': () => look(0, lasted), n: () => step(1), p: () => step(-1), Escape: () => choose(null),
    }[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    action();
    event.preventDefault();
  });

  function hover(event) {
    const found = requestAt(event.offsetX, event.offsetY);
    tip.hidden = !found;
    if (!found) return;
    const {trial, i} = found;
    tip.textContent = `${trial.classes[trial.of.class[i]]} request ${trial.number[i]}: waited ${inWords(Math.max(0, waitOf(trial, i)))}, took ${inWords(trial.answered[i] - trial.sent[i])}`;
    tip.style.left = `${Math.min(event.offsetX + 12, state.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${event.offsetY + 14}px`;
  }

  const actions = {
    in: () => zoom(0.5), out: () => zoom(2), left: () => pan(-0.4), right: () => pan(0.4), whole: () => look(0, lasted),
    svg: () => savePicture(data.file, 'svg', svgOf(data, state)), png: () => savePicture(data.file, 'png', svgOf(data, state)), trace: () => saveTrace(data, state.shown),
  };
  section.querySelectorAll('button[data-do]').forEach((button) => button.addEventListener('click', actions[button.dataset.do]));
  section.querySelectorAll('button[data-slowest]').forEach((button) => button.addEventListener('click', () => chooseSlowest(button.dataset.slowest)));
  section.querySelector('form').addEventListener('submit', (event) => {
    event.preventDefault();
    search(event.target.elements.number.value.trim());
  });
  choices.forEach((choice) => choice.addEventListener('change', chooseVariants));
  new ResizeObserver(() => { if (section.clientWidth !== state.width) resize(); }).observe(section);
  addEventListener('resize', () => { if (window.devicePixelRatio !== state.scale) resize(); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  addEventListener('beforeprint', () => {
    const picture = svgOf(data, state, tellingHalfMinute(state.shown));
    section.querySelector('.printed').replaceChildren(new DOMParser().parseFromString(picture, 'image/svg+xml').documentElement);
  });
  chooseVariants();
  choose(null);
  // What the page's own tests ask.
  section.lanes = {data, state, trials, partsOf, placeOf, drawNow, svg: () => svgOf(data, state)};
}

const HINT = 'Click a request, or press a button above, to see where its time went.';

function waitOf(trial, i) {
  return trial.began[i] - trial.sent[i];
}

/** Return the time that a request lost: its response time without its work. */
function lostOf(trial, i) {
  return trial.answered[i] - trial.sent[i] - (trial.ended[i] - trial.began[i]);
}

/** Return what is shown first: the whole load, or the time of the requests that are shown. */
function firstView(trials, lasted) {
  const windows = trials.filter((trial) => trial.window).map((trial) => trial.window);
  if (!windows.length || windows.length < trials.length) return {from: 0, to: lasted};
  return {from: Math.min(...windows.map(([from]) => from)), to: Math.max(...windows.map(([, to]) => to))};
}

/** Return the half minute around the longest wait of the shown trials. */
function tellingHalfMinute(trials) {
  let at = 0, longest = -1;
  for (const trial of trials) {
    for (let i = 0; i < trial.size; i++) {
      if (trial.of.worker[i] >= 0 && waitOf(trial, i) > longest) [at, longest] = [trial.sent[i], waitOf(trial, i)];
    }
  }
  const lasted = Math.max(...trials.map((trial) => trial.lasted));
  const from = Math.max(0, Math.min(at - 10_000, lasted - 30_000));
  return {from, to: Math.min(lasted, from + 30_000)};
}

document.querySelectorAll('section.lanes').forEach((section) => {
  showLanes(section, JSON.parse(section.querySelector('script[type="application/json"]').textContent));
});

/** Let the keyboard scroll whatever is wider than the page. */
function letScroll() {
  document.querySelectorAll('.wide, figure, pre').forEach((box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; else box.removeAttribute('tabindex');
  });
}
addEventListener('resize', letScroll);
document.querySelectorAll('details').forEach((box) => box.addEventListener('toggle', letScroll));
letScroll();
