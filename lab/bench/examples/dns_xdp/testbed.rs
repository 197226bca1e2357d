//! Two networks with a veth pair between them: one of the calling thread, where the load is, and one of the server.
//!
//! Invariant: networks and processes are gone when their values are dropped.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use larder_io::cores::{available_cores, pin_to_core};
use larder_io::netns::enter_private_network;

use super::{Result, SERVER};

/// The name of the server's network.
const SERVER_NET: &str = "larder-xdp";
/// And of the load's.
const LOAD_NET: &str = "larder-xdp-load";
/// Longest wait for what a program is to say.
const PATIENCE: Duration = Duration::from_secs(60);

/// The networks and the cores.
pub struct Testbed {
    server_core: usize,
    load_core: usize,
    is_apart: bool,
}

impl Testbed {
    /// Makes the networks, and keeps the calling thread, the program's first, in one of them and on the load's core.
    ///
    /// `is_apart`: frames that arrive at the load's end of the pair are taken in by a thread of the kernel on the
    /// load's core, as another machine would; else the sender's core receives them.
    pub fn new(is_apart: bool) -> Result<Testbed> {
        let cores = available_cores()?;
        let (Some(&server_core), Some(&load_core)) = (cores.first(), cores.get(1)) else {
            return Err("two cores are needed".into());
        };
        enter_private_network()?;
        pin_to_core(load_core)?;
        let testbed = Testbed { server_core, load_core, is_apart };
        ip("netns add larder-xdp")?;
        // Under this name `ip` finds the calling thread's own.
        ip(&format!("netns attach {LOAD_NET} {}", std::process::id()))?;
        for line in [
            "link add c0 type veth peer name s0 netns larder-xdp",
            "addr add 10.99.0.2/24 dev c0",
            "link set c0 up",
            "-n larder-xdp addr add 10.99.0.1/24 dev s0",
            "-n larder-xdp link set s0 up",
        ] {
            ip(line)?;
        }
        Ok(testbed)
    }

    /// Has frames that come to the load's end taken in by threads of the kernel on the load's core, if that is wanted.
    /// There must be a program at that end: only then does it have a queue to be worked off.
    pub fn settle(&self) -> Result<()> {
        if !self.is_apart {
            return Ok(());
        }
        let setting = "echo 1 > /sys/class/net/c0/threaded";
        run(Command::new("ip").args(["netns", "exec", LOAD_NET, "sh", "-c", setting]))?;
        for process in fs::read_dir("/proc")?.flatten() {
            let comm = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            if comm.starts_with("napi/c0-") {
                let number = process.file_name().to_string_lossy().into_owned();
                let core = self.load_core.to_string();
                run(Command::new("taskset").args(["-pc", &core, &number]).stdout(Stdio::null()))?;
            }
        }
        Ok(())
    }
}

/// Runs `ip` with a line of arguments.
fn ip(line: &str) -> Result<()> {
    run(Command::new("ip").args(line.split(' ')))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // The pair goes with it.
        for net in [SERVER_NET, LOAD_NET] {
            let _ = Command::new("ip").args(["netns", "del", net]).status();
        }
    }
}

/// Starts a program on a core.
fn on_core(core: usize, mut command: Command) -> Result<Child> {
    let started = thread::spawn(move || {
        pin_to_core(core)?;
        command.spawn()
    });
    Ok(started.join().map_err(|_| "a thread died")??)
}

/// Ended when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server.
pub struct Server {
    process: Process,
    _lines: Receiver<String>,
    kernel_thread: u32,
}

impl Server {
    /// Starts it; it answers.
    pub fn start(testbed: &Testbed, larder: &Path, by_xdp: bool) -> Result<Server> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", SERVER_NET]).arg(larder).stdin(Stdio::null());
        command.args(["dns", "--listen", SERVER, "--cores", "1", "--upstream", super::UPSTREAM]);
        command.args(["--access", "10.99.0.0/24=allow"]);
        if by_xdp {
            command.args(["--xdp", "s0", "--xdp-fallback=false"]);
        }
        command.stderr(Stdio::piped());
        let mut child = on_core(testbed.server_core, command)?;
        let output = child.stderr.take().ok_or("no output")?;
        let process = Process(child);
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut last = String::new();
        loop {
            let line =
                lines.recv_timeout(PATIENCE).map_err(|_| format!("the server ends: {last}"))?;
            if line.contains("dns: listening ") {
                break;
            }
            last = line;
        }
        Ok(Server { process, _lines: lines, kernel_thread: ksoftirqd(testbed.server_core)? })
    }

    /// What its core has worked: nanoseconds of its threads, and of the kernel's thread for what interrupts left.
    pub fn ran_ns(&self) -> Result<u64> {
        let mut sum = ran_ns(&format!("/proc/{}/schedstat", self.kernel_thread))?;
        for task in fs::read_dir(format!("/proc/{}/task", self.process.0.id()))? {
            sum += ran_ns(&format!("{}/schedstat", task?.path().display()))?;
        }
        Ok(sum)
    }
}

/// The first figure of schedstat: nanoseconds on a processor.
fn ran_ns(path: &str) -> Result<u64> {
    let text = fs::read_to_string(path)?;
    Ok(text.split_whitespace().next().ok_or("no figure")?.parse()?)
}

/// The number of the kernel's thread for soft interrupts of a core.
fn ksoftirqd(core: usize) -> Result<u32> {
    let name = format!("ksoftirqd/{core}\n");
    for process in fs::read_dir("/proc")?.flatten() {
        if fs::read_to_string(process.path().join("comm")).is_ok_and(|comm| comm == name) {
            return Ok(process.file_name().to_string_lossy().parse()?);
        }
    }
    Err("there is no ksoftirqd".into())
}

/// Time and work between two moments.
pub struct Span {
    begun: Instant,
    ran_ns: u64,
}

impl Span {
    /// From now on.
    pub fn begin(server: &Server) -> Result<Span> {
        Ok(Span { begun: Instant::now(), ran_ns: server.ran_ns()? })
    }

    /// Share of the time until now that the core was at work.
    pub fn busy(&self, server: &Server) -> Result<f64> {
        let ran_ns = server.ran_ns()? - self.ran_ns;
        Ok(ran_ns as f64 / self.begun.elapsed().as_nanos() as f64)
    }
}
