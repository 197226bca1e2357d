// The page of larder http.

const state = { stats: null, lists: null, history: null, recent: null, range: '1h', isPaused: false };

// Numbers

function showStats(stats) {
  const listen = stats.listen.join(', ');
  say($('inputs'), listen);
  document.title = `larder http ${listen}`;
  say($('about'), `larder ${stats.version}, up ${duration(stats.uptime_s)}; history since ${clock(stats.begun_s * 1000)}.`);
  const isDown = stats.origins_up < stats.origins;
  const figures = [
    ['Requests', si(stats.requests_s, '/s'), `${si(stats.requests)} in all`],
    ['Traffic', si(stats.sent_bits_s, 'bit/s'), 'bodies sent to clients'],
    ['Hit ratio', percent(stats.hit_percent), 'last minute, of cacheable requests'],
    ['Byte hit ratio', percent(stats.byte_hit_percent), 'last minute'],
    ['Coalesced', si(stats.coalesced), `last minute; ${si(stats.coalesced_all)} in all`],
    ['Passed', percent(stats.passed_percent), 'to the origin, for one client'],
    ['Errors', percent(stats.error_percent), `5xx; ${si(stats.failures)} failed fetches`, stats.error_percent > 5],
    ['Hits take', time(stats.hit_us.p50), `p50; p99 ${time(stats.hit_us.p99)}`],
    ['Misses take', time(stats.miss_us.p50), `p50; p99 ${time(stats.miss_us.p99)}`],
    ['Origins', `${stats.origins_up} of ${stats.origins}`, `are up; p50 ${time(stats.origin_us.p50)}, p99 ${time(stats.origin_us.p99)}`, isDown],
    ['Clients', si(stats.clients), `connections; ${si(stats.refused)} refused`, stats.refused > 0],
    ['Memory', bytes(stats.memory_bytes), `of ${bytes(stats.memory_bytes_max)}; ${si(stats.records)} records`],
    ['Evicted', si(stats.evicted), `last minute; ${si(stats.evicted_all)} in all`],
  ];
  if (stats.notes_lost) figures.push(['Not in lists', si(stats.notes_lost), 'requests, at overload', true]);
  showFigures(figures);
  const sampled = `At this rate the lists are estimates: a row stands for up to ${stats.weight_max} requests.`;
  say($('sample-note'), stats.weight_max > 1 ? sampled : '');
}

const CLASSES = [['2xx', 'c0'], ['3xx', 'c2'], ['4xx', 'c4'], ['5xx', 'c6'], ['other', 'c-other']];

function showHistory(history) {
  const layers = CLASSES.map(([name, color]) => ({ name, values: history[`responses_${name}`].map((value) => value || 0), color }));
  const rate = (value) => si(value, '/s');
  const bits = (values) => values.map((value) => (value === null ? null : value * 8));
  const bitRate = (value) => si(value, 'bit/s');
  const { svg, legend } = layered('Responses a second', layers, history, widthOf($('traffic')), rate, (sum) => si(sum));
  $('traffic').replaceChildren(svg);
  $('legend').replaceChildren(...legend);
  const width = columnWidth($('charts'));
  const of = (one, ...others) => one.map((value, at) => (value === null ? null : others.reduce((sum, other) => sum + other[at], value)));
  const saved = history.sent_bytes.map((value, at) => (value === null ? null : Math.max(0, value - history.received_bytes[at])));
  $('charts').replaceChildren(
    curve('Requests a second', history.requests, history, width, rate),
    curve('Hit ratio', ratio(history.hits, of(history.hits, history.misses, history.coalesced)), history, width, percent, 100),
    curve('Byte hit ratio', ratio(saved, history.sent_bytes), history, width, percent, 100),
    curve('Sent to clients', bits(history.sent_bytes), history, width, bitRate),
    curve('Received from origins', bits(history.received_bytes), history, width, bitRate),
    curve('Coalesced a second', history.coalesced, history, width, rate),
    curve('Origins: p99', known(history.origin_us_p99), history, width, time),
    curve('Failed fetches a second', history.failures, history, width, rate),
    curve('Memory', history.memory_used, history, width, bytes),
    curve('Evicted a second', history.evicted, history, width, rate),
    curve('Client connections', history.clients, history, width, (value) => si(value)),
  );
}

