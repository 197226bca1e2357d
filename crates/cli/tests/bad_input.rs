//! Bad input through the program: exit code, messages, names in the log.
//!
//! The program counts damage by kind and reports each kind once, with the first place. No input
//! makes it panic, hang, or show a name that is not in the capture. (`conventions.rs` covers inputs
//! that cannot be opened.)

mod common;

use std::io::Write;
use std::path::Path;

use common::{Run, Scratch, TestCapture};
use larder_testkit::random::Random;

/// One run over `capture`, as ECS: exit code, the log, and the damage reported on standard error.
struct Read {
    run: Run,
    damage: Vec<String>,
}

fn read(capture: &[u8]) -> Read {
    let scratch = Scratch::new();
    scratch.write("in.pcap", capture);
    let run = scratch.run("annotate -r in.pcap --format ecs --cores 2");
    assert!(matches!(run.code, Some(0..=2)), "{run:?}");
    assert!(!run.err.contains("panicked"), "{run:?}");
    let damage: Vec<String> = run
        .err
        .lines()
        .filter_map(|line| line.strip_prefix("damaged "))
        .map(|line| line.trim().to_owned())
        .collect();
    match run.code {
        Some(2) => assert_eq!(run.out, "", "refused, and yet a log: {run:?}"),
        code => assert_eq!(code == Some(1), !damage.is_empty(), "{run:?}"),
    }
    for line in &damage {
        assert!(line.contains(", the first at byte ") && line.ends_with(" of in.pcap"), "{line}");
        let kind = line.split([' ', ',']).nth(1);
        let same = damage.iter().filter(|other| other.split([' ', ',']).nth(1) == kind);
        assert_eq!(same.count(), 1, "said twice: {damage:?}");
    }
    Read { run, damage }
}

impl Read {
    /// Asserts that there is one kind of damage, with its count and place: `1 capture_cut … byte
    /// 24`.
    fn only_damage(&self, count: u64, kind: &str, offset: usize) {
        let expected = format!("{count} {kind}, the first at byte {offset} of in.pcap");
        assert_eq!(self.damage, [expected], "{:?}", self.run);
        assert_eq!(self.run.code, Some(1));
    }

    fn no_damage(&self) {
        assert_eq!((self.run.code, self.damage.as_slice()), (Some(0), &[][..]), "{:?}", self.run);
    }

    /// Every domain in the log.
    fn names(&self) -> Vec<&str> {
        let fields = [".domain\":\"", "server_name\":\""];
        let values = fields.iter().flat_map(|field| self.run.out.split(field).skip(1));
        values.filter_map(|rest| rest.split('"').next()).collect()
    }
}

fn recording(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures").join(name);
    std::fs::read(path).expect("the recording")
}

/// Offsets of the records of a little-endian pcap file, and of its end.
fn record_offsets(capture: &[u8]) -> Vec<usize> {
    let mut offsets = vec![24];
    while let Some(length) = capture.get(offsets[offsets.len() - 1] + 8..).and_then(|rest| {
        let length: [u8; 4] = *rest.first_chunk()?;
        Some(u32::from_le_bytes(length) as usize)
    }) {
        offsets.push(offsets[offsets.len() - 1] + 16 + length);
    }
    offsets
}

/// larder reads a truncated capture up to its end. A file cut in its header is not a capture; one
/// cut between records has no damage. One cut in a record's header or frame has damage there. No
/// cut adds a name.
#[test]
fn a_cut_capture_is_read_as_far_as_it_goes() {
    let whole = recording("r2-pair.pcap");
    let all = read(&whole);
    all.no_damage();
    assert!(!all.names().is_empty());
    let offsets = record_offsets(&whole);
    let last = offsets[offsets.len() - 2];
    for len in [0, 1, 4, 23] {
        assert_eq!(read(&whole[..len]).run.code, Some(2), "{len} octets");
    }
    for len in [24, offsets[1], last] {
        read(&whole[..len]).no_damage();
    }
    for (len, record) in [
        (25, 24),
        (39, 24),
        (40, 24),
        (41, 24),
        (offsets[7] + 1, offsets[7]),
        (last + 16, last),
        (whole.len() - 1, last),
    ] {
        let cut = read(&whole[..len]);
        cut.only_damage(1, "capture_cut", record);
        for name in cut.names() {
            assert!(all.names().contains(&name), "{name} is new at {len} octets");
        }
    }
}

