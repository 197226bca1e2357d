//! Recovery at a start: closed segments, and one that a killed writer left.
//!
//! A torn segment is cut after its last whole block and closed, as if it had been sealed there. A
//! damaged part before that (a page that a power failure left empty) becomes a block of a type that
//! readers skip; the packets after it stay. If the disk refuses that, the segment stays as it is:
//! it can be read, and the next start tries again.
//!
//! Of a segment that was being compressed, the part is deleted; if both files are there, the
//! uncompressed one stays (see `compress`).

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_io::access::Access;

use crate::block::{self, Walked};
use crate::catalog::{Catalog, Content, Hook, Segment};
use crate::files::{self, Identity, Kind};
use crate::flow_names::FlowNames;
use crate::flows::Flows;
use crate::index::{self, Index};
use crate::journal;
use crate::options::Counts;
use crate::source::Source;

/// The closed segments.
#[derive(Debug, Default)]
pub(crate) struct StoredSegments {
    /// Number, and bytes of all its files; the oldest first.
    pub segments: VecDeque<(u64, u64)>,
    /// The next segment's number.
    pub next_number: u64,
    /// The position after all of them.
    pub end: u64,
}

/// A segment that recovery closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closed {
    pub path: PathBuf,
    pub packets: u64,
    /// Bytes of its packets.
    pub bytes: u64,
    /// Bytes including its index.
    pub bytes_of_all: u64,
    pub first_ns: Option<i64>,
    pub last_ns: Option<i64>,
    /// Bytes between its packets that cannot be read.
    pub damaged_bytes: u64,
}

/// Reads the folder.
pub(crate) fn recover(
    directory: &Path,
    access: Access,
    catalog: &Catalog,
    counts: &Counts,
) -> io::Result<StoredSegments> {
    let mut stored = StoredSegments::default();
    let listed = files::list(directory)?;
    let seed = Flows::seed();
    let mut flow_names = FlowNames::default();
    let mut run = None;
    stored.next_number = listed.last().map_or(0, |(number, ..)| number + 1);
    for of_one in listed.chunk_by(|one, other| one.0 == other.0) {
        let number = of_one[0].0;
        let has = |kind| of_one.iter().any(|(_, found, _)| *found == kind);
        let kinds = [Kind::Closed, Kind::Compressed];
        let kind = kinds.into_iter().find(|kind| has(*kind)).unwrap_or(Kind::Growing);
        let path = files::path(directory, number, kind);
        let identity = match identity_of(directory, number, kind, &path)? {
            Whose::Ours(identity) => {
                for (_, of_file, _) in of_one {
                    let path = files::path(directory, number, *of_file);
                    match of_file {
                        // The writer was killed before it was whole, or before the other was
                        // deleted.
                        Kind::CompressedPart => fs::remove_file(path)?,
                        Kind::Compressed if kind == Kind::Closed => fs::remove_file(path)?,
                        // An earlier run may have had another group, or none.
                        _ => access.apply(&path)?,
                    }
                }
                identity
            }
            Whose::Foreign => continue,
            // The rest of a segment that was deleted in part.
            Whose::Gone => {
                for (_, kind, _) in of_one {
                    let _ = fs::remove_file(files::path(directory, number, *kind));
                }
                continue;
            }
        };
        if run.replace(identity.run) != Some(identity.run) {
            flow_names = FlowNames::default();
        }
        let closed = match kind {
            Kind::Closed | Kind::Compressed => look(directory, kind, &path, &identity)?,
            _ => close_torn(directory, access, &identity, &listed, &mut flow_names, seed, counts)?,
        };
        stored.end = stored.end.max(identity.position + closed.bytes);
        if closed.bytes_of_all == 0 {
            continue;
        }
        stored.segments.push_back((number, closed.bytes_of_all));
        catalog.put(segment(&identity, kind, closed, has(Kind::Hooked))?);
    }
    Ok(stored)
}

