//! Each policy beside a model: vectors of keys, oldest first, searched from one end to the other, written
//! from the papers and not from the policies. Whatever is asked, taken out or carried to another place, the
//! same keys hit and the same ones leave.

use larder::policy::Replacement;
use larder_sim::policy::Kind;
use proptest::prelude::*;

use super::{Act, Cache, Step, with_cache};

/// Keys, oldest first.
pub type Queue = Vec<u32>;

pub trait Model {
    /// A lookup or an update, as [`Cache::request`].
    fn request(&mut self, key: u32, is_set: bool) -> Step;
    fn remove(&mut self, key: u32);
}

/// Takes a key out of a queue, if it is there.
pub fn take(queue: &mut Queue, key: u32) -> bool {
    let position = queue.iter().position(|&other| other == key);
    position.map(|position| queue.remove(position)).is_some()
}

/// Forgets the oldest until so many are left.
fn shorten<T>(queue: &mut Vec<T>, len: usize) {
    queue.drain(..queue.len().saturating_sub(len));
}

/// FIFO, LRU and CLOCK: what is done with the oldest is all that differs.
struct OneQueue {
    capacity: usize,
    /// Keys and how often they may still go round.
    queue: Vec<(u32, u32)>,
    /// LRU: a hit renews.
    renews: bool,
    /// CLOCK: a hit counts, up to this.
    count_max: u32,
}

impl Model for OneQueue {
    fn request(&mut self, key: u32, _: bool) -> Step {
        if let Some(position) = self.queue.iter().position(|entry| entry.0 == key) {
            let entry = &mut self.queue[position];
            entry.1 = self.count_max.min(entry.1 + 1);
            if self.renews {
                let entry = self.queue.remove(position);
                self.queue.push(entry);
            }
            return Step::Hit;
        }
        let mut left = None;
        while self.queue.len() == self.capacity {
            let (oldest, count) = self.queue.remove(0);
            if count > 0 {
                self.queue.push((oldest, count - 1));
            } else {
                left = Some(oldest);
            }
        }
        self.queue.push((key, 0));
        Step::Miss(left.into_iter().collect())
    }

    fn remove(&mut self, key: u32) {
        self.queue.retain(|entry| entry.0 != key);
    }
}

struct Sieve {
    capacity: usize,
    queue: Vec<(u32, bool)>,
    hand: usize,
}

impl Model for Sieve {
    fn request(&mut self, key: u32, _: bool) -> Step {
        if let Some(entry) = self.queue.iter_mut().find(|entry| entry.0 == key) {
            entry.1 = true;
            return Step::Hit;
        }
        let mut left = None;
        if self.queue.len() == self.capacity {
            loop {
                if self.hand == self.queue.len() {
                    self.hand = 0;
                }
                if !self.queue[self.hand].1 {
                    break;
                }
                self.queue[self.hand].1 = false;
                self.hand += 1;
            }
            left = Some(self.queue.remove(self.hand).0);
            // Behind the newest the hand begins again with the oldest, not with what comes next.
            if self.hand == self.queue.len() {
                self.hand = 0;
            }
        }
        self.queue.push((key, false));
        Step::Miss(left.into_iter().collect())
    }

    fn remove(&mut self, key: u32) {
        if let Some(position) = self.queue.iter().position(|entry| entry.0 == key) {
            self.queue.remove(position);
            self.hand -= usize::from(position < self.hand);
            if self.hand == self.queue.len() {
                self.hand = 0;
            }
        }
    }
}

struct Lfu {
    capacity: usize,
    /// Keys, counts, times of the last access.
    entries: Vec<(u32, u64, u64)>,
    now: u64,
}

impl Model for Lfu {
    fn request(&mut self, key: u32, _: bool) -> Step {
        self.now += 1;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.0 == key) {
            (entry.1, entry.2) = (entry.1 + 1, self.now);
            return Step::Hit;
        }
        let mut left = None;
        if self.entries.len() == self.capacity {
            left = self.entries.iter().min_by_key(|entry| (entry.1, entry.2)).map(|entry| entry.0);
            self.entries.retain(|entry| Some(entry.0) != left);
        }
        self.entries.push((key, 1, self.now));
        Step::Miss(left.into_iter().collect())
    }

    fn remove(&mut self, key: u32) {
        self.entries.retain(|entry| entry.0 != key);
    }
}

