//! Contestants and rounds.
//!
//! Every contestant runs once a round; who begins moves on by one each round, so that nobody always runs
//! after the same neighbour, and a busy moment of the machine hits all of them. The first round of a work
//! warms up and is thrown away.

use std::io;

use crate::clock::resident_bytes;
use crate::data::PAYLOAD_BYTES_MEAN;
use crate::engine::{Engine, VARIANTS};
use crate::limit::{self, Limit};
use crate::peer::{Peer, Shape};
use crate::row::{Rival, Row, Unit};
use crate::sample::Median;
use crate::stand::{Fielded, Stand, Work};

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
type Build = Box<dyn Fn(&Shape) -> Result<Box<dyn Stand>, String>>;

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
        let build = move |shape: &Shape| -> Result<Box<dyn Stand>, String> {
            let peer = build(shape).map_err(|error| error.to_string())?;
            Ok(Box::new(Fielded::new(peer, *shape, bounded)))
        };
        Entrant { name, note, bounded, build: Box::new(build) }
    }

    /// Whether it can do a work: one that never evicts has no full table.
    fn can(&self, work: Work) -> bool {
        self.bounded || work != Work::Put
    }

    /// Builds and fills it.
    pub fn stand(&self, shape: &Shape) -> Result<Box<dyn Stand>, String> {
        (self.build)(shape).map_err(|error| format!("{}: {error}", self.name))
    }
}

/// The engine's own contestants: the first is larder, the others its other ways.
pub fn own_entrants() -> Vec<Entrant> {
    let entrant = |variant: &'static crate::engine::Variant| {
        Entrant::new(variant.name, variant.note, true, |shape| Engine::new(variant, shape))
    };
    VARIANTS.iter().map(entrant).collect()
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
    let mut stands = Vec::with_capacity(entrants.len());
    // One that takes part in nothing is not built: large ones take their time, and memory.
    for entrant in entrants.iter().filter(|entrant| works.iter().any(|&work| entrant.can(work))) {
        stands.push(Standing { entrant, stand: entrant.stand(&shape)?, is_limit: false });
    }
    let limit = limit_entrant();
    stands.push(Standing { entrant: &limit, stand: limit.stand(&shape)?, is_limit: true });

    for &work in works {
        for &threads in &plan.threads {
            let mut taking: Vec<&mut Standing<'_>> =
                (stands.iter_mut()).filter(|standing| standing.takes_part(work, threads)).collect();
            let figures = rounds(&mut taking, work, threads, plan)?;
            let unit = if threads == 1 { Unit::Ns } else { Unit::Mops };
            rows(&taking, &figures, work, threads, unit, &mut emit);
        }
    }
    Ok(())
}

struct Standing<'a> {
    entrant: &'a Entrant,
    stand: Box<dyn Stand>,
    is_limit: bool,
}

impl Standing<'_> {
    fn takes_part(&self, work: Work, threads: usize) -> bool {
        self.entrant.can(work) && !(self.is_limit && (threads > 1 || work == Work::Mixed))
    }
}

/// Figures of each contestant, round by round.
fn rounds(
    taking: &mut [&mut Standing<'_>],
    work: Work,
    threads: usize,
    plan: &Plan,
) -> Result<Vec<Vec<f64>>, String> {
    let count = taking.len();
    let mut figures = vec![Vec::with_capacity(plan.rounds); count];
    for round in 0..=plan.rounds {
        for turn in 0..count {
            let at = (turn + round) % count;
            let figure = (taking[at].stand.run(work, threads, plan.operations))
                .map_err(|error| format!("{}: {error}", taking[at].entrant.name))?;
            if round > 0 {
                figures[at].push(figure);
            }
        }
    }
    Ok(figures)
}

fn rows(
    taking: &[&mut Standing<'_>],
    figures: &[Vec<f64>],
    work: Work,
    threads: usize,
    unit: Unit,
    emit: &mut impl FnMut(Row),
) {
    let limit = (taking.iter().zip(figures))
        .find(|(standing, _)| standing.is_limit)
        .map(|(_, figures)| (Median::of(figures).value, limit::WHAT.to_owned()));
    let larder = &figures[0];
    let row = |peer| Row {
        work: work.name().to_owned(),
        threads,
        unit,
        larder: Median::of(larder),
        peer,
        limit: limit.clone(),
    };
    let mut alone = true;
    for (standing, figures) in taking.iter().zip(figures).skip(1) {
        if standing.is_limit {
            continue;
        }
        alone = false;
        emit(row(Some(Rival {
            name: standing.entrant.name.to_owned(),
            figure: Median::of(figures),
            ratio: Median::of_ratios(larder, figures),
            note: standing.entrant.note.to_owned(),
        })));
    }
    if alone {
        emit(row(None));
    }
}

/// What one contestant takes of memory. Measured best in a process of its own: what other contestants gave
/// back, an allocator may have kept.
#[derive(Debug, Clone, Copy)]
pub struct Footprint {
    /// Octets by which the process grew, an entry held, its payload not counted.
    pub resident: f64,
    /// The same by the contestant's own count.
    pub own: Option<f64>,
    /// Octets by which the process grew.
    pub resident_bytes: u64,
}

/// Fills a contestant and looks how much the process has grown.
pub fn footprint(entrant: &Entrant, entries: usize) -> Result<Footprint, String> {
    let resident = || resident_bytes().ok_or("this system does not say what is resident");
    let before = resident()?;
    let mut stand = entrant.stand(&Shape { entries, threads: 1 })?;
    let resident_bytes = resident()?.saturating_sub(before);
    let held = stand.held() as f64;
    let above = |bytes: u64| bytes as f64 / held - PAYLOAD_BYTES_MEAN;
    let own = stand.own_bytes().map(above);
    Ok(Footprint { resident: above(resident_bytes), own, resident_bytes })
}

/// The share of hits of a contestant with room for `entries`, and the octets by which the process grew.
/// Warmed up by the first half of the requests.
pub fn hit_ratio(
    entrant: &Entrant,
    entries: usize,
    ids: usize,
    requests: usize,
) -> Result<(f64, u64), String> {
    let before = resident_bytes().unwrap_or(0);
    let mut stand = entrant.stand(&Shape { entries, threads: 1 })?;
    let full = resident_bytes().unwrap_or(0).saturating_sub(before);
    Ok((stand.hit_ratio(ids, requests)?, full))
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
        compare(&own_entrants(), &Work::ALL, &plan, |row| rows.push(row)).unwrap();
        assert_eq!(rows.len(), 2 * Work::ALL.len() * VARIANTS.len().saturating_sub(1).max(1));
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
            let mut stand = liar.stand(&Shape { entries: 500, threads: 1 }).unwrap();
            assert!(stand.run(work, 1, 1001).is_err(), "{work:?}");
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
