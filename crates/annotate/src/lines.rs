//! Logs of lines: one file from the start of the run to its end, or files that follow each other
//! (rotation).
//!
//! Times are those of packets, so the place of a cut is a function of the input, as the log itself
//! is: an hour of a capture is in one file, whenever it is read. In live capture the two times are
//! the same.
//!
//! A log in one file ends the run if it cannot be written. A rotated log drops records and goes on,
//! as described in [`larder_serve::rolling`].

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_io::access::Access;
use larder_io::output::Output;
use larder_serve::rolling::{Lines, Rolling, RollingOptions};

use crate::files::open_output;
use crate::format::Format;
use crate::options::{Endpoint, Options};
use crate::{Error, Progress};

/// The link in the log's directory to the file that is being written.
const LINK: &str = "current";

/// The lines before the first record of a file, and after its last.
pub(crate) struct Frame {
    header: Lines,
    footer: Lines,
    /// The header states the time of the first packet.
    states_time: bool,
}

impl Frame {
    /// The header and footer of a format; they state the time at which they are written.
    pub(crate) fn of(format: Format) -> Frame {
        let states_time = format.writer().states_time();
        let format = Arc::new(format);
        let same = Arc::clone(&format);
        Frame {
            header: Box::new(move |now_ns, out| format.writer().header(now_ns, out)),
            footer: Box::new(move |now_ns, out| same.writer().footer(now_ns, out)),
            states_time,
        }
    }

    /// A fixed header, and no footer.
    pub(crate) fn of_text(header: &'static str) -> Frame {
        let header: Lines = Box::new(move |_, out| out.extend_from_slice(header.as_bytes()));
        Frame { header, footer: Box::new(|_, _| {}), states_time: false }
    }
}

/// See the module.
pub(crate) enum LineLog {
    One(Box<One>),
    /// With the number of records that were reported as lost.
    Rolling(Box<Rolling>, u64),
}

/// A log in one file, or on standard output.
pub(crate) struct One {
    out: Output,
    frame: Frame,
    /// The time that the header states, ns; `None` before it is written.
    opened_ns: Option<i64>,
    /// A plain file, and its inode number: it may be renamed.
    file: Option<(PathBuf, u64)>,
    access: Access,
}

impl LineLog {
    /// Opens it, and writes nothing yet. Standard output is never rotated.
    pub(crate) fn open(
        endpoint: &Endpoint,
        options: &Options,
        is_linked: bool,
        frame: Frame,
    ) -> Result<LineLog, Error> {
        let Options { rotation, access, log, .. } = options;
        let access = *access;
        let path = match endpoint {
            Endpoint::Path(path) if rotation.is_wanted() => path,
            _ => {
                let out = open_output(endpoint, access)?;
                let file = match endpoint {
                    Endpoint::Path(path) => number(path).map(|number| (path.clone(), number)),
                    _ => None,
                };
                let one = One { out, frame, opened_ns: None, file, access };
                return Ok(LineLog::One(Box::new(one)));
            }
        };
        let options = RollingOptions {
            path: path.clone(),
            bytes_max: rotation.bytes_max,
            every_s: rotation.every_s.into(),
            compress: rotation.compress,
            budget_bytes: rotation.budget_bytes,
            link: is_linked.then(|| LINK.to_owned()),
            access,
        };
        let rolling = Rolling::open(options, frame.header, frame.footer, None, log)?;
        Ok(LineLog::Rolling(Box::new(rolling), 0))
    }

