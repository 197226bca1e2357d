//! What flows stated: the choice of a name when a record is written, and how sure it is.
//!
//! Lookups give the names that an address may have. Flows that state their name (TLS, QUIC, HTTP)
//! show which of them clients mean, and how often the choice by lookups alone is right. [`Evidence`]
//! learns both, for the flows that state nothing.
//!
//! ```text
//! from a worker   when                                       here
//! statement       the responder accepted a stated name       an alias is learned (`aliases`)
//! trial           the same; judged 5 s later (`waiting`)     the choice without its own statement
//!                                                            is compared with the statement
//! undecided       the record of a flow with a looked-up      its name is chosen, its confidence is
//!                 name, which states none, is due            set, and the record is written
//! ```
//!
//! The decision falls when the record is due, not at the first packet: flows open in bursts, and
//! the flow that states a name often began milliseconds before or after one that states none. The
//! candidates stay those of the first packet (rule 7). For the same reason a trial waits 5 s, in which
//! other flows may state names.
//!
//! What is learned depends on the statements alone, in the order and by the time of their packets: on
//! no end of a flow, and on no packet between. So a part of a capture gets the confidence that a log of
//! the whole has, if the packets before it that state names are read.
//!
//! One thread at a time calls this, with the events of all workers in the order of their packets
//! (`InOrder`). So the result depends on neither the number of workers nor their speed.
//!
//! Invariants
//! 1. A flow's own statement never counts for its own trial (`aliases::Own`).
//! 2. A statement of one client changes the names of other clients only after a second client
//!    stated the same. So a client that lies in its ClientHello renames only its own flows.
//! 3. A name with a doubt that a forger can cause (`crate::confidence`) never has a confidence
//!    above 50.
//!
//! Cost: two reads of a small map and a few counters for each flow with a looked-up name; nothing
//! for a packet, and nothing for a flow without names.

mod aliases;
pub mod choice;
mod fifo;
mod hashes;
mod usage;
mod waiting;

use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

use crate::confidence::{self, Cell, Counters};
use crate::flow::FlowKey;
use crate::names::Found;
use crate::options::Options;
use crate::record::{End, NameFlags, NameSource, Naming, Origin, UnnamedReason};
use aliases::{Aliases, Own};
use choice::{Choice, Features, Known};
pub(crate) use hashes::Hashes;
pub(crate) use usage::{FlowStart, Parties};
use usage::{Keys, Usage};
use waiting::Waiting;

/// Learned aliases have this part of the names' budget.
const ALIASES_SHARE: u64 = 16;
/// The counts of stated names have this part.
const USAGE_SHARE: u64 = 32;
/// What aliases have at least, bytes: less is no use. The counts have half of it.
const ALIASES_BYTES_MIN: u64 = 1 << 20;

/// Flows that begin this soon after the capture are all tried. The shares are known well enough then, so that most
/// later ones can be spared.
const TRIED_NS: i64 = 600_000_000_000;

/// Parts of the names' budget, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budgets {
    /// Names by lookups.
    pub names: u64,
    /// Learned aliases.
    pub aliases: u64,
    /// Counts of stated names.
    pub usage: u64,
}

impl Budgets {
    /// The parts of `names_budget_bytes`. A budget too small to be shared is the names', and the others take their
    /// least on top of it.
    pub fn of(names_budget_bytes: u64) -> Budgets {
        let [aliases, usage] = [ALIASES_SHARE, USAGE_SHARE].map(|part| names_budget_bytes / part);
        match aliases >= ALIASES_BYTES_MIN {
            true => Budgets { names: names_budget_bytes - aliases - usage, aliases, usage },
            false => Budgets {
                names: names_budget_bytes,
                aliases: ALIASES_BYTES_MIN,
                usage: ALIASES_BYTES_MIN / 2,
            },
        }
    }
}

