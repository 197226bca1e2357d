// What all pages do: tiles, colors, the token, keys, and asking the server.

/** The tiles: title, value, what it is about, and whether it is bad. */
function showFigures(figures) {
  const list = $('figures');
  figures.forEach(([title, value, more, isBad], at) => {
    let item = list.children[at];
    if (!item) {
      item = make('div', {}, make('dt'), make('dd', {}, make('span'), make('small')));
      list.append(item);
    }
    say(item.firstChild, title);
    say(item.lastChild.firstChild, value);
    say(item.lastChild.lastChild, more);
    item.lastChild.classList.toggle('bad', Boolean(isBad));
  });
  while (list.children.length > figures.length) list.lastChild.remove();
}

/** The width of a chart, of as many in a row as the style sheet makes. */
function columnWidth(element) {
  const whole = widthOf(element);
  const columns = Math.max(1, Math.floor((whole + 10) / 310));
  return Math.floor(whole / columns - 10);
}

function showTheme(theme) {
  document.documentElement.dataset.theme = theme;
  say($('theme'), theme === 'dark' ? 'Light' : 'Dark');
  $('theme').setAttribute('aria-label', theme === 'dark' ? 'Light colors' : 'Dark colors');
}

function followSystem() {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const show = () => showTheme(remembered('larder-theme') || (dark.matches ? 'dark' : 'light'));
  dark.addEventListener('change', show);
  show();
}

const isTyping = (event) => ['INPUT', 'SELECT', 'TEXTAREA'].includes(event.target.tagName);

/** Arrows move between the buttons of a table's rows. */
function moveInTable(event) {
  if ((event.key !== 'ArrowDown' && event.key !== 'ArrowUp') || isTyping(event)) return;
  const row = event.target.closest('tbody tr');
  const next = row && (event.key === 'ArrowDown' ? row.nextElementSibling : row.previousElementSibling);
  if (!next) return;
  const at = [...row.querySelectorAll('button')].indexOf(event.target);
  const button = next.querySelectorAll('button')[at];
  if (!button) return;
  event.preventDefault();
  button.focus();
}

// Asking the server

let askStats = null;
let tasks = [];
let timer = null;

/** What is due of everything, one request at a time; hidden pages ask for nothing. */
async function turn() {
  timer = null;
  let pause = 1000;
  if (document.hidden) return;
  try {
    pause = Math.max(1000, await askStats());
    $('token-form').hidden = true;
    const now = Date.now();
    for (const task of tasks) {
      if (now < (task.due || 0)) continue;
      await task.run();
      task.due = now + task.turns() * pause;
    }
    say($('state'), 'Connected');
    $('state').classList.remove('bad');
  } catch (error) {
    const isLocked = error.status === 401;
    say($('state'), isLocked ? 'Locked' : 'No connection to larder; trying again');
    $('state').classList.add('bad');
    // The form begins again.
    if (isLocked) return;
    pause = 3000;
  }
  again(pause);
}

function again(pause) {
  clearTimeout(timer);
  timer = setTimeout(turn, pause);
}

function refresh() {
  tasks.forEach((task) => { task.due = 0; });
  again(0);
}

/**
 * Starts the page. `ask` gets the statistics, and returns the pause that the server wants. Each of `all` has `run`, and
 * `turns` between two runs. `pick` is called with a range of the charts.
 */
function startPage(ask, all, pick) {
  [askStats, tasks] = [ask, all];
  $('token-form').addEventListener('submit', (event) => {
    event.preventDefault();
    token = $('token').value.trim();
    $('token').value = '';
    remember('larder-token', token);
    refresh();
  });
  $('ranges').addEventListener('click', (event) => {
    const range = event.target.dataset.range;
    if (!range) return;
    pick(range);
    $('ranges').querySelectorAll('button').forEach((button) => button.setAttribute('aria-pressed', String(button === event.target)));
    refresh();
  });
  $('theme').addEventListener('click', () => {
    const theme = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    remember('larder-theme', theme);
    showTheme(theme);
  });
  document.addEventListener('keydown', moveInTable);
  document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
  followSystem();
  return turn();
}

/** Turns between two requests for the charts of a range. */
const HISTORY_TURNS = { '1m': 1, '1h': 10 };
const historyTurns = (range) => HISTORY_TURNS[range] || 60;

let showFiltered = null;

/** Shows the last rows with a text. */
function filterTail(text) {
  $('tail-filter').value = text;
  showFiltered();
  $('tail-filter').focus();
}

/** Starts the page of a server: `shows` has what shows its texts, `sort` is the element with the order of a list. */
function startServerPage(state, shows, sort) {
  showFiltered = shows.showTail;
  const ask = async () => {
    state.stats = await json('/api/stats');
    shows.showStats(state.stats);
    return state.stats.poll_ms;
  };
  const all = [
    { turns: () => 2, run: async () => {
      const recent = await json('/api/recent');
      shows.showRecent(recent);
      if (state.isPaused) return;
      state.recent = recent;
      shows.showTail();
    } },
    { turns: () => 5, run: async () => {
      state.lists = await json('/api/lists');
      shows.showLists(state.lists);
    } },
    { turns: () => historyTurns(state.range), run: async () => {
      state.history = await json(`/api/history/${state.range}`);
      shows.showHistory(state.history);
    } },
  ];
  $(sort).addEventListener('change', () => state.lists && shows.showLists(state.lists));
  $('tail-filter').addEventListener('input', shows.showTail);
  $('tail-pause').addEventListener('click', () => {
    state.isPaused = !state.isPaused;
    $('tail-pause').setAttribute('aria-pressed', String(state.isPaused));
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === '/' && !isTyping(event) && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      $('tail-filter').focus();
    } else if (event.key === 'Escape' && event.target === $('tail-filter')) {
      filterTail('');
    }
  });
  // Charts have the width of the window.
  window.addEventListener('resize', () => state.history && shows.showHistory(state.history));
  return startPage(ask, all, (range) => { state.range = range; });
}
