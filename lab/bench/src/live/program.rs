//! The whole program as the reader: `larder annotate -i`, on the reader's core, in the network of the pair.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Error, Plan, Read, clients};

/// How long the program may take to open its interface, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long it may take, after the last frame, to have done what it does of itself.
const SETTLE: Duration = Duration::from_millis(500);

/// What runs, and where its files go.
#[derive(Clone, Debug)]
pub struct Program {
    /// The binary.
    pub path: PathBuf,
    /// An empty folder for its log and its statistics; packets are stored in `store` in it.
    pub directory: PathBuf,
    /// Bytes of packets that are kept; 0: none are.
    pub store_bytes: u64,
    /// Clients of its page; 0: it has no page.
    pub clients: usize,
}

/// Runs it until `stop`: `begins` is true from when it reports that it captures. Clients run on
/// `clients_core`.
pub fn run(
    program: &Program,
    plan: &Plan,
    clients_core: usize,
    begins: &AtomicBool,
    stop: &AtomicBool,
) -> Result<Read, Error> {
    let failed = |what: String| Error::Failed(format!("{}: {what}", program.path.display()));
    let at = |name: &str| program.directory.join(name);
    let mut command = Command::new(&program.path);
    command.args([
        "annotate",
        "-i",
        super::READER,
        "--cores",
        "1",
        "--ctl",
        "none",
        "--format",
        "ecs",
    ]);
    command.args(["--rings", &plan.rings.to_string(), "--ring-size", &plan.ring_bytes.to_string()]);
    command.arg("-o").arg(at("log")).arg("-d").arg(at("stats"));
    if program.store_bytes > 0 {
        command.arg("-w").arg(at("store")).args(["--store", &program.store_bytes.to_string()]);
    }
    let socket = at("page");
    if program.clients > 0 {
        command.arg("--ui").arg(format!("unix:{}", socket.display()));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let fetched = AtomicU64::new(0);
    let result = thread::scope(|scope| {
        let fetch = || clients::fetch(&socket, clients_core, begins, stop, &fetched);
        let clients: Vec<_> = (0..program.clients).map(|_| scope.spawn(fetch)).collect();
        let result = watch(&mut child, begins, stop);
        // After a failure, too: they end.
        stop.store(true, Ordering::Release);
        let of_client = |client: thread::ScopedJoinHandle<'_, Result<(), String>>| {
            client.join().unwrap_or_else(|_| Err("a client panicked".to_owned()))
        };
        let fetched: Result<Vec<()>, String> = clients.into_iter().map(of_client).collect();
        result.and_then(|spent| fetched.map(|_| spent))
    });
    if result.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let threads_ns = result.map_err(failed)?;
    let stats = at("stats").join("stats.json");
    let stats = fs::read(&stats)
        .map_err(|error| error.to_string())
        .and_then(|text| serde_json::from_slice::<Value>(&text).map_err(|error| error.to_string()))
        .map_err(|error| failed(format!("{}: {error}", stats.display())))?;
    let number = |pointer: &str| stats.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    Ok(Read {
        packets: number("/packets"),
        received: number(&format!("/captured/{}/received", super::READER)),
        dropped: number(&format!("/captured/{}/dropped", super::READER)),
        fetched: fetched.into_inner(),
        not_kept: number("/kept/packets_dropped") + number("/kept/packets_lost"),
        reader_ns: threads_ns.values().sum(),
        threads_ns,
    })
}

fn watch(
    child: &mut Child,
    begins: &AtomicBool,
    stop: &AtomicBool,
) -> Result<BTreeMap<String, f64>, String> {
    let stderr = child.stderr.take().ok_or("no standard error")?;
    let mut lines = BufReader::new(stderr).lines();
    let mut received = Vec::new();
    loop {
        match lines.next() {
            Some(Ok(line)) if line.contains("capture: started ") => break,
            Some(Ok(line)) => received.push(line),
            _ => return Err(format!("it ended: {}", received.join("; "))),
        }
    }
    // Its other lines are read, so that it never waits to write them.
    let rest = thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
    // The line comes when the rings are open; its workers begin in a moment, and the rings wait for them.
    thread::sleep(SETTLE);
    let tasks = PathBuf::from(format!("/proc/{}/task", child.id()));
    let before = threads_ns(&tasks);
    begins.store(true, Ordering::Release);
    while !stop.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(20));
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("it ended while frames came: {status}"));
        }
    }
    thread::sleep(SETTLE);
    let mut spent = threads_ns(&tasks);
    for (name, ns) in &mut spent {
        *ns -= before.get(name).copied().unwrap_or(0.0);
    }
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &id]).status();
    if !sent.is_ok_and(|status| status.success()) {
        return Err("SIGTERM could not be sent".to_owned());
    }
    let since = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(Some(status)) => {
                let lines = rest.join().unwrap_or_default();
                return Err(format!("it ended with {status}: {}", lines.join("; ")));
            }
            _ if since.elapsed() > PATIENCE => return Err("it does not end".to_owned()),
            _ => thread::sleep(Duration::from_millis(20)),
        }
    }
    let _ = rest.join();
    Ok(spent)
}

/// Nanoseconds that each thread ran so far; threads of one name together.
fn threads_ns(tasks: &Path) -> BTreeMap<String, f64> {
    let mut spent = BTreeMap::new();
    for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let ns: f64 =
            read("schedstat").split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0);
        *spent.entry(read("comm").trim().to_owned()).or_default() += ns;
    }
    spent
}
