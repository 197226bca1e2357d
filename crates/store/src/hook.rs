//! The hook: a program of the operator that runs for each closed segment, to copy it elsewhere.
//!
//! ```text
//! waiting    closed, and compressed if segments are; the oldest first
//! running    PROGRAM N.pcapng[.zst] N.idx; after a failure again, up to `TRIES` times
//! done       it succeeded, and N.hooked says so; or not tried again until the next start
//! ```
//!
//! One program runs at a time, from a thread of its own and with the lowest priority. The list of
//! what is to be done is the catalog: nothing more grows if hooks lag behind.
//!
//! A program that succeeds has run once for its segment, or more than once if larder was killed
//! before it recorded that. Nothing waits for it: the budget deletes segments as ever, and those
//! whose hook had not succeeded are counted.
//!
//! When the store ends, a running program gets [`GRACE`] to finish, and then ends by a signal. Its
//! segment, and all that wait, are next at the next start.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use larder_io::access::Access;
use larder_io::program::Program;

use crate::catalog::{Content, Hook as State, Segment};
use crate::files::{self, Kind};
use crate::growing::Shared;
use crate::options::{Counts, Hook, Options};

/// Runs of the hook for a segment, at most, until the next start.
const TRIES: u32 = 3;

/// Time that a running program has when the store ends.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Time between the request to end and the end by force.
const TERMINATE: Duration = Duration::from_secs(1);

/// Time after which a running program is looked at again.
const POLL: Duration = Duration::from_millis(20);

/// The state of the thread.
#[derive(Debug)]
pub(crate) struct Hooks {
    shared: Arc<Shared>,
    directory: PathBuf,
    access: Access,
    hook: Hook,
    /// Segments may still be compressed.
    compresses: bool,
    /// Segments before this number are done.
    first: u64,
}

/// How a run ended.
enum End {
    Success,
    /// The reason, and the last line that the program wrote to standard error.
    Failure(String, String),
    /// The store ends.
    Ending,
}

impl Hooks {
    pub fn new(shared: Arc<Shared>, options: &Options, hook: Hook) -> Hooks {
        let Options { directory, access, compress, .. } = options;
        let (directory, access, compresses) = (directory.clone(), *access, *compress);
        Hooks { shared, directory, access, hook, compresses, first: 0 }
    }

    /// The oldest segment whose hook has not run, if it is ready for it.
    pub fn next(&mut self) -> Option<Segment> {
        let is_waiting = |segment: &Segment| !matches!(segment.hook, State::Failed | State::Done);
        let segment = self.shared.catalog.first_from(self.first, is_waiting)?;
        self.first = segment.number;
        let is_ready = segment.file.is_some() && (segment.is_final || !self.compresses);
        is_ready.then_some(segment)
    }

    /// Runs its hook, again if that fails.
    pub fn take(&mut self, segment: &Segment) {
        let number = segment.number;
        let Some(Content::File(path, _) | Content::Compressed(path, _)) = &segment.file else {
            return;
        };
        let state = |hook| self.shared.catalog.change(number, |segment| segment.hook = hook);
        state(State::Running);
        let mut failures = 0;
        loop {
            let counts = &self.shared.counts;
            match self.run_once(number, path) {
                End::Success => {
                    Counts::add(&counts.hooks_run, 1);
                    self.record(number);
                    return state(State::Done);
                }
                End::Ending => return state(State::Waiting),
                End::Failure(why, line) => {
                    failures += 1;
                    Counts::add(&counts.hooks_failed, 1);
                    let log = counts.log.warn("hook failed").text("path", path.display());
                    let log = log.text("reason", why).text("stderr", line);
                    log.number("tries_left", u64::from(TRIES.saturating_sub(failures)));
                    // The budget may have deleted the segment meanwhile.
                    if self.shared.catalog.get(number).is_none() {
                        Counts::add(&counts.hooks_missed, 1);
                        return;
                    }
                    if failures >= TRIES {
                        return state(State::Failed);
                    }
                    if !self.pause() {
                        return state(State::Waiting);
                    }
                }
            }
        }
    }

    /// Waits before another try; false: the store ends.
    fn pause(&self) -> bool {
        let until = Instant::now() + self.hook.pause;
        while !self.shared.helpers_must_end() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::park_timeout(left);
        }
        false
    }

    fn run_once(&self, number: u64, path: &Path) -> End {
        let index = files::path(&self.directory, number, Kind::Index);
        let mut program = match Program::start(&self.hook.program, &[path, &index]) {
            Ok(program) => program,
            Err(error) => return End::Failure(format!("not started: {error}"), String::new()),
        };
        let started = Instant::now();
        let mut ends = None;
        loop {
            let failed = match program.poll() {
                Ok(Some(status)) if status.success() => return End::Success,
                Ok(Some(status)) => Some(status.to_string()),
                Ok(None) => None,
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = failed {
                return End::Failure(why, program.last_line());
            }
            if started.elapsed() >= self.hook.limit {
                stop(&mut program);
                let why = format!("killed after {} s", self.hook.limit.as_secs());
                return End::Failure(why, program.last_line());
            }
            if self.shared.helpers_must_end() {
                let since: &mut Instant = ends.get_or_insert_with(Instant::now);
                if since.elapsed() >= GRACE {
                    stop(&mut program);
                    return End::Ending;
                }
            }
            thread::park_timeout(POLL);
        }
    }

    /// Records that the hook has run, for later starts.
    fn record(&self, number: u64) {
        let path = files::path(&self.directory, number, Kind::Hooked);
        if let Err(error) = self.access.create(&path) {
            let line = self.shared.counts.log.error("hook not recorded");
            line.text("path", path.display()).text("error", error);
        }
        // The budget deletes files of a segment after the catalog has lost it, or before: then this
        // one is a file too many.
        if self.shared.catalog.get(number).is_none() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Ends a program: first by a request, then by force.
fn stop(program: &mut Program) {
    program.terminate();
    let until = Instant::now() + TERMINATE;
    while Instant::now() < until {
        if !matches!(program.poll(), Ok(None)) {
            break;
        }
        thread::park_timeout(POLL);
    }
    // Also what it started and left behind.
    let _ = program.kill();
}