    /// Writes a header that states no time, so that a program that reads a pipe sees at once that
    /// larder runs.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        match self {
            LineLog::One(one) if !one.frame.states_time => one.begin(0),
            _ => Ok(()),
        }
    }

    /// Writes the header of a log in one file, if it was not written yet. It states the time of the
    /// input's first packet, so that the log of a capture is the same bytes in every run. A rotated
    /// log states the time of its first record.
    pub(crate) fn begin(&mut self, first_ns: i64) -> Result<(), Error> {
        match self {
            LineLog::One(one) if one.opened_ns.is_none() => one.begin(first_ns),
            _ => Ok(()),
        }
    }

    /// Accepts whole records.
    pub(crate) fn write(&mut self, records: &[u8], now_ns: i64) -> Result<(), Error> {
        self.begin(now_ns)?;
        match self {
            LineLog::One(one) => Ok(one.out.write_all(records)?),
            LineLog::Rolling(rolling, _) => {
                rolling.write(records, now_ns);
                Ok(())
            }
        }
    }

    /// Ends a batch: in live capture its records are flushed, and lost records are counted.
    pub(crate) fn end_batch(
        &mut self,
        is_live: bool,
        now_ns: i64,
        progress: &Progress,
    ) -> Result<(), Error> {
        match self {
            LineLog::One(one) if is_live => one.out.flush()?,
            LineLog::One(_) => {}
            LineLog::Rolling(rolling, lost) => {
                if is_live {
                    rolling.tick(now_ns);
                }
                // Both logs of a run add to one sum.
                let before = std::mem::replace(lost, rolling.counts().records_lost);
                let total = &progress.live_stats.totals.records_lost;
                total.fetch_add(*lost - before, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Opens the log again: its file was renamed, or is to be closed.
    pub(crate) fn reopen(&mut self, now_ns: i64) -> Result<(), Error> {
        match self {
            LineLog::One(one) => one.reopen(now_ns),
            LineLog::Rolling(rolling, _) => {
                rolling.reopen(now_ns);
                Ok(())
            }
        }
    }

    /// Writes the footer, and closes.
    pub(crate) fn finish(self, now_ns: i64) -> Result<(), Error> {
        match self {
            LineLog::One(mut one) => {
                if one.opened_ns.is_none() {
                    one.begin(now_ns)?;
                }
                let One { mut out, mut frame, opened_ns, .. } = *one;
                let mut foot = Vec::new();
                // Packets without a flow do not change a record's time.
                (frame.footer)(
                    opened_ns.map_or(now_ns, |opened_ns| now_ns.max(opened_ns)),
                    &mut foot,
                );
                out.write_all(&foot)?;
                Ok(out.finish()?)
            }
            LineLog::Rolling(mut rolling, _) => {
                rolling.tick(now_ns);
                rolling.finish(now_ns)?;
                Ok(())
            }
        }
    }
}

impl One {
    fn begin(&mut self, first_ns: i64) -> Result<(), Error> {
        let mut head = Vec::new();
        (self.frame.header)(first_ns, &mut head);
        self.out.write_all(&head)?;
        self.opened_ns = Some(first_ns);
        Ok(self.out.flush()?)
    }

    /// A renamed file gets its footer, and a new file is opened.
    fn reopen(&mut self, now_ns: i64) -> Result<(), Error> {
        self.out.flush()?;
        let Some((path, own)) = self.file.clone() else { return Ok(()) };
        if number(&path) == Some(own) {
            return Ok(());
        }
        if self.opened_ns.is_none() {
            self.begin(now_ns)?;
        }
        let mut foot = Vec::new();
        (self.frame.footer)(now_ns, &mut foot);
        self.out.write_all(&foot)?;
        let out = std::mem::replace(&mut self.out, Output::create_for(&path, self.access)?);
        out.finish()?;
        let own = number(&path).unwrap_or(own);
        self.file = Some((path, own));
        self.begin(now_ns)
    }
}

/// The inode number of a plain file.
fn number(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|data| data.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{OutputFormat, Rotation};

    /// On request, a log whose file was renamed ends there and goes on in a new file; one in its
    /// place goes on. A rotated log is closed by the same request.
    #[test]
    fn a_renamed_log_is_begun_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("flows.log");
        let endpoint = Endpoint::Path(path.clone());
        let open = |rotation: Rotation| {
            let options = Options { rotation, ..Options::default() };
            let format = Format::new(OutputFormat::Zeek, false).expect("a format");
            let mut log =
                LineLog::open(&endpoint, &options, true, Frame::of(format)).expect("a file");
            log.start().expect("room");
            log
        };
        let framed = |path: &Path, body: &str| {
            let text = fs::read_to_string(path).expect("a log");
            let lines: Vec<&str> = text.lines().collect();
            assert!(
                lines[0].starts_with("#separator") && lines[lines.len() - 1].starts_with("#close")
            );
            let found: Vec<&str> =
                lines.into_iter().filter(|line| !line.starts_with('#')).collect();
            assert_eq!(found, body.lines().collect::<Vec<_>>(), "{}", path.display());
        };
        let moved = folder.path().join("flows.log.1");
        let mut log = open(Rotation::default());
        log.write(b"1\n", 0).expect("room");
        log.reopen(0).expect("room");
        log.write(b"2\n", 0).expect("room");
        fs::rename(&path, &moved).expect("it is there");
        log.write(b"3\n", 0).expect("room");
        log.reopen(0).expect("room");
        log.write(b"4\n", 0).expect("room");
        log.finish(0).expect("room");
        framed(&moved, "1\n2\n3\n");
        framed(&path, "4\n");
        fs::remove_file(&path).expect("it is there");

        let mut log = open(Rotation { every_s: 3600, ..Rotation::default() });
        log.write(b"5\n", 0).expect("room");
        log.reopen(0).expect("room");
        log.write(b"6\n", 0).expect("room");
        log.finish(0).expect("room");
        framed(&folder.path().join("flows.1970-01-01T00-00-00Z.log"), "5\n");
        framed(&folder.path().join("flows.1970-01-01T00-00-00Z-1.log"), "6\n");
    }
}
