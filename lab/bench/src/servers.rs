//! What comparisons of servers share, of DNS and of HTTP: finding the programs, starting them, rounds in a network of
//! their own, and the events that a run reports.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use larder_io::cores::pin_to_core;
use larder_io::netns::enter_private_network;

use crate::process::{find, version};
use crate::result_table::Style;

/// The server that the others are compared with.
pub const LARDER: &str = "larder";

/// A kind of server: its name, its program, the flag that prints its version, and how it is set up.
#[derive(Debug)]
pub struct Known<L> {
    /// Its name in reports.
    pub name: &'static str,
    /// Its program.
    pub program: &'static str,
    /// The flag that prints its version.
    pub version_flag: &'static str,
    /// How it is set up.
    pub launch: L,
}

/// A server that is installed.
#[derive(Debug, Clone)]
pub struct Server<L> {
    /// Its name in reports.
    pub name: &'static str,
    /// Its program.
    pub program: PathBuf,
    /// Its version, as the program prints it.
    pub version: String,
    pub(crate) launch: L,
}

impl<L: Copy> Server<L> {
    /// The server of this name; the error states why it is not here. `own` is the program of larder.
    pub(crate) fn of(known: &[Known<L>], name: &str, own: &Path) -> Result<Server<L>, String> {
        let known = known.iter().find(|known| known.name == name);
        let known = known.ok_or_else(|| format!("there is no server '{name}'"))?;
        let program = match known.name {
            LARDER if own.is_file() => Some(own.to_owned()),
            LARDER => {
                return Err(format!(
                    "{} is not there; cargo build --release makes it",
                    own.display()
                ));
            }
            _ => find(known.program),
        };
        let program = program.ok_or("not installed")?;
        let version = version(&program, known.version_flag).unwrap_or_default();
        Ok(Server { name: known.name, program, version, launch: known.launch })
    }
}

/// Words as arguments.
pub(crate) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A contestant's part in a work.
#[derive(Debug, Clone)]
pub struct Entry<F> {
    /// The contestant.
    pub name: &'static str,
    /// Whether it is a limit, not a server.
    pub is_limit: bool,
    /// Its figures.
    pub figures: F,
}

/// A work that was measured.
pub trait Measured {
    /// A title and a table.
    fn table(&self, style: Style) -> String;

    /// A line for each contestant.
    fn json(&self) -> String;
}

/// What a run reports while it goes on.
pub enum Event<M> {
    /// Where the measured time goes.
    Progress(String),
    /// A server takes no part, and why.
    Skipped(&'static str, String),
    /// A server's arguments, for each of its processes, and its configuration.
    SetUp(&'static str, Vec<Vec<String>>, String),
    /// The limits that the machine sets to the figures.
    Machine(String),
    /// A work is done.
    Measured(M),
}

/// Why there are no figures.
#[derive(Debug)]
pub enum Error {
    /// A network of its own is not permitted.
    NotPermitted(io::Error),
    /// Anything else.
    Failed(String),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Failed(error.to_string())
    }
}

/// A run in a network of its own: `begin` makes it, and states what limits the figures; `measure` measures a work with
/// it, or returns `None` when it was stopped. Ends early, with the works that are complete, when `stop` is set.
pub(crate) fn run<'w, W: Sync, R, M, T: FnMut(Event<M>) + Send>(
    works: &'w [W],
    stop: &AtomicBool,
    mut report: T,
    begin: impl FnOnce() -> Result<(R, String), Error> + Send,
    measure: impl Fn(&mut R, &'w W, &mut T) -> Result<Option<M>, Error> + Sync,
) -> Result<(), Error> {
    // On a thread of its own, which takes its network, its cores and its children with it.
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            enter_private_network().map_err(Error::NotPermitted)?;
            let (mut contest, machine) = begin()?;
            report(Event::Machine(machine));
            for work in works {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                if let Some(measured) = measure(&mut contest, work, &mut report)? {
                    report(Event::Measured(measured));
                }
            }
            Ok(())
        });
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A thread on a core of its own, stopped and joined when dropped.
pub(crate) struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Background {
    /// Runs `body` until it is dropped; `body` ends when the flag is set.
    pub fn start(
        name: &str,
        core: usize,
        body: impl FnOnce(&AtomicBool) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Background> {
        let stop = Arc::new(AtomicBool::new(false));
        let own_stop = Arc::clone(&stop);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            pin_to_core(core)?;
            body(&own_stop)
        })?;
        Ok(Background { stop, thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs `body` on every core, each in a thread of its own, and meanwhile `lead` on this one.
pub(crate) fn on_cores<T: Send, L>(
    cores: &[usize],
    body: impl Fn(usize, usize) -> io::Result<T> + Sync,
    lead: impl FnOnce() -> L,
) -> io::Result<(Vec<T>, L)> {
    thread::scope(|scope| {
        let spawn = |(at, &core): (usize, &usize)| {
            let body = &body;
            scope.spawn(move || {
                pin_to_core(core)?;
                body(at, core)
            })
        };
        let threads: Vec<_> = cores.iter().enumerate().map(spawn).collect();
        let led = lead();
        let join = |thread: thread::ScopedJoinHandle<'_, io::Result<T>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok((threads.into_iter().map(join).collect::<io::Result<_>>()?, led))
    })
}
