//! Captures over TCP (PCAP-over-IP): a log is that of the file with the same bytes, from a program that listens and
//! from programs that connect; packets arrive at clients as they are in the store.
#![cfg(target_os = "linux")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::Scratch;
use larder_testkit::frames::read_capture;
use larder_testkit::process::{Program, Run, value};
use larder_testkit::wait::until_so;
use larder_wire::capture::write;

const CAPTURE: &str = "r1-as-asked.pcap";
const LATER: &str = "r3-newer.pcap";

fn sample(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures").join(name);
    std::fs::read(path).expect("a capture of the repository")
}

/// A capture of the repository as pcapng.
fn pcapng(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write::section(&mut out, "test");
    write::interface(&mut out, 1, 0);
    for record in larder_wire::capture::records(&sample(name)).expect("a capture") {
        let record = record.1.expect("sound");
        write::packet(&mut out, 0, record.ts_ns, record.frame, record.original_len);
    }
    out
}

/// A program that sends `bytes` to the first that connects.
fn sender(bytes: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("larder connects");
        // Larder may end before.
        let _ = client.write_all(&bytes);
    });
    address
}

/// The log of `-r input`, its exit status, and the line about damage without the name of the input.
fn log_of(scratch: &Scratch, input: &str) -> (String, Option<i32>, String) {
    let run =
        Run::of(scratch.larder().args(["annotate", "-r", input, "--format", "csv", "-o", "log"]));
    let damaged = run.err.lines().find(|line| line.starts_with("damaged")).unwrap_or_default();
    let damaged = damaged.split(" of ").next().unwrap_or_default().to_owned();
    (std::fs::read_to_string(scratch.path("log")).expect("a log"), run.code, damaged)
}

/// Starts larder with listeners at free ports; returns the addresses that it logs.
fn listen(scratch: &Scratch, flags: &[&str], listeners: usize) -> (Program, Vec<SocketAddr>) {
    let mut command = scratch.larder();
    command.args(["annotate", "--pcap-listen", "127.0.0.1:0", "--format", "csv", "-o", "heard"]);
    let mut program = Program::start(command.args(flags).stdout(Stdio::null()));
    let addresses = (0..listeners).map(|_| {
        let line = program.wait_for("listening address=");
        value(&line, "address").trim_start_matches("tcp://").parse().expect("an address")
    });
    let addresses = addresses.collect();
    (program, addresses)
}

/// Sends a capture, and waits until larder has read it.
fn send(program: &mut Program, to: SocketAddr, bytes: &[u8], ends: &str) {
    let mut socket = TcpStream::connect(to).expect("larder listens");
    socket.write_all(bytes).expect("larder reads");
    drop(socket);
    program.wait_for(ends);
}

/// The log is that of the file, byte for byte: in both formats and both spellings, and cut anywhere.
#[test]
fn a_log_is_that_of_the_file() {
    let scratch = Scratch::new();
    for bytes in [sample(CAPTURE), pcapng(CAPTURE)] {
        let whole = bytes.len();
        let cuts = [whole, whole - 1, whole / 2, whole / 2 + 7, whole / 3, 200, 120];
        for (number, cut) in cuts.into_iter().enumerate() {
            let bytes = &bytes[..cut];
            std::fs::write(scratch.path("file"), bytes).expect("room");
            let expected = log_of(&scratch, "file");
            assert_eq!(expected.1 == Some(0), expected.2.is_empty());
            assert!(cut < whole || expected.0.contains("shop.example"));
            let spelling = if number % 2 == 0 { "tcp://" } else { "TCP@" };
            let address = sender(bytes.to_vec());
            assert_eq!(log_of(&scratch, &format!("{spelling}{address}")), expected, "cut at {cut}");
        }
    }
}

/// Captures that come one after the other are those of one file with all of them. What is no capture, is cut, or
/// resets the connection ends nothing.
#[test]
fn senders_come_one_after_the_other() {
    let scratch = Scratch::new();
    let (one, two) = (pcapng(CAPTURE), pcapng(LATER));
    std::fs::write(scratch.path("file"), [&one[..], &two].concat()).expect("room");
    let expected = log_of(&scratch, "file").0;
    let (mut program, addresses) = listen(&scratch, &[], 1);
    let to = addresses[0];
    send(&mut program, to, &one, "ended sender=");
    drop(TcpStream::connect(to).expect("larder listens"));
    send(&mut program, to, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "refused sender=");
    // The header, and half of a record.
    send(&mut program, to, &sample(LATER)[..30], "ended sender=");
    send(&mut program, to, &sample(LATER), "ended sender=");
    let (code, text) = program.stop();
    assert_eq!(code, Some(0), "as a capture that is stopped: {text}");
    assert_eq!(std::fs::read_to_string(scratch.path("heard")).expect("a log"), expected);
    assert!(text.contains("1 input_stream") && text.contains("1 capture_cut"), "{text}");
}

