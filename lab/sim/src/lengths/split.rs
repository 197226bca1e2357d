//! Names in classes of length, and memory divided among them.

use larder::policy::Replacement;

use super::{Settings, Split};
use crate::policy::{CAPACITY_MAX, Kind, Visitor};
use crate::sync::table::Table;

/// Of the paper's example (section 3.2): 50 MB for names of 3 bytes, 1 MB for those of 65.
const GEOMETRIC_RATIO: f64 = 50.0;
const GEOMETRIC_SHORT: f64 = 3.0;
const GEOMETRIC_LONG: f64 = 65.0;

/// Names by class.
pub(super) struct Classes {
    width: u8,
    /// Of each name, in order of popularity.
    members: Vec<Member>,
    /// Names of each class.
    sizes: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Member {
    length: u8,
    class: u8,
    /// Its number among the names of the class.
    number: u32,
}

impl Classes {
    /// Class c holds lengths above `c * width`, up to `(c + 1) * width`.
    pub fn new(lengths: &[u8], width: u8) -> Classes {
        let mut sizes = Vec::new();
        let member = |&length: &u8| {
            let class = length.saturating_sub(1) / width;
            if sizes.len() <= usize::from(class) {
                sizes.resize(usize::from(class) + 1, 0);
            }
            let number = sizes[usize::from(class)];
            sizes[usize::from(class)] += 1;
            Member { length, class, number }
        };
        let members = lengths.iter().map(member).collect();
        Classes { width, members, sizes }
    }

    pub fn width(&self) -> u8 {
        self.width
    }

    /// Bytes that a name of the class takes.
    fn slot_bytes(&self, class: usize) -> u64 {
        (class as u64 + 1) * u64::from(self.width)
    }

    /// What each class should have of the memory, in any unit.
    fn weights(&self, split: Split, alpha: f64) -> Vec<f64> {
        let mut weights = vec![0.0; self.sizes.len()];
        match split {
            Split::Moving => {}
            Split::Universe => {
                for (class, weight) in weights.iter_mut().enumerate() {
                    *weight = f64::from(self.sizes[class]) * self.slot_bytes(class) as f64;
                }
            }
            Split::Popularity => {
                for (rank, member) in self.members.iter().enumerate() {
                    let class = usize::from(member.class);
                    let root = (rank as f64 + 1.0).powf(-alpha / 2.0);
                    weights[class] += root * self.slot_bytes(class) as f64;
                }
            }
            Split::Geometric => {
                let step = GEOMETRIC_RATIO.ln() / (GEOMETRIC_LONG - GEOMETRIC_SHORT);
                for (class, weight) in weights.iter_mut().enumerate() {
                    let slot = self.slot_bytes(class);
                    let lengths = slot + 1 - u64::from(self.width)..=slot;
                    let each = |length: u64| (step * (GEOMETRIC_SHORT - length as f64)).exp();
                    *weight = lengths.filter(|&length| length >= 3).map(each).sum();
                }
            }
        }
        weights
    }
}

/// A part of the memory, whose policy's type is forgotten.
pub(super) trait Part: Send {
    /// A lookup, and a set if it missed; true for a hit.
    fn request(&mut self, name: u32, charge: u32) -> bool;

    fn holds(&self, name: u32) -> bool;
}

impl<P: Replacement + Send> Part for Table<P> {
    fn request(&mut self, name: u32, charge: u32) -> bool {
        let is_hit = self.get(name).is_some();
        if is_hit {
            self.hit(name, 0);
        } else {
            self.store(name, 0, charge, |_| ());
        }
        is_hit
    }

