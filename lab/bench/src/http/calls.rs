//! System calls a request, as strace(1) counts them: in a run of their own, since it slows a server down.
//!
//! life of a count   leaves by
//! attached          every process of the server is traced
//! counting          an interrupt: strace lets them go and writes its table
//!
//! Every wait has an end; strace is ended on every path out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Running, find};

/// Longest that strace takes to attach, or to end.
const STRACE_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// System calls of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Calls {
    /// A request, all together.
    pub per_request: f64,
    /// The same by name, the most frequent first.
    pub by_name: Vec<(String, f64)>,
}

/// A count in progress.
pub struct Counting {
    strace: Child,
    table: PathBuf,
}

impl Drop for Counting {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

impl Counting {
    /// Begins to count what a server's processes do; `None` where there is no strace, or it may not.
    pub fn begin(running: &Running, folder: &Path) -> Option<Counting> {
        let pids = running.pids();
        let table = folder.join("strace.table");
        // That of another count.
        let _ = fs::remove_file(&table);
        let mut command = Command::new(find("strace")?);
        command.args(["-c", "-f", "-q", "-o"]).arg(&table);
        for pid in &pids {
            command.args(["-p", &pid.to_string()]);
        }
        let output = (Stdio::null(), Stdio::null(), Stdio::null());
        let strace = command.stdin(output.0).stdout(output.1).stderr(output.2).spawn().ok()?;
        let mut counting = Counting { strace, table };
        let begun = Instant::now();
        while !pids.iter().all(|pid| is_traced(*pid)) {
            if begun.elapsed() > STRACE_MAX || counting.has_ended() {
                return None;
            }
            thread::sleep(POLL);
        }
        (!pids.is_empty()).then_some(counting)
    }

    /// Ends the count; `requests` were answered meanwhile.
    pub fn end(mut self, requests: f64) -> Option<Calls> {
        let pid = Pid::from_child(&self.strace);
        kill_process(pid, Signal::INT).ok()?;
        let begun = Instant::now();
        while !self.has_ended() && begun.elapsed() < STRACE_MAX {
            thread::sleep(POLL);
        }
        let table = fs::read_to_string(&self.table).ok()?;
        (requests > 0.0).then(|| Calls::of(&table, requests))
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.strace.try_wait(), Ok(None))
    }
}

impl Calls {
    /// By the table that strace writes.
    fn of(table: &str, requests: f64) -> Calls {
        // % time, seconds, usecs/call, calls, perhaps errors, name.
        let row = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let calls: u64 = words.get(3)?.parse().ok()?;
            words[0].parse::<f64>().ok()?;
            let name = words.last().filter(|name| **name != "total" && words.len() > 4)?;
            Some(((*name).to_owned(), calls as f64 / requests))
        };
        let mut by_name: Vec<(String, f64)> = table.lines().filter_map(row).collect();
        by_name.sort_by(|one, other| other.1.total_cmp(&one.1));
        Calls { per_request: by_name.iter().map(|(_, calls)| calls).sum(), by_name }
    }
}

fn is_traced(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of strace is read, with and without errors, and its sum left out.
    #[test]
    fn tables_of_strace_are_read() {
        let table = "% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000500           5       100           sendto
 40.00    0.000300           1       250       150 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.000800           2       350       150 total
";
        let calls = Calls::of(table, 100.0);
        let by_name = vec![("recvfrom".to_owned(), 2.5), ("sendto".to_owned(), 1.0)];
        assert_eq!(calls, Calls { per_request: 3.5, by_name });
        assert_eq!(Calls::of("", 5.0).per_request, 0.0);
    }
}
