//! One way through a trace: requests are read, sampled, numbered, and handed on by the batch.
//!
//! Without sampling there is one team of caches and a batch is what the source gave. With it there are as many
//! teams as sub-samples, and the requests of each are gathered until they make a batch. Keys keep their
//! numbers from one pass to the next.
//!
//! Bounds: a batch for each team, and what [`Pass::keep`] is allowed to keep.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::intern::Intake;
use crate::parallel_replay::Portion;
use crate::plan::{Capacity, Error, Open, Plan, Watch};
use crate::replay::By;
use crate::request::{Op, Request};
use crate::sample::{Distinct, SUBSAMPLES, Sampler, rate_for};
use crate::trace::{BATCH_REQUESTS, Damage, Source};

/// A rate that is just enough, `None` for the whole trace; and how many requests were counted for it.
pub(crate) fn choose_rate(
    plan: &Plan,
    open: Open<'_>,
    watch: &Watch,
) -> Result<(Option<f64>, Option<u64>), Error> {
    let mut source = open().map_err(Error::Open)?;
    let (mut distinct, mut batch) = (Distinct::default(), Vec::with_capacity(BATCH_REQUESTS));
    let (mut requests, mut bytes) = (0u64, 0u64);
    loop {
        source.next(&mut batch).map_err(Error::Read)?;
        if batch.is_empty() {
            break;
        }
        if watch.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        requests += batch.len() as u64;
        watch.requests.fetch_add(batch.len() as u64, Ordering::Relaxed);
        for request in &batch {
            distinct.add(request.key);
            bytes = bytes.saturating_add(u64::from(request.bytes));
        }
    }
    let keys = distinct.estimate();
    let bytes_mean = match plan.rules.by {
        By::Entries => 1.0,
        By::Bytes => (bytes as f64 / requests.max(1) as f64).max(1.0),
    };
    let entries = plan.capacities.iter().map(|capacity| match capacity {
        Capacity::Share(share) => share * keys,
        Capacity::Absolute(absolute) => *absolute as f64 / bytes_mean,
    });
    Ok((rate_for(keys, entries.fold(f64::INFINITY, f64::min)), Some(requests)))
}

/// Numbers keys: of the whole trace, or of each sub-sample.
pub(crate) struct Intakes {
    /// Of a sample.
    pub sampler: Option<Sampler>,
    /// Of the trace, or of each sub-sample.
    pub teams: Vec<Intake>,
}

impl Intakes {
    /// Knows no key yet.
    pub fn new(sampler: Option<Sampler>) -> Intakes {
        let teams = if sampler.is_some() { SUBSAMPLES } else { 1 };
        Intakes { sampler, teams: (0..teams).map(|_| Intake::new()).collect() }
    }

    /// Different keys numbered.
    pub fn keys(&self) -> u64 {
        self.teams.iter().map(|intake| intake.keys() as u64).sum()
    }

    /// The part of the keys that one team has.
    pub fn share(&self) -> f64 {
        self.sampler.map_or(1.0, |sampler| sampler.rate() / SUBSAMPLES as f64)
    }
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// Requests of any kind.
    pub requests: u64,
    /// Lookups.
    pub gets: u64,
    /// Bytes looked up.
    pub get_bytes: u64,
    /// What could not be read.
    pub damage: Damage,
    /// Somebody stopped it before the end.
    pub is_stopped: bool,
}

impl Read {
    /// An end, where there is nothing to say; `counted` are the requests of another pass.
    pub fn check(&self, counted: Option<u64>) -> Result<(), Error> {
        if self.is_stopped && self.requests == 0 {
            return Err(Error::Stopped);
        }
        if !self.is_stopped && counted.is_some_and(|counted| counted != self.requests) {
            return Err(Error::Changed);
        }
        if self.requests == 0 {
            return Err(Error::Empty(self.damage.clone()));
        }
        Ok(())
    }
}

/// One way through the trace.
pub(crate) struct Pass<'a> {
    source: Box<dyn Source>,
    intakes: &'a mut Intakes,
    watch: &'a Watch,
    batch: Vec<Request>,
    /// Of each sub-sample, requests that are no batch yet.
    waiting: Vec<Vec<Request>>,
    ready: VecDeque<Portion>,
    is_at_end: bool,
    /// So far.
    pub read: Read,
}

impl<'a> Pass<'a> {
    /// From the first request on.
    pub fn open(open: Open<'_>, intakes: &'a mut Intakes, watch: &'a Watch) -> Result<Self, Error> {
        Ok(Pass {
            source: open().map_err(Error::Open)?,
            watch,
            batch: Vec::with_capacity(BATCH_REQUESTS),
            waiting: vec![Vec::new(); if intakes.sampler.is_some() { SUBSAMPLES } else { 0 }],
            intakes,
            ready: VecDeque::new(),
            is_at_end: false,
            read: Read::default(),
        })
    }

    /// The next batch for a team.
    pub fn next(&mut self) -> Result<Option<Portion>, Error> {
        while self.ready.is_empty() && !self.is_at_end {
            self.advance()?;
        }
        Ok(self.ready.pop_front())
    }

    /// Reads to the end; what was read, if that takes no more than `bytes_max`.
    pub fn keep(&mut self, bytes_max: usize) -> Result<Option<Vec<Portion>>, Error> {
        let (mut kept, mut bytes) = (Vec::new(), 0);
        while let Some((team, batch)) = self.next()? {
            bytes += batch.bytes();
            if bytes <= bytes_max {
                kept.push((team, batch));
            } else {
                kept = Vec::new();
            }
        }
        Ok((bytes <= bytes_max).then_some(kept))
    }

    fn advance(&mut self) -> Result<(), Error> {
        self.read.is_stopped = self.watch.stop.load(Ordering::Relaxed);
        self.batch.clear();
        if !self.read.is_stopped {
            self.source.next(&mut self.batch).map_err(Error::Read)?;
        }
        if self.batch.is_empty() {
            self.is_at_end = true;
            self.read.damage = self.source.damage();
            return (0..self.waiting.len()).try_for_each(|team| self.pass_on(team));
        }
        let requests = self.batch.len() as u64;
        self.read.requests += requests;
        self.watch.requests.fetch_add(requests, Ordering::Relaxed);
        for request in self.batch.iter().filter(|request| request.op == Op::Get) {
            self.read.gets += 1;
            self.read.get_bytes += u64::from(request.bytes.max(1));
        }
        let Some(sampler) = self.intakes.sampler else {
            let batch = self.intakes.teams[0].batch(&self.batch);
            self.ready.push_back((0, Arc::new(batch.map_err(|_| Error::TooManyKeys)?)));
            return Ok(());
        };
        for request in &self.batch {
            if let Some(team) = sampler.subsample(request.key) {
                self.waiting[team].push(*request);
            }
        }
        (0..self.waiting.len())
            .filter(|team| self.waiting[*team].len() >= BATCH_REQUESTS)
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|team| self.pass_on(team))
    }

    /// Makes a batch of what waits for a team.
    fn pass_on(&mut self, team: usize) -> Result<(), Error> {
        let batch = self.intakes.teams[team].batch(&self.waiting[team]);
        self.waiting[team].clear();
        self.ready.push_back((team, Arc::new(batch.map_err(|_| Error::TooManyKeys)?)));
        Ok(())
    }
}
