//! What a start finds: closed segments, and one that a killed writer left.
//!
//! A torn segment is cut behind its last whole block and closed, as though it had been sealed there. Where the disk refuses
//! that, it stays as it is: it can be read, and the next start tries again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_io::mapped::Mapped;

use crate::block::{self, Walker};
use crate::files::{self, Identity, Kind};
use crate::options::Counts;
use crate::shelf::{Content, Segment, Shelf};
use crate::shelver::Kept;

/// A segment that was closed here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closed {
    pub path: PathBuf,
    pub packets: u64,
    /// Of its packets.
    pub bytes: u64,
    /// With its index.
    pub bytes_of_all: u64,
    pub first_ns: Option<i64>,
    pub last_ns: Option<i64>,
}

/// Looks through the folder.
pub(crate) fn recover(directory: &Path, shelf: &Shelf, counts: &Counts) -> io::Result<Kept> {
    let mut kept = Kept::default();
    let listed = files::list(directory)?;
    kept.next_number = listed.last().map_or(0, |(number, ..)| number + 1);
    for of_one in listed.chunk_by(|one, other| one.0 == other.0) {
        let number = of_one[0].0;
        let has = |kind| of_one.iter().any(|(_, found, _)| *found == kind);
        let kind = if has(Kind::Closed) { Kind::Closed } else { Kind::Growing };
        let path = files::path(directory, number, kind);
        let identity = match Identity::read(&path) {
            Ok(Some(identity)) if identity.number == number => identity,
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // What is left of a segment that was deleted half.
                for (_, kind, _) in of_one {
                    let _ = fs::remove_file(files::path(directory, number, *kind));
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        let closed = match kind {
            Kind::Closed => look(directory, &path, number)?,
            _ => match close_part(directory, &identity) {
                Ok(closed) => {
                    counts.tell(format!(
                        "{}: was not closed; {} packets are kept",
                        path.display(),
                        closed.packets
                    ));
                    closed
                }
                Err(error) => {
                    counts.tell(format!("{}: cannot be closed: {error}", path.display()));
                    Closed { path, bytes_of_all: bytes_of(directory, number), ..Closed::default() }
                }
            },
        };
        kept.end = kept.end.max(identity.position + closed.bytes);
        if closed.packets == 0 && closed.bytes > 0 {
            continue;
        }
        kept.segments.push_back((number, closed.bytes_of_all));
        shelf.put(Segment {
            number,
            first_position: identity.position,
            first_ns: closed.first_ns,
            last_ns: closed.last_ns,
            packets: closed.packets,
            bytes: closed.bytes,
            is_closed: true,
            header: Arc::default(),
            content: Content::File(closed.path.clone(), closed.bytes),
            file: Some((closed.path, closed.bytes)),
        });
    }
    Ok(kept)
}

/// What all files of a segment have together.
pub(crate) fn bytes_of(directory: &Path, number: u64) -> u64 {
    [Kind::Closed, Kind::Growing, Kind::Journal, Kind::Index]
        .iter()
        .filter_map(|kind| fs::metadata(files::path(directory, number, *kind)).ok())
        .map(|about| about.len())
        .sum()
}

/// A segment that is closed already.
fn look(directory: &Path, path: &Path, number: u64) -> io::Result<Closed> {
    // A crash between the last two steps of closing leaves it.
    let _ = fs::remove_file(files::path(directory, number, Kind::Journal));
    let mut closed = scan(path)?;
    closed.bytes_of_all = bytes_of(directory, number);
    closed.path = path.to_owned();
    Ok(closed)
}

/// Cuts a segment behind its last whole block, and closes it. One without packets is deleted.
pub(crate) fn close_part(directory: &Path, identity: &Identity) -> io::Result<Closed> {
    let number = identity.number;
    let part = files::path(directory, number, Kind::Growing);
    let mut closed = scan(&part)?;
    if closed.packets == 0 {
        for kind in [Kind::Growing, Kind::Journal, Kind::IndexPart, Kind::Index] {
            let _ = fs::remove_file(files::path(directory, number, kind));
        }
        return Ok(closed);
    }
    File::options().write(true).open(&part)?.set_len(closed.bytes)?;
    closed.path = files::path(directory, number, Kind::Closed);
    fs::rename(&part, &closed.path)?;
    let _ = fs::remove_file(files::path(directory, number, Kind::Journal));
    closed.bytes_of_all = bytes_of(directory, number);
    Ok(closed)
}

/// Walks the blocks of a file.
fn scan(path: &Path) -> io::Result<Closed> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Closed::default()),
        file => file?,
    };
    let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut closed = Closed::default();
    if bytes == 0 {
        return Ok(closed);
    }
    let mapped = Mapped::new(&file, bytes)?;
    let mut walker = Walker::default();
    walker.feed(mapped.bytes(), |_, found| {
        let Some(packet) = block::packet(found) else { return };
        closed.packets += 1;
        closed.first_ns.get_or_insert(packet.ts_ns);
        closed.last_ns = closed.last_ns.max(Some(packet.ts_ns));
    });
    closed.bytes = walker.offset();
    Ok(closed)
}