/// A name that a flow stated, and that its responder accepted.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Number of the packet with which the responder accepted it.
    pub packet: u64,
    /// Time of that packet, ns since 1970 UTC.
    pub time_ns: i64,
    /// The flow's first packet.
    pub(crate) flow: FlowStart,
    /// The flow.
    pub key: FlowKey,
    /// Its initiator.
    pub client: Addr,
    /// The name.
    pub(crate) keys: Keys,
    /// What the client means by the name that lookups gave, if the flow shows that.
    pub(crate) meaning: Option<Meaning>,
    /// The trial of the choice, if lookups gave names and the flow is in the sample.
    pub(crate) trial: Option<Box<Trial>>,
}

/// What a client means by the name that lookups had given the responder at the flow's first packet.
#[derive(Clone, Debug)]
pub(crate) struct Meaning {
    /// The name that the flow stated.
    stated: Name,
    /// The looked-up name, if it is another.
    looked_up: Option<Box<Name>>,
}

impl Meaning {
    /// A flow stated `stated` where lookups gave `looked_up`.
    pub fn new(stated: &Name, looked_up: &Name) -> Meaning {
        let is_other = looked_up != stated;
        Meaning { stated: stated.clone(), looked_up: is_other.then(|| Box::new(looked_up.clone())) }
    }
}

impl Statement {
    /// Its position among the statements. A packet that completes a fragmented tunnel packet may bring two.
    pub(crate) fn place(&self) -> (u64, FlowKey) {
        (self.packet, self.key)
    }
}

/// A flow that states its name and has names by lookups: a trial of the choice.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Number of the flow's first packet, or of its line in a log.
    pub packet: u64,
    /// The network of the addresses.
    pub scope: Scope,
    /// Time of the flow's first packet, ns since 1970 UTC.
    pub start_ns: i64,
    /// The initiator's address and port.
    pub client: (Addr, u16),
    /// The responder's address and port.
    pub server: (Addr, u16),
    /// The name by lookups. After the trial: the choice, made without the flow's own statement.
    pub naming: Naming,
    /// The candidates of the choice. After the trial the chosen one is the first.
    pub candidates: Vec<Name>,
    /// Where each of several candidates comes from.
    pub origins: Vec<Origin>,
    /// After the trial: what the choice weighed, for each candidate that it could choose, with its name.
    pub features: Vec<(Name, Features)>,
    /// The name that the flow states.
    pub stated: Name,
}

impl Trial {
    /// True when the choice is the name that the flow states.
    pub fn is_right(&self) -> bool {
        self.naming.name == self.stated
    }
}

/// Gets each trial after the choice.
pub type Observer = Box<dyn FnMut(&Trial) + Send>;

/// A flow whose name is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    scope: Scope,
    start_ns: i64,
    client: Addr,
    /// Address and port.
    server: (Addr, u16),
    /// The flow's own statement, if it is a trial.
    own: Option<Own<'a>>,
}

impl Subject<'_> {
    /// A flow of `client` to `server` that states no name.
    pub fn new(scope: Scope, start_ns: i64, client: Addr, server: (Addr, u16)) -> Subject<'static> {
        Subject { scope, start_ns, client, server, own: None }
    }
}

/// What a run has learned from statements.
pub struct Evidence {
    /// `None` if `--names` leaves learned names out.
    learned: Option<Learned>,
    hashes: Hashes,
    counters: Counters,
    /// Trials that are not due.
    waiting: Waiting,
    observer: Option<Observer>,
    /// The candidates of the choice at hand.
    weighed: Weighed,
}

/// What changes names.
struct Learned {
    aliases: Aliases,
    usage: Usage,
}

/// Candidates that a choice may take, each with its place among all.
#[derive(Default)]
struct Weighed {
    places: Vec<usize>,
    keys: Vec<Keys>,
    /// Their names, for the observer.
    names: Vec<Name>,
    known: Vec<Known>,
    features: Vec<Features>,
}

