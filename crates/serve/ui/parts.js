// Parts of the page: elements, numbers, requests. Texts that come from packets become text nodes and
// attributes, never markup.

const $ = (id) => document.getElementById(id);

/** An element with attributes and children; strings are text. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  return fill(element, attributes, children);
}

const SVG = 'http://www.w3.org/2000/svg';

/** The same of an SVG. */
function draw(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets the text of an element, if it has changed. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A name of a packet, isolated from the direction of the text around it. */
const isolated = (text) => make('bdi', {}, text);

/** A name as logs write it: bytes that are no printable ASCII as \xHH. */
function printable(name) {
  const hex = (byte) => `\\x${byte.toString(16).padStart(2, '0')}`;
  const bytesOf = (text) => [...new TextEncoder().encode(text)].map(hex).join('');
  return name.replace(/[^\x20-\x7e]+/g, bytesOf);
}

/** 41300 as "41.3 k". */
function si(value, unit = '') {
  if (value === null || value === undefined) return '-';
  const steps = ['', 'k', 'M', 'G', 'T'];
  let step = 0;
  while (Math.abs(value) >= 1000 && step < steps.length - 1) { value /= 1000; step += 1; }
  const digits = step === 0 ? (Number.isInteger(value) ? 0 : 1) : value < 10 ? 2 : value < 100 ? 1 : 0;
  return `${value.toFixed(digits)} ${steps[step]}${unit}`.trim();
}

/** 1536 as "1.5 KiB". */
function bytes(value) {
  const steps = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let step = 0;
  while (value >= 1024 && step < steps.length - 1) { value /= 1024; step += 1; }
  return `${value.toFixed(step === 0 || value >= 100 ? 0 : 1)} ${steps[step]}`;
}

/** Microseconds as "1.2 ms"; times are ends of buckets, which double. */
function time(us) {
  if (us === null || us === undefined) return '-';
  if (us < 1000) return `${us} us`;
  return us < 1e6 ? `${(us / 1e3).toFixed(us < 1e4 ? 1 : 0)} ms` : `${(us / 1e6).toFixed(1)} s`;
}

const percent = (value) => (value === null || value === undefined ? '-' : `${value.toFixed(1)} %`);

/** Seconds as "2 d 4 h". */
function duration(seconds) {
  const parts = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const at = parts.findIndex(([, length]) => seconds >= length);
  if (at < 0) return '0 s';
  const [unit, length] = parts[at];
  const rest = parts[at + 1];
  const more = rest ? Math.floor((seconds % length) / rest[1]) : 0;
  return `${Math.floor(seconds / length)} ${unit}` + (more ? ` ${more} ${rest[0]}` : '');
}

const pad = (number) => String(number).padStart(2, '0');

/** A time in the zone of the browser, with the day unless it is today. */
function clock(ms, withSeconds = true) {
  const date = new Date(ms);
  const time = `${pad(date.getHours())}:${pad(date.getMinutes())}` + (withSeconds ? `:${pad(date.getSeconds())}` : '');
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? time : `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${time}`;
}

/** A time of nanoseconds, with the exact time in UTC as its title. */
function timeOf(ns) {
  const ms = ns / 1e6;
  return make('time', { datetime: new Date(ms).toISOString(), title: new Date(ms).toISOString() }, clock(ms));
}

// The storage may be forbidden.
function remembered(key) { try { return sessionStorage.getItem(key); } catch { return null; } }
function remember(key, value) { try { sessionStorage.setItem(key, value); } catch { /* only for this page */ } }

let token = remembered('larder-token');

/** The response to a request; one that is no success throws an error with its status and text. */
async function request(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { headers, cache: 'no-store', credentials: 'omit' });
  if (response.ok) return response;
  const text = (await response.text()).slice(0, 4000);
  const error = new Error(text.trim() || `status ${response.status}`);
  error.status = response.status;
  try { error.details = JSON.parse(text); } catch { /* it is plain text */ }
  if (response.status === 401) askForToken();
  throw error;
}

const json = async (path) => (await request(path)).json();

const TOKEN_NOTE = $('token-note').textContent;

function askForToken() {
  const wasWrong = token !== null;
  token = null;
  if ($('token-form').hidden) {
    $('token-form').hidden = false;
    $('token').focus();
  }
  say($('token-note'), wasWrong ? `This token is wrong. ${TOKEN_NOTE}` : TOKEN_NOTE);
}

/** The first bytes of a body that grows; the rest is not read. */
async function begin(response, length) {
  const reader = response.body.getReader();
  const parts = [];
  let left = length;
  while (left > 0) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value.subarray(0, left));
    left -= value.length;
  }
  reader.cancel();
  return new Blob(parts);
}

/** Saves the body of a response as a file; `length`: the first bytes of a body that grows. */
async function download(path, name, length) {
  const response = await request(path);
  const blob = length === undefined ? await response.blob() : await begin(response, length);
  const url = URL.createObjectURL(blob);
  const link = make('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(url), 60000);
  return blob.size;
}

/** Fills a table with a row for each item; a table in use (its focus, a selection) stays as it is. */
function table(element, columns, items, empty) {
  const selected = document.getSelection();
  const isUsed = element.contains(document.activeElement)
    || (selected && !selected.isCollapsed && element.contains(selected.anchorNode));
  if (isUsed && items.length) return;
  const head = make('thead', {}, make('tr', {}, ...columns.map((column) => {
    const attributes = { scope: 'col', class: column.kind };
    return column.title ? make('th', attributes, column.title) : make('td', attributes);
  })));
  const body = make('tbody');
  for (const item of items) {
    body.append(make('tr', {}, ...columns.map((column) => make('td', { class: column.kind }, ...[column.of(item)].flat()))));
  }
  if (!items.length) body.append(make('tr', {}, make('td', { colspan: columns.length }, empty)));
  element.querySelectorAll('thead, tbody').forEach((part) => part.remove());
  element.append(head, body);
}
