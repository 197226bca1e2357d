//! Which page is emptied: of the class with the most unused room, the one with the fewest live slots.

use super::{ClassBooks, Pages, State};

impl Pages {
    /// True while fewer than `pages_low` pages are free or soon will be.
    #[inline]
    pub fn is_low(&self, pages_low: u32) -> bool {
        self.drain.is_some() || (self.free_pages.len() as u32) + self.draining < pages_low
    }

    /// A live slot that should be copied to another page, so that the page it is in can be freed.
    ///
    /// With `start`, and no page being drained, one is chosen: of the class with the most unused
    /// room, the page with the fewest live slots. `None` if the page has no live slot left (it is
    /// freed when limbo and writers release it), or if every class needs all its pages.
    pub fn next_to_move(&mut self, start: bool) -> Option<u32> {
        let page = match self.drain {
            Some(page) => page as usize,
            None if start => self.start_drain()?,
            None => return None,
        };
        let Some(slot) = self.first_live(page) else {
            self.drain = None;
            return None;
        };
        let size = self.classes[self.pages[page].class as usize].size;
        Some(self.id(page, slot, size))
    }

    fn first_live(&self, page: usize) -> Option<usize> {
        let word = (0..self.words).find(|&word| self.bits(page, word).live != 0)?;
        Some(word * 64 + self.bits(page, word).live.trailing_zeros() as usize)
    }

    fn start_drain(&mut self) -> Option<usize> {
        // Room in pages that are already draining does not count.
        let mut spare = self.classes.iter().map(room).collect::<Vec<u64>>();
        for page in self.pages.iter().filter(|page| page.state == State::Draining) {
            let class = &self.classes[page.class as usize];
            spare[page.class as usize] -= u64::from(class.slots - u32::from(page.used));
        }
        let (class, _) = (self.classes.iter().enumerate())
            .filter(|&(class, books)| spare[class] >= u64::from(books.slots))
            .max_by_key(|&(class, books)| spare[class] * books.charge)?;
        let (page, _) = (self.pages.iter().enumerate())
            .filter(|(_, page)| page.state == State::Serving && usize::from(page.class) == class)
            .filter(|(_, page)| page.has_room)
            .min_by_key(|(_, page)| page.live)?;
        self.unlink(page);
        self.pages[page].state = State::Draining;
        self.draining += 1;
        self.drain = Some(page as u32);
        Some(page)
    }
}

/// Slots in a class's pages that are not taken.
fn room(class: &ClassBooks) -> u64 {
    u64::from(class.pages) * u64::from(class.slots) - u64::from(class.used)
}