    fn holds(&self, name: u32) -> bool {
        self.get(name).is_some()
    }
}

/// Divided memory.
pub(super) enum Memory {
    /// One policy over all.
    Whole(Box<dyn Part>),
    /// A policy a class; none where the class has no room for a single name.
    Classes(Vec<Option<Box<dyn Part>>>),
}

impl Memory {
    pub fn new(
        classes: &Classes,
        split: Split,
        memory_bytes: u64,
        policy: Kind,
        settings: &Settings,
    ) -> Result<Memory, larder::Error> {
        let build = |entries: u64, capacity: u64| {
            let entries = entries.clamp(1, u64::from(CAPACITY_MAX)) as u32;
            policy.build(entries, settings.seed, Maker { capacity })
        };
        if split == Split::Moving {
            let shortest = classes.sizes.iter().position(|&size| size > 0).unwrap_or(0);
            let fits = memory_bytes / classes.slot_bytes(shortest);
            let entries = fits.min(classes.members.len() as u64);
            return Ok(Memory::Whole(build(entries, memory_bytes)?));
        }
        let weights = classes.weights(split, settings.alpha);
        let sum: f64 = weights.iter().sum();
        let part = |(class, weight): (usize, &f64)| {
            let slots = memory_bytes as f64 * weight / sum.max(f64::MIN_POSITIVE);
            // A class needs no more than its names do.
            match slots as u64 / classes.slot_bytes(class) {
                0 => Ok(None),
                slots => {
                    let slots = slots.min(u64::from(classes.sizes[class]).max(1));
                    build(slots, slots * classes.slot_bytes(class)).map(Some)
                }
            }
        };
        let parts: Result<_, larder::Error> = weights.iter().enumerate().map(part).collect();
        Ok(Memory::Classes(parts?))
    }

    /// A lookup, and a set if it missed; true for a hit.
    pub fn request(&mut self, classes: &Classes, name: u32) -> bool {
        let member = classes.members[name as usize];
        let class = usize::from(member.class);
        let charge = classes.slot_bytes(class) as u32;
        match self {
            Memory::Whole(part) => part.request(name, charge),
            Memory::Classes(parts) => {
                parts[class].as_mut().is_some_and(|part| part.request(member.number, charge))
            }
        }
    }

    /// Bytes of names held; what rounding up adds is not among them.
    pub fn named_bytes(&self, classes: &Classes) -> u64 {
        let holds = |(name, member): &(usize, &Member)| match self {
            Memory::Whole(part) => part.holds(*name as u32),
            Memory::Classes(parts) => {
                let part = parts[usize::from(member.class)].as_ref();
                part.is_some_and(|part| part.holds(member.number))
            }
        };
        let held = classes.members.iter().enumerate().filter(holds);
        held.map(|(_, member)| u64::from(member.length)).sum()
    }
}

/// Puts a policy to work.
struct Maker {
    capacity: u64,
}

impl Visitor for Maker {
    type Output = Box<dyn Part>;

    fn visit<P: Replacement + Send + 'static>(self, policy: P) -> Box<dyn Part> {
        Box::new(Table::new(policy, self.capacity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths are rounded up to their class, and classes number their names.
    #[test]
    fn names_are_classed() {
        let classes = Classes::new(&[1, 8, 9, 16, 17, 3], 8);
        assert_eq!(classes.sizes, [3, 2, 1]);
        let of = |name: usize| (classes.members[name].class, classes.members[name].number);
        assert_eq!([of(0), of(1), of(2), of(4), of(5)], [(0, 0), (0, 1), (1, 0), (2, 0), (0, 2)]);
        assert_eq!([classes.slot_bytes(0), classes.slot_bytes(2)], [8, 24]);
    }

    /// The paper's own numbers: 50 to 1 between 3 and 65 bytes; the universe's share is that of its bytes.
    #[test]
    fn weights_are_as_stated() {
        let lengths: Vec<u8> = (1..=65).collect();
        let classes = Classes::new(&lengths, 1);
        let weights = classes.weights(Split::Geometric, 0.9);
        assert_eq!((weights[0], weights[1]), (0.0, 0.0));
        assert!((weights[2] / weights[64] - 50.0).abs() < 1e-9);
        let classes = Classes::new(&[4, 4, 4, 12], 8);
        assert_eq!(classes.weights(Split::Universe, 0.9), [24.0, 16.0]);
        let weights = classes.weights(Split::Popularity, 2.0);
        let wanted = [8.0 * (1.0 + 0.5 + 1.0 / 3.0), 16.0 / 4.0];
        assert!(weights.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{weights:?}");
    }
}