/// A closed segment for the catalog; `kind`: that of its file before the start.
fn segment(
    identity: &Identity,
    kind: Kind,
    closed: Closed,
    is_hooked: bool,
) -> io::Result<Segment> {
    let content = match kind {
        Kind::Compressed => {
            let bytes = fs::metadata(&closed.path)?.len();
            Content::Compressed(closed.path.clone(), bytes)
        }
        _ => Content::File(closed.path.clone(), closed.bytes),
    };
    // One that could not be closed stays as it is.
    let is_open = closed.path.extension().is_some_and(|extension| extension == "part");
    Ok(Segment {
        number: identity.number,
        first_position: identity.position,
        first_ns: closed.first_ns,
        last_ns: closed.last_ns,
        packets: closed.packets,
        bytes: closed.bytes,
        is_closed: true,
        header: Arc::default(),
        file: (!is_open).then(|| content.clone()),
        content,
        is_final: is_open || kind == Kind::Compressed,
        hook: match (is_open, is_hooked) {
            (true, _) => Hook::Failed,
            (_, true) => Hook::Done,
            _ => Hook::Waiting,
        },
    })
}

/// The owner of a file with the name of a segment.
enum Whose {
    Ours(Identity),
    Foreign,
    Gone,
}

fn identity_of(directory: &Path, number: u64, kind: Kind, path: &Path) -> io::Result<Whose> {
    match Source::identity(path, kind) {
        Ok(Some(identity)) if identity.number == number => return Ok(Whose::Ours(identity)),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Whose::Gone),
        Err(error) => return Err(error),
    }
    // The writer was killed before it wrote the header. The journal is older, and may have events
    // of earlier packets.
    let journal = fs::read(files::path(directory, number, Kind::Journal));
    if kind == Kind::Growing
        && journal.as_ref().is_ok_and(|bytes| bytes.len() < journal::HEADER_BYTES)
    {
        // The journal has no header either: there were no packets.
        return Ok(Whose::Gone);
    }
    let journal = journal.unwrap_or_default();
    match journal::identity(&journal).filter(|identity| identity.number == number) {
        Some(identity) if kind == Kind::Growing => {
            fs::write(path, identity.header(&[]))?;
            Ok(Whose::Ours(identity))
        }
        _ => Ok(Whose::Foreign),
    }
}

/// Bytes of all files of a segment.
pub(crate) fn bytes_of(directory: &Path, number: u64) -> u64 {
    [Kind::Closed, Kind::Compressed, Kind::Growing, Kind::Journal, Kind::Index]
        .iter()
        .filter_map(|kind| fs::metadata(files::path(directory, number, *kind)).ok())
        .map(|about| about.len())
        .sum()
}

/// Reads a segment that is already closed.
fn look(directory: &Path, kind: Kind, path: &Path, identity: &Identity) -> io::Result<Closed> {
    let number = identity.number;
    // Left by a crash between the last two steps of closing.
    let _ = fs::remove_file(files::path(directory, number, Kind::Journal));
    let of_index = match Index::open(&files::path(directory, number, Kind::Index)) {
        Ok(Ok(index)) if index.identity == *identity => Some(index),
        _ => None,
    };
    let bytes = Source::open(path, kind)?.bytes()?;
    let mut closed = match of_index {
        Some(index) if index.bytes == bytes => Closed {
            packets: index.packets,
            bytes,
            first_ns: (index.packets > 0).then_some(index.times_ns.0),
            last_ns: (index.packets > 0).then_some(index.times_ns.1),
            ..Closed::default()
        },
        _ => Closed { bytes, ..scan(path, kind, 0)?.0 },
    };
    closed.bytes_of_all = bytes_of(directory, number);
    closed.path = path.to_owned();
    Ok(closed)
}

