//! `larder extract` through the program: its summary, its errors, and a log that its capture is enough for.

mod common;

use common::{Scratch, TestCapture};
use larder_wire::{capture, note};

fn bytes(scratch: &Scratch, name: &str) -> Vec<u8> {
    std::fs::read(scratch.path(name)).expect("a file")
}

/// A capture of a lookup, and one of a flow to the address.
fn two_days() -> Scratch {
    let scratch = Scratch::new();
    let mut monday = TestCapture::new();
    monday.dns_answer(&TestCapture::answer("www.example"));
    (0..30).for_each(|_| monday.frame(&[0; 60]));
    scratch.write("monday.pcap", &monday.bytes);
    let mut tuesday = TestCapture::new();
    // A second a packet: it begins when the other one ends.
    (0..31).for_each(|_| tuesday.frame(&[0; 60]));
    tuesday.flow_to([198, 51, 100, 7]);
    scratch.write("tuesday.pcap", &tuesday.bytes);
    scratch
}

/// The small capture gives the log that the whole one gives.
#[test]
fn names_of_an_earlier_capture() {
    let scratch = two_days();
    let run = scratch.run("extract -r monday.pcap -o names.pcapng");
    assert_eq!((run.code, run.out.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.err.contains("\nextracted  1 packets (3.2 %), "), "{}", run.err);
    let log = |names: &str| {
        scratch.run(&format!("annotate -r tuesday.pcap --names-read {names} --format csv")).good()
    };
    let whole = log("monday.pcap");
    assert!(whole.contains("www.example"), "{whole}");
    assert_eq!(log("names.pcapng"), whole);
    // Quiet, and to standard output.
    let quiet = scratch.larder().args(["extract", "-q", "-r", "monday.pcap"]).output();
    let quiet = quiet.expect("the program starts");
    assert_eq!(quiet.stdout, bytes(&scratch, "names.pcapng"));
    assert!(quiet.stderr.is_empty());
}

/// What cannot be done is refused with what to do; what is damaged is reported, and the rest is written.
#[test]
fn errors_state_what_to_do() {
    let scratch = two_days();
    scratch.run("extract").refused(&["--read"]);
    scratch.run("extract -r absent.pcap").refused(&["absent.pcap: no such file"]);
    scratch.run("extract -r monday.pcap -o monday.pcap").refused(&["this is an input"]);
    scratch
        .run("extract -r monday.pcap -o absent/x")
        .refused(&["absent/x", "create the directory first"]);
    scratch.write("empty.pcap", b"");
    let run = scratch.run("extract -r empty.pcap -o x");
    assert!(matches!(run.code, Some(1 | 2)) && run.err.contains("empty.pcap"), "{run:?}");
    let whole = bytes(&scratch, "monday.pcap");
    scratch.write("cut.pcap", &whole[..whole.len() - 9]);
    let cut = scratch.run("extract -r cut.pcap -o cut.pcapng");
    assert_eq!(cut.code, Some(1), "{cut:?}");
    assert!(cut.err.contains("damaged ") && cut.err.contains("of cut.pcap"), "{}", cut.err);
    assert_eq!(scratch.run("extract --strict -r cut.pcap -o y").code, Some(2));
    scratch.run("extract -r monday.pcap -o names.pcapng").good();
    assert_eq!(packets(&scratch, "cut.pcapng"), packets(&scratch, "names.pcapng"));
}

/// The frames of a capture of `larder extract`, without its notes.
fn packets(scratch: &Scratch, name: &str) -> Vec<Vec<u8>> {
    let bytes = bytes(scratch, name);
    let records = capture::records(&bytes).expect("a capture");
    let records = records.map(|(_, record)| record.expect("sound"));
    let packets = records.filter(|record| record.link_type != note::LINK_TYPE);
    packets.map(|record| record.frame.to_vec()).collect()
}
