//! `larder doctor` finds each cause that is made on purpose here, and says what to do; and it disturbs nothing.
#![cfg(target_os = "linux")]

mod common;

use std::net::{TcpListener, UdpSocket};
use std::process::Command;

use common::Scratch;
use larder_testkit::network::{Network, must};
use larder_testkit::process::Run;
use larder_testkit::skip::{has, skip};

/// What `larder http` does not run without.
const ORIGIN: &str = "[http]\norigin = \"http://127.0.0.1:9\"\n";

/// Runs it, and returns its status and its lines.
fn doctor(command: &mut Command, line: &str) -> (Option<i32>, Vec<String>) {
    let run = Run::of(command.args(line.split_whitespace()));
    assert_eq!(run.err, "", "{line}");
    (run.code, run.out.lines().map(str::to_owned).collect())
}

/// The line about something.
fn about<'a>(lines: &'a [String], what: &str) -> &'a str {
    let found = lines.iter().find(|line| line.contains(what));
    found.unwrap_or_else(|| panic!("nothing about {what} in {lines:#?}"))
}

/// A line with this verdict, about something, that says what to do.
fn says(lines: &[String], verdict: &str, what: &str, to_do: &str) {
    let line = about(lines, what);
    assert!(line.starts_with(verdict) && line.contains(to_do), "{line}");
}

/// Addresses of pages and metrics that others have, and settings that annotate would refuse.
#[test]
fn pages_and_settings() {
    let scratch = Scratch::new();
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let at = tcp.local_addr().expect("an address");
    for (program, text) in
        [("dns", "recurse = true"), ("http", "origin = \"http://127.0.0.1:9\""), ("annotate", "")]
    {
        let text = format!("[{program}]\n{text}\nui = \"{at}\"\nmetrics = \"192.0.2.77:9\"\n");
        scratch.write("larder.toml", &text);
        let (code, lines) = doctor(&mut scratch.larder(), &format!("doctor {program}"));
        assert_eq!(code, Some(1), "{program}");
        says(&lines, "FAIL", &format!("{program} TCP {at}"), "or change --ui");
        says(&lines, "FAIL", "TCP 192.0.2.77:9", "correct --metrics");
    }
    // What annotate would refuse.
    for (text, why) in [
        ("ui = \"18099\"", "expected ADDR:PORT or unix:PATH"),
        ("ui = \"0.0.0.0:18099\"", "add --serve-token FILE"),
        ("metrics = \"9100\"", "--metrics"),
        ("ui = \"127.0.0.1:0\"\nserve_token = \"missing\"", "--serve-token missing"),
        ("pcap_serve = \"127.0.0.1:0\"", "no packet store"),
    ] {
        scratch.write("larder.toml", format!("[annotate]\n{text}\n"));
        let (code, lines) = doctor(&mut scratch.larder(), "doctor annotate -i lo");
        assert_eq!(code, Some(1), "{text}");
        says(&lines, "FAIL", "annotate settings", why);
    }
    scratch.write("larder.toml", "");
    let (_, lines) = doctor(&mut scratch.larder(), "doctor annotate -i lo");
    says(&lines, "ok", "annotate settings", "go together");
}

