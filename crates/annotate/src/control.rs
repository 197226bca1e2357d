//! What operators ask of a run that goes on: `larder ctl` and `larder top`, Prometheus, the service manager.
//!
//! ```text
//! {"command":"stats"}    -> {"ok":true,"packets":1234, ...}
//! {"command":"top"}      -> {"ok":true,"parties":[...],"talk":[...], and what stats says}
//! {"command":"reopen"}   -> {"ok":true}     logs are opened anew
//! {"command":"stop"}     -> {"ok":true}     what was received is written, and the run ends
//! ```
//!
//! One thread, which sleeps until somebody asks. The watchdog of the service manager is fed only while batches are asked for, so
//! that it finds a pipeline that hangs. The last flush asks for none and may take longer than the watchdog waits: the manager is
//! told that we are stopping, which starts its own limit (`TimeoutStopSec`), and the watchdog is fed until the end.
//!
//! Invariant: the pipeline waits for nothing here.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use larder_io::epoll::Waker;
use larder_serve::console::{self, Console, Places};
use larder_serve::control::{Answer, Fields, Service};
use larder_serve::log::Log;
use serde_json::Value;

use crate::figures::Figures;
use crate::live_stats::{Party, Second, Tally};
use crate::names_file::escaped;
use crate::options::{Operation, Options};
use crate::{Error, Progress};

/// Rows of `top`.
const TOP_ROWS: usize = 100;

/// The thread. Dropped, it ends.
pub struct Control {
    waker: Arc<Waker>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Opens the sockets, and serves them from now on; `status` is for the service manager, which hears that we are ready.
    pub fn start(
        options: &Options,
        progress: &Arc<Progress>,
        figures: Arc<Figures>,
        status: &str,
    ) -> Result<Control, Error> {
        let failed = |error: io::Error| Error::Options(error.to_string());
        let waker = Arc::new(Waker::new().map_err(failed)?);
        let Operation { control, metrics } = options.operation.clone();
        let places = Places { control, metrics, ..Places::default() };
        let mut console = Console::open(&places, Arc::clone(&waker)).map_err(failed)?;
        console.start(status, &options.log);
        let ends = Arc::new(AtomicBool::new(false));
        let (progress, log) = (Arc::clone(progress), options.log.clone());
        let mut duties = Duties { progress, log, figures, turns: 0 };
        let is_ended = Arc::clone(&ends);
        let run = move || {
            serve(&mut console, &mut duties, &is_ended);
            console.stopping();
        };
        let thread = thread::Builder::new().name("operator".to_owned()).spawn(run);
        let thread = Some(thread.map_err(failed)?);
        Ok(Control { waker, ends, thread })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves operators until the run has ended.
fn serve(console: &mut Console, duties: &mut Duties, ends: &AtomicBool) {
    let mut own = Vec::new();
    while !ends.load(Ordering::Acquire) {
        if let Err(error) = console.turn(duties, None, &mut own) {
            // No packet is lost for it; operators get no response.
            return drop(duties.log.error("control and metrics failed").text("error", error));
        }
        if duties.is_finishing() {
            console.stopping();
        }
    }
}

struct Duties {
    progress: Arc<Progress>,
    log: Log,
    figures: Arc<Figures>,
    /// What the pipeline had done when the watchdog was fed last.
    turns: u64,
}

impl console::Duties for Duties {
    fn now_ms(&self) -> u64 {
        self.figures.now_ms()
    }

    fn metrics(&self) -> String {
        self.figures.text()
    }

    /// The pipeline goes on, or its last flush does, which asks for no batches.
    fn is_alive(&mut self) -> bool {
        let turns = self.progress.turns.load(Ordering::Relaxed);
        std::mem::replace(&mut self.turns, turns) != turns || self.is_finishing()
    }
}

impl Duties {
    fn is_finishing(&self) -> bool {
        self.progress.is_finishing.load(Ordering::Acquire)
    }

    fn top(&self) -> Fields {
        let mut fields = self.figures.stats();
        let second = self.progress.live_stats.watch();
        fields.insert("parties".to_owned(), parties(&second));
        fields.insert("talk".to_owned(), flows(&second));
        fields
    }
}

fn text(party: &Party) -> String {
    match party {
        Party::Addr(addr) => addr.to_string(),
        Party::Name(name) => {
            let mut text = Vec::new();
            escaped(name.as_bytes(), &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
    }
}

fn row(of: Fields, tally: Tally) -> Value {
    let mut row = of;
    row.insert("packets".to_owned(), tally.packets.into());
    row.insert("bytes".to_owned(), tally.bytes.into());
    row.into()
}

fn parties(second: &Second) -> Value {
    let mut rows: Vec<_> = second.parties.iter().collect();
    rows.sort_unstable_by_key(|(_, tally)| std::cmp::Reverse(tally.bytes));
    let rows = rows.into_iter().take(TOP_ROWS).map(|(party, tally)| {
        let is_named = matches!(party, Party::Name(_));
        let name = ("name".to_owned(), text(party).into());
        row(Fields::from_iter([name, ("is_named".to_owned(), is_named.into())]), *tally)
    });
    rows.collect()
}

fn flows(second: &Second) -> Value {
    let mut rows: Vec<_> = second.flows.iter().collect();
    rows.sort_unstable_by_key(|(_, (tally, ..))| std::cmp::Reverse(tally.bytes));
    let rows = rows.into_iter().take(TOP_ROWS).map(|(key, (tally, source_is_low, party))| {
        let (low, high) = ((key.low, key.low_port), (key.high, key.high_port));
        let ends = if *source_is_low { (low, high) } else { (high, low) };
        let end = |(addr, port)| match std::net::IpAddr::from(addr) {
            ip if key.protocol == 6 || key.protocol == 17 => SocketAddr::new(ip, port).to_string(),
            ip => ip.to_string(),
        };
        let of = [
            ("source", end(ends.0).into()),
            ("destination", end(ends.1).into()),
            ("protocol", key.protocol.into()),
            ("name", text(party).into()),
        ];
        row(
            of.into_iter().map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect(),
            *tally,
        )
    });
    rows.collect()
}

impl Service for Duties {
    fn request(&mut self, line: &[u8]) -> Answer {
        let request: Value = match serde_json::from_slice(line) {
            Ok(request) => request,
            Err(error) => {
                let next = "ask {\"command\":\"stats\"}";
                return Answer::refused(format!("not a line of JSON ({error}); {next}"));
            }
        };
        match request.get("command").and_then(Value::as_str) {
            Some("version") => {
                let version = env!("CARGO_PKG_VERSION").into();
                Answer::Now(Ok(Fields::from_iter([("version".to_owned(), version)])))
            }
            Some("stats") => Answer::Now(Ok(self.figures.stats())),
            Some("top") => Answer::Now(Ok(self.top())),
            Some("reopen") => {
                self.progress.reopen.store(true, Ordering::Release);
                Answer::done()
            }
            Some("stop") => {
                self.progress.stop.store(true, Ordering::Release);
                Answer::done()
            }
            Some(command) => Answer::refused(format!(
                "larder annotate has no command {command:?}; there are version, stats, top, reopen, stop"
            )),
            None => Answer::refused("\"command\" is missing, as in {\"command\":\"stats\"}"),
        }
    }
}
