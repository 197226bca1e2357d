//! Compares a log with a model of the records that it accepted: random writes, times, cuts, kills
//! and full disks.

use super::*;
use crate::log::{Format, Level};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use proptest::prelude::*;

const HEADER: &str = "#head\n#fields\n";
const FOOTER: &str = "#foot\n";
const SECOND: i64 = 1_000_000_000;
/// 2026-11-23T10:00:00Z
const START: i64 = 1_795_428_000 * SECOND;

fn options(folder: &Path) -> RollingOptions {
    RollingOptions {
        path: folder.join("flows.log"),
        bytes_max: 0,
        every_s: 0,
        compress: false,
        budget_bytes: 0,
        link: Some("current".to_owned()),
        access: Access::PRIVATE,
    }
}

fn open(options: &RollingOptions, now_ns: Option<i64>) -> Rolling {
    logged(options, now_ns, &Log::default())
}

fn logged(options: &RollingOptions, now_ns: Option<i64>, log: &Log) -> Rolling {
    let put = |text: &'static str| -> Lines {
        Box::new(move |_, out| out.extend_from_slice(text.as_bytes()))
    };
    Rolling::open(options.clone(), put(HEADER), put(FOOTER), now_ns, log)
        .expect("a writable folder")
}

/// All files of a folder and their content, oldest first; of closed ones the text between header
/// and footer.
fn closed(folder: &Path) -> Vec<(String, String)> {
    let mut files: Vec<(Stamp, String, String)> = Vec::new();
    let names = Names::of(&folder.join("flows.log")).expect("a name");
    for (stamp, plain, packed) in names.list().expect("a folder") {
        assert!(plain.is_none() || packed.is_none(), "{stamp:?} is there twice");
        let path = if plain.is_some() { names.closed(&stamp) } else { names.packed(&stamp) };
        let mut text = String::new();
        let mut file = File::open(&path).expect("a closed file");
        match plain {
            Some(_) => file.read_to_string(&mut text),
            None => MultiGzDecoder::new(file).read_to_string(&mut text),
        }
        .expect("whole text");
        let body = text.strip_prefix(HEADER).and_then(|text| text.strip_suffix(FOOTER));
        let body = body.unwrap_or_else(|| panic!("{}: {text:?}", path.display()));
        assert!(!body.contains('#'), "{}: a second header or footer: {text:?}", path.display());
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        files.push((stamp, name, body.to_owned()));
    }
    files.sort();
    files.into_iter().map(|(_, name, body)| (name, body)).collect()
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect()
}

/// Ends like a kill. Records that were accepted and not written are lost; returns how many.
fn kill(mut rolling: Rolling) -> u64 {
    let lost = count(&rolling.buffer);
    rolling.buffer.clear();
    if let Some(gzip) = &mut rolling.gzip {
        gzip.finish();
    }
    lost
}

#[derive(Clone, Debug)]
enum Act {
    Write {
        records: usize,
        bytes: usize,
    },
    Tick,
    Wait(i64),
    Reopen,
    /// An operator renames the file and sends the signal.
    Move,
    /// A kill, which leaves a share of the file (in 256ths); during closing, or not.
    Kill {
        left: u8,
        closing: bool,
    },
    Restart,
    /// The disk accepts this many more bytes.
    Fill(u64),
    Free,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1..30usize, 0..80usize).prop_map(|(records, bytes)| Act::Write { records, bytes }),
        2 => Just(Act::Tick),
        3 => (-2..4000i64).prop_map(Act::Wait),
        1 => Just(Act::Reopen),
        1 => Just(Act::Move),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(left, closing)| Act::Kill { left, closing }),
        1 => Just(Act::Restart),
        1 => (0..600u64).prop_map(Act::Fill),
        2 => Just(Act::Free),
    ]
}

/// The state after a series of acts.
struct Model {
    folder: tempfile::TempDir,
    options: RollingOptions,
    rolling: Option<Rolling>,
    now_ns: i64,
    accepted: u64,
    /// Records that may be missing: by the log's own count, and by kills.
    lost: u64,
    /// Bodies of files that an operator renamed.
    moved: Vec<String>,
}

impl Model {
    fn new(bytes_max: u64, every_s: u64, compress: bool) -> Model {
        let folder = tempfile::tempdir().expect("a folder");
        let options = RollingOptions { bytes_max, every_s, compress, ..options(folder.path()) };
        let rolling = Some(open(&options, Some(START)));
        Model { folder, options, rolling, now_ns: START, accepted: 0, lost: 0, moved: Vec::new() }
    }

    fn log(&mut self) -> &mut Rolling {
        self.rolling.as_mut().expect("it is open")
    }

