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
//! 2. Texts are made as often for a thousand clients as for one. Clients are asked to come less often if there are
//!    many (test `many_clients_come_less_often`).
//! 3. A file of history that cannot be read or written is logged; the run goes on (test `a_damaged_file_is_replaced`).

mod history;
mod saved;
mod texts;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use larder_io::access::Access;
use larder_serve::log::Log;
use larder_serve::pages::{Document, Page, Pages};
use larder_store::Catalog;
use larder_store::serve::Server;

use self::history::{History, Range, Sample};
use self::texts::Facts;
use crate::figures::Figures;
use crate::live::CaptureStats;
use crate::live_stats::Party;
use crate::options::Options;
use crate::seen::Seen;
use crate::store_sink::StoreSink;
use crate::{Error, Progress};

/// How often the thread takes notes.
const TURN: Duration = Duration::from_millis(250);

/// The age at which a text is made again, seconds.
const LISTS_S: u64 = 5;
const HISTORY_S: u64 = 1;
const LONG_HISTORY_S: u64 = 30;

/// Requests for statistics a second that the page is made for.
const REQUESTS_MAX: u64 = 50;

/// The name of the file in the folder of the store.
const FILE_NAME: &str = "history";

/// The document.
static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    let scripts = [
        "'use strict';\n(() => {\n",
        include_str!("../ui/parts.js"),
        include_str!("../ui/charts.js"),
        include_str!("../ui/page.js"),
        "})();\n",
    ];
    let (html, style) = (include_str!("../ui/page.html"), include_str!("../ui/page.css"));
    Document::new(html, style, &scripts.concat())
});

/// The page: its thread, and its server. Both end when it is dropped.
pub struct PageServer {
    _server: Server,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What both threads use.
struct Shared {
    figures: Arc<Figures>,
    progress: Arc<Progress>,
    facts: Facts,
    catalog: Arc<Catalog>,
    state: Mutex<State>,
    texts: Mutex<HashMap<Text, Made>>,
    /// Requests for statistics since the last second.
    requests: AtomicU64,
    ends: AtomicBool,
    file: Option<PathBuf>,
    access: Access,
    log: Log,
}

/// Samples and tables.
#[derive(Default)]
struct State {
    history: History,
    seen: Seen,
    /// When the first run with this history began, seconds since 1970.
    begun_s: u64,
    /// Clients of the page, about.
    clients: u64,
}

/// A text that several clients get.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Text {
    Stats,
    Lists,
    History(Range),
}

