//! Time that a thread has run, and memory that the process holds, as Linux counts them (proc(5)).
//!
//! Elsewhere time is that on the wall, and there is no figure for memory.

use std::fs;
use std::time::Instant;

/// Measures the running time of the calling thread.
#[derive(Debug)]
pub struct ThreadTime {
    ran_ns: Option<u64>,
    wall: Instant,
}

impl ThreadTime {
    /// Begins now.
    pub fn start() -> Self {
        ThreadTime { ran_ns: ran_ns(), wall: Instant::now() }
    }

    /// Nanoseconds that this thread has run since.
    pub fn elapsed_ns(&self) -> f64 {
        let wall_ns = self.wall.elapsed().as_nanos() as f64;
        match (self.ran_ns, ran_ns()) {
            (Some(start), Some(end)) => end.saturating_sub(start) as f64,
            _ => wall_ns,
        }
    }
}

fn ran_ns() -> Option<u64> {
    // The kernel adds a slice up when it ends: let this one end.
    std::thread::yield_now();
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Bytes of the process in memory now.
pub fn resident_bytes() -> Option<u64> {
    resident_in(&fs::read_to_string("/proc/self/status").ok()?)
}

/// Bytes in memory, by the text of a process's status.
pub(crate) fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that works has run; where Linux counts, the process holds memory.
    #[test]
    fn work_takes_time() {
        let time = ThreadTime::start();
        let sum = (0..2_000_000u64).fold(0, |sum, i| std::hint::black_box(sum ^ i));
        assert!(time.elapsed_ns() > 0.0, "{sum}");
        if cfg!(target_os = "linux") {
            assert!(resident_bytes().is_some_and(|bytes| bytes > 100 << 10));
        }
    }
}
