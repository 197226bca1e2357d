//! Files of an earlier run, and foreign files at the log's path.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use super::lock::Note;
use super::name::{Names, Stamp};

/// Truncates the file to this length, and seeks to its end.
pub(super) fn cut(file: &mut File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)?;
    file.seek(SeekFrom::Start(bytes)).map(drop)
}

/// Renames a file that is not larder's, so that nothing is lost.
pub(super) fn set_aside(names: &Names, last: Option<&Stamp>) -> io::Result<()> {
    let data = fs::symlink_metadata(names.path())?;
    fs::rename(names.path(), names.closed(&names.free(modified_ns(&data), last)))
}

/// Truncates a torn record, writes the footer, and closes the file. Returns its name and size;
/// `None`: there was no file.
pub(super) fn mend(
    names: &Names,
    note: Note,
    last: Option<&Stamp>,
    footer: impl FnOnce(i64) -> Vec<u8>,
) -> io::Result<Option<(Stamp, u64)>> {
    let mut file = match OpenOptions::new().read(true).write(true).open(names.path()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let data = file.metadata()?;
    let whole = whole_bytes(&file, data.len().min(note.whole_bytes.unwrap_or(u64::MAX)))?;
    if whole == 0 {
        fs::remove_file(names.path())?;
        return Ok(None);
    }
    cut(&mut file, whole)?;
    let foot = footer(modified_ns(&data));
    let mut bytes = whole + foot.len() as u64;
    if file.write_all(&foot).is_err() {
        // A full disk must not prevent the start.
        cut(&mut file, whole)?;
        bytes = whole;
    }
    let stamp = names.free(note.begin_ns.unwrap_or(modified_ns(&data)), last);
    fs::rename(names.path(), names.closed(&stamp))?;
    Ok(Some((stamp, bytes)))
}

/// Bytes up to the end of the last whole line among the first `bytes`.
fn whole_bytes(file: &File, mut bytes: u64) -> io::Result<u64> {
    const PIECE_BYTES: u64 = 64 << 10;
    let mut piece = vec![0; PIECE_BYTES as usize];
    while bytes > 0 {
        let len = bytes.min(PIECE_BYTES);
        let piece = &mut piece[..len as usize];
        file.read_exact_at(piece, bytes - len)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(bytes - len + at as u64 + 1);
        }
        bytes -= len;
    }
    Ok(0)
}

fn modified_ns(data: &fs::Metadata) -> i64 {
    data.mtime().saturating_mul(1_000_000_000).saturating_add(data.mtime_nsec())
}
