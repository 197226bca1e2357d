//! Threads that take no signals of the program.

/// Runs `start` with all signals blocked: a thread that it starts has them blocked for ever, so that
/// the program's other threads get what is sent to the process, as they expect.
#[cfg(unix)]
pub fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    /// Restores the mask, also when `start` panics.
    struct Restores(libc::sigset_t);
    impl Drop for Restores {
        fn drop(&mut self) {
            // SAFETY: the set is the one that the system gave; the call changes this thread's mask only.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
        }
    }
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets are room for a set, `all` is filled before it is read, and the call changes this
    // thread's mask only.
    let before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        Restores(before.assume_init())
    };
    let started = start();
    drop(before);
    started
}

/// This system has no signals.
#[cfg(not(unix))]
pub fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    start()
}

#[cfg(all(test, unix, not(loom), not(miri)))]
mod tests {
    use super::*;

    /// True if this thread blocks SIGTERM.
    fn blocks() -> bool {
        let mut mask = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: room for a set, which the first call fills; a NULL set changes nothing.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            libc::sigismember(mask.as_ptr(), libc::SIGTERM) == 1
        }
    }

    /// A thread that was started within takes no signals; the one that started it does again, also
    /// after a panic.
    #[test]
    fn only_the_new_thread_blocks() {
        let thread = without_signals(|| std::thread::spawn(blocks));
        assert!(thread.join().unwrap() && !blocks());
        let panicked = std::panic::catch_unwind(|| without_signals(|| assert!(!blocks())));
        assert!(panicked.is_err() && !blocks());
    }
}
