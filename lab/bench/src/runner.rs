//! Runs a contestant: fills it once, then makes it do one work after the other.
//!
//! ```text
//! build -> fill (twice what it holds, so that it is full and has churned) -> ask which keys it kept
//!       -> reads, in orders drawn from those keys -> writes, which change what it holds
//! ```
//!
//! After writes the keys are asked for again before the next read. Loops are generic functions, compiled for
//! each contestant; every read adds the number it got to a checksum, which must be that of the order.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use crate::clock::ThreadTime;
use crate::data::{Key, ValueBuffer, Zipf, key, mix, scatter, shuffle};
use crate::peer::{Handle, Peer, Shape};

/// Keys given to `get_many` at a time.
pub const BATCH: usize = 32;
/// Zipf's exponent in every work that has one.
pub const ZIPF_EXPONENT: f64 = 0.99;
/// Numbers from here on are never stored.
const NUMBER_NEVER: u32 = 3 << 30;

/// What a contestant is made to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Lookups of kept keys, uniform, none waits for another.
    GetIndependent,
    /// The same, each key known only when the value before it is.
    GetDependent,
    /// The same, 32 keys at a time.
    GetBatch,
    /// Lookups of kept keys by Zipf's law.
    ZipfOne,
    /// The same, 32 keys at a time.
    ZipfBatch,
    /// Lookups of keys that were never stored.
    Miss,
    /// New keys into a full cache.
    Put,
    /// 70 % puts and 30 % gets over twice as many keys as fit.
    Mixed,
}

impl Work {
    /// The works in their order: those that change what is held come last.
    pub const ALL: [Work; 8] = [
        Work::GetIndependent,
        Work::GetDependent,
        Work::GetBatch,
        Work::ZipfOne,
        Work::ZipfBatch,
        Work::Miss,
        Work::Put,
        Work::Mixed,
    ];

    /// As rows call it.
    pub fn name(self) -> &'static str {
        match self {
            Work::GetIndependent => "get hit, uniform, independent",
            Work::GetDependent => "get hit, uniform, dependent",
            Work::GetBatch => "get hit, uniform, batch of 32",
            Work::ZipfOne => "get hit, Zipf 0.99, one at a time",
            Work::ZipfBatch => "get hit, Zipf 0.99, batch of 32",
            Work::Miss => "get miss",
            Work::Put => "put, full table",
            Work::Mixed => "70 % put, 30 % get",
        }
    }

    /// Whether it changes what is held.
    pub fn writes(self) -> bool {
        matches!(self, Work::Put | Work::Mixed)
    }
}

/// A contestant whose type is forgotten. See [`PeerRunner`].
pub trait Runner {
    /// Does a work once: nanoseconds an operation on one thread, million operations a second on several.
    /// The error states which value was wrong.
    fn run(&mut self, work: Work, threads: usize, operations: usize) -> Result<f64, String>;

    /// Requests by Zipf's law over `ids` keys, each miss followed by a put; the share of hits in the
    /// second half. For a cache that has been filled with anything.
    fn hit_ratio(&mut self, ids: usize, requests: usize) -> Result<f64, String>;

    /// Bytes that the cache holds by its own count.
    fn own_bytes(&self) -> Option<u64>;

    /// Entries that it holds, by asking for them.
    fn held(&mut self) -> usize;
}

/// Runs a contestant of a known type.
pub struct PeerRunner<P> {
    peer: P,
    shape: Shape,
    /// Numbers below have been stored once.
    next: u32,
    /// Numbers of kept keys in random order; empty when they must be asked for.
    kept: Vec<u32>,
    uniform: Vec<u32>,
    zipf: Vec<u32>,
}

impl<P: Peer> PeerRunner<P> {
    /// Fills a contestant. One that never evicts is given no more than it is to hold.
    pub fn new(peer: P, shape: Shape, bounded: bool) -> Self {
        let rounds = if bounded { 2 } else { 1 };
        let next = u32::try_from(shape.entries * rounds).unwrap_or(NUMBER_NEVER).min(NUMBER_NEVER);
        let mut handle = peer.handle();
        put(&mut handle, 0..next);
        drop(handle);
        PeerRunner { peer, shape, next, kept: Vec::new(), uniform: Vec::new(), zipf: Vec::new() }
    }

    fn find_kept_keys(&mut self) {
        if !self.kept.is_empty() {
            return;
        }
        let mut handle = self.peer.handle();
        handle.settle();
        // Twice: a cache may still be putting off what it does after puts.
        for _ in 0..2 {
            self.kept = (0..self.next).filter(|&n| handle.get(&key(n)).is_some()).collect();
        }
        shuffle(1, &mut self.kept);
        (self.uniform, self.zipf) = (Vec::new(), Vec::new());
    }

