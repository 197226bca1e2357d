//! Contestants and rounds.
//!
//! Every contestant runs once a round; who begins moves on by one each round, so that none always runs
//! after the same neighbor, and a busy moment of the machine hits all of them. The first round of a work
//! warms up and is thrown away.

use std::io;

use crate::clock::resident_bytes;
use crate::data::PAYLOAD_BYTES_MEAN;
use crate::engine::{Engine, Objects, Simple, VARIANTS};
use crate::limit::{self, Limit};
use crate::peer::{Peer, Shape};
use crate::row::{Row, Unit};
use crate::runner::{PeerRunner, Runner, Work};
use crate::sample::{Median, rounds};

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Entries of each contestant.
    pub entries: usize,
    /// Operations of one work in one round.
    pub operations: usize,
    /// Rounds that count.
    pub rounds: usize,
    /// Numbers of threads to measure with; works without threads are measured with one.
    pub threads: Vec<usize>,
}

/// Builds a contestant and fills it.
type Build = Box<dyn Fn(&Shape) -> Result<Box<dyn Runner>, String>>;

/// Who takes part.
pub struct Entrant {
    /// As rows call it.
    pub name: &'static str,
    /// What a reader should know of it.
    pub note: &'static str,
    /// Whether it evicts. One that doesn't takes no part in works that need it.
    pub bounded: bool,
    build: Build,
}

impl Entrant {
    /// A contestant that `build` builds.
    pub fn new<P: Peer + 'static, E: ToString>(
        name: &'static str,
        note: &'static str,
        bounded: bool,
        build: impl Fn(&Shape) -> Result<P, E> + 'static,
    ) -> Entrant {
        let build = move |shape: &Shape| -> Result<Box<dyn Runner>, String> {
            let peer = build(shape).map_err(|error| error.to_string())?;
            Ok(Box::new(PeerRunner::new(peer, *shape, bounded)))
        };
        Entrant { name, note, bounded, build: Box::new(build) }
    }

    /// Whether it can do a work: one that never evicts has no full table.
    fn can(&self, work: Work) -> bool {
        self.bounded || work != Work::Put
    }

    /// Builds and fills it.
    pub fn build(&self, shape: &Shape) -> Result<Box<dyn Runner>, String> {
        (self.build)(shape).map_err(|error| format!("{}: {error}", self.name))
    }
}

/// The engine's own contestants: the first is larder, the others its other ways.
pub fn own_entrants() -> Vec<Entrant> {
    let entrant = |variant: &'static crate::engine::Variant| {
        Entrant::new(variant.name, variant.note, true, |shape| Engine::new(variant, shape))
    };
    let map = Entrant::new(
        "larder, Map",
        "as `Map::builder` makes it, told that values are short",
        true,
        Simple::new,
    );
    let objects = Entrant::new("larder, ObjectMap", "Arc values", true, Objects::new);
    VARIANTS.iter().map(entrant).chain([map, objects]).collect()
}

/// The bare limit, which takes part on one thread only.
pub fn limit_entrant() -> Entrant {
    Entrant::new("limit", limit::WHAT, true, |shape| -> io::Result<Limit> { Limit::new(shape) })
}

/// Measures works: a row for each peer, number of threads and work, or one row when there is no peer.
/// `entrants[0]` is larder. A row is given to `emit` as soon as it is known.
pub fn compare(
    entrants: &[Entrant],
    works: &[Work],
    plan: &Plan,
    mut emit: impl FnMut(Row),
) -> Result<(), String> {
    let shape =
        Shape { entries: plan.entries, threads: plan.threads.iter().copied().max().unwrap_or(1) };
    let mut entered = Vec::with_capacity(entrants.len());
    // One that takes part in nothing is not built: large ones take their time, and memory.
    for entrant in entrants.iter().filter(|entrant| works.iter().any(|&work| entrant.can(work))) {
        entered.push(Entered { entrant, runner: entrant.build(&shape)?, is_limit: false });
    }
    let limit = limit_entrant();
    entered.push(Entered { entrant: &limit, runner: limit.build(&shape)?, is_limit: true });

    for &work in works {
        for &threads in &plan.threads {
            let mut taking: Vec<&mut Entered<'_>> =
                (entered.iter_mut()).filter(|one| one.takes_part(work, threads)).collect();
            let figures = rounds(taking.len(), plan.rounds, |_, at| {
                let Entered { entrant, runner, .. } = &mut *taking[at];
                let figure = runner.run(work, threads, plan.operations);
                figure.map_err(|error| format!("{}: {error}", entrant.name))
            })?;
            let taken = || taking.iter().zip(&figures);
            let limit = taken().find(|(one, _)| one.is_limit);
            let limit = limit.map(|(_, of)| (Median::of(of).value, limit::WHAT.to_owned()));
            let unit = if threads == 1 { Unit::Ns } else { Unit::Mops };
            let compared = taken()
                .filter(|(one, _)| !one.is_limit)
                .map(|(one, of)| (one.entrant.name, one.entrant.note, &of[..]));
            Row::of_rounds(work.name(), threads, unit, compared, limit)
                .into_iter()
                .for_each(&mut emit);
        }
    }
    Ok(())
}

