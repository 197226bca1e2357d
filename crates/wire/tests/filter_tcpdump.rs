//! Filters compared with tcpdump: on every frame of the captures, and on truncated and damaged
//! ones, larder's filter accepts what tcpdump accepts.
//!
//! The filters are a hand-written list, and generated ones from the language's grammar with a seed.
//! The captures are those of `tests/captures` and the shared ones; all frames of a link type are in
//! one file.

mod filter_support;
mod packet_support;

use std::path::{Path, PathBuf};
use std::process::Command;

use filter_support::{Grammar, Random, by_hand};
use larder_testkit::frames::read_capture;
use larder_testkit::skip::skip;
use larder_wire::filter::{Instruction, LinkType, Origin, compile, run, run_live};

const SNAP_BYTES: u32 = 262_144;
const GENERATED: usize = 300;

/// A frame that may be truncated: its captured bytes, and its length on the wire.
struct Cut {
    bytes: Vec<u8>,
    original_len: u32,
}

/// The link types, their numbers for tcpdump, and the minimum number of filters that accept some
/// frames and reject some.
const LINKS: [(LinkType, u32, usize); 5] = [
    (LinkType::Ethernet, 1, 100),
    (LinkType::RawIp, 101, 60),
    (LinkType::Cooked, 113, 60),
    (LinkType::Cooked2, 276, 60),
    (LinkType::Loopback, 0, 60),
];

/// An Ethernet frame as it would be captured with another link type.
fn relinked(link: LinkType, frame: &[u8]) -> Option<Vec<u8>> {
    let (kind, rest) = (frame.get(12..14)?, frame.get(14..)?);
    let header = match link {
        LinkType::Cooked => [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0], kind].concat(),
        LinkType::Cooked2 => {
            [kind, &[0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]].concat()
        }
        LinkType::Loopback => match kind {
            [0x08, 0x00] => vec![2, 0, 0, 0],
            [0x86, 0xdd] => vec![30, 0, 0, 0],
            _ => vec![7, 0, 0, 0],
        },
        LinkType::Ethernet | LinkType::RawIp => return None,
    };
    Some([&header, rest].concat())
}

/// All frames of all captures that have this link type, or could be captured with it.
fn frames(link: LinkType) -> Vec<Cut> {
    let mut frames = frames_of(link);
    frames.extend(frames_of(LinkType::Ethernet).iter().filter_map(|frame| {
        let bytes = relinked(link, &frame.bytes)?;
        Some(Cut { original_len: bytes.len() as u32, bytes })
    }));
    frames
}

fn frames_of(link: LinkType) -> Vec<Cut> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let mut files: Vec<PathBuf> = std::fs::read_dir(own)
        .expect("the repository's captures")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "pcap"))
        .collect();
    let shared = std::env::var_os("LARDER_SHARED_DATA").map(|data| Path::new(&data).join("pcap"));
    if let Some(shared) = shared {
        let entries = std::fs::read_dir(shared).expect("the folder that the variable names");
        files.extend(entries.map(|entry| entry.expect("a readable folder").path()));
        files
            .retain(|path| path.extension().is_some_and(|kind| kind == "pcap" || kind == "pcapng"));
    }
    files.sort();
    let mut frames = Vec::new();
    for file in files {
        if std::fs::metadata(&file).is_ok_and(|data| data.len() > 8 << 20) {
            continue;
        }
        let own = read_capture(&file).into_iter();
        let own = own.filter(|frame| LinkType::of(frame.link_type) == Ok(link)).take(400);
        frames.extend(
            own.map(|frame| Cut { original_len: frame.bytes.len() as u32, bytes: frame.bytes }),
        );
    }
    let rare = match link {
        LinkType::Ethernet | LinkType::RawIp => filter_support::rare_frames(link),
        _ => Vec::new(),
    };
    frames.extend(rare.into_iter().map(|bytes| Cut { original_len: bytes.len() as u32, bytes }));
    frames
}

