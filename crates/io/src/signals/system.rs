//! Signals by a signalfd.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

use super::{SIGNALS, Signal};
use crate::socket::owned;

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