    /// The order of a reading work.
    fn order(&mut self, work: Work, operations: usize) -> Result<&[u32], String> {
        self.find_kept_keys();
        let kept = &self.kept;
        let Ok(count @ 1..) = u32::try_from(kept.len()) else {
            return Err("it kept none of the keys it was given".to_owned());
        };
        let (order, zipf) = match work {
            Work::ZipfOne | Work::ZipfBatch => (&mut self.zipf, true),
            _ => (&mut self.uniform, false),
        };
        if order.len() != operations && zipf {
            let law = Zipf::new(kept.len(), ZIPF_EXPONENT);
            *order = (0..operations as u64).map(|i| kept[law.rank(2, i) as usize]).collect();
        } else if order.len() != operations {
            *order = (0..operations as u64).map(|i| kept[scatter(3, i, count) as usize]).collect();
        }
        Ok(order)
    }

    fn read(&mut self, work: Work, threads: usize, operations: usize) -> Result<f64, String> {
        self.order(work, operations)?;
        let order = match work {
            Work::ZipfOne | Work::ZipfBatch => &self.zipf,
            _ => &self.uniform,
        };
        let part = order.len().div_ceil(threads);
        let (figure, sums) = measure(&self.peer, threads, operations, |handle, thread| {
            let order = order.chunks(part).nth(thread).unwrap_or(&[]);
            match work {
                Work::GetDependent => get_dependent(handle, order),
                Work::GetBatch | Work::ZipfBatch => get_batches(handle, order),
                Work::Miss => get_misses(handle, order),
                _ => get_each(handle, order),
            }
        });
        let sum = sums.iter().fold(0u64, |sum, part| sum.wrapping_add(*part));
        let wanted = match work {
            Work::Miss => 0,
            _ => order.iter().map(|&number| u64::from(number)).sum(),
        };
        if sum != wanted {
            return Err(format!("{}: the checksum is {sum}, not {wanted}", work.name()));
        }
        Ok(figure)
    }

    fn write(&mut self, work: Work, threads: usize, operations: usize) -> Result<f64, String> {
        let each = (operations / threads).max(1) as u32;
        let total = each * threads as u32;
        if self.next > NUMBER_NEVER - total {
            return Err("this run needs more different keys than there are".to_owned());
        }
        let (first, ids) = (self.next, (2 * self.shape.entries) as u32);
        let (figure, sums) = measure(&self.peer, threads, total as usize, |handle, thread| {
            let start = first + thread as u32 * each;
            if work == Work::Put {
                put(handle, start..start + each);
                return 0;
            }
            mixed(handle, start, each, ids)
        });
        self.kept.clear();
        self.next = if work == Work::Put { first + total } else { first.max(ids) };
        match sums.iter().sum::<u64>() {
            0 => Ok(figure),
            wrong => Err(format!("{}: {wrong} wrong answers", work.name())),
        }
    }
}

impl<P: Peer> Runner for PeerRunner<P> {
    fn run(&mut self, work: Work, threads: usize, operations: usize) -> Result<f64, String> {
        if work.writes() {
            self.write(work, threads, operations)
        } else {
            self.read(work, threads, operations)
        }
    }

    fn hit_ratio(&mut self, ids: usize, requests: usize) -> Result<f64, String> {
        let law = Zipf::new(ids, ZIPF_EXPONENT);
        let mut handle = self.peer.handle();
        let mut buffer = ValueBuffer::default();
        let (mut hits, mut wrong) = (0, 0);
        for i in 0..requests as u64 {
            // Ranks are spread over the ids, so that ids that are near have nothing in common.
            let number = (mix(u64::from(law.rank(5, i))) >> 33) as u32;
            match handle.get(&key(number)) {
                Some(found) => {
                    hits += u64::from(i >= requests as u64 / 2);
                    wrong += u64::from(found != u64::from(number));
                }
                None => handle.put(&key(number), buffer.value(number)),
            }
        }
        handle.settle();
        if wrong > 0 {
            return Err(format!("{wrong} wrong answers"));
        }
        Ok(hits as f64 / (requests - requests / 2) as f64)
    }

    fn own_bytes(&self) -> Option<u64> {
        self.peer.own_bytes()
    }

    fn held(&mut self) -> usize {
        self.find_kept_keys();
        self.kept.len()
    }
}

