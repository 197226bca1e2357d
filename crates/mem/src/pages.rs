//! Main's private data about the arena: which page serves which class, which slots are in use.
//!
//! ```text
//! page    free -> serving a class -> draining -> free, or serving again if slots have run out
//! slot    free -> taken (owned by a writer) -> taken and live -> taken (retired) -> free
//! ```
//!
//! A page is assigned to a class on demand, and returns when its last slot does. If a class has
//! more pages than its slots need, one is *drained*. No slot is taken from it any more, the engine
//! copies its live slots to other pages, and the last slot that leaves limbo frees the page. Two
//! bits per 16-byte unit are the states taken and live, so main never accesses the memory of a
//! retired slot. Everything is O(1) but a page's change of class (its bitmap is formatted) and the
//! choice of a page to drain (all pages are checked).

mod drain;

use std::mem::offset_of;

use crate::arena::{ARENA_BYTES_MAX, Arena};
use crate::class::{CLASS_BYTES_MIN, Classes, PAGE_BYTES_MAX, SLOT_ALIGN, opening_slots};
use crate::error::Error;
use crate::region::{Memory, Region, Zeroed};

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Free,
    Serving,
    Draining,
}

/// Words of a page's bitmaps that are stored with it. In pages of 4 KiB, those of all slots of 22 bytes or more.
const WORDS_IN_PAGE: usize = 3;

/// What is known of a page, in one cache line: a slot that is taken, published, retired or freed can
/// be of any page, and another core may have written to it last.
///
/// The fields' order keeps every counter off 4-alignment. An aligned one would be read by a load of
/// four bytes, which has to wait for the two just written, and those for all stores before them.
#[derive(Debug)]
#[repr(C, align(64))]
struct Page {
    state: State,
    class: u8,
    used: u16,
    /// The word of the bitmap where the search for a free slot begins.
    hint: u8,
    has_room: bool,
    live: u16,
    /// Neighbors among the class's pages that have room, if this one has.
    prev: u32,
    next: u32,
    bits: [Bits; WORDS_IN_PAGE],
}

/// A word of each bitmap of a page.
#[derive(Debug, Clone, Copy)]
struct Bits {
    /// A bit set for each slot that is *not* taken, by its number in the page.
    free: u64,
    /// A bit set for each live slot.
    live: u64,
}

// SAFETY: integers, `false`, and `State::Free`, which is 0; none has a drop.
unsafe impl Zeroed for Page {}
// SAFETY: integers.
unsafe impl Zeroed for Bits {}

const _: () = assert!(size_of::<Page>() == 64 && State::Free as u8 == 0);
const _: () = assert!(offset_of!(Page, used) % 4 != 0 && offset_of!(Page, live) % 4 != 0);
// The largest values of its counters, and of its bitmap's last word.
const _: () = assert!(PAGE_BYTES_MAX / CLASS_BYTES_MIN < 1 << u16::BITS);
const _: () = assert!(words(PAGE_BYTES_MAX) <= 1 << u8::BITS);

#[derive(Debug, Clone, Copy)]
struct ClassBooks {
    /// Bytes of a slot.
    size: u32,
    /// Multiplying an offset in a page, in units of `SLOT_ALIGN`, by this gives the slot's number
    /// in the high half: `2^32 / size`, rounded up. Exact while offset times size is below 2^32.
    reciprocal: u64,
    /// Slots in a page.
    slots: u32,
    /// A slot's share of its page, in units of charge.
    charge: u64,
    /// The additional cost of the next slot to be published: [`Classes::opening`], once per class.
    opening: u64,
    pages: u32,
    used: u32,
    live: u32,
    /// First and last page with room.
    first: u32,
    last: u32,
}

/// The use of one size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassUse {
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Pages that serve the class, draining ones included.
    pub pages: u32,
    /// Taken slots: live, retired and not yet free, or owned by a writer.
    pub slots_used: u32,
    /// Live slots.
    pub slots_live: u32,
}

