// The forms of the lesson send what the student says, and the page is loaded again whenever something has changed.

const about = JSON.parse(document.querySelector('script[type="application/json"]').textContent);
const alarm = document.querySelector('[role="alert"]');
const stage = document.querySelector('.stage-now');

async function send(path, content) {
  const answer = await fetch(path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ step: about.step, ...content }),
  });
  if (answer.ok) {
    location.replace(`/?step=${about.step}`);
    return;
  }
  const { message, hint } = await answer.json().catch(() => ({
    message: `The lab answered with ${answer.status} ${answer.statusText}.`,
    hint: 'Its terminal may say more.',
  }));
  alarm.textContent = `${message} ${hint}`;
}

const CONTENT = {
  predict: (form) => ({ values: [...form.querySelectorAll('input')].map((input) => input.value) }),
  measure: () => ({}),
  explain: (form) => ({ sentence: form.sentence.value }),
  try: (form) => ({ change: `${form.dataset.setting}=${form.value.value}` }),
  solution: () => ({}),
};

const ENDED = 'The lab has ended. To go on, start it again: make lesson PAGE=1';

for (const form of document.querySelectorAll('form')) {
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    send(`/${form.dataset.sends}`, CONTENT[form.dataset.sends](form)).catch(() => {
      alarm.textContent = ENDED;
    });
  });
}

async function look() {
  try {
    const now = await (await fetch('/state')).json();
    if (now.changes !== about.changes) {
      location.replace(`/?step=${about.step}`);
      return;
    }
    stage.textContent = now.stage;
    alarm.textContent = about.error;
  } catch {
    alarm.textContent = ENDED;
  }
  setTimeout(look, 1000);
}

if (about.busy) {
  look();
}