/// A sender that is silent delays no end, and what it sent is in the log. Others wait for it.
#[test]
fn a_silent_sender_delays_no_end() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("file"), sample(CAPTURE)).expect("room");
    let expected = log_of(&scratch, "file").0;
    let (mut program, addresses) = listen(&scratch, &["--stats", "stats"], 1);
    let mut silent = TcpStream::connect(addresses[0]).expect("larder listens");
    silent.write_all(&sample(CAPTURE)).expect("larder reads");
    program.wait_for("connected sender=");
    let _waits = TcpStream::connect(addresses[0]).expect("the kernel accepts");
    thread::sleep(Duration::from_millis(500));
    assert_eq!(program.stop().0, Some(0));
    assert_eq!(std::fs::read_to_string(scratch.path("heard")).expect("a log"), expected);
    // The same, where larder connects and nothing comes.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens").to_string();
    let mut command = scratch.larder();
    command.args(["annotate", "-r", &format!("tcp://{address}")]).stdout(Stdio::null());
    let program = Program::start(&mut command);
    let _client = listener.accept().expect("larder connects");
    program.signal("-INT");
    assert_eq!(program.end().0, Some(130));
}

/// A client gets the packets of the store, and tshark reads them as they come.
#[test]
fn clients_get_what_is_stored() {
    let scratch = Scratch::new();
    let flags = ["-w", "st", "--store", "8MiB", "--pcap-serve", "127.0.0.1:0"];
    let (mut program, addresses) = listen(&scratch, &flags, 2);
    let [to, from] = addresses[..] else { panic!("two listeners") };
    let mut client = TcpStream::connect(from).expect("larder listens");
    let place = format!("TCP@{from}");
    let tshark = Command::new("tshark")
        .args(["-i", &place, "-c", "3", "-T", "fields", "-e", "dns.qry.name"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let tshark = tshark.ok().map(|child| thread::spawn(move || child.wait_with_output()));
    let is_there = |count: usize| {
        let port = format!("{:04X}", from.port());
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").expect("sockets");
        // Those of the server that are established.
        let of =
            |line: &&str| line.contains(&format!("0100007F:{port} ")) && line.contains(" 01 00");
        let server =
            |line: &&str| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&port));
        sockets.lines().filter(of).filter(server).count() >= count
    };
    until_so("all are connected", || is_there(1 + usize::from(tshark.is_some())));
    send(&mut program, to, &sample(CAPTURE), "ended sender=");
    let frames = larder_wire::capture::records(&sample(CAPTURE)).expect("a capture").count();
    let mut got = Vec::new();
    let mut piece = [0; 4096];
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let count = |bytes: &[u8]| match larder_wire::capture::records(bytes) {
        Ok(records) => records.filter(|(_, record)| record.is_ok()).count(),
        Err(_) => 0,
    };
    while count(&got) < frames {
        let bytes = client.read(&mut piece).expect("bytes");
        assert!(bytes > 0, "larder sends until it ends");
        got.extend_from_slice(&piece[..bytes]);
    }
    match tshark {
        None => eprintln!("SKIP: no tshark"),
        Some(thread) => {
            let output = thread.join().expect("it was waited for").expect("it ran");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            match text.is_empty() {
                true => {
                    eprintln!("SKIP: tshark -i TCP@: {}", String::from_utf8_lossy(&output.stderr))
                }
                false => assert!(text.starts_with("www.shop.example\n"), "{text}"),
            }
        }
    }
    assert_eq!(program.stop().0, Some(0));
    std::fs::write(scratch.path("got"), &got).expect("room");
    let stored = std::fs::read(scratch.path("st/00000000.pcapng")).expect("a segment");
    assert!(got == stored, "{} of {} bytes", got.len(), stored.len());
    // What is found is sent to a program that listens.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let place = format!("tcp://{}", listener.local_addr().expect("it listens"));
    let receiver = thread::spawn(move || {
        let mut bytes = Vec::new();
        listener.accept().expect("larder connects").0.read_to_end(&mut bytes).expect("bytes");
        bytes
    });
    Run::of(scratch.larder().args(["find", "-d", "st", "tcp or udp", "-w", &place])).good();
    std::fs::write(scratch.path("found"), receiver.join().expect("it received")).expect("room");
    let frames = |name: &str| -> Vec<Vec<u8>> {
        read_capture(&scratch.path(name)).into_iter().map(|frame| frame.bytes).collect()
    };
    assert_eq!(frames("found"), frames("got"));
}

/// What contradicts itself or cannot be reached is refused with what to do.
#[test]
fn refusals_say_what_to_do() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let refused = |line: &str, text: &str| {
        let run = scratch.run(&format!("annotate {line}"));
        assert_eq!(run.code, Some(2), "{line}");
        assert!(run.err.contains(text), "{line}: {}", run.err);
    };
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let free = closed.local_addr().expect("an address");
    drop(closed);
    refused(&format!("-r tcp://{free}"), "start the program that listens there");
    refused("-r tcp://no.such.invalid:1", "check the host name");
    refused("-r tcp://192.0.2.1", "expected tcp://HOST:PORT");
    refused("-r TCP@192.0.2.1:0", "expected tcp://HOST:PORT");
    refused("-r tcp://127.0.0.1:1 -o tcp://127.0.0.1:2", "write the log to a file");
    refused("--eve tcp://127.0.0.1:1", "only captures are read over TCP");
    refused(&format!("--pcap-listen {taken}"), "name a free port");
    refused("--pcap-listen nonsense", "expected ADDR:PORT");
    refused("--pcap-listen 127.0.0.1:0 -r x", "remove one of them");
    refused("--pcap-listen 127.0.0.1:0 -i lo", "remove one of them");
    refused("--pcap-listen 127.0.0.1:0 --names-at 0 192.0.2.1", "reads what is complete");
    refused("--pcap-listen 127.0.0.1:0 --pcap-serve 127.0.0.1:0", "add -w DIR --store BYTES");
}