/// Runs `act` on every thread with a handle of its own: the figure, and what each gave. On one thread the figure
/// is nanoseconds of running time an operation, on several million operations a second by the clock, from the first
/// start to the last end.
pub fn measure<P: Peer, R: Send>(
    peer: &P,
    threads: usize,
    operations: usize,
    act: impl Fn(&mut P::Handle<'_>, usize) -> R + Sync,
) -> (f64, Vec<R>) {
    if threads == 1 {
        let mut handle = peer.handle();
        handle.settle();
        let time = ThreadTime::start();
        let result = act(&mut handle, 0);
        return (time.elapsed_ns() / operations as f64, vec![result]);
    }
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (act, barrier) = (&act, &barrier);
                scope.spawn(move || {
                    let mut handle = peer.handle();
                    handle.settle();
                    barrier.wait();
                    // Not in the thread that waits for all: with as many cores as workers it may run when they
                    // are done.
                    let start = Instant::now();
                    let result = act(&mut handle, thread);
                    // The handle is dropped with its thread: no thread waits for one that has finished.
                    (result, start, Instant::now())
                })
            })
            .collect();
        let mut ran: Option<(Instant, Instant)> = None;
        let mut results = Vec::with_capacity(threads);
        for worker in workers {
            match worker.join() {
                Ok((result, start, end)) => {
                    let (first, last) = ran.unwrap_or((start, end));
                    ran = Some((first.min(start), last.max(end)));
                    results.push(result);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let seconds = ran.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        (operations as f64 / seconds.max(1e-9) / 1e6, results)
    })
}

#[inline(never)]
fn get_each<H: Handle>(handle: &mut H, order: &[u32]) -> u64 {
    order.iter().fold(0u64, |sum, &number| sum.wrapping_add(handle.get(&key(number)).unwrap_or(0)))
}

#[inline(never)]
fn get_dependent<H: Handle>(handle: &mut H, order: &[u32]) -> u64 {
    // Zero, but the compiler and the processor do not know.
    let zero = black_box(0u64);
    let mut last = 0u64;
    order.iter().fold(0u64, |sum, &number| {
        last = handle.get(&key(number + (last & zero) as u32)).unwrap_or(0);
        sum.wrapping_add(last)
    })
}

#[inline(never)]
fn get_batches<H: Handle>(handle: &mut H, order: &[u32]) -> u64 {
    let mut keys: [Key; BATCH] = [[0; 16]; BATCH];
    let mut sum = 0u64;
    for numbers in order.chunks(BATCH) {
        for (slot, &number) in keys.iter_mut().zip(numbers) {
            *slot = key(number);
        }
        handle.get_many(&keys[..numbers.len()], |found| {
            sum = sum.wrapping_add(found.unwrap_or(0));
        });
    }
    sum
}

#[inline(never)]
fn get_misses<H: Handle>(handle: &mut H, order: &[u32]) -> u64 {
    order.iter().filter(|&&number| handle.get(&key(number | NUMBER_NEVER)).is_some()).count() as u64
}

/// Stores numbers with their values, and settles.
#[inline(never)]
pub fn put<H: Handle>(handle: &mut H, numbers: std::ops::Range<u32>) {
    let mut buffer = ValueBuffer::default();
    for number in numbers {
        handle.put(&key(number), buffer.value(number));
    }
    handle.settle();
}

/// 70 % puts, 30 % gets: how many answers were wrong.
#[inline(never)]
fn mixed<H: Handle>(handle: &mut H, seed: u32, operations: u32, ids: u32) -> u64 {
    let mut buffer = ValueBuffer::default();
    let mut wrong = 0;
    for i in 0..operations {
        let number = scatter(u64::from(seed), u64::from(i), ids);
        if mix(u64::from(seed ^ i)) % 10 < 7 {
            handle.put(&key(number), buffer.value(number));
        } else if let Some(found) = handle.get(&key(number)) {
            wrong += u64::from(found != u64::from(number));
        }
    }
    handle.settle();
    wrong
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::Simple;

    /// The time of several threads is at least that from the first start to the last end.
    #[test]
    fn threads_are_timed_whole() {
        let peer = Simple::new(&Shape { entries: 1000, threads: 3 }).unwrap();
        let (figure, ran) = measure(&peer, 3, 1_000_000, |_, thread| {
            let start = Instant::now();
            std::thread::sleep(Duration::from_millis(5 * thread as u64));
            (start, Instant::now())
        });
        let first = ran.iter().map(|(start, _)| *start).min().unwrap();
        let last = ran.iter().map(|(_, end)| *end).max().unwrap();
        // A million operations.
        assert!(1.0 / figure >= (last - first).as_secs_f64(), "{figure}");
        assert!(1.0 / figure >= 0.01, "{figure}");
    }
}
