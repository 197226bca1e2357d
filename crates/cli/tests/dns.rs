//! `larder dns` through the built program on the loopback: its operation, kills, a full disk.
//!
//! Tests wait for log lines and responses, and fail after one minute.
#![cfg(target_os = "linux")]

mod common;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as SocketName, UnixDatagram};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::Scratch;
use common::server::{Server, query};
use larder_io::frame_streams::Frames;
use larder_testkit::dns::{self, client};
use larder_testkit::http::fetch;
use larder_testkit::skip::skip;
use larder_testkit::wait::{PATIENCE, until};
use larder_wire::dnstap::Message;

/// An upstream that gives every name the same address, whose last byte is its generation.
struct Upstream {
    server: dns::Server,
    address: SocketAddr,
    generation: Arc<AtomicU64>,
}

impl Upstream {
    fn start() -> Upstream {
        let generation = Arc::new(AtomicU64::new(1));
        let its = generation.clone();
        let server = dns::Server::start(move |query, _| {
            let byte = its.load(Ordering::Relaxed) as u8;
            Some(dns::answer(query, &[[198, 51, 100, byte]], 3_600))
        });
        Upstream { address: server.address, server, generation }
    }

    fn queries(&self) -> u64 {
        self.server.queries()
    }
}

/// Starts a server with this upstream.
fn start(scratch: &Scratch, upstream: SocketAddr, line: &str) -> Server {
    let upstream = upstream.to_string();
    Server::start(scratch, ["--upstream", &upstream].into_iter().chain(line.split_whitespace()))
}

/// A restarted server responds from its saved cache; `larder ctl snapshot` also saves it.
#[test]
fn a_restart_keeps_the_cache() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let line = "--snapshot cache --ctl ctl";
    let server = start(&scratch, upstream.address, line);
    for number in 0..100 {
        assert_eq!(server.last_byte(&format!("n{number}")), 1);
    }
    let run = scratch.run("ctl snapshot --socket ctl --json");
    assert!(run.code == Some(0) && run.out.contains("\"entries\":100"), "{run:?}");
    server.last_byte("late");
    let (code, said) = server.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("info dns: snapshot saved entries=101 "), "{said}");

    let queries = upstream.queries();
    let mut server = start(&scratch, upstream.address, line);
    server.wait_for("info dns: snapshot loaded entries=101 file=cache");
    for number in 0..100 {
        assert_eq!(server.last_byte(&format!("n{number}")), 1);
    }
    server.last_byte("late");
    assert_eq!(upstream.queries(), queries, "nobody was asked again");
    server.signal("-INT");
    assert_eq!(server.end().0, Some(0));
}

/// After a kill during a save, a restart loads the old snapshot or the new one, complete.
#[test]
fn killed_while_it_saves() {
    const NAMES: u64 = 2_000;
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    // The generation that the file is known to have.
    let mut held = None;
    for round in 1..=8 {
        upstream.generation.store(round, Ordering::Relaxed);
        let mut server = start(&scratch, upstream.address, "--snapshot cache --ctl ctl");
        if let Some(held) = &mut held {
            server.wait_for(&format!("snapshot loaded entries={NAMES} "));
            let bytes = (0..NAMES).map(|number| server.last_byte(&format!("n{number}")));
            let bytes: BTreeSet<u64> = bytes.map(u64::from).collect();
            let found = bytes.first().copied().expect("there are names");
            assert_eq!(bytes.len(), 1, "of one snapshot: {bytes:?}");
            assert!([*held, round - 1].contains(&found), "{held} or {}: {found}", round - 1);
            *held = found;
            let flushed = scratch.run("ctl flush-zone example --socket ctl");
            assert_eq!(flushed.code, Some(0), "{flushed:?}");
        }
        for number in 0..NAMES {
            assert_eq!(u64::from(server.last_byte(&format!("n{number}"))), round);
        }
        if held.is_none() {
            held = Some(round);
            let run = scratch.run("ctl snapshot --socket ctl");
            assert_eq!(run.code, Some(0), "{run:?}");
        }
        let mut saving = scratch.larder();
        saving.args(["ctl", "snapshot", "--socket", "ctl"]).stdout(Stdio::null());
        let mut saving = saving.stderr(Stdio::null()).spawn().expect("the program starts");
        // True from before the file is created until it is renamed.
        let half = || {
            let files = std::fs::read_dir(scratch.path(".")).expect("the directory").flatten();
            let mut names = files.map(|file| file.file_name().to_string_lossy().into_owned());
            names.any(|name| name.starts_with("cache.") && name.ends_with(".new"))
        };
        until("it", || {
            (half() || saving.try_wait().expect("it can be asked").is_some()).then_some(())
        });
        std::thread::sleep(Duration::from_micros(300 * (round - 1)));
        drop(server);
        saving.wait().expect("ends");
    }
    let server = start(&scratch, upstream.address, "--snapshot cache");
    let files = std::fs::read_dir(scratch.path(".")).expect("the directory").flatten();
    let halves = files.filter(|file| file.file_name().to_string_lossy().ends_with(".new"));
    assert_eq!(halves.count(), 0, "halves are cleared away at the start");
    drop(server);
}