/// Ports that others have, addresses of others, files that are not there: each fails, and what is free is ok.
#[test]
fn ports_and_files() {
    let scratch = Scratch::new();
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let udp = udp.local_addr().map(|at| (at, udp)).expect("an address");
    let (code, lines) = doctor(&mut scratch.larder(), &format!("doctor dns --listen {}", udp.0));
    assert_eq!(code, Some(1));
    says(&lines, "FAIL", &format!("UDP {}", udp.0), "end what listens there");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let at = tcp.local_addr().expect("an address");
    let (code, lines) = doctor(&mut scratch.larder(), &format!("doctor http --listen {at}"));
    assert_eq!(code, Some(1));
    says(&lines, "FAIL", &format!("TCP {at}"), "change --listen");
    let (_, lines) = doctor(&mut scratch.larder(), "doctor http --listen 192.0.2.77:80");
    says(&lines, "FAIL", "192.0.2.77", "no address of this machine");
    scratch.write(
        "larder.toml",
        "[dns]\nlisten = \"127.0.0.1:0\"\nrecurse = true\nroot-hints = \"none/hints\"\n"
            .replace('-', "_"),
    );
    let (code, lines) = doctor(&mut scratch.larder(), "doctor dns");
    assert_eq!(code, Some(1));
    says(&lines, "FAIL", "none/hints", "correct the path");
    scratch.write(
        "larder.toml",
        "[dns]\nlisten = \"127.0.0.1:0\"\nrecurse = true\nroot_hints = \".\"\n",
    );
    let (code, lines) = doctor(&mut scratch.larder(), "doctor dns");
    assert_eq!(code, Some(1));
    says(&lines, "FAIL", "dns .", "name a file in it");
    // Another program may have the TCP port of a UDP port that is free: these are chosen when they are bound.
    for transport in ["UDP", "TCP"] {
        let line = about(&lines, &format!("{transport} 127.0.0.1:0"));
        assert!(line.starts_with("ok"), "the file's address: {line}");
    }
    scratch.write("larder.toml", "[http]\nlisten = \"127.0.0.1:0\"\n");
    let (code, lines) = doctor(&mut scratch.larder(), "doctor http");
    assert_eq!(code, Some(1), "{lines:#?}");
    says(&lines, "FAIL", "http settings", "add one");
    scratch.write("larder.toml", "[dns]\nlisten = \"127.0.0.1:0\"\nblocklist = \"none/list\"\n");
    let (code, lines) = doctor(&mut scratch.larder(), "doctor dns");
    assert_eq!(code, Some(1), "{lines:#?}");
    says(&lines, "FAIL", "dns settings", "none/list");
    // A user who checks all programs may not run this one.
    let (_, lines) = doctor(&mut scratch.larder(), "doctor");
    says(&lines, "warn", "dns settings", "none/list");
    scratch.write("larder.toml", format!("{ORIGIN}listen = \"127.0.0.1:0\"\n"));
    let (code, lines) = doctor(&mut scratch.larder(), "doctor http");
    assert_eq!(code, Some(0), "{lines:#?}");
    assert!(lines.last().is_some_and(|line| line.contains(" 0 failed")), "{lines:#?}");
}

/// Budgets beyond the machine's memory and disk, and more connections than files may be open.
#[test]
fn budgets() {
    let scratch = Scratch::new();
    scratch.write("larder.toml", "[dns]\ncache = \"16TiB\"\nlisten = \"127.0.0.1:0\"\n");
    let (code, lines) = doctor(&mut scratch.larder(), "doctor dns");
    assert_eq!(code, Some(1));
    says(&lines, "FAIL", "dns memory", "lower the budgets");
    let (code, lines) =
        doctor(&mut scratch.larder(), "doctor annotate -i lo --dir new/place --store 1048576GiB");
    assert_eq!(code, Some(1));
    says(&lines, "FAIL", "directory new/place", "make room");
    assert!(!scratch.path("new").exists(), "it makes nothing");
    scratch.write("file", "");
    let (_, lines) = doctor(&mut scratch.larder(), "doctor annotate -i lo --dir file/place");
    says(&lines, "FAIL", "directory file/place", "name another");
    let (_, lines) = doctor(&mut scratch.larder(), "doctor annotate -i lo --dir .");
    assert!(about(&lines, "directory .").starts_with("ok"), "{lines:#?}");
    scratch.write("larder.toml", ORIGIN);
    let mut few = scratch.command("prlimit");
    few.args(["--nofile=64:64", env!("CARGO_BIN_EXE_larder")]);
    let (code, lines) = doctor(&mut few, "doctor http --listen 127.0.0.1:0");
    assert_eq!(code, Some(0), "{lines:#?}");
    says(&lines, "warn", "http open files", "raise LimitNOFILE");
}

/// Interfaces that are not there, are down, have no carrier; and one that works.
#[test]
fn interfaces() {
    const TEST: &str = "interfaces";
    let scratch = Scratch::new();
    let Some(network) = Network::new(TEST) else { return };
    let name = &network.name;
    must(&format!("-n {name} link add a0 type veth peer name b0"));
    let inside = |line: &str| {
        let mut command = network.inside(env!("CARGO_BIN_EXE_larder"));
        doctor(command.current_dir(scratch.path("")), line)
    };
    let (code, lines) = inside("doctor annotate");
    assert_eq!(code, Some(1));
    says(&lines, "FAIL", "interfaces", "ip link set IFACE up");
    let (_, lines) = inside("doctor annotate -i none0");
    says(&lines, "FAIL", "none0", "name one of a0, b0");
    let (_, lines) = inside("doctor annotate -i b0");
    says(&lines, "FAIL", "interface b0", "ip link set b0 up");
    must(&format!("-n {name} link set b0 up"));
    let (code, lines) = inside("doctor annotate -i b0");
    assert_eq!(code, Some(0), "{lines:#?}");
    says(&lines, "warn", "interface b0", "check the cable");
    must(&format!("-n {name} link set a0 up"));
    let (code, lines) = inside("doctor annotate -i a0,b0");
    assert_eq!(code, Some(0), "{lines:#?}");
    assert!(about(&lines, "interface a0").starts_with("ok"), "{lines:#?}");
    let (_, lines) = inside("doctor annotate");
    assert!(about(&lines, "interface b0").starts_with("ok"), "{lines:#?}");
}

