//! The requests as every simulation sees them: names numbered, chances drawn, versions counted, once for all.
//!
//! A request's chance decides which core it comes to, and whether its read is reported; both are functions of
//! the seed and of the request's number, so that modes, policies and capacities see the same. A name's version is
//! the number of sets (and removals) of it so far: what its origin would answer now.
//!
//! Bounds: 28 bytes for each distinct name, and the batch.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::request::{Op, Request};
use crate::trace::random::mix;

use super::{Settings, Spread};

/// A name's number, from 0, in the order of first requests.
pub(super) type Name = u32;
/// How often a name's value had been replaced.
pub(super) type Version = u32;

/// Requests after which a lookup of the same name is no part of the same flow.
const FLOW_GAP: u64 = 1_000;
/// One in this many lookups within the gap begins a new flow: flows have four lookups in the mean.
const FLOW_LOOKUPS_MEAN: u64 = 4;

/// What chances are drawn for: each has numbers of its own.
#[derive(Clone, Copy)]
enum Draw {
    Set = 1,
    Core,
    Report,
    Flow,
}

/// A request, ready.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub name: Name,
    /// The name's version once this request is done.
    pub version: Version,
    /// Where in 0..2^32 the request falls: [`Access::core`] of it.
    pub chance: u32,
    pub op: Op,
    /// Whether the read, if it is a hit, is reported to main.
    pub is_reported: bool,
    /// Whether it counts: the warm-up is over.
    pub counts: bool,
}

impl Access {
    /// The core that it comes to, of `cores`.
    pub fn core(&self, cores: u32) -> u32 {
        share(self.chance, cores)
    }

    /// The core that its name belongs to, of `cores`.
    pub fn home(&self, cores: u32) -> u32 {
        share(home_chance(self.name), cores)
    }
}

fn share(chance: u32, cores: u32) -> u32 {
    ((u64::from(chance) * u64::from(cores)) >> 32) as u32
}

fn home_chance(name: Name) -> u32 {
    (mix(u64::from(name) ^ 0x5ead) >> 32) as u32
}

/// What is known of a name.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    version: Version,
    /// Number of the last request for it.
    last: u64,
    /// Where that one's flow falls.
    flow: u32,
}

/// Turns requests into accesses, in order.
#[derive(Debug)]
pub(super) struct Stream {
    seed: u64,
    spread: Spread,
    set_below: u64,
    report_below: u64,
    warm_up: u64,
    requests: u64,
    numbers: HashMap<u64, Name, FixedState>,
    known: Vec<Known>,
}

impl Stream {
    pub fn new(settings: &Settings) -> Self {
        Stream {
            seed: settings.seed,
            spread: settings.spread,
            set_below: threshold(settings.set_share),
            report_below: threshold(settings.report_share),
            warm_up: settings.warm_up,
            requests: 0,
            numbers: HashMap::default(),
            known: Vec::new(),
        }
    }

    /// Appends what the requests come to.
    pub fn take(&mut self, requests: &[Request], accesses: &mut Vec<Access>) {
        accesses.extend(requests.iter().map(|request| self.access(request)));
    }

    fn access(&mut self, request: &Request) -> Access {
        let next = self.known.len() as Name;
        let name = *self.numbers.entry(request.key).or_insert(next);
        if name == next {
            self.known.push(Known::default());
        }
        let op = match request.op {
            Op::Get if self.draw(Draw::Set) < self.set_below => Op::Set,
            op => op,
        };
        let chance = self.chance(name);
        let is_reported = self.draw(Draw::Report) < self.report_below;
        self.requests += 1;
        let counts = self.requests > self.warm_up;
        let known = &mut self.known[name as usize];
        known.version += Version::from(op != Op::Get);
        (known.last, known.flow) = (self.requests, chance);
        Access { name, version: known.version, chance, op, is_reported, counts }
    }

    fn chance(&self, name: Name) -> u32 {
        let known = &self.known[name as usize];
        match self.spread {
            Spread::Key => home_chance(name),
            // A name asked for the first time has `last` 0.
            Spread::Flow
                if known.last > 0
                    && self.requests - known.last < FLOW_GAP
                    && !self.draw(Draw::Flow).is_multiple_of(FLOW_LOOKUPS_MEAN) =>
            {
                known.flow
            }
            Spread::Flow | Spread::Random => self.draw(Draw::Core) as u32,
        }
    }

    /// A number below 2^32.
    fn draw(&self, what: Draw) -> u64 {
        mix(self.seed ^ mix(self.requests ^ (what as u64) << 56)) >> 32
    }
}

/// What a draw is below in this share of the cases.
fn threshold(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * 2f64.powi(32)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accesses(settings: &Settings, keys: impl Iterator<Item = u64>) -> Vec<Access> {
        let requests: Vec<Request> = keys.map(Request::get).collect();
        let mut accesses = Vec::new();
        Stream::new(settings).take(&requests, &mut accesses);
        accesses
    }

    /// Shares are met, cores get alike, and versions count the sets of a name.
    #[test]
    fn chances_are_as_configured() {
        let settings = Settings {
            set_share: 0.1,
            report_share: 0.125,
            warm_up: 30_000,
            ..Settings::default()
        };
        let all = accesses(&settings, (0..100_000).map(|i| i % 10));
        let count =
            |is: &dyn Fn(&&Access) -> bool| all.iter().filter(is).count() as f64 / 100_000.0;
        assert!((count(&|a| a.op == Op::Set) - 0.1).abs() < 0.005);
        assert!((count(&|a| a.is_reported) - 0.125).abs() < 0.005);
        assert_eq!(count(&|a| a.counts), 0.7);
        for core in 0..3 {
            assert!((count(&|a| a.core(3) == core) - 1.0 / 3.0).abs() < 0.01);
        }
        let sets = all.iter().filter(|a| a.name == 3 && a.op == Op::Set).count();
        assert_eq!(all.iter().rfind(|a| a.name == 3).map(|a| a.version), Some(sets as u32));
    }

    /// By key, a name has one core; by flow, it stays for a while, and neither for ever nor after a long rest.
    #[test]
    fn spreads_differ_in_what_they_keep_together() {
        let stays = |spread, names: u64| {
            let settings = Settings { spread, set_share: 0.0, ..Settings::default() };
            let all = accesses(&settings, (0..100_000).map(|i| i % names));
            let same = all.windows(names as usize + 1);
            let all = same.map(|w| (w[0].core(8), w[names as usize].core(8)));
            all.filter(|(a, b)| a == b).count() as f64 / 100_000.0
        };
        assert!(stays(Spread::Key, 10) > 0.99);
        assert!((stays(Spread::Random, 10) - 0.125).abs() < 0.01);
        // Three in four stay, and one in eight of the rest.
        assert!((stays(Spread::Flow, 10) - 0.78).abs() < 0.01);
        assert!((stays(Spread::Flow, 2_000) - 0.125).abs() < 0.01);
    }
}
