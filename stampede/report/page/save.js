// Saving what is shown: as SVG, as PNG, and as a trace that Perfetto opens.

const LIGHT = {paper: '#ffffff', text: '#1c1c1c', faint: '#5a5a5a', grid: '#e4e4e4', free: '#eef1f4', chosen: '#000000'};
const SAVED_PX = 1000;

/** Return the shown lanes as an SVG text with its caption. */
function svgOf(data, state, view = state.view) {
  const {height} = state.panels;
  const legend = legendOf(data.colours);
  const lines = legend[legend.length - 1].line + 1;
  const caption = captionLines(data, state);
  const whole = height + 18 * (lines + caption.length) + 12;
  const pen = svgPen(SAVED_PX, whole, data.alt);
  pen.rect(0, 0, SAVED_PX, whole, LIGHT.paper);
  drawLanes(pen, state.panels, view, SAVED_PX, LIGHT, state.chosen, data.colours, data.began_ms);
  for (const {x, line, draw} of legend) draw(pen, x, height + 8 + 18 * line);
  caption.forEach((text, place) => pen.text(0, height + 18 * (lines + place) + 18, text, {colour: LIGHT.faint, px: 11}));
  return pen.svg();
}

/** Return the entries of the legend, each with its place; a line is at most as wide as the picture. */
function legendOf(colours) {
  const entries = Object.entries(colours).flatMap(([name, colour]) => [
    [`${name} request waits`, (pen, x, y) => pen.rect(x, y + 3, 16, 4, colour, 0.45)],
    [`a thread is at work on a ${name} request`, (pen, x, y) => pen.rect(x, y, 16, 10, colour)],
  ]);
  entries.push(['red on a waiting request: its wait is avoidable, because another worker has a free thread', (pen, x, y) => pen.rect(x, y + 3, 16, 4, BESIDE)]);
  let [at, line] = [0, 0];
  return entries.map(([text, mark]) => {
    const px = 36 + 6.2 * text.length;
    if (at + px > SAVED_PX) [at, line] = [0, line + 1];
    const entry = {x: at, line, draw: (pen, x, y) => {
      mark(pen, x, y);
      pen.text(x + 20, y + 9, text, {colour: LIGHT.text, px: 11});
    }};
    at += px;
    return entry;
  });
}

function captionLines(data, state) {
  return [`${data.caption} Trials ${state.shown.map((trial) => `${trial.trial} of ${trial.variant}`).join(', ')}.`, data.cite];
}

/** Save a picture, an SVG text, as it is, or as PNG in twice its size. */
function savePicture(file, kind, text) {
  if (kind === 'svg') return saveAs(`${file}.svg`, new Blob([text], {type: 'image/svg+xml'}));
  const image = made('img', {src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`});
  image.onload = () => {
    const canvas = made('canvas', {width: 2 * image.naturalWidth, height: 2 * image.naturalHeight});
    canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => saveAs(`${file}.png`, blob), 'image/png');
  };
}

/** Return a figure of the page as an SVG text, with a line below that says what to cite. */
function citedFigure(svg, cite) {
  const {width, height} = svg.viewBox.baseVal;
  const copy = svg.cloneNode(true);
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.setAttribute('viewBox', `0 0 ${width} ${height + 24}`);
  copy.setAttribute('width', width);
  copy.setAttribute('height', height + 24);
  const box = (name, values, text = '') => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(values)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };
  copy.prepend(box('title', {}, svg.getAttribute('aria-label')), box('rect', {width, height: height + 24, fill: LIGHT.paper}));
  const look = {x: 24, y: height + 12, fill: LIGHT.faint, 'font-size': 11, 'font-family': 'Arial, Helvetica, sans-serif'};
  copy.append(box('text', look, cite));
  return new XMLSerializer().serializeToString(copy);
}

document.querySelectorAll('figure').forEach((figure, place) => {
  const {cite, file} = document.querySelector('main').dataset;
  figure.querySelectorAll('button[data-save]').forEach((button) => button.addEventListener('click', () => {
    savePicture(`${file}-${place + 1}`, button.dataset.save, citedFigure(figure.querySelector('svg'), cite));
  }));
});

/** Save the shown trials in the Trace Event Format: a process for each worker, a thread for each row, waits as async events. */
function saveTrace(data, trials) {
  saveAs(`${data.file}.trace.json`, new Blob([JSON.stringify(traceOf(trials))], {type: 'application/json'}));
}

function traceOf(trials) {
  const events = [];
  trials.forEach((trial, number) => {
    const pid = (worker) => 1000 * (number + 1) + worker + 1;
    trial.workers.forEach((worker, place) => {
      events.push({ph: 'M', name: 'process_name', pid: pid(place), args: {name: `${trial.variant}: ${worker.name}`}});
      for (let row = 0; row < worker.rows; row++) {
        events.push({ph: 'M', name: 'thread_name', pid: pid(place), tid: row + 1, args: {name: `${trial.of_threads ? 'thread' : 'at once'} ${row + 1}`}});
      }
    });
    for (let i = 0; i < trial.size; i++) {
      const name = trial.classes[trial.of.class[i]];
      const args = {request: trial.number[i], service_time_ms: trial.of.asked[i] / 10, avoidable_wait_ms: trial.beside[i]};
      const worker = trial.of.worker[i];
      const us = (ms) => Math.round(1000 * ms);
      if (worker < 0) {
        events.push({ph: 'i', s: 'g', name: `${name} failed: ${trial.of.errors[trial.of.error[i]]}`, pid: pid(-1), tid: 0, ts: us(trial.answered[i])});
        continue;
      }
      const id = `${number}-${trial.number[i]}`;
      events.push({ph: 'b', cat: 'wait', id, name: `${name} waits`, pid: pid(worker), tid: 0, ts: us(trial.sent[i]), args});
      events.push({ph: 'e', cat: 'wait', id, name: `${name} waits`, pid: pid(worker), tid: 0, ts: us(Math.max(trial.sent[i], trial.began[i]))});
      events.push({ph: 'X', cat: 'work', name, pid: pid(worker), tid: trial.of.row[i] + 1, ts: us(trial.began[i]), dur: us(trial.ended[i] - trial.began[i]), args});
    }
  });
  return {displayTimeUnit: 'ms', traceEvents: events};
}

function saveAs(name, blob) {
  const link = made('a', {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
