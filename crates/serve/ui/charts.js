// Charts, as SVG. Colors are classes of the style sheet.

const LEFT = 64;
const BOTTOM = 18;

/** The least "round" number that is not below the value. */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

/** The width of what is drawn into an element, so that texts have the size of other texts. */
const widthOf = (element) => Math.max(240, Math.round(element.clientWidth || 600));

/** Axes of a chart: a frame, and the functions from a point and a value to a place. */
function axes([width, height], points, most, show, { end_s: endS, step_s: stepS }) {
  const svg = draw('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img' });
  const x = (at) => LEFT + (width - LEFT - 4) * (points > 1 ? at / (points - 1) : 0);
  const y = (value) => (height - BOTTOM) - (height - BOTTOM - 8) * (value / most);
  for (const part of [0, 0.5, 1]) {
    svg.append(draw('line', { class: 'grid', x1: LEFT, x2: width - 4, y1: y(most * part), y2: y(most * part) }));
    svg.append(draw('text', { x: LEFT - 5, y: y(most * part) + 4, 'text-anchor': 'end' }, show(most * part)));
  }
  for (const part of [0, 0.5, 1]) {
    const ms = (endS - stepS * (points - 1) * (1 - part)) * 1000;
    const anchor = part === 0 ? 'start' : part === 1 ? 'end' : 'middle';
    svg.append(draw('text', { x: x((points - 1) * part), y: height - 4, 'text-anchor': anchor }, clock(ms, stepS < 10)));
  }
  return { svg, x, y };
}

/** A line chart of values, where null is a gap. */
function curve(title, values, history, width, show, fixedMost) {
  const present = values.filter((value) => value !== null);
  const most = fixedMost || roundUp(Math.max(0, ...present));
  const { svg, x, y } = axes([width, 110], values.length, most, show, history);
  let line = '';
  let area = '';
  for (let at = 0; at < values.length; at += 1) {
    if (values[at] === null) continue;
    const begins = at === 0 || values[at - 1] === null;
    const ends = at === values.length - 1 || values[at + 1] === null;
    const place = `${x(at).toFixed(1)} ${y(values[at]).toFixed(1)}`;
    line += `${begins ? 'M' : 'L'}${place}`;
    if (begins && ends) line += 'h2';
    area += begins ? `M${x(at).toFixed(1)} ${y(0)}L${place}` : `L${place}`;
    if (ends) area += `L${x(at).toFixed(1)} ${y(0)}Z`;
  }
  svg.append(draw('path', { class: 'under', d: area }), draw('path', { class: 'curve', d: line }));
  const last = present.length ? show(present[present.length - 1]) : 'no data';
  const highest = present.length ? show(Math.max(...present)) : 'no data';
  svg.setAttribute('aria-label', `${title}: last ${last}, highest ${highest}`);
  return make('figure', {}, make('figcaption', {}, make('span', {}, title), make('span', {}, `highest ${highest}`)), svg);
}

/** Times, with gaps where there was none. */
const known = (times) => times.map((time) => time || null);

/** A ratio of two series, percent; a gap where there is nothing. */
function ratio(part, whole) {
  return part.map((value, at) => (value === null || !(whole[at] > 0) ? null : value * 100 / whole[at]));
}

/** A stacked chart of layers (name, values, color), and its legend; `sum` shows the sum of values over time. */
function layered(title, layers, history, width, show, sum) {
  const points = layers[0].values.length;
  const sums = new Array(points).fill(0);
  layers.forEach(({ values }) => values.forEach((value, at) => { sums[at] += value; }));
  const { svg, x, y } = axes([width, 210], points, roundUp(Math.max(0, ...sums)), show, history);
  const below = new Array(points).fill(0);
  const legend = [];
  for (const { name, values, color } of layers) {
    const above = values.map((value, at) => below[at] + value);
    const total = values.reduce((all, value) => all + value, 0) * history.step_s;
    if (total > 0) {
      const up = above.map((value, at) => `${at ? 'L' : 'M'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join('');
      const down = below.map((value, at) => `L${x(at).toFixed(1)} ${y(value).toFixed(1)}`).reverse().join('');
      svg.append(draw('path', { class: color, d: `${up}${down}Z` }, draw('title', {}, name)));
      const swatch = draw('svg', { viewBox: '0 0 12 12', 'aria-hidden': 'true' }, draw('rect', { class: color, width: 12, height: 12, rx: 2 }));
      legend.push(make('li', {}, swatch, isolated(name), ` ${sum(total)}`));
    }
    above.forEach((value, at) => { below[at] = value; });
  }
  const most = legend.length ? `most: ${layers[0].name}` : 'nothing yet';
  svg.setAttribute('aria-label', `${title}; ${most}`);
  return { svg, legend };
}

/** A bar of a share, in a table. */
function shareBar(share, color) {
  const width = Math.max(share > 0 ? 1 : 0, share * 100);
  return draw('svg', { viewBox: '0 0 100 12', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, draw('rect', { class: color, width, height: 12 }));
}

/** Segments of the store over time, and the picked range. */
function segmentBlocks(segments, width, firstMs, lastMs, picked, pick) {
  const height = 46;
  const svg = draw('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img' });
  const span = Math.max(1, lastMs - firstMs);
  const x = (ms) => 2 + (width - 4) * Math.min(1, Math.max(0, (ms - firstMs) / span));
  const most = Math.max(1, ...segments.map(({ packets }) => packets));
  for (const segment of segments) {
    if (segment.first_ns === null) continue;
    const [from, to] = [segment.first_ns / 1e6, segment.last_ns / 1e6];
    const tall = 8 + 20 * (segment.packets / most);
    const title = `segment ${segment.number}: ${segment.packets} packets, ${bytes(segment.bytes)}, ${clock(from)} to ${clock(to)}`;
    svg.append(draw('rect', {
      class: segment.is_closed ? 'segment' : 'segment grows',
      x: x(from), y: 30 - tall, width: Math.max(2, x(to) - x(from) - 0.5), height: tall,
      onclick: () => pick(from, to),
    }, draw('title', {}, title)));
  }
  const [from, to] = picked;
  svg.append(draw('rect', { class: 'picked', x: x(from), y: 1, width: Math.max(2, x(to) - x(from)), height: 30 }));
  svg.append(draw('text', { x: 2, y: height - 4 }, clock(firstMs)));
  svg.append(draw('text', { x: width - 2, y: height - 4, 'text-anchor': 'end' }, clock(lastMs)));
  svg.setAttribute('aria-label', `${segments.length} segments from ${clock(firstMs)} to ${clock(lastMs)}`);
  return svg;
}
