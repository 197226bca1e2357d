//! Signals of `larder annotate`: to stop ([`larder_settings::signals`] has the rule), and to reopen logs.
//!
//! SIGUSR1 reopens logs. So does SIGHUP, unless standard input is a terminal, which may hang up; it also
//! compares the settings with those in force.

use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;

use larder_annotate::Progress;
use larder_io::signals;
use larder_serve::log::Log;
use larder_settings::signals::call_on_signals;
use signal_hook::consts::{SIGHUP, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::logs;

/// Held while the run is stopped and the line about it is logged.
static STOPPING: Mutex<()> = Mutex::new(());

/// Waits until the line about a stop is logged, if the run was stopped: the run may end sooner.
pub fn finish() {
    drop(STOPPING.lock());
}

/// Sets `progress.stop` at the first signal, and logs that if there is a `log`, for which [`finish`]
/// waits; a SIGINT a second or more later ends the process with 130.
///
/// The thread that waits for signals lives as long as the process.
pub fn stop_on_signals(progress: &Arc<Progress>, log: Option<Log>) -> io::Result<()> {
    let progress = Arc::clone(progress);
    call_on_signals(true, "", move || {
        let _stopping = STOPPING.lock();
        // Before the line: who reads that may rely on it.
        progress.stop.store(true, Ordering::Release);
        if let Some(log) = &log {
            log.info("stopping").text("hint", logs::AGAIN);
        }
    })
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
    signals::Signals::block().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Each SIGUSR1 reopens the logs, and stops nothing.
    #[test]
    fn logs_are_reopened_on_request() {
        let progress = Arc::new(Progress::default());
        reopen_on_signals(&progress, || {}).expect("handlers can be set");
        for _ in 0..2 {
            signal_hook::low_level::raise(SIGUSR1).expect("a signal to ourselves");
            let raised_at = Instant::now();
            while !progress.reopen.swap(false, Ordering::AcqRel) {
                assert!(raised_at.elapsed() < Duration::from_secs(60), "the signal got lost");
                thread::yield_now();
            }
        }
        assert!(!progress.stop.load(Ordering::Acquire));
    }
}
