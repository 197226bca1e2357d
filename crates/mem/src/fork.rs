//! A hook for forked processes, which have their parent's memory and only one thread.

use std::io;

/// Calls `run` in every process that is forked from this one, or from one of those, before `fork`
/// returns there. Other threads have vanished there at arbitrary points, so `run` should only store
/// to atomics.
#[cfg(unix)]
pub fn run_in_children(run: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the system stores a function's address, which is valid as long as the program; `run`
    // is safe to call.
    match unsafe { libc::pthread_atfork(None, None, Some(run)) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// This system has no fork.
#[cfg(not(unix))]
pub fn run_in_children(_run: extern "C" fn()) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix, not(loom), not(miri)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI32, Ordering};

    /// The hook runs in a child before any other code, and not in its parent.
    #[test]
    fn runs_in_a_child() {
        static RUNS: AtomicI32 = AtomicI32::new(40);
        extern "C" fn run() {
            RUNS.fetch_add(2, Ordering::Relaxed);
        }
        run_in_children(run).unwrap();
        // SAFETY: the child only loads an atomic and ends without unwinding or running destructors.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(RUNS.load(Ordering::Relaxed));
            }
            child
        };
        assert!(child > 0, "{}", io::Error::last_os_error());
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        assert_eq!((libc::WEXITSTATUS(status), RUNS.load(Ordering::Relaxed)), (42, 40));
    }
}
