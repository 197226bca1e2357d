//! How sure a name is, in percent.
//!
//! Flows that state their name show how often the choice by lookups is right. Trials are counted in
//! cells: where the name came from, how many names the address had, and how old the lookup was. A
//! name has the share of right trials in its cell. A cell with few trials leans on its parent (all
//! ages), and the parent on a shipped share ([`SHIPPED`]), as if each had [`WEIGHT`] trials of it.
//! So the confidence is useful from the first flow on, and adapts to the network.
//!
//! Names that no trial can judge have a fixed confidence: those that a flow states ([`of_stated`]),
//! and those that hosts state or others claim ([`before_trials`]).

use crate::record::{NameFlags, NameSource, Naming};

/// Doubts that a forger can cause: a response without a query, a claim for another host.
pub(crate) const DOUBTS: NameFlags =
    NameFlags::UNSOLICITED.with(NameFlags::ONE_SIDED).with(NameFlags::CLAIMED);
/// The confidence of a name with one of [`DOUBTS`], at most, percent.
pub(crate) const DOUBTFUL_MAX: u8 = 50;

/// The confidence of a name that a flow states and a lookup confirms, percent.
const STATED: u8 = 99;
/// The same where lookups gave the address other names only, of other domains.
const CONFLICT: u8 = 20;
/// The confidence of a name that a host states of itself, percent.
const HOST: u8 = 90;
/// The same of a name that others claim for a host.
const CLAIMED: u8 = 30;

/// The number of trials that a share from above counts for.
const WEIGHT: f64 = 12.0;

/// Sources, in the order of [`SHIPPED`]. The last one is the choice among several names.
const SOURCES: usize = 5;
/// Classes of the number of names that lookups gave: one, two, three or four, more. For a choice, of its margin.
const COUNTS: usize = 4;
/// A choice is in a class for each of these limits that its margin reaches, thousandths.
const MARGINS: [i32; COUNTS - 1] = [700, 1_500, 3_500];
/// Classes of the time between lookup and flow, ms: up to 2 s, 60 s, 600 s, longer; and lookups
/// after the flow's first packet.
const AGES_MS: [u64; 3] = [2_000, 60_000, 600_000];
const AGES: usize = AGES_MS.len() + 2;

/// Share of right choices by source and number of names, before any trial. Measured with
/// `larder-lab names` on the open half of the WRCCDC 2018 logs and on the open captures.
const SHIPPED: [[f64; COUNTS]; SOURCES] = [
    // dns_pair
    [0.98, 0.85, 0.70, 0.55],
    // dns_chain
    [0.97, 0.70, 0.55, 0.45],
    // dns_address
    [0.95, 0.70, 0.55, 0.45],
    // learned
    [0.95, 0.85, 0.70, 0.60],
    // a choice, by margin
    [0.50, 0.65, 0.80, 0.95],
];

/// A class of names that are equally sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    source: u8,
    count: u8,
    age: u8,
}

impl Cell {
    /// The cell of a choice among `count` names by lookups.
    pub fn of(naming: &Naming, count: usize) -> Cell {
        let source = match naming.source {
            NameSource::DnsPair => 0,
            NameSource::DnsChain => 1,
            NameSource::Learned => 3,
            _ => 2,
        };
        let count = count_class(count);
        let age = match naming.flags.has(NameFlags::LATE) {
            true => AGES_MS.len() + 1,
            false => AGES_MS.iter().filter(|limit| naming.age_ms > **limit).count(),
        };
        Cell { source, count, age: age as u8 }
    }

    /// The cell of a choice by the table among `count` names, with this margin.
    pub fn of_choice(margin: i32, count: usize) -> Cell {
        let reached = MARGINS.iter().filter(|limit| margin >= **limit).count();
        Cell { source: SOURCES as u8 - 1, count: reached as u8, age: count_class(count) }
    }

    /// The share of right choices before any trial.
    fn shipped(self) -> f64 {
        SHIPPED[usize::from(self.source)][usize::from(self.count)]
    }

    /// Its number, and that of its parent: all ages.
    fn numbers(self) -> (usize, usize) {
        let parent = usize::from(self.source) * COUNTS + usize::from(self.count);
        (parent * AGES + usize::from(self.age), parent)
    }
}

fn count_class(count: usize) -> u8 {
    match count {
        0 | 1 => 0,
        2 => 1,
        3 | 4 => 2,
        _ => 3,
    }
}

/// A share as a confidence: 1 to 99, since no count of trials is certain.
fn percent(share: f64) -> u8 {
    (share * 100.0).round().clamp(1.0, 99.0) as u8
}

/// Trials, and how many of them were right.
#[derive(Clone, Copy, Debug, Default)]
struct Trials {
    all: u32,
    right: u32,
}

impl Trials {
    fn add(&mut self, is_right: bool) {
        // Halved, so that both stay exact and new trials keep their weight.
        if self.all == u32::MAX {
            (self.all, self.right) = (self.all / 2, self.right / 2);
        }
        self.all += 1;
        self.right += u32::from(is_right);
    }

    /// The share of right ones, with [`WEIGHT`] more of share `prior`.
    fn share(self, prior: f64) -> f64 {
        (f64::from(self.right) + WEIGHT * prior) / (f64::from(self.all) + WEIGHT)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Counters {
    cells: [Trials; SOURCES * COUNTS * AGES],
    parents: [Trials; SOURCES * COUNTS],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            cells: [Trials::default(); SOURCES * COUNTS * AGES],
            parents: [Trials::default(); SOURCES * COUNTS],
        }
    }
}

impl Counters {
    /// Counts a trial.
    pub fn count(&mut self, cell: Cell, is_right: bool) {
        let (cell, parent) = cell.numbers();
        self.cells[cell].add(is_right);
        self.parents[parent].add(is_right);
    }

    /// The number of all trials.
    #[cfg(test)]
    pub fn all(&self) -> u64 {
        self.parents.iter().map(|trials| u64::from(trials.all)).sum()
    }

    /// The confidence of a name in `cell`, percent.
    pub fn confidence(&self, cell: Cell) -> u8 {
        let (at, parent) = cell.numbers();
        percent(self.cells[at].share(self.parents[parent].share(cell.shipped())))
    }
}

/// The confidence of a name that lookups gave, or that a host states, before any trial.
pub(crate) fn before_trials(naming: &Naming, count: usize) -> u8 {
    match naming.source {
        // Each record with a name comes here: no counters are made for it.
        source if source.is_lookup() => {
            capped(percent(Cell::of(naming, count).shipped()), naming.flags)
        }
        _ if naming.flags.intersects(DOUBTS) => CLAIMED,
        _ => HOST,
    }
}

/// The confidence of a name that a flow states, percent: that it is the name of the server, and not
/// only what the client wrote there.
pub(crate) fn of_stated(flags: NameFlags) -> u8 {
    if flags.has(NameFlags::CONFLICT) { CONFLICT } else { capped(STATED, flags) }
}

/// `confidence`, of a name with these flags.
pub(crate) fn capped(confidence: u8, flags: NameFlags) -> u8 {
    let doubts = DOUBTS.with(NameFlags::UNCONFIRMED);
    if flags.intersects(doubts) { confidence.min(DOUBTFUL_MAX) } else { confidence }
}
