//! Ctrl-C and SIGTERM ask the run to stop; a later Ctrl-C ends the process.
//!
//! After the first signal the run finishes and writes what was read, and the exit code is 130. A
//! second signal changes nothing ([`StopRule`] says why), except a SIGINT a second or more after
//! the first: it ends the process. A read that waits on a silent pipe is not interrupted (the
//! kernel restarts it): it ends with the next packet, the end of the pipe, or that SIGINT.
//!
//! SIGUSR1 opens logs anew. SIGHUP does too where no terminal is there to hang up, and has the
//! settings compared with those in force.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use larder_annotate::Progress;
use larder_io::event::{self, StopRule, StopStep};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::exit::INTERRUPTED;

/// The thread that says that the run stops, once there is one.
static SAYING: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// Sets `progress.stop` at the first signal; a SIGINT a second or more later ends the process with
/// 130.
///
/// The thread that waits for signals lives as long as the process.
pub fn stop_on_signals(progress: &Arc<Progress>, quiet: bool) -> io::Result<()> {
    let progress = Arc::clone(progress);
    let text = "stopping; what was read is being written";
    ask_on_signals(quiet, text, move || progress.stop.store(true, Ordering::Release))
}

/// Sets `progress.reopen` at every SIGUSR1 and, if standard input is no terminal, SIGHUP: what
/// logrotate sends after it has renamed a file. At SIGHUP it calls `reload` too. The thread lives
/// as long as the process.
pub fn reopen_on_signals(
    progress: &Arc<Progress>,
    reload: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let progress = Arc::clone(progress);
    let mut signals = Signals::new([SIGUSR1])?;
    if !io::stdin().is_terminal() {
        signals.handle().add_signal(SIGHUP)?;
    }
    thread::Builder::new().name("reopen".to_owned()).spawn(move || {
        for signal in signals.forever() {
            progress.reopen.store(true, Ordering::Release);
            if signal == SIGHUP {
                reload();
            }
        }
    })?;
    Ok(())
}

/// Blocks the signals that end a process, in this thread and the threads it starts, until the
/// process ends. For commands whose server reads the signals itself: a signal that arrives after
/// the server has finished must not change the exit code.
pub fn hold() -> io::Result<()> {
    event::Signals::block().map(drop)
}

/// Waits until the line about the first signal is printed, if there was one: a run may end sooner
/// than its line is written. Called when all other output is done.
pub fn finish() {
    let saying = SAYING.lock().unwrap_or_else(|poison| poison.into_inner()).take();
    // A panic in that thread has been reported.
    let _ = saying.map(JoinHandle::join);
}

/// Calls `ask` at the first signal, and prints `text`, for which [`finish`] waits; a SIGINT a
/// second or more later ends the process with 130. The thread lives as long as the process.
pub fn ask_on_signals(
    quiet: bool,
    text: &'static str,
    ask: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut rule = StopRule::default();
        for signal in signals.forever() {
            match rule.signal(signal == SIGINT, Instant::now()) {
                StopStep::Stop => {
                    if !quiet {
                        // Standard error may be a pipe that is full: this thread must go on to the
                        // signal that forces the end.
                        let saying = thread::Builder::new().spawn(move || say_stopping(text));
                        // Before the run is asked to stop, so that its end finds it.
                        *SAYING.lock().unwrap_or_else(|poison| poison.into_inner()) = saying.ok();
                    }
                    ask();
                }
                StopStep::Ignore => {}
                StopStep::Force => low_level::exit(INTERRUPTED.into()),
            }
        }
    })?;
    Ok(())
}

fn say_stopping(text: &str) {
    // The bar may be on the line.
    let wipe = if io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    let _ =
        writeln!(io::stderr(), "{wipe}larder: {text} (Ctrl-C again after a second: end at once)");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The first signal asks the run to stop, and leaves the process alive to write what was read.
    /// By then its line is on its way, and the end waits for it.
    #[test]
    fn the_first_signal_asks() {
        let progress = Arc::new(Progress::default());
        stop_on_signals(&progress, false).expect("handlers can be set");
        assert!(!progress.stop.load(Ordering::Acquire));
        signal_hook::low_level::raise(SIGINT).expect("a signal to ourselves");
        let asked = Instant::now();
        while !progress.stop.load(Ordering::Acquire) {
            assert!(asked.elapsed() < Duration::from_secs(60), "the signal got lost");
            thread::yield_now();
        }
        let is_saying = || SAYING.lock().unwrap_or_else(|poison| poison.into_inner()).is_some();
        assert!(is_saying());
        finish();
        assert!(!is_saying());
    }

    /// SIGUSR1 has logs opened anew, each time, and stops nothing.
    #[test]
    fn logs_are_reopened_on_request() {
        let progress = Arc::new(Progress::default());
        reopen_on_signals(&progress, || {}).expect("handlers can be set");
        for _ in 0..2 {
            signal_hook::low_level::raise(SIGUSR1).expect("a signal to ourselves");
            let asked = Instant::now();
            while !progress.reopen.swap(false, Ordering::AcqRel) {
                assert!(asked.elapsed() < Duration::from_secs(60), "the signal got lost");
                thread::yield_now();
            }
        }
        assert!(!progress.stop.load(Ordering::Acquire));
    }
}
