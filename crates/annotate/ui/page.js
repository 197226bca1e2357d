// The page: asks the server for numbers and lists, and for flows and packets of a search.

const state = { stats: null, lists: null, history: null, segments: [], range: '1h', picked: [0, 1000], query: '' };

// Searches

/** A name as a search: a star of the name itself is no pattern. */
function nameQuery(name) {
  // Of any other form it could be an address, or a word of the query language.
  if (/^[a-z_][a-z0-9_-]*(\.[a-z0-9_-]+)*\.[a-z][a-z0-9-]*$/i.test(name)) return name;
  return `name = "${name.replaceAll('*', '\\*').replaceAll('"', '\\x22')}"`;
}

const host = (address) => (address.includes(':') ? `[${address}]` : address);

/** A destination as a search, with its client or from any. */
function serverQuery(row, client) {
  const hasPort = ['tcp', 'udp', 'sctp'].includes(row.protocol);
  const server = hasPort ? `${host(row.address)}:${row.port}` : host(row.address);
  return `${client ? host(client) : '*'}-${server}/${row.protocol}`;
}

/** The times of the store's first and last packet, milliseconds; null without packets. */
function storeSpan() {
  const store = state.stats && state.stats.store;
  return store && store.first_ns !== null ? [store.first_ns / 1e6, store.last_ns / 1e6] : null;
}

/** The picked time, milliseconds; null: the whole store. */
function pickedSpan() {
  const span = storeSpan();
  const [from, to] = state.picked;
  if (!span || (from === 0 && to === 1000)) return null;
  const at = (part) => span[0] + (span[1] - span[0]) * part / 1000;
  return [Math.floor(at(from)), Math.ceil(at(to)) + 1];
}

function findPath(query, format, flows) {
  const fields = new URLSearchParams({ q: query, format });
  if (flows) fields.set('flows', flows);
  const span = pickedSpan();
  if (span) {
    fields.set('from', new Date(span[0]).toISOString());
    fields.set('to', new Date(span[1]).toISOString());
  }
  return `/find?${fields}`;
}

/** Why a search failed, in words. */
function searchError(error, query) {
  if (error.status === 404) return 'This larder has no search over HTTP; use larder find.';
  if (error.status === 401) return 'Enter the token first.';
  const details = error.details;
  if (!details || !details.error) return error.message;
  const marked = details.column ? `\n${query}\n${' '.repeat(Math.max(0, details.column - 1))}^` : '';
  return details.error + (details.expected ? `; expected: ${details.expected}` : '') + marked;
}

const NOTE = $('query-note').textContent;

function noteOfSearch(text, isError) {
  say($('query-note'), text);
  $('query-note').classList.toggle('error', isError);
}

const FLOWS_MAX = 200;

/** Shows the flows of a search. */
async function showFlows(query) {
  state.query = query;
  $('query').value = query;
  noteOfSearch(NOTE, false);
  $('results').hidden = false;
  say($('results-title'), `Flows of ${query}`);
  say($('results-note'), 'Searching');
  $('results-title').focus();
  try {
    const text = await (await request(findPath(query, 'flows', FLOWS_MAX))).text();
    if (state.query !== query) return;
    const rows = text.split('\n').filter((line) => line.trim()).map((line) => JSON.parse(line)).filter((row) => row.flow);
    const more = rows.length >= FLOWS_MAX ? ` (the first ${FLOWS_MAX})` : '';
    say($('results-note'), `${rows.length} ${rows.length === 1 ? 'flow' : 'flows'}${more}`);
    table($('flows'), [
      { title: 'Flow', kind: 'name', of: (row) => isolated(row.flow) },
      { title: 'Names', kind: 'name', of: (row) => isolated((row.names || []).map(printable).join(', ')) },
      { title: 'Packets', kind: 'number', of: (row) => si(row.packets) },
      { title: 'Bytes', kind: 'number wide', of: (row) => bytes(row.bytes) },
      { title: 'First', kind: 'time wide', of: (row) => timeOf(Date.parse(row.first) * 1e6) },
      { title: '', kind: 'actions', of: (row) => packetsButton(row.flow, row.flow) },
    ], rows, 'No flow matches.');
  } catch (error) {
    if (state.query !== query) return;
    $('results').hidden = true;
    noteOfSearch(searchError(error, query), true);
  }
}

