// The path of one request: where its time went, who held the threads of its worker, and which thread was free.

/** Return the parts of a request's time, in ms; they add up to the time from sent to answered. */
function partsOf(trial, i) {
  const total = trial.answered[i] - trial.sent[i];
  if (trial.of.worker[i] < 0) return [{what: 'sent, and answered by no worker', ms: total, kind: 'failed'}];
  const wait = Math.max(0, trial.began[i] - trial.sent[i]);
  const connect = Math.min(trial.of.connect[i] / 10, wait);
  const beside = Math.min(trial.beside[i], wait - connect);
  const busy = Math.max(0, Math.min(wait - connect, busyMs(trial, i)) - beside);
  const work = Math.max(0, trial.ended[i] - Math.max(trial.began[i], trial.sent[i]));
  return [
    {what: 'opening the connection', ms: connect, kind: 'way'},
    {what: 'avoidable wait for its worker, while another worker has a free thread', ms: beside, kind: 'beside'},
    {what: trial.blocked ? 'waiting while all workers are busy' : 'waiting while its worker is busy', ms: busy, kind: 'queue'},
    {what: "on the way to a thread: in the network, the balancer or the queue of a worker that is not busy", ms: wait - connect - beside - busy, kind: 'way'},
    {what: `a thread of ${trial.workers[trial.of.worker[i]].name} is at work on it`, ms: work, kind: 'work'},
    {what: 'the answer is on its way back', ms: total - wait - work, kind: 'way'},
  ];
}

/** Return for how long all threads of a request's worker were busy while the request waited. */
function busyMs(trial, i) {
  const worker = trial.of.worker[i];
  const threads = trial.threads || trial.workers[worker].rows;
  const changes = [];
  for (const other of holders(trial, i)) {
    changes.push([Math.max(trial.began[other], trial.sent[i]), 1], [Math.min(trial.ended[other], trial.began[i]), -1]);
  }
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let count = 0, since = 0, sum = 0;
  for (const [time, change] of changes) {
    if (count >= threads) sum += time - since;
    count += change;
    since = time;
  }
  return sum;
}

/** Return the requests that held a thread of a request's worker while the request waited. */
function holders(trial, i) {
  const [first, last] = visible(trial, trial.sent[i], trial.began[i]);
  const found = [];
  for (let other = first; other < last; other++) {
    if (other !== i && trial.of.worker[other] === trial.of.worker[i] &&
        trial.began[other] < trial.began[i] && trial.ended[other] > trial.sent[i]) found.push(other);
  }
  return found;
}

/** Return for each other worker how long it had a free thread while a request waited, the longest first. */
function freeElsewhere(trial, i) {
  const [first, last] = visible(trial, trial.sent[i], trial.began[i]);
  return trial.workers
    .map((worker, number) => ({worker, number}))
    .filter(({number}) => number !== trial.of.worker[i])
    .map(({worker, number}) => {
      const rows = Array.from({length: worker.rows}, () => 0);
      for (let other = first; other < last; other++) {
        if (trial.of.worker[other] !== number) continue;
        rows[trial.of.row[other]] += Math.max(0, Math.min(trial.ended[other], trial.began[i]) - Math.max(trial.began[other], trial.sent[i]));
      }
      const wait = trial.began[i] - trial.sent[i];
      const freeMs = rows.map((busy) => Math.max(0, wait - busy));
      const freest = freeMs.indexOf(Math.max(...freeMs));
      return {worker: worker.name, row: freest + 1, ms: freeMs[freest]};
    })
    .sort((a, b) => b.ms - a.ms);
}

