//! The file that keeps the history, and what was ever seen, over restarts ([`larder_serve::saved`]).
//!
//! Its body: begun, seconds, minutes, traffic, secret, known, new names.
//!
//! Invariants
//! 1. No bytes of a file make this module panic, or take more memory than the tables have (tests
//!    `damage_is_reported`, `lengths_are_not_believed`).

use std::path::Path;
use std::sync::Arc;

use larder_serve::saved::{self, Input, Output};
use larder_wire::{Addr, Name};

use super::history::{History, NAMES_MAX, SERIES, TRAFFIC_MAX, Traffic};
use crate::seen::{Known, NEW_MAX, NewName, Seen};

const MAGIC: &[u8; 8] = b"larderh1";

/// The content of a file.
#[derive(Debug, Default)]
pub struct Saved {
    /// When the first run began, seconds since 1970; 0: unknown.
    pub begun_s: u64,
    /// The history.
    pub history: History,
    /// Names and clients of earlier days.
    pub known: Known,
    /// Names that were new on the last day.
    pub new_names: Vec<NewName>,
}

/// Reads a file. `Ok(None)`: there is none. The error says what is wrong with it.
pub fn load(path: &Path) -> Result<Option<Saved>, String> {
    saved::load(path, MAGIC, read)
}

/// The bytes of a file.
pub fn bytes_of(begun_s: u64, history: &History, seen: &Seen) -> Vec<u8> {
    let mut out = Output::new(MAGIC);
    out.number(begun_s);
    history.samples.write(&mut out);
    out.timed(&history.traffic, |Traffic { names, other, unnamed }, out| {
        out.number(*other);
        out.number(*unnamed);
        out.number(names.len() as u64);
        for (name, bytes) in names {
            out.text(name.as_bytes());
            out.number(*bytes);
        }
    });
    out.number(seen.known.secret());
    out.number(seen.known.iter().len() as u64);
    for (hash, (first, last)) in seen.known.iter() {
        out.bytes(&hash.to_le_bytes());
        out.number(first.into());
        out.number(last.into());
    }
    out.number(seen.new_names.len() as u64);
    for NewName { name, first_ns, client } in &seen.new_names {
        out.text(name.as_bytes());
        out.number(*first_ns as u64);
        out.bytes(&client.0);
    }
    out.end()
}

fn read(input: &mut Input<'_>) -> Option<Saved> {
    let begun_s = input.number()?;
    let samples = larder_serve::history::History::read(&SERIES, input)?;
    let traffic = input.timed(TRAFFIC_MAX, read_traffic)?;
    let mut known = Known::with_secret(input.number()?);
    for _ in 0..input.number()? {
        let hash = *input.bytes::<8>()?;
        let days = (input.number()?.try_into().ok()?, input.number()?.try_into().ok()?);
        known.put(u64::from_le_bytes(hash), days);
    }
    let mut new_names = Vec::new();
    for _ in 0..input.count(NEW_MAX)? {
        let name = Name::from_canonical(input.text()?);
        let first_ns = input.number()? as i64;
        new_names.push(NewName { name, first_ns, client: Addr(*input.bytes()?) });
    }
    let mut history = History::default();
    (history.samples, history.traffic) = (samples, traffic);
    Some(Saved { begun_s, history, known, new_names })
}

fn read_traffic(input: &mut Input<'_>) -> Option<Traffic> {
    let (other, unnamed) = (input.number()?, input.number()?);
    let mut names = Vec::new();
    for _ in 0..input.count(NAMES_MAX)? {
        let name: Arc<str> = str::from_utf8(input.text()?).ok()?.into();
        names.push((name, input.number()?));
    }
    Some(Traffic { names, other, unnamed })
}

#[cfg(test)]
mod tests;
