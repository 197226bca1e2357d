//! A queue that anyone may leave from the middle, in O(1): who waits is woken in order, and who goes away leaves
//! no trace.
//!
//! A doubly linked list through a slab. A [`Ticket`] of an entry that has left finds nothing, also when its place
//! has been taken again.

#[derive(Debug)]
pub(crate) struct Fifo<T> {
    places: Vec<Place<T>>,
    first: Option<u32>,
    last: Option<u32>,
    vacant: Vec<u32>,
    /// Counts entries ever: what tells two lives of a place apart.
    entries_ever: u64,
}

#[derive(Debug)]
struct Place<T> {
    life: u64,
    value: Option<T>,
    before: Option<u32>,
    after: Option<u32>,
}

/// Names an entry while it is in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    place: u32,
    life: u64,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Fifo { places: Vec::new(), first: None, last: None, vacant: Vec::new(), entries_ever: 0 }
    }
}

impl<T> Fifo<T> {
    pub fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    pub fn push(&mut self, value: T) -> Ticket {
        let life = self.entries_ever;
        self.entries_ever += 1;
        let entry = Place { life, value: Some(value), before: self.last, after: None };
        let place = match self.vacant.pop() {
            Some(place) => {
                self.places[place as usize] = entry;
                place
            }
            None => {
                self.places.push(entry);
                (self.places.len() - 1) as u32
            }
        };
        match self.last {
            Some(last) => self.places[last as usize].after = Some(place),
            None => self.first = Some(place),
        }
        self.last = Some(place);
        Ticket { place, life }
    }

    /// `None` when it is no longer in the queue.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        let place = self.places.get_mut(ticket.place as usize)?;
        if place.life == ticket.life { place.value.as_mut() } else { None }
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let place = self.places.get_mut(ticket.place as usize)?;
        if place.life != ticket.life {
            return None;
        }
        let value = place.value.take()?;
        let (before, after) = (place.before, place.after);
        match before {
            Some(before) => self.places[before as usize].after = after,
            None => self.first = after,
        }
        match after {
            Some(after) => self.places[after as usize].before = before,
            None => self.last = before,
        }
        self.vacant.push(ticket.place);
        if self.len() == 0 {
            // What a crowd has left is given back.
            self.places = Vec::new();
            self.vacant = Vec::new();
        }
        Some(value)
    }

    pub fn first(&self) -> Option<Ticket> {
        self.ticket(self.first?)
    }

    /// The one behind `ticket`.
    pub fn after(&self, ticket: Ticket) -> Option<Ticket> {
        self.ticket(self.places.get(ticket.place as usize)?.after?)
    }

    pub fn pop(&mut self) -> Option<T> {
        let first = self.first()?;
        self.remove(first)
    }

    /// All of it; tickets of before find nothing here.
    pub fn take(&mut self) -> Fifo<T> {
        let entries_ever = self.entries_ever;
        std::mem::replace(self, Fifo { entries_ever, ..Fifo::default() })
    }

    fn ticket(&self, place: u32) -> Option<Ticket> {
        Some(Ticket { place, life: self.places.get(place as usize)?.life })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// It does what a queue does from which entries are searched and removed: a thousand random steps; a ticket
    /// of one that has left finds nothing.
    #[test]
    fn as_an_obvious_queue() {
        let (mut fifo, mut model) = (Fifo::default(), VecDeque::new());
        let mut gone = Vec::new();
        let mut seed = 7u64;
        for step in 0..1000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = (seed >> 33) as usize;
            match random % 6 {
                5 if random.is_multiple_of(11) => {
                    let taken = fifo.take();
                    assert_eq!((taken.len(), fifo.len()), (model.len(), 0));
                    gone.extend(model.drain(..).map(|(ticket, _)| ticket));
                }
                0..=2 | 5 => model.push_back((fifo.push(step), step)),
                3 => {
                    let expected = model.pop_front();
                    assert_eq!(fifo.pop(), expected.map(|(_, value)| value));
                    gone.extend(expected.map(|(ticket, _)| ticket));
                }
                _ if model.is_empty() => {}
                _ => {
                    let (ticket, value) = model.remove(random / 5 % model.len()).unwrap();
                    assert_eq!(fifo.get_mut(ticket), Some(&mut { value }));
                    assert_eq!(fifo.remove(ticket), Some(value));
                    gone.push(ticket);
                }
            }
            assert_eq!(fifo.len(), model.len());
            if let Some(&ticket) = gone.last() {
                assert!(fifo.get_mut(ticket).is_none() && fifo.remove(ticket).is_none());
            }
            let walked = std::iter::successors(fifo.first(), |&ticket| fifo.after(ticket));
            assert!(walked.eq(model.iter().map(|&(ticket, _)| ticket)));
        }
        assert!(!model.is_empty() && !gone.is_empty());
    }
}