/// The same frames truncated anywhere, or with changed bytes in the headers.
fn damaged(frames: &[Cut], random: &mut Random) -> Vec<Cut> {
    let mut out = Vec::new();
    for frame in frames.iter().step_by(3) {
        let mut bytes = frame.bytes.clone();
        bytes.truncate(random.index(bytes.len().min(90) + 1));
        out.push(Cut { bytes, original_len: frame.original_len });
        let mut bytes = frame.bytes.clone();
        for _ in 0..2 {
            let at = random.index(bytes.len().clamp(1, 60));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.next() as u8;
            }
        }
        out.push(Cut { bytes, original_len: frame.original_len });
    }
    out
}

fn write_file(name: &str, link: LinkType, frames: &[Cut]) -> PathBuf {
    let number = LINKS.iter().find(|(one, ..)| *one == link).map_or(1, |(_, number, _)| *number);
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, SNAP_BYTES, number] {
        out.extend_from_slice(&u32::to_le_bytes(word));
    }
    for (index, frame) in frames.iter().enumerate() {
        for word in [index as u32, 0, frame.bytes.len() as u32, frame.original_len] {
            out.extend_from_slice(&u32::to_le_bytes(word));
        }
        out.extend_from_slice(&frame.bytes);
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("filter-{name}-{number}.pcap"));
    std::fs::write(&path, out).expect("room for a capture");
    path
}

fn has_tcpdump(test: &str) -> bool {
    let found = Command::new("tcpdump").arg("--version").output().is_ok();
    if !found {
        skip(test, "no tcpdump");
    }
    found
}

/// The frames that tcpdump accepts, or its message about the filter.
fn tcpdump(file: &Path, filter: &str, options: &[&str]) -> Result<Vec<usize>, String> {
    let mut command = Command::new("tcpdump");
    command.args(options).arg("-r").arg(file).args(["-w", "-", "--", filter]);
    let output = command.output().expect("tcpdump was found");
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let rejects_all = stderr.contains("expression rejects all packets");
        return if rejects_all { Ok(Vec::new()) } else { Err(stderr.into_owned()) };
    }
    let word = |at: usize| u32::from_le_bytes(output.stdout[at..at + 4].try_into().expect("four"));
    let (mut taken, mut at) = (Vec::new(), 24);
    while at < output.stdout.len() {
        taken.push(word(at) as usize);
        at += 16 + word(at + 8) as usize;
    }
    Ok(taken)
}

fn ours(program: &[Instruction], frames: &[Cut]) -> Vec<usize> {
    let takes = |frame: &Cut| run(program, &frame.bytes, frame.original_len) != 0;
    (0..frames.len()).filter(|index| takes(&frames[*index])).collect()
}

