//! Many simulated caches, one pass over the requests, all cores.
//!
//! The caller's thread reads and numbers; threads take batches through short queues and replay them. A batch is
//! for the caches of one *team* (there is one team, or one a sub-sample) and every cache of it takes every
//! batch of the team, in order: threads draw (batch, cache) tasks, the batch's next cache each, so that a
//! slow cache delays no other, and lock the cache while they replay. Who is early (its thread drew batch 8 while
//! another that drew batch 7 has not locked yet) sees so by the cache's count of batches and lets it go first.
//!
//! So each cache sees the same requests in the same order, whatever the number of cores: results depend on
//! nothing else. What a cache took of a processor is the time that threads ran while they held it.
//!
//! Bounds: [`QUEUE`] batches a thread. Cost: two locks and two readings of a clock a (batch, cache), that is a
//! microsecond for some 65,000 requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::time::{ClockId, clock_gettime};

use crate::intern::Batch;
use crate::replay::{Counts, Replay};

/// Batches that wait for a thread.
const QUEUE: usize = 4;

/// What became of one cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// What happened in it.
    pub counts: Counts,
    /// Nanoseconds that threads ran for it.
    pub ran_ns: u64,
}

/// A batch, and the number of the team that it is for.
pub type Portion = (usize, Arc<Batch>);

/// Replays all that `next` gives, until it gives no more, by `cores` threads (with one, by this thread).
/// `teams` are the caches; the answer has the same shape.
pub fn replay<E>(
    teams: Vec<Vec<Box<dyn Replay>>>,
    cores: usize,
    mut next: impl FnMut() -> Result<Option<Portion>, E>,
) -> Result<Vec<Vec<Done>>, E> {
    let teams: Vec<Vec<Mutex<Turn>>> = teams
        .into_iter()
        .map(|team| team.into_iter().map(|cache| Mutex::new(Turn::new(cache))).collect())
        .collect();
    let caches = teams.iter().map(Vec::len).sum::<usize>();
    let threads = if cores > 1 { cores.min(caches) } else { 0 };
    thread::scope(|scope| {
        let queues: Vec<SyncSender<Arc<Round>>> = (0..threads)
            .map_while(|_| {
                let (queue, rounds) = sync_channel::<Arc<Round>>(QUEUE);
                let teams = &teams;
                let work = move || rounds.iter().for_each(|round| round.work(teams));
                // Where the system gives no more threads, those there are do the work.
                thread::Builder::new().spawn_scoped(scope, work).ok().map(|_| queue)
            })
            .collect();
        let mut rounds = Rounds::new(teams.len());
        while let Some(portion) = next()? {
            let round = Arc::new(rounds.round(portion));
            if queues.is_empty() {
                round.work(&teams);
            }
            for queue in &queues {
                // A thread that is gone has panicked, and the scope will pass that on.
                let _ = queue.send(Arc::clone(&round));
            }
        }
        Ok(())
    })?;
    let done = |turn: Mutex<Turn>| {
        let turn = turn.into_inner().expect(UNPOISONED);
        Done { counts: turn.cache.counts(), ran_ns: turn.ran_ns }
    };
    Ok(teams.into_iter().map(|team| team.into_iter().map(done).collect()).collect())
}

/// Runs `act` on every item, by `cores` threads; answers in the items' order, with the nanoseconds each took of
/// a processor.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    cores: usize,
    act: impl Fn(&T) -> R + Sync,
) -> Vec<(R, u64)> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<(R, u64)>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some((item, result)) = take(items, &results, &next) {
            let started = ran_ns();
            let answer = act(item);
            *result.lock().expect(UNPOISONED) = Some((answer, ran_ns() - started));
        }
    };
    thread::scope(|scope| {
        for _ in 1..cores.min(items.len()) {
            // Where the system gives no more threads, those there are do the work.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let all = results.into_iter().map(|result| result.into_inner().expect(UNPOISONED));
    all.map(|result| result.expect("every item was taken by one thread, and finished")).collect()
}

fn take<'a, T, R>(items: &'a [T], results: &'a [R], next: &AtomicUsize) -> Option<(&'a T, &'a R)> {
    // Relaxed: the number is all that is shared through it.
    let index = next.fetch_add(1, Ordering::Relaxed);
    Some((items.get(index)?, results.get(index)?))
}

const UNPOISONED: &str = "a thread that panics while it holds this ends them all";

/// A cache, and how far it is.
struct Turn {
    cache: Box<dyn Replay>,
    rounds: u64,
    ran_ns: u64,
}

impl Turn {
    fn new(cache: Box<dyn Replay>) -> Turn {
        Turn { cache, rounds: 0, ran_ns: 0 }
    }
}

/// One batch on its way through the caches of its team.
struct Round {
    team: usize,
    batch: Arc<Batch>,
    /// Batches that this team had before.
    number: u64,
    next: AtomicUsize,
}

impl Round {
    /// Does the tasks that no other thread has begun.
    fn work(&self, teams: &[Vec<Mutex<Turn>>]) {
        // Relaxed: what a cache holds is handed on by its lock.
        while let Some(turn) = teams[self.team].get(self.next.fetch_add(1, Ordering::Relaxed)) {
            loop {
                let mut turn = turn.lock().expect(UNPOISONED);
                if turn.rounds == self.number {
                    let started = ran_ns();
                    turn.cache.replay(&self.batch);
                    turn.ran_ns += ran_ns() - started;
                    turn.rounds += 1;
                    break;
                }
                drop(turn);
                thread::yield_now();
            }
        }
    }
}

/// Numbers the batches of each team.
struct Rounds {
    numbers: Vec<u64>,
}

impl Rounds {
    fn new(teams: usize) -> Rounds {
        Rounds { numbers: vec![0; teams] }
    }

    fn round(&mut self, (team, batch): Portion) -> Round {
        let number = self.numbers[team];
        self.numbers[team] += 1;
        Round { team, batch, number, next: AtomicUsize::new(0) }
    }
}

/// Nanoseconds that this thread ran.
fn ran_ns() -> u64 {
    let ran = clock_gettime(ClockId::ThreadCPUTime);
    ran.tv_sec as u64 * 1_000_000_000 + ran.tv_nsec as u64
}
