//! The files of a store: their names, and the beginning of a segment.
//!
//! A segment has its identity in the section header's application (`shb_userappl`): `larder store
//! segment=42 position=1234567 run=1000000`. *Run*: the position at which this process began to
//! append. Events hold within a run, since flows may end between two.
//!
//! Files with other names, and captures without such a header, are foreign: they stay unchanged.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use larder_wire::capture::write;

use crate::block::Interface;

/// Bytes of a section header that are read.
pub(crate) const HEADER_BYTES_MAX: usize = 512;

/// The kinds of files of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `N.pcapng`: closed.
    Closed,
    /// `N.pcapng.zst`: closed and compressed (see `compress`).
    Compressed,
    /// `N.pcapng.zst.part`: a compressed one that is being written.
    CompressedPart,
    /// `N.pcapng.part`: it grows, or its writer was killed.
    Growing,
    /// `N.journal`: events of a segment that grows.
    Journal,
    /// `N.idx`: the index of a closed one.
    Index,
    /// `N.idx.part`: an index that is being written.
    IndexPart,
    /// `N.hooked`: the hook has run for the segment. It is empty.
    Hooked,
}

/// How the names of each kind end. In this order they are deleted: the packets first, since an index
/// without packets is ignored.
pub(crate) const SUFFIXES: [(Kind, &str); 8] = [
    (Kind::Closed, ".pcapng"),
    (Kind::Compressed, ".pcapng.zst"),
    (Kind::CompressedPart, ".pcapng.zst.part"),
    (Kind::Growing, ".pcapng.part"),
    (Kind::Journal, ".journal"),
    (Kind::Index, ".idx"),
    (Kind::IndexPart, ".idx.part"),
    (Kind::Hooked, ".hooked"),
];

/// The kinds of files with packets, in the order in which a segment has them.
pub(crate) const SEGMENTS: [Kind; 3] = [Kind::Growing, Kind::Closed, Kind::Compressed];

/// The file of a segment.
pub(crate) fn path(directory: &Path, number: u64, kind: Kind) -> PathBuf {
    let suffix = SUFFIXES.iter().find(|(of, _)| *of == kind).map_or("", |(_, suffix)| suffix);
    directory.join(format!("{number:08}{suffix}"))
}

/// The number and kind in a file's name.
pub(crate) fn parse(name: &str) -> Option<(u64, Kind)> {
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = name.split_at(digits);
    let (kind, _) = SUFFIXES.iter().find(|(_, of)| *of == suffix)?;
    let number: u64 = number.parse().ok()?;
    // Numbers have eight digits, or more if needed.
    (format!("{number:08}").len() == digits && number < u64::MAX / 2).then_some((number, *kind))
}

/// All files of segments in a folder, by number and kind, with their bytes. A file that is renamed
/// meanwhile may be missing under both names.
pub(crate) fn list(directory: &Path) -> io::Result<Vec<(u64, Kind, u64)>> {
    let mut found = Vec::new();
    each(directory, |number, kind, entry| {
        // It may have been deleted meanwhile.
        let about = entry.metadata().ok().filter(fs::Metadata::is_file);
        found.extend(about.map(|about| (number, kind, about.len())));
    })?;
    found.sort_unstable();
    Ok(found)
}

/// Numbers of the segments in a folder that a writer may be working in. No file is looked at: a
/// segment counts also if its file has another name by then.
pub(crate) fn numbers(directory: &Path) -> io::Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    each(directory, |number, kind, entry| {
        if SEGMENTS.contains(&kind) && entry.file_type().is_ok_and(|of| of.is_file()) {
            found.insert(number);
        }
    })?;
    Ok(found)
}

fn each(directory: &Path, mut visit: impl FnMut(u64, Kind, &fs::DirEntry)) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Some((number, kind)) = entry.file_name().to_str().and_then(parse) {
            visit(number, kind, &entry);
        }
    }
    Ok(())
}

/// The folder of pinned packets in that of a store.
pub(crate) fn pinned(directory: &Path) -> PathBuf {
    directory.join("pinned")
}