struct S3Fifo {
    capacity: usize,
    small: Vec<(u32, u32)>,
    main: Vec<(u32, u32)>,
    ghosts: Queue,
}

impl Model for S3Fifo {
    fn request(&mut self, key: u32, _: bool) -> Step {
        if let Some(entry) =
            self.small.iter_mut().chain(&mut self.main).find(|entry| entry.0 == key)
        {
            entry.1 = 3.min(entry.1 + 1);
            return Step::Hit;
        }
        let comes_back = take(&mut self.ghosts, key);
        let mut left = None;
        while self.small.len() + self.main.len() == self.capacity {
            if self.small.len() >= 1.max(self.capacity / 10) || self.main.is_empty() {
                let (oldest, count) = self.small.remove(0);
                if count >= 2 {
                    self.main.push((oldest, 0));
                } else {
                    left = Some(oldest);
                    self.ghosts.push(oldest);
                    shorten(&mut self.ghosts, 1.max(self.capacity * 9 / 10));
                }
            } else {
                let (oldest, count) = self.main.remove(0);
                if count > 0 {
                    self.main.push((oldest, count - 1));
                } else {
                    left = Some(oldest);
                }
            }
        }
        if comes_back {
            self.main.push((key, 0))
        } else {
            self.small.push((key, 0))
        }
        Step::Miss(left.into_iter().collect())
    }

    fn remove(&mut self, key: u32) {
        self.small.retain(|entry| entry.0 != key);
        self.main.retain(|entry| entry.0 != key);
    }
}

struct TwoQueue {
    capacity: usize,
    a1in: Queue,
    a1out: Queue,
    am: Queue,
}

impl Model for TwoQueue {
    fn request(&mut self, key: u32, _: bool) -> Step {
        if take(&mut self.am, key) {
            self.am.push(key);
            return Step::Hit;
        }
        if self.a1in.contains(&key) {
            return Step::Hit;
        }
        let comes_back = take(&mut self.a1out, key);
        let mut left = None;
        if self.a1in.len() + self.am.len() == self.capacity {
            if self.a1in.len() > 1.max(self.capacity / 4) || self.am.is_empty() {
                let oldest = self.a1in.remove(0);
                self.a1out.push(oldest);
                shorten(&mut self.a1out, 1.max(self.capacity / 2));
                left = Some(oldest);
            } else {
                left = Some(self.am.remove(0));
            }
        }
        if comes_back {
            self.am.push(key)
        } else {
            self.a1in.push(key)
        }
        Step::Miss(left.into_iter().collect())
    }

    fn remove(&mut self, key: u32) {
        let _ = take(&mut self.a1in, key) || take(&mut self.am, key);
    }
}

/// Figure 4 of the paper, case by case.
struct Arc {
    c: usize,
    p: f64,
    t1: Queue,
    t2: Queue,
    b1: Queue,
    b2: Queue,
}

impl Arc {
    fn replace(&mut self, in_b2: bool) -> Option<u32> {
        if self.t1.len() + self.t2.len() < self.c {
            return None;
        }
        let len = self.t1.len() as f64;
        if !self.t1.is_empty() && ((in_b2 && len == self.p) || len > self.p) {
            let oldest = self.t1.remove(0);
            self.b1.push(oldest);
            Some(oldest)
        } else {
            let oldest = self.t2.remove(0);
            self.b2.push(oldest);
            Some(oldest)
        }
    }
}

impl Model for Arc {
    fn request(&mut self, key: u32, _: bool) -> Step {
        let [b1, b2] = [self.b1.len() as f64, self.b2.len() as f64];
        if take(&mut self.t1, key) || take(&mut self.t2, key) {
            self.t2.push(key);
            return Step::Hit;
        }
        if self.b1.contains(&key) {
            let delta = if b1 >= b2 { 1.0 } else { b2 / b1 };
            self.p = (self.p + delta).min(self.c as f64);
            let left = self.replace(false);
            take(&mut self.b1, key);
            self.t2.push(key);
            return Step::Miss(left.into_iter().collect());
        }
        if self.b2.contains(&key) {
            let delta = if b2 >= b1 { 1.0 } else { b1 / b2 };
            self.p = (self.p - delta).max(0.0);
            let left = self.replace(true);
            take(&mut self.b2, key);
            self.t2.push(key);
            return Step::Miss(left.into_iter().collect());
        }
        let l1 = self.t1.len() + self.b1.len();
        let all = l1 + self.t2.len() + self.b2.len();
        let mut left = None;
        if l1 == self.c {
            if self.t1.len() < self.c {
                self.b1.remove(0);
                left = self.replace(false);
            } else {
                left = Some(self.t1.remove(0));
            }
        } else if all >= self.c {
            if all == 2 * self.c {
                self.b2.remove(0);
            }
            left = self.replace(false);
        }
        self.t1.push(key);
        Step::Miss(left.into_iter().collect())
    }

