//! Why a server does not start, and how it ended.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// How a server ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served<C> {
    /// What all workers counted.
    pub counts: C,
    /// A signal forced the end, or what was begun did not end in time: responses may be unsent, and the cache unsaved.
    pub was_hurried: bool,
}

/// Why it does not serve.
#[derive(Debug)]
pub enum ServeError {
    /// The address cannot be bound.
    Listen(SocketAddr, io::Error),
    /// A setting cannot be used, or what it names; the text says what to do.
    Refused(String),
    /// The system refused something else.
    System(&'static str, io::Error),
}

impl ServeError {
    /// Takes over an error whose text says what to do.
    pub fn refused(error: impl fmt::Display) -> ServeError {
        ServeError::Refused(error.to_string())
    }
}

/// Takes over an error of the system: `what` was tried.
pub fn system(what: &'static str) -> impl Fn(io::Error) -> ServeError {
    move |error| ServeError::System(what, error)
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Listen(address, error) => {
                let next = match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        "another program has it: stop that, listen elsewhere, or share it with --reuse-port"
                    }
                    io::ErrorKind::PermissionDenied => {
                        "ports below 1024 need root or CAP_NET_BIND_SERVICE"
                    }
                    io::ErrorKind::AddrNotAvailable => "this machine has no such address",
                    _ => "listen elsewhere",
                };
                write!(f, "cannot listen at {address}: {error}; {next}")
            }
            ServeError::Refused(text) => f.write_str(text),
            ServeError::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}
