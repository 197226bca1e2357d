//! Millions of names, each with a number, found by the name or by any name below it.
//!
//! ```text
//! arena   number (4 bytes), name in wire form; one after the other
//! slots   32 bits of hash, place in the arena + 1; open addressing, linear probing; 0 is an empty slot
//! ```
//!
//! The hash of a name covers its labels from the last to the first, so one pass yields the hashes
//! of all names above it ([`Suffixes`]). It is keyed (SipHash-1-3): neither clients nor authors of
//! lists can make slots collide. 128 bits record which numbers of labels occur, so most suffixes
//! are not even looked up.
//!
//! Bounds: 2^32 bytes of arena; more is an error. Three slots of four are used after
//! [`Names::seal`], so a name costs 10.7 bytes in addition to its wire form and number.
//!
//! Cost: 8 to 9 slots, in one or two cache lines, for a suffix that is not in the table and whose
//! number of labels occurs. For one that is in the table, also its place in the arena. Hashing is
//! one pass over the name and a finish for each label.

use std::hash::Hasher;

use larder_wire::dns::LABELS_MAX;
use siphasher::sip::SipHasher13;

use crate::name::WireName;

/// Bytes of the number before a name.
const VALUE_BYTES: usize = 4;

/// A name and all names above it, with their hashes, by number of labels: 0 is the root.
pub struct Suffixes<'a> {
    name: &'a [u8],
    labels: usize,
    starts: [u8; LABELS_MAX + 1],
    hashes: [u64; LABELS_MAX + 1],
}

impl<'a> Suffixes<'a> {
    /// For a name in wire form and lower case; `None` for anything else.
    pub fn new(name: &'a [u8], key: &SipHasher13) -> Option<Suffixes<'a>> {
        let mut found =
            Suffixes { name, labels: 0, starts: [0; LABELS_MAX + 1], hashes: [0; LABELS_MAX + 1] };
        let mut at = 0;
        loop {
            // Filled from the name's first label on, and reversed below.
            *found.starts.get_mut(found.labels)? = u8::try_from(at).ok()?;
            match *name.get(at)? {
                0 if at + 1 == name.len() => break,
                length @ 1..=63 => at += 1 + usize::from(length),
                _ => return None,
            }
            found.labels += 1;
        }
        found.starts[..=found.labels].reverse();
        // Keyed, so an attacker cannot choose names that collide (invariant 2 of `policy`).
        let mut hasher = *key;
        found.hashes[0] = hasher.finish();
        for labels in 1..=found.labels {
            let (start, end) = (found.starts[labels], found.starts[labels - 1]);
            hasher.write(&name[start.into()..end.into()]);
            found.hashes[labels] = hasher.finish();
        }
        Some(found)
    }

    /// Labels of the whole name.
    pub fn labels(&self) -> usize {
        self.labels
    }

    /// Where the last `labels` labels of the name begin.
    pub fn start(&self, labels: usize) -> usize {
        self.starts[labels].into()
    }

    /// The last `labels` labels, with the root.
    pub fn name(&self, labels: usize) -> &'a [u8] {
        &self.name[self.start(labels)..]
    }
}

/// The last labels that occur among names. Most queries are for names whose last label is in no
/// source, which a walk over their labels finds out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tops([u64; 4]);