/// A full disk costs one log line and no response.
#[test]
fn a_full_disk() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    std::fs::create_dir(scratch.path("disk")).expect("made");
    let mount = "mount -t tmpfs -o size=16k none disk";
    let is_allowed = Command::new("unshare")
        .args(["-rm", "sh", "-c", mount])
        .current_dir(scratch.path("."))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !is_allowed {
        return skip("a_full_disk", "no file system may be mounted here");
    }
    let mut command = Command::new("unshare");
    let script = format!("{mount} && exec \"$0\" \"$@\"");
    command.args(["-rm", "sh", "-c", &script, env!("CARGO_BIN_EXE_larder")]);
    command.args(["dns", "--listen", "127.0.0.1:0", "--cores", "1", "--ctl", "ctl"]);
    command.args(["--upstream", &upstream.address.to_string()]);
    command.args(["--snapshot", "disk/cache", "--snapshot-every", "1"]);
    let mut server = Server::spawn(command.current_dir(scratch.path(".")).stdin(Stdio::null()));
    for number in 0..500 {
        server.last_byte(&format!("n{number}"));
    }
    server.wait_for("make room on that disk");
    let run = scratch.run("ctl snapshot --socket ctl");
    assert!(run.code == Some(2) && run.err.contains("make room on that disk"), "{run:?}");
    assert_eq!(server.last_byte("n7"), 1, "it answers");
    let (code, said) = server.stop();
    assert_eq!((code, said.matches("make room on that disk").count()), (Some(0), 1), "{said}");
}

/// An operator reads counters and cached entries, flushes and loads entries, and stops the server.
#[test]
fn an_operator() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let line = "--ctl ctl --ctl-mode 660 --metrics 127.0.0.1:0";
    let mut server = start(&scratch, upstream.address, line);
    let announced = server.wait_for("metrics listening url=http://");
    for label in ["a", "a", "b"] {
        server.last_byte(label);
    }
    let ctl = |words: &str| scratch.run(&format!("ctl {words} --socket ctl"));
    let stat = |name: &str| {
        let run = ctl("stats --json");
        let fields: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
        fields[name].as_f64()
    };
    // Counters are published within a tenth of a second.
    until("it", || (stat("queries_udp") >= Some(3.0)).then_some(()));
    assert_eq!(stat("answers_noerror"), stat("queries_udp"));
    assert_eq!((stat("upstream_queries_udp"), stat("misses")), (Some(2.0), Some(2.0)));
    assert_eq!(stat("cache_entries"), Some(2.0));

    let metrics = announced.split("http://").nth(1).expect("told");
    let (host, _) = metrics.split_once('/').expect("a path");
    let response = fetch(host.parse().expect("an address"), "/metrics");
    let text = response.text();
    assert!(text.contains("\nlarder_dns_upstream_queries_total{transport=\"udp\"} 2\n"), "{text}");
    assert!(text.contains("\nlarder_dns_miss_seconds_count 2\n"), "{text}");
    assert!(text.contains("\nlarder_dns_cache_entries 2\n"), "{text}");
    let up = format!("\nlarder_dns_upstream_up{{upstream=\"{}\"}} 1\n", upstream.address);
    assert!(text.contains(&up), "{text}");
    let took = text.split("\nlarder_dns_upstream_round_trip_seconds{").nth(1).expect("a line");
    let took_s: f64 = took.split(['}', '\n']).nth(1).expect("it").trim().parse().expect("a figure");
    assert!((1e-6..10.0).contains(&took_s), "{took_s}");

    let dump = ctl("dump --json").out;
    assert_eq!(dump.lines().count(), 2, "{dump}");
    assert_eq!(ctl("flush a.example").code, Some(0));
    assert_eq!(ctl("dump --json").out.lines().count(), 1);
    let entries = scratch.write("entries", dump);
    let mut load = scratch.larder();
    load.args(["ctl", "load", "--socket", "ctl"]).stdin(File::open(entries).expect("written"));
    assert_eq!(common::Run::of(&mut load).code, Some(0));
    let queries = upstream.queries();
    server.last_byte("a");
    assert_eq!(upstream.queries(), queries, "it was loaded");

    let run = ctl("snapshot");
    assert!(run.code == Some(2) && run.err.contains("--snapshot FILE"), "{run:?}");
    server.signal("-HUP");
    server.last_byte("a");
    assert_eq!(ctl("stop").code, Some(0));
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(" misses=2 upstream_queries=2 "), "{said}");
    assert!(!scratch.path("ctl").exists(), "the socket is gone");
}