    fn act(&mut self, act: &Act) {
        let now_ns = self.now_ns;
        match *act {
            Act::Write { records, bytes } => {
                let mut text = String::new();
                for _ in 0..records {
                    text.push_str(&format!("{} {}\n", self.accepted, "x".repeat(bytes)));
                    self.accepted += 1;
                }
                self.log().write(text.as_bytes(), now_ns);
            }
            Act::Tick => self.log().tick(now_ns),
            Act::Wait(seconds) => self.now_ns += seconds.max(0) * SECOND,
            Act::Reopen => self.log().reopen(now_ns),
            Act::Move => {
                self.log().room_bytes = None;
                self.log().flush();
                let (from, to) = (self.options.path.clone(), self.folder.path().join("moved"));
                if fs::rename(&from, &to).is_ok() {
                    self.log().reopen(now_ns);
                    let text = fs::read_to_string(&to).expect("what was moved");
                    let body = text.strip_prefix(HEADER).and_then(|text| text.strip_suffix(FOOTER));
                    // A file that had no room for its header is empty.
                    let body = body.or(text.is_empty().then_some(""));
                    self.moved.push(body.unwrap_or_else(|| panic!("moved: {text:?}")).to_owned());
                }
            }
            Act::Kill { left, closing } => self.kill(left, closing),
            Act::Restart => {
                let mut rolling = self.rolling.take().expect("it is open");
                rolling.room_bytes = None;
                self.lost += rolling.counts().records_lost;
                let _ = rolling.finish(now_ns);
                self.rolling = Some(open(&self.options, Some(now_ns)));
            }
            Act::Fill(bytes) => self.log().room_bytes = Some(bytes),
            Act::Free => self.log().room_bytes = None,
        }
    }

    fn kill(&mut self, left: u8, closing: bool) {
        let mut rolling = self.rolling.take().expect("it is open");
        self.lost += rolling.counts().records_lost;
        let whole = rolling.current.as_ref().map_or(0, |current| current.whole_bytes);
        let begin = rolling.current.as_ref().and_then(|current| current.begin_ns);
        if closing && let Some(begin_ns) = begin {
            rolling.lock.note(begin_ns, Some(whole));
            let torn = &FOOTER[..usize::from(left) % (FOOTER.len() + 1)];
            let mut file =
                OpenOptions::new().append(true).open(&self.options.path).expect("the file");
            file.write_all(torn.as_bytes()).expect("room");
            self.lost += kill(rolling);
        } else {
            self.lost += kill(rolling);
            if let Ok(text) = fs::read(&self.options.path) {
                let head = HEADER.len().min(text.len());
                let keep = head + (text.len() - head) * usize::from(left) / 256;
                let file =
                    OpenOptions::new().write(true).open(&self.options.path).expect("the file");
                file.set_len(keep as u64).expect("a file that can be cut");
                self.lost += count(&text[head..]) - count(&text[head..keep]);
            }
        }
        self.rolling = Some(open(&self.options, Some(self.now_ns)));
        if !self.options.compress {
            let closed = closed(self.folder.path());
            assert!(closed.iter().all(|(_, body)| body.is_empty() || body.ends_with('\n')));
        }
    }

    /// Each record that was accepted and is not counted as lost exists once, in order.
    fn check(mut self) {
        let mut rolling = self.rolling.take().expect("it is open");
        rolling.room_bytes = None;
        rolling.tick(self.now_ns);
        self.lost += rolling.counts().records_lost;
        let _ = rolling.finish(self.now_ns);
        let closed = closed(self.folder.path());
        let mut numbers: Vec<u64> = Vec::new();
        for (name, body) in &closed {
            assert!(!self.options.compress || name.ends_with(".gz"), "{name} was not compressed");
            numbers.extend(body.lines().map(number));
        }
        assert!(
            numbers.is_sorted_by(|left, right| left < right),
            "out of order, or twice: {numbers:?}"
        );
        numbers.extend(self.moved.iter().flat_map(|body| body.lines().map(number)));
        let found: BTreeSet<u64> = numbers.iter().copied().collect();
        assert_eq!(found.len(), numbers.len(), "a record is there twice");
        assert_eq!(
            numbers.len() as u64 + self.lost,
            self.accepted,
            "records are missing, or too many"
        );
        let rest: Vec<String> = names_in(self.folder.path())
            .into_iter()
            .filter(|name| !closed.iter().any(|(other, _)| other == name) && name != "moved")
            .collect();
        assert!(rest.is_empty(), "these were left: {rest:?}");
    }
}

