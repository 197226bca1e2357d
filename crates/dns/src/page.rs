//! The page of a server (`--ui`): a browser shows what the server does.
//!
//! ```text
//! GET /                      the document: no data, so that it needs no token
//! GET /api/stats             rates, hit ratio, times; made at most once a second, the same bytes for all
//! GET /api/recent            upstreams, and the last responses; the same
//! GET /api/lists             names, clients, blocked names; made at most every five seconds
//! GET /api/history/RANGE     points of the charts, for 1m, 1h, 24h or 30d
//! GET /metrics               for Prometheus
//! ```
//!
//! | thread | duty |
//! |---|---|
//! | of the page | four times a second: takes notes of responses; once a second: a sample of the counters |
//! | of the server | responds; makes a text if the one it has is too old |
//! | cores | note some of their responses ([`Notes`]); publish counters, as without a page |
//!
//! Invariants
//! 1. No core waits for the page or its clients, and none shares a lock with them (test `a_full_channel_drops`).
//! 2. Texts are made as often for a thousand clients as for one (test `texts_are_json`).
//! 3. A name is data: texts have the spelling of logs (test `hostile_names_are_text`).

mod figures;
mod notes;
mod seen;
mod texts;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use larder_serve::durations::Durations;
use larder_serve::history::{History, Range, Series};
use larder_serve::log::Log;
use larder_serve::page_server::{PageOptions, PageServer};
use larder_serve::page_thread::{HistoryFile, PageThread, Sampler, now_s};
use larder_serve::pages::{Demand, Document, Page, Pages, Texts, document};
use larder_serve::record_channel::{Batch, channel};
use larder_serve::saved::{self, Output};

pub use self::figures::Figures;
pub use self::notes::{Note, Notes};
use self::seen::Seen;
use crate::clock::Clock;
use crate::metrics::Counts;
use crate::query_log::Prefix;

/// The age at which a text is made again, seconds.
const LISTS_S: u64 = 5;
const LONG_HISTORY_S: u64 = 30;

/// Seconds over which ratios and times are stated.
const RECENT_S: usize = 60;

const MAGIC: &[u8; 8] = b"larderd1";

/// The numbers of a sample.
const SERIES: [Series; 20] = [
    Series::SECONDS,
    Series::sum("queries"),
    Series::sum("noerror"),
    Series::sum("nxdomain"),
    Series::sum("servfail"),
    Series::sum("refused"),
    Series::sum("other"),
    Series::sum("hits"),
    Series::sum("misses"),
    Series::sum("stale"),
    Series::sum("blocked"),
    Series::sum("local"),
    Series::sum("dropped"),
    Series::sum("upstream_queries"),
    Series::sum("upstream_timeouts"),
    Series::sum("failures"),
    Series::max("miss_us_p50"),
    Series::max("miss_us_p99"),
    Series::last("entries"),
    Series::sum("limits"),
];

static SERIES_TABLE: [Series; 20] = SERIES;

/// The place of a series in a sample.
fn place(name: &str) -> usize {
    SERIES.iter().position(|series| series.name == name).unwrap_or(0)
}

/// The document.
static DOCUMENT: LazyLock<Document> =
    LazyLock::new(|| document(include_str!("../ui/page.html"), include_str!("../ui/page.js")));

/// What cores are given, and the end that the page reads.
pub(crate) struct Begun {
    options: PageOptions,
    received: Receiver<Batch>,
}

/// Prepares a page, and the notes of the cores, if there are options for it.
pub(crate) fn begin(options: Option<&PageOptions>, clock: Clock) -> (Option<Begun>, Option<Notes>) {
    let page = options.map(|options| {
        let (sender, received) = channel();
        (Begun { options: options.clone(), received }, Notes::new(sender, clock))
    });
    page.unzip()
}

/// The page: its thread, and its server. Both end when it is dropped.
#[derive(Debug)]
pub(crate) struct DnsPage {
    _server: PageServer,
    _thread: PageThread,
}

/// What both threads use.
struct Shared {
    figures: Arc<Figures>,
    /// The addresses of the server.
    listen: Vec<String>,
    prefix: Option<Prefix>,
    state: Mutex<State>,
    texts: Texts<Text>,
    demand: Demand,
}

/// Samples and tables.
#[derive(Debug)]
struct State {
    history: History<20>,
    seen: Seen,
    /// When the first run with this history began, seconds since 1970.
    begun_s: u64,
    /// Times of misses since the start, at each second of the last minute.
    misses: VecDeque<Durations>,
}

/// A text that several clients get.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Text {
    Stats,
    Recent,
    Lists,
    History(Range),
}

impl Begun {
    /// Starts the threads. `listen`: the addresses of the server, for the page.
    pub fn start(
        self,
        figures: Arc<Figures>,
        listen: Vec<String>,
        prefix: Option<Prefix>,
        log: &Log,
    ) -> std::io::Result<DnsPage> {
        let Begun { options, received } = self;
        let log = log.of("ui");
        let access = options.server.access;
        let file = options.history.map(|path| HistoryFile::new(path, access, log.clone()));
        let mut state = State::new(now_s());
        if let Some((begun_s, history)) = file.as_ref().and_then(|file| file.load(load)) {
            (state.begun_s, state.history) = (begun_s.min(state.begun_s), history);
        }
        let shared = Arc::new(Shared {
            figures,
            listen,
            prefix,
            state: Mutex::new(state),
            texts: Texts::default(),
            demand: Demand::default(),
        });
        let server = PageServer::start(&options.server, Arc::clone(&shared) as Arc<dyn Pages>)?;
        log.info("listening").text("address", server.place());
        let thread = PageThread::start(Taker::new(shared, received), file)?;
        Ok(DnsPage { _server: server, _thread: thread })
    }
}

