//! `larder annotate` and `larder demo` through the program: their output and exit codes.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{Run, Scratch};
use larder_testkit::process::signal;
use larder_wire::capture::write::{pcap_header, pcap_record};

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures").join(name)
}

/// Two clients, one address, two names: a recording that shows whether annotate works at all.
fn pair() -> String {
    recording("r2-pair.pcap").to_str().expect("UTF-8").to_owned()
}

/// The demo's explanations match its log, line by line. They are six lines on standard error;
/// --quiet omits them.
#[test]
fn the_demo_explains_what_it_shows() {
    let scratch = Scratch::new();
    let run = scratch.run("demo");
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert_eq!(run.err.trim().lines().count(), 6, "{}", run.err);
    for (place, name) in [
        ("192.0.2.20:50011", "chat.news.example [dns_pair,70%,ambiguous]"),
        ("192.0.2.10:50003", "chat.shop.example [dns_pair,70%,ambiguous]"),
        ("198.51.100.22:", "git.code.example [dns_pair,98%]"),
        ("198.51.100.25:", "mail.post.example [dns_pair,99%]"),
        ("198.51.100.67:", "www.bank.example [sni,20%,conflict,unconfirmed]"),
        ("198.51.100.66:4444", "[no_lookup_seen]"),
    ] {
        let shown = run.out.lines().any(|line| line.contains(place) && line.contains(name));
        assert!(shown, "no line with {place} and {name} in\n{}", run.out);
    }
    let quiet = scratch.run("demo --quiet");
    assert_eq!((quiet.code, quiet.err.as_str(), quiet.out), (Some(0), "", run.out));
}

/// `--names-at` names addresses as of a time, `--names-for` as one client looked them up; no summary
/// of flows follows. What cannot be meant is refused with advice, before an output is made.
#[test]
fn addresses_have_names_at_a_time() {
    let scratch = Scratch::new();
    let read = format!("annotate -r {}", pair());
    let at = "--names-at 2026-11-21T21:37:14Z 203.0.113.20 10.0.0.1";
    let names = |flags: &str, at: &str| {
        let run = scratch.run(&format!("{read} {flags} {at}"));
        assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{flags} {at}");
        let first = run.out.lines().next().expect("a line").to_owned();
        (first, run.out.lines().count())
    };
    let of_any = "203.0.113.20 blue.example [dns_address,70%,ambiguous] or red.example";
    assert_eq!(names("", at), (of_any.to_owned(), 2));
    let of_one = "203.0.113.20 red.example [dns_pair,85%,ambiguous] or blue.example";
    assert_eq!(names("--names-for 192.0.2.10", at), (of_one.to_owned(), 2));
    let before = "--names-at 2026-11-21T21:37:13.8Z 203.0.113.20";
    assert_eq!(names("", before), ("203.0.113.20 red.example [dns_address,95%]".to_owned(), 1));
    for (wrong, advice) in [
        ("annotate --names-at 0 192.0.2.1", "add -r FILE"),
        (&format!("{read} --names-at 0"), "write them after the time"),
        (&format!("{read} --names-at 0 host"), "no IP address"),
        (&format!("{read} --names-at noon 192.0.2.1"), "noon"),
        (&format!("{read} --names-for 192.0.2.10"), "only with --names-at"),
        (&format!("{read} --names-for x {at}"), "no IP address"),
        (&format!("{read} --format zeek -o out {at}"), "--format text, ecs or csv"),
        (&format!("{read} -w packets -o out {at}"), "leave them out"),
        (&format!("{read} --flows-read {} {at}", pair()), "run larder twice"),
    ] {
        let run = scratch.run(wrong);
        assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{wrong}: {}", run.err);
        assert!(run.err.contains(advice), "{wrong}: {}", run.err);
        assert!(!scratch.path("out").exists() && !scratch.path("packets").exists(), "{wrong}");
    }
}

/// `--flows-read` names the flows that a router exported; with `--flows-delay 0` none waits for a
/// name that comes after its start. A capture without export packets is named as such.
#[test]
fn exported_flows_have_names() {
    let scratch = Scratch::new();
    let exports = recording("../exports/r7-late.ipfix.pcap");
    let dns = recording("r7-late.pcap");
    let run = |flags: &str| {
        let (exports, dns) = (exports.display(), dns.display());
        let run = scratch.run(&format!("annotate --flows-read {exports} -r {dns} {flags}"));
        assert_eq!(run.code, Some(0), "{}", run.err);
        run
    };
    let waiting = run("");
    assert!(waiting.err.contains("exporter   192.0.2.1: flows_records "), "{}", waiting.err);
    assert!(waiting.out.contains(",late"), "{}", waiting.out);
    let at_once = run("--flows-delay 0");
    assert_eq!(at_once.out.lines().count(), waiting.out.lines().count());
    assert!(!at_once.out.contains(",late"), "{}", at_once.out);
    let none = scratch.run(&format!("annotate --quiet --flows-read {}", dns.display()));
    assert_eq!(none.code, Some(0));
    assert!(none.err.contains("no export packets") && none.err.contains("4739"), "{}", none.err);
}

