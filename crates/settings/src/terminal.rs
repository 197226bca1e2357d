//! What a program prints: results on standard output, all else on standard error, and a line of
//! progress where somebody looks on.
//!
//! The line of progress is drawn by a thread of its own, every [`EVERY`]; the run pays nothing for
//! it. Dropping the [`Bar`] stops the thread and wipes the line. None is drawn where standard error
//! is no terminal, or `TERM` is `dumb`.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::exit::{self, Failure, Outcome};

/// Between two pictures of a run.
pub const EVERY: Duration = Duration::from_millis(200);
/// Wipes the line; understood by every terminal that is not `dumb`.
pub const WIPE: &str = "\r\x1b[K";

/// Writes to standard output; a reader that went away is not an error of ours.
pub fn print(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::stdout(&error))?;
    Ok(exit::DONE)
}

/// What the process is called in what it says.
static NAME: OnceLock<&str> = OnceLock::new();

/// From now on the process speaks under this name.
pub(crate) fn speak_as(name: &'static str) {
    // It was set before: by another test.
    let _ = NAME.set(name);
}

/// Says something of the run on standard error, in the program's name.
pub fn say(line: &str) {
    eprint_quietly(&format!("{}: {line}", NAME.get().unwrap_or(&"larder")));
}

/// Writes a line to standard error, to whoever still listens.
pub fn eprint_quietly(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A line of progress that is being drawn.
pub struct Bar {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Bar {
    /// Starts drawing, when there is somebody to see it and she wants to. The line is made anew
    /// each time from the time since the start.
    pub fn draw(wanted: bool, line: impl Fn(Duration) -> String + Send + 'static) -> Bar {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if !wanted || dumb || !std::io::stderr().is_terminal() {
            return Bar { stop: None, thread: None };
        }
        let (stop, stopped) = mpsc::channel();
        let spawned = thread::Builder::new().name("progress".to_owned()).spawn(move || {
            let started = Instant::now();
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let line = line(started.elapsed());
                let _ = write!(std::io::stderr(), "{WIPE}{line}");
            }
            let _ = write!(std::io::stderr(), "{WIPE}");
        });
        // A machine that cannot start a thread can still do the run without a bar.
        Bar { stop: Some(stop), thread: spawned.ok() }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