/// A text, and the second in which it was made.
struct Made {
    at_s: u64,
    page: Page,
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
        let now_s = now_s();
        let mut state = State { begun_s: now_s, ..State::default() };
        state.seen.advance(now_s);
        if let Some(file) = &file {
            state.load(file, now_s, &log);
        }
        let catalog = store_sink.map(|store_sink| Arc::clone(store_sink.store().catalog()));
        let shared = Arc::new(Shared {
            figures: Arc::clone(figures),
            progress: Arc::clone(progress),
            facts: Facts::of(options, capture, store),
            catalog: catalog.unwrap_or_default(),
            state: Mutex::new(state),
            texts: Mutex::default(),
            requests: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            file,
            access: options.access,
            log: log.clone(),
        });
        progress.live_stats.observe();
        let pages: Arc<dyn Pages> = Arc::clone(&shared) as Arc<dyn Pages>;
        let server = Server::start_with(&page.serve, Arc::clone(&shared.catalog), Some(pages));
        let server = server.map_err(failed)?;
        for place in server.places() {
            log.info("listening").text("address", place);
        }
        let run = {
            let shared = Arc::clone(&shared);
            move || shared.run()
        };
        let thread = thread::Builder::new().name("page".to_owned()).spawn(run).map_err(failed)?;
        Ok(Some(PageServer { _server: server, shared, thread: Some(thread) }))
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
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
    fn load(&mut self, file: &Path, now_s: u64, log: &Log) {
        match saved::load(file) {
            Ok(None) => {}
            Ok(Some(saved)) => {
                self.history = saved.history;
                self.begun_s = if saved.begun_s == 0 { now_s } else { saved.begun_s.min(now_s) };
                self.seen.known = saved.known;
                // Those of another day are not new any more.
                let today = self.seen.today();
                let is_of_today = |name: &[u8]| self.seen.known.first_day(name) == Some(today);
                let names = saved.new_names.into_iter();
                let names = names.filter(|new| is_of_today(new.name.as_bytes())).collect();
                self.seen.new_names = names;
            }
            Err(why) => {
                let event = log.warn("history not read; it begins again");
                event.text("file", file.display()).text("reason", why);
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread of the page.
    fn run(&self) {
        let (mut notes, mut totals) = (Vec::new(), self.totals().0);
        let mut is_saved = true;
        let (mut sampled, mut sampled_s) = (Instant::now(), now_s());
        while !self.ends.load(Ordering::Acquire) {
            thread::park_timeout(TURN);
            self.take_notes(&mut notes);
            let now_s = now_s();
            if now_s == sampled_s {
                continue;
            }
            let seconds = sampled.elapsed().as_secs_f64();
            (sampled, sampled_s) = (Instant::now(), now_s);
            if self.sample(now_s, seconds, &mut totals) {
                is_saved = self.save(is_saved);
            }
        }
        self.take_notes(&mut notes);
        self.state().history.end_minute();
        self.save(is_saved);
    }

    /// Adds what records showed since the last call.
    fn take_notes(&self, notes: &mut Vec<crate::seen::Noted>) {
        // Only this exchange has the lock that the writer shares (invariant 1).
        *notes = self.progress.live_stats.take_notes(std::mem::take(notes));
        let mut state = self.state();
        notes.drain(..).for_each(|noted| state.seen.take(noted));
    }

    /// Takes a sample; true if a minute is over.
    fn sample(&self, now_s: u64, seconds: f64, before: &mut Totals) -> bool {
        let (totals, stored_bytes, delay_ms) = self.totals();
        let requests = self.requests.swap(0, Ordering::Relaxed);
        let parties = self.progress.live_stats.take_parties();
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let sample = Sample {
            // Turns are late by up to a quarter of a second, and later on a busy machine.
            seconds: (seconds.round() as u64).max(1),
            packets: since(totals.packets, before.packets),
            bytes: since(totals.bytes, before.bytes),
            flows: since(totals.flows, before.flows),
            nameable: since(totals.nameable, before.nameable),
            named: since(totals.named, before.named),
            dropped: since(totals.dropped, before.dropped),
            stored_bytes,
            delay_ms,
        };
        *before = totals;
        let mut state = self.state();
        let poll_ms = texts::poll_ms(state.clients);
        state.clients = (requests * poll_ms).div_ceil(1_000 * sample.seconds);
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

    /// Saves the history, and logs the first of several failures.
    fn save(&self, was_saved: bool) -> bool {
        let Some(file) = &self.file else { return true };
        let bytes = {
            let state = self.state();
            saved::bytes_of(state.begun_s, &state.history, &state.seen)
        };
        let saved = saved::write(file, &bytes, self.access);
        if let (Err(error), true) = (&saved, was_saved) {
            let event = self.log.error("history not written");
            event.text("file", file.display()).text("error", error);
        }
        saved.is_ok()
    }

    /// A text that is at most `age_s` seconds old.
    fn text(&self, text: Text, age_s: u64, make: impl FnOnce() -> Vec<u8>) -> Page {
        let now_s = now_s();
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = texts.get(&text)
            // The clock may have been set back.
            && (made.at_s..made.at_s + age_s).contains(&now_s)
        {
            return made.page.clone();
        }
        let page = Page::new("application/json", make());
        texts.insert(text, Made { at_s: now_s, page: page.clone() });
        page
    }
}

impl Pages for Shared {
    fn get(&self, path: &str) -> Option<Page> {
        if let Some(range) = path.strip_prefix("/api/history/") {
            let range = Range::named(range)?;
            let is_short = matches!(range, Range::Minute | Range::Hour);
            let age_s = if is_short { HISTORY_S } else { LONG_HISTORY_S };
            let make = || self.state().history.chart(range, now_s()).to_string().into_bytes();
            return Some(self.text(Text::History(range), age_s, make));
        }
        Some(match path {
            "/" => DOCUMENT.page(),
            "/api/stats" => {
                self.requests.fetch_add(1, Ordering::Relaxed);
                self.text(Text::Stats, 1, || self.stats())
            }
            "/api/lists" => self.text(Text::Lists, LISTS_S, || self.lists()),
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
