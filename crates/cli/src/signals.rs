//! Ctrl-C and SIGTERM: the first asks the run to stop, the second ends the process.
//!
//! After the first, what was read is finished and written, and the exit code is 130. A read that
//! waits on a silent pipe is not torn out of its wait (the kernel restarts it): it ends with the
//! next packet, the end of the pipe, or the second signal.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use larder_annotate::Progress;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::exit::INTERRUPTED;

/// Sets `progress.stop` at the first signal; the second ends the process with 130.
///
/// The thread that waits for signals lives as long as the process.
pub fn stop_on_signals(progress: &Arc<Progress>, quiet: bool) -> io::Result<()> {
    let progress = Arc::clone(progress);
    let text = "stopping; what was read is being written";
    ask_on_signals(quiet, text, move || progress.stop.store(true, Ordering::Release))
}

/// Calls `ask` at the first signal, and says `text`; the second ends the process with 130. The thread lives as
/// long.
pub fn ask_on_signals(
    quiet: bool,
    text: &'static str,
    ask: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds `asked` false, passes, and sets it.
        flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&asked))?;
        flag::register(signal, Arc::clone(&asked))?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if signals.forever().next().is_some() {
            ask();
            if !quiet {
                // The bar may be on the line.
                let wipe = if io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
                let _ = writeln!(io::stderr(), "{wipe}larder: {text} (again: end at once)");
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// The first signal asks the run to stop, and leaves the process alive to write what was read.
    #[test]
    fn the_first_signal_asks() {
        let progress = Arc::new(Progress::default());
        stop_on_signals(&progress, true).expect("handlers can be set");
        assert!(!progress.stop.load(Ordering::Acquire));
        signal_hook::low_level::raise(SIGINT).expect("a signal to ourselves");
        let asked = Instant::now();
        while !progress.stop.load(Ordering::Acquire) {
            assert!(asked.elapsed() < Duration::from_secs(60), "the signal got lost");
            thread::yield_now();
        }
    }
}
