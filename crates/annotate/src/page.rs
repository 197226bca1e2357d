//! The page of a run (`--ui`): a browser shows what the run does, and finds stored packets.
//!
//! ```text
//! GET /                      the document: no data, so that it needs no token
//! GET /api/stats             rates, drops, the store; made at most once a second, the same bytes for all
//! GET /api/lists             names, clients, oddities; made at most every five seconds
//! GET /api/history/RANGE     points of the charts, for 1m, 1h, 24h or 30d
//! GET /metrics               for Prometheus
//! ```
//!
//! Other paths are those of the packet store ([`larder_store::serve`]), whose server delivers the page.
//!
//! | thread | duty |
//! |---|---|
//! | of the page | four times a second: takes notes of records; once a second: a sample; once a minute: the file |
//! | of the server | responds; makes a text if the one it has is too old |
//! | workers, writer | add notes to a list under a lock that is held for a few moves |
//!
//! Invariants
//! 1. The pipeline never waits for the page or its clients: the lock that it shares covers no loop over tables.
//! 2. Texts are made as often for a thousand clients as for one (test `texts_are_json`). Clients are asked to come
//!    less often if there are many ([`Demand`]).
//! 3. A file of history that cannot be read or written is logged; the run continues (test
//!    `a_damaged_file_is_replaced`).

mod history;
mod saved;
mod texts;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use larder_serve::page_thread::{HistoryFile, PageThread, Sampler, now_s};
use larder_serve::pages::{Demand, Document, Page, Pages, Texts, document};
use larder_store::Catalog;
use larder_store::serve::Server;

use self::history::{History, Range, Sample};
use self::texts::Facts;
use crate::figures::Figures;
use crate::live::CaptureStats;
use crate::live_stats::Party;
use crate::options::Options;
use crate::seen::{Noted, Seen};
use crate::store_sink::StoreSink;
use crate::{Error, Progress};

/// The age at which a text is made again, seconds.
const LISTS_S: u64 = 5;
const HISTORY_S: u64 = 1;
const LONG_HISTORY_S: u64 = 30;

/// The name of the file in the folder of the store.
const FILE_NAME: &str = "history";

/// The document.
static DOCUMENT: LazyLock<Document> =
    LazyLock::new(|| document(include_str!("../ui/page.html"), include_str!("../ui/page.js")));

/// The page: its thread, and its server. Both end when it is dropped.
pub struct PageServer {
    _server: Server,
    _thread: PageThread,
}

/// What both threads use.
struct Shared {
    figures: Arc<Figures>,
    progress: Arc<Progress>,
    facts: Facts,
    catalog: Arc<Catalog>,
    state: Mutex<State>,
    texts: Texts<Text>,
    demand: Demand,
}

/// Samples and tables.
#[derive(Default)]
struct State {
    history: History,
    seen: Seen,
    /// When the first run with this history began, seconds since 1970.
    begun_s: u64,
}

/// A text that several clients get.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Text {
    Stats,
    Lists,
    History(Range),
}

impl PageServer {
    /// Starts the threads; `None` without options for a page.
    pub(crate) fn start(
        options: &Options,
        progress: &Arc<Progress>,
        figures: &Arc<Figures>,
        capture: Option<&CaptureStats>,
        store_sink: Option<&StoreSink>,
    ) -> Result<Option<PageServer>, Error> {
        let Some(page) = &options.page else { return Ok(None) };
        let log = options.log.of("ui");
        let failed = |error: std::io::Error| Error::Options(format!("--ui: {error}"));
        let store = options.store.as_ref().filter(|_| store_sink.is_some());
        let file = page.history.clone().or(store.map(|store| store.directory.join(FILE_NAME)));
        let file = file.map(|path| HistoryFile::new(path, options.access, log.clone()));
        let now_s = now_s();
        let mut state = State { begun_s: now_s, ..State::default() };
        state.seen.advance(now_s);
        if let Some(file) = &file {
            state.load(file, now_s);
        }
        let catalog = store_sink.map(|store_sink| Arc::clone(store_sink.store().catalog()));
        let shared = Arc::new(Shared {
            figures: Arc::clone(figures),
            progress: Arc::clone(progress),
            facts: Facts::of(options, capture, store),
            catalog: catalog.unwrap_or_default(),
            state: Mutex::new(state),
            texts: Texts::default(),
            demand: Demand::default(),
        });
        progress.live_stats.observe();
        let pages: Arc<dyn Pages> = Arc::clone(&shared) as Arc<dyn Pages>;
        let server = Server::start_with(&page.serve, Arc::clone(&shared.catalog), Some(pages));
        let server = server.map_err(failed)?;
        for place in server.places() {
            log.info("listening").text("address", place);
        }
        let thread = PageThread::start(Taker::new(shared), file).map_err(failed)?;
        Ok(Some(PageServer { _server: server, _thread: thread }))
    }
}

