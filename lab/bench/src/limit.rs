//! What memory alone would take: the least that a table of such entries could do.
//!
//! An index of 64-bit words, eight a cache line, at half load (32 bits of hash, 32 of place), and entries of
//! 64 bytes on lines of their own, all in huge pages. A lookup hashes the key with one multiplication,
//! reads one line of index and one of entry, and compares the key; a batch asks for all lines of a stage
//! before it reads them. A put writes the entries round and round, takes the index word of the entry that it
//! overwrites out, and sets its own. No sizes, no ends of life, no replacement but that, no second thread.
//! When an index line is full a word in it is lost; lookups are only measured for entries that are there.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_mem::Region;
use larder_mem::prefetch_slice;

use crate::data::{Key, VALUE_BYTES_MAX, number_of};
use crate::peer::{Handle, Peer, Shape};

/// What rows say of it.
pub const WHAT: &str =
    "one line of a half-full open table of u64 and one line of entry, huge pages";

const WORDS_A_LINE: usize = 8;
/// Words of an entry: two of key, five of value, one spare to keep entries on lines.
const WORDS_AN_ENTRY: usize = 8;
const KEY_WORDS: usize = 2;
const VALUE_WORDS: usize = VALUE_BYTES_MAX.div_ceil(8);
const _: () = assert!(KEY_WORDS + VALUE_WORDS <= WORDS_AN_ENTRY);
/// Keys whose lines are fetched together.
const BATCH: usize = 32;

/// The table, for one thread at a time.
#[derive(Debug)]
pub struct Limit(Mutex<Table>);

/// The memory behind a handle.
#[derive(Debug)]
pub struct Table {
    /// 0 is an empty word.
    index: Region<u64>,
    entries: Region<u64>,
    lines: u64,
    count: usize,
    /// The entry that the next put writes.
    next: usize,
}

impl Limit {
    /// Maps the memory.
    pub fn new(shape: &Shape) -> io::Result<Limit> {
        let lines = shape.entries.div_ceil(WORDS_A_LINE / 2).max(1);
        let entries = Region::new(shape.entries * WORDS_AN_ENTRY)?;
        Ok(Limit(Mutex::new(Table {
            index: Region::new(lines * WORDS_A_LINE)?,
            entries,
            lines: lines as u64,
            count: shape.entries,
            next: 0,
        })))
    }
}

impl Peer for Limit {
    type Handle<'a> = MutexGuard<'a, Table>;

    fn handle(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key's two words.
#[inline(always)]
fn words(key: &Key) -> [u64; KEY_WORDS] {
    let both = u128::from_le_bytes(*key);
    [both as u64, (both >> 64) as u64]
}

#[inline(always)]
fn hash(key: [u64; KEY_WORDS]) -> u64 {
    let product =
        u128::from(key[0] ^ 0x6a09_e667_f3bc_c909) * u128::from(key[1] ^ 0xbb67_ae85_84ca_a73b);
    product as u64 ^ (product >> 64) as u64
}

impl Table {
    /// Where the line of a hash begins.
    #[inline(always)]
    fn line(&self, hash: u64) -> usize {
        ((u128::from(hash) * u128::from(self.lines)) >> 64) as usize * WORDS_A_LINE
    }

    /// The word of the index that a hash and the entry's place make. Places count from 1.
    #[inline(always)]
    fn word(hash: u64, entry: usize) -> u64 {
        hash << 32 | (entry as u64 + 1)
    }

    /// The entry with this hash that its line names first, if it names one.
    #[inline(always)]
    fn candidate(&self, hash: u64) -> Option<usize> {
        let line = self.line(hash);
        let mut matches = 0u32;
        for (way, word) in self.index[line..line + WORDS_A_LINE].iter().enumerate() {
            matches |= u32::from(word >> 32 == hash & u64::from(u32::MAX) && *word != 0) << way;
        }
        if matches == 0 {
            return None;
        }
        Some(self.index[line + matches.trailing_zeros() as usize] as u32 as usize - 1)
    }

    /// The number that an entry's value begins with, if it has this key.
    #[inline(always)]
    fn read(&self, entry: usize, key: [u64; KEY_WORDS]) -> Option<u64> {
        let words = &self.entries[entry * WORDS_AN_ENTRY..][..WORDS_AN_ENTRY];
        (words[..KEY_WORDS] == key).then(|| words[KEY_WORDS])
    }
}

impl Handle for MutexGuard<'_, Table> {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        let key = words(key);
        self.read(self.candidate(hash(key))?, key)
    }

    #[inline]
    fn get_many(&mut self, keys: &[Key], mut each: impl FnMut(Option<u64>)) {
        let table: &Table = self;
        let mut hashes = [0u64; BATCH];
        let mut found = [None; BATCH];
        for keys in keys.chunks(BATCH) {
            for (hash_of, key) in hashes.iter_mut().zip(keys) {
                *hash_of = hash(words(key));
                prefetch_slice(&table.index, table.line(*hash_of));
            }
            for (found, &hash) in found.iter_mut().zip(&hashes[..keys.len()]) {
                *found = table.candidate(hash);
                if let Some(entry) = *found {
                    prefetch_slice(&table.entries, entry * WORDS_AN_ENTRY);
                }
            }
            for (found, key) in found.iter().zip(keys) {
                each(found.and_then(|entry| table.read(entry, words(key))));
            }
        }
    }

    #[inline]
    fn put(&mut self, key: &Key, value: &[u8]) {
        let key = words(key);
        let (hash_new, table) = (hash(key), &mut **self);
        let entry = table.next;
        table.next = if entry + 1 == table.count { 0 } else { entry + 1 };
        let line = table.line(hash_new);
        prefetch_slice(&table.index, line);

        let start = entry * WORDS_AN_ENTRY;
        let old = [table.entries[start], table.entries[start + 1]];
        let hash_old = hash(old);
        let (word_old, line_old) = (Table::word(hash_old, entry), table.line(hash_old));
        for word in &mut table.index[line_old..line_old + WORDS_A_LINE] {
            if *word == word_old {
                *word = 0;
            }
        }
        let slot = &mut table.entries[start..start + WORDS_AN_ENTRY];
        slot[..KEY_WORDS].copy_from_slice(&key);
        slot[KEY_WORDS] = number_of(value);
        for (word, bytes) in slot[KEY_WORDS + 1..].iter_mut().zip(value[8..].chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        let line = &mut table.index[line..line + WORDS_A_LINE];
        let way = line.iter().position(|&word| word == 0).unwrap_or(entry % WORDS_A_LINE);
        line[way] = Table::word(hash_new, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{ValueBuffer, key};

    /// After churn it holds nearly all of the newest entries, and what it gives is right.
    #[test]
    fn it_is_a_table() {
        let limit = Limit::new(&Shape { entries: 1000, threads: 1 }).unwrap();
        let mut table = limit.handle();
        let mut buffer = ValueBuffer::default();
        for number in 0..3000 {
            table.put(&key(number), buffer.value(number));
        }
        let keys: Vec<Key> = (0..3000).map(key).collect();
        let one: Vec<Option<u64>> = keys.iter().map(|key| table.get(key)).collect();
        let mut many = Vec::new();
        table.get_many(&keys, |found| many.push(found));
        assert_eq!(one, many);
        assert!(one[..2000].iter().all(Option::is_none));
        assert!(one.iter().enumerate().all(|(i, found)| found.is_none_or(|n| n == i as u64)));
        assert!(one[2000..].iter().flatten().count() > 930);
    }
}
