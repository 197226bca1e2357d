//! `larder-lab bench annotate` on a generated capture: `cargo bench -p larder-lab --bench annotate`.
//! Under `cargo test` the capture is small and there is one round, to stay sound.
//!
//! It runs the built program, as a person would: `larder-lab gen capture` replays the recordings of
//! the repository, `larder-lab bench annotate` measures. Nothing here judges the figures.

use std::path::Path;
use std::process::{Command, Stdio};

use larder_testkit::scratch::Scratch;

/// Recordings that are replayed: both ways to have a name, and flows without one.
const RECORDINGS: [&str; 4] =
    ["r1-as-asked.pcap", "r2-pair.pcap", "r6-own-flow.pcap", "tls-split.pcap"];

fn main() {
    let full = std::env::args().any(|arg| arg == "--bench");
    let (size, rounds, tshark_packets) =
        if full { ("256MiB", "5", "100000") } else { ("256KiB", "1", "0") };
    let scratch = Scratch::within(env!("CARGO_TARGET_TMPDIR"));
    let capture = scratch.path("big.pcap");
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let recordings = RECORDINGS.map(|name| captures.join(name));
    lab(|command| {
        command.args(["gen", "capture", "--size", size, "-o"]).arg(&capture);
        command.arg("-r").args(&recordings)
    });
    let table = lab(|command| {
        command.args(["bench", "annotate", "--rounds", rounds]);
        command.args(["--cores", "2", "--tshark-packets", tshark_packets]).arg(&capture)
    });
    print!("{table}");
    for row in ["header walk, 2 cores", "annotate, 1 core", "annotate, 2 cores", "lookups: "] {
        assert!(table.lines().any(|line| line.starts_with(row)), "no row {row} in\n{table}");
    }
    // The walk shares no code with larder, so that both find the same records says something.
    let packets = |line: &str| line.get(36..48).map(|column| column.trim().to_owned());
    let rows = table.lines().filter(|line| line.starts_with("header") || line.starts_with("annot"));
    let counts: Vec<_> = rows.map(packets).collect();
    assert!(counts.iter().all(|count| count.is_some() && *count == counts[0]), "{table}");
}

/// Runs the program to its end and gives its standard output.
fn lab(arguments: impl FnOnce(&mut Command) -> &mut Command) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder-lab"));
    let output = arguments(&mut command).stdin(Stdio::null()).output().expect("larder-lab starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{error}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}
