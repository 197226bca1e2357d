//! A contestant that runs: a process of a server, or threads of this program.
//!
//! life of a contestant   what is known                   leaves by
//! started                its processes or its threads    `wait_until`, drop
//! answering              its time and its memory         drop
//!
//! Invariants
//! 1. A process that was started is ended and reaped when its value is dropped, on every path out, with the
//!    processes that it started itself. Where this program is killed, `setpriv --pdeathsig`, where there is one,
//!    asks the servers to end.
//!
//! Every wait has an end.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;

pub use tree::Usage;
use tree::{Member, task_ran_ns, task_usage};

mod tree;

/// Longest that a server may take until it answers.
const START_MAX: Duration = Duration::from_secs(20);
/// Longest that a program may take to say its version.
const VERSION_MAX: Duration = Duration::from_secs(5);
/// Longest that a process with processes of its own may take to end them.
const END_MAX: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// Something that answers at an address.
#[derive(Debug)]
pub struct Running {
    /// Where it is asked.
    pub address: SocketAddr,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Processes(Vec<Process>),
    Threads(Threads),
}

/// Ended and reaped when dropped.
#[derive(Debug)]
struct Process {
    child: Child,
    /// Its output; has the reason when it does not start.
    log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let tree = tree::tree(self.child.id());
        if let [root, _, ..] = &tree[..] {
            // It knows best how to end its own; killed, it would leave them behind.
            root.signal(Signal::TERM);
            let begun = Instant::now();
            while begun.elapsed() < END_MAX && matches!(self.child.try_wait(), Ok(None)) {
                thread::sleep(POLL);
            }
        }
        tree.iter().skip(1).for_each(|member| member.signal(Signal::KILL));
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stopped and joined when dropped.
#[derive(Debug)]
struct Threads {
    stop: Arc<AtomicBool>,
    /// The folder of each in proc(5), while it runs.
    tasks: Vec<PathBuf>,
    joins: Vec<JoinHandle<io::Result<()>>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for join in self.joins.drain(..) {
            let _ = join.join();
        }
    }
}