struct Entered<'a> {
    entrant: &'a Entrant,
    runner: Box<dyn Runner>,
    is_limit: bool,
}

impl Entered<'_> {
    fn takes_part(&self, work: Work, threads: usize) -> bool {
        self.entrant.can(work) && !(self.is_limit && (threads > 1 || work == Work::Mixed))
    }
}

/// What one contestant takes of memory. Measured best in a process of its own: what other contestants gave
/// back, an allocator may have kept.
#[derive(Debug, Clone, Copy)]
pub struct Footprint {
    /// Bytes by which the process grew, an entry held, its payload not counted.
    pub resident: f64,
    /// The same by the contestant's own count.
    pub own: Option<f64>,
    /// Bytes by which the process grew.
    pub resident_bytes: u64,
}

/// Fills a contestant and looks how much the process has grown.
pub fn footprint(entrant: &Entrant, entries: usize) -> Result<Footprint, String> {
    let resident = || resident_bytes().ok_or("this system does not say what is resident");
    let before = resident()?;
    let mut runner = entrant.build(&Shape { entries, threads: 1 })?;
    let resident_bytes = resident()?.saturating_sub(before);
    let held = runner.held() as f64;
    let above = |bytes: u64| bytes as f64 / held - PAYLOAD_BYTES_MEAN;
    let own = runner.own_bytes().map(above);
    Ok(Footprint { resident: above(resident_bytes), own, resident_bytes })
}

/// The share of hits of a contestant with room for `entries`, and the bytes by which the process grew.
/// Warmed up by the first half of the requests.
pub fn hit_ratio(
    entrant: &Entrant,
    entries: usize,
    ids: usize,
    requests: usize,
) -> Result<(f64, u64), String> {
    let before = resident_bytes().unwrap_or(0);
    let mut runner = entrant.build(&Shape { entries, threads: 1 })?;
    let full = resident_bytes().unwrap_or(0).saturating_sub(before);
    Ok((runner.hit_ratio(ids, requests)?, full))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every work runs on one thread and on two, with an answer for every key, and gives a row with a limit
    /// where there is one.
    #[test]
    fn works_run_tiny() {
        let plan = Plan { entries: 4000, operations: 3000, rounds: 2, threads: vec![1, 2] };
        let mut rows = Vec::new();
        let entrants = own_entrants();
        compare(&entrants, &Work::ALL, &plan, |row| rows.push(row)).unwrap();
        assert_eq!(rows.len(), 2 * Work::ALL.len() * (entrants.len() - 1));
        for row in &rows {
            assert!(row.larder.value > 0.0 && row.larder.runs == 2, "{row:?}");
            assert_eq!(row.limit.is_some(), row.threads == 1 && row.work != Work::Mixed.name());
        }
    }

    /// A contestant that gives another key's value is found out. Invariant 1 of `bench`.
    #[test]
    fn wrong_answers_are_no_rows() {
        struct Liar(Limit);
        struct Lies<'a>(<Limit as Peer>::Handle<'a>);
        impl Peer for Liar {
            type Handle<'a> = Lies<'a>;
            fn handle(&self) -> Lies<'_> {
                Lies(self.0.handle())
            }
        }
        impl crate::peer::Handle for Lies<'_> {
            fn get(&mut self, key: &crate::data::Key) -> Option<u64> {
                self.0.get(key).map(|number| number ^ 1)
            }
            fn put(&mut self, key: &crate::data::Key, value: &[u8]) {
                self.0.put(key, value);
            }
        }
        let liar = Entrant::new("liar", "", true, |shape| Limit::new(shape).map(Liar));
        for work in [Work::GetIndependent, Work::GetBatch, Work::Mixed] {
            let mut runner = liar.build(&Shape { entries: 500, threads: 1 }).unwrap();
            assert!(runner.run(work, 1, 1001).is_err(), "{work:?}");
        }
    }

    /// More room gives more hits, and the share is near what Zipf's law allows.
    #[test]
    fn hits_grow_with_room() {
        let entrant = &own_entrants()[0];
        let share = |entries| hit_ratio(entrant, entries, 20_000, 100_000).unwrap().0;
        let (small, large) = (share(1000), share(10_000));
        assert!(small > 0.3 && large > small + 0.1 && large < 1.0, "{small} {large}");
    }
}
