//! What flows stated: the choice of a name when a record is written, and how sure it is.
//!
//! Lookups give the names that an address may have. Flows that state their name (TLS, QUIC, HTTP)
//! show which of them clients mean, and how often the choice by lookups alone is right. [`Evidence`]
//! learns both, for the flows that state nothing.
//!
//! ```text
//! from a worker   when                                       here
//! statement       the responder accepted a stated name       an alias is learned (`aliases`)
//! trial           the record of such a flow is due           the choice without its own statement
//!                                                            is compared with the statement
//! undecided       the record of a flow with a looked-up      its name is chosen, its confidence is
//!                 name, which states none, is due            set, and the record is written
//! ```
//!
//! The decision falls when the record is due, not at the first packet: flows open in bursts, and
//! the flow that states a name often began milliseconds before or after one that states none. The
//! candidates stay those of the first packet (rule 7).
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

use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

use crate::Error;
use crate::confidence::{self, Cell, Counters};
use crate::flow::FlowKey;
use crate::names::Found;
use crate::options::Options;
use crate::record::{End, NameFlags, NameSource, Naming, UnnamedReason};
use aliases::Aliases;
pub(crate) use aliases::Own;

/// Learned aliases have this part of the names' budget.
const ALIASES_SHARE: u64 = 16;
/// What they have at least, bytes: less is no use.
const ALIASES_BYTES_MIN: u64 = 1 << 20;

/// The parts of the names' budget for names and for learned aliases, bytes. A budget too small to
/// be shared is the names', and the aliases take their least on top of it.
pub(crate) fn budgets(names_budget_bytes: u64) -> (u64, u64) {
    let aliases = names_budget_bytes / ALIASES_SHARE;
    match names_budget_bytes.checked_sub(aliases) {
        Some(names) if aliases >= ALIASES_BYTES_MIN => (names, aliases),
        _ => (names_budget_bytes, ALIASES_BYTES_MIN),
    }
}

/// A name that a flow stated, and that its responder accepted.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Number of the packet with which the responder accepted it.
    pub packet: u64,
    /// Number of the flow's first packet.
    pub first_packet: u64,
    /// The flow.
    pub key: FlowKey,
    /// Its initiator.
    pub client: Addr,
    /// The stated name.
    pub name: Name,
    /// The only name that lookups had given the responder at the flow's first packet.
    pub looked_up: Name,
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
    /// The candidates of the choice, best first.
    pub candidates: Vec<Name>,
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

/// What a run has learned from statements.
pub struct Evidence {
    /// `None` if `--names` leaves learned names out.
    aliases: Option<Aliases>,
    counters: Counters,
    observer: Option<Observer>,
}

impl Evidence {
    /// Learns within a part of the names' budget, as the options say.
    pub fn new(options: &Options, observer: Option<Observer>) -> Result<Evidence, Error> {
        let Options { names_budget_bytes, seed, names, .. } = options;
        let (_, budget_bytes) = budgets(*names_budget_bytes);
        let learns = names.has(NameSource::Learned);
        let aliases = learns.then(|| Aliases::new(budget_bytes, *seed)).transpose()?;
        Ok(Evidence { aliases, counters: Counters::default(), observer })
    }

    /// Learns what a flow of `client` states, where lookups had given only `looked_up`.
    pub(crate) fn learn(&mut self, scope: Scope, client: Addr, looked_up: &Name, own: Own<'_>) {
        if let Some(aliases) = &mut self.aliases {
            aliases.learn(scope, client, looked_up, own);
        }
    }

    /// Chooses the name of a flow that states one, without its statement; compares the two, and
    /// counts the result.
    pub fn judge(&mut self, trial: &mut Trial) {
        let (client, _) = trial.client;
        let Trial { scope, packet, naming, candidates, stated, .. } = trial;
        let own = Own { flow: *packet, stated: stated.as_bytes() };
        let cell = self.choose(*scope, client, naming, candidates, Some(own));
        self.counters.count(cell, trial.is_right());
        if let Some(observer) = &mut self.observer {
            observer(trial);
        }
    }

    /// Chooses the name of `end`, the destination of a flow of `client` that states none.
    pub fn decide(&mut self, scope: Scope, client: Addr, end: &mut End) {
        if let Some(naming) = &mut end.naming {
            self.choose(scope, client, naming, &mut end.candidates, None);
        }
    }

    /// Chooses among candidates, sets the confidence, and returns the cell that it came from.
    fn choose(
        &mut self,
        scope: Scope,
        client: Addr,
        naming: &mut Naming,
        candidates: &mut Vec<Name>,
        own: Option<Own<'_>>,
    ) -> Cell {
        let looked_up = candidates.len();
        // Of several names, the one that the client looked up itself is the one it means.
        let is_own_lookup = naming.source == NameSource::DnsPair && looked_up > 1;
        let aliases = self.aliases.as_mut().filter(|_| !is_own_lookup);
        let learned = aliases.and_then(|known| known.alias_of(scope, client, &naming.name, own));
        if let Some(learned) = learned {
            candidates.retain(|name| *name != learned);
            candidates.insert(0, learned.clone());
            naming.name = learned;
            naming.source = NameSource::Learned;
        }
        let cell = Cell::of(naming, looked_up);
        naming.confidence = confidence::capped(self.counters.confidence(cell), naming.flags);
        cell
    }
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
            || *source != NameSource::DnsPair && rivals.contains(stated) && is_head())
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
        by_worker: impl ExactSizeIterator<Item = &'a [Statement]>,
    ) -> Option<&'a Statement> {
        self.next.resize(by_worker.len(), 0);
        let next = by_worker
            .zip(&mut self.next)
            .filter_map(|(statements, next)| statements.get(*next).map(|it| (it, next)));
        let (statement, next) = next.min_by_key(|(statement, _)| statement.place())?;
        (statement.packet <= packet).then(|| {
            *next += 1;
            statement
        })
    }
}

#[cfg(test)]
mod tests;
