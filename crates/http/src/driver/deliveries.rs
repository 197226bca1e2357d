//! Bodies that wait: for more bytes, for memory, or for their next turn.
//!
//! ```text
//! a reader of a body   has sent what there is   -> waits -> a notice of more   -> it goes on
//! a filler of a body   from its begin to its end         -> a notice of room   -> it goes on
//! a client's delivery  has used up its share of a turn                         -> it goes on in the next
//! ```
//!
//! Readers and fillers are clients and connections to origins, by their tokens.
//!
//! Invariants
//! 1. A reader waits at most once for each body; a notice takes all that wait.
//! 2. A body of this event loop has at most one filler, and none when it is complete or has failed.

use foldhash::{HashMap, HashMapExt};
use larder_mem::object::ObjectId;

#[derive(Debug)]
pub struct Deliveries {
    /// Readers that wait for more of a body: clients, and connections to origins for a client's
    /// body.
    waits: HashMap<ObjectId, Vec<u64>>,
    /// Fillers of bodies: they get a notice when there is room, and when no client wants the body
    /// any more.
    fillers: HashMap<ObjectId, u64>,
    /// Deliveries that used up their share of a turn.
    again: Vec<u64>,
}

impl Deliveries {
    pub fn new() -> Deliveries {
        Deliveries { waits: HashMap::new(), fillers: HashMap::new(), again: Vec::new() }
    }

    /// A reader waits for more of a body: it gets a notice.
    pub fn wait_for_more(&mut self, object: ObjectId, token: u64) {
        let waits = self.waits.entry(object).or_default();
        // Invariant 1.
        if !waits.contains(&token) {
            waits.push(token);
        }
    }

    /// More of a body came: the readers that waited for it.
    pub fn take_readers(&mut self, object: ObjectId) -> Vec<u64> {
        self.waits.remove(&object).unwrap_or_default()
    }

    pub fn set_filler(&mut self, object: ObjectId, token: u64) {
        let before = self.fillers.insert(object, token);
        debug_assert!(before.is_none_or(|it| it == token), "invariant 2");
    }

    pub fn unset_filler(&mut self, object: ObjectId) {
        self.fillers.remove(&object);
    }

    pub fn filler(&self, object: ObjectId) -> Option<u64> {
        self.fillers.get(&object).copied()
    }

    /// The delivery to a client used up its share of this turn.
    pub fn run_again(&mut self, client: u64) {
        self.again.push(client);
    }

    /// Clients whose deliveries go on in this turn.
    pub fn take_again(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.again)
    }

    pub fn has_again(&self) -> bool {
        !self.again.is_empty()
    }
}
