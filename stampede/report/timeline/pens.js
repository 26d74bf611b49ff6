// Two pens with the same strokes: one draws on a canvas, the other writes SVG. So a saved picture is the shown picture.

function canvasPen(context) {
  return {
    rect(x, y, width, height, fill, alpha = 1) {
      if (alpha !== 1) context.globalAlpha = alpha;
      context.fillStyle = fill;
      context.fillRect(x, y, width, height);
      if (alpha !== 1) context.globalAlpha = 1;
    },
    frame(x, y, width, height, colour, px = 1.5) {
      context.strokeStyle = colour;
      context.lineWidth = px;
      context.strokeRect(x, y, width, height);
    },
    line(points, colour, px = 1) {
      context.strokeStyle = colour;
      context.lineWidth = px;
      context.beginPath();
      points.forEach(([x, y], i) => i ? context.lineTo(x, y) : context.moveTo(x, y));
      context.stroke();
    },
    text(x, y, words, {colour, px = 12, bold = false, align = 'start'} = {}) {
      context.fillStyle = colour;
      context.font = `${bold ? 'bold ' : ''}${px}px Arial, Helvetica, sans-serif`;
      context.textAlign = align;
      context.fillText(words, x, y);
    },
    clip(x, y, width, height, draw) {
      context.save();
      context.beginPath();
      context.rect(x, y, width, height);
      context.clip();
      draw();
      context.restore();
    },
  };
}

let clips = 0;  // clip paths of all pictures on a page have names of their own

function svgPen(width, height, title) {
  const parts = [];
  const n = (value) => String(Math.round(value * 100) / 100);
  const path = (points) => points.map(([x, y]) => `${n(x)},${n(y)}`).join(' ');
  return {
    rect(x, y, w, h, fill, alpha = 1) {
      const faint = alpha < 1 ? ` fill-opacity="${alpha}"` : '';
      parts.push(`<rect x="${n(x)}" y="${n(y)}" width="${n(w)}" height="${n(h)}" fill="${fill}"${faint}/>`);
    },
    frame(x, y, w, h, colour, px = 1.5) {
      parts.push(`<rect x="${n(x)}" y="${n(y)}" width="${n(w)}" height="${n(h)}" fill="none" stroke="${colour}" stroke-width="${px}"/>`);
    },
    line(points, colour, px = 1) {
      parts.push(`<polyline points="${path(points)}" fill="none" stroke="${colour}" stroke-width="${px}"/>`);
    },
    text(x, y, words, {colour, px = 12, bold = false, align = 'start'} = {}) {
      const anchor = {start: 'start', center: 'middle', end: 'end'}[align];
      parts.push(`<text x="${n(x)}" y="${n(y)}" fill="${colour}" font-size="${px}" text-anchor="${anchor}"${bold ? ' font-weight="bold"' : ''}>${escaped(words)}</text>`);
    },
    clip(x, y, w, h, draw) {
      const id = `clip${++clips}`;
      parts.push(`<clipPath id="${id}"><rect x="${n(x)}" y="${n(y)}" width="${n(w)}" height="${n(h)}"/></clipPath><g clip-path="url(#${id})">`);
      draw();
      parts.push('</g>');
    },
    svg() {
      return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${n(width)} ${n(height)}" width="${n(width)}" height="${n(height)}" ` +
        `font-family="Arial, Helvetica, sans-serif" role="img"><title>${escaped(title)}</title>${parts.join('')}</svg>`;
    },
  };
}

function escaped(text) {
  return text.replace(/[&<>"']/g, (one) => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;'})[one]);
}