impl Evidence {
    /// Learns within a part of the names' budget, as the options say.
    pub fn new(options: &Options, observer: Option<Observer>) -> Evidence {
        let Options { names_budget_bytes, seed, names, .. } = options;
        let Budgets { aliases, usage, .. } = Budgets::of(*names_budget_bytes);
        let hashes = Hashes::new(*seed);
        let learned =
            || Learned { aliases: Aliases::new(aliases, hashes.clone()), usage: Usage::new(usage) };
        Evidence {
            learned: names.has(NameSource::Learned).then(learned),
            hashes,
            counters: Counters::default(),
            waiting: Waiting::default(),
            observer,
            weighed: Weighed::default(),
        }
    }

    /// The hashes of statements.
    pub(crate) fn hashes(&self) -> &Hashes {
        &self.hashes
    }

    /// Fetches the memory that statements need which are learned soon.
    pub(crate) fn prefetch(&self, statements: &[Statement]) {
        if let Some(Learned { usage, .. }) = &self.learned {
            usage.prefetch(statements.iter().map(|statement| &statement.keys));
        }
    }

    /// Learns a name that a flow of `client` states, and what it means by the looked-up one, if the flow shows that.
    pub(crate) fn learn(
        &mut self,
        scope: Scope,
        client: Addr,
        flow: FlowStart,
        keys: &Keys,
        meaning: Option<&Meaning>,
    ) {
        let Some(Learned { aliases, usage }) = &mut self.learned else { return };
        usage.add(keys, flow);
        if let Some(Meaning { stated, looked_up }) = meaning {
            let looked_up = looked_up.as_deref().unwrap_or(stated);
            let own = Own { flow: flow.flow, stated };
            aliases.learn(scope, client, looked_up, own);
        }
    }

    /// Takes a statement of the traffic: judges the trials that are due by its time, learns it, and has its own trial
    /// wait.
    pub(crate) fn take(&mut self, statement: &mut Statement) {
        let Statement { time_ns, key, client, flow, keys, meaning, trial, .. } = statement;
        while let Some(mut trial) = self.waiting.next_due(*time_ns) {
            self.count(&mut trial);
        }
        self.learn(key.scope.network(), *client, *flow, keys, meaning.as_ref());
        if let Some(trial) = trial.take() {
            self.waiting.push(*time_ns, trial);
        }
    }

    /// Judges a trial, and counts the result.
    fn count(&mut self, trial: &mut Trial) {
        let cell = self.try_out(trial);
        self.counters.count(cell, trial.is_right());
    }

    /// Judges the trial of a line of a log, counts the result, and shows it to the observer.
    pub fn judge(&mut self, trial: &mut Trial) {
        self.count(trial);
        self.show(trial);
    }

    /// Judges the trial of a record that is due, for the observer only: what counts is judged when it is stated.
    pub(crate) fn observe(&mut self, trial: &mut Trial) {
        self.try_out(trial);
        self.show(trial);
    }

    /// Chooses the name of a flow that states one, without its statement.
    fn try_out(&mut self, trial: &mut Trial) -> Cell {
        let Trial { packet, scope, start_ns, client, server, naming, candidates, .. } = trial;
        let own = Own { flow: *packet, stated: &trial.stated };
        let subject =
            Subject { own: Some(own), ..Subject::new(*scope, *start_ns, client.0, *server) };
        self.choose(&subject, naming, candidates, &mut trial.origins)
    }

    fn show(&mut self, trial: &mut Trial) {
        if let Some(observer) = &mut self.observer {
            let Weighed { names, features, .. } = &mut self.weighed;
            trial.features = names.drain(..).zip(features.iter().copied()).collect();
            observer(trial);
        }
    }

    /// Chooses the name of `end`, the destination of a flow that states none. True if it is another than that by
    /// lookups alone.
    pub(crate) fn decide(&mut self, subject: &Subject<'_>, end: &mut End) -> bool {
        let End { naming: Some(naming), candidates, origins, .. } = end else { return false };
        let by_lookups = candidates.first().cloned();
        self.choose(subject, naming, candidates, origins);
        by_lookups.is_some_and(|name| name != naming.name)
    }

