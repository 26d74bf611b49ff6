// Choosing a laptop shows it in every strip and every table.
const marked = document.querySelectorAll('[data-laptop]');
const chosen = new Set();

function show() {
  for (const element of marked) {
    element.classList.toggle('chosen', chosen.has(element.dataset.laptop));
    element.classList.toggle('faded', chosen.size > 0 && !chosen.has(element.dataset.laptop));
    if (element.tagName === 'BUTTON') element.setAttribute('aria-pressed', String(chosen.has(element.dataset.laptop)));
  }
}

for (const element of marked) {
  if (element.tagName === 'BUTTON' || element.classList.contains('dot')) {
    element.addEventListener('click', () => {
      const laptop = element.dataset.laptop;
      if (!chosen.delete(laptop)) chosen.add(laptop);
      show();
    });
  }
}
