//! Growing pipes, and Ctrl-C. Ended flows are written while the pipe is open. The first signal
//! finishes what was read; a second one does not interrupt that, but a later Ctrl-C does. Nothing
//! waits for the next packet.
//!
//! No test looks at a clock: each waits for something that would never come if it failed. (The pipe
//! stays open, so a program that waited for its next packet would hang the test.)
#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as SocketName, UnixDatagram};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use common::{Scratch, TestCapture};
use larder_testkit::process::{self, has_thread};

/// The program, reading a pipe that the test writes to.
struct Live {
    child: Child,
    stdin: ChildStdin,
}

impl Live {
    /// Runs the program, and returns when it handles signals.
    fn start(scratch: &Scratch, line: &str) -> Live {
        let mut child = scratch
            .larder()
            .args(line.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdin = child.stdin.take().expect("piped");
        let live = Live { child, stdin };
        // The handlers are set before the thread that waits for signals starts.
        while !live.has_thread("signals") {
            std::thread::yield_now();
        }
        live
    }

    fn has_thread(&self, wanted: &str) -> bool {
        has_thread(self.child.id(), wanted)
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stdin.write_all(bytes).expect("the program reads");
    }

    fn signal(&self, signal: &str) {
        process::signal(self.child.id(), signal);
    }

    /// Waits for the end while the pipe stays open; returns exit code, standard output and error.
    fn end(mut self) -> (Option<i32>, String, String) {
        let code = self.child.wait().expect("ends").code();
        let [mut out, mut err] = [String::new(), String::new()];
        if let Some(mut pipe) = self.child.stdout.take() {
            pipe.read_to_string(&mut out).expect("UTF-8");
        }
        self.child.stderr.take().expect("piped").read_to_string(&mut err).expect("UTF-8");
        (code, out, err)
    }
}

/// A capture with one named flow that nothing has ended yet.
fn open_flow() -> TestCapture {
    let mut capture = TestCapture::new();
    capture.dns_answer(&TestCapture::answer("www.example"));
    capture.flow_to([198, 51, 100, 7]);
    capture
}

/// A flow's record is written when later packets end the flow, while the pipe is open and silent.
#[test]
fn records_come_out_while_the_pipe_is_open() {
    let scratch = Scratch::new();
    for cores in ["1", "3"] {
        let line = format!("annotate --quiet -r - --udp-idle 2s --cores {cores}");
        let mut live = Live::start(&scratch, &line);
        let mut capture = open_flow();
        for _ in 0..20 {
            capture.frame(&TestCapture::udp(53, b"another packet, a second later"));
        }
        live.write(&std::mem::take(&mut capture.bytes));
        let mut log = BufReader::new(live.child.stdout.take().expect("piped")).lines();
        let shown = log.find(|line| line.as_ref().is_ok_and(|line| line.contains("www.example")));
        assert!(shown.is_some());
        drop(log);
        // The log's reader is closed. The program notices at its next write, and ends quietly.
        for flow in 0..=255 {
            // Each packet ends the flow of three seconds before.
            capture.flow_to([198, 51, 101, flow]);
            let packet = std::mem::take(&mut capture.bytes);
            let ended = live.child.try_wait().expect("known").is_some();
            if ended || live.stdin.write_all(&packet).is_err() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let (code, _, err) = live.end();
        assert_eq!((code, err.as_str()), (Some(141), ""));
    }
}

/// The file of an hour that was not read to its end does not look like one of the dataset; the hour before is whole.
#[test]
fn an_interrupted_hour_is_no_file_of_the_dataset() {
    let scratch = Scratch::new();
    let mut live =
        Live::start(&scratch, "annotate --quiet -r - --dataset flows --cut-every 1m --cores 1");
    let mut capture = open_flow();
    for _ in 0..70 {
        capture.frame(&TestCapture::udp(53, b"another packet, a second later"));
    }
    live.write(&capture.bytes);
    // The first minute has its name before the input ends.
    while !dataset(&scratch).iter().any(|name| name.ends_with(".log")) {
        std::thread::yield_now();
    }
    live.signal("-INT");
    assert_eq!(live.end().0, Some(130));
    let names = [".flows.2023-11-14T22-14-00Z.log.part", "flows.2023-11-14T22-13-00Z.log"];
    assert_eq!(dataset(&scratch), names);
}

/// The files of the one hour of a dataset.
fn dataset(scratch: &Scratch) -> Vec<String> {
    let folder = scratch.path("flows/date=2023-11-14/hour=22");
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Ctrl-C on a silent pipe ends the run without another packet, whatever it read before.
#[test]
fn a_silent_pipe_is_left() {
    let scratch = Scratch::new();
    scratch.write("whole.pcap", open_flow().bytes);
    let some = open_flow().bytes;
    for (line, bytes) in [
        ("annotate -r -", &[][..]),
        ("annotate -r -", &some[..24]),
        ("annotate -r -", &some),
        ("annotate -r - --cores 1", &some),
        ("annotate -r - -o log --sort start", &some),
        ("annotate -r -", &some[..some.len() - 1]),
        ("annotate -r whole.pcap -", &[]),
        ("annotate -r - whole.pcap", &some),
    ] {
        let mut live = Live::start(&scratch, line);
        live.write(bytes);
        live.signal("-INT");
        let (code, _, err) = live.end();
        assert_eq!(code, Some(130), "{line}: {err}");
        assert!(
            err.contains("info annotate: stopping ") && err.contains("stopped "),
            "{line}: {err}"
        );
    }
}

/// Packets read from the pipe before Ctrl-C are in the log.
#[test]
fn what_was_read_is_written() {
    let scratch = Scratch::new();
    let mut capture = open_flow();
    // A pipe buffers 64 KiB. Once all of this is written, the program has read the beginning, and
    // has read again after that.
    while capture.bytes.len() < 3 << 16 {
        capture.flow_to([198, 51, 100, 8]);
    }
    for line in ["annotate -r -", "annotate -r - --cores 1", "annotate -r - --sort start"] {
        let mut live = Live::start(&scratch, line);
        live.write(&capture.bytes);
        live.signal("-INT");
        let (code, out, err) = live.end();
        assert_eq!(code, Some(130), "{line}: {err}");
        assert!(out.contains("www.example"), "{line}: {out}\n{err}");
    }
}

/// Ctrl-C ends the run while a named pipe has no writer.
#[test]
fn a_pipe_without_a_writer_is_left() {
    let scratch = Scratch::new();
    let made = Command::new("mkfifo").arg(scratch.path("pipe")).status().expect("mkfifo runs");
    assert!(made.success());
    let live = Live::start(&scratch, "annotate -r pipe");
    live.signal("-TERM");
    let (code, out, _) = live.end();
    assert_eq!((code, out.as_str()), (Some(130), ""));
}

/// A run whose log fills a pipe that is not read yet. It has written the header and a record, and
/// has received `signal`.
struct Stuck {
    live: Live,
    log: Lines<BufReader<ChildStdout>>,
    err: BufReader<ChildStderr>,
}

/// Flows of the capture that [`Stuck`] reads.
const STUCK_FLOWS: usize = 4_000;

impl Stuck {
    fn start(scratch: &Scratch, signal: &str) -> Stuck {
        let mut capture = TestCapture::new();
        for flow in 0..STUCK_FLOWS as u16 {
            let [high, low] = flow.to_be_bytes();
            capture.flow_to([203, 0, high, low]);
        }
        scratch.write("flows.pcap", &capture.bytes);
        let mut live = Live::start(scratch, "annotate -r flows.pcap --no-progress");
        let mut log = BufReader::new(live.child.stdout.take().expect("piped")).lines();
        // The remaining log is larger than the pipe's buffer.
        assert!(log.by_ref().take(2).all(|line| line.is_ok()));
        live.signal(signal);
        let mut err = BufReader::new(live.child.stderr.take().expect("piped"));
        let mut first = String::new();
        err.read_line(&mut first).expect("UTF-8");
        assert!(first.contains("stopping"), "{first}");
        Stuck { live, log, err }
    }
}

/// A second signal of either kind does not interrupt the end: `timeout` sends two, to its child and
/// to the process group. All records read before the first signal are written.
#[test]
fn two_signals_are_one_request() {
    let scratch = Scratch::new();
    for (first, second) in [("-TERM", "-TERM"), ("-INT", "-INT"), ("-INT", "-TERM")] {
        let Stuck { mut live, log, mut err } = Stuck::start(&scratch, first);
        live.signal(second);
        let rest =
            log.map(|line| line.expect("UTF-8")).filter(|line| line.contains("203.0.")).count();
        assert_eq!(live.child.wait().expect("ends").code(), Some(130), "{first} {second}");
        let mut said = String::new();
        err.read_to_string(&mut said).expect("UTF-8");
        assert!(said.contains("stopped "), "{first} {second}: {said}");
        assert_eq!(rest + 1, STUCK_FLOWS, "{first} {second}");
    }
}

/// While the last flush takes long, the program notifies the watchdog of the service manager, and
/// has reported that it is stopping. The log is sorted, so that all of it is written at the end,
/// into a pipe that is not read until then.
#[test]
fn the_watchdog_is_fed_during_the_last_flush() {
    let scratch = Scratch::new();
    let mut capture = TestCapture::new();
    for flow in 0..STUCK_FLOWS as u16 {
        let [high, low] = flow.to_be_bytes();
        capture.flow_to([203, 0, high, low]);
    }
    scratch.write("flows.pcap", &capture.bytes);
    let name = format!("larder-test-flush-{}", std::process::id());
    let address = SocketName::from_abstract_name(&name).expect("a short name");
    let manager = UnixDatagram::bind_addr(&address).expect("a name of our own");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    let mut command = scratch.larder();
    command.args("annotate -r flows.pcap --no-progress --sort start --ctl ctl".split(' '));
    command.env("NOTIFY_SOCKET", format!("@{name}")).env("WATCHDOG_USEC", "50000");
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let wait_for = |text: &str| loop {
        let mut room = [0; 200];
        let length = manager.recv(&mut room).expect("told");
        if room[..length].starts_with(text.as_bytes()) {
            return;
        }
    };
    wait_for("STOPPING=1");
    for _ in 0..5 {
        wait_for("WATCHDOG=1");
    }
    let mut log = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut log).expect("UTF-8");
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    assert_eq!(log.lines().filter(|line| line.contains("203.0.")).count(), STUCK_FLOWS);
}

/// Another Ctrl-C, after one second, ends a run that cannot finish: its log fills a pipe that is
/// not read.
#[test]
fn a_later_interrupt_ends_at_once() {
    let scratch = Scratch::new();
    let Stuck { mut live, log, mut err } = Stuck::start(&scratch, "-TERM");
    // Signals within the first second have no effect.
    let code = loop {
        live.signal("-INT");
        match live.child.try_wait().expect("it can be asked") {
            Some(status) => break status.code(),
            None => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    };
    assert_eq!(code, Some(130));
    let mut rest = String::new();
    err.read_to_string(&mut rest).expect("UTF-8");
    assert!(!rest.contains("stopped "), "it finished: {rest}");
    drop(log);
}

/// SIGHUP makes annotate reload the configuration file. It names each changed setting as needing a
/// restart, and reports an error in the file.
#[test]
fn the_file_is_read_again() {
    let scratch = Scratch::new();
    scratch.write("larder.toml", "[annotate]\ncores = 1\n");
    let live = Live::start(&scratch, "annotate -r - --no-progress");
    while !live.has_thread("reopen") {
        std::thread::yield_now();
    }
    let Live { mut child, stdin } = live;
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut wait_for = |text: &str| {
        let line = lines.next().expect("a line").expect("UTF-8");
        assert!(line.contains(text), "{line}");
    };
    scratch.write("larder.toml", "[annotate]\ncores = 2\nlinger = '9s'\n");
    process::signal(child.id(), "-HUP");
    wait_for("info annotate: settings reloaded changed=none needs_restart=cores,linger");
    scratch.write("larder.toml", "[annotate]\ncoers = 2\n");
    process::signal(child.id(), "-HUP");
    wait_for("error annotate: reload failed error=");
    drop(stdin);
    child.wait().expect("ends");
}