impl Tops {
    /// The labels of both.
    pub fn or(self, other: Tops) -> Tops {
        Tops(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// False if neither a name in wire form, in any case, nor a name above it is in the table. True
    /// also for bytes that are not a name.
    pub fn may_have(&self, name: &[u8]) -> bool {
        let bit = Tops::bit(name);
        bit.is_none_or(|bit| self.0[usize::from(bit >> 6)] >> (bit & 63) & 1 == 1)
    }

    fn add(&mut self, name: &[u8]) {
        match Tops::bit(name) {
            Some(bit) => self.0[usize::from(bit >> 6)] |= 1 << (bit & 63),
            // Everything is below the root.
            None => self.0 = [u64::MAX; 4],
        }
    }

    /// Depends on the last label of a name; `None` for the root.
    fn bit(name: &[u8]) -> Option<u8> {
        let mut rest = name;
        loop {
            let (&length, after) = rest.split_first()?;
            let (label, after) = after.split_at_checked(length.into())?;
            if after == [0] {
                let mixed = label.iter().fold(length, |mixed, &byte| {
                    mixed.wrapping_mul(31).wrapping_add(byte.to_ascii_lowercase())
                });
                return Some(mixed);
            }
            rest = after;
        }
    }
}

/// The names take more than 2^32 bytes.
#[derive(Debug)]
pub struct Full;

/// Names, each with a number.
#[derive(Clone)]
pub struct Names {
    slots: Vec<u64>,
    arena: Vec<u8>,
    count: usize,
    /// Bit n: the table has a name of n labels.
    depths: u128,
    tops: Tops,
    key: SipHasher13,
}

impl Names {
    /// Empty. All lookups must use hashes with the same `key`.
    pub fn new(key: SipHasher13) -> Names {
        Names {
            slots: Vec::new(),
            arena: Vec::new(),
            count: 0,
            depths: 0,
            tops: Tops::default(),
            key,
        }
    }

    /// The number of the suffix of `labels` labels.
    #[inline]
    pub fn get(&self, name: &Suffixes<'_>, labels: usize) -> Option<u32> {
        if self.depths >> labels & 1 == 0 {
            return None;
        }
        self.place(name, labels).ok().map(|at| self.value(at))
    }

    /// The longest suffix in the table of at most `labels` labels: its labels and number.
    #[inline]
    pub fn longest(&self, name: &Suffixes<'_>, labels: usize) -> Option<(usize, u32)> {
        (0..=labels).rev().find_map(|labels| Some((labels, self.get(name, labels)?)))
    }

    /// Adds the whole name; `change` makes its number from the previous one, if any.
    pub fn put<E: From<Full>>(
        &mut self,
        name: &Suffixes<'_>,
        change: impl FnOnce(Option<u32>) -> Result<u32, E>,
    ) -> Result<(), E> {
        if (self.count + 1) * 4 > self.slots.len() * 3 {
            self.rehash((self.slots.len() * 2).max(16));
        }
        let labels = name.labels();
        match self.place(name, labels) {
            Ok(at) => {
                let value = change(Some(self.value(at)))?;
                self.arena[at..at + VALUE_BYTES].copy_from_slice(&value.to_le_bytes());
            }
            Err(slot) => {
                let value = change(None)?;
                let at = self.arena.len();
                if at + VALUE_BYTES + name.name(labels).len() >= u32::MAX as usize {
                    return Err(Full.into());
                }
                self.arena.extend_from_slice(&value.to_le_bytes());
                self.arena.extend_from_slice(name.name(labels));
                self.slots[slot] = filled(name.hashes[labels], at);
                self.count += 1;
                self.depths |= 1 << labels;
                self.tops.add(name.name(labels));
            }
        }
        Ok(())
    }

    /// Frees the memory that growth took in excess.
    pub fn seal(&mut self) {
        self.rehash(self.count * 4 / 3 + 1);
        self.arena.shrink_to_fit();
    }

    /// The last labels of the names.
    pub fn tops(&self) -> Tops {
        self.tops
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The bytes that they take.
    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u64>() + self.arena.capacity()
    }

    /// The name at a place of the arena, and the place of the next name. From 0 on it returns all
    /// names in order of their addition, also while more are added.
    pub fn walk(&self, at: usize) -> Option<(WireName, usize)> {
        let name = self.entry(at)?;
        Some((WireName::from_wire(name)?, at + VALUE_BYTES + name.len()))
    }

    /// The place of a name in the arena, or the slot for it. There is always an empty slot.
    fn place(&self, name: &Suffixes<'_>, labels: usize) -> Result<usize, usize> {
        let hash = name.hashes[labels];
        let wanted = name.name(labels);
        let mut slot = home(hash, self.slots.len());
        loop {
            match self.slots.get(slot) {
                None => slot = 0,
                Some(0) => return Err(slot),
                Some(&found) => {
                    let at = found as u32 as usize - 1;
                    // A name ends in the root, which occurs nowhere else: equal bytes are equal
                    // names.
                    if found >> 32 == hash >> 32
                        && self.arena[at + VALUE_BYTES..].starts_with(wanted)
                    {
                        return Ok(at);
                    }
                    slot += 1;
                }
            }
        }
    }

    fn value(&self, at: usize) -> u32 {
        self.arena[at..].first_chunk().map_or(0, |&bytes| u32::from_le_bytes(bytes))
    }

    /// The name at a place of the arena; `None` at its end.
    fn entry(&self, at: usize) -> Option<&[u8]> {
        let name = self.arena.get(at + VALUE_BYTES..)?;
        let mut end = 0;
        while *name.get(end)? != 0 {
            end += 1 + usize::from(name[end]);
        }
        Some(&name[..=end])
    }

    fn rehash(&mut self, slots: usize) {
        let mut all = vec![0_u64; slots];
        let mut at = 0;
        while let Some(name) = self.entry(at) {
            let suffixes = Suffixes::new(name, &self.key);
            let hash = suffixes.map_or(0, |name| name.hashes[name.labels]);
            let mut slot = home(hash, slots);
            while all[slot] != 0 {
                slot = if slot + 1 < slots { slot + 1 } else { 0 };
            }
            all[slot] = filled(hash, at);
            at += VALUE_BYTES + name.len();
        }
        self.slots = all;
    }
}

/// The slot where the search for a hash begins.
fn home(hash: u64, slots: usize) -> usize {
    ((u64::from(hash as u32) * slots as u64) >> 32) as usize
}

fn filled(hash: u64, at: usize) -> u64 {
    hash >> 32 << 32 | (at as u64 + 1)
}

/// Debug output has no keys and no names.
impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names").field("len", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn key() -> SipHasher13 {
        SipHasher13::new_with_key(&[5; 16])
    }