// Lists

function filterButton(url) {
  const attributes = { type: 'button', 'aria-label': `Show the last requests for ${url}`, onclick: () => filterTail(url) };
  return make('button', attributes, 'Show');
}

function showLists(lists) {
  const sort = $('urls-sort').value;
  const urls = [...lists.urls].sort((one, other) => other[sort] - one[sort] || other.requests - one.requests);
  table($('missed'), [
    { title: 'URL', kind: 'name', of: (row) => isolated(row.url) },
    { title: 'Misses', kind: 'number', of: (row) => si(row.misses) },
    { title: 'Hits', kind: 'number', of: (row) => percent(row.hit_percent) },
    { title: 'Status', kind: 'number wide', of: (row) => row.status || '-' },
    { title: '', kind: 'actions', of: (row) => filterButton(row.url) },
  ], lists.missed, 'No request has missed.');
  table($('urls'), [
    { title: 'URL', kind: 'name', of: (row) => isolated(row.url) },
    { title: 'Requests', kind: 'number', of: (row) => si(row.requests) },
    { title: 'Hits', kind: 'number', of: (row) => percent(row.hit_percent) },
    { title: 'Bytes', kind: 'number wide', of: (row) => bytes(row.bytes) },
    { title: '', kind: 'actions', of: (row) => filterButton(row.url) },
  ], urls, 'No request yet.');
  table($('clients'), [
    { title: 'Client', kind: 'name', of: (row) => isolated(row.address) },
    { title: 'Requests', kind: 'number', of: (row) => si(row.requests) },
    { title: 'Errors', kind: 'number', of: (row) => si(row.errors) },
    { title: 'Bytes', kind: 'number wide', of: (row) => bytes(row.bytes) },
  ], lists.clients, 'No request yet.');
  const all = lists.statuses.reduce((sum, row) => sum + row.requests, 0);
  table($('statuses'), [
    { title: 'Status', kind: '', of: (row) => row.status || 'none' },
    { title: 'Responses', kind: 'number', of: (row) => si(row.requests) },
    { title: 'Share', kind: 'number', of: (row) => percent(row.requests * 100 / all) },
    { title: '', kind: 'bar-cell', of: (row) => shareBar(row.requests / all, row.status >= 500 || !row.status ? 'c6' : 'c0') },
  ], lists.statuses, 'No response yet.');
}

function showOrigins(recent) {
  table($('origins'), [
    { title: 'Origin', kind: 'name', of: (row) => isolated(row.name) },
    { title: 'State', kind: '', of: (row) => make('span', { class: row.is_up ? '' : 'error' }, row.is_up ? 'up' : 'down') },
    { title: 'Failures', kind: 'number', of: (row) => si(row.failures) },
    { title: 'Last failure', kind: 'wide', of: (row) => row.why },
  ], recent.origins, 'There is no origin.');
}

function showTail() {
  if (!state.recent) return;
  const part = $('tail-filter').value.trim().toLowerCase();
  const rows = state.recent.tail.filter((row) => row.url.toLowerCase().includes(part));
  table($('tail'), [
    { title: 'Time', kind: 'time', of: (row) => timeOf(row.unix_ms * 1e6) },
    { title: 'Client', kind: 'name wide', of: (row) => isolated(row.client) },
    { title: 'Method', kind: 'wide', of: (row) => row.method || 'invalid' },
    { title: 'URL', kind: 'name', of: (row) => isolated(row.url) },
    { title: 'Status', kind: 'number', of: (row) => make('span', { class: row.status >= 500 || !row.status ? 'error' : '' }, row.status ? String(row.status) : 'none') },
    { title: 'Cache', kind: '', of: (row) => row.cache },
    { title: 'Bytes', kind: 'number wide', of: (row) => bytes(row.bytes) },
    { title: 'Took', kind: 'number', of: (row) => time(row.duration_us) },
  ], rows, part ? 'None of the last requests has such a URL.' : 'No request yet.');
}

startServerPage(state, { showStats, showRecent: showOrigins, showTail, showLists, showHistory }, 'urls-sort');
