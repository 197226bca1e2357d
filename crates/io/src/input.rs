//! Opens an input: a file or standard input, plain or compressed.
//!
//! A plain file is mapped. Everything else is a stream: a pipe, a device, a compressed file, and a
//! file that cannot be mapped. The content of the file decides, never its name.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;

use larder_wire::capture::OpenError;

use crate::decode::{Compression, MAGIC_BYTES};
use crate::mapped::Mapped;
use crate::over_tcp::{Remote, Senders};
use crate::stream::STOP_CHECK;

/// Inputs that are named in one message, at most.
const NAMED_MAX: usize = 100;

/// An opened input and its name for messages.
#[derive(Debug)]
pub struct Input {
    /// The path as given, `-` for standard input.
    pub name: String,
    /// The source of the bytes.
    pub content: Content,
}

/// The source of an input's bytes.
#[derive(Debug)]
pub enum Content {
    /// A plain file.
    Mapped(Arc<Mapped>),
    /// Bytes that the program holds.
    Memory(&'static [u8]),
    /// Anything that is read, and perhaps decoded.
    Stream {
        /// The file or pipe, at its start.
        file: File,
        /// It may grow slowly while we read: a pipe, a terminal, a socket.
        live: bool,
    },
    /// Programs that connect, one after the other, each with a capture.
    Senders(Box<Senders>),
}

impl Content {
    /// A connection that is read.
    pub(crate) fn of_connection(stream: TcpStream) -> Content {
        Content::Stream { file: File::from(OwnedFd::from(stream)), live: true }
    }
}

/// Why an input cannot be read. The text names the input and states what to do next.
#[derive(Debug)]
#[non_exhaustive]
pub enum InputError {
    /// The system refuses. The caller should mend the path or its permissions.
    Open {
        /// The input.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// A directory. The caller should name the files in it.
    Directory {
        /// The input.
        name: String,
    },
    /// The format is not a capture that larder reads. The text states how to convert it.
    NotCapture {
        /// The input.
        name: String,
        /// The defect.
        source: OpenError,
    },
    /// The compressed stream, or the device, fails before the first record.
    Unreadable {
        /// The input.
        name: String,
        /// The error of the decoder or the system.
        why: String,
    },
    /// Several of many inputs are no captures, or are damaged before the first record. The caller should leave them
    /// out.
    Several(
        /// Why, of each.
        Vec<InputError>,
    ),
    /// The filter does not support the link type of a frame. The operator should remove the filter,
    /// or filter before.
    Filter {
        /// The input.
        name: String,
        /// What the filter does not support.
        why: String,
    },
    /// The caller stopped before the first record.
    Stopped,
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Our own errors say what to do already.
            InputError::Open { name, source } if source.get_ref().is_some() => {
                write!(f, "{name}: {source}")
            }
            InputError::Open { name, source } => {
                let advice = match source.kind() {
                    io::ErrorKind::NotFound => "check the path",
                    io::ErrorKind::PermissionDenied => {
                        "ask its owner for read permission, or run as a user who has it"
                    }
                    _ if source.raw_os_error() == Some(libc::EMFILE) => {
                        "raise the limit of open files (`ulimit -n`) or name fewer files"
                    }
                    _ => "check the device it is on, then try again",
                };
                write!(f, "{name}: {source}; {advice}")
            }
            InputError::Directory { name } => {
                write!(f, "{name}: this is a directory; name the capture files in it")
            }
            InputError::NotCapture { name, source } => write!(f, "{name}: {source}"),
            InputError::Unreadable { name, why } => {
                write!(
                    f,
                    "{name}: {why}; the input may be damaged or cut: get it again from its source"
                )
            }
            InputError::Several(errors) => {
                write!(f, "{} inputs can't be read; leave them out:", errors.len())?;
                errors.iter().take(NAMED_MAX).try_for_each(|error| write!(f, "\n  {error}"))?;
                match errors.len().saturating_sub(NAMED_MAX) {
                    0 => Ok(()),
                    more => write!(f, "\n  and {more} more"),
                }
            }
            InputError::Filter { name, why } => write!(f, "{name}: {why}"),
            InputError::Stopped => f.write_str("stopped before anything was read"),
        }
    }
}

