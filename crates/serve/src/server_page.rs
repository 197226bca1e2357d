//! The page of a server (`--ui`): a browser shows what the server does. The program gives the content ([`Shown`]).
//!
//! ```text
//! GET /                      the document: no data, so that it needs no token
//! GET /api/stats             rates, ratios, times; made at most once a second, the same bytes for all
//! GET /api/recent            upstreams, and what was served last; the same
//! GET /api/lists             tables of the last hour; made at most every five seconds
//! GET /api/history/RANGE     points of the charts, for 1m, 1h, 24h or 30d
//! GET /metrics               for Prometheus
//! ```
//!
//! | thread | duty |
//! |---|---|
//! | of the page | four times a second: takes notes of workers; once a second: a sample of the counters |
//! | of the server | responds; makes a text if the one it has is too old |
//! | workers | note some of what they serve; publish counters, as without a page |
//!
//! Invariants
//! 1. No worker waits for the page or its clients, and none shares a lock with them: notes come by a channel
//!    ([`record_channel`](crate::record_channel)).
//! 2. Texts are made as often for a thousand clients as for one (test `texts_are_shared_and_paths_known`).

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use serde_json::{Value, json};

use crate::durations::Durations;
use crate::history::{History, Range, Series, rate, rounded};
use crate::log::Log;
use crate::page_server::{PageOptions, PageServer};
use crate::page_thread::{HistoryFile, PageThread, Sampler, now_s};
use crate::pages::{Demand, Page, Pages, Texts};
use crate::record_channel::Batch;
use crate::saved::{self, Output};

/// The age at which a text is made again, seconds.
const LISTS_S: u64 = 5;
const LONG_HISTORY_S: u64 = 30;

/// Seconds over which ratios and times are stated.
const RECENT_S: usize = 60;

/// What the page of a program shows.
pub trait Shown<const N: usize>: Send + Sync + Sized + 'static {
    /// The beginning of the file of its history.
    const MAGIC: &'static [u8; 8];

    /// The numbers of a sample; the first one is [`Series::SECONDS`].
    const SERIES: &'static [Series; N];

    /// What the thread of the page keeps: tables, and counters at the last sample.
    type Kept: Send;

    /// Empty tables, and the counters at this time.
    fn begin(&self) -> Self::Kept;

    /// The document.
    fn document() -> Page;

    /// Takes notes that a worker sent together.
    fn take(&self, kept: &mut Self::Kept, notes: &[u8], now_s: u64);

    /// A sample of what was counted since the last one; its first number is ignored.
    fn sample(&self, kept: &mut Self::Kept) -> [u64; N];

    /// `/api/stats`, without what the page knows itself (`now_s`, `begun_s`, `poll_ms`).
    fn stats(page: &ServerPage<Self, N>) -> Value;

    /// `/api/recent`.
    fn recent(page: &ServerPage<Self, N>) -> Value;

    /// `/api/lists`.
    fn lists(page: &ServerPage<Self, N>, now_s: u64) -> Value;

    /// `/metrics`.
    fn metrics(&self) -> String;
}

/// A page before its server has started.
#[derive(Debug)]
pub struct Begun {
    options: PageOptions,
    received: Receiver<Batch>,
}

