// The table of contents of a page that is longer than three screens.

function showContents(nav) {
  const headings = [...document.querySelectorAll('h2[id]')].filter((heading) => heading.offsetParent);
  nav.replaceChildren(...headings.map((heading) => made('a', {
    href: `#${heading.id}`, textContent: heading.dataset.short ?? heading.textContent,
  })));
  nav.hidden = document.documentElement.scrollHeight <= 3 * innerHeight;
}
showContents(document.querySelector('nav.contents'));
