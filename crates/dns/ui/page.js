// The page of larder dns.

const state = { stats: null, lists: null, history: null, recent: null, range: '1h', isPaused: false };

// Numbers

function showStats(stats) {
  const listen = stats.listen.join(', ');
  say($('inputs'), listen);
  document.title = `larder dns ${listen}`;
  say($('about'), `larder ${stats.version}, up ${duration(stats.uptime_s)}; history since ${clock(stats.begun_s * 1000)}.`);
  const isDown = stats.upstreams > 0 && stats.upstreams_up < stats.upstreams;
  const figures = [
    ['Queries', si(stats.queries_s, '/s'), `${si(stats.queries)} in all`],
    ['Hit ratio', percent(stats.hit_percent), `last minute; ${si(stats.stale)} stale`],
    ['Hits take', time(stats.hit_us.p50), `p50; p99 ${time(stats.hit_us.p99)}`],
    ['Misses take', time(stats.miss_us.p50), `p50; p99 ${time(stats.miss_us.p99)}`],
    ['SERVFAIL', percent(stats.servfail_percent), `of the responses; ${si(stats.failures)} by upstreams`, stats.servfail_percent > 5],
    ['Blocked', percent(stats.blocked_percent), `${si(stats.blocked)} in all`],
    ['Dropped', si(stats.dropped), `last minute; ${si(stats.dropped_all)} in all`, stats.dropped > 0],
    ['Upstreams', `${stats.upstreams_up} of ${stats.upstreams}`, 'are up', isDown],
    ['Cache', si(stats.entries), `responses; ${bytes(stats.cache_bytes || 0)} of ${bytes(stats.cache_bytes_max || 0)}`],
  ];
  if (stats.notes_lost) figures.push(['Not in lists', si(stats.notes_lost), 'responses, at overload', true]);
  showFigures(figures);
  const sampled = `At this rate the lists are estimates: a row stands for up to ${stats.weight_max} responses.`;
  say($('sample-note'), stats.weight_max > 1 ? sampled : '');
}

const CODES = [['noerror', 'NOERROR', 'c0'], ['nxdomain', 'NXDOMAIN', 'c4'], ['servfail', 'SERVFAIL', 'c6'],
  ['refused', 'REFUSED', 'c7'], ['other', 'other codes', 'c-other']];

function showHistory(history) {
  const layers = CODES.map(([series, name, color]) => ({ name, values: history[series].map((value) => value || 0), color }));
  const rate = (value) => si(value, '/s');
  const { svg, legend } = layered('Responses a second', layers, history, widthOf($('traffic')), rate, (sum) => si(sum));
  $('traffic').replaceChildren(svg);
  $('legend').replaceChildren(...legend);
  const width = columnWidth($('charts'));
  const lookups = history.hits.map((hits, at) => (hits === null ? null : hits + history.misses[at]));
  $('charts').replaceChildren(
    curve('Queries a second', history.queries, history, width, rate),
    curve('Hit ratio', ratio(history.hits, lookups), history, width, percent, 100),
    curve('Misses: p50', known(history.miss_us_p50), history, width, time),
    curve('Misses: p99', known(history.miss_us_p99), history, width, time),
    curve('Queries to upstreams a second', history.upstream_queries, history, width, rate),
    curve('Timeouts of upstreams a second', history.upstream_timeouts, history, width, rate),
    curve('Blocked a second', history.blocked, history, width, rate),
    curve('Dropped a second', history.dropped, history, width, rate),
    curve('Cached responses', history.entries, history, width, (value) => si(value)),
  );
}

// Lists

function filterButton(name) {
  const attributes = { type: 'button', 'aria-label': `Show the last responses for ${name}`, onclick: () => filterTail(name) };
  return make('button', attributes, 'Show');
}

function showLists(lists) {
  const sort = $('names-sort').value;
  const names = [...lists.names].sort((one, other) => other[sort] - one[sort] || other.responses - one.responses);
  const clients = (row) => `${row.clients}${row.has_more_clients ? '+' : ''}`;
  table($('names'), [
    { title: 'Name', kind: 'name', of: (row) => isolated(row.name) },
    { title: 'Type', kind: 'wide', of: (row) => row.type },
    { title: 'Responses', kind: 'number', of: (row) => si(row.responses) },
    { title: 'Hits', kind: 'number', of: (row) => percent(row.hit_percent) },
    { title: 'Failures', kind: 'number wide', of: (row) => si(row.failures) },
    { title: 'Clients', kind: 'number wide', of: clients },
    { title: '', kind: 'actions', of: (row) => filterButton(row.name) },
  ], names, 'No query yet.');
  table($('clients'), [
    { title: 'Client', kind: 'name', of: (row) => isolated(row.address) },
    { title: 'Responses', kind: 'number', of: (row) => si(row.responses) },
    { title: 'Blocked', kind: 'number', of: (row) => si(row.blocked) },
    { title: 'NXDOMAIN', kind: 'number wide', of: (row) => si(row.nxdomain) },
  ], lists.clients, 'No query yet.');
  table($('blocked'), [
    { title: 'Name', kind: 'name', of: (row) => isolated(row.name) },
    { title: 'Responses', kind: 'number', of: (row) => si(row.responses) },
    { title: 'Last client', kind: 'name wide', of: (row) => isolated(row.client) },
    { title: 'Clients', kind: 'number', of: clients },
    { title: '', kind: 'actions', of: (row) => filterButton(row.name) },
  ], lists.blocked, 'Nothing was blocked.');
}

function showUpstreams(recent) {
  const encrypted = new Map();
  for (const { address, name, value } of recent.backends) {
    if (!encrypted.has(address)) encrypted.set(address, {});
    encrypted.get(address)[name] = value;
  }
  const rows = [
    ...recent.upstreams.map((row) => ({ ...row, state: row.is_up ? 'up' : 'down' })),
    ...[...encrypted].map(([address, of]) => ({
      address, state: 'encrypted', is_up: true, round_trip_us: null, failures: of.upstream_connections_failed_total || 0,
    })),
  ];
  table($('upstreams'), [
    { title: 'Upstream', kind: 'name', of: (row) => isolated(row.address) },
    { title: 'State', kind: '', of: (row) => make('span', { class: row.is_up ? '' : 'error' }, row.state) },
    { title: 'Response time', kind: 'number', of: (row) => time(row.round_trip_us) },
    { title: 'Failures', kind: 'number', of: (row) => si(row.failures) },
  ], rows, 'There are no upstreams, or none was queried yet.');
}

function showTail() {
  if (!state.recent) return;
  const part = $('tail-filter').value.trim().toLowerCase();
  const rows = state.recent.tail.filter((row) => row.name.toLowerCase().includes(part));
  table($('tail'), [
    { title: 'Time', kind: 'time', of: (row) => timeOf(row.unix_ms * 1e6) },
    { title: 'Client', kind: 'name wide', of: (row) => isolated(row.client) },
    { title: 'Name', kind: 'name', of: (row) => isolated(row.name) },
    { title: 'Type', kind: '', of: (row) => row.type },
    { title: 'Code', kind: '', of: (row) => make('span', { class: row.rcode === 'SERVFAIL' ? 'error' : '' }, row.rcode) },
    { title: 'Source', kind: 'wide', of: (row) => row.source },
    { title: 'Took', kind: 'number', of: (row) => time(row.duration_us) },
    { title: 'By', kind: 'wide', of: (row) => row.transport },
  ], rows, part ? 'None of the last responses has such a name.' : 'No query yet.');
}

startServerPage(state, { showStats, showRecent: showUpstreams, showTail, showLists, showHistory }, 'names-sort');