/// larder creates the last directory of a control socket's path; the error for others names the
/// command. Servers that create sockets in one directory wait for each other, up to a limit.
#[test]
fn control_sockets_have_a_place() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let server = start(&scratch, upstream.address, "--ctl run/ctl");
    assert_eq!(scratch.run("ctl stop --socket run/ctl").code, Some(0));
    assert_eq!(server.end().0, Some(0));
    let line = format!("dns --listen 127.0.0.1:0 --upstream {} --ctl", upstream.address);
    scratch.run(&format!("{line} no/run/ctl")).refused(&["no/run", "install -d"]);
    let folder = File::open(scratch.path("run")).expect("it was made");
    folder.lock().expect("nobody has it");
    scratch.run(&format!("{line} run/ctl")).refused(&["another process holds a lock", "run"]);
}

/// SIGHUP and larder ctl reload the file: changed policy applies from then on, and settings that
/// need a restart are named. A file or a list with an error changes nothing and is reported.
#[test]
fn the_file_is_read_again() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let file = |text: &str| {
        let fixed = format!(
            "[dns]\nlisten = '127.0.0.1:0'\nctl = 'ctl'\nupstream = '{}'\n",
            upstream.address
        );
        scratch.write("larder.toml", format!("{fixed}{text}\n"));
    };
    scratch.write("list", "bad.example\n");
    file("blocklist = 'list'");
    let mut server = Server::spawn(scratch.larder().arg("dns"));
    let address = server.address;
    let code = || {
        let socket = client(address);
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        socket.send(&query("bad")).expect("sent");
        let mut room = [0; 512];
        socket.recv(&mut room).expect("an answer");
        room[3] & 15
    };
    assert_eq!(code(), 3, "NXDOMAIN");
    let ctl = || scratch.run("ctl reload --socket ctl");
    let policy = |blocked: u32| {
        format!("names blocked {blocked}, policy zone rules 0, local entries 0, lines skipped 0")
    };
    let said = format!("changed        -\nneeds_restart  -\npolicy         {}\n", policy(1));
    assert_eq!(ctl().out, said);

    file("blocklist = 'list'\nblock_answer = 'refused'\ncache = '96MiB'");
    server.signal("-HUP");
    let changes = "info dns: settings reloaded changed=block-answer needs_restart=cache policy=";
    server.wait_for(&format!("{changes}\"{}\"", policy(1)));
    assert_eq!(code(), 5, "REFUSED");
    let said = format!("changed        -\nneeds_restart  cache\npolicy         {}\n", policy(1));
    assert_eq!(ctl().out, said);

    for (text, why) in [
        ("blocklist = 'list'\nblock_anwser = 'zero'", "did you mean 'block_answer'"),
        ("blocklist = 'missing'\nblock_answer = 'zero'", "missing: cannot be read"),
        ("access = 'everywhere'", "everywhere"),
    ] {
        file(text);
        server.signal("-HUP");
        server.wait_for("error dns: reload failed error=");
        ctl().refused(&[why]);
        assert_eq!(code(), 5, "as before");
    }
    file("");
    let said = format!(
        "changed        blocklist, block-answer\nneeds_restart  -\npolicy         {}\n",
        policy(0)
    );
    assert_eq!(ctl().out, said, "what was refused did not count");
    assert_eq!(server.stop().0, Some(0));
}