fn number(line: &str) -> u64 {
    line.split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("torn: {line:?}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    /// After any acts, every record that is not counted as lost is in one file, whole and in order,
    /// and every closed file has its header and footer. A kill is a drop without `finish`, with the
    /// file cut anywhere; a full disk is a limit of bytes. Invariants 1 and 2.
    #[test]
    fn records_are_found_once(
        acts in prop::collection::vec(act(), 1..60),
        bytes_max in prop::sample::select(vec![0u64, 100, 700, 5000]),
        every_s in prop::sample::select(vec![0u64, 60, 3600]),
        compress in any::<bool>(),
    ) {
        let mut model = Model::new(bytes_max, every_s, compress);
        acts.iter().for_each(|act| model.act(act));
        model.check();
    }

    /// After every write all files together are within the budget, except for one flush. Foreign
    /// files in the folder stay. Invariant 5.
    #[test]
    fn the_budget_is_kept(
        writes in prop::collection::vec((1..40usize, 0..200usize, 0..100i64), 1..60),
        compress in any::<bool>(),
    ) {
        const BUDGET: u64 = 10_000;
        let folder = tempfile::tempdir().expect("a folder");
        let foreign = ["flows.csv", "flows.2026-11-23.log", "dns.2026-11-23T10-00-00Z.log", "flows.2020-01-01T00-00-00Z.log.bak"];
        for name in foreign {
            fs::write(folder.path().join(name), [b'x'; 4000]).expect("room");
        }
        let options = RollingOptions { bytes_max: 3000, budget_bytes: BUDGET, compress, ..options(folder.path()) };
        let mut rolling = open(&options, Some(START));
        let mut now_ns = START;
        let mut number = 0u64;
        for (records, bytes, wait) in writes {
            now_ns += wait * SECOND;
            let mut text = String::new();
            for _ in 0..records {
                text.push_str(&format!("{number} {}\n", "x".repeat(bytes)));
                number += 1;
            }
            rolling.write(text.as_bytes(), now_ns);
            rolling.tick(now_ns);
            while compress && rolling.closed.iter().any(|closed| !closed.is_packed) {
                rolling.take_packed();
                std::thread::yield_now();
            }
            let ours = |name: &str| name.starts_with("flows.") && !foreign.contains(&name);
            let sum: u64 = names_in(folder.path())
                .iter()
                .filter(|name| ours(name))
                .filter_map(|name| fs::metadata(folder.path().join(name)).ok())
                .map(|data| data.len())
                .sum();
            prop_assert!(sum <= BUDGET, "{sum} octets");
        }
        let counts = rolling.finish(now_ns).expect("nothing was lost");
        prop_assert_eq!(counts.records_written, number);
        for name in foreign {
            prop_assert!(folder.path().join(name).exists(), "{} is not ours", name);
        }
        // The newest records exist.
        let numbers: Vec<u64> = closed(folder.path()).iter().flat_map(|(_, body)| body.lines().map(super::tests::number)).collect();
        prop_assert!(numbers.is_sorted() && numbers.last() == number.checked_sub(1).as_ref());
    }
}

/// A file is closed on the hour, is named by its first record, and one in the same second gets a
/// number. A clock that steps back by more than a period does not keep the file open for ever.
/// Invariant 6.
#[test]
fn hours_cut_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut rolling = open(&RollingOptions { every_s: 3600, ..options(folder.path()) }, None);
    let at = |second: i64| START + second * SECOND;
    rolling.write(b"1\n", at(1800));
    rolling.write(b"2\n", at(3599));
    rolling.write(b"3\n", at(3600));
    rolling.tick(at(7300));
    rolling.tick(at(11_000));
    rolling.write(b"4\n", at(11_001));
    // An hour in the far future, and back.
    rolling.write(b"5\n", at(90 * 86_400));
    rolling.write(b"6\n", at(11_003));
    rolling.write(b"7\n", at(14_400));
    rolling.reopen(at(14_400));
    rolling.write(b"8\n", at(14_400));
    rolling.finish(at(14_401)).expect("room");
    let closed = closed(folder.path());
    let closed: Vec<(&str, &str)> =
        closed.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
    assert_eq!(
        closed,
        [
            ("flows.2026-11-23T10-30-00Z.log", "1\n2\n"),
            ("flows.2026-11-23T11-00-00Z.log", "3\n"),
            ("flows.2026-11-23T13-03-21Z.log", "4\n"),
            ("flows.2026-11-23T14-00-00Z.log", "7\n"),
            ("flows.2026-11-23T14-00-00Z-1.log", "8\n"),
            ("flows.2027-02-21T10-00-00Z.log", "5\n6\n"),
        ]
    );
}