impl std::error::Error for InputError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            InputError::Open { source, .. } => Some(source),
            InputError::NotCapture { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Input {
    /// Opens a path; `-` is standard input. Does not wait for the first byte of a pipe (though
    /// the system waits for a named pipe's writer).
    pub fn open(path: &Path) -> Result<Input, InputError> {
        let name = display_name(path);
        let file = match path.as_os_str() == "-" {
            true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
            false => File::open(path),
        };
        let content = file.and_then(content_of);
        match content {
            Ok(content) => Ok(Input { name, content }),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                Err(InputError::Directory { name })
            }
            Err(source) => Err(InputError::Open { name, source }),
        }
    }

    /// Like [`Input::open`], for a caller that may be stopped while the system waits for the writer
    /// of a named pipe.
    pub fn open_until(path: &Path, stop: &AtomicBool) -> Result<Input, InputError> {
        let named_pipe = std::fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo());
        if !named_pipe {
            return Input::open(path);
        }
        let path = path.to_owned();
        waiting(stop, move || Input::open(&path))
    }

    /// Connects to a program that sends a capture, for a caller that may be stopped meanwhile.
    pub fn connect_until(remote: &Remote, stop: &AtomicBool) -> Result<Input, InputError> {
        let remote = remote.clone();
        waiting(stop, move || {
            let name = remote.to_string();
            match remote.connect() {
                Ok(stream) => Ok(Input { name, content: Content::of_connection(stream) }),
                Err(source) => Err(InputError::Open { name, source }),
            }
        })
    }

    /// The captures of the programs that connect.
    pub fn from_senders(senders: Senders) -> Input {
        Input { name: senders.name(), content: Content::Senders(Box::new(senders)) }
    }

    /// Bytes of the program itself, with a name for messages.
    pub fn from_static(name: &str, bytes: &'static [u8]) -> Input {
        Input { name: name.to_owned(), content: Content::Memory(bytes) }
    }

    /// Opens several; the first that fails ends it.
    pub fn open_all(paths: &[PathBuf]) -> Result<Vec<Input>, InputError> {
        paths.iter().map(|path| Input::open(path)).collect()
    }

    /// It may grow slowly while it is read.
    pub fn is_live(&self) -> bool {
        matches!(self.content, Content::Stream { live: true, .. } | Content::Senders(_))
    }

    /// The size in bytes before decompression; `None` for pipes.
    pub fn total_bytes(&self) -> Option<u64> {
        match &self.content {
            Content::Mapped(mapped) => Some(mapped.bytes().len() as u64),
            Content::Memory(bytes) => Some(bytes.len() as u64),
            Content::Stream { live: true, .. } | Content::Senders(_) => None,
            Content::Stream { file, live: false } => Some(file.metadata().ok()?.len()),
        }
    }
}

/// Runs `work`, which may wait forever, on its own thread. If `stop` is set, the caller continues
/// without the result; the thread ends when its wait does, or with the process.
pub(crate) fn waiting<T: Send + 'static>(
    stop: &AtomicBool,
    work: impl FnOnce() -> Result<T, InputError> + Send + 'static,
) -> Result<T, InputError> {
    let (sender, receiver) = sync_channel(1);
    let thread = thread::Builder::new().name("larder-open".to_owned());
    let started = thread.spawn(move || {
        // The caller may have stopped waiting.
        let _ = sender.send(work());
    });
    if let Err(error) = started {
        let why = format!("no thread could be started ({error})");
        return Err(InputError::Unreadable { name: "input".to_owned(), why });
    }
    loop {
        match receiver.recv_timeout(STOP_CHECK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                return Err(InputError::Stopped);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let why = "the decoder failed on this input".to_owned();
                return Err(InputError::Unreadable { name: "input".to_owned(), why });
            }
        }
    }
}

/// A path for messages: control bytes, which a terminal would obey, are escaped.
pub fn display_name(path: &Path) -> String {
    let mut name = String::new();
    for character in path.to_string_lossy().chars() {
        match character.is_control() {
            true => name.extend(character.escape_default()),
            false => name.push(character),
        }
    }
    name
}

/// Decides between mapping and reading.
fn content_of(file: File) -> io::Result<Content> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Ok(Content::Stream { file, live: true });
    }
    let mut head = [0; MAGIC_BYTES];
    let count = file.read_at(&mut head, 0)?;
    let plain = Compression::detect(&head[..count]).is_none();
    // Standard input may be in the middle of a file: then the rest is read.
    let at_start = io::Seek::stream_position(&mut &file).is_ok_and(|position| position == 0);
    if let (true, true, Ok(len)) = (plain, at_start, usize::try_from(metadata.len()))
        && let Ok(mapped) = Mapped::read_only(&file, len)
    {
        return Ok(Content::Mapped(Arc::new(mapped)));
    }
    Ok(Content::Stream { file, live: false })
}

/// True when both paths lead to one regular file.
pub fn is_same_file(left: &Path, right: &Path) -> bool {
    match (std::fs::canonicalize(left), std::fs::canonicalize(right)) {
        (Ok(left), Ok(right)) => left == right && left.is_file(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An input that cannot be opened has an error that names it and states what to do.
    #[test]
    fn refusals_advise() {
        let dir = tempfile::tempdir().unwrap();
        let text = |path: &Path| Input::open(path).unwrap_err().to_string();
        assert!(text(&dir.path().join("none")).ends_with("check the path"));
        assert!(text(Path::new("/none\x1b[2J")).starts_with("/none\\u{1b}[2J: "));
        assert!(text(dir.path()).contains("directory; name the capture files"));
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        let denied = InputError::Open { name: "x".to_owned(), source: error };
        assert!(denied.to_string().contains("read permission"));
    }

    /// Plain files are mapped, compressed and empty ones are read.
    #[test]
    fn bytes_decide() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("misnamed.gz");
        std::fs::write(&path, b"plain bytes").unwrap();
        let input = Input::open(&path).unwrap();
        assert!(matches!(&input.content, Content::Mapped(m) if m.bytes() == b"plain bytes"));
        assert_eq!(input.total_bytes(), Some(11));
        for bytes in [&b""[..], b"\x1f\x8b\x08\0\0\0", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0"] {
            std::fs::write(&path, bytes).unwrap();
            let input = Input::open(&path).unwrap();
            assert!(matches!(input.content, Content::Stream { live: false, .. }), "{bytes:?}");
            assert_eq!(input.total_bytes(), Some(bytes.len() as u64));
        }
    }
}
