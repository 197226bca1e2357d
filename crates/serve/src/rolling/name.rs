//! Names of closed files, and times in them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use larder_wire::civil::Civil;

/// The time in a file's name, and how many files were before it in that second. The order of stamps
/// is that of time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp {
    time: String,
    number: u32,
}

/// `2026-11-23T10-00-00Z`
const TIME_BYTES: usize = 20;

/// The names of a log.
#[derive(Debug)]
pub(super) struct Names {
    folder: PathBuf,
    file: OsString,
    /// The part of the name before the time, with the point.
    before: Vec<u8>,
    /// The part after the time, with the point; empty for a name without an extension.
    behind: Vec<u8>,
}

/// A stamp, and the sizes of the plain and the compressed file.
type Found = (Stamp, Option<u64>, Option<u64>);

impl Names {
    /// The names of the log at `path`. A link is followed. A file that is not a plain one cannot be
    /// renamed, so it is refused.
    pub fn of(path: &Path) -> io::Result<Names> {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match fs::metadata(&path) {
            Ok(data) if !data.is_file() => {
                let what = "is no plain file, and can't be cut; leave the rotation to who reads it";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            _ => {}
        }
        let file = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let bytes = file.as_bytes();
        let end = match bytes.iter().rposition(|byte| *byte == b'.') {
            Some(at @ 1..) => at,
            _ => bytes.len(),
        };
        let (before, behind) = ([&bytes[..end], b"."].concat(), bytes[end..].to_vec());
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        Ok(Names { folder, file, before, behind })
    }

    /// The current file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.file)
    }

    /// The same for messages.
    pub fn shown(&self) -> String {
        larder_io::input::display_name(&self.path())
    }

    pub fn lock(&self) -> PathBuf {
        self.hidden(b".lock")
    }

    fn hidden(&self, ending: &[u8]) -> PathBuf {
        self.folder.join(OsString::from_vec([b".", self.file.as_bytes(), ending].concat()))
    }

    pub fn closed(&self, stamp: &Stamp) -> PathBuf {
        let number = if stamp.number == 0 { String::new() } else { format!("-{}", stamp.number) };
        let name = [&self.before, stamp.time.as_bytes(), number.as_bytes(), &self.behind].concat();
        self.folder.join(OsString::from_vec(name))
    }

    pub fn packed(&self, stamp: &Stamp) -> PathBuf {
        with_ending(self.closed(stamp), ".gz")
    }

    /// A stamp of that second that no file has. It is after `last` if that is of the same second: a
    /// removed name is not used again, or the order would be wrong.
    pub fn free(&self, begin_ns: i64, last: Option<&Stamp>) -> Stamp {
        let time = time(begin_ns);
        let number = last.filter(|last| last.time == time).map_or(0, |last| last.number + 1);
        let mut stamp = Stamp { time, number };
        let is_taken = |path: PathBuf| fs::symlink_metadata(path).is_ok();
        while is_taken(self.closed(&stamp)) || is_taken(self.packed(&stamp)) {
            stamp.number += 1;
        }
        stamp
    }

    /// The files with such names, oldest first. Removes files of a compression that did not end.
    pub fn list(&self) -> io::Result<Vec<Found>> {
        let mut found: BTreeMap<Stamp, (Option<u64>, Option<u64>)> = BTreeMap::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((stamp, ending)) = self.parse(name.as_bytes()) else { continue };
            let data = entry.metadata()?;
            if !data.is_file() {
                continue;
            }
            match ending {
                b"" => found.entry(stamp).or_default().0 = Some(data.len()),
                b".gz" => found.entry(stamp).or_default().1 = Some(data.len()),
                b".gz.part" => fs::remove_file(entry.path())?,
                _ => {}
            }
        }
        Ok(found.into_iter().map(|(stamp, (plain, packed))| (stamp, plain, packed)).collect())
    }

    /// The stamp in a name, and the part after the log's own extension.
    fn parse<'a>(&self, name: &'a [u8]) -> Option<(Stamp, &'a [u8])> {
        let (time, mut rest) = name.strip_prefix(&self.before[..])?.split_at_checked(TIME_BYTES)?;
        let fits = time.iter().zip(b"0000-00-00T00-00-00Z").all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            form => byte == form,
        });
        if !fits {
            return None;
        }
        let time = String::from_utf8(time.to_vec()).ok()?;
        let mut number = 0;
        if let Some(numbered) = rest.strip_prefix(b"-") {
            let digits = numbered.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (text, behind) = numbered.split_at(digits);
            number = std::str::from_utf8(text).ok()?.parse().ok()?;
            if number == 0 || text.starts_with(b"0") {
                return None;
            }
            rest = behind;
        }
        Some((Stamp { time, number }, rest.strip_prefix(&self.behind[..])?))
    }

    /// Makes a link to the file, unless something other than a link has its name.
    pub fn link(&self, name: &str) -> io::Result<()> {
        let link = self.folder.join(name);
        match fs::symlink_metadata(&link) {
            Ok(data) if !data.is_symlink() => return Err(io::ErrorKind::AlreadyExists.into()),
            Ok(_) if fs::read_link(&link)?.as_os_str() == self.file => return Ok(()),
            _ => {}
        }
        let new = self.hidden(b".link");
        let _ = fs::remove_file(&new);
        symlink(&self.file, &new)?;
        fs::rename(&new, &link)
    }

    /// Removes the link, if it leads to this file.
    pub fn unlink(&self, name: &str) {
        let link = self.folder.join(name);
        if fs::read_link(&link).is_ok_and(|target| target.as_os_str() == self.file) {
            let _ = fs::remove_file(&link);
        }
    }
}

/// The path with `ending` appended.
pub(super) fn with_ending(path: PathBuf, ending: &str) -> PathBuf {
    let mut path = path.into_os_string();
    path.push(ending);
    path.into()
}

/// A time in the form of names: UTC, years with four digits.
fn time(ns: i64) -> String {
    format!("{:.0}", Civil::from_ns(ns)).replace(':', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name is read as it was made, and a foreign name is never accepted as one of the log.
    #[test]
    fn names_are_read_as_they_were_made() {
        let names = Names::of(Path::new("/nowhere/flows.log")).expect("a name");
        let stamp = |number| Stamp { time: time(1_795_428_000_000_000_000), number };
        for number in [0, 1, 17] {
            let closed = names.closed(&stamp(number));
            let name = closed.file_name().expect("a name").as_bytes();
            assert_eq!(names.parse(name), Some((stamp(number), &b""[..])));
            let packed = names.packed(&stamp(number));
            let name = packed.file_name().expect("a name").as_bytes();
            assert_eq!(names.parse(name), Some((stamp(number), &b".gz"[..])));
        }
        assert_eq!(
            names.closed(&stamp(0)).to_str(),
            Some("/nowhere/flows.2026-11-23T10-00-00Z.log")
        );
        for foreign in [
            "flows.log",
            "flows.2026-11-23.log",
            "flows.2026-11-23T10-00-00Z.csv",
            "dns.2026-11-23T10-00-00Z.log",
            "flows.2026-11-23T10-00-00Z-0.log",
            "flows.2026-11-23T10-00-00Z-x.log",
            "flows.2026-11-23T10:00:00Z.log",
        ] {
            assert_eq!(names.parse(foreign.as_bytes()), None, "{foreign}");
        }
        let bare = Names::of(Path::new("flows")).expect("a name");
        assert_eq!(bare.closed(&stamp(2)).to_str(), Some("./flows.2026-11-23T10-00-00Z-2"));
    }
}
