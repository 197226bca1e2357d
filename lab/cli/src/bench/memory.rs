//! The most memory that this process had at once, as Linux counts it (`VmHWM` of proc(5)).
//!
//! It counts resident pages: those of a mapped file too, and what the allocator kept from
//! contestants before. Elsewhere than on Linux there is no figure.

use std::fs;

/// Begins again at the present size. Where the system refuses, the peak is that of the whole
/// process: too large a figure, never too small.
pub fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The peak since [`forget_peak`], bytes.
pub fn peak_bytes() -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/status").ok()?)
}

fn parse(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line is found among the others, and anything else is no figure.
    #[test]
    fn the_line_is_read() {
        assert_eq!(parse("VmPeak:\t 9 kB\nVmHWM:\t    1536 kB\nVmRSS:\t 1 kB\n"), Some(1536 << 10));
        assert_eq!(parse("VmHWM: many\n"), None);
        assert_eq!(parse(""), None);
    }
}