/// The use of the pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageUse {
    /// All pages of the arena.
    pub total: u32,
    /// Pages that serve no class.
    pub free: u32,
    /// Pages whose live slots are being moved, or were moved and wait for readers.
    pub draining: u32,
    /// Bytes of slots that writers own: taken, and neither published nor given back.
    pub owned_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Pages {
    shift: u32,
    /// Bitmap words per page.
    words: usize,
    pages: Region<Page>,
    /// The words that are not stored with their pages.
    more_bits: Region<Bits>,
    free_pages: Vec<u32>,
    classes: Box<[ClassBooks]>,
    draining: u32,
    /// The page being drained that still has live slots.
    drain: Option<u32>,
    live_charge: u64,
    owned_bytes: u64,
}

/// Words of a page's bitmap.
const fn words(page_bytes: usize) -> usize {
    page_bytes.div_ceil(CLASS_BYTES_MIN * 64)
}

/// Those that are not stored with the page.
const fn more_words(page_bytes: usize) -> usize {
    words(page_bytes).saturating_sub(WORDS_IN_PAGE)
}

/// Bytes for a page of the arena.
pub(crate) fn books_bytes(page_bytes: usize) -> usize {
    size_of::<Page>() + more_words(page_bytes) * size_of::<Bits>() + size_of::<u32>()
}

/// Of those, bytes of a mapping, for a number of pages.
pub(crate) fn mapped_bytes(page_bytes: usize, pages: usize) -> usize {
    let more = more_words(page_bytes).saturating_mul(pages);
    Memory::bytes_for::<Page>(pages).saturating_add(Memory::bytes_for::<Bits>(more))
}

impl Pages {
    pub fn new(memory: &Memory, classes: &Classes, pages: usize) -> Result<Self, Error> {
        let count = u32::try_from(pages).map_err(|_| Error::Config("too many pages"))?;
        if count == 0 || pages as u64 * classes.page_bytes() as u64 >= ARENA_BYTES_MAX {
            return Err(Error::Config("a shard's arena has 1 page to 16 GiB"));
        }
        let more_words = more_words(classes.page_bytes());
        Ok(Pages {
            shift: classes.page_bytes().trailing_zeros(),
            words: words(classes.page_bytes()),
            pages: memory.region(pages).map_err(Error::Memory)?,
            more_bits: memory.region(more_words * pages).map_err(Error::Memory)?,
            // Last in, first out: the arena is first used from its beginning.
            free_pages: (0..count).rev().collect(),
            classes: (0..classes.count() as u8)
                .map(|class| ClassBooks {
                    size: classes.size(class) as u32,
                    reciprocal: (1u64 << 32).div_ceil((classes.size(class) / SLOT_ALIGN) as u64),
                    slots: classes.slots_per_page(class) as u32,
                    charge: classes.charge(class),
                    opening: classes.opening(class),
                    pages: 0,
                    used: 0,
                    live: 0,
                    first: NONE,
                    last: NONE,
                })
                .collect(),
            draining: 0,
            drain: None,
            live_charge: 0,
            owned_bytes: 0,
        })
    }

    /// Sum of the charges of all live slots, and of the cost of opening their classes.
    #[inline]
    pub fn live_charge(&self) -> u64 {
        self.live_charge
    }

    /// The amount that publishing a slot of `class` adds to that.
    #[inline]
    pub fn charge(&self, class: u8) -> u64 {
        let class = &self.classes[class as usize];
        class.charge + class.opening
    }

    /// The amount that retiring a live slot subtracts from that.
    #[inline]
    pub fn charge_of(&self, id: u32) -> u64 {
        self.classes[self.class_of(id) as usize].charge
    }

    /// Bytes of a taken slot.
    #[inline]
    pub fn bytes_of(&self, id: u32) -> u64 {
        u64::from(self.classes[self.class_of(id) as usize].size)
    }

    /// The class of a taken slot.
    #[inline]
    pub fn class_of(&self, id: u32) -> u8 {
        self.pages[self.locate(id).0].class
    }

    pub fn page_use(&self) -> PageUse {
        PageUse {
            total: self.pages.len() as u32,
            free: self.free_pages.len() as u32,
            draining: self.draining,
            owned_bytes: self.owned_bytes,
        }
    }

