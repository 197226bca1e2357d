//! `larder annotate --flows-listen`: exports that come over a socket are the flows that `--flows-read` finds in a
//! capture of the same packets.
#![cfg(target_os = "linux")]

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::Scratch;
use larder_testkit::frames::read_capture;
use larder_testkit::process::{Program, Run};
use larder_testkit::wait;

fn sample(folder: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(folder).join(name)
}

/// Starts larder at a free port; its address.
fn listen(scratch: &Scratch, flags: &[&str]) -> (Program, SocketAddr) {
    let mut command = scratch.larder();
    command.args(["annotate", "--flows-listen", "127.0.0.1:0", "--format", "csv"]).args(flags);
    let mut program = Program::start(command.stdout(Stdio::null()));
    let said = program.wait_for("flows: listening address=");
    let address = said.split("address=").nth(1).expect("an address").trim();
    (program, address.parse().expect("an address"))
}

/// Sends the export packets of a capture, and waits until larder has received them.
fn send(capture: &Path, to: SocketAddr) {
    let socket = UdpSocket::bind("192.0.2.1:0").or_else(|_| UdpSocket::bind("127.0.0.1:0"));
    let socket = socket.expect("a socket");
    for frame in read_capture(capture) {
        // Behind the headers of Ethernet, IPv4 and UDP, or of IPv4 and UDP.
        let headers = if frame.bytes[0] == 0x45 { 28 } else { 42 };
        socket.send_to(&frame.bytes[headers..], to).expect("loopback takes it");
    }
    let port = format!(":{:04X} ", to.port());
    wait::until_so("larder has taken all", || {
        let sockets = std::fs::read_to_string("/proc/self/net/udp").unwrap_or_default();
        sockets.lines().any(|line| line.contains(&port) && line.contains(" 00000000:00000000 "))
    });
}

/// The rows of a log without the fields that tell the sender, and those of time: the recording is old, and larder
/// moves its times onto its own clock.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).expect("a log");
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let differs = [
        "@",
        "event.",
        "larder.exporter",
        "larder.destination.name_age_ms",
        "larder.destination.name_stale",
    ];
    let is_same = |name: &str| !differs.iter().any(|start| name.starts_with(start));
    lines
        .map(|line| {
            let cells = line.split(',').zip(&names).filter(|(_, name)| is_same(name));
            cells.map(|(cell, _)| cell.to_owned()).collect()
        })
        .collect()
}

/// The log is that of `--flows-read` with the same names, and the summary counts the exporter. Damaged packets are
/// counted and end nothing.
#[test]
fn flows_are_those_of_a_capture() {
    let scratch = Scratch::new();
    let exports = sample("exports", "r2-pair.ipfix.pcap");
    let exports = exports.to_str().expect("a path");
    let packets = sample("captures", "r2-pair.pcap");
    let packets = packets.to_str().expect("a path");
    let run = |line: &[&str]| Run::of(scratch.larder().arg("annotate").args(line)).good();
    run(&["-r", packets, "--names-save", "names", "-o", "packets.log"]);
    let names = ["--names-load", "names", "--names", "dns", "--sort", "start"];
    run(&[&["--flows-read", exports, "--format", "csv", "-o", "read.csv"][..], &names].concat());
    let (mut program, address) = listen(&scratch, &[&["-o", "heard.csv"][..], &names].concat());
    let stray = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for damaged in [&b""[..], b"\0\x0a", &[0xff; 1400], b"GET / HTTP/1.1\r\n\r\n"] {
        stray.send_to(damaged, address).expect("loopback takes it");
    }
    send(Path::new(exports), address);
    program.signal("-TERM");
    let status = program.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "as a capture that is stopped");
    let (read, heard) = (rows(&scratch.path("read.csv")), rows(&scratch.path("heard.csv")));
    assert!(read.len() > 5 && read.iter().flatten().any(|cell| cell.ends_with(".example")));
    assert_eq!(heard, read);
}

/// What contradicts itself, and an address that is taken, are refused with what to do.
#[test]
fn refusals_say_what_to_do() {
    let scratch = Scratch::new();
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let taken = taken.local_addr().expect("an address").to_string();
    let refused = |flags: &[&str]| {
        let run = Run::of(scratch.larder().args(["annotate", "--flows-listen"]).args(flags));
        assert_eq!(run.code, Some(2), "{flags:?}");
        run.err
    };
    assert!(refused(&[&taken]).contains("name a free port of this machine"));
    assert!(refused(&["nonsense"]).contains("expected an address"));
    assert!(refused(&["127.0.0.1", "--ctl", "ctl"]).contains("leave them out"));
    assert!(refused(&["127.0.0.1", "-w", "packets.pcapng"]).contains("leave it out"));
    assert!(refused(&["127.0.0.1", "--names-at", "0", "192.0.2.1"]).contains("run larder twice"));
}
