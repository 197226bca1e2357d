//! The result of a search: counts, and what could not be read.

/// Segments that a line about damage names.
const SEGMENTS_NAMED: usize = 8;

/// In the number of a segment: it is one of pinned packets.
pub const PINNED: u64 = 1 << 63;

/// The number of a segment for messages.
pub fn segment_name(number: u64) -> String {
    match number & PINNED {
        0 => number.to_string(),
        _ => format!("pinned/{}", number & !PINNED),
    }
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Packets that were found.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Segments that were searched.
    pub segments: u64,
    /// Closed segments without a valid index, which were read whole: their names are known only
    /// from other segments. And those that grow, or were left by a kill, whose journal has lost
    /// events.
    pub segments_without_index: Vec<u64>,
    /// Segments that could not be read completely; the search went on after the damage.
    pub damaged: Vec<Damage>,
    /// The visitor stopped it.
    pub is_broken_off: bool,
}

impl Summary {
    /// Adds the result of a search that followed.
    pub(super) fn add(&mut self, later: Summary) {
        self.packets += later.packets;
        self.bytes += later.bytes;
        self.segments += later.segments;
        self.segments_without_index.extend(later.segments_without_index);
        self.damaged.extend(later.damaged);
        self.is_broken_off |= later.is_broken_off;
    }

    /// A line about what could not be read, if there is something.
    pub fn lack(&self) -> Option<String> {
        if self.damaged.is_empty() && self.segments_without_index.is_empty() {
            return None;
        }
        let numbers = |numbers: &mut dyn Iterator<Item = u64>| {
            let numbers: Vec<String> = numbers.take(SEGMENTS_NAMED).map(segment_name).collect();
            numbers.join(", ")
        };
        let mut text = String::new();
        if !self.damaged.is_empty() {
            let of = numbers(&mut self.damaged.iter().map(|damage| damage.segment));
            text += &format!("packets could not be read in {} segments ({of})", self.damaged.len());
        }
        if !self.segments_without_index.is_empty() {
            let of = numbers(&mut self.segments_without_index.iter().copied());
            let count = self.segments_without_index.len();
            text += if text.is_empty() { "" } else { "; " };
            text += &format!(
                "{count} segments have no sound index or journal ({of}), so names may be missing"
            );
        }
        Some(text)
    }
}

/// The unreadable part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its number.
    pub segment: u64,
    /// Packets that could not be read: with an index those to find, in a scan all. `None`: the
    /// number is unknown.
    pub packets: Option<u64>,
    /// Bytes that are no packets, as far as they were read.
    pub bytes: u64,
}
