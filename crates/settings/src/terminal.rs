//! Output of a program: results on standard output, messages on standard error, and a line of
//! progress on a terminal.
//!
//! A thread draws the line of progress every [`EVERY`]. Dropping the [`Bar`] stops the thread and
//! wipes the line. There is no line if standard error is no terminal, or `TERM` is `dumb`.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::exit::{self, Failure, Outcome};

/// The interval of the line of progress.
pub const EVERY: Duration = Duration::from_millis(200);
/// Wipes the line; understood by every terminal that is not `dumb`.
pub const WIPE: &str = "\r\x1b[K";

/// Writes to standard output. A reader that closed it is an end without a message.
pub fn print(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::stdout(&error))?;
    Ok(exit::DONE)
}

/// The name before the messages of the process.
static NAME: OnceLock<&str> = OnceLock::new();

/// From now on the messages of the process begin with this name.
pub(crate) fn speak_as(name: &'static str) {
    // It was set before: by another test.
    let _ = NAME.set(name);
}

/// Writes a message to standard error, behind the name of the program.
pub fn say(line: &str) {
    eprint_quietly(&format!("{}: {line}", NAME.get().unwrap_or(&"larder")));
}

/// Writes a line to standard error. An error of standard error is ignored.
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
    /// Starts drawing, if it is wanted and there is a terminal. `line` makes the line from the time
    /// since the start.
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
