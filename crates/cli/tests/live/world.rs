//! A world: two networks, a pair of interfaces between them that is watched, and a second pair that is not.
//!
//! ```text
//! the test's thread, and what it starts          the network `name`, by `ip netns exec`
//! a0  10.77.0.1 and others: servers      ------  b0  10.77.0.2: larder listens here, and clients ask from here
//! m0  10.78.0.1: asks larder             ------  m1  10.78.0.2: larder answers operators and readers
//! ```
//!
//! Programs in the network ask the name server 10.77.0.53. All of it goes with the world; the thread's own network goes with
//! the thread.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Run, Scratch};

/// The bound of every wait.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Where the test's name server answers.
pub const DNS: &str = "10.77.0.53";

/// Says that a test is not run, past what the test runner keeps to itself.
pub fn skip(test: &str, reason: &str) {
    let _ = std::io::stderr().write_all(format!("SKIP {test}: {reason}\n").as_bytes());
}

/// Whether a program is there; says when it is not.
pub fn has(test: &str, program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|path| path.join(program).is_file());
    if !found {
        skip(test, &format!("{program} is not installed"));
    }
    found
}

/// Waits until `done` gives something.
pub fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

pub fn ip(line: &str) -> Run {
    Run::of(Command::new("ip").args(line.split_whitespace()))
}

/// See the module.
pub struct World {
    pub name: String,
    pub scratch: Scratch,
}

impl World {
    /// Makes it, and moves the calling thread there; `None` where that is not permitted, which is said.
    pub fn new(test: &str) -> Option<World> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !has(test, "ip") {
            return None;
        }
        if let Err(error) = larder_io::netns::enter_private_network() {
            skip(test, &format!("no network of its own: {error}"));
            return None;
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("larder-live-{}-{count}", std::process::id());
        let world = World { name, scratch: Scratch::new() };
        let resolver = world.resolver();
        let made = fs::create_dir_all(resolver.parent().expect("a folder"))
            .and_then(|()| fs::write(&resolver, format!("nameserver {DNS}\n")));
        if let Err(error) = made {
            skip(test, &format!("{}: {error}", resolver.display()));
            return None;
        }
        let name = &world.name;
        // Neighbours of IPv6 would talk at times of their own.
        let quiet = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6";
        let here = Run::of(Command::new("sh").args(["-c", quiet]));
        let netns = ip(&format!("netns add {name}"));
        if here.code != Some(0) || netns.code != Some(0) {
            skip(test, &format!("no second network: {}{}", here.err, netns.err));
            return None;
        }
        assert_eq!(Run::of(world.inside("sh").args(["-c", quiet])).code, Some(0));
        for line in [
            format!("link add a0 type veth peer name b0 netns {name}"),
            "addr add 10.77.0.1/24 dev a0".to_owned(),
            "addr add 10.77.0.3/24 dev a0".to_owned(),
            format!("addr add {DNS}/24 dev a0"),
            "link set a0 up".to_owned(),
            format!("-n {name} addr add 10.77.0.2/24 dev b0"),
            format!("-n {name} link set b0 up"),
            format!("link add m0 type veth peer name m1 netns {name}"),
            "addr add 10.78.0.1/24 dev m0".to_owned(),
            "link set m0 up".to_owned(),
            format!("-n {name} addr add 10.78.0.2/24 dev m1"),
            format!("-n {name} link set m1 up"),
            format!("-n {name} link set lo up"),
        ] {
            let run = ip(&line);
            assert_eq!(run.code, Some(0), "ip {line}: {}", run.err);
        }
        Some(world)
    }

    /// What [`World::new`] makes outside of the networks.
    fn resolver(&self) -> PathBuf {
        PathBuf::from(format!("/etc/netns/{}/resolv.conf", self.name))
    }

    /// A program in the network `name`. `ip` becomes it.
    pub fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.current_dir(self.scratch.path("")).stdin(Stdio::null());
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// The built program there.
    pub fn larder(&self, line: &str) -> Command {
        let mut command = self.inside(env!("CARGO_BIN_EXE_larder"));
        command.args(line.split_whitespace());
        command
    }

    /// Starts a capture, and waits until it sees packets; `line` goes on after `annotate -i b0 -o log`.
    pub fn capture(&self, line: &str) -> Program {
        let line = format!("annotate -i b0 --ctl ctl --format ecs -o log {line}");
        let mut program = Program::start(&mut self.larder(&line));
        program.hear("captures from b0");
        program
    }