/// The lock file of a writer.
pub(crate) fn lock(directory: &Path) -> PathBuf {
    directory.join("lock")
}

/// The identity of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub number: u64,
    /// Position of its first byte.
    pub position: u64,
    /// Position at which its run began.
    pub run: u64,
}

/// No position becomes this large; positions in files can then be added to.
const POSITION_MAX: u64 = 1 << 62;

impl Identity {
    /// The identity in a file, if it is possible.
    pub fn claimed(number: u64, position: u64, run: u64) -> Option<Identity> {
        let can_be = run <= position && position <= POSITION_MAX && number <= POSITION_MAX;
        can_be.then_some(Identity { number, position, run })
    }

    /// The blocks at the beginning of the segment.
    pub fn header(&self, interfaces: &[Interface]) -> Vec<u8> {
        let mut out = Vec::new();
        let Identity { number, position, run } = self;
        write::section(
            &mut out,
            &format!("larder store segment={number} position={position} run={run}"),
        );
        for interface in interfaces {
            write::interface_named(
                &mut out,
                interface.link_type,
                interface.snap_bytes,
                &interface.name,
            );
        }
        out
    }

    /// The identity in the first bytes of a file.
    pub fn parse(bytes: &[u8]) -> Option<Identity> {
        let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let half = |at: usize| bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes);
        if word(0)? != 0x0a0d_0d0a || word(8)? != 0x1a2b_3c4d || half(24)? != 4 {
            return None;
        }
        let text = std::str::from_utf8(bytes.get(28..28 + usize::from(half(26)?))?).ok()?;
        let mut words = text.strip_prefix("larder store ")?.split(' ');
        let mut number = |key: &str| words.next()?.strip_prefix(key)?.parse().ok();
        Identity::claimed(number("segment=")?, number("position=")?, number("run=")?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Names and headers of files read back as they were made; other names and captures are
    /// foreign.
    #[test]
    fn files_say_whose_they_are() {
        for number in [0, 42, 99_999_999, 100_000_000] {
            for (kind, _) in SUFFIXES {
                let path = path(Path::new("/x"), number, kind);
                let name = path.file_name().unwrap().to_str().unwrap();
                assert_eq!(parse(name), Some((number, kind)));
            }
        }
        for name in ["1.pcapng", "000000042.idx", "00000042.pcap", "x00000042.idx", "lock", ".idx"]
        {
            assert_eq!(parse(name), None, "{name}");
        }
        let identity = Identity { number: 42, position: 1 << 40, run: 7 };
        let interface = Interface { name: "eth0".into(), link_type: 1, snap_bytes: 0 };
        let header = identity.header(std::slice::from_ref(&interface));
        assert_eq!(Identity::parse(&header), Some(identity));
        for (position, run) in [(7, 8), (u64::MAX, 7), (u64::MAX, u64::MAX)] {
            let impossible = Identity { number: 42, position, run };
            assert_eq!(Identity::parse(&impossible.header(&[])), None);
        }
        let mut foreign = Vec::new();
        write::section(&mut foreign, "dumpcap");
        assert_eq!(Identity::parse(&foreign), None);
        for cut in 0..header.len().min(28 + 40) {
            assert_eq!(Identity::parse(&header[..cut]), None, "{cut}");
        }
    }

    /// A segment is listed also when its file gets its next name between the listing and a look at
    /// the file.
    #[test]
    fn a_renamed_segment_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [Kind::Growing, Kind::Closed].map(|kind| path(folder.path(), 1, kind));
        fs::write(&one, b"").unwrap();
        let is_over = AtomicBool::new(false);
        let missed = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    fs::rename(&one, &other).unwrap();
                    fs::rename(&other, &one).unwrap();
                }
            });
            let missed = (0..20_000).filter(|_| numbers(folder.path()).unwrap().is_empty()).count();
            is_over.store(true, Ordering::Relaxed);
            missed
        });
        assert_eq!(missed, 0);
    }
}
