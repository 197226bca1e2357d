//! What resources consist of: bytes that look random, from a path.
//!
//! ```text
//! /size/N/K      N bytes that may be kept for an hour
//! /pass/N/K      the same, and may not be kept
//! /itself/N/K    the same; a server that knows it gets it from itself as /size/N/K
//! /slow/N/K/MS   the same as /size/N/K, in steps that take MS milliseconds
//! ```
//!
//! The bytes are a piece of one block that begins at a place made of N and K and repeats as often as needed. The
//! block's length is a prime, so that bytes from a wrong place, or of another resource, are wrong. N and K alone
//! decide, whatever way a resource has come.
//!
//! Cost: the block is made once, 1.3 MB. Sending and checking need no other memory.

use std::sync::OnceLock;

use crate::data::mix;

/// Bytes of the block, a prime.
const AROUND: usize = 1_048_583;
/// Bytes that follow one another in memory at any place.
pub const PIECE_BYTES: usize = 256 << 10;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    /// How it is to be had.
    pub way: Way,
    /// Its bytes.
    pub bytes: u64,
    /// Which of this length.
    pub number: u64,
    /// How long the origin takes for all of it.
    pub takes_ms: u64,
}

/// The first part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// May be kept.
    Size,
    /// May not.
    Pass,
    /// From the server itself.
    Itself,
    /// In steps.
    Slow,
}

const WAYS: [(Way, &str); 4] =
    [(Way::Size, "size"), (Way::Pass, "pass"), (Way::Itself, "itself"), (Way::Slow, "slow")];

impl Resource {
    /// That of a path; `None` where there is none.
    pub fn of_path(path: &str) -> Option<Resource> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let first = parts.next()?;
        let way = WAYS.iter().find(|(_, name)| *name == first)?.0;
        let mut number = || parts.next().map_or(Some(0), |part| part.parse::<u64>().ok());
        let (bytes, of_this, takes_ms) = (number()?, number()?, number()?);
        Some(Resource { way, bytes, number: of_this, takes_ms })
    }

    /// Its path.
    pub fn path(&self) -> String {
        let Resource { way, bytes, number, takes_ms } = *self;
        let name = WAYS.iter().find(|(of, _)| *of == way).map_or("", |(_, name)| name);
        match way {
            Way::Slow => format!("/{name}/{bytes}/{number}/{takes_ms}"),
            _ => format!("/{name}/{bytes}/{number}"),
        }
    }

    /// Its bytes.
    pub fn body(&self) -> Body {
        Body { start: mix(self.bytes ^ self.number.rotate_left(32)) % AROUND as u64 }
    }
}

/// The bytes of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body {
    start: u64,
}

impl Body {
    /// Bytes from `at`, [`PIECE_BYTES`] of them.
    pub fn piece(&self, at: u64) -> &'static [u8] {
        let at = ((self.start + at) % AROUND as u64) as usize;
        &block()[at..at + PIECE_BYTES]
    }

    /// Whether bytes are those from `at`.
    pub fn has(&self, at: u64, bytes: &[u8]) -> bool {
        let mut at = at;
        bytes.chunks(PIECE_BYTES).all(|chunk| {
            let is_same = &self.piece(at)[..chunk.len()] == chunk;
            at += chunk.len() as u64;
            is_same
        })
    }
}

/// The block, and what begins it once more.
fn block() -> &'static [u8] {
    static BLOCK: OnceLock<Box<[u8]>> = OnceLock::new();
    BLOCK.get_or_init(|| {
        let bytes = |at: usize| mix(at as u64 ^ 0x7661_7269).to_le_bytes();
        let mut block: Vec<u8> = (0..AROUND.div_ceil(8)).flat_map(bytes).take(AROUND).collect();
        block.extend_from_within(..PIECE_BYTES);
        block.into_boxed_slice()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths are read as they are written; what is none of them is nothing.
    #[test]
    fn paths_read_back() {
        for (way, _) in WAYS {
            let takes_ms = if way == Way::Slow { 5000 } else { 0 };
            let resource = Resource { way, bytes: 64 << 20, number: 7, takes_ms };
            assert_eq!(Resource::of_path(&resource.path()), Some(resource));
        }
        let short = Resource { way: Way::Size, bytes: 10, number: 0, takes_ms: 0 };
        assert_eq!(Resource::of_path("/size/10"), Some(short));
        for wrong in ["", "/", "size/1", "/sizes/1", "/size/x", "/size/-1", "/size/1/x"] {
            assert_eq!(Resource::of_path(wrong), None, "{wrong}");
        }
    }

    /// Bytes are right at their place, around the end of the block too, and wrong at any other, in another resource,
    /// and with one bit changed.
    #[test]
    fn bytes_belong_to_their_place() {
        let body = Resource::of_path("/size/100").unwrap().body();
        let other = Resource::of_path("/size/100/1").unwrap().body();
        let around = AROUND as u64;
        for at in [0, 1, around - 1, around - body.start, 3 * around + 5] {
            let bytes = [body.piece(at), body.piece(at + PIECE_BYTES as u64)].concat();
            assert!(body.has(at, &bytes), "{at}");
            assert!(!body.has(at + 1, &bytes) && !body.has(at + 65_536, &bytes), "{at}");
            assert!(!other.has(at, &bytes), "{at}");
            let mut changed = bytes;
            *changed.last_mut().unwrap() ^= 1;
            assert!(!body.has(at, &changed), "{at}");
        }
        assert!(body.has(7, &[]));
    }
}