    /// What is counted now.
    pub fn stats(&self) -> serde_json::Value {
        let run = self.scratch.run("ctl --socket ctl stats --format json");
        assert_eq!(run.code, Some(0), "{run:?}");
        serde_json::from_str(&run.out).expect("JSON")
    }

    /// A count of the packet store, or another figure.
    pub fn count(&self, name: &str) -> u64 {
        let stats = self.stats();
        let value = &stats[name];
        value.as_f64().or_else(|| value["b0"].as_f64()).unwrap_or_else(|| panic!("{stats}")) as u64
    }

    /// The log's lines so far, each of which is whole.
    pub fn log(&self) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.scratch.path("log")).expect("a log");
        assert!(text.is_empty() || text.ends_with('\n'), "a torn line");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Paths of closed segments in a folder of the scratch directory.
    pub fn segments(&self, folder: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.scratch.path(folder)).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let mut paths: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "pcapng")).collect();
        paths.sort();
        paths
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = ip(&format!("netns delete {}", self.name));
        let resolver = self.resolver();
        let _ = fs::remove_file(&resolver);
        let _ = fs::remove_dir(resolver.parent().expect("a folder"));
    }
}

/// A program at work, and what it says on standard error. It is asked to end, and then made to, when dropped.
pub struct Program {
    pub child: Child,
    lines: Receiver<String>,
    pub heard: Vec<String>,
}

impl Program {
    pub fn start(command: &mut Command) -> Program {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
        let (say, lines) = channel();
        let pipe = BufReader::new(child.stderr.take().expect("piped"));
        thread::spawn(move || {
            for line in pipe.lines().map_while(Result::ok) {
                let _ = say.send(line);
            }
        });
        Program { child, lines, heard: Vec::new() }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for another line with `text`.
    pub fn hear(&mut self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
                Ok(line) => {
                    self.heard.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{text:?} was not said, but {:?}", self.heard)
                }
            }
        }
    }

    /// What it said so far.
    pub fn said(&mut self) -> String {
        self.heard.extend(self.lines.try_iter());
        self.heard.join("\n")
    }

    pub fn signal(&self, signal: &str) {
        let killed = Command::new("kill").args([signal, &self.id().to_string()]).status();
        assert!(killed.expect("kill runs").success());
    }

    /// Asks for its end, and waits for it: its code, and all that it said.
    pub fn stop(mut self) -> (Option<i32>, String) {
        self.signal("-TERM");
        let code = self.child.wait().expect("it ends").code();
        self.heard.extend(self.lines.iter());
        (code, std::mem::take(&mut self.heard).join("\n"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // Those with children take them along when asked.
        let _ = Command::new("kill").args(["-TERM", &self.id().to_string()]).status();
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A name server in the test: `<anything>.<n>.lab.example` has the address 10.77.0.`n`. It ends with the test's process.
pub fn answer_names() {
    let socket = UdpSocket::bind((DNS, 53)).expect("the world's name server");
    thread::spawn(move || {
        let mut room = [0; 512];
        while let Ok((bytes, client)) = socket.recv_from(&mut room) {
            if let Some(answer) = answer(&room[..bytes]) {
                let _ = socket.send_to(&answer, client);
            }
        }
    });
}

/// The question for the A record of a name.
pub fn question(name: &str) -> Vec<u8> {
    let mut question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0".to_vec();
    for label in name.split('.') {
        question.push(label.len() as u8);
        question.extend(label.bytes());
    }
    question.extend(b"\0\0\x01\0\x01");
    question
}

fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let end = 12 + question.get(12..)?.iter().position(|octet| *octet == 0)? + 5;
    let mut answer = question.get(..end)?.to_vec();
    let labels: Vec<&[u8]> = answer[13..end - 5]
        .split(|octet| *octet < 0x20)
        .filter(|label| !label.is_empty())
        .collect();
    let last: u8 =
        std::str::from_utf8(labels.get(labels.len().checked_sub(3)?)?).ok()?.parse().ok()?;
    answer[2..4].copy_from_slice(b"\x81\x80");
    answer[6..12].copy_from_slice(b"\0\0\0\0\0\0");
    if answer[end - 4..] == *b"\0\x01\0\x01" {
        answer[7] = 1;
        answer.extend(b"\xc0\x0c\0\x01\0\x01\0\0\x01\x2c\0\x04");
        answer.extend(Ipv4Addr::new(10, 77, 0, last).octets());
    }
    Some(answer)
}
