//! Why an interface cannot be captured from. The texts state what to do next.

use std::fmt;
use std::io;

/// Why there is no capture.
#[derive(Debug)]
#[non_exhaustive]
pub enum LiveError {
    /// This system has no AF_PACKET.
    NeedsLinux,
    /// No interface was named.
    NoInterfaces,
    /// There is no interface of this name.
    NoSuchInterface {
        /// The name.
        name: String,
        /// Those that there are.
        there: Vec<String>,
    },
    /// An interface is named twice, or `any` together with others: frames would count twice.
    Twice {
        /// The name.
        name: String,
    },
    /// The process may not see frames.
    NotPermitted,
    /// Frames of a kind of hardware that is not read.
    UnknownLink {
        /// The interface.
        name: String,
        /// The kernel's number (`ARPHRD_`).
        hardware: u16,
    },
    /// There is no memory for a ring.
    NoMemory {
        /// The interface.
        name: String,
        /// Bytes of one ring.
        ring_bytes: u64,
    },
    /// Several rings share an interface that is down.
    Down {
        /// The interface.
        name: String,
    },
    /// An interface was made again as one of another kind.
    OtherLink,
    /// The kernel does not take the filter.
    Filter {
        /// The system's error.
        error: io::Error,
    },
    /// The kernel refuses something else.
    Kernel {
        /// The missing thing.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveError::NeedsLinux => {
                f.write_str("live capture needs Linux (AF_PACKET); read a file with -r")
            }
            LiveError::NoInterfaces => f.write_str("name an interface, or `any`"),
            LiveError::NoSuchInterface { name, there } if there.is_empty() => {
                write!(f, "{name}: there is no such interface, nor any other")
            }
            LiveError::NoSuchInterface { name, there } => {
                write!(f, "{name}: there is no such interface; there are: {}", there.join(", "))
            }
            LiveError::Twice { name } => {
                write!(f, "{name}: frames would count twice; name each interface once, or `any` alone")
            }
            LiveError::NotPermitted => f.write_str(
                "this process may not see frames; give the program the right with \
                 `setcap cap_net_raw+ep` (or AmbientCapabilities=CAP_NET_RAW in its unit), or run it as root",
            ),
            LiveError::UnknownLink { name, hardware } => write!(
                f,
                "{name}: its frames are of a kind that is not read (ARPHRD {hardware}); capture at `any`, \
                 or at an Ethernet or IP interface"
            ),
            LiveError::NoMemory { name, ring_bytes } => write!(
                f,
                "{name}: no memory for a ring of {ring_bytes} bytes; give a smaller --ring-size, or fewer --rings"
            ),
            LiveError::Down { name } => write!(
                f,
                "{name}: it is down, and rings can share only what is up; `ip link set {name} up` first"
            ),
            LiveError::OtherLink => f.write_str("its frames are of another kind than before"),
            LiveError::Filter { error } => {
                write!(f, "the kernel does not take the filter: {error}; make it shorter")
            }
            LiveError::Kernel { what, error } => {
                write!(f, "{what}: {error}; live capture wants Linux 4.11 or later")
            }
        }
    }
}

impl std::error::Error for LiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LiveError::Filter { error } | LiveError::Kernel { error, .. } => Some(error),
            _ => None,
        }
    }
}