    fn remove(&mut self, key: u32) {
        let _ = take(&mut self.t1, key) || take(&mut self.t2, key);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Lir,
    Hir,
    Gone,
}

struct Lirs {
    capacity: usize,
    /// Bottom first.
    stack: Vec<(u32, State)>,
    queue: Queue,
    /// Keys that left and are in the stack, in the order in which they left.
    gone: Queue,
}

impl Lirs {
    fn lir_target(&self) -> usize {
        self.capacity - 1.max(self.capacity / 100)
    }

    fn lirs(&self) -> usize {
        self.stack.iter().filter(|entry| entry.1 == State::Lir).count()
    }

    fn state(&self, key: u32) -> Option<State> {
        self.stack.iter().find(|entry| entry.0 == key).map(|entry| entry.1)
    }

    fn prune(&mut self) {
        while self.stack.first().is_some_and(|bottom| bottom.1 != State::Lir) {
            let (key, _) = self.stack.remove(0);
            take(&mut self.gone, key);
        }
    }

    /// Puts a key on top of the stack.
    fn top(&mut self, key: u32, state: State) {
        self.stack.retain(|entry| entry.0 != key);
        self.stack.push((key, state));
        if state == State::Lir && self.lirs() > self.lir_target() {
            let (demoted, _) = self.stack.remove(0);
            self.queue.push(demoted);
        }
        self.prune();
    }
}

impl Model for Lirs {
    fn request(&mut self, key: u32, _: bool) -> Step {
        let state = self.state(key);
        if state == Some(State::Lir) {
            self.top(key, State::Lir);
            return Step::Hit;
        }
        if take(&mut self.queue, key) {
            if state == Some(State::Hir) {
                self.top(key, State::Lir);
            } else {
                self.queue.push(key);
                self.top(key, State::Hir);
            }
            return Step::Hit;
        }
        // It comes back to the stack in any case; until then it is no one's ghost.
        if take(&mut self.gone, key) {
            self.stack.retain(|entry| entry.0 != key);
        }
        let mut left = None;
        if self.lirs() + self.queue.len() == self.capacity {
            let front = self.queue.remove(0);
            left = Some(front);
            if let Some(entry) = self.stack.iter_mut().find(|entry| entry.0 == front) {
                entry.1 = State::Gone;
                self.gone.push(front);
                if self.gone.len() > 2 * self.capacity {
                    let first = self.gone.remove(0);
                    self.stack.retain(|entry| entry.0 != first);
                }
            }
        }
        if state == Some(State::Gone) || self.lirs() < self.lir_target() {
            self.top(key, State::Lir);
        } else {
            self.queue.push(key);
            self.top(key, State::Hir);
        }
        Step::Miss(left.into_iter().collect())
    }

    fn remove(&mut self, key: u32) {
        if self.state(key) != Some(State::Gone) {
            take(&mut self.queue, key);
            self.stack.retain(|entry| entry.0 != key);
            self.prune();
        }
    }
}

/// One of a stream's acts.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Get(u32),
    Set(u32),
    Remove(u32),
    Carry(u32),
}

/// Streams over some more keys than there is room for, the small ones asked for more often; `plain` ones have
/// lookups only.
fn operations(plain: bool) -> impl Strategy<Value = Vec<Operation>> {
    let operation = (0..40u32, 0..40u32, 0..20u32).prop_map(move |(one, other, act)| {
        let key = one * other / 16;
        match act {
            0 if !plain => Operation::Remove(key),
            1 if !plain => Operation::Carry(key),
            2..5 if !plain => Operation::Set(key),
            _ => Operation::Get(key),
        }
    });
    prop::collection::vec(operation, 0..600)
}