/// Queries before the stop get their responses, over UDP and TCP; later connections are refused.
#[test]
fn a_graceful_end() {
    let scratch = Scratch::new();
    let upstream = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    upstream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let server = start(&scratch, upstream.local_addr().expect("bound"), "");
    let udp = client(server.address);
    udp.set_read_timeout(Some(PATIENCE)).expect("a time");
    udp.send(&query("a")).expect("sent");
    let mut tcp = TcpStream::connect(server.address).expect("it listens");
    let framed = |message: &[u8]| [&(message.len() as u16).to_be_bytes(), message].concat();
    tcp.write_all(&framed(&query("b"))).expect("sent");
    let mut waiting = Vec::new();
    let mut names = BTreeSet::new();
    while names.len() < 2 {
        let mut room = [0; 512];
        let (length, from) = upstream.recv_from(&mut room).expect("asked");
        names.insert(room[13]);
        waiting.push((room[..length].to_vec(), from));
    }
    server.signal("-TERM");
    // The listener is closed once the stop has begun.
    until("it", || TcpStream::connect(server.address).is_err().then_some(()));
    for (query, from) in waiting {
        upstream.send_to(&dns::answer(&query, &[[198, 51, 100, 9]], 3_600), from).expect("sent");
    }
    let mut room = [0; 512];
    let length = udp.recv(&mut room).expect("answered");
    assert_eq!(room[length - 1], 9);
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).expect("answered, then closed");
    assert_eq!(answer.last(), Some(&9));
    let (code, said) = server.end();
    assert_eq!(code, Some(0), "{said}");
}

/// Two signals at once, as `timeout` sends them, do not interrupt the save; the exit code is 0.
#[test]
fn two_signals_are_one_request() {
    let scratch = Scratch::new();
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    silent.set_read_timeout(Some(PATIENCE)).expect("a time");
    for signal in ["-TERM", "-INT"] {
        let at = silent.local_addr().expect("bound");
        let server = start(&scratch, at, "--snapshot cache");
        // The server drains as long as this query is in flight.
        client(server.address).send(&query("a")).expect("sent");
        silent.recv_from(&mut [0; 512]).expect("asked");
        server.signal(signal);
        server.signal(signal);
        let (code, said) = server.end();
        assert_eq!(code, Some(0), "{signal}: {said}");
        assert!(said.contains("snapshot saved "), "{signal}: {said}");
    }
}

/// Ctrl-C, one second after the first signal, does not wait for queries in flight.
#[test]
fn a_hurried_end() {
    let scratch = Scratch::new();
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    silent.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut server = start(&scratch, silent.local_addr().expect("bound"), "");
    client(server.address).send(&query("a")).expect("sent");
    silent.recv_from(&mut [0; 512]).expect("asked");
    let code = until("it", || {
        // Signals within the first second have no effect.
        server.signal("-INT");
        server.child.try_wait().expect("it can be asked")
    });
    assert_eq!(code.code(), Some(130));
}

/// larder reports an upstream that cannot be reached, and again when it responds.
#[test]
fn silent_upstreams_are_reported() {
    let (scratch, socket) = (Scratch::new(), UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let at = socket.local_addr().expect("bound");
    drop(socket);
    let mut server = start(&scratch, at, "");
    server.query("a");
    server.wait_for(&format!("warn dns: upstream down upstream={at}"));
}

/// A second server at an address in use is rejected; with --reuse-port both share it.
#[test]
fn a_taken_address_is_refused() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let server = start(&scratch, upstream.address, "");
    let line = format!("dns --listen {} --upstream {} --cores", server.address, upstream.address);
    for cores in ["1", "2"] {
        scratch.run(&format!("{line} {cores}")).refused(&["in use", "--reuse-port"]);
    }
    let words = format!("{line} 1 --reuse-port");
    let second = Server::spawn(scratch.larder().args(words.split_whitespace()));
    assert_eq!(second.address, server.address);
    // A server with one core and without --reuse-port does not share.
    let mut alone = scratch.larder();
    alone.args(["dns", "--listen", "127.0.0.1:0", "--cores", "1", "--upstream"]);
    let alone = Server::spawn(alone.arg(upstream.address.to_string()));
    let line = format!("dns --listen {} --upstream 127.0.0.1:9 --cores 2", alone.address);
    scratch.run(&format!("{line} --reuse-port")).refused(&["in use"]);
}