    pub fn class_use(&self) -> impl Iterator<Item = ClassUse> + '_ {
        self.classes.iter().map(|class| ClassUse {
            slot_bytes: class.size,
            pages: class.pages,
            slots_used: class.used,
            slots_live: class.live,
        })
    }

    /// The page of a slot, and its byte offset in it.
    #[inline]
    fn locate(&self, id: u32) -> (usize, usize) {
        let offset = Arena::offset_of(id);
        (offset >> self.shift, offset & ((1 << self.shift) - 1))
    }

    /// The slot with a number in a page whose slots have `size` bytes.
    #[inline]
    fn id(&self, page: usize, slot: usize, size: u32) -> u32 {
        Arena::id_at((page << self.shift) + slot * size as usize)
    }

    #[inline]
    fn slot_in_page(&self, id: u32) -> (usize, usize) {
        let (page, offset) = self.locate(id);
        let class = &self.classes[self.pages[page].class as usize];
        debug_assert_eq!(offset as u32 % class.size, 0);
        let units = (offset / SLOT_ALIGN) as u64;
        let slot = ((units * class.reciprocal) >> 32) as usize;
        debug_assert_eq!(slot, offset / class.size as usize);
        (page, slot)
    }

    /// Takes a free slot of `class`.
    #[inline]
    pub fn take(&mut self, class: u8) -> Option<u32> {
        let mut page = self.classes[class as usize].first;
        if page == NONE {
            page = self.free_pages.pop()?;
            self.format(page as usize, class);
        }
        let page = page as usize;
        let slot = self.take_bit(page, self.classes[class as usize].slots as usize);
        let meta = &mut self.pages[page];
        meta.used += 1;
        let full = u32::from(meta.used) == self.classes[class as usize].slots;
        self.classes[class as usize].used += 1;
        if full {
            self.unlink(page);
            self.prefetch(self.classes[class as usize].first);
        }
        let size = self.classes[class as usize].size;
        self.owned_bytes += u64::from(size);
        Some(self.id(page, slot, size))
    }

    /// The slot of `class` that will be taken next, if that is known without a search.
    #[inline]
    pub fn upcoming(&self, class: u8) -> Option<u32> {
        let ClassBooks { first, size, .. } = self.classes[class as usize];
        let word = self.pages.get(first as usize)?.hint as usize;
        let bits = self.bits(first as usize, word).free;
        let slot = word * 64 + bits.trailing_zeros() as usize;
        (bits != 0).then(|| self.id(first as usize, slot, size))
    }

    /// Prefetches the state of the page that slots will be taken from next.
    #[inline]
    fn prefetch(&self, page: u32) {
        crate::prefetch_slice(&self.pages, page as usize);
        // In pages of 4 KiB, only the smallest slots have a fourth word.
        if self.words > WORDS_IN_PAGE + 1 {
            let more = self.words - WORDS_IN_PAGE;
            crate::prefetch_slice(&self.more_bits, (page as usize).wrapping_mul(more));
        }
    }

    /// A word of a page's bitmaps.
    #[inline(always)]
    fn bits(&self, page: usize, word: usize) -> Bits {
        match self.pages[page].bits.get(word) {
            Some(bits) => *bits,
            None => self.more_bits[self.more_at(page, word)],
        }
    }

    #[inline(always)]
    fn bits_mut(&mut self, page: usize, word: usize) -> &mut Bits {
        if word < WORDS_IN_PAGE {
            return &mut self.pages[page].bits[word];
        }
        let at = self.more_at(page, word);
        &mut self.more_bits[at]
    }

    #[inline(always)]
    fn more_at(&self, page: usize, word: usize) -> usize {
        page * (self.words - WORDS_IN_PAGE) + word - WORDS_IN_PAGE
    }

    /// Takes a free slot of `class` in a page that is being drained, which then serves again.
    /// Otherwise the slot would be out of reach until all readers sync. Checks all pages.
    pub fn take_draining(&mut self, class: u8) -> Option<u32> {
        let slots = self.classes[class as usize].slots;
        let page = self.pages.iter().position(|page| {
            page.state == State::Draining && page.class == class && u32::from(page.used) < slots
        })?;
        self.pages[page].state = State::Serving;
        self.pages[page].hint = 0;
        self.draining -= 1;
        if self.drain == Some(page as u32) {
            self.drain = None;
        }
        self.link(page);
        self.take(class)
    }

    /// Clears and returns the first free bit of a page that has room, and `slots` slots.
    #[inline]
    fn take_bit(&mut self, page: usize, slots: usize) -> usize {
        let mut word = self.pages[page].hint as usize;
        while self.bits(page, word).free == 0 {
            word += 1;
            if word * 64 >= slots {
                word = 0;
            }
        }
        let free = &mut self.bits_mut(page, word).free;
        let bit = free.trailing_zeros();
        *free &= *free - 1;
        self.pages[page].hint = word as u8;
        word * 64 + bit as usize
    }

    fn format(&mut self, page: usize, class: u8) {
        let slots = self.classes[class as usize].slots as usize;
        for word in 0..self.words {
            let bits = self.bits_mut(page, word);
            debug_assert_eq!(bits.live, 0);
            bits.free = match slots.saturating_sub(word * 64) {
                0 => 0,
                rest @ 1..64 => (1 << rest) - 1,
                _ => u64::MAX,
            };
        }
        let meta = &mut self.pages[page];
        debug_assert!(meta.state == State::Free && meta.used == 0 && meta.live == 0);
        meta.state = State::Serving;
        meta.class = class;
        meta.hint = 0;
        self.classes[class as usize].pages += 1;
        self.link(page);
    }

    /// True if a live slot begins at `id`.
    pub fn is_live(&self, id: u32) -> bool {
        let (page, offset) = self.locate(id);
        let size = self.classes[self.pages[page].class as usize].size as usize;
        let slot = offset / size;
        offset % size == 0 && self.bits(page, slot / 64).live & (1 << (slot % 64)) != 0
    }

    /// Publishes a taken slot.
    #[inline]
    pub fn publish(&mut self, id: u32) {
        let (page, slot) = self.slot_in_page(id);
        self.bits_mut(page, slot / 64).live |= 1 << (slot % 64);
        self.pages[page].live += 1;
        let class = &mut self.classes[self.pages[page].class as usize];
        class.live += 1;
        self.owned_bytes -= u64::from(class.size);
        self.live_charge += class.charge + std::mem::take(&mut class.opening);
    }

    /// Retires a live slot; it stays taken until [`Pages::free`]. Returns its bytes.
    #[inline]
    pub fn retire(&mut self, id: u32) -> u64 {
        let (page, slot) = self.slot_in_page(id);
        let live = &mut self.bits_mut(page, slot / 64).live;
        assert!(*live & (1 << (slot % 64)) != 0, "only a live slot is retired");
        *live &= !(1 << (slot % 64));
        self.pages[page].live -= 1;
        let class = &mut self.classes[self.pages[page].class as usize];
        class.live -= 1;
        self.live_charge -= class.charge;
        u64::from(class.size)
    }

    /// Frees a taken slot that was never published.
    pub fn give_back(&mut self, id: u32) {
        self.owned_bytes -= self.bytes_of(id);
        self.free(id);
    }

    /// Frees a taken slot that no thread can reach any more.
    #[inline]
    pub fn free(&mut self, id: u32) {
        let (page, slot) = self.slot_in_page(id);
        let free = &mut self.bits_mut(page, slot / 64).free;
        assert!(*free & (1 << (slot % 64)) == 0, "only a taken slot is freed");
        *free |= 1 << (slot % 64);
        let meta = &mut self.pages[page];
        meta.used -= 1;
        self.classes[meta.class as usize].used -= 1;
        if meta.used == 0 {
            self.release(page);
        } else if meta.state == State::Serving && !meta.has_room {
            // So the one free slot of a full page is found at once.
            meta.hint = (slot / 64) as u8;
            self.link(page);
        }
    }

    /// Frees a page whose last slot returned.
    fn release(&mut self, page: usize) {
        let meta = &self.pages[page];
        self.classes[meta.class as usize].pages -= 1;
        match meta.state {
            State::Draining => self.draining -= 1,
            _ if meta.has_room => self.unlink(page),
            _ => {}
        }
        if self.drain == Some(page as u32) {
            self.drain = None;
        }
        self.pages[page].state = State::Free;
        self.free_pages.push(page as u32);
    }

    fn link(&mut self, page: usize) {
        let class = &mut self.classes[self.pages[page].class as usize];
        let last = std::mem::replace(&mut class.last, page as u32);
        if last == NONE {
            class.first = page as u32;
        } else {
            self.pages[last as usize].next = page as u32;
        }
        let meta = &mut self.pages[page];
        (meta.prev, meta.next, meta.has_room) = (last, NONE, true);
    }

    fn unlink(&mut self, page: usize) {
        let Page { prev, next, class, has_room, .. } = self.pages[page];
        assert!(has_room, "only a linked page is unlinked");
        match prev {
            NONE => self.classes[class as usize].first = next,
            prev => self.pages[prev as usize].next = next,
        }
        match next {
            NONE => self.classes[class as usize].last = prev,
            next => self.pages[next as usize].prev = prev,
        }
        let meta = &mut self.pages[page];
        (meta.prev, meta.next, meta.has_room) = (NONE, NONE, false);
    }

    /// Checks all invariants; `Err` states what is wrong.
    pub fn validate(&self) -> Result<(), String> {
        let mut books: Vec<(u32, u32, u32, u32)> = vec![(0, 0, 0, 0); self.classes.len()];
        let (mut free, mut draining) = (0, 0);
        for (number, page) in self.pages.iter().enumerate() {
            let words = || (0..self.words).map(|word| self.bits(number, word));
            let live = words().map(|bits| bits.live.count_ones()).sum::<u32>();
            let both = words().any(|bits| bits.live & bits.free != 0);
            if page.state == State::Free {
                free += 1;
                if live != 0 || page.used != 0 || page.has_room {
                    return Err(format!("free page {number} is in use: {page:?}"));
                }
                continue;
            }
            let class = &self.classes[page.class as usize];
            let (page_live, page_used) = (u32::from(page.live), u32::from(page.used));
            let used = class.slots - words().map(|bits| bits.free.count_ones()).sum::<u32>();
            if both || live != page_live || used != page_used || live > used || used == 0 {
                return Err(format!("page {number}: {page:?}, bits say live {live} used {used}"));
            }
            if page.has_room != (page.state == State::Serving && used < class.slots) {
                return Err(format!("page {number} is in the wrong list: {page:?}"));
            }
            draining += u32::from(page.state == State::Draining);
            let sum = &mut books[page.class as usize];
            *sum = (sum.0 + 1, sum.1 + used, sum.2 + live, sum.3 + u32::from(page.has_room));
        }
        if free as usize != self.free_pages.len() || draining != self.draining {
            return Err(format!("{free} pages are free, {draining} drain, books say otherwise"));
        }
        let (mut charge, mut unpublished_bytes) = (0, 0);
        for (number, (class, &(pages, used, live, room))) in
            self.classes.iter().zip(&books).enumerate()
        {
            if (class.pages, class.used, class.live) != (pages, used, live) {
                return Err(format!("class {number}: {class:?}, pages say {pages} {used} {live}"));
            }
            let mut linked = 0;
            let mut page = class.first;
            while page != NONE && linked <= room {
                linked += 1;
                page = self.pages[page as usize].next;
            }
            if linked != room {
                return Err(format!("class {number}: {linked} pages linked, {room} have room"));
            }
            charge += u64::from(live) * class.charge;
            unpublished_bytes += u64::from(used - live) * u64::from(class.size);
            if class.opening == 0 {
                charge += opening_slots(u64::from(class.slots)) * class.charge;
            } else if live > 0 {
                return Err(format!("class {number} has live slots and was never opened"));
            }
        }
        if charge != self.live_charge {
            return Err(format!("live charge is {charge}, books say {}", self.live_charge));
        }
        if self.owned_bytes > unpublished_bytes {
            let owned = self.owned_bytes;
            return Err(format!("writers own {owned} bytes, of {unpublished_bytes} not published"));
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
