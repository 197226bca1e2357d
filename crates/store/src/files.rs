//! The files of a store: how they are called, and how a segment begins.
//!
//! A segment says by itself which one it is: the section header's application (`shb_userappl`) is
//! `larder store segment=42 position=1234567 run=1000000`. *Run*: the position at which this process began to append; what
//! events say holds within a run, since nobody knows which flows went on between two.
//!
//! Files that are called otherwise, and captures without such a header, are not ours: they are left alone.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use larder_wire::capture::write;

use crate::block::Interface;

/// Octets of a section header that are looked at.
pub(crate) const HEADER_BYTES_MAX: usize = 512;

/// What kinds of files belong to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `N.pcapng`: closed.
    Closed,
    /// `N.pcapng.part`: it grows, or its writer was killed.
    Growing,
    /// `N.journal`: events of a segment that grows.
    Journal,
    /// `N.idx`: the index of a closed one.
    Index,
    /// `N.idx.part`: an index that is being written.
    IndexPart,
}

const SUFFIXES: [(Kind, &str); 5] = [
    (Kind::Closed, ".pcapng"),
    (Kind::Growing, ".pcapng.part"),
    (Kind::Journal, ".journal"),
    (Kind::Index, ".idx"),
    (Kind::IndexPart, ".idx.part"),
];

/// The file of a segment.
pub(crate) fn path(directory: &Path, number: u64, kind: Kind) -> PathBuf {
    let suffix = SUFFIXES.iter().find(|(of, _)| *of == kind).map_or("", |(_, suffix)| suffix);
    directory.join(format!("{number:08}{suffix}"))
}

/// The number and kind that a file's name says.
pub(crate) fn parse(name: &str) -> Option<(u64, Kind)> {
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = name.split_at(digits);
    let (kind, _) = SUFFIXES.iter().find(|(_, of)| *of == suffix)?;
    let number: u64 = number.parse().ok()?;
    // Ours have eight digits, or as many as it takes.
    (format!("{number:08}").len() == digits && number < u64::MAX / 2).then_some((number, *kind))
}

/// All files of segments in a folder, by number and kind, with their octets.
pub(crate) fn list(directory: &Path) -> io::Result<Vec<(u64, Kind, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Some((number, kind)) = entry.file_name().to_str().and_then(parse) else { continue };
        // It may have gone meanwhile.
        let Ok(about) = entry.metadata() else { continue };
        if about.is_file() {
            found.push((number, kind, about.len()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The file that a writer holds.
pub(crate) fn lock(directory: &Path) -> PathBuf {
    directory.join("lock")
}

/// True when a store keeps packets in the folder, or kept them: it has a segment of ours, or the lock of a writer.
pub(crate) fn is_store(directory: &Path) -> io::Result<bool> {
    let listed = list(directory)?;
    let is_ours = |(number, kind, _): &(u64, Kind, u64)| match kind {
        Kind::Closed | Kind::Growing => {
            matches!(Identity::read(&path(directory, *number, *kind)), Ok(Some(_)))
        }
        Kind::Journal | Kind::Index | Kind::IndexPart => true,
    };
    Ok(lock(directory).is_file() || listed.iter().any(is_ours))
}

/// Which segment it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub number: u64,
    /// Where its first octet is.
    pub position: u64,
    /// Where its run began.
    pub run: u64,
}

/// No position is as great in ten thousand years; those that files claim can then be added to.
const POSITION_MAX: u64 = 1 << 62;

impl Identity {
    /// What a file claims, if it can be.
    pub fn claimed(number: u64, position: u64, run: u64) -> Option<Identity> {
        let can_be = run <= position && position <= POSITION_MAX && number <= POSITION_MAX;
        can_be.then_some(Identity { number, position, run })
    }

    /// The blocks with which the segment begins.
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

    /// What the start of a file says.
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

    /// The same of a file; `None` when it is not a segment of ours.
    pub fn read(path: &Path) -> io::Result<Option<Identity>> {
        let mut head = Vec::new();
        fs::File::open(path)?.take(HEADER_BYTES_MAX as u64).read_to_end(&mut head)?;
        Ok(Identity::parse(&head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and headers of files say again what they were made of; other names and captures are not ours.
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
}
