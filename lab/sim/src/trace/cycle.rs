//! The same items over and over, in order: what an LRU cache a little smaller can't answer once.

use std::io;

use super::random::scramble;
use super::{BATCH_REQUESTS, Source};
use crate::request::Request;

/// Items `0..items`, again and again.
#[derive(Debug)]
pub struct Cycle {
    items: u32,
    seed: u64,
    at: u32,
    left: u64,
}

impl Cycle {
    /// `requests` of them; `items` is at least 1.
    pub fn new(items: u32, requests: u64, seed: u64) -> Cycle {
        Cycle { items: items.max(1), seed, at: 0, left: requests }
    }
}

impl Source for Cycle {
    fn next(&mut self, batch: &mut Vec<Request>) -> io::Result<()> {
        batch.clear();
        let count = self.left.min(BATCH_REQUESTS as u64);
        self.left -= count;
        for _ in 0..count {
            batch.push(Request::get(scramble(u64::from(self.at), self.seed)));
            self.at = if self.at + 1 == self.items { 0 } else { self.at + 1 };
        }
        Ok(())
    }
}
