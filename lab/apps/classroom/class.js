// Choosing a laptop shows it in every strip and every table.
const marked = document.querySelectorAll('[data-laptop]');
const chosen = new Set();

function show() {
  for (const one of marked) {
    one.classList.toggle('chosen', chosen.has(one.dataset.laptop));
    one.classList.toggle('faded', chosen.size > 0 && !chosen.has(one.dataset.laptop));
    if (one.tagName === 'BUTTON') one.setAttribute('aria-pressed', String(chosen.has(one.dataset.laptop)));
  }
}

for (const one of marked) {
  if (one.tagName === 'BUTTON' || one.classList.contains('dot')) {
    one.addEventListener('click', () => {
      const laptop = one.dataset.laptop;
      if (!chosen.delete(laptop)) chosen.add(laptop);
      show();
    });
  }
}
