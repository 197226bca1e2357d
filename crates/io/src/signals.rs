//! Signals as events that a loop reads, and the rule by which a second signal stops a server at
//! once.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::time::{Duration, Instant};

use crate::socket::owned;

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

/// SIGINT, SIGTERM, SIGHUP and SIGUSR1 as readable events.
///
/// [`Signals::block`] blocks them in the calling thread and in threads that it starts: call it
/// before the first thread is started, or a thread that does not block them takes them, and the
/// process ends. Programs that the standard library starts do not inherit this. From then on only
/// [`Signals::read`] receives them: Ctrl-C cannot end a process that stops reading.
#[derive(Debug)]
pub struct Signals {
    fd: File,
    /// The calling thread's mask before ours.
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks the four signals here and in later threads, and makes them readable.
    pub fn block() -> io::Result<Signals> {
        // SAFETY: all zeros is a valid set; the calls write sets that live here, and change the
        // mask of this thread only. What `signalfd` makes is ours.
        unsafe {
            let mut ours: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut ours);
            for (number, _) in SIGNALS {
                libc::sigaddset(&raw mut ours, number);
            }
            let fd =
                owned(libc::signalfd(-1, &raw const ours, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC))?;
            set_mask(libc::SIG_BLOCK, &ours, &mut before)?;
            Ok(Signals { fd: fd.into(), before })
        }
    }

    /// The next pending signal, if any. The same signal twice before a read is reported once.
    pub fn read(&self) -> io::Result<Option<Signal>> {
        const INFO_BYTES: usize = size_of::<libc::signalfd_siginfo>();
        const { assert!(std::mem::offset_of!(libc::signalfd_siginfo, ssi_signo) == 0) };
        let mut info = [0; INFO_BYTES];
        match (&self.fd).read(&mut info) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let number = i32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
        Ok(SIGNALS.iter().find(|(known, _)| *known == number).map(|(_, signal)| *signal))
    }

    /// Restores the thread's mask from before [`Signals::block`]: for the thread that called it,
    /// after the others have ended. Signals not read until now take their usual effect.
    pub fn unblock(self) -> io::Result<()> {
        // SAFETY: as in `block`.
        let mut ours: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: as in `block`; `before` is a mask that the kernel wrote.
        unsafe { set_mask(libc::SIG_SETMASK, &self.before, &mut ours) }
    }
}

/// # Safety
/// `set` was initialised by the C library or the kernel.
unsafe fn set_mask(
    how: libc::c_int,
    set: &libc::sigset_t,
    before: &mut libc::sigset_t,
) -> io::Result<()> {
    // SAFETY: both sets live through the call. It returns its error.
    match unsafe { libc::pthread_sigmask(how, ptr::from_ref(set), ptr::from_mut(before)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

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