struct Beside<M>(M, Vec<Operation>);

impl<M: Model> Act for Beside<M> {
    type Output = ();
    fn act<P: Replacement>(self, mut cache: Cache<P>) {
        let Beside(mut model, operations) = self;
        for (number, operation) in operations.into_iter().enumerate() {
            match operation {
                Operation::Get(key) => {
                    assert_eq!(
                        cache.request(key, false),
                        model.request(key, false),
                        "{number}: {operation:?}"
                    );
                }
                Operation::Set(key) => {
                    assert_eq!(
                        cache.request(key, true),
                        model.request(key, true),
                        "{number}: {operation:?}"
                    );
                }
                Operation::Remove(key) => {
                    cache.remove(key);
                    model.remove(key);
                }
                Operation::Carry(key) => cache.carry(key),
            }
            if number % 16 == 0 {
                cache.validate();
            }
        }
        cache.validate();
    }
}

fn one_queue(capacity: usize, renews: bool, count_max: u32) -> OneQueue {
    OneQueue { capacity, queue: vec![], renews, count_max }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The policies of one queue.
    #[test]
    fn one_queue_each(operations in operations(false), c in 1..30usize) {
        let each = [
            (Kind::Fifo, false, 0),
            (Kind::Lru, true, 0),
            (Kind::Clock, false, 1),
            (Kind::Clock2, false, 3),
        ];
        for (kind, renews, count_max) in each {
            with_cache(kind, c as u32, Beside(one_queue(c, renews, count_max), operations.clone()));
        }
    }

    #[test]
    fn sieve(operations in operations(false), c in 1..30usize) {
        let model = Sieve { capacity: c, queue: vec![], hand: 0 };
        with_cache(Kind::Sieve, c as u32, Beside(model, operations));
    }

    #[test]
    fn lfu(operations in operations(false), c in 1..30usize) {
        let model = Lfu { capacity: c, entries: vec![], now: 0 };
        with_cache(Kind::Lfu, c as u32, Beside(model, operations));
    }

    #[test]
    fn s3_fifo(operations in operations(false), c in 1..40usize) {
        let model = S3Fifo { capacity: c, small: vec![], main: vec![], ghosts: vec![] };
        with_cache(Kind::S3Fifo, c as u32, Beside(model, operations));
    }

    #[test]
    fn two_queue(operations in operations(false), c in 1..40usize) {
        let model = TwoQueue { capacity: c, a1in: vec![], a1out: vec![], am: vec![] };
        with_cache(Kind::TwoQueue, c as u32, Beside(model, operations));
    }

    /// The figure says nothing of entries taken out; lookups only.
    #[test]
    fn arc(operations in operations(true), c in 1..40usize) {
        let model = Arc { c, p: 0.0, t1: vec![], t2: vec![], b1: vec![], b2: vec![] };
        with_cache(Kind::Arc, c as u32, Beside(model, operations));
    }

    /// Above 100 entries there is more than one HIR entry.
    #[test]
    fn lirs(operations in operations(false), c in 1..30usize) {
        let model = Lirs { capacity: c, stack: vec![], queue: vec![], gone: vec![] };
        with_cache(Kind::Lirs, c as u32, Beside(model, operations));
    }
}

/// LIRS with several HIR entries, and all of them over a stream of scans and popular keys: some thousand
/// requests, as many evictions.
#[test]
fn a_long_stream() {
    let operations: Vec<Operation> = super::stream(8_000).into_iter().map(Operation::Get).collect();
    let c = 320;
    let lirs = Lirs { capacity: c, stack: vec![], queue: vec![], gone: vec![] };
    with_cache(Kind::Lirs, c as u32, Beside(lirs, operations.clone()));
    let arc = Arc { c, p: 0.0, t1: vec![], t2: vec![], b1: vec![], b2: vec![] };
    with_cache(Kind::Arc, c as u32, Beside(arc, operations.clone()));
    let s3_fifo = S3Fifo { capacity: c, small: vec![], main: vec![], ghosts: vec![] };
    with_cache(Kind::S3Fifo, c as u32, Beside(s3_fifo, operations.clone()));
    let two_queue = TwoQueue { capacity: c, a1in: vec![], a1out: vec![], am: vec![] };
    with_cache(Kind::TwoQueue, c as u32, Beside(two_queue, operations));
}
