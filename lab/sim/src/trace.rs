//! Traces: requests in order, from files or made up.
//!
//! ```text
//! Spec      what the user named: a file, or zipf:0.9:200000    -> open
//! Format    how a file is to be read; Auto looks at it          -> one of the readers
//! bytes    the file, decompressed, a window of it at a time    -> lines, records
//! Source    requests by the batch                               -> the replay
//! ```
//!
//! | module | reads or makes |
//! |---|---|
//! | [`spec`] | the name of a trace, opened |
//! | [`format`](mod@format) | names of formats, and which one a file is in |
//! | `binary` | `be32` `le32` `be64` `oracle-general` |
//! | `text` | `lirs` `arc` `adaptsize` `keys` |
//! | `csv` | `csv` `twitter` |
//! | `zeek` | `zeek-dns` `dns-log` |
//! | `pcap` | `pcap-dns` |
//! | [`zipf`] [`dns_like`] [`cycle`] | streams made up, by seed |
//!
//! A [`Source`] hands out requests by the batch and never holds the whole trace, so that one larger than
//! memory can be replayed. Damage is never fatal by itself: a record that cannot be read is counted, with the
//! place of the first, and skipped; a compressed file that is cut ends there, and the cut is reported.
//!
//! Bounds: [`LINE_BYTES_MAX`] a line, a window of the decoder, and half a MiB (32 for a damaged capture).

mod binary;
mod csv;
pub mod cycle;
mod digits;
pub mod dns_like;
pub mod format;
mod pcap;
pub mod random;
pub(crate) mod reader;
pub mod spec;
mod text;
mod zeek;
pub mod zipf;

use std::fmt;

use crate::request::Request;

pub use format::Format;
pub use reader::LINE_BYTES_MAX;
pub use spec::{Spec, read};

/// Requests a batch, about.
pub const BATCH_REQUESTS: usize = 1 << 16;

/// What could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Damage {
    /// Records skipped.
    pub records: u64,
    /// Where the first was and what was wrong with it: `line 17: no number`, `byte 4096: cut short`.
    pub first: Option<String>,
}

impl Damage {
    /// Counts one more.
    pub fn add(&mut self, what: impl FnOnce() -> String) {
        self.records += 1;
        self.first.get_or_insert_with(what);
    }
}

/// Where requests come from.
pub trait Source: Send {
    /// Replaces what is in `batch` by the next requests, [`BATCH_REQUESTS`] at most or a few more; leaves it empty at
    /// the end.
    fn next(&mut self, batch: &mut Vec<Request>) -> std::io::Result<()>;

    /// What could not be read so far.
    fn damage(&self) -> Damage {
        Damage::default()
    }
}

/// Why a trace cannot be opened. Every message states what to do next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The name of a trace, or of a format, makes no sense. The caller should change it as the text states.
    Name {
        /// What was given.
        given: String,
        /// What is wrong with it, and what would do.
        why: String,
    },
    /// The system refuses. The caller should mend the path or its permissions.
    Open {
        /// What was to be read.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The compressed stream, or the device, fails before anything could be read. The caller should get the
    /// file again.
    Unreadable {
        /// What was to be read.
        name: String,
        /// The error of the decoder or of the system.
        why: String,
    },
    /// Neither the file nor its name states the format. The caller should name it.
    Undecided {
        /// What was to be read.
        name: String,
        /// What was seen.
        why: String,
    },
    /// The file is not in the format. The caller should name another.
    Content {
        /// What was to be read.
        name: String,
        /// The format it was to be read as.
        format: Format,
        /// What was seen.
        why: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Name { given, why } => write!(f, "{given}: {why}"),
            Error::Open { name, source } => {
                let advice = match source.kind() {
                    std::io::ErrorKind::NotFound => {
                        return write!(
                            f,
                            "{name}: {source}; check the path, or name a stream that is made up: {}",
                            spec::GENERATORS
                        );
                    }
                    std::io::ErrorKind::PermissionDenied => {
                        "ask its owner for read permission, or run as a user who has it"
                    }
                    std::io::ErrorKind::IsADirectory => "name one of the traces in it",
                    _ => "check the device it is on, then try again",
                };
                write!(f, "{name}: {source}; {advice}")
            }
            Error::Unreadable { name, why } => {
                write!(f, "{name}: {why}; the file may be damaged: get it again from its source")
            }
            Error::Undecided { name, why } => {
                write!(f, "{name}: {why}; pass --trace-format with one of ")?;
                format::write_names(f)
            }
            Error::Content { name, format, why } => {
                write!(f, "{name}: not a trace in the format {format}: {why}; pass another ")?;
                f.write_str("--trace-format, or auto")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Open { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A text key as 64 bits, the same on every machine and in every version.
///
/// Eight bytes at a time go through a bijection of 64 bits, so texts of the same length of up to eight bytes
/// never collide. Longer ones do as random numbers would: among n distinct texts some two with a chance of
/// about n² / 2^65, which is one in 3,700 for a hundred million of them and one in 37 million for a million.
pub fn text_key(text: &[u8]) -> u64 {
    let mut hash = random::mix(text.len() as u64);
    let mut words = text.chunks_exact(8);
    for word in &mut words {
        let word = word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        hash = random::mix(hash ^ word);
    }
    let mut last = [0; 8];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    if rest.is_empty() { hash } else { random::mix(hash ^ u64::from_le_bytes(last)) }
}

/// A key as a trace writes it: a number as itself, everything else by [`text_key`]. `007` is text, since `7`
/// is another key.
fn key_of(text: &[u8]) -> u64 {
    let canonical = text.first() != Some(&b'0') || text.len() == 1;
    match digits::number(text) {
        Some(number) if canonical => number,
        _ => text_key(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that are texts differ when a bit, the length or a trailing zero does; numbers are themselves.
    #[test]
    fn keys_differ() {
        let texts: [&[u8]; 9] = [
            b"",
            b"\0",
            b"\0\0",
            b"a",
            b"a\0",
            b"12345678",
            b"12345678\0",
            b"12345678x",
            b"1234567x",
        ];
        for (at, one) in texts.iter().enumerate() {
            for other in &texts[..at] {
                assert_ne!(text_key(one), text_key(other), "{one:?} {other:?}");
            }
        }
        assert_eq!((key_of(b"0"), key_of(b"17")), (0, 17));
        assert_eq!(key_of(b"18446744073709551615"), u64::MAX);
        assert_eq!(key_of(b"18446744073709551616"), text_key(b"18446744073709551616"));
        assert_eq!(key_of(b"017"), text_key(b"017"));
    }

    /// The hash is part of what is published with a figure: it must not change. The number is from the
    /// definition, written down a second time in another language.
    #[test]
    fn text_keys_stay() {
        assert_eq!(text_key(b"www.example.org"), 5_294_913_422_042_352_208);
    }
}