/** Say in one sentence what became of a request. */
function verdictOf(trial, i) {
  const name = `${trial.classes[trial.of.class[i]]} request ${trial.number[i]} of ${trial.variant}`;
  if (trial.of.worker[i] < 0) return `The ${name} failed ${inWords(trial.answered[i] - trial.sent[i])} after it was sent: ${trial.of.errors[trial.of.error[i]]}.`;
  const wait = Math.max(0, trial.began[i] - trial.sent[i]);
  const worker = trial.workers[trial.of.worker[i]].name;
  if (trial.beside[i] > BESIDE_MS) {
    const [free] = freeElsewhere(trial, i);
    const where = free && free.ms > 0 ? `. For ${inWords(free.ms)} of that time, ${threadOf(trial, free)} was free` : '';
    return `The ${name} waited ${inWords(wait)} for ${worker}, while another worker had a free thread${where}.`;
  }
  if (wait >= QUEUED_MS) return `The ${name} waited ${inWords(wait)} for ${worker}, and was answered ${inWords(trial.answered[i] - trial.began[i])} later.`;
  return `The ${name} did not wait: ${worker} began to work on it ${inWords(wait)} after it was sent.`;
}

function threadOf(trial, free) {
  return trial.of_threads ? `thread ${free.row} of ${free.worker}` : free.worker;
}

/** Fill the microscope's part of the page. Texts of a run are set as text, and never become markup. */
function showRequest(place, trial, i, colours) {
  const parts = partsOf(trial, i);
  const total = parts.reduce((sum, part) => sum + part.ms, 0);
  const bar = made('div', {className: 'parts', role: 'img', ariaLabel: parts.map((part) => `${part.what}: ${inWords(part.ms)}`).join('; ')});
  const table = made('table', {}, made('caption', {textContent: `Where its ${inWords(total)} went; its work was to take ${inWords(trial.of.asked[i] / 10)}`}));
  for (const part of parts) {
    const share = made('span', {className: part.kind});
    share.style.flexGrow = String(total ? part.ms / total : 0);
    bar.append(share);
    table.append(made('tr', {}, made('td', {className: 'text'}, made('i', {className: `swatch ${part.kind}`}), ` ${part.what}`),
                      made('td', {textContent: inWords(part.ms)})));
  }
  bar.style.setProperty('--work', colours[trial.classes[trial.of.class[i]]]);
  table.style.setProperty('--work', colours[trial.classes[trial.of.class[i]]]);
  const lists = [];
  if (trial.of.worker[i] >= 0 && trial.began[i] - trial.sent[i] >= QUEUED_MS) {
    lists.push(listOf(`What held ${trial.workers[trial.of.worker[i]].name} meanwhile`, holders(trial, i).map((other) => heldFrom(trial, other, i))));
    if (trial.blocked) {
      lists.push(listOf('Which threads of other workers were free meanwhile', freeElsewhere(trial, i).map((free) =>
        `${threadOf(trial, free)}: free for ${inWords(free.ms)} of the ${inWords(trial.began[i] - trial.sent[i])}`)));
    }
  }
  place.querySelector('.finding').textContent = verdictOf(trial, i);
  place.querySelector('.details').replaceChildren(bar, table, ...lists);
}

/** Say when another request held a thread, relative to when a request was sent. */
function heldFrom(trial, other, i) {
  const thread = trial.of_threads ? `thread ${trial.of.row[other] + 1}: ` : '';
  const [began, ended] = [trial.began[other] - trial.sent[i], trial.ended[other] - trial.sent[i]];
  const from = began < 0 ? `began ${inWords(-began)} before this request was sent` : `began ${inWords(began)} after this request was sent`;
  return `${thread}${trial.classes[trial.of.class[other]]} request ${trial.number[other]} ${from}, and ended ${inWords(ended)} after`;
}

const LISTED = 12;

function listOf(title, lines) {
  const shown = lines.slice(0, LISTED);
  if (lines.length > LISTED) shown.push(`and ${lines.length - LISTED} more`);
  if (!shown.length) shown.push('none');
  return made('div', {}, made('h3', {textContent: title}), made('ul', {}, ...shown.map((line) => made('li', {textContent: line}))));
}

/** Make an element with properties and children. */
function made(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}
