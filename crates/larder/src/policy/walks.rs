//! Walks over all entries of a policy that are in progress at the same time, each with a place of
//! its own.
//!
//! A walk belongs to one live [`crate::Iter`]. Without walks, a change of the policy's order costs
//! one comparison here; each walk in progress adds one more, until its owner ends it.

/// Identifies a walk until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalkId(u64);

/// The places of all walks in progress.
#[derive(Debug)]
pub(super) struct Walks<W> {
    places: Vec<(WalkId, W)>,
    started: u64,
}

impl<W> Default for Walks<W> {
    fn default() -> Self {
        Walks { places: Vec::new(), started: 0 }
    }
}

impl<W> Walks<W> {
    /// Begins a walk at `place`.
    pub fn start(&mut self, place: W) -> WalkId {
        self.started += 1;
        let walk = WalkId(self.started);
        self.places.push((walk, place));
        walk
    }

    /// The place of a walk; `None` if it has ended.
    pub fn place(&mut self, walk: WalkId) -> Option<&mut W> {
        self.places.iter_mut().find(|(id, _)| *id == walk).map(|(_, place)| place)
    }

    /// Ends a walk.
    pub fn end(&mut self, walk: WalkId) {
        self.places.retain(|(id, _)| *id != walk);
    }

    /// All places, for a change of the order to move them.
    #[inline]
    pub fn each(&mut self) -> impl Iterator<Item = &mut W> {
        self.places.iter_mut().map(|(_, place)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each walk has its own place, whichever other walks begin and end, and a walk that ended
    /// costs nothing.
    #[test]
    fn walks_have_places_of_their_own() {
        let mut walks = Walks::default();
        let (first, second) = (walks.start(1), walks.start(2));
        assert_eq!([first, second].map(|walk| walks.place(walk).copied()), [Some(1), Some(2)]);
        walks.end(first);
        let third = walks.start(3);
        walks.each().for_each(|place| *place += 10);
        assert_eq!(
            [first, second, third].map(|walk| walks.place(walk).copied()),
            [None, Some(12), Some(13)]
        );
        walks.end(second);
        walks.end(third);
        assert_eq!(walks.each().count(), 0);
    }
}