/// Totals of the run, to be subtracted from later ones.
#[derive(Clone, Copy, Default)]
struct Totals {
    packets: u64,
    bytes: u64,
    flows: u64,
    nameable: u64,
    named: u64,
    dropped: u64,
}

impl State {
    /// Takes over what an earlier run saved.
    fn load(&mut self, file: &HistoryFile, now_s: u64) {
        let Some(saved) = file.load(saved::load) else { return };
        self.history = saved.history;
        self.begun_s = if saved.begun_s == 0 { now_s } else { saved.begun_s.min(now_s) };
        self.seen.known = saved.known;
        // Those of another day are not new any more.
        let today = self.seen.today();
        let is_of_today = |name: &[u8]| self.seen.known.first_day(name) == Some(today);
        let names = saved.new_names.into_iter();
        self.seen.new_names = names.filter(|new| is_of_today(new.name.as_bytes())).collect();
    }
}

/// What the thread has for itself.
struct Taker {
    shared: Arc<Shared>,
    notes: Vec<Noted>,
    /// Totals at the last sample.
    before: Totals,
}

impl Taker {
    fn new(shared: Arc<Shared>) -> Taker {
        let before = shared.totals().0;
        Taker { shared, notes: Vec::new(), before }
    }
}

impl Sampler for Taker {
    fn take_notes(&mut self) {
        // Only this exchange has the lock that the writer shares (invariant 1).
        let notes = std::mem::take(&mut self.notes);
        self.notes = self.shared.progress.live_stats.take_notes(notes);
        let mut state = self.shared.state();
        self.notes.drain(..).for_each(|noted| state.seen.take(noted));
    }

    fn sample(&mut self, now_s: u64, seconds: u64) -> bool {
        let (totals, stored_bytes, delay_ms) = self.shared.totals();
        let before = std::mem::replace(&mut self.before, totals);
        let parties = self.shared.progress.live_stats.take_parties();
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let sample = Sample {
            seconds,
            packets: since(totals.packets, before.packets),
            bytes: since(totals.bytes, before.bytes),
            flows: since(totals.flows, before.flows),
            nameable: since(totals.nameable, before.nameable),
            named: since(totals.named, before.named),
            dropped: since(totals.dropped, before.dropped),
            stored_bytes,
            delay_ms,
        };
        self.shared.demand.passed(seconds);
        let mut state = self.shared.state();
        state.seen.advance(now_s);
        let is_over = state.history.push(now_s, sample);
        for (party, bytes) in parties {
            match party {
                Party::Name(name) => {
                    state.history.add_traffic(Some(&texts::spelled(&name)), bytes);
                }
                Party::Addr(_) => state.history.add_traffic(None, bytes),
            }
        }
        is_over
    }

    fn end_minute(&mut self) {
        self.shared.state().history.end_minute();
    }

    fn bytes(&self) -> Vec<u8> {
        let state = self.shared.state();
        saved::bytes_of(state.begun_s, &state.history, &state.seen)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Totals, bytes of stored packets, and the delay of the log in milliseconds.
    fn totals(&self) -> (Totals, u64, u64) {
        let live = &self.progress.live_stats.totals;
        let load = |total: &AtomicU64| total.load(Ordering::Relaxed);
        let metrics = self.figures.metrics();
        let sum = |names: &[&str]| -> f64 {
            let of_name = metrics.iter().filter(|metric| names.contains(&&*metric.name));
            of_name.map(|metric| metric.value).sum()
        };
        let totals = Totals {
            packets: load(&self.progress.packets),
            bytes: load(&live.ip_bytes),
            flows: load(&live.flows_ended),
            nameable: load(&live.flows_nameable),
            named: load(&live.flows_named),
            dropped: sum(&texts::DROPS) as u64,
        };
        let segments = self.catalog.list();
        let stored_bytes = segments.iter().map(|segment| segment.bytes).sum();
        (totals, stored_bytes, (sum(&["behind_seconds"]) * 1e3) as u64)
    }
}

impl Pages for Shared {
    fn get(&self, path: &str) -> Option<Page> {
        if let Some(range) = path.strip_prefix("/api/history/") {
            let range = Range::named(range)?;
            let age_s = if range.is_short() { HISTORY_S } else { LONG_HISTORY_S };
            let make = || self.state().history.chart(range, now_s()).to_string().into_bytes();
            return Some(self.texts.json(Text::History(range), now_s(), age_s, make));
        }
        Some(match path {
            "/" => DOCUMENT.page(),
            "/api/stats" => {
                self.demand.asked();
                self.texts.json(Text::Stats, now_s(), 1, || self.stats())
            }
            "/api/lists" => self.texts.json(Text::Lists, now_s(), LISTS_S, || self.lists()),
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
