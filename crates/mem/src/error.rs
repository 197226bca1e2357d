//! Why an operation failed.

use std::io;

/// Why memory can't be mapped or changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused memory. Ask for less.
    Memory(io::Error),
    /// The configuration is invalid; the text states which part.
    Config(&'static str),
    /// Another thread panicked while it changed the shard. Reads still work; build a new one to
    /// write.
    Poisoned,
    /// The shard has as many readers as it was built for. Drop one, or build for more.
    ReadersExhausted,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Memory(error) => write!(f, "the system refused memory ({error}); ask for less"),
            Error::Config(text) => f.write_str(text),
            Error::Poisoned => {
                f.write_str("a panic interrupted a change of this shard; build a new one")
            }
            Error::ReadersExhausted => {
                f.write_str("the shard has no reader left; drop one, or build it for more")
            }
        }
    }
}

impl std::error::Error for Error {}

/// A reader holds a resource that main needs. Sync or park it, then try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalled {
    /// The number of the reader that is furthest behind.
    pub reader: usize,
    /// The records it is behind.
    pub behind: u64,
}
