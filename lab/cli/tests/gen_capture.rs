//! `larder-lab gen capture` through the program: the same seed gives the same file, and the file is a
//! capture.

mod common;

use common::Scratch;
use larder_wire::capture::write::{pcap_header, pcap_record};
use larder_wire::capture::{Capture, Step};

/// Two runs with one seed give the same bytes within the size; every record can be read back.
#[test]
fn a_generated_capture_is_deterministic_and_sound() {
    let scratch = Scratch::new();
    let mut input = Vec::new();
    pcap_header(&mut input, 1, 65_535);
    pcap_record(&mut input, 1_000, &[0x08; 60], 60);
    scratch.write("in.pcap", input);
    for output in ["a", "b"] {
        let run = scratch.run(&format!("gen capture -r in.pcap -o {output} --size 64KiB"));
        assert_eq!((run.code, run.out.as_str()), (Some(0), ""), "{}", run.err);
    }
    let read = |name: &str| std::fs::read(scratch.path(name)).expect("written");
    let file = read("a");
    assert!(file == read("b"), "the same seed gives the same bytes");
    let (mut capture, mut offset) = Capture::open(&file).expect("a capture");
    let mut packets = 0;
    while let Step::Record(record) = capture.next(&file, offset, true) {
        assert_eq!(record.frame, [0x08; 60]);
        packets += 1;
        offset = record.next_offset;
    }
    assert_eq!((packets, offset), ((64 * 1024 - 24) / 76, file.len()));
}

/// Inputs are never overwritten, and empty ones are refused.
#[test]
fn wrong_inputs_are_refused() {
    let scratch = Scratch::new();
    let mut empty = Vec::new();
    pcap_header(&mut empty, 1, 65_535);
    scratch.write("empty.pcap", empty);
    scratch.run("gen capture -r empty.pcap -o empty.pcap").refused(&["this is an input"]);
    scratch.run("gen capture -r empty.pcap -o out").refused(&["no packets"]);
    scratch.run("gen capture -r no.pcap -o out").refused(&["no.pcap", "no such file"]);
    scratch.run("gen capture -o out").refused(&["--read"]);
}