impl Running {
    /// Starts a program; it inherits the calling thread's network and cores. Its output is written to `log`. The
    /// calling thread must outlive it.
    pub fn process(
        program: &Path,
        arguments: &[String],
        folder: &Path,
        log: &Path,
        address: SocketAddr,
    ) -> io::Result<Running> {
        let output = fs::File::create(log)?;
        let mut command = match find("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "TERM", "--"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        let child = command
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        let kind = Kind::Processes(vec![Process { child, log: log.to_owned() }]);
        Ok(Running { address, kind })
    }

    /// Runs each of `bodies` on a thread of its own; each ends when the flag that it is given is set.
    pub fn threads<F>(address: SocketAddr, bodies: Vec<F>) -> io::Result<Running>
    where
        F: FnOnce(&AtomicBool) -> io::Result<()> + Send + 'static,
    {
        let stop = Arc::new(AtomicBool::new(false));
        // From here on, an error stops those that run.
        let mut threads = Threads { stop, tasks: Vec::new(), joins: Vec::new() };
        let (sender, tasks) = mpsc::channel();
        for body in bodies {
            let (stop, sender) = (Arc::clone(&threads.stop), sender.clone());
            threads.joins.push(thread::Builder::new().spawn(move || {
                // Relative to proc(5): PID/task/TID.
                let _ = sender.send(fs::read_link("/proc/thread-self"));
                body(&stop)
            })?);
        }
        for _ in &threads.joins {
            let task = tasks.recv_timeout(START_MAX).map_err(io::Error::other)??;
            threads.tasks.push(Path::new("/proc").join(task));
        }
        Ok(Running { address, kind: Kind::Threads(threads) })
    }

    /// Measures another one with this one, which is asked: a server that is a chain of two.
    pub fn with(mut self, other: Running) -> Running {
        match (&mut self.kind, other.kind) {
            (Kind::Processes(own), Kind::Processes(others)) => own.extend(others),
            _ => unreachable!("threads of ours have no second server"),
        }
        self
    }

    /// Waits until `probe` gets the right response; the error states what came instead.
    pub fn wait_until(
        &mut self,
        stop: &AtomicBool,
        mut probe: impl FnMut(SocketAddr) -> Result<(), String>,
    ) -> Result<(), String> {
        let begun = Instant::now();
        let mut came = "no answer".to_owned();
        while begun.elapsed() < START_MAX && !stop.load(Ordering::Relaxed) {
            if let Kind::Processes(processes) = &mut self.kind {
                for Process { child, log } in processes {
                    let status = child.try_wait().map_err(|error| error.to_string())?;
                    if let Some(status) = status {
                        return Err(format!("it ended ({status}): {}", last_line(log)));
                    }
                }
            }
            match probe(self.address) {
                Ok(()) => return Ok(()),
                Err(reason) => came = reason,
            }
            thread::sleep(POLL);
        }
        let log = match &self.kind {
            Kind::Processes(processes) => processes.iter().map(|one| last_line(&one.log)).collect(),
            Kind::Threads(_) => String::new(),
        };
        Err(format!("{came} in {} s; {log}", begun.elapsed().as_secs()))
    }

    /// Nanoseconds that its threads have run, all together, to a tick of the kernel's clock (some
    /// milliseconds) for those that run just now. Of the processes that were started: not of their own.
    pub fn ran_ns(&self) -> Option<u64> {
        match &self.kind {
            Kind::Threads(threads) => threads.tasks.iter().map(|task| task_ran_ns(task)).sum(),
            Kind::Processes(processes) => {
                let ran_ns = |process: &Process| {
                    let tasks = fs::read_dir(format!("/proc/{}/task", process.child.id())).ok()?;
                    // One that ends in between is left out.
                    Some(tasks.flatten().filter_map(|task| task_ran_ns(&task.path())).sum::<u64>())
                };
                processes.iter().map(ran_ns).sum()
            }
        }
    }

    /// What all its threads have used, in all processes that it has by now.
    pub fn usage(&self) -> Usage {
        match &self.kind {
            Kind::Threads(threads) => threads.tasks.iter().map(|task| task_usage(task)).sum(),
            Kind::Processes(_) => self.members().iter().map(Member::usage).sum(),
        }
    }

    /// Numbers of all processes that it has by now; none for threads of ours.
    pub fn pids(&self) -> Vec<u32> {
        self.members().iter().map(|member| member.pid).collect()
    }

    fn members(&self) -> Vec<Member> {
        match &self.kind {
            Kind::Threads(_) => Vec::new(),
            Kind::Processes(processes) => {
                processes.iter().flat_map(|process| tree::tree(process.child.id())).collect()
            }
        }
    }

    /// Bytes in memory now; `None` for what is no process.
    pub fn resident_bytes(&self) -> Option<u64> {
        let Kind::Processes(processes) = &self.kind else { return None };
        let resident = |process: &Process| {
            let status = fs::read_to_string(format!("/proc/{}/status", process.child.id()));
            crate::clock::resident_in(&status.ok()?)
        };
        processes.iter().map(resident).sum()
    }
}

/// The last line that is not empty, or that there is none.
fn last_line(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(4096)..]).into_owned();
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.map_or("no output".to_owned(), |line| format!("its last line: {}", line.trim()))
}

