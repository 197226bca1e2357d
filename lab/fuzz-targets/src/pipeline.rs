//! A whole run: any bytes as a capture file give the same bytes on one core and on two, also when
//! every budget binds, and no control byte gets out.

use std::path::Path;
use std::sync::Arc;

use larder_annotate::options::{Endpoint, Options, OutputFormat, SortBy, Summary};
use larder_annotate::{Error, Progress, run};
use serde::de::IgnoredAny;

/// So long that a repeated file makes three batches.
const REPEATED_BYTES: usize = (2 << 20) + 100_000;

/// Bytes of the header of a pcap file.
const PCAP_HEADER_BYTES: usize = 24;

/// The input is a file, perhaps compressed, and one byte behind it: format (1 and 2), sorted (4),
/// packets written again (8), tight budgets (16); and where it is 32 to 63, the records again and
/// again until there are several batches, which is slow.
pub fn pipeline(input: &[u8]) {
    let Some((&choice, file)) = input.split_last() else { return };
    let directory = tempfile::tempdir().expect("a temporary folder");
    let capture = directory.path().join("capture");
    let content = if choice >> 5 == 1 { repeated(file) } else { file.to_vec() };
    std::fs::write(&capture, content).expect("room for a file");
    let one = result(choice, &capture, &directory.path().join("one"), 1);
    let two = result(choice, &capture, &directory.path().join("two"), 2);
    assert_eq!(one.is_some(), two.is_some(), "one core can do it, two can't, or the reverse");
    let (Some(one), Some(two)) = (one, two) else { return };
    assert_eq!(one.summary, two.summary);
    for ((name, one), (_, two)) in one.files.iter().zip(&two.files) {
        assert!(one == two, "{name} differs between one core and two");
    }
    assert!(one.summary.flows <= one.summary.packets);
    assert!(one.summary.flows_named <= one.summary.flows_nameable);
    check_log(choice, &one.files[0].1);
}

struct Outcome {
    summary: Summary,
    files: Vec<(&'static str, Vec<u8>)>,
}

fn result(choice: u8, capture: &Path, folder: &Path, cores: usize) -> Option<Outcome> {
    std::fs::create_dir(folder).expect("a new folder");
    let is_tight = choice & 16 != 0;
    let packets = folder.join("packets");
    let options = Options {
        read: vec![Endpoint::Path(capture.to_owned())],
        format: format_of(choice),
        output: Endpoint::Path(folder.join("log")),
        sort_by: if choice & 4 != 0 { SortBy::Start } else { SortBy::End },
        write_packets: (choice & 8 != 0).then_some(Endpoint::Path(packets)),
        directory: Some(folder.to_owned()),
        cores,
        names_budget_bytes: if is_tight { 256 << 10 } else { 1 << 20 },
        flows_max: if is_tight { 64 } else { 4_000 },
        reassembly_budget_bytes: if is_tight { 32 << 10 } else { 2 << 20 },
        ..Options::default()
    };
    let summary = match run(&options, &Arc::new(Progress::default())) {
        Ok(summary) => summary,
        Err(Error::Read(_)) => return None,
        Err(error) => panic!("nothing but the input can be wrong: {error}"),
    };
    let files = ["log", "packets", "dns.log", "names.log", "stats.json"]
        .into_iter()
        .map(|name| (name, std::fs::read(folder.join(name)).unwrap_or_default()))
        .collect();
    Some(Outcome { summary, files })
}

fn format_of(choice: u8) -> OutputFormat {
    match choice & 3 {
        0 => OutputFormat::Text,
        1 => OutputFormat::Ecs,
        2 => OutputFormat::Zeek,
        _ => OutputFormat::Csv,
    }
}

/// The records of a file again and again.
fn repeated(file: &[u8]) -> Vec<u8> {
    let is_pcapng = file.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]);
    let records = if is_pcapng { file } else { file.get(PCAP_HEADER_BYTES..).unwrap_or_default() };
    let mut content = file.to_vec();
    if !records.is_empty() {
        let times = REPEATED_BYTES.saturating_sub(file.len()) / records.len();
        (0..times).for_each(|_| content.extend_from_slice(records));
    }
    content
}

fn check_log(choice: u8, log: &[u8]) {
    let is_plain = |byte: &u8| !byte.is_ascii_control() || matches!(byte, b'\n' | b'\t');
    match format_of(choice) {
        OutputFormat::Ecs => {
            for line in log.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
                if let Err(error) = serde_json::from_slice::<IgnoredAny>(line) {
                    panic!("{error}: {}", line.escape_ascii());
                }
            }
        }
        // CSV lines end in CR LF.
        OutputFormat::Csv => assert!(log.iter().all(|byte| is_plain(byte) || *byte == b'\r')),
        _ => assert!(log.iter().all(is_plain), "a control byte got out"),
    }
}