/// The same for the blocks of pcapng.
#[test]
fn a_cut_pcapng_is_read_as_far_as_it_goes() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/demo.pcapng");
    let whole = std::fs::read(demo).expect("the recording");
    let all = read(&whole);
    all.no_damage();
    for len in [0, 4, 11] {
        assert_eq!(read(&whole[..len]).run.code, Some(2), "{len} octets");
    }
    let section = u32::from_le_bytes(*whole[4..].first_chunk().expect("a length")) as usize;
    read(&whole[..section]).no_damage();
    for len in [27, section + 1, section + 8, whole.len() / 2 + 1, whole.len() - 1] {
        let cut = read(&whole[..len]);
        assert_eq!((cut.run.code, cut.damage.len()), (Some(1), 1), "{len} octets: {:?}", cut.run);
        assert!(cut.damage[0].starts_with("1 capture_cut, "), "{:?}", cut.damage);
        assert!(cut.names().iter().all(|name| all.names().contains(name)), "{len} octets");
    }
}

/// The program survives flipped bits, and every label of every name in the log is in the damaged
/// capture.
#[test]
fn flipped_bits_invent_no_name() {
    let mut random = Random(1);
    let mut next = |below: usize| random.index(below);
    for (name, flips) in [
        ("r2-pair.pcap", 1),
        ("r2-pair.pcap", 40),
        ("r1-as-asked.pcap", 200),
        ("dns-tcp-split.pcap", 20),
        ("tls-split.pcap", 20),
        ("quic-v1.pcap", 30),
        ("fragment-v6.pcap", 20),
        ("svcb-hints.pcap", 60),
    ] {
        let mut capture = recording(name);
        for _ in 0..flips {
            // The file's header stays intact, or the file would not be a capture.
            let at = 24 + next(capture.len() - 24);
            capture[at] ^= 1 << next(8);
        }
        let read = read(&capture);
        let lower = capture.to_ascii_lowercase();
        let holds = |label: &str| lower.windows(label.len()).any(|w| w == label.as_bytes());
        for shown in read.names().iter().filter(|_| name != "quic-v1.pcap") {
            // Escaped bytes are unescaped in the capture.
            for label in shown.split(['.', '\\']).filter(|label| !label.is_empty()) {
                let label = label.to_ascii_lowercase();
                let tail = label.strip_prefix('x').and_then(|hex| hex.get(2..)).unwrap_or(&label);
                assert!(holds(&label) || holds(tail), "{name}: {shown} in\n{}", read.run.out);
            }
        }
    }
}

/// The program rejects a file that is not a capture, or is empty, and describes its content.
#[test]
fn what_is_no_capture_says_so() {
    for (bytes, said) in [
        (&b""[..], "empty"),
        (&[0; 4096], "zeros"),
        (b"\x7fELF and so on, for some octets more", "7f 45 4c 46"),
        (b"\x1f\x8b\x08\0 no gzip behind this", "in.pcap"),
        (b"\xfd7zXZ\0 no xz behind this", "in.pcap"),
        (b"\x28\xb5\x2f\xfd no zstd behind this", "in.pcap"),
    ] {
        let read = read(bytes);
        assert_eq!(read.run.code, Some(2), "{:?}", read.run);
        assert!(read.run.err.contains(said), "'{said}' is missing from {}", read.run.err);
    }
}

/// Records that are all zero, or claim four gigabytes, are skipped once each; the records after
/// them are read.
#[test]
fn zero_and_huge_records_are_skipped() {
    let whole = recording("r2-pair.pcap");
    let all = read(&whole);
    let with = |record: &[u8]| read(&[&whole[..24], record, &whole[24..]].concat());
    let huge = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[0xff; 8]].concat();
    for (record, kind) in [(&[0; 160][..], "capture_zero_record"), (&huge, "capture_record_length")]
    {
        let damaged = with(record);
        damaged.only_damage(1, kind, 24);
        assert_eq!(damaged.run.out, all.run.out, "what follows is as it was");
    }
}

/// A frame of no bytes is a valid record without a packet: the program reports it and continues.
#[test]
fn empty_frames_are_said() {
    let mut capture = TestCapture::new();
    capture.frame(&[]);
    let place = capture.bytes.len();
    capture.dns_answer(&TestCapture::answer("www.example"));
    let read = read(&capture.bytes);
    assert_eq!(read.run.code, Some(1), "{:?}", read.run);
    assert!(read.damage[0].contains("byte 24 ") && place == 40, "{:?}", read.damage);
}