/// Reads the file of an earlier run.
fn load(path: &Path) -> Result<Option<(u64, History<20>)>, String> {
    saved::load(path, MAGIC, |input| Some((input.number()?, History::read(&SERIES_TABLE, input)?)))
}

impl State {
    fn new(now_s: u64) -> State {
        State {
            history: History::new(&SERIES_TABLE),
            seen: Seen::default(),
            begun_s: now_s,
            misses: VecDeque::new(),
        }
    }

    /// Times of misses in the last minute, until `now`.
    fn recent_misses(&self, now: &Durations) -> Durations {
        self.misses.front().map_or_else(Durations::default, |before| now.since(before))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread has for itself.
struct Taker {
    shared: Arc<Shared>,
    received: Receiver<Batch>,
    /// Counters at the last sample.
    before: Counts,
}

impl Taker {
    fn new(shared: Arc<Shared>, received: Receiver<Batch>) -> Taker {
        let before = shared.figures.counts();
        Taker { shared, received, before }
    }
}

impl Sampler for Taker {
    fn take_notes(&mut self) {
        let now_s = now_s();
        // Invariant 1: cores never wait for this end of the channel.
        for batch in self.received.try_iter() {
            let mut bytes = batch.bytes.as_slice();
            let mut state = self.shared.state();
            while let Some(mut note) = Note::take(&mut bytes) {
                if let Some(prefix) = self.shared.prefix {
                    note.client = prefix.first_address(note.client);
                }
                state.seen.take(note, now_s);
            }
        }
    }

    fn sample(&mut self, now_s: u64, seconds: u64) -> bool {
        let counts = self.shared.figures.counts();
        let before = std::mem::replace(&mut self.before, counts.clone());
        self.shared.demand.passed(seconds);
        let entries = self.shared.figures.entries();
        let mut state = self.shared.state();
        let last = counts.miss.since(&before.miss);
        let mut sample = of_counts(&counts, &before, &last);
        (sample[0], sample[place("entries")]) = (seconds, entries);
        state.seen.advance();
        state.misses.push_back(before.miss);
        while state.misses.len() > RECENT_S {
            state.misses.pop_front();
        }
        state.history.push(now_s, sample)
    }

    fn end_minute(&mut self) {
        self.shared.state().history.end_minute();
    }

    fn bytes(&self) -> Vec<u8> {
        let state = self.shared.state();
        let mut out = Output::new(MAGIC);
        out.number(state.begun_s);
        state.history.write(&mut out);
        out.end()
    }
}

/// Queries and messages that got no response.
fn dropped(counts: &Counts) -> u64 {
    counts.dropped_queries + counts.rate_limited_dropped + counts.unsent_answers
}

/// The sample of what was counted since `before`. `misses`: the times of misses since then.
fn of_counts(counts: &Counts, before: &Counts, misses: &Durations) -> [u64; 20] {
    let since = |value: fn(&Counts) -> u64| value(counts).saturating_sub(value(before));
    // The last bucket has no end: 16.8 s stand for it.
    let quantile = |share: f64| match misses.count() {
        0 => 0,
        _ => misses.quantile_us(share).unwrap_or(1 << 24),
    };
    [
        0,
        since(Counts::all_queries),
        since(|counts| counts.answers_noerror),
        since(|counts| counts.answers_nxdomain),
        since(|counts| counts.answers_servfail),
        since(|counts| counts.answers_refused),
        since(|counts| counts.answers_formerr + counts.answers_notimp + counts.answers_other),
        since(|counts| counts.hits),
        since(|counts| counts.misses),
        since(|counts| counts.stale_answers),
        since(|counts| counts.local_answers_blocked + counts.local_answers_rpz),
        since(Counts::by_policy),
        since(dropped),
        since(|counts| {
            let plain = counts.upstream_queries_udp + counts.upstream_queries_tcp;
            plain + counts.upstream_queries_backend
        }),
        since(|counts| counts.upstream_timeouts),
        since(|counts| counts.upstream_failures),
        quantile(0.5),
        quantile(0.99),
        0,
        since(|counts| counts.limit_questions + counts.limit_waiters + counts.limit_tcp_clients),
    ]
}

impl Pages for Shared {
    fn get(&self, path: &str) -> Option<Page> {
        let now_s = now_s();
        if let Some(range) = path.strip_prefix("/api/history/") {
            let range = Range::named(range)?;
            let age_s = if range.is_short() { 1 } else { LONG_HISTORY_S };
            let make = || self.state().history.chart(range, now_s).to_string().into_bytes();
            return Some(self.texts.json(Text::History(range), now_s, age_s, make));
        }
        Some(match path {
            "/" => DOCUMENT.page(),
            "/api/stats" => {
                self.demand.asked();
                self.texts.json(Text::Stats, now_s, 1, || self.stats(now_s))
            }
            "/api/recent" => self.texts.json(Text::Recent, now_s, 1, || self.recent()),
            "/api/lists" => self.texts.json(Text::Lists, now_s, LISTS_S, || self.lists(now_s)),
            "/metrics" => {
                let text = self.figures.text().into_bytes();
                Page::new("text/plain; version=0.0.4; charset=utf-8", text)
            }
            _ => return None,
        })
    }

    fn is_public(&self, path: &str) -> bool {
        path == "/"
    }
}

#[cfg(test)]
mod tests;