/// A program by its name: in `PATH`, or where servers are.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// The first line of a program's version.
pub fn version(program: &Path, flag: &str) -> Option<String> {
    let mut child = Command::new(program)
        .arg(OsStr::new(flag))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let begun = Instant::now();
    while begun.elapsed() < VERSION_MAX {
        if child.try_wait().ok()?.is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    // A pipe has room for a program's version, so it ends without a reader.
    let _ = child.kill();
    let _ = child.wait();
    let mut text = String::new();
    child.stdout.take()?.take(4096).read_to_string(&mut text).ok()?;
    // Some say it where others say what is wrong.
    child.stderr.take()?.take(4096).read_to_string(&mut text).ok()?;
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anywhere() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 9))
    }

    /// A process is there until its value is dropped, has run and holds memory; one that ends at once is an
    /// error with its last words. Invariant 1.
    #[test]
    fn processes_end() {
        let folder = std::env::temp_dir();
        let log = folder.join(format!("larder-process-{}", std::process::id()));
        let run = |script: &str| {
            let arguments = ["-c".to_owned(), script.to_owned()];
            Running::process(Path::new("/bin/sh"), &arguments, &folder, &log, anywhere()).unwrap()
        };
        let asleep = run("exec sleep 600");
        let place = PathBuf::from(format!("/proc/{}", asleep.pids()[0]));
        if cfg!(target_os = "linux") {
            assert!(place.exists() && asleep.ran_ns().is_some());
            // While one program takes the place of another, there is none.
            let begun = Instant::now();
            while asleep.resident_bytes().is_none_or(|bytes| bytes < 10_000) {
                assert!(begun.elapsed() < Duration::from_secs(60), "it holds nothing");
                thread::yield_now();
            }
        }
        drop(asleep);
        assert!(!place.exists());

        let stop = AtomicBool::new(false);
        let failed = run("echo first; echo; echo the reason >&2; exit 3")
            .wait_until(&stop, |_| Err("nothing".to_owned()))
            .unwrap_err();
        fs::remove_file(&log).unwrap();
        assert!(failed.contains("its last line: the reason"), "{failed}");
    }

    /// What a process started ends with it, and is measured with it. Invariant 1.
    #[test]
    #[cfg(target_os = "linux")]
    fn processes_end_with_their_own() {
        let folder = std::env::temp_dir();
        let log = folder.join(format!("larder-process-tree-{}", std::process::id()));
        // Deaf to being asked: so both are killed.
        let script = "trap '' TERM; sleep 600 & sleep 600; sleep 600";
        let arguments = ["-c".to_owned(), script.to_owned()];
        let running =
            Running::process(Path::new("/bin/sh"), &arguments, &folder, &log, anywhere()).unwrap();
        let begun = Instant::now();
        while running.pids().len() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it starts nothing");
            thread::yield_now();
        }
        let (pids, usage) = (running.pids(), running.usage());
        assert!(usage.threads >= 3 && usage.switches > 0 && usage.ran_ns > 0, "{usage:?}");
        drop(running);
        fs::remove_file(&log).unwrap();
        let is_there = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            // The process that adopts them may be slow to reap.
            !status.is_empty() && !status.contains("State:\tZ")
        };
        while pids.iter().any(is_there) {
            assert!(begun.elapsed() < Duration::from_secs(60), "they live on");
            thread::yield_now();
        }
    }

    /// Threads run until their value is dropped, and their time is counted.
    #[test]
    fn threads_end() {
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        let body = move |stop: &AtomicBool| {
            while !stop.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            flag.store(true, Ordering::Relaxed);
            Ok(())
        };
        let running = Running::threads(anywhere(), vec![body]).unwrap();
        if cfg!(target_os = "linux") {
            let begun = Instant::now();
            while running.ran_ns() == Some(0) {
                assert!(begun.elapsed() < Duration::from_secs(60), "it does not run");
                thread::yield_now();
            }
        }
        assert_eq!(running.resident_bytes(), None);
        drop(running);
        assert!(ended.load(Ordering::Relaxed));
    }

    /// Programs are found by name, and say their version; what is not there is not found.
    #[test]
    fn programs_are_found() {
        assert!(find("sh").is_some() && find("no-such-program-of-anybody").is_none());
        let found = version(&find("echo").unwrap(), "version 7");
        assert_eq!(found.as_deref(), Some("version 7"));
    }
}
