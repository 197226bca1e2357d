//! One main and a proxy a core.
//!
//! ```text
//! set            to main at once; proxies show it from the next sync on
//! get            the core's proxy, as of the last sync; a hit notes a report
//! get, missed    where asked for, main itself; else a miss, and with fill a set of the origin's value
//! sync           main gets the reports noted, core by core; then readers show what main has
//! ```
//!
//! All proxies sync at the same moment, as at the edge of a batch, so that one picture stands for all of
//! them. A read whose name was evicted from main since is not reported, as in the engine.
//!
//! Bounds: 4 bytes a name for the picture, and a report (16 bytes) for each read of one period.

use larder::policy::Replacement;

use super::stream::{Access, Name, Version};
use super::table::Table;
use super::{Outcome, SUB_TABLES, Settings, Simulation};
use crate::request::Op;
use crate::trace::random::mix;

/// A read that was not reported to main yet.
#[derive(Debug)]
struct Report {
    name: Name,
    /// Main's arrivals then.
    seen: u64,
}

pub(super) struct Replicated<P> {
    cores: u32,
    period: u64,
    fills: bool,
    falls_through: bool,
    main: Table<P>,
    news: News,
    /// The version of each name that proxies show, plus one; 0 where they show none.
    shown: Vec<Version>,
    /// How many of them there are in each part of the table.
    sub_tables: [u64; SUB_TABLES],
    /// A list a core.
    reports: Vec<Vec<Report>>,
    requests: u64,
    outcome: Outcome,
}

/// What changed in main since the last sync.
#[derive(Debug, Default)]
struct News {
    /// Each changed name once.
    names: Vec<Name>,
    is_changed: Vec<bool>,
    /// Changes, a name as often as it changed.
    changes: u64,
}

impl News {
    fn note(&mut self, name: Name) {
        self.changes += 1;
        let at = name as usize;
        if self.is_changed.len() <= at {
            self.is_changed.resize(at + 1, false);
        }
        if !self.is_changed[at] {
            self.is_changed[at] = true;
            self.names.push(name);
        }
    }
}

impl<P: Replacement> Replicated<P> {
    pub fn new(policy: P, capacity: u32, period: u64, settings: &Settings) -> Self {
        Replicated {
            cores: settings.cores,
            period,
            fills: settings.fills,
            falls_through: settings.falls_through,
            main: Table::new(policy, u64::from(capacity)),
            news: News::default(),
            shown: Vec::new(),
            sub_tables: [0; SUB_TABLES],
            reports: (0..settings.cores).map(|_| Vec::new()).collect(),
            requests: 0,
            outcome: Outcome::default(),
        }
    }

    fn request(&mut self, access: &Access) {
        self.requests += 1;
        self.outcome.requests += u64::from(access.counts);
        match access.op {
            Op::Get => self.get(access),
            Op::Set => self.main.store(access.name, access.version, 1, |name| self.news.note(name)),
            Op::Remove => self.main.remove(access.name, |name| self.news.note(name)),
        }
        if self.requests.is_multiple_of(self.period) {
            self.sync(access.counts);
        }
    }

    fn get(&mut self, access: &Access) {
        let shown = self.shown.get(access.name as usize).and_then(|shown| shown.checked_sub(1));
        let found = match shown {
            None if self.falls_through => self.main.get(access.name),
            shown => shown,
        };
        if access.counts {
            self.outcome.got(found, access.version);
        }
        if found.is_none() {
            if self.fills {
                self.main.store(access.name, access.version, 1, |name| self.news.note(name));
            }
        } else if access.is_reported {
            let report = Report { name: access.name, seen: self.main.arrivals() };
            self.reports[access.core(self.cores) as usize].push(report);
        }
    }

    fn sync(&mut self, counts: bool) {
        for report in self.reports.iter_mut().flat_map(|reports| reports.drain(..)) {
            self.main.hit(report.name, self.main.arrivals() - report.seen);
        }
        // Each part once, for caches that copy whole parts.
        let mut is_touched = [false; SUB_TABLES];
        let (changes, entries) = (self.news.changes, self.news.names.len() as u64);
        for name in self.news.names.drain(..) {
            let at = name as usize;
            if self.shown.len() <= at {
                self.shown.resize(at + 1, 0);
            }
            self.news.is_changed[at] = false;
            let before = self.shown[at];
            self.shown[at] = self.main.get(name).map_or(0, |version| version + 1);
            let part = (mix(u64::from(name)) % SUB_TABLES as u64) as usize;
            is_touched[part] = true;
            self.sub_tables[part] += u64::from(self.shown[at] != 0);
            self.sub_tables[part] -= u64::from(before != 0);
        }
        self.news.changes = 0;
        if counts && changes > 0 {
            let proxies = u64::from(self.cores);
            let parts = self.sub_tables.iter().zip(is_touched).filter(|(_, touched)| *touched);
            self.outcome.changes += changes;
            self.outcome.records += proxies * changes;
            self.outcome.entries += proxies * entries;
            self.outcome.whole += proxies * parts.map(|(entries, _)| entries).sum::<u64>();
        }
    }
}

impl<P: Replacement + Send> Simulation for Replicated<P> {
    fn feed(&mut self, batch: &[Access]) {
        batch.iter().for_each(|access| self.request(access));
    }

    fn finish(&mut self) -> Outcome {
        self.sync(true);
        self.outcome
    }
}