/// Closes the segment of a killed writer.
fn close_torn(
    directory: &Path,
    access: Access,
    identity: &Identity,
    listed: &[(u64, Kind, u64)],
    flow_names: &mut FlowNames,
    seed: u64,
    counts: &Counts,
) -> io::Result<Closed> {
    // Names of flows from earlier segments of the same run.
    let earlier =
        listed.iter().filter(|(number, kind, _)| *kind == Kind::Index && *number < identity.number);
    for (number, ..) in earlier {
        if let Ok(Ok(index)) = Index::open(&files::path(directory, *number, Kind::Index))
            && index.identity.run == identity.run
        {
            index
                .events()
                .unwrap_or_default()
                .into_iter()
                .for_each(|event| flow_names.remember(event));
        }
    }
    let journal = fs::read(files::path(directory, identity.number, Kind::Journal)).ok();
    let is_sound = journal::read(journal.as_deref(), identity, |event| flow_names.take(event));
    let (closed, result) = close_part(directory, access, identity, flow_names, seed);
    match result {
        Ok(()) => {
            let path = files::path(directory, identity.number, Kind::Growing);
            let line = counts.log.info("segment recovered").text("path", path.display());
            line.number("packets", closed.packets);
        }
        Err(error) => {
            let line = counts.log.error("segment not recovered");
            line.text("path", closed.path.display()).text("error", error);
        }
    }
    if closed.packets > 0 && !is_sound {
        let line = counts.log.warn("journal damaged; names of flows may be missing");
        line.text("path", closed.path.display());
    }
    if closed.damaged_bytes > 0 {
        let line = counts.log.warn("segment damaged").text("path", closed.path.display());
        line.number("damaged_bytes", closed.damaged_bytes);
    }
    Ok(closed)
}

/// Cuts a segment after its last whole block, and closes it with an index. One without packets and
/// events is deleted. Returns the stored data also if closing fails: then the segment stays as it
/// was.
pub(crate) fn close_part(
    directory: &Path,
    access: Access,
    identity: &Identity,
    flow_names: &FlowNames,
    seed: u64,
) -> (Closed, io::Result<()>) {
    let number = identity.number;
    let part = files::path(directory, number, Kind::Growing);
    let (mut closed, flows, walked) = match scan(&part, Kind::Growing, seed) {
        Ok(scanned) => scanned,
        Err(error) => {
            let bytes_of_all = bytes_of(directory, number);
            return (Closed { path: part, bytes_of_all, ..Closed::default() }, Err(error));
        }
    };
    if closed.packets == 0 && !flow_names.has_news() {
        for kind in [Kind::Growing, Kind::Journal, Kind::IndexPart, Kind::Index] {
            let _ = fs::remove_file(files::path(directory, number, kind));
        }
        return (closed, Ok(()));
    }
    closed.path = part.clone();
    let close = || {
        let file = File::options().write(true).open(&part)?;
        file.set_len(closed.bytes)?;
        for (place, cover) in walked.holes.iter().flat_map(block::covers) {
            file.write_all_at(&cover, place)?;
        }
        let events = flow_names.of_segment(identity.position, &flows);
        let index_bytes = index::build(identity, closed.bytes, &flows, &events, false);
        let aside = files::path(directory, number, Kind::IndexPart);
        access.create(&aside)?.write_all(&index_bytes)?;
        fs::rename(&aside, files::path(directory, number, Kind::Index))?;
        fs::rename(&part, files::path(directory, number, Kind::Closed))
    };
    let result = close();
    if result.is_ok() {
        closed.path = files::path(directory, number, Kind::Closed);
        let _ = fs::remove_file(files::path(directory, number, Kind::Journal));
    }
    closed.bytes_of_all = bytes_of(directory, number);
    (closed, result)
}

/// Walks the blocks of a file.
fn scan(path: &Path, kind: Kind, seed: u64) -> io::Result<(Closed, Flows, Walked)> {
    let mut flows = Flows::new(seed);
    let mut source = match Source::open(path, kind) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((Closed::default(), flows, Walked::default()));
        }
        source => source?,
    };
    let whole = source.whole(source.bytes()?)?;
    let walked = block::walk(whole.bytes(), |offset, block| {
        flows.block(offset, block);
    });
    let closed = Closed {
        packets: flows.count,
        bytes: walked.end,
        first_ns: flows.first_ns,
        last_ns: flows.last_ns,
        damaged_bytes: walked.hole_bytes(),
        ..Closed::default()
    };
    Ok((closed, flows, walked))
}