/// One pcapng file may change its byte order from section to section.
#[test]
fn mixed_byte_orders_are_read() {
    let mut little = Vec::new();
    let mut big = Vec::new();
    let frame = TestCapture::udp(53, &TestCapture::answer("www.example"));
    pcapng(&mut little, &frame, u16::to_le_bytes, u32::to_le_bytes);
    pcapng(&mut big, &frame, u16::to_be_bytes, u32::to_be_bytes);
    let mixed = read(&[little.as_slice(), &big, &little].concat());
    mixed.no_damage();
    assert!(mixed.run.err.contains("packets    3 "), "{}", mixed.run.err);
    let cut = read(&[little.as_slice(), &big[..big.len() - 2]].concat());
    assert_eq!(cut.damage.len(), 1, "{:?}", cut.run);
    assert!(cut.run.err.contains("packets    1 "), "{}", cut.run.err);
}

/// A section, an interface and a packet in one byte order.
fn pcapng(out: &mut Vec<u8>, frame: &[u8], b16: fn(u16) -> [u8; 2], b32: fn(u32) -> [u8; 4]) {
    let mut block = |kind: u32, body: &[u8]| {
        let padding = body.len().next_multiple_of(4) - body.len();
        let length = b32((12 + body.len() + padding) as u32);
        out.extend([&b32(kind)[..], &length, body, &[0; 3][..padding], &length].concat());
    };
    let section = [&b32(0x1a2b_3c4d)[..], &b16(1), &b16(0), &[0xff; 8]].concat();
    block(0x0a0d_0d0a, &section);
    block(1, &[&b16(1)[..], &b16(0), &b32(0)].concat());
    let length = b32(frame.len() as u32);
    let head = [b32(0), b32(0x0006_0000), b32(0), length, length].concat();
    block(6, &[&head, frame].concat());
}

/// DNS messages that attack parsers are counted and add no name, and parsing ends. They have
/// pointers in a ring, to themselves and forward, a name of a thousand labels, and a length past
/// the end.
#[test]
fn hostile_dns_names_nothing() {
    let header = b"\x12\x34\x81\x80\0\x01\0\x01\0\0\0\0";
    let record = b"\0\x01\0\x01\0\0\0\x3c\0\x04\xc6\x33\x64\x07";
    let with_name =
        |name: &[u8]| [header, name, b"\0\x01\0\x01", b"\xc0\x0c", record.as_slice()].concat();
    let thousand = [b"\x01a".repeat(1000).as_slice(), b"\0"].concat();
    let chained: Vec<u8> =
        (0..600u16).flat_map(|n| (0xc000 | (12 + 2 * (n + 1))).to_be_bytes()).collect();
    for (what, message) in [
        ("a pointer to itself", with_name(b"\xc0\x0c")),
        ("two pointers in a ring", with_name(b"\xc0\x0e\xc0\x0c")),
        ("a label, then back to it", with_name(b"\x01a\xc0\x0c")),
        ("a pointer forward", with_name(b"\xc0\x30")),
        ("a thousand labels", with_name(&thousand)),
        ("a chain of 600 pointers", with_name(&chained)),
        ("a label past the end", with_name(b"\x3fabc")),
        ("a reserved label type", with_name(b"\x80abc\0")),
    ] {
        let mut capture = TestCapture::new();
        capture.dns_answer(&message);
        capture.flow_to([0xc6, 0x33, 0x64, 7]);
        let read = read(&capture.bytes);
        assert_eq!(read.names(), [""; 0], "{what}");
        assert_eq!((read.run.code, read.damage.len()), (Some(1), 1), "{what}: {:?}", read.run);
        assert!(read.damage[0].contains("dns"), "{what}: {:?}", read.damage);
        // The frame begins at this byte.
        assert!(read.damage[0].contains("byte 40 "), "{what}: {:?}", read.damage);
    }
}

/// A full disk is an error with advice for each output: the log, packets, the folder of -d.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said() {
    let scratch = Scratch::new();
    scratch.write("in.pcap", recording("r2-pair.pcap"));
    for line in ["-o /dev/full", "-o log -w /dev/full", "-o /dev/full --format ecs --sort start"] {
        let run = scratch.run(&format!("annotate --quiet -r in.pcap {line}"));
        run.refused(&["/dev/full", "make room"]);
    }
    for line in ["annotate -r in.pcap", "demo", "annotate --help", "show-config", "man"] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
        let run = Run::of(scratch.larder().args(line.split_whitespace()).stdout(full));
        run.refused(&["standard output", "make room"]);
    }
}