/// A user without rights: no capture, no low port, no writing in another's directory.
#[test]
fn rights() {
    const TEST: &str = "rights";
    if !has(TEST, "setpriv") {
        return;
    }
    // The way to it is open to other users, which that to the sources may not be.
    let scratch = larder_testkit::scratch::Scratch::within(std::env::temp_dir());
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"];
    let mut probe = Command::new("setpriv");
    if Run::of(probe.args(nobody).arg("true")).code != Some(0) {
        return skip(TEST, "only root becomes another user");
    }
    let program = scratch.path("larder");
    std::fs::copy(env!("CARGO_BIN_EXE_larder"), &program).expect("room");
    let mut way = Command::new("setpriv");
    if Run::of(way.args(nobody).arg(&program).arg("--version")).code != Some(0) {
        return skip(TEST, "the folder of the tests is closed to other users");
    }
    let run = |line: &str| {
        let mut command = scratch.command("setpriv");
        doctor(command.args(nobody).arg(&program), line)
    };
    let (code, lines) = run("doctor annotate -i lo --dir .");
    assert_eq!(code, Some(1));
    says(&lines, "FAIL", "interface lo", "CAP_NET_RAW");
    says(&lines, "FAIL", "directory .", "chown it");
    let (code, lines) = run("doctor http --listen 127.0.0.1:81");
    assert_eq!(code, Some(1));
    says(&lines, "FAIL", "127.0.0.1:81", "setcap cap_net_bind_service+ep");
}

/// Runs a script in mounts of its own; its lines, or `None` where nothing may be mounted.
fn with_mounts(scratch: &Scratch, test: &str, script: &str) -> Option<(Option<i32>, Vec<String>)> {
    if !has(test, "unshare") {
        return None;
    }
    let mut command = scratch.command("unshare");
    let run = Run::of(command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_larder")]));
    if run.out.is_empty() {
        skip(test, format_args!("no mount: {}", run.err.trim()));
        return None;
    }
    Some((run.code, run.out.lines().map(str::to_owned).collect()))
}

/// A disk without a free byte fails, though files can be made there.
#[test]
fn full_directory() {
    let scratch = Scratch::new();
    let script = "mkdir full && mount -t tmpfs -o size=64k none full && \
        { head -c 1000000 /dev/zero > full/fill 2>&-; : > full/empty; } && exec \"$0\" doctor annotate --dir full";
    let Some((code, lines)) = with_mounts(&scratch, "full_directory", script) else { return };
    assert_eq!(code, Some(1), "{lines:?}");
    says(&lines, "FAIL", "directory full", "make room");
}

/// A kernel without io_uring is a limit, and no failure.
#[test]
fn io_uring_switched_off() {
    let scratch = Scratch::new();
    scratch.write("disabled", "2\n");
    scratch.write("larder.toml", ORIGIN);
    let mounted = "mount --bind disabled /proc/sys/kernel/io_uring_disabled && \
        exec \"$0\" doctor http --listen 127.0.0.1:0";
    let ran = with_mounts(&scratch, "io_uring_switched_off", mounted);
    let Some((code, lines)) = ran else { return };
    assert_eq!(code, Some(0), "{lines:?}");
    says(&lines, "warn", "io_uring", "sysctl kernel.io_uring_disabled=0");
}

/// `larder init` writes a file that the program then reads, once.
#[test]
fn a_new_configuration_is_read() {
    let scratch = Scratch::new();
    for program in ["annotate", "dns", "http"] {
        let run = scratch.run(&format!("init {program} -o new/{program}.toml"));
        assert_eq!((run.code, run.out.as_str()), (Some(0), ""), "{}", run.err);
        assert!(run.err.contains(&format!("larder doctor {program}")), "{}", run.err);
        let shown = scratch.run(&format!("show-config --config new/{program}.toml"));
        assert_eq!(shown.code, Some(0), "{}", shown.err);
        let again = scratch.run(&format!("init {program} -o new/{program}.toml"));
        assert_eq!(again.code, Some(2));
        assert!(again.err.contains("it stays as it is"), "{}", again.err);
        let printed = scratch.run(&format!("init {program} -o -"));
        assert_eq!(printed.out, scratch.read(&format!("new/{program}.toml")));
    }
}
