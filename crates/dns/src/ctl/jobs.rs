//! What takes long, on a thread of its own: to walk over a cache takes a second a million entries or so.
//!
//! Bounds: those of [`larder_serve::control::job`]. One walk of a cache at a time ([`Cache::iter`]): a second one, that
//! of a snapshot as well, waits for the first.

use std::thread;
use std::time::Duration;

use larder::{Cache, Error, Seconds};
use larder_serve::control::{CLOSING, Fields, Job};

use super::entry::{self, LINE_BYTES_MAX};
use crate::key::{Parts, is_within, question_of};

/// How often a write is tried again that a reader is in the way of; a millisecond lies between.
const TRIES: u32 = 10_000;

/// Says all entries alive at `now`, a line each.
pub fn dump(cache: Cache, now: Seconds) -> Job {
    Box::new(move |talk| {
        let mut line = String::with_capacity(LINE_BYTES_MAX);
        let mut entries = 0u64;
        for entry in cache.iter(now) {
            if entry::write(&mut line, &entry, now) {
                talk.say(&line)?;
                entries += 1;
            }
        }
        Ok(fields([("entries", entries)]))
    })
}

/// Hears entries as [`dump`] says them, up to the line that closes a dump or the end of what the client sends,
/// and puts them into the cache. Lines that are no entries are counted and passed over.
pub fn load(cache: Cache, now: Seconds) -> Job {
    Box::new(move |talk| {
        let mut writer = cache.writer();
        let (mut number, mut loaded, mut ended, mut refused) = (0u64, 0u64, 0u64, 0u64);
        let mut first_refused = None;
        while let Some(line) = talk.hear()? {
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

/// Takes out all answers to questions for a name, given in wire form: whatever type, class, flags, view and generation.
pub fn flush_name(cache: Cache, name: Vec<u8>) -> Job {
    Box::new(move |_| remove(&cache, |asked| asked.eq_ignore_ascii_case(&name)))
}

/// Takes out all answers to questions for a name and all names below it.
pub fn flush_zone(cache: Cache, zone: Vec<u8>) -> Job {
    Box::new(move |_| remove(&cache, |asked| is_within(asked, &zone)))
}

/// Walks over the cache and takes out what `is_wanted` says of the name asked for.
fn remove(cache: &Cache, is_wanted: impl Fn(&[u8]) -> bool) -> Result<Fields, String> {
    let mut writer = cache.writer();
    let mut removed = 0u64;
    // At the first of all seconds nothing has ended: what is kept past its end goes as well.
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

/// Does it again while readers have not caught up, or others hold all spare memory: cores sync at every turn of
/// their loops, so that this is over soon or something is wrong.
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
