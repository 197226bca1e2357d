//! Ctrl-C and SIGTERM stop a run; a later Ctrl-C ends the process.
//!
//! After the first signal the run finishes and writes its results, and the exit code is 130. A
//! second signal changes nothing ([`StopRule`] states why), except a SIGINT a second or more after
//! the first: it ends the process. A read that waits on a silent pipe is not interrupted (the
//! kernel restarts it): it ends with the next bytes, the end of the pipe, or that SIGINT.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use larder_io::signals::{StopRule, StopStep};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::exit::INTERRUPTED;
use crate::terminal::{WIPE, say};

/// The thread that prints the line about the first signal, once there is one.
static SAYING: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// Waits until the line about the first signal is printed, if there was one: a run may end sooner
/// than its line is written. Called when all other output is done.
pub fn finish() {
    let saying = SAYING.lock().unwrap_or_else(|poison| poison.into_inner()).take();
    // A panic in that thread has been reported.
    let _ = saying.map(JoinHandle::join);
}

/// Calls `act` at the first signal, and prints `text`, for which [`finish`] waits. A SIGINT a
/// second or more later ends the process with 130. The thread runs as long as the process.
pub fn call_on_signals(
    quiet: bool,
    text: &'static str,
    act: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut rule = StopRule::default();
        for signal in signals.forever() {
            match rule.signal(signal == SIGINT, Instant::now()) {
                StopStep::Stop => {
                    // Who reads the line may rely on it: it is printed after `act`.
                    let (acted, wait) = mpsc::channel::<()>();
                    if !quiet {
                        // Standard error may be a pipe that is full: this thread must still read
                        // the signal that forces the end.
                        let saying = thread::Builder::new().spawn(move || {
                            let _ = wait.recv();
                            say_stopping(text);
                        });
                        // Before `act`, so that the end of the run finds it.
                        *SAYING.lock().unwrap_or_else(|poison| poison.into_inner()) = saying.ok();
                    }
                    act();
                    drop(acted);
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
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "{WIPE}");
    }
    say(&format!("{text} (Ctrl-C again after a second: end at once)"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    /// The first signal stops the run, and the process still writes what was read. Only then its
    /// line is printed, and the end waits for it.
    #[test]
    fn the_first_signal_acts() {
        let is_called = Arc::new(AtomicBool::new(false));
        let called = Arc::clone(&is_called);
        let act = move || {
            // The line would be printed by then, if it did not wait.
            thread::sleep(Duration::from_millis(100));
            called.store(true, Ordering::Release);
        };
        call_on_signals(false, "stopping", act).expect("handlers can be set");
        assert!(!is_called.load(Ordering::Acquire));
        low_level::raise(SIGINT).expect("a signal to ourselves");
        let raised = Instant::now();
        let is_printed = || {
            let saying = SAYING.lock().unwrap_or_else(|poison| poison.into_inner());
            saying.as_ref().map(JoinHandle::is_finished)
        };
        while is_printed() != Some(true) {
            assert!(raised.elapsed() < Duration::from_secs(60), "the signal got lost");
            thread::yield_now();
        }
        assert!(is_called.load(Ordering::Acquire), "the line came before the stop");
        finish();
        assert_eq!(is_printed(), None);
    }
}