    /// A name of labels of one byte each.
    fn name(labels: &[u8]) -> Vec<u8> {
        labels.iter().flat_map(|&label| [1, label]).chain([0]).collect()
    }

    fn put(names: &mut Names, name: &[u8], value: u32) {
        let name = Suffixes::new(name, &key()).unwrap();
        names.put(&name, |_| Ok::<u32, Full>(value)).unwrap();
    }

    /// Bytes that are not a name in wire form have no suffixes; the longest name has all of them.
    #[test]
    fn only_names_have_suffixes() {
        for bytes in [
            b"".as_slice(),
            b"\x01",
            b"\x01a",
            b"\x02a\0",
            b"\0\0",
            b"\x01a\0b",
            b"\x40a\0",
            b"\xc0\0",
            &name(&[b'a'; 128]),
            &[63; 300],
        ] {
            assert!(Suffixes::new(bytes, &key()).is_none(), "{bytes:?}");
        }
        let longest = name(&[b'a'; 127]);
        let suffixes = Suffixes::new(&longest, &key()).unwrap();
        assert_eq!((suffixes.labels(), suffixes.name(0)), (127, b"\0".as_slice()));
        assert_eq!(suffixes.name(2), b"\x01a\x01a\0");
    }

    /// Labels that contain bytes like those of other labels are distinct.
    #[test]
    fn labels_are_not_run_together() {
        let mut names = Names::new(key());
        put(&mut names, b"\x03a\x01b\0", 1);
        let other = Suffixes::new(b"\x01a\x01b\0", &key()).unwrap();
        assert_eq!(names.longest(&other, other.labels()), None);
        let mut hashes: Vec<_> = [b"\x03a\x01b\0".as_slice(), b"\x01a\x01b\0", b"\x01b\x01a\0"]
            .map(|name| Suffixes::new(name, &key()).unwrap().hashes.into_iter().max())
            .to_vec();
        hashes.dedup();
        assert_eq!(hashes.len(), 3);
    }

    /// An empty table, sealed or not, finds nothing, and the root can be added.
    #[test]
    fn empty_and_root() {
        let mut names = Names::new(key());
        let any = Suffixes::new(b"\x01a\0", &key()).unwrap();
        assert_eq!(names.longest(&any, 1), None);
        names.seal();
        assert_eq!(names.longest(&any, 1), None);
        put(&mut names, b"\0", 9);
        assert_eq!(names.longest(&any, 1), Some((0, 9)));
    }

    /// A name below another last label is known to be absent; below the root everything may be
    /// present.
    #[test]
    fn last_labels() {
        let mut names = Names::new(key());
        assert!(!names.tops().may_have(b"\x01a\0") && !names.tops().may_have(b"\x03com\0"));
        put(&mut names, b"\x01a\x03com\0", 1);
        assert!(names.tops().may_have(b"\x03com\0") && names.tops().may_have(b"\x01b\x03CoM\0"));
        assert!(!names.tops().may_have(b"\x03net\0") && !names.tops().may_have(b"\x03com\x01a\0"));
        put(&mut names, b"\0", 2);
        assert!(names.tops().may_have(b"\x03net\0"));
    }

    proptest! {
        /// The longest suffix is the one that a walk over a plain map finds, before and after
        /// sealing. Sealed, the table is three quarters full.
        #[test]
        fn as_the_obvious_walk(
            listed in prop::collection::vec((prop::collection::vec(b'a'..b'd', 0..5), any::<u32>()), 0..200),
            queried in prop::collection::vec(prop::collection::vec(b'a'..b'd', 0..7), 1..50),
        ) {
            let mut names = Names::new(key());
            let mut model = HashMap::new();
            for (labels, value) in &listed {
                put(&mut names, &name(labels), *value);
                model.insert(labels.clone(), *value);
            }
            for sealed in [false, true] {
                if sealed {
                    names.seal();
                    prop_assert_eq!(names.slots.len(), model.len() * 4 / 3 + 1);
                }
                prop_assert_eq!(names.len(), model.len());
                for labels in &queried {
                    let wire = name(labels);
                    let suffixes = Suffixes::new(&wire, &key()).unwrap();
                    let walked = (0..=labels.len())
                        .find_map(|skip| Some((labels.len() - skip, *model.get(&labels[skip..])?)));
                    prop_assert!(walked.is_none() || names.tops().may_have(&wire.to_ascii_uppercase()));
                    prop_assert_eq!(names.longest(&suffixes, suffixes.labels()), walked);
                    prop_assert_eq!(names.get(&suffixes, suffixes.labels()), model.get(labels).copied());
                }
            }
        }
    }
}