    /// Chooses among candidates, sets the confidence, and returns the cell that it came from.
    fn choose(
        &mut self,
        subject: &Subject<'_>,
        naming: &mut Naming,
        candidates: &mut Vec<Name>,
        origins: &mut Vec<Origin>,
    ) -> Cell {
        let looked_up = candidates.len();
        self.take_alias(subject, naming, candidates, origins);
        let choice = self.weigh(subject, naming, candidates, origins);
        let cell = match choice {
            Some(Choice { place, margin }) => {
                take(self.weighed.places[place], subject.start_ns, naming, candidates, origins);
                Cell::of_choice(margin, looked_up)
            }
            None => Cell::of(naming, looked_up),
        };
        naming.confidence = confidence::capped(self.counters.confidence(cell), naming.flags);
        cell
    }

    /// Puts the name that the client means by the first candidate before it, if that was learned.
    fn take_alias(
        &mut self,
        subject: &Subject<'_>,
        naming: &mut Naming,
        candidates: &mut Vec<Name>,
        origins: &mut Vec<Origin>,
    ) {
        let Subject { scope, client, own, .. } = *subject;
        // Of several names, the one that the client looked up itself is the one it means.
        let is_own_lookup = naming.source == NameSource::DnsPair && candidates.len() > 1;
        let learned = self.learned.as_ref().filter(|_| !is_own_lookup);
        let alias =
            learned.and_then(|learned| learned.aliases.alias_of(scope, client, &naming.name, own));
        let Some(alias) = alias else { return };
        let mut origin = Origin { source: NameSource::Learned, ..origin_of(naming, subject) };
        if let Some(known) = candidates.iter().position(|name| *name == alias) {
            candidates.remove(known);
            if known < origins.len() {
                origin.time_ns = origins.remove(known).time_ns;
            }
        }
        if !origins.is_empty() {
            origins.insert(0, origin);
        }
        candidates.insert(0, alias.clone());
        naming.name = alias;
        naming.source = NameSource::Learned;
    }

    /// Weighs several candidates by what flows stated.
    fn weigh(
        &mut self,
        subject: &Subject<'_>,
        naming: &Naming,
        candidates: &[Name],
        origins: &[Origin],
    ) -> Option<Choice> {
        let Weighed { places, keys, names, known, features } = &mut self.weighed;
        places.clear();
        keys.clear();
        names.clear();
        known.clear();
        let Learned { usage, .. } = self.learned.as_ref()?;
        if origins.len() < 2 || naming.flags.intersects(UNCHOOSABLE) {
            return None;
        }
        let Subject { scope, client, server, .. } = *subject;
        let parties = Parties::of(&self.hashes, scope, client, server);
        let doubts = |flags: NameFlags| flags.bits() & confidence::DOUBTS.bits();
        for (place, (name, origin)) in candidates.iter().zip(origins).enumerate() {
            // A doubtful name is no rival of one without doubt.
            let is_choosable = origin.source.is_lookup() || origin.source == NameSource::Learned;
            if is_choosable && doubts(origin.flags) == doubts(naming.flags) {
                places.push(place);
                keys.push(parties.keys(&self.hashes, name));
            }
        }
        usage.prefetch(keys.iter());
        for (place, keys) in places.iter().zip(keys) {
            let (name, origin) = (&candidates[*place], &origins[*place]);
            names.extend(self.observer.is_some().then(|| name.clone()));
            let own = subject.own.filter(|own| own.stated == name);
            let stated = usage.get(keys, own.map(|own| own.flow));
            known.push(Known { lookup_ns: Some(origin.time_ns), stated });
        }
        // Where no flow stated any of them, such as at a port of another service, the order by lookups stays.
        let is_stated = |known: &Known| known.stated.by_client > 0 || known.stated.by_others > 0;
        if places.len() < 2 || !known.iter().any(is_stated) {
            names.clear();
            return None;
        }
        choice::features(subject.start_ns, known, features);
        choice::choose(choice::TABLE, features)
    }
}

