//! A file, standard output or a connection behind a large buffer. Every accepted byte is written or an error is
//! returned, also for errors that appear only when the file is closed.
//!
//! Bound: [`BUFFER_BYTES`]; longer writes pass by the buffer.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::sync::Once;

use crate::access::Access;
use crate::input::display_name;
use crate::over_tcp::Remote;

/// Bytes gathered before the system is called.
pub const BUFFER_BYTES: usize = 256 << 10;

/// A destination of text or packets. Drop without [`Output::finish`] tries to write the buffer and
/// ignores the result.
#[derive(Debug)]
#[must_use = "only `finish` says whether everything was written"]
pub struct Output {
    name: String,
    /// `None` when closed.
    file: Option<File>,
    buffer: Vec<u8>,
}

/// Why an output cannot be written. The text states what to do next.
#[derive(Debug)]
#[non_exhaustive]
pub enum OutputError {
    /// The reader of a pipe has closed it, which is no failure. The caller should end quietly.
    ClosedPipe,
    /// The system refuses. The caller should make room or name another place.
    Failed {
        /// The output.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}

impl OutputError {
    /// Names an error of the system.
    pub fn new(name: &str, source: io::Error) -> OutputError {
        match source.kind() {
            io::ErrorKind::BrokenPipe => OutputError::ClosedPipe,
            _ => OutputError::Failed { name: name.to_owned(), source },
        }
    }
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutputError::ClosedPipe => f.write_str("the output was closed by its reader"),
            OutputError::Failed { name, source } => {
                // Our own errors name the output already.
                if source.get_ref().is_some() {
                    return write!(f, "{name}: {source}");
                }
                let advice = match source.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        "make room there, or write to another place"
                    }
                    io::ErrorKind::FileTooLarge => "raise the limit (`ulimit -f`)",
                    io::ErrorKind::NotFound => "create the directory first",
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                        "name a place where you may write"
                    }
                    io::ErrorKind::IsADirectory => "name a file in it",
                    _ => "what was written before is incomplete",
                };
                write!(f, "{name}: {source}; {advice}")
            }
        }
    }
}

impl std::error::Error for OutputError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OutputError::ClosedPipe => None,
            OutputError::Failed { source, .. } => Some(source),
        }
    }
}

impl Output {
    /// Creates or empties the file at `path`, which its owner alone may read; `-` is standard
    /// output.
    pub fn create(path: &Path) -> Result<Output, OutputError> {
        Output::create_for(path, Access::PRIVATE)
    }

    /// Like [`Output::create`], with the mode and group of `access`.
    pub fn create_for(path: &Path, access: Access) -> Result<Output, OutputError> {
        ignore_sigpipe();
        let (name, file) = match path.as_os_str() == "-" {
            true => (
                "standard output".to_owned(),
                io::stdout().as_fd().try_clone_to_owned().map(File::from),
            ),
            false => (display_name(path), access.create(path)),
        };
        match file {
            Ok(file) => {
                let buffer = Vec::with_capacity(BUFFER_BYTES);
                Ok(Output { name, file: Some(file), buffer })
            }
            Err(error) => Err(OutputError::new(&name, error)),
        }
    }

    /// Connects to a program that receives a capture.
    pub fn connect(remote: &Remote) -> Result<Output, OutputError> {
        ignore_sigpipe();
        let name = remote.to_string();
        let stream = remote.connect().map_err(|error| OutputError::new(&name, error))?;
        let file = Some(File::from(OwnedFd::from(stream)));
        Ok(Output { name, file, buffer: Vec::with_capacity(BUFFER_BYTES) })
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Accepts bytes.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        Write::write_all(self, bytes).map_err(|error| OutputError::new(&self.name, error))
    }

    /// Writes all accepted bytes to the system.
    pub fn flush(&mut self) -> Result<(), OutputError> {
        Write::flush(self).map_err(|error| OutputError::new(&self.name, error))
    }

    /// Flushes and closes; only `Ok` means that everything was written.
    pub fn finish(mut self) -> Result<(), OutputError> {
        self.flush()?;
        let Some(fd) = self.file.take().map(IntoRawFd::into_raw_fd) else { return Ok(()) };
        // SAFETY: `into_raw_fd` made us the only owner of the descriptor, and it is not used
        // after. (`File` would close it too, but drops the error, where network file systems
        // report what they could not store.)
        if unsafe { libc::close(fd) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            // Linux has closed it all the same.
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(OutputError::new(&self.name, error)),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = Write::flush(self);
    }
}

/// For writers that want the standard trait; [`OutputError::new`] names their errors.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write_all(self, bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            Write::flush(self)?;
        }
        if bytes.len() >= BUFFER_BYTES {
            return self.put(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Bytes that were not written because of an error are dropped: the error is final.
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.put(&buffer);
        buffer.clear();
        self.buffer = buffer;
        result
    }
}

/// Makes a write to a closed pipe an error instead of the end of the process, unless the process
/// has set another action. Rust programs start that way; a library may be in a process that is not.
fn ignore_sigpipe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeros is a valid `sigaction` to be filled; only the default action, which no
        // code has set, is replaced.
        unsafe {
            let mut current: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut current) == 0
                && current.sa_sigaction == libc::SIG_DFL
            {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// All short and long writes arrive, in order.
    #[test]
    fn nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut output = Output::create(&path).unwrap();
        let mut want = Vec::new();
        for n in 0..400usize {
            let piece = vec![n as u8; if n % 97 == 0 { BUFFER_BYTES + n } else { n * 9 }];
            output.write_all(&piece).unwrap();
            want.extend(piece);
        }
        output.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), want);
    }

    /// A closed reader and a full disk give different errors, and `finish` reports both at the
    /// latest.
    #[test]
    fn failures_are_distinguished() {
        let (mut reader, writer) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let mut output = Output { name: "pipe".to_owned(), file: Some(file), buffer: Vec::new() };
        output.write_all(b"hello").unwrap();
        output.flush().unwrap();
        let mut hello = [0; 5];
        reader.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"hello");
        drop(reader);
        output.write_all(b"too late").unwrap();
        assert!(matches!(output.finish(), Err(OutputError::ClosedPipe)));

        let mut output = Output::create(Path::new("/dev/full")).unwrap();
        output.write_all(b"x").unwrap();
        let text = output.finish().unwrap_err().to_string();
        assert!(text.starts_with("/dev/full: ") && text.contains("make room"), "{text}");
        let text = Output::create(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(text.contains("create the directory"), "{text}");
    }
}
