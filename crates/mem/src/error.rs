//! Why an operation could not be done.

use std::io;

/// Why memory can't be had or changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The kernel gave no memory. Ask for less.
    Memory(io::Error),
    /// The configuration makes no sense; the text says which part. Change it.
    Config(&'static str),
    /// Another thread panicked while it changed the shard. Build a new one; reads go on.
    Poisoned,
    /// As many readers as the shard was built for exist. Drop one, or build for more.
    ReadersExhausted,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Memory(error) => write!(f, "the system gave no memory ({error}); ask for less"),
            Error::Config(text) => f.write_str(text),
            Error::Poisoned => {
                f.write_str("a panic interrupted a change of this shard; build a new one")
            }
            Error::ReadersExhausted => {
                f.write_str("every reader is taken; drop one or build for more")
            }
        }
    }
}

impl std::error::Error for Error {}

/// A reader holds what main needs: sync or park it, then try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalled {
    /// The reader furthest behind.
    pub reader: usize,
    /// How many records it is behind.
    pub behind: u64,
}
