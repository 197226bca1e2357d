//! A process and those that it started, as proc(5) lists them: servers that have a process for the work and one
//! that watches it are measured, and ended, as one.
//!
//! A process that ends while it is looked at is left out. Cost: a file for each process of the machine, two for
//! each thread of the tree.

use std::fs;
use std::iter::Sum;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// One process. A number may be given to another when its process has ended, with a later start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub pid: u32,
    /// When it started, in ticks of the kernel.
    started: u64,
}

/// What threads have used since they started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Nanoseconds on a processor, to a tick of the kernel's clock (some milliseconds) for those that run just now.
    pub ran_ns: u64,
    /// Voluntary and involuntary context switches.
    pub switches: u64,
    /// How many they are.
    pub threads: u64,
    /// Most bytes in memory, the sum over processes: what two of them share counts twice. 0 for threads of ours.
    pub peak_bytes: u64,
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Usage>>(all: I) -> Usage {
        all.fold(Usage::default(), |sum, one| Usage {
            ran_ns: sum.ran_ns + one.ran_ns,
            switches: sum.switches + one.switches,
            threads: sum.threads + one.threads,
            peak_bytes: sum.peak_bytes + one.peak_bytes,
        })
    }
}

/// A process and all that descend from it, itself first.
pub fn tree(root: u32) -> Vec<Member> {
    let all: Vec<(u32, Member)> = numbers("/proc").filter_map(member).collect();
    let mut tree: Vec<Member> =
        all.iter().filter(|(_, member)| member.pid == root).map(|(_, member)| *member).collect();
    let mut at = 0;
    while let Some(parent) = tree.get(at).map(|member| member.pid) {
        let own = all.iter().filter(|(of, member)| *of == parent && member.pid != parent);
        tree.extend(own.map(|(_, member)| *member));
        at += 1;
    }
    tree
}

/// The parent of a process, and itself.
fn member(pid: u32) -> Option<(u32, Member)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything. After it the state is the third field, the parent the fourth, the start
    // the twenty-second.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (parent, started) = (fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?);
    Some((parent, Member { pid, started }))
}

impl Member {
    /// Sends a signal, unless the process has ended.
    pub fn signal(&self, signal: Signal) {
        let is_same = member(self.pid).is_some_and(|(_, now)| now == *self);
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| is_same) {
            // It may end just now.
            let _ = kill_process(pid, signal);
        }
    }

    /// What its threads have used.
    pub fn usage(&self) -> Usage {
        let folder = format!("/proc/{}/task", self.pid);
        let tasks = numbers(&folder).map(|task| task_usage(Path::new(&format!("{folder}/{task}"))));
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let peak_bytes = kib_in(&status, "VmHWM:").unwrap_or(0);
        Usage { peak_bytes, ..tasks.sum() }
    }
}

/// What a thread has used, by its folder; nothing where it has ended.
pub fn task_usage(task: &Path) -> Usage {
    let Some(ran_ns) = task_ran_ns(task) else { return Usage::default() };
    let status = fs::read_to_string(task.join("status")).unwrap_or_default();
    let count = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let switches = count("voluntary_ctxt_switches:") + count("nonvoluntary_ctxt_switches:");
    Usage { ran_ns, switches, threads: 1, peak_bytes: 0 }
}

/// The first figure of schedstat: nanoseconds on a processor.
pub fn task_ran_ns(task: &Path) -> Option<u64> {
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// A size in the text of a process's status, in bytes.
pub fn kib_in(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Names of a folder's entries that are numbers.
fn numbers(folder: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This process is its tree's first, with more than one thread that has run; a number without a process has none.
    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_there() {
        let tree = tree(std::process::id());
        let usage = tree[0].usage();
        assert_eq!(tree[0].pid, std::process::id());
        assert!(usage.ran_ns > 0 && usage.threads > 1 && usage.peak_bytes > 100 << 10, "{usage:?}");
        assert!(super::tree(u32::MAX).is_empty());
    }

    /// A signal to a number that another process has now is not sent: this test would end.
    #[test]
    fn others_get_no_signals() {
        Member { pid: std::process::id(), started: 1 }.signal(Signal::KILL);
        assert_eq!(kib_in("VmRSS:\t  5 kB\nVmHWM:\t 7 kB", "VmHWM:"), Some(7 << 10));
        assert_eq!(kib_in("VmHWM: x kB", "VmHWM:"), None);
    }
}
