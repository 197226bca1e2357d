//! Long work on a thread of its own: a walk over the cache takes about one second for a million
//! entries.
//!
//! Bounds: those of [`larder_serve::control::job`]. Only one walk of a cache runs at a time
//! ([`Cache::iter`]). A second walk, also that of a snapshot, waits for the first.

use std::thread;
use std::time::Duration;

use larder::{Cache, Error, Seconds};
use larder_serve::control::{CLOSING, Fields, Job};

use super::entry::{self, LINE_BYTES_MAX};
use crate::key::{Parts, is_within, question_of};

/// How often a write that readers block is tried; there is a millisecond between two tries.
const TRIES: u32 = 10_000;

/// Sends all entries that have not expired at `now`, one for each line.
pub fn dump(cache: Cache, now: Seconds) -> Job {
    Box::new(move |talk| {
        let mut line = String::with_capacity(LINE_BYTES_MAX);
        let mut entries = 0u64;
        let mut walk = cache.iter(now);
        for entry in walk.by_ref() {
            if entry::write(&mut line, &entry, now) {
                talk.say(&line)?;
                entries += 1;
            }
        }
        walk.was_whole().map_err(|error| error.to_string())?;
        Ok(fields([("entries", entries)]))
    })
}

/// Receives entries in the form that [`dump`] sends, and puts them into the cache. It ends at the
/// line that closes a dump, or at the end of the client's input. Invalid lines are counted and
/// skipped.
pub fn load(cache: Cache, now: Seconds) -> Job {
    Box::new(move |talk| {
        let mut writer = cache.writer();
        let (mut number, mut loaded, mut ended, mut refused) = (0u64, 0u64, 0u64, 0u64);
        let mut first_refused = None;
        while let Some(line) = talk.receive()? {
            number += 1;
            if line.starts_with(CLOSING.as_bytes()) {
                break;
            }
            let inserted = match entry::read(&line, now) {
                Ok(entry::Read { ttl: None, .. }) => {
                    ended += 1;
                    continue;
                }
                Ok(entry::Read { key, value, ttl: Some(ttl) }) => {
                    match patiently(|| writer.insert(&key, &value, ttl, now)) {
                        Err(error @ Error::ValueTooLarge { .. }) => Err(error.to_string()),
                        other => other.map(Ok).map_err(|error| error.to_string())?,
                    }
                }
                Err(what) => Err(what.to_owned()),
            };
            match inserted {
                Ok(()) => loaded += 1,
                Err(what) => {
                    refused += 1;
                    first_refused.get_or_insert_with(|| format!("line {number}: {what}"));
                }
            }
        }
        patiently(|| writer.flush()).map_err(|error| error.to_string())?;
        let mut result = fields([("loaded", loaded), ("ended", ended), ("refused", refused)]);
        if let Some(first) = first_refused {
            result.insert("first_refused".to_owned(), first.into());
        }
        Ok(result)
    })
}

/// Removes all responses for a name in wire form, of any type, class, flags, view and generation.
pub fn flush_name(cache: Cache, name: Vec<u8>) -> Job {
    Box::new(move |_| remove(&cache, |owner| owner.eq_ignore_ascii_case(&name)))
}

/// Removes all responses for a name and for all names below it.
pub fn flush_zone(cache: Cache, zone: Vec<u8>) -> Job {
    Box::new(move |_| remove(&cache, |owner| is_within(owner, &zone)))
}

/// Walks over the cache and removes the entries for which `is_wanted` accepts the name of the
/// query.
fn remove(cache: &Cache, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Fields, String> {
    let mut writer = cache.writer();
    let mut removed = 0u64;
    // At second 0 no entry has expired, so stale entries are removed too.
    for entry in cache.iter(Seconds(0)) {
        let key = entry.key();
        let name = match Parts::of(key) {
            Some(parts) => Some(parts.name),
            None => question_of(entry.value()).map(|(name, _, _)| name),
        };
        if name.is_some_and(&is_wanted) {
            patiently(|| writer.remove(key)).map_err(|error| error.to_string())?;
            removed += 1;
        }
    }
    patiently(|| writer.flush()).map_err(|error| error.to_string())?;
    Ok(fields([("removed", removed)]))
}

/// Repeats `act` while readers have not caught up, or while others use all spare memory. Cores sync
/// in each turn of their event loops, so this ends soon unless something is wrong.
fn patiently<R>(mut act: impl FnMut() -> Result<R, Error>) -> Result<R, Error> {
    for _ in 0..TRIES {
        match act() {
            Err(Error::Stalled { .. } | Error::Starved) => {
                thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
    act()
}

fn fields<const N: usize>(counts: [(&str, u64); N]) -> Fields {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect()
}