/// The server uses a service manager's sockets instead of the configured addresses.
#[test]
fn sockets_are_handed_over() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let (udp, tcp) = dns::bind_both();
    let address = udp.local_addr().expect("bound");
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut command = Command::new("sh");
    let script = "LISTEN_PID=$$ LISTEN_FDS=2 exec \"$0\" \"$@\" 3<&0 4<&1 </dev/null >/dev/null";
    command.args(["-c", script, env!("CARGO_BIN_EXE_larder"), "dns", "--cores", "2"]);
    command.args(["--listen", &taken.local_addr().expect("bound").to_string()]);
    command.args(["--upstream", &upstream.address.to_string()]);
    command.current_dir(scratch.path(".")).env_clear().env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::from(OwnedFd::from(udp))).stdout(Stdio::from(OwnedFd::from(tcp)));
    let server = Server::spawn(&mut command);
    drop(command);
    assert_eq!(server.address, address);
    assert!(server.has_said("fewer sockets than cores, one core serves cores=2 "));
    assert_eq!(server.last_byte("a"), 1);
    assert_eq!(dns::exchange_tcp(address, &query("a")).last(), Some(&1));
    assert_eq!(server.stop().0, Some(0));
}

/// The service manager receives that the server is ready, alive, reloading, and stopping.
#[test]
fn a_service_manager_is_notified() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    // An abstract name: paths of sockets are short, and the directory's path may be too long.
    let name = format!("larder-test-{}", std::process::id());
    let address = SocketName::from_abstract_name(&name).expect("a short name");
    let manager = UnixDatagram::bind_addr(&address).expect("a name of our own");
    manager.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut command = scratch.larder();
    command.args(["dns", "--listen", "127.0.0.1:0", "--upstream", &upstream.address.to_string()]);
    command.env("NOTIFY_SOCKET", format!("@{name}")).env("WATCHDOG_USEC", "50000");
    let server = Server::spawn(&mut command);
    let wait_for = |text: &str| loop {
        let mut room = [0; 200];
        let length = manager.recv(&mut room).expect("told");
        if room[..length].starts_with(text.as_bytes()) {
            return;
        }
    };
    wait_for("READY=1\nSTATUS=answers with");
    wait_for("WATCHDOG=1");
    wait_for("WATCHDOG=1");
    server.signal("-HUP");
    wait_for("RELOADING=1\nMONOTONIC_USEC=");
    wait_for("READY=1");
    server.signal("-TERM");
    wait_for("STOPPING=1");
    assert_eq!(server.end().0, Some(0));
}

/// A dnstap file has all four kinds of messages, with the addresses of both ends.
#[test]
fn dnstap_is_written() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let server = start(&scratch, upstream.address, "--dnstap tap");
    assert_eq!(server.last_byte("a"), 1);
    server.signal("-TERM");
    let address = server.address;
    assert_eq!(server.end().0, Some(0));
    let mut frames =
        Frames::open(File::open(scratch.path("tap")).expect("written")).expect("dnstap");
    let mut kinds = Vec::new();
    while let Some(frame) = frames.next_frame().expect("whole") {
        let message = Message::parse(frame).expect("a message");
        kinds.push(message.kind);
        let expected = if message.kind < 7 { address } else { upstream.address };
        assert_eq!(message.server_port, Some(expected.port()));
        assert!(message.client_port.is_some());
        assert!(message.query_time_ns.or(message.response_time_ns).is_some());
    }
    assert_eq!(kinds, [5, 7, 8, 6]);
}

/// A server's dnstap file names flows to the addresses in its responses, from then on.
#[test]
fn dnstap_names_flows() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let server = start(&scratch, upstream.address, "--dnstap tap");
    let answer = server.query("a");
    let address = Ipv4Addr::from(*answer.last_chunk::<4>().expect("an address at its end"));
    assert_eq!(server.stop().0, Some(0));
    let line = |destination: Ipv4Addr| {
        format!(
            r#"{{"timestamp":"2128-01-02T03:04:05.000000+0000","event_type":"flow","src_ip":"127.0.0.1","src_port":5000,"dest_ip":"{destination}","dest_port":443,"proto":"TCP"}}"#
        )
    };
    let others = Ipv4Addr::from_bits(address.to_bits() ^ 1);
    scratch.write("eve", format!("{}\n{}\n", line(address), line(others)));
    let run = scratch.run("annotate --eve eve --dnstap tap");
    assert_eq!(run.code, Some(0), "{run:?}");
    let read = |line| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let lines: Vec<_> = run.out.lines().map(read).collect();
    let names: Vec<_> = lines.iter().map(|line| &line["destination.domain"]).collect();
    assert_eq!(names, [&serde_json::json!("a.example"), &serde_json::Value::Null], "{run:?}");
}