/** Downloads the packets of a search. */
async function savePackets(query) {
  noteOfSearch('Downloading', false);
  try {
    const size = await download(findPath(query, 'pcapng'), 'larder.pcapng');
    noteOfSearch(`Saved larder.pcapng, ${bytes(size)}.`, false);
  } catch (error) {
    noteOfSearch(searchError(error, query), true);
  }
}

function packetsButton(query, label) {
  return make('button', { type: 'button', 'aria-label': `Packets of ${label}`, onclick: () => savePackets(query) }, 'Packets');
}

/** The buttons of a row; none without stored packets. */
function actions(query, label) {
  if (!state.stats || !state.stats.store) return [];
  const flows = make('button', { type: 'button', 'aria-label': `Flows of ${label}`, onclick: () => openFlows(query) }, 'Flows');
  return [flows, packetsButton(query, label)];
}

/** The search is part of the address, so that it can be sent to others. */
function openFlows(query) {
  const hash = `#q=${encodeURIComponent(query)}`;
  if (location.hash === hash) showFlows(query);
  else location.hash = hash;
}

function followHash() {
  const match = /^#q=(.*)$/.exec(location.hash);
  if (!match) return;
  let query = '';
  try { query = decodeURIComponent(match[1]); } catch { return; }
  if (query) showFlows(query);
}

// Numbers

function showStats(stats) {
  say($('inputs'), stats.inputs.join(', '));
  document.title = `larder annotate ${stats.inputs.join(', ')}`;
  say($('about'), `larder ${stats.version}, up ${duration(stats.uptime_s)}; history since ${clock(stats.begun_s * 1000)}.`);
  const store = stats.store;
  const span = storeSpan();
  const figures = [
    ['Packets', si(stats.packets_s, '/s'), `${si(stats.packets)} in all`],
    ['Traffic', si(stats.bits_s, 'bit/s'), ''],
    ['Flows', si(stats.flows_s, '/s'), `${si(stats.flows)} open`],
    ['Named', stats.named_percent === null ? '-' : `${stats.named_percent.toFixed(0)} %`, 'of the flows of the last minute'],
    ['Dropped', si(stats.dropped), `${si(stats.kernel_dropped)} by the kernel`, stats.dropped > 0],
    ['Store', store ? bytes(store.bytes) : 'off', store ? `of ${bytes(store.budget_bytes)}` : 'start with --store'],
    ['Retention', span ? duration((span[1] - span[0]) / 1000) : '-', span ? `since ${clock(span[0])}` : ''],
    ['Log delay', stats.delay_ms < 1000 ? `${stats.delay_ms} ms` : `${(stats.delay_ms / 1000).toFixed(1)} s`, '', stats.delay_ms > 10000],
  ];
  if (stats.records_lost) figures.push(['Records lost', si(stats.records_lost), 'not written to logs', true]);
  if (stats.notes_lost) figures.push(['Not in lists', si(stats.notes_lost), 'records, at overload', true]);
  showFigures(figures);
  $('store').hidden = !store;
  $('query-packets').hidden = !store;
}

/** The stacked chart of traffic by name. */
function stacked(traffic, width) {
  const layers = traffic.names.map((name, at) => ({ name, values: traffic.bits[at], color: `c${at}` }));
  layers.push({ name: 'other names', values: traffic.other, color: 'c-other' });
  layers.push({ name: 'no name', values: traffic.unnamed, color: 'c-unnamed' });
  const rate = (value) => si(value, 'bit/s');
  return layered('Traffic by name, bits a second', layers, traffic, width, rate, (bits) => bytes(bits / 8));
}

function showHistory(history) {
  const { svg, legend } = stacked(history.traffic, widthOf($('traffic')));
  $('traffic').replaceChildren(svg);
  $('legend').replaceChildren(...legend);
  const percent = (value) => `${value.toFixed(0)} %`;
  const rate = (value) => si(value, '/s');
  const width = columnWidth($('charts'));
  $('charts').replaceChildren(
    curve('Packets a second', history.packets, history, width, rate),
    curve('Bits a second', history.bits, history, width, (value) => si(value, 'bit/s')),
    curve('Flows a second', history.flows, history, width, rate),
    curve('Flows with a name', history.named, history, width, percent, 100),
    curve('Dropped packets', history.dropped, history, width, (value) => si(value)),
    curve('Stored bytes', history.stored_bytes, history, width, bytes),
  );
}