impl Begun {
    /// `received`: the end of the channel to which workers send notes.
    pub fn new(options: PageOptions, received: Receiver<Batch>) -> Begun {
        Begun { options, received }
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// The address is in use or not allowed, or there are too many threads.
    pub fn start<S: Shown<N>, const N: usize>(
        self,
        shown: S,
        log: &Log,
    ) -> io::Result<RunningPage> {
        let Begun { options, received } = self;
        let log = log.of("ui");
        let access = options.server.access;
        let file = options.history.map(|path| HistoryFile::new(path, access, log.clone()));
        let mut page = ServerPage::new(shown, now_s());
        let state = page.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some((begun_s, history)) = file.as_ref().and_then(|file| file.load(load::<S, N>)) {
            (state.begun_s, state.history) = (begun_s.min(state.begun_s), history);
        }
        let page = Arc::new(page);
        let server = PageServer::start(&options.server, Arc::clone(&page) as Arc<dyn Pages>)?;
        log.info("listening").text("address", server.place());
        let thread = PageThread::start(Taker::new(page, received), file)?;
        Ok(RunningPage { _server: server, _thread: thread })
    }
}

/// The page: its thread, and its server. Both end when it is dropped.
#[derive(Debug)]
pub struct RunningPage {
    _server: PageServer,
    _thread: PageThread,
}

/// What both threads use.
pub struct ServerPage<S: Shown<N>, const N: usize> {
    /// Of the program.
    pub shown: S,
    state: Mutex<State<S::Kept, N>>,
    texts: Texts<Text>,
    demand: Demand,
}

/// Samples and tables.
#[derive(Debug)]
pub struct State<K, const N: usize> {
    /// Samples.
    pub history: History<N>,
    /// Of the program.
    pub kept: K,
    /// When the first run with this history began, seconds since 1970.
    begun_s: u64,
}

/// A text that several clients get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Text {
    Stats,
    Recent,
    Lists,
    History(Range),
}

/// The place of a series in a sample.
///
/// # Panics
/// If there is none: a name is a constant of its program.
pub fn place(series: &[Series], name: &str) -> usize {
    let place = series.iter().position(|series| series.name == name);
    place.unwrap_or_else(|| panic!("no series has the name {name}"))
}

/// Reads the file of an earlier run.
fn load<S: Shown<N>, const N: usize>(path: &Path) -> Result<Option<(u64, History<N>)>, String> {
    saved::load(path, S::MAGIC, |input| Some((input.number()?, History::read(S::SERIES, input)?)))
}

impl<K, const N: usize> State<K, N> {
    /// A number of the last sample, a second.
    pub fn rate(&self, name: &str) -> f64 {
        let last = self.history.last();
        rounded(rate(last[place(self.history.series(), name)], last[0]))
    }

    /// The sum of a number over the last minute.
    pub fn of_minute(&self, name: &str) -> u64 {
        self.history.sum_of_last(RECENT_S)[place(self.history.series(), name)]
    }
}

impl<S: Shown<N>, const N: usize> fmt::Debug for ServerPage<S, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerPage").field("demand", &self.demand).finish_non_exhaustive()
    }
}

impl<S: Shown<N>, const N: usize> ServerPage<S, N> {
    /// A page without history. `begun_s`: seconds since 1970.
    pub fn new(shown: S, begun_s: u64) -> ServerPage<S, N> {
        let kept = shown.begin();
        ServerPage {
            shown,
            state: Mutex::new(State { history: History::new(S::SERIES), kept, begun_s }),
            texts: Texts::default(),
            demand: Demand::default(),
        }
    }

    /// Samples and tables. The thread of the page waits meanwhile, and no worker.
    pub fn state(&self) -> MutexGuard<'_, State<S::Kept, N>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `/api/stats`: of the program, and of the page itself.
    fn stats(&self, now_s: u64) -> Vec<u8> {
        let mut stats = S::stats(self);
        stats["now_s"] = now_s.into();
        stats["begun_s"] = self.state().begun_s.into();
        stats["poll_ms"] = self.demand.poll_ms().into();
        stats.to_string().into_bytes()
    }
}