/// The query log has a line for each response, with its result and only the client's prefix. A
/// rotated log is complete, and the next begins at the signal.
#[test]
fn answers_are_logged() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let line = "--query-log log --query-log-prefix 8";
    let server = start(&scratch, upstream.address, line);
    assert_eq!((server.last_byte("a"), server.last_byte("a")), (1, 1));
    let lines = |name: &str| -> Vec<String> {
        let text = std::fs::read_to_string(scratch.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    until("it", || (lines("log").len() == 2).then_some(()));
    for (signal, moved) in [("-HUP", "rotated"), ("-USR1", "again")] {
        std::fs::rename(scratch.path("log"), scratch.path(moved)).expect("it is there");
        server.signal(signal);
        until("it", || scratch.path("log").exists().then_some(()));
    }
    assert_eq!(server.last_byte("b"), 1);
    assert_eq!(server.stop().0, Some(0));
    let words = |line: &String| {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words.len(), 10, "{line}");
        assert!(words[9].parse::<u64>().is_ok(), "{line}");
        [words[1], words[2], words[4], words[6], words[8]].join(" ")
    };
    let mut rotated: Vec<String> = lines("rotated").iter().map(words).collect();
    // Each core writes its own lines, in no defined order with those of others.
    rotated.sort();
    assert_eq!(rotated, ["127.0.0.0/8 udp A NOERROR hit", "127.0.0.0/8 udp A NOERROR miss"]);
    assert_eq!(lines("log").len(), 1);
}

/// Settings that cannot work are rejected at the start, with advice.
#[test]
fn wrong_words_are_refused() {
    for (words, says) in [
        ("--ctl none/of/these", "create it (install -d"),
        ("--ctl ctl --ctl-mode 0999", "octal digits"),
        ("--metrics 9953", "ADDR:PORT"),
        ("--query-log log --query-log-prefix 24,48", "expected bits"),
        ("--metrics 192.0.2.1:9953", "name another address"),
    ] {
        let run = Scratch::new()
            .run(&format!("dns --listen 127.0.0.1:0 --cores 1 --upstream 127.0.0.1:9 {words}"));
        run.refused(&[says]);
    }
    let nowhere = Scratch::new().run("dns --listen none --upstream 127.0.0.1:9");
    nowhere.refused(&["nothing to listen at", "--listen"]);
}

/// A comparison with larder's own recording: responses are equal until the upstream's data changes.
/// It serves no client, and rejects an upstream at the resolver's address.
#[test]
fn a_trial_beside_another() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let server = start(&scratch, upstream.address, "--dnstap tap");
    for label in ["a", "b", "b"] {
        assert_eq!(server.last_byte(label), 1);
    }
    server.signal("-TERM");
    let address = server.address;
    assert_eq!(server.end().0, Some(0));
    let trial = |words: &str| {
        scratch.run(&format!("dns --shadow {address} --upstream {} {words}", upstream.address))
    };
    let same = trial("--shadow-from tap --json");
    assert_eq!(same.code, Some(0), "{same:?}");
    let found: serde_json::Value = serde_json::from_str(&same.out).expect("one object");
    assert_eq!((&found["compared"], &found["equal"]), (&3.into(), &3.into()), "{found}");
    assert_eq!(found["upstream_questions"]["resolver"], 2, "{found}");
    upstream.generation.store(2, Ordering::Relaxed);
    let other = trial("--shadow-from dnstap:tap");
    assert_eq!(other.code, Some(0), "{other:?}");
    for says in ["other data in the answer", "a.example. A", "A 198.51.100.2", "A 198.51.100.1"] {
        assert!(other.out.contains(says), "{says}: {other:?}");
    }
    assert!(other.err.contains("info dns: comparison started resolver="), "{other:?}");
    for (words, says) in [
        ("--shadow here", "expected an address"),
        ("--shadow 192.0.2.1 --upstream 192.0.2.1", "told from those of clients"),
        ("--shadow 192.0.2.1 --upstream 192.0.2.2 --shadow-from none", "check the path"),
        ("--shadow 192.0.2.1 --upstream 192.0.2.2", "the file is empty"),
    ] {
        scratch.run(&format!("dns {words}")).refused(&[says]);
    }
}
