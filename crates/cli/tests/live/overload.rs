//! More packets than larder can process.

use std::fs;
use std::process::Command;

use larder_testkit::process::Run;
use larder_testkit::skip::has;
use larder_testkit::wait::until;

use crate::world::{World, named};

/// Frames that one end of a pair has sent to the other.
fn sent(network: &[&str], interface: &str) -> u64 {
    let mut ip = Command::new("ip");
    let run = Run::of(ip.args(network).args(["-s", "-j", "link", "show", interface]));
    let links: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    links[0]["stats64"]["tx"]["packets"].as_u64().expect("a count")
}

/// A value in KiB from the kernel's status of a process.
fn memory_kib(id: u32, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it lives");
    let found = status.lines().find_map(|other| other.strip_prefix(line)).expect("a line");
    found.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// A ring of 256 KiB, and two floods that exceed it: one while larder runs, one while it is
/// stopped. Every frame that either interface sent is counted as received or as dropped, and larder
/// reports both. Memory stays bounded. No flow has a wrong name, and flows after the flood are
/// named as before.
#[test]
fn overload() {
    const TEST: &str = "overload";
    if !has(TEST, "curl") {
        return;
    }
    let Some(world) = World::new(TEST) else { return };
    let names = world.names();
    let frames = || sent(&["-n", &world.name], "b0") + sent(&[], "a0");
    // After this both ends have resolved each other's addresses: only the test sends frames.
    names.query(0);
    let before = frames();
    let capture = world.capture(
        "--ring-size 256KiB --cores 1 --udp-idle 1s -w kept --store 16MiB --store-memory 4MiB -d made --metrics 10.78.0.2:9100",
    );
    (0..16).for_each(|k| names.query(k));
    (0..16).for_each(|k| names.send(k, 7000, b"before"));
    until("the first flows", || (named(&world.log(), 7000).len() == 16).then_some(()));
    let resident_kib = memory_kib(capture.id(), "VmRSS");

    // As many flows as there are ports, to addresses with and without a name.
    let flood = |rounds: u16| {
        let payload = [7; 1000];
        for round in 0..rounds {
            (0..32).for_each(|k| names.send(k, 20_000 + round, &payload));
        }
    };
    flood(4_000);
    until("all of it", || (world.count("batches_behind") == 0).then_some(()));
    capture.signal("-STOP");
    flood(400);
    capture.signal("-CONT");
    until("drops", || (world.count("kernel_dropped") > 0).then_some(()));
    until("every frame counted", || {
        let counted = world.count("kernel_received") + world.count("kernel_dropped");
        (counted == frames() - before).then_some(())
    });
    let grown_kib = memory_kib(capture.id(), "VmHWM").saturating_sub(resident_kib);
    // Flows of two seconds, and batches in transit; a longer flood would not add to them.
    assert!(grown_kib < 192 << 10, "{grown_kib} KiB more");

    names.query(99);
    names.send(99, 7001, b"after");
    until("a flow after the flood", || (named(&world.log(), 7001).len() == 1).then_some(()));
    let metrics = Run::of(world.inside("curl").args(["-sS", "http://10.78.0.2:9100/metrics"]));
    let id = capture.id();
    println!(
        "memory: {resident_kib} KiB before the flood, {grown_kib} KiB more at most (process {id})"
    );
    let (code, said) = capture.stop();
    assert_eq!(code, Some(0), "{said}");

    assert!(world.log_text().ends_with('\n'), "a torn line");
    let log = world.log();
    assert_eq!(named(&log, 7001)[&99].as_deref(), Some("n99.example"));
    for flow in &log {
        let Some(address) = flow["destination.ip"].as_str() else { continue };
        let Some(k) = address.strip_prefix("10.77.1.") else { continue };
        let k: u8 = k.parse().expect("a number");
        let name = (k < 16 || k == 99).then(|| format!("n{k}.example"));
        assert_eq!(flow["destination.domain"].as_str(), name.as_deref(), "{flow}");
    }
    let stats = fs::read_to_string(world.scratch.path("made/stats.json")).expect("written");
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    let of = |name: &str| stats["captured"]["b0"][name].as_u64().expect("a count");
    assert_eq!(of("received") + of("dropped"), frames() - before);
    assert_eq!(stats["packets"], of("received"), "what was received was read");
    let kept = &stats["kept"];
    let kept = |name: &str| kept[name].as_u64().expect("a count");
    assert_eq!(kept("packets") + kept("packets_dropped"), of("received"));
    let dropped =
        format!("larder_annotate_kernel_dropped_total{{interface=\"b0\"}} {}", of("dropped"));
    assert!(metrics.out.contains(&dropped), "{dropped}: {}", metrics.out);
    println!("{} received, {} dropped", of("received"), of("dropped"));
}