impl<S: Shown<N>, const N: usize> Pages for ServerPage<S, N> {
    fn get(&self, path: &str) -> Option<Page> {
        let now_s = now_s();
        if let Some(range) = path.strip_prefix("/api/history/") {
            let range = Range::named(range)?;
            let age_s = if range.is_short() { 1 } else { LONG_HISTORY_S };
            let make = || self.state().history.chart(range, now_s).to_string().into_bytes();
            return Some(self.texts.json(Text::History(range), now_s, age_s, make));
        }
        Some(match path {
            "/" => S::document(),
            "/api/stats" => {
                self.demand.asked();
                self.texts.json(Text::Stats, now_s, 1, || self.stats(now_s))
            }
            "/api/recent" => {
                let make = || S::recent(self).to_string().into_bytes();
                self.texts.json(Text::Recent, now_s, 1, make)
            }
            "/api/lists" => {
                let make = || S::lists(self, now_s).to_string().into_bytes();
                self.texts.json(Text::Lists, now_s, LISTS_S, make)
            }
            "/metrics" => {
                let text = self.shown.metrics().into_bytes();
                Page::new("text/plain; version=0.0.4; charset=utf-8", text)
            }
            _ => return None,
        })
    }

    fn is_public(&self, path: &str) -> bool {
        path == "/"
    }
}

/// Takes notes and samples for a page.
pub struct Taker<S: Shown<N>, const N: usize> {
    page: Arc<ServerPage<S, N>>,
    received: Receiver<Batch>,
}

impl<S: Shown<N>, const N: usize> fmt::Debug for Taker<S, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taker").field("page", &self.page).finish_non_exhaustive()
    }
}

impl<S: Shown<N>, const N: usize> Taker<S, N> {
    /// `received`: see [`Begun::new`].
    pub fn new(page: Arc<ServerPage<S, N>>, received: Receiver<Batch>) -> Taker<S, N> {
        Taker { page, received }
    }
}

impl<S: Shown<N>, const N: usize> Sampler for Taker<S, N> {
    fn take_notes(&mut self) {
        let now_s = now_s();
        // Invariant 1: workers never wait for this end of the channel.
        for batch in self.received.try_iter() {
            self.page.shown.take(&mut self.page.state().kept, &batch.bytes, now_s);
        }
    }

    fn sample(&mut self, now_s: u64, seconds: u64) -> bool {
        self.page.demand.passed(seconds);
        let mut state = self.page.state();
        let mut sample = self.page.shown.sample(&mut state.kept);
        sample[0] = seconds;
        state.history.push(now_s, sample)
    }

    fn end_minute(&mut self) {
        self.page.state().history.end_minute();
    }

    fn bytes(&self) -> Vec<u8> {
        let state = self.page.state();
        let mut out = Output::new(S::MAGIC);
        out.number(state.begun_s);
        state.history.write(&mut out);
        out.end()
    }
}

/// Durations since the start, at each second of the last minute.
#[derive(Debug, Default)]
pub struct LastMinute(VecDeque<Durations>);

impl LastMinute {
    /// A second has begun; `before`: what was counted until then.
    pub fn push(&mut self, before: Durations) {
        self.0.push_back(before);
        while self.0.len() > RECENT_S {
            self.0.pop_front();
        }
    }

    /// Those of the last minute, until `now`.
    pub fn until(&self, now: &Durations) -> Durations {
        self.0.front().map_or_else(Durations::default, |before| now.since(before))
    }
}

/// A quantile for a sample, microseconds: 0 without durations. The last bucket has no end: 16.8 s stand for it.
pub fn quantile_us(durations: &Durations, share: f64) -> u64 {
    match durations.count() {
        0 => 0,
        _ => durations.quantile_us(share).unwrap_or(1 << 24),
    }
}

/// Half and nearly all of the durations are below these, microseconds.
pub fn times(durations: &Durations) -> Value {
    json!({ "p50": durations.quantile_us(0.5), "p99": durations.quantile_us(0.99) })
}

