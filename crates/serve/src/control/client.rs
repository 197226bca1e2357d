//! The client of the control socket, for `larder ctl` and for tests.
//!
//! It blocks, as a command may. Bounds: a line of a response has at most [`LINE_BYTES_MAX`] bytes,
//! which is more than the statistics of a thousand cores need.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{CLOSING, Fields};

/// The longest line of a response, with its line feed.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// Why a request failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The connection failed. The text says whether to start the server or to name its socket.
    Unreachable(PathBuf, io::Error),
    /// The server closed the connection early. It may have handled the request: its log says so.
    Lost(io::Error),
    /// The response is invalid, so another program listens there. The operator must name the
    /// server's socket.
    Foreign,
    /// The server refused the request. The text is the server's, and says what to do.
    Refused(String),
    /// The caller failed to read the entries to load, or to write the response.
    Own(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable(path, error) => {
                let path = path.display();
                match error.kind() {
                    io::ErrorKind::NotFound => {
                        write!(f, "no socket at {path}: is the server running, with --ctl {path}?")
                    }
                    io::ErrorKind::ConnectionRefused => {
                        write!(f, "no server listens at {path}: start it with --ctl {path}")
                    }
                    io::ErrorKind::PermissionDenied => {
                        write!(
                            f,
                            "{path} is not for this user: ask as the user that the server runs as"
                        )
                    }
                    _ => write!(f, "{path}: {error}; name the socket that the server has by --ctl"),
                }
            }
            Error::Lost(error) => {
                write!(
                    f,
                    "the server closed the connection without a response ({error}); see its log"
                )
            }
            Error::Foreign => f.write_str(
                "this is not a response of larder; name the socket that the server has by --ctl",
            ),
            Error::Refused(why) => f.write_str(why),
            Error::Own(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Unreachable(_, error) | Error::Lost(error) | Error::Own(error) => Some(error),
            _ => None,
        }
    }
}

/// Sends a request (without a line feed) and waits for the response. Returns its last line; `each`
/// receives the lines before it (the entries of a dump) with their line feeds.
pub fn exchange(
    path: &Path,
    line: &str,
    each: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<Fields, Error> {
    let mut socket = connect(path)?;
    say(&mut socket, line).map_err(Error::Lost)?;
    answer(&socket, each)
}

/// Sends a request, and then the lines that belong to it.
pub fn upload(path: &Path, line: &str, entries: &mut impl Read) -> Result<Fields, Error> {
    let mut socket = connect(path)?;
    say(&mut socket, line).map_err(Error::Lost)?;
    let mut chunk = vec![0; 64 << 10];
    loop {
        let count = match entries.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::Own(error)),
        };
        if socket.write_all(&chunk[..count]).is_err() {
            // The server reads no more; its response states why.
            break;
        }
    }
    // A closed connection needs no shutdown.
    let _ = socket.shutdown(std::net::Shutdown::Write);
    answer(&socket, |_| Ok(()))
}

fn connect(path: &Path) -> Result<UnixStream, Error> {
    UnixStream::connect(path).map_err(|error| Error::Unreachable(path.to_path_buf(), error))
}

fn say(socket: &mut UnixStream, line: &str) -> io::Result<()> {
    socket.write_all(format!("{line}\n").as_bytes())
}

fn answer(
    socket: &UnixStream,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<Fields, Error> {
    let mut input = BufReader::with_capacity(64 << 10, socket);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limited = &mut (&mut input).take(LINE_BYTES_MAX as u64);
        limited.read_until(b'\n', &mut line).map_err(Error::Lost)?;
        if line.is_empty() {
            return Err(Error::Lost(io::ErrorKind::UnexpectedEof.into()));
        }
        if line.last() != Some(&b'\n') {
            return Err(Error::Foreign);
        }
        if line.starts_with(CLOSING.as_bytes()) {
            return closing(&line);
        }
        each(&line).map_err(Error::Own)?;
    }
}

fn closing(line: &[u8]) -> Result<Fields, Error> {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(line) else {
        return Err(Error::Foreign);
    };
    match fields.remove("ok") {
        Some(Value::Bool(true)) => Ok(fields),
        _ => {
            let why = fields.get("error").and_then(Value::as_str);
            Err(Error::Refused(why.unwrap_or("the server refused and did not say why").to_owned()))
        }
    }
}