/// Paths that cannot be written are rejected with advice, before the run if that can be known.
#[test]
fn places_that_take_nothing_are_refused() {
    let scratch = Scratch::new();
    scratch.write("in.pcap", recording("r2-pair.pcap"));
    for (line, said) in [
        ("-o no/log", "create the directory"),
        ("-o .", "name a file in it"),
        ("-w no/packets", "create the directory"),
        ("-d in.pcap", "-d wants a folder"),
        ("--names-save no/names", "create it first"),
        ("--names-save .", "name a file in it"),
        ("--names-load .", "name a file in it"),
        ("--names-load no", "check the path"),
        ("--names-load in.pcap", "--names-save"),
        ("--names-read .", "name the files in it"),
        ("--names-read no", "check the path"),
        ("--names-read in.pcap -c 5", "cut the capture"),
        ("--names-read in.pcap -w st --store 1GiB", "in a run of its own"),
        ("--names-read in.pcap --eve in.pcap", "--names-save"),
        ("--names-read in.pcap --flows-read in.pcap", "with -r"),
        ("--from yesterday", "expected a time"),
        ("--from 20 --to 20", "exchange them"),
        ("--from 20 -c 5", "--to instead"),
        ("--cut-every 90", "multiple of 1m"),
        ("--cut-every 1m --from 90", "--from with --cut-every: it is between two cuts"),
        ("--cut-every 1m --to 90", "--to with --cut-every: it is between two cuts"),
        ("--cut-every 1m --from 60 -w out.pcapng", "leave --cut-every out"),
        ("--cut-every 1m --names-at 30 192.0.2.1", "--cut-every: only with the flows of"),
        ("--cut-every 1m --flows-read in.pcap", "--cut-every: only with the flows of"),
        ("--from 20 -w st --store 1GiB", "in a run of its own"),
        ("--to 20 --eve in.pcap", "with another program"),
        ("--from 20 --flows-read in.pcap", "only with the flows of -r"),
        ("--from 20 --names-at 30 192.0.2.1", "only with the flows of -r"),
        ("--capture-began 20 --zeek-log in.pcap", "only with the flows of -r"),
    ] {
        scratch.run(&format!("annotate --quiet -r in.pcap {line}")).refused(&[said]);
    }
}

/// Saved names replace a file, but not a link or a pipe: larder writes through those.
#[cfg(unix)]
#[test]
fn saved_names_keep_links_and_pipes() {
    use std::os::unix::fs::FileTypeExt;
    let scratch = Scratch::new();
    scratch.write("in.pcap", recording("r2-pair.pcap"));
    scratch.write("folder/old", "old");
    std::os::unix::fs::symlink("folder/old", scratch.path("link")).expect("a link");
    let line = "annotate --quiet -r in.pcap -o log --names-save";
    let run = scratch.run(&format!("{line} link"));
    assert_eq!(run.code, Some(0), "{}", run.err);
    let saved = std::fs::read_to_string(scratch.path("folder/old")).expect("written");
    assert!(saved.contains("red.example"), "{saved}");
    assert!(scratch.path("link").symlink_metadata().expect("there").is_symlink());

    let pipe = scratch.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).expect("UTF-8")
    });
    let run = scratch.run(&format!("{line} pipe"));
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(pipe.metadata().expect("there").file_type().is_fifo(), "a file took its place");
    assert_eq!(reader.join().expect("read"), saved);
}

/// A capture that ends in damage still gives its complete log if the log is a pipe; with --strict
/// the same log and exit 2.
#[test]
fn strict_changes_the_code_alone() {
    let scratch = Scratch::new();
    let whole = recording("r2-pair.pcap");
    for line in ["annotate -r -", "annotate -r - --strict"] {
        let mut command = scratch.larder();
        let mut child = command
            .args(line.split_whitespace())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(&whole[..whole.len() - 2]).expect("the program reads");
        drop(stdin);
        let output = child.wait_with_output().expect("ends");
        let strict = line.ends_with("--strict");
        assert_eq!(output.status.code(), Some(if strict { 2 } else { 1 }));
        assert!(String::from_utf8_lossy(&output.stdout).contains("red.example"));
    }
}