/// While the log is written, `current` leads to the file, no other process gets the lock, and
/// readers find the header. After the end there is neither link nor lock. A foreign file named
/// `current` stays. Invariant 4.
#[test]
fn one_writer_and_a_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    let rolling = open(&options, Some(START));
    assert_eq!(fs::read_to_string(folder.path().join("current")).expect("the link"), HEADER);
    let log = Log::new("annotate", Level::Info, Format::Text);
    let bare =
        |options| Rolling::open(options, Box::new(|_, _| {}), Box::new(|_, _| {}), None, &log);
    let other = bare(options.clone());
    let text = other.expect_err("taken").to_string();
    assert!(text.contains("another larder writes this log"), "{text}");
    rolling.finish(START).expect("room");
    assert_eq!(
        names_in(folder.path()).into_iter().collect::<Vec<_>>(),
        ["flows.2026-11-23T10-00-00Z.log"]
    );
    fs::write(folder.path().join("current"), "mine").expect("room");
    let rolling = logged(&options, Some(START), &log);
    let lines = log.take();
    assert!(
        lines[0].starts_with("warn annotate: no link to the log link=current error="),
        "{lines:?}"
    );
    rolling.finish(START).expect("room");
    assert_eq!(fs::read_to_string(folder.path().join("current")).expect("it stays"), "mine");
    let refused = RollingOptions { path: "/dev/null".into(), ..options };
    let text = bare(refused).expect_err("a device").to_string();
    assert!(text.contains("no plain file"), "{text}");
}

/// A file at the log's path without a lock is renamed unchanged. larder completes a compression
/// that a kill interrupted: it removes a partial file and compresses again, and of two complete
/// files it removes the plain one. Invariants 3 and 5.
#[test]
fn what_was_there_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("flows.log"), "somebody's\n").expect("room");
    let body = format!("{HEADER}1\n{FOOTER}");
    fs::write(path("flows.2026-11-23T08-00-00Z.log"), &body).expect("room");
    fs::write(path("flows.2026-11-23T08-00-00Z.log.gz.part"), "half").expect("room");
    fs::write(path("flows.2026-11-23T09-00-00Z.log"), &body).expect("room");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(body.as_bytes()).expect("memory");
    fs::write(path("flows.2026-11-23T09-00-00Z.log.gz"), packed.finish().expect("memory"))
        .expect("room");
    let rolling = open(&RollingOptions { compress: true, ..options(folder.path()) }, Some(START));
    let counts = rolling.finish(START).expect("room");
    assert_eq!((counts.files_closed, counts.files_compressed), (1, 2));
    let found = names_in(folder.path());
    let aside: Vec<&String> = found.iter().filter(|name| !name.ends_with(".gz")).collect();
    assert_eq!((found.len(), aside.len()), (4, 1), "{found:?}");
    assert_eq!(fs::read_to_string(path(aside[0])).expect("it is kept"), "somebody's\n");
    fs::remove_file(path(aside[0])).expect("ours");
    assert_eq!(closed(folder.path()).len(), 3);
    for name in found.iter().filter(|name| name.ends_with(".gz")) {
        let status =
            std::process::Command::new("gzip").arg("-t").arg(path(name)).status().expect("gzip");
        assert!(status.success(), "{name}");
    }
}

/// A full disk is logged once and counted, leaves no torn line, and the log continues when there is
/// room.
#[test]
fn a_full_disk_costs_records_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Log::new("annotate", Level::Info, Format::Text);
    let mut rolling = logged(&options(folder.path()), Some(START), &log);
    rolling.room_bytes = Some(11);
    rolling.write(b"first\nsecond\nthird\n", START);
    rolling.tick(START);
    rolling.write(b"fourth\n", START);
    rolling.tick(START);
    let lines = log.take();
    assert!(lines.len() == 1 && lines[0].starts_with("error annotate: output failed"), "{lines:?}");
    assert_eq!(
        fs::read_to_string(folder.path().join("flows.log")).expect("it"),
        format!("{HEADER}first\n")
    );
    rolling.room_bytes = None;
    rolling.write(b"fifth\n", START);
    rolling.tick(START);
    let lines = log.take();
    assert!(lines[0].starts_with("info annotate: output recovered path="), "{lines:?}");
    assert!(lines.len() == 1 && lines[0].ends_with(" records_lost=3"), "{lines:?}");
    let counts = rolling.finish(START).expect("there is room");
    assert_eq!((counts.records_written, counts.records_lost), (2, 3));
    assert_eq!(closed(folder.path())[0].1, "first\nfifth\n");
}
