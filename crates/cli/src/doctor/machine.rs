//! Checks of the machine as a whole: kernel, clock, memory, open files.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use larder_io::clock::is_synchronized;
use larder_settings::amounts::size;
use larder_wire::civil::Civil;

use super::Finding;

/// The oldest kernel that larder is used with: rings of variable blocks, io_uring with all that it needs.
const KERNEL_MIN: (u32, u32) = (5, 10);

/// The kernel's version, and what it permits; or that it is another system, and what that means.
pub fn kernel() -> Vec<Finding> {
    if !super::IS_LINUX {
        let text = format!(
            "{}, for which larder is compiled and not tested; live capture needs Linux, and what else needs it to \
             be checked is left out: interfaces, memory, open files, buffers, the time service",
            std::env::consts::OS
        );
        return vec![Finding::limited("system", text)];
    }
    let release = read("/proc/sys/kernel/osrelease");
    let mut findings = vec![of_release(release.as_deref().unwrap_or_default())];
    // 0: everybody; 1: a group; 2: nobody. Kernels before 6.6 have no such switch.
    if let Some(disabled) = read("/proc/sys/kernel/io_uring_disabled").filter(|it| it != "0") {
        findings.push(Finding::limited(
            "io_uring",
            format!(
                "kernel.io_uring_disabled is {disabled}: larder http uses epoll, and stored packets are written one \
                 after the other; sysctl kernel.io_uring_disabled=0"
            ),
        ));
    }
    findings
}

fn of_release(release: &str) -> Finding {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|it| it.parse().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        return Finding::limited("kernel", "its version is not known; mount /proc to see more");
    };
    if (major, minor) < KERNEL_MIN {
        let (major, minor) = KERNEL_MIN;
        return Finding::limited(
            "kernel",
            format!(
                "Linux {release}, older than {major}.{minor}, with which larder is tested; update it"
            ),
        );
    }
    Finding::fine("kernel", format!("Linux {release}"))
}

/// The time of day: records state it, and lives of answers are counted by it.
pub fn clock() -> Finding {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    of_time(since.as_secs(), is_synchronized())
}

fn of_time(unix_s: u64, is_synchronized: Option<bool>) -> Finding {
    let time = i64::try_from(unix_s.saturating_mul(1_000_000_000)).unwrap_or(i64::MAX);
    let day = Civil::from_ns(time).rfc3339();
    let day = String::from_utf8_lossy(&day[..10]).into_owned();
    let released = crate::settings::PROGRAM.changed;
    if *day < *released {
        return Finding::failed(
            "clock",
            format!(
                "it shows {day}, and this larder is of {released}; set it, or start a time service"
            ),
        );
    }
    match is_synchronized {
        Some(true) => Finding::fine("clock", format!("{day}, kept right by a time service")),
        Some(false) => Finding::limited(
            "clock",
            "the kernel says that nothing keeps it right; start a time service, such as systemd-timesyncd or chrony",
        ),
        None => Finding::fine("clock", day),
    }
}

/// Whether memory of this size is there: free, and permitted to this control group.
pub fn memory(program: &str, wanted_bytes: u64) -> Option<Finding> {
    let free = read("/proc/meminfo").and_then(|text| available_bytes(&text))?;
    let limit = control_groups(&read("/proc/self/cgroup").unwrap_or_default())
        .filter_map(|group| read(&format!("/sys/fs/cgroup{group}/memory.max"))?.parse().ok())
        .min();
    Some(of_memory(program, wanted_bytes, free, limit))
}

/// The control group of a process (version 2) by the text of its `cgroup` file, and those above it: each may have
/// a limit. The last is the empty path, which a container sees as its own.
fn control_groups(text: &str) -> impl Iterator<Item = &str> {
    let own = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let own = own.trim_end_matches('/');
    std::iter::successors(Some(own), |group| group.rfind('/').map(|end| &group[..end]))
}

fn of_memory(program: &str, wanted: u64, free: u64, limit: Option<u64>) -> Finding {
    let about = format!("{program} memory");
    let is_limited = limit.is_some_and(|limit| limit < free);
    let room = limit.unwrap_or(free).min(free);
    if wanted <= room {
        return Finding::fine(&about, format!("{} of {} at hand", size(wanted), size(room)));
    }
    let whose = if is_limited { "this control group permits" } else { "this machine has free" };
    Finding::failed(
        &about,
        format!(
            "the settings ask for {}, and {whose} {}; lower the budgets",
            size(wanted),
            size(room)
        ),
    )
}

/// `MemAvailable` of `/proc/meminfo`.
fn available_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Whether this process may open as many files as it has connections. larder raises the soft limit itself.
pub fn open_files(program: &str, wanted: usize) -> Option<Finding> {
    let limits = read("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let hard = line.split_whitespace().nth(1)?.parse::<usize>().ok()?;
    let about = format!("{program} open files");
    Some(if hard >= wanted {
        Finding::fine(&about, format!("{hard}, for {wanted} connections"))
    } else {
        let text = format!(
            "at most {hard}, and the settings have {wanted} connections: later ones wait; raise LimitNOFILE of the \
             unit or ulimit -Hn, or lower --clients-max"
        );
        Finding::limited(&about, text)
    })
}

/// A file of the kernel's, without the line's end.
fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    /// A kernel that is too old, and one that is none.
    #[test]
    fn kernels() {
        assert_eq!(of_release("6.1.0-18-amd64").verdict, Verdict::Fine);
        assert_eq!(of_release("5.10.7").verdict, Verdict::Fine);
        let old = of_release("4.19.0-26-amd64");
        assert!(old.verdict == Verdict::Limited && old.text.contains("older than 5.10"), "{old:?}");
        assert_eq!(of_release("").verdict, Verdict::Limited);
    }

    /// A clock that was never set, one that nobody keeps right, and a good one.
    #[test]
    fn clocks() {
        assert_eq!(of_time(0, Some(true)).verdict, Verdict::Failed);
        assert!(of_time(0, Some(true)).text.contains("1970-01-01"));
        assert_eq!(of_time(4_000_000_000, Some(false)).verdict, Verdict::Limited);
        assert_eq!(of_time(4_000_000_000, Some(true)).verdict, Verdict::Fine);
        assert_eq!(of_time(u64::MAX, None).verdict, Verdict::Fine);
    }

    /// A budget that fits, one that the machine has not, and one that the control group does not permit.
    #[test]
    fn budgets() {
        assert_eq!(of_memory("dns", 10, 10, None).verdict, Verdict::Fine);
        let machine = of_memory("dns", 11, 10, Some(20));
        assert!(machine.verdict == Verdict::Failed && machine.text.contains("has free"));
        let group = of_memory("dns", 11, 20, Some(10));
        assert!(group.verdict == Verdict::Failed && group.text.contains("control group"));
        assert_eq!(available_bytes("MemTotal: 9 kB\nMemAvailable:   12 kB\n"), Some(12 * 1024));
        assert_eq!(available_bytes("MemAvailable: kB\n"), None);
        let groups = |text| control_groups(text).map(str::to_owned).collect::<Vec<_>>();
        let of_unit = groups("1:memory:/old\n0::/system.slice/larder-dns.service\n");
        assert_eq!(of_unit, ["/system.slice/larder-dns.service", "/system.slice", ""]);
        assert_eq!(groups("0::/\n"), [""]);
        assert_eq!(groups(""), [""]);
    }
}
