//! Cores that we may run on, and threads pinned to them.
//!
//! A server with one socket, one cache reader and one event loop per core pins its threads, so that
//! they stay where their memory is. A measurement pins two programs to different cores.

use std::io;

use crate::socket::check;

/// Most cores that a set can name; the kernel's own limit is 8,192.
pub const CORES_MAX: usize = 8192;

/// A set of cores as the kernel has it: bit c of the row of words is core c.
type CoreSet = [libc::c_ulong; CORES_MAX / libc::c_ulong::BITS as usize];

const BITS: usize = libc::c_ulong::BITS as usize;

/// The cores that the calling thread may run on, in order. A container or `taskset` may allow fewer
/// than the machine has.
pub fn available_cores() -> io::Result<Vec<usize>> {
    let mut set: CoreSet = [0; _];
    // SAFETY: the kernel writes at most the number of bytes given, which is the size of `set`.
    check(unsafe { libc::sched_getaffinity(0, size_of::<CoreSet>(), set.as_mut_ptr().cast()) })?;
    let has = |core: &usize| set[core / BITS] >> (core % BITS) & 1 == 1;
    Ok((0..CORES_MAX).filter(has).collect())
}

/// Pins the calling thread to one core. Threads that it starts afterwards inherit that. Fails with
/// `InvalidInput` if the core does not exist or is not permitted: run unpinned.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    let mut set: CoreSet = [0; _];
    let Some(word) = set.get_mut(core / BITS) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    *word = 1 << (core % BITS);
    // SAFETY: the kernel reads as many bytes as `set` has.
    check(unsafe { libc::sched_setaffinity(0, size_of::<CoreSet>(), set.as_ptr().cast()) })?;
    Ok(())
}

/// Lets all other threads run before the calling one. Threads and programs that it starts
/// afterwards inherit that.
pub fn lower_priority() -> io::Result<()> {
    // Linux keeps the priority for each thread.
    Ok(rustix::process::setpriority_process(None, LOWEST)?)
}

/// The lowest priority: the greatest "nice" value.
const LOWEST: i32 = 19;

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread lowers its own priority, and no other's.
    #[test]
    fn one_thread_gives_way() {
        let of_this_thread = || rustix::process::getpriority_process(None).unwrap();
        let before = of_this_thread();
        let lowered = std::thread::spawn(move || {
            lower_priority().unwrap();
            of_this_thread()
        });
        assert_eq!((lowered.join().unwrap(), of_this_thread()), (LOWEST, before));
    }

    /// A pinned thread may use its core only and runs there, and other threads are as they were.
    #[test]
    fn pinned_is_pinned() {
        let cores = available_cores().unwrap();
        for &core in &cores {
            let pinned = std::thread::spawn(move || {
                pin_to_core(core).unwrap();
                // SAFETY: takes nothing.
                let current = check(unsafe { libc::sched_getcpu() }).unwrap();
                (available_cores().unwrap(), current as usize)
            });
            assert_eq!(pinned.join().unwrap(), (vec![core], core));
        }
        assert_eq!(available_cores().unwrap(), cores);
        assert!(pin_to_core(CORES_MAX).is_err());
        assert!(pin_to_core(CORES_MAX - 1).is_err());
    }
}