/// For one kind of frames: every filter accepts the same frames in both programs. Returns the
/// number of filters that accept some frames, but not all.
fn compare(
    name: &str,
    link: LinkType,
    frames: &[Cut],
    filters: &[&str],
    options: &[&str],
) -> usize {
    let file = write_file(name, link, frames);
    let (mut selective, mut wrong) = (0, Vec::new());
    for filter in filters {
        let theirs = tcpdump(&file, filter, options);
        let program = compile(filter, link, Origin::File, SNAP_BYTES);
        match (theirs, program) {
            (Ok(theirs), Ok(program)) => {
                let ours = ours(&program, frames);
                selective += usize::from(!ours.is_empty() && ours.len() < frames.len());
                if ours != theirs {
                    let one = ours.iter().find(|index| !theirs.contains(index));
                    let other = theirs.iter().find(|index| !ours.contains(index));
                    wrong.push(format!(
                        "{filter:?}: frame {one:?} is ours alone, {other:?} is tcpdump's alone"
                    ));
                }
            }
            (Err(_), Err(_)) => {}
            (theirs, ours) => wrong.push(format!(
                "{filter:?}: tcpdump says {:?}, we {:?}",
                theirs.map(|taken| taken.len()),
                ours.map(|program| program.len())
            )),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    selective
}

fn generated(seed: u64, link: LinkType) -> Vec<String> {
    let mut grammar = Grammar::new(seed, link);
    (0..GENERATED).map(|_| grammar.filter()).collect()
}

/// Complete frames: both accept the same. Hand-written filters run with tcpdump's defaults.
/// Generated ones run without its optimizer, which drops loads that would fail (`icmp[33] < 29 or
/// ip`).
#[test]
fn filters_take_what_tcpdump_takes() {
    if !has_tcpdump("filters_take_what_tcpdump_takes") {
        return;
    }
    each_link(|link, selective_min| {
        let frames = frames(link);
        let selective = compare("whole", link, &frames, &by_hand(), &[]);
        assert!(selective >= selective_min, "only {selective} filters took some and left some");
        let filters = generated(0x5eed_f117, link);
        let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
        let selective = compare("generated", link, &frames, &filters, &["-O"]);
        assert!(selective >= selective_min, "only {selective} filters took some and left some");
    });
}

/// Tests each link type in a thread of its own: most of the time goes by in starts of tcpdump.
fn each_link(test: impl Fn(LinkType, usize) + Sync) {
    std::thread::scope(|scope| {
        for (link, _, selective_min) in LINKS {
            let test = &test;
            scope.spawn(move || test(link, selective_min));
        }
    });
}

/// Truncated and damaged frames: loads fail in the same places. tcpdump's optimizer may drop a
/// load, so it is off.
#[test]
fn filters_fail_where_tcpdump_fails() {
    if !has_tcpdump("filters_fail_where_tcpdump_fails") {
        return;
    }
    each_link(|link, _| {
        let mut frames = damaged(&frames(link), &mut Random(77));
        // tcpdump does not support these address families of other systems.
        frames.retain(|frame| {
            link != LinkType::Loopback || !matches!(frame.bytes.first(), Some(10 | 23))
        });
        let more = generated(0xca7_f117, link);
        let filters: Vec<&str> =
            by_hand().into_iter().chain(more.iter().map(String::as_str)).collect();
        assert!(compare("damaged", link, &frames, &filters, &["-O"]) >= 100);
    });
}

/// Live captures, for which the kernel removes the outer VLAN tag. larder's program decides as the
/// one that tcpdump would load into a socket on the loopback interface. Frames have a removed tag,
/// a tag in the frame, both or none.
#[test]
fn live_programs_decide_as_tcpdumps() {
    const NAME: &str = "live_programs_decide_as_tcpdumps";
    if !has_tcpdump(NAME) {
        return;
    }
    let frames = frames(LinkType::Ethernet);
    let mut grammar = Grammar::new(0x11fe, LinkType::Ethernet);
    let generated: Vec<String> =
        (0..GENERATED / 3).map(|_| format!("vlan and ({})", grammar.filter())).collect();
    let mut selective = 0;
    for filter in by_hand().into_iter().chain(generated.iter().map(String::as_str)) {
        let mut command = Command::new("tcpdump");
        let output =
            command.args(["-i", "lo", "-O", "-ddd", "--", filter]).output().expect("it was found");
        let stderr = String::from_utf8_lossy(&output.stderr);
        if stderr.contains("permission") || stderr.contains("No such device") {
            return skip(NAME, "no right to look at the loopback interface");
        }
        let Ok(ours) = compile(filter, LinkType::Ethernet, Origin::Live, SNAP_BYTES) else {
            continue;
        };
        assert!(output.status.success(), "{filter:?}: only we take it: {stderr}");
        let theirs = program(&String::from_utf8_lossy(&output.stdout));
        for (index, frame) in frames.iter().enumerate() {
            for tag in [None, Some(0x2003), Some(0x0064)] {
                let ours = run_live(&ours, &frame.bytes, frame.original_len, tag) != 0;
                let theirs = run_live(&theirs, &frame.bytes, frame.original_len, tag) != 0;
                assert_eq!(ours, theirs, "{filter:?}, frame {index}, tag {tag:?}");
                selective += usize::from(ours && tag.is_some());
            }
        }
    }
    assert!(selective > 1000, "only {selective} frames with a tag were taken");
}

/// The output of `tcpdump -ddd`: a count, and four numbers per instruction.
fn program(text: &str) -> Vec<Instruction> {
    let line = |line: &str| {
        let numbers: Vec<u32> =
            line.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        Instruction {
            code: numbers[0] as u16,
            jt: numbers[1] as u8,
            jf: numbers[2] as u8,
            k: numbers[3],
        }
    };
    text.lines().skip(1).map(line).collect()
}
