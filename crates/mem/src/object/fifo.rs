//! A queue with O(1) removal from the middle: waiters are woken in order, and those that stop
//! waiting leave no trace.
//!
//! A doubly linked list in a slab. A [`Ticket`] of a removed entry finds nothing, also when its
//! place is used again.

#[derive(Debug)]
pub(crate) struct Fifo<T> {
    places: Vec<Place<T>>,
    first: Option<u32>,
    last: Option<u32>,
    vacant: Vec<u32>,
    /// Counts all entries ever, to distinguish two uses of a place.
    entries_ever: u64,
}

#[derive(Debug)]
struct Place<T> {
    generation: u64,
    value: Option<T>,
    before: Option<u32>,
    after: Option<u32>,
}

/// Identifies an entry while it is in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    place: u32,
    generation: u64,
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
        let generation = self.entries_ever;
        self.entries_ever += 1;
        let entry = Place { generation, value: Some(value), before: self.last, after: None };
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
        Ticket { place, generation }
    }

    /// `None` if it is no longer in the queue.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        let place = self.places.get_mut(ticket.place as usize)?;
        if place.generation == ticket.generation { place.value.as_mut() } else { None }
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let place = self.places.get_mut(ticket.place as usize)?;
        if place.generation != ticket.generation {
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
            // Frees the memory of a long queue.
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

    /// Takes all entries; earlier tickets find nothing here.
    pub fn take(&mut self) -> Fifo<T> {
        let entries_ever = self.entries_ever;
        std::mem::replace(self, Fifo { entries_ever, ..Fifo::default() })
    }

    fn ticket(&self, place: u32) -> Option<Ticket> {
        Some(Ticket { place, generation: self.places.get(place as usize)?.generation })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// It behaves like a queue whose entries are searched and removed, over a thousand random
    /// steps; a ticket of a removed entry finds nothing.
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