// Lists

/** The day of the first record: all names are new. */
const isFirstDay = (lists) => Math.floor(lists.begun_s / 86400) === Math.floor(lists.now_s / 86400);

const newMark = (row) => (row.is_new && !isFirstDay(state.lists) ? [' ', make('span', { class: 'mark' }, 'new')] : []);

function showLists(lists) {
  const sort = $('names-sort').value;
  const names = [...lists.names].sort((one, other) => Number(other[sort]) - Number(one[sort]) || other.bytes - one.bytes);
  table($('names'), [
    { title: 'Name', kind: 'name', of: (row) => [isolated(row.name), ...newMark(row)] },
    { title: 'Bytes', kind: 'number', of: (row) => bytes(row.bytes) },
    { title: 'Flows', kind: 'number', of: (row) => si(row.flows) },
    { title: 'Clients', kind: 'number wide', of: (row) => `${row.clients}${row.has_more_clients ? '+' : ''}` },
    { title: 'Source', kind: 'wide', of: (row) => row.source },
    { title: '', kind: 'actions', of: (row) => actions(nameQuery(row.name), row.name) },
  ], names, 'No flow with a name has ended yet.');
  table($('clients'), [
    { title: 'Client', kind: 'name', of: (row) => [isolated(row.name ? `${row.address} ${row.name}` : row.address), ...newMark(row)] },
    { title: 'Bytes', kind: 'number', of: (row) => bytes(row.bytes) },
    { title: 'Flows', kind: 'number', of: (row) => si(row.flows) },
    { title: '', kind: 'actions', of: (row) => actions(row.address, row.address) },
  ], lists.clients, 'No flow has ended yet.');
  say($('new-note'), isFirstDay(lists) ? `larder knows names since ${clock(lists.begun_s * 1000)}, so every name is new today.` : `${lists.new_names_all} names`);
  table($('new'), [
    { title: 'Name', kind: 'name', of: (row) => isolated(row.name) },
    { title: 'First', kind: 'time', of: (row) => timeOf(row.first_ns) },
    { title: 'Client', kind: 'name wide', of: (row) => isolated(row.client) },
    { title: '', kind: 'actions', of: (row) => actions(nameQuery(row.name), row.name) },
  ], lists.new_names, 'None.');
  showOdd(lists);
  showSources(lists);
}

function showOdd(lists) {
  table($('unresolved'), [
    { title: 'Destination', kind: 'name', of: (row) => isolated(`${host(row.address)}:${row.port}/${row.protocol}` + (row.stated ? ` states ${row.stated}` : '')) },
    { title: 'Client', kind: 'name wide', of: (row) => isolated(row.client) },
    { title: 'Flows', kind: 'number', of: (row) => si(row.flows) },
    { title: 'First', kind: 'time', of: (row) => timeOf(row.first_ns) },
    { title: '', kind: 'actions', of: (row) => actions(serverQuery(row), `${row.address} port ${row.port}`) },
  ], lists.unresolved, 'None.');
  table($('conflicts'), [
    { title: 'States', kind: 'name', of: (row) => isolated(row.stated) },
    { title: 'Looked up', kind: 'name', of: (row) => isolated(row.looked_up) },
    { title: 'Client', kind: 'name wide', of: (row) => isolated(row.client) },
    { title: 'Flows', kind: 'number', of: (row) => si(row.flows) },
    { title: '', kind: 'actions', of: (row) => actions(serverQuery(row, row.client), `${row.stated}, looked up as ${row.looked_up}`) },
  ], lists.conflicts, 'None.');
}

function showSources(lists) {
  const rows = [
    ...lists.sources.map(([word, flows]) => ({ word, flows, color: 'c0' })),
    ...lists.reasons.map(([word, flows]) => ({ word: `no name: ${word}`, flows, color: 'c-other' })),
  ];
  const all = rows.reduce((sum, row) => sum + row.flows, 0);
  rows.sort((one, other) => other.flows - one.flows);
  table($('sources'), [
    { title: 'Source or reason', kind: '', of: (row) => row.word },
    { title: 'Flows', kind: 'number', of: (row) => si(row.flows) },
    { title: 'Share', kind: 'number', of: (row) => `${(row.flows * 100 / all).toFixed(1)} %` },
    { title: '', kind: 'bar-cell', of: (row) => shareBar(row.flows / all, row.color) },
  ], rows, 'No flow has ended yet.');
}

