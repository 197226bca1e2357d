//! The page of a server (`--ui`): a browser shows what the cache does.
//!
//! ```text
//! GET /                      the document: no data, so that it needs no token
//! GET /api/stats             rates, hit ratios, memory; made at most once a second, the same bytes for all
//! GET /api/recent            origins, and the last exchanges; the same
//! GET /api/lists             URLs, clients, status codes; made at most every five seconds
//! GET /api/history/RANGE     points of the charts, for 1m, 1h, 24h or 30d
//! GET /metrics               for Prometheus
//! ```
//!
//! | thread | duty |
//! |---|---|
//! | of the page | four times a second: takes notes of exchanges; once a second: a sample of the counters |
//! | of the server | responds; makes a text if the one it has is too old |
//! | event loops | note some of their exchanges ([`Notes`]); publish counters, as without a page |
//!
//! Invariants
//! 1. No event loop waits for the page or its clients, and none shares a lock with them (test `a_full_channel_drops`).
//! 2. Texts are made as often for a thousand clients as for one (test `texts_are_json`).
//! 3. A URL is data: texts have printable ASCII only (test `hostile_urls_are_text`).

mod figures;
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
use larder_serve::saved::{self, Input, Output};

pub use self::figures::{Figures, Origin};
use self::seen::Seen;
use crate::counts::Counts;
use crate::notes::{Note, Notes};

/// The age at which a text is made again, seconds.
const LISTS_S: u64 = 5;
const LONG_HISTORY_S: u64 = 30;

/// Seconds over which ratios and times are stated.
const RECENT_S: usize = 60;

const MAGIC: &[u8; 8] = b"larderw1";

/// The numbers of a sample.
const SERIES: [Series; 20] = [
    Series::SECONDS,
    Series::sum("requests"),
    Series::sum("responses_2xx"),
    Series::sum("responses_3xx"),
    Series::sum("responses_4xx"),
    Series::sum("responses_5xx"),
    Series::sum("responses_other"),
    Series::sum("hits"),
    Series::sum("misses"),
    Series::sum("coalesced"),
    Series::sum("passed"),
    Series::sum("sent_bytes"),
    Series::sum("received_bytes"),
    Series::sum("failures"),
    Series::sum("refused"),
    Series::sum("evicted"),
    Series::max("origin_us_p50"),
    Series::max("origin_us_p99"),
    Series::last("memory_used"),
    Series::last("clients"),
];

static SERIES_TABLE: [Series; 20] = SERIES;

/// The place of a series in a sample.
fn place(name: &str) -> usize {
    SERIES.iter().position(|series| series.name == name).unwrap_or(0)
}

/// The document.
static DOCUMENT: LazyLock<Document> =
    LazyLock::new(|| document(include_str!("../ui/page.html"), include_str!("../ui/page.js")));

/// What event loops are given, and the end that the page reads.
pub(crate) struct Begun {
    options: PageOptions,
    received: Receiver<Batch>,
}

/// Prepares a page, and the notes of the event loops.
pub(crate) fn begin(options: &PageOptions) -> (Begun, Arc<Notes>) {
    let (sender, received) = channel();
    (Begun { options: options.clone(), received }, Arc::new(Notes::new(sender)))
}

/// The page: its thread, and its server. Both end when it is dropped.
#[derive(Debug)]
pub(crate) struct HttpPage {
    _server: PageServer,
    _thread: PageThread,
}

/// What both threads use.
struct Shared {
    figures: Figures,
    /// The addresses of the server.
    listen: Vec<String>,
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
    /// Times of origins since the start, at each second of the last minute.
    origins: VecDeque<Durations>,
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
        figures: Figures,
        listen: Vec<String>,
        log: &Log,
    ) -> std::io::Result<HttpPage> {
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
            state: Mutex::new(state),
            texts: Texts::default(),
            demand: Demand::default(),
        });
        let server = PageServer::start(&options.server, Arc::clone(&shared) as Arc<dyn Pages>)?;
        log.info("listening").text("address", server.place());
        let thread = PageThread::start(Taker::new(shared, received), file)?;
        Ok(HttpPage { _server: server, _thread: thread })
    }
}

/// Reads the file of an earlier run.
fn load(path: &Path) -> Result<Option<(u64, History<20>)>, String> {
    saved::load(path, MAGIC, read)
}