/// A share, percent; `None` of nothing.
pub fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| rounded(part as f64 * 100.0 / whole as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_channel::channel;

    struct Counter;

    const SERIES: [Series; 2] = [Series::SECONDS, Series::sum("bytes")];

    impl Shown<2> for Counter {
        const MAGIC: &'static [u8; 8] = b"counter1";
        const SERIES: &'static [Series; 2] = &SERIES;
        type Kept = u64;

        fn begin(&self) -> u64 {
            0
        }

        fn document() -> Page {
            Page::new("text/html", *b"<html>")
        }

        fn take(&self, kept: &mut u64, notes: &[u8], _: u64) {
            *kept += notes.len() as u64;
        }

        fn sample(&self, kept: &mut u64) -> [u64; 2] {
            [0, std::mem::take(kept)]
        }

        fn stats(page: &ServerPage<Counter, 2>) -> Value {
            let state = page.state();
            json!({ "bytes_s": state.rate("bytes"), "bytes": state.of_minute("bytes") })
        }

        fn recent(_: &ServerPage<Counter, 2>) -> Value {
            json!({})
        }

        fn lists(_: &ServerPage<Counter, 2>, now_s: u64) -> Value {
            json!({ "now_s": now_s })
        }

        fn metrics(&self) -> String {
            "# HELP".to_owned()
        }
    }

    fn text(page: &ServerPage<Counter, 2>, path: &str) -> Value {
        serde_json::from_slice(&page.get(path).expect(path).content).expect("JSON")
    }

    /// Invariant 2: clients get the same bytes. Only the document is public; unknown paths are none.
    #[test]
    fn texts_are_shared_and_paths_known() {
        let page = ServerPage::new(Counter, 7);
        for path in
            ["/api/stats", "/api/recent", "/api/lists", "/api/history/1m", "/api/history/30d"]
        {
            assert!(text(&page, path).is_object() && !page.is_public(path), "{path}");
        }
        let lists = || page.get("/api/lists").expect("lists").content;
        assert!(Arc::ptr_eq(&lists(), &lists()));
        assert!(page.is_public("/") && page.get("/").is_some());
        assert!(!page.is_public("/metrics") && page.get("/metrics").is_some());
        for path in ["/api/history/2h", "/api/history/", "/api", "/segments", ""] {
            assert!(page.get(path).is_none(), "{path}");
        }
    }

    /// Notes and counters become samples, and those become a file that a later run reads; a file of another program is
    /// refused.
    #[test]
    fn samples_are_kept() {
        let page = Arc::new(ServerPage::new(Counter, 7));
        let (mut sender, received) = channel();
        let mut taker = Taker::new(Arc::clone(&page), received);
        for bytes in [&b"abc"[..], b"defgh"] {
            sender.record(|out| out.extend_from_slice(bytes));
            sender.flush();
        }
        taker.take_notes();
        assert!(!taker.sample(118, 2));
        let stats = text(&page, "/api/stats");
        assert_eq!((&stats["bytes_s"], &stats["bytes"]), (&4.0.into(), &8.into()));
        assert_eq!((&stats["begun_s"], &stats["poll_ms"]), (&7.into(), &1_000.into()));
        assert!(taker.sample(120, 1), "a minute is over");
        taker.end_minute();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history");
        std::fs::write(&path, taker.bytes()).expect("written");
        let loaded = load::<Counter, 2>(&path).expect("sound").expect("a file");
        assert_eq!(loaded, (7, page.state().history.clone()));
        std::fs::write(&path, b"larderd1").expect("written");
        assert!(load::<Counter, 2>(&path).is_err());
    }

    /// Times are those of the last minute.
    #[test]
    fn a_minute_passes() {
        let (mut minute, mut now) = (LastMinute::default(), Durations::default());
        assert_eq!(minute.until(&now).count(), 0);
        for _ in 0..100 {
            minute.push(now.clone());
            now.note(1);
        }
        assert_eq!(minute.until(&now).count(), 60);
        assert_eq!((quantile_us(&Durations::default(), 0.5), quantile_us(&now, 0.5)), (0, 2));
        let mut long = Durations::default();
        long.note(u64::MAX);
        assert_eq!(quantile_us(&long, 0.5), 1 << 24);
        assert_eq!((percent(1, 3), percent(0, 0)), (Some(33.3), None));
    }
}
