//! Signals as events that a loop reads, and the rule by which a second signal stops a server at
//! once.

#[cfg_attr(any(feature = "portable", not(target_os = "linux")), path = "signals/portable.rs")]
mod system;

use std::time::{Duration, Instant};

pub use system::Signals;

/// The request that a signal makes of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// SIGINT: a person at the terminal stops the process.
    Interrupt,
    /// SIGTERM: the service manager stops the process.
    Terminate,
    /// SIGHUP: read the configuration again.
    HangUp,
    /// SIGUSR1: reopen log files, and nothing else.
    LogsMoved,
}

/// How long after the first signal another one is part of the same request.
pub const ONE_REQUEST: Duration = Duration::from_secs(1);

/// What a process that must finish work does at a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopStep {
    /// The first request: finish and end.
    Stop,
    /// The process is stopping already.
    Ignore,
    /// End at once and drop unfinished work.
    Force,
}

/// Decides which signals stop a process and which force its end.
///
/// One request often arrives as two signals: `timeout` signals its child and then the process
/// group, a terminal signals the whole group, a wrapper forwards what it received itself. So a
/// second signal must not drop what the first one asked the process to write. Only SIGINT forces
/// the end, and only [`ONE_REQUEST`] after the first signal: this is a person who presses Ctrl-C
/// again. SIGTERM never forces; service managers send SIGKILL for that.
#[derive(Debug, Default)]
pub struct StopRule {
    first: Option<Instant>,
}

impl StopRule {
    /// The step for a signal that arrived at `now`; `is_interrupt` is true for SIGINT.
    pub fn signal(&mut self, is_interrupt: bool, now: Instant) -> StopStep {
        match self.first {
            None => {
                self.first = Some(now);
                StopStep::Stop
            }
            Some(first) if is_interrupt && now.duration_since(first) >= ONE_REQUEST => {
                StopStep::Force
            }
            Some(_) => StopStep::Ignore,
        }
    }
}

/// Signal numbers and their names.
const SIGNALS: [(libc::c_int, Signal); 4] = [
    (libc::SIGINT, Signal::Interrupt),
    (libc::SIGTERM, Signal::Terminate),
    (libc::SIGHUP, Signal::HangUp),
    (libc::SIGUSR1, Signal::LogsMoved),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoll::{Events, Interest, Poller};

    /// A second signal never forces the end, except a SIGINT that comes a second or more after the
    /// first signal.
    #[test]
    fn one_request_may_be_two_signals() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        for first_is_interrupt in [false, true] {
            let mut rule = StopRule::default();
            assert_eq!(rule.signal(first_is_interrupt, start), StopStep::Stop);
            for (is_interrupt, ms, step) in [
                (false, 0, StopStep::Ignore),
                (true, 0, StopStep::Ignore),
                (true, 999, StopStep::Ignore),
                (false, 1_000, StopStep::Ignore),
                (false, 60_000, StopStep::Ignore),
                (true, 1_000, StopStep::Force),
                (true, 60_000, StopStep::Force),
            ] {
                assert_eq!(rule.signal(is_interrupt, after(ms)), step, "{is_interrupt} {ms}");
            }
        }
    }

    /// Signals are read as events, in a process of their own: each is reported and the process
    /// continues. After `unblock` the next one ends it.
    #[test]
    fn signals_are_events() {
        use std::os::unix::process::ExitStatusExt;
        const CHILD: &str = "LARDER_TEST_SIGNALS";
        if std::env::var_os(CHILD).is_none() {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "signals::tests::signals_are_events"]).env(CHILD, "1");
            let output = child.output().unwrap();
            assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{output:?}");
            return;
        }
        // The runner's main thread does not block them, so they are sent to this thread.
        // SAFETY: takes integers only.
        let send = |number| unsafe { libc::pthread_kill(libc::pthread_self(), number) };
        let signals = Signals::block().unwrap();
        let (poller, mut events) = (Poller::new().unwrap(), Events::new(1));
        poller.add(&signals, 5, Interest::READ).unwrap();
        assert_eq!(signals.read().unwrap(), None);
        for (number, signal) in SIGNALS {
            assert_eq!(send(number), 0);
            assert_eq!(poller.wait(&mut events, Some(10_000)).unwrap(), 1);
            assert_eq!(signals.read().unwrap(), Some(signal));
        }
        assert_eq!(signals.read().unwrap(), None);
        signals.unblock().unwrap();
        send(libc::SIGTERM);
        unreachable!("SIGTERM ends the process");
    }
}