fn read(input: &mut Input<'_>) -> Option<(u64, History<20>)> {
    Some((input.number()?, History::read(&SERIES_TABLE, input)?))
}

impl State {
    fn new(now_s: u64) -> State {
        State {
            history: History::new(&SERIES_TABLE),
            seen: Seen::default(),
            begun_s: now_s,
            origins: VecDeque::new(),
        }
    }

    /// Times of origins in the last minute, until `now`.
    fn recent_origins(&self, now: &Durations) -> Durations {
        self.origins.front().map_or_else(Durations::default, |before| now.since(before))
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
    /// Counters, and evictions, at the last sample.
    before: (Counts, u64),
}

impl Taker {
    fn new(shared: Arc<Shared>, received: Receiver<Batch>) -> Taker {
        let before = (shared.figures.counts(), Memory::of(&shared.figures).evicted);
        Taker { shared, received, before }
    }
}

impl Sampler for Taker {
    fn take_notes(&mut self) {
        let now_s = now_s();
        // Invariant 1: event loops never wait for this end of the channel.
        for batch in self.received.try_iter() {
            let mut bytes = batch.bytes.as_slice();
            let mut state = self.shared.state();
            while let Some(note) = Note::take(&mut bytes) {
                state.seen.take(note, now_s);
            }
        }
    }

    fn sample(&mut self, now_s: u64, seconds: u64) -> bool {
        let counts = self.shared.figures.counts();
        let memory = Memory::of(&self.shared.figures);
        let (before, evicted) =
            std::mem::replace(&mut self.before, (counts.clone(), memory.evicted));
        self.shared.demand.passed(seconds);
        let mut sample = of_counts(&counts, &before, &counts.origin.since(&before.origin));
        (sample[0], sample[place("memory_used")]) = (seconds, memory.used);
        sample[place("evicted")] = memory.evicted.saturating_sub(evicted);
        let mut state = self.shared.state();
        state.seen.advance();
        state.origins.push_back(before.origin);
        while state.origins.len() > RECENT_S {
            state.origins.pop_front();
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

/// The memory of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    /// Bytes of records and bodies, and the most there may be.
    used: u64,
    max: u64,
    /// Cached records.
    records: u64,
    /// Records and bodies that were evicted.
    evicted: u64,
}

impl Memory {
    fn of(figures: &Figures) -> Memory {
        let metrics = figures.store();
        let of = |name: &str| Figures::of_store(&metrics, name);
        let bodies = of("memory_bytes").saturating_sub(of("memory_free_bytes"));
        Memory {
            used: of("records_bytes") + bodies,
            max: of("records_bytes_max") + of("memory_bytes"),
            records: of("records"),
            evicted: of("records_evicted_total") + of("bodies_evicted_total"),
        }
    }
}

/// The sample of what was counted since `before`. `origins`: the times of origins since then.
fn of_counts(counts: &Counts, before: &Counts, origins: &Durations) -> [u64; 20] {
    let since = |value: fn(&Counts) -> u64| value(counts).saturating_sub(value(before));
    // The last bucket has no end: 16.8 s stand for it.
    let quantile = |share: f64| match origins.count() {
        0 => 0,
        _ => origins.quantile_us(share).unwrap_or(1 << 24),
    };
    [
        0,
        since(|counts| counts.requests),
        since(|counts| counts.responses_2xx),
        since(|counts| counts.responses_3xx),
        since(|counts| counts.responses_4xx),
        since(|counts| counts.responses_5xx),
        since(|counts| counts.responses_other),
        since(|counts| counts.hits + counts.hits_stale),
        since(|counts| counts.misses),
        since(|counts| counts.collapsed),
        since(|counts| counts.passed),
        since(|counts| counts.sent_bytes),
        since(|counts| counts.received_bytes),
        since(|counts| counts.fetches_failed),
        since(refused),
        0,
        quantile(0.5),
        quantile(0.99),
        0,
        counts.clients_open,
    ]
}

/// Requests and connections that larder refused.
fn refused(counts: &Counts) -> u64 {
    let connections = counts.refused_full + counts.refused_crowded + counts.accept_failures;
    connections + counts.refused_requests + counts.queue_full
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