/// Names with these doubts stay as lookups gave them: a forger can give them to any address, or nobody had looked them
/// up when the flow began.
const UNCHOOSABLE: NameFlags =
    NameFlags::UNSOLICITED.with(NameFlags::CLAIMED).with(NameFlags::LATE);

/// True for a flow whose trial counts, by the time of its first packet, so that each worker knows it: the early
/// ones, and one of eight later ones.
pub(crate) fn is_tried(start_ns: i64, capture_start_ns: i64) -> bool {
    // Multiplied twice (Fibonacci hashing: Knuth, TAOCP volume 3, 6.4), so that no period of the traffic is a trap.
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (start_ns as u64).wrapping_mul(GOLDEN);
    start_ns.saturating_sub(capture_start_ns) < TRIED_NS
        || (mixed ^ (mixed >> 32)).wrapping_mul(GOLDEN) >> 61 == 0
}

/// Where the name of `naming` comes from.
fn origin_of(naming: &Naming, subject: &Subject<'_>) -> Origin {
    let age_ns = i64::try_from(naming.age_ms).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    Origin {
        source: naming.source,
        time_ns: subject.start_ns.saturating_sub(age_ns),
        flags: naming.flags,
    }
}

/// Makes the candidate at `place` the first, and the name.
fn take(
    place: usize,
    start_ns: i64,
    naming: &mut Naming,
    candidates: &mut [Name],
    origins: &mut [Origin],
) {
    if place == 0 {
        return;
    }
    candidates[..=place].rotate_right(1);
    origins[..=place].rotate_right(1);
    let Origin { source, time_ns, flags } = origins[0];
    naming.name = candidates[0].clone();
    naming.source = source;
    naming.age_ms = (start_ns.saturating_sub(time_ns).max(0) / 1_000_000) as u64;
    naming.flags = flags.with(NameFlags::AMBIGUOUS);
}

/// True for a name that lookups gave: statements help to choose it.
pub(crate) fn is_by_lookup(naming: &Naming) -> bool {
    naming.source.is_lookup()
}

/// Leaves out names with a confidence below `least`, percent. They stay candidates.
pub(crate) fn leave_out(ends: [&mut End; 2], least: u8) {
    for end in ends {
        if end.naming.take_if(|naming| naming.confidence < least).is_some() {
            end.unnamed_reason = Some(UnnamedReason::LowConfidence);
        }
    }
}

/// True if the statement of a flow shows what its client means by the name that lookups gave,
/// `found`, which must not be one that a forger can give to any address. With rivals, that is the
/// name itself, or the head of its chain if the client did not look the name up itself: `is_head`
/// tells whether the stated name is that.
pub(crate) fn teaches(found: &Found, stated: &Name, is_head: impl FnOnce() -> bool) -> bool {
    let forged = NameFlags::UNSOLICITED.with(NameFlags::CLAIMED);
    let Found { name, source, flags, rivals, .. } = found;
    source.is_lookup()
        && !flags.intersects(forged)
        && (rivals.is_empty()
            || stated == name
            || *source != NameSource::DnsPair
                && rivals.iter().any(|rival| rival.name == *stated)
                && is_head())
}

/// The statements of a batch's workers, in the order of their packets.
#[derive(Default)]
pub(crate) struct InOrder {
    /// For each worker, the index of its next statement.
    next: Vec<usize>,
}

impl InOrder {
    /// The next statement that came with `packet` or before it. Each call gets the same statements.
    pub fn next_until<'a>(
        &mut self,
        packet: u64,
        by_worker: impl ExactSizeIterator<Item = &'a mut [Statement]>,
    ) -> Option<&'a mut Statement> {
        self.next.resize(by_worker.len(), 0);
        let next = by_worker
            .zip(&mut self.next)
            .filter_map(|(statements, next)| statements.get_mut(*next).map(|it| (it, next)));
        let (statement, next) = next.min_by_key(|(statement, _)| statement.place())?;
        (statement.packet <= packet).then(|| {
            *next += 1;
            statement
        })
    }
}

#[cfg(test)]
mod tests;