/// The log is written to standard output or -o, the summary to standard error. --quiet omits all
/// but the log.
#[test]
fn log_and_summary_go_apart() {
    let scratch = Scratch::new();
    let run = scratch.run(&format!("annotate -r {}", pair()));
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.out.contains("red.example") && run.out.contains("blue.example"), "{}", run.out);
    for line in ["packets ", "flows ", "named ", "unnamed ", "responses ", "doubtful "] {
        assert!(run.err.contains(line), "{line} is missing from\n{}", run.err);
    }
    assert!(!run.err.contains('\r'), "no progress bar where nobody sees it");
    let quiet = scratch.run(&format!("annotate --quiet -r {} -o log", pair()));
    assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (Some(0), "", ""));
    let log = std::fs::read_to_string(scratch.path("log")).expect("written");
    assert_eq!(log, run.out);
}

/// A setting of the configuration file applies to the run.
#[test]
fn a_file_setting_reaches_the_run() {
    let scratch = Scratch::new();
    scratch.write("larder.toml", "[annotate]\nformat = \"csv\"\nquiet = true\n");
    let run = scratch.run(&format!("annotate -r {}", pair()));
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    let again = Scratch::new().run(&format!("annotate --quiet --format csv -r {}", pair()));
    assert_eq!(run.out, again.out);
}

/// larder reads a capture that ends in the middle of a packet up to that point, and reports the
/// place in the summary. It exits with 1, with --strict with 2; the log is the same.
#[test]
fn damage_is_reported_and_survived() {
    let scratch = Scratch::new();
    let whole = std::fs::read(recording("r2-pair.pcap")).expect("the recording");
    scratch.write("cut.pcap", &whole[..whole.len() - 3]);
    let run = scratch.run("annotate -r cut.pcap");
    assert_eq!(run.code, Some(1), "{}", run.err);
    assert!(run.err.contains("damaged    1 capture_cut, the first at byte"), "{}", run.err);
    assert!(run.err.contains("cut.pcap"), "{}", run.err);
    let strict = scratch.run("annotate -r cut.pcap --strict");
    assert_eq!((strict.code, strict.out), (Some(2), run.out));
}

/// A file that is not a capture is rejected with advice: exit 2 and an empty standard output.
#[test]
fn what_is_no_capture_is_refused() {
    let scratch = Scratch::new();
    scratch.write("text.pcap", "this is no capture, it is a letter to a friend");
    scratch.write("empty.pcap", "");
    for name in ["text.pcap", "empty.pcap"] {
        scratch.run(&format!("annotate -r {name}")).refused(&[name]);
    }
}

/// When the reader of the log closes its pipe, the run ends without an error message.
#[test]
fn a_closed_log_is_quiet() {
    for line in [format!("annotate -r {}", pair()), "demo".to_owned()] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let scratch = Scratch::new();
        let run = Run::of(scratch.larder().args(line.split_whitespace()).stdout(writer));
        assert_eq!((run.code, run.err.as_str()), (Some(141), ""), "{line}");
    }
}

/// After an interrupt the run processes what it has read, writes it, and exits with 130.
///
/// The pipe's buffer is smaller than the input, so the program has set its handlers and is reading
/// when the test sends the signal. Its message that it is stopping shows that the signal has
/// arrived.
#[cfg(unix)]
#[test]
fn interrupted_is_finished_and_written() {
    let mut capture = Vec::new();
    pcap_header(&mut capture, 1, 65_535);
    let mut frame = [2u8; 60];
    frame[12..34].copy_from_slice(&[
        8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
    ]);
    frame[34..42].copy_from_slice(&[200, 0, 200, 1, 0, 8, 0, 0]);
    while capture.len() < 4 << 20 {
        pcap_record(&mut capture, 0, &frame, 60);
    }
    let scratch = Scratch::new();
    let mut child = scratch
        .larder()
        .args(["annotate", "-r", "-", "-o", "log"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(&capture).expect("the program reads");
    signal(child.id(), "-INT");
    let mut err = BufReader::new(child.stderr.take().expect("piped"));
    let mut first = String::new();
    err.read_line(&mut first).expect("UTF-8");
    assert!(first.contains("stopping"), "{first}");
    drop(stdin);
    let rest: Vec<String> = err.lines().map(|line| line.expect("UTF-8")).collect();
    assert_eq!(child.wait().expect("ends").code(), Some(130), "{rest:?}");
    assert!(rest.iter().any(|line| line.starts_with("stopped ")), "{rest:?}");
    let log = std::fs::read_to_string(scratch.path("log")).expect("written");
    assert!(log.contains("192.0.2.1:51200"), "{log}");
}