// The store

function showStore() {
  const span = storeSpan();
  const store = state.stats && state.stats.store;
  if (!store) return;
  say($('store-note'), `${si(store.packets)} packets, ${bytes(store.bytes)} in ${state.segments.length} ${state.segments.length === 1 ? 'segment' : 'segments'} of ${store.directory}. The picked time limits searches and downloads.`);
  if (!span) return say($('picked'), 'No packet is stored yet.');
  const picked = pickedSpan();
  const [from, to] = picked || span;
  $('timeline').replaceChildren(segmentBlocks(state.segments, widthOf($('timeline')), span[0], span[1], [from, to], pickTimes));
  say($('picked'), picked ? `Picked: ${clock(from)} to ${clock(to)} (${duration((to - from) / 1000)})` : 'Picked: the whole store');
  const inside = state.segments.filter(({ first_ns: first, last_ns: last }) => first !== null && first / 1e6 <= to && last / 1e6 >= from);
  if ($('segments').contains(document.activeElement)) return;
  $('segments').replaceChildren(...inside.slice(-12).map((segment) => {
    const name = segment.path.split('/').pop();
    const length = segment.is_closed ? undefined : segment.bytes;
    const save = () => download(segment.path, name, length).catch((error) => noteOfSearch(error.message, true));
    return make('li', {}, make('button', { type: 'button', onclick: save }, `${name} (${bytes(segment.bytes)})`));
  }));
}

function pickTimes(fromMs, toMs) {
  const [first, last] = storeSpan();
  const part = (ms) => Math.min(1000, Math.max(0, (ms - first) * 1000 / Math.max(1, last - first)));
  state.picked = [Math.floor(part(fromMs)), Math.ceil(part(toMs))];
  [$('from').value, $('to').value] = state.picked;
  showStore();
}

function pickBySliders() {
  const [from, to] = [Number($('from').value), Number($('to').value)];
  state.picked = [Math.min(from, to), Math.max(from, to)];
  showStore();
}

// Asking the server

async function askForStats() {
  state.stats = await json('/api/stats');
  showStats(state.stats);
  return state.stats.poll_ms;
}

const TASKS = [
  { turns: () => 5, run: async () => {
    state.lists = await json('/api/lists');
    showLists(state.lists);
  } },
  { turns: () => historyTurns(state.range), run: askHistory },
  { turns: () => 10, run: async () => {
    if (!state.stats.store) return;
    state.segments = await json('/segments');
    showStore();
  } },
];

async function askHistory() {
  state.history = await json(`/api/history/${state.range}`);
  showHistory(state.history);
}

// Hands

/** / goes to the search, Escape closes the flows. */
function keys(event) {
  if (event.key === '/' && !isTyping(event) && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    $('query').focus();
  } else if (event.key === 'Escape' && !$('results').hidden) {
    closeResults();
  }
}

function closeResults() {
  $('results').hidden = true;
  state.query = '';
  history.replaceState(null, '', location.pathname);
  $('query').focus();
}

$('search').addEventListener('submit', (event) => {
  event.preventDefault();
  const query = $('query').value.trim();
  if (query) openFlows(query);
});
$('query-packets').addEventListener('click', () => {
  const query = $('query').value.trim();
  if (query) savePackets(query);
  else noteOfSearch('Enter a search first.', true);
});
$('results-packets').addEventListener('click', () => savePackets(state.query));
$('results-close').addEventListener('click', closeResults);
$('names-sort').addEventListener('change', () => state.lists && showLists(state.lists));
$('from').addEventListener('input', pickBySliders);
$('to').addEventListener('input', pickBySliders);
$('whole').addEventListener('click', () => {
  state.picked = [0, 1000];
  [$('from').value, $('to').value] = state.picked;
  showStore();
});
document.addEventListener('keydown', keys);
window.addEventListener('hashchange', followHash);
// Charts have the width of the window.
window.addEventListener('resize', () => {
  if (state.history) showHistory(state.history);
  showStore();
});
startPage(askForStats, TASKS, (range) => { state.range = range; }).then(followHash);
