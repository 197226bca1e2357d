//! Flows: which packets belong together, which end began, and when a flow ended.
//!
//! A flow is a bidirectional 5-tuple in one network (VLAN, VNI: [`larder_wire::scope`]), inside any
//! tunnel. Its phases:
//!
//! ```text
//! phase      begins with                                ends with
//! open       its first packet                           FIN from both ends, RST; idle; eviction
//!            (active too long, or a cut: a record is written, and the next packet begins another)
//! closed     both FINs or a RST                         linger (5 s) without a packet, a new SYN
//! ended      one of the above, or the end of input      its record is written, its slot freed
//! ```
//!
//! The table is split into [`SHARDS`] shards by the hash of the 5-tuple, a fixed number, so that a
//! shard never depends on the number of workers. A shard has its own limit; when it is full, the
//! flow that has been idle longest ends (`evicted`). All times are packet times: a shard's clock moves
//! at seconds between packets (`decode::Tick`), and never goes back.
//!
//! Invariants (checked by [`Shard::validate`])
//! 1. Every live flow is in the index exactly once and in exactly one of the lists.
//! 2. A list is ordered by `stamp_ns` if packets come in the order of their times, and `last_ns -
//!    stamp_ns` of a flow is below `RESTAMP_NS` when its packet was handled. So the flows of a second are
//!    all that a tick reads in vain, and eviction is exact to a second, without a list move per packet. A packet
//!    with a wrong time leaves its flow at most a minute after the clock in its list.
//! 3. `live <= limit`.
//!
//! Cost: one index line and two of a flow's four cache lines a packet, all prefetched.

mod event;
mod shard;
mod tcp;

use larder_wire::Addr;
use larder_wire::packet::Tunnel;
use larder_wire::scope::Scope;

pub use event::{Event, FlowKey, FlowNote, is_response, next_cut_ns, protocol, shard_of, tcp_flag};
pub use shard::{Guess, Shard};
pub use tcp::{History, Sent};

use crate::record::{App, ConnState};
use tcp::{EndState, tcp_state};

/// A flow moves to its list's end when its place is older than this.
const RESTAMP_NS: i64 = 1_000_000_000;
/// Shards of the flow table: fixed, so that results do not depend on the number of workers.
pub const SHARDS: usize = 64;
/// The lists of a shard, and the place of an ended flow: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum List {
    Tcp = 0,
    Other = 1,
    Closed = 2,
    /// Flows of which a reduced capture leaves out packets: a note says when the last one was.
    Reduced = 3,
    /// The same, closed.
    ReducedClosed = 4,
    None = 5,
}

impl List {
    /// The list for flows of this one, if packets of theirs are left out.
    fn reduced(self) -> List {
        match self {
            List::Closed | List::ReducedClosed => List::ReducedClosed,
            _ => List::Reduced,
        }
    }
}

/// A live flow. `U` is the data of the table's user (names, heads).
///
/// The order of the fields is that of memory. A packet touches the first line and that of its
/// sender; the fourth line is for a flow's begin and end.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Flow<U> {
    low: Addr,
    high: Addr,
    scope: Scope,
    low_port: u16,
    high_port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// The initiator is the key's `low` end.
    pub source_is_low: bool,
    list: List,
    passes: Passes,
    /// Time of the last packet, ns.
    pub last_ns: i64,
    stamp_ns: i64,
    /// Counts of each end: `[high, low]`, so that `from_low as usize` indexes it.
    sent: [Sent; 2],
    /// Zeek's history letters.
    pub history: History,
    /// For the user: the flow stated a name, and its responder has not answered yet.
    pub awaits_reply: bool,
    prev: u32,
    next: u32,
    /// The low half of the key's hash, as in the index.
    hash: u32,
    /// Innermost tunnel of the first packet.
    pub tunnel: Option<Tunnel>,
    /// Application protocol, as far as known.
    pub app: Option<App>,
    /// The first packet was TCP without SYN.
    pub midstream: bool,
    /// For the user: the names are those of a flow that the key's `low` end began.
    pub looked_up_from_low: bool,
    /// Time of the first packet of the current record, ns.
    pub start_ns: i64,
    /// Number of the first packet of the current record in the whole input.
    pub first_packet: u64,
    /// The user's data.
    pub user: U,
}

/// Which packets of a flow its user gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Passes {
    /// Each.
    Each,
    /// None: the flow is quiet.
    None,
    /// A record was cut, and no packet has begun another; then each.
    CutThenEach,
    /// The same; then none.
    CutThenNone,
}

impl<U> Flow<U> {
    /// The user needs no more packets of this flow.
    pub fn is_quiet(&self) -> bool {
        matches!(self.passes, Passes::None | Passes::CutThenNone)
    }

    /// Sets whether the user needs no more packets of this flow.
    pub fn set_quiet(&mut self, is_quiet: bool) {
        self.passes = match (self.is_cut(), is_quiet) {
            (false, false) => Passes::Each,
            (false, true) => Passes::None,
            (true, false) => Passes::CutThenEach,
            (true, true) => Passes::CutThenNone,
        };
    }

    /// A record was cut, and no packet has begun another.
    fn is_cut(&self) -> bool {
        matches!(self.passes, Passes::CutThenEach | Passes::CutThenNone)
    }

    /// Its 5-tuple and network. Its parts are fields of the flow, so that both fit the first line.
    #[inline]
    pub fn key(&self) -> FlowKey {
        let Flow { low, high, scope, low_port, high_port, protocol, .. } = *self;
        FlowKey { low, high, low_port, high_port, protocol, scope }
    }

    /// The initiator's address and port.
    pub fn source(&self) -> (Addr, u16) {
        if self.source_is_low { (self.low, self.low_port) } else { (self.high, self.high_port) }
    }

    /// The responder's address and port.
    pub fn destination(&self) -> (Addr, u16) {
        if self.source_is_low { (self.high, self.high_port) } else { (self.low, self.low_port) }
    }

    /// Counts of the initiator.
    pub fn sent_by_source(&self) -> &Sent {
        &self.sent[usize::from(self.source_is_low)]
    }

    /// Counts of the responder.
    pub fn sent_by_destination(&self) -> &Sent {
        &self.sent[usize::from(!self.source_is_low)]
    }

    /// Both ends have sent; or it is no TCP, where that is not asked.
    pub fn has_both_ends(&self) -> bool {
        self.protocol != protocol::TCP || self.sent.iter().all(|sent| sent.packets > 0)
    }

    /// The state with Zeek's meaning.
    pub fn conn_state(&self) -> ConnState {
        let (o, r) = (self.sent_by_source(), self.sent_by_destination());
        match self.protocol {
            protocol::TCP => tcp_state(o, r),
            protocol::ICMP | protocol::ICMP6 => ConnState::OTH,
            _ => match (o.packets > 0, r.packets > 0) {
                (true, true) => ConnState::SF,
                (true, false) => ConnState::S0,
                (false, true) => ConnState::SHR,
                (false, false) => ConnState::OTH,
            },
        }
    }

    /// Its place in its list is much earlier than its last packet.
    fn is_misplaced(&self) -> bool {
        self.last_ns.saturating_sub(self.stamp_ns) >= RESTAMP_NS
    }

    /// The idle time begins again at the first cut after the last packet.
    fn begin_idle_time(&mut self, cut_every_ns: i64) {
        self.last_ns = next_cut_ns(self.last_ns, cut_every_ns);
    }

    /// It is closed, or may be.
    fn is_closed_by(&self, rules: &FlowRules) -> bool {
        let has_closed = |sent: &Sent| sent.state == EndState::Closed;
        self.is_closed() || rules.is_part && self.sent.iter().any(has_closed)
    }

    fn is_closed(&self) -> bool {
        let [a, b] = [self.sent[0].state, self.sent[1].state];
        a == EndState::Reset
            || b == EndState::Reset
            || (a == EndState::Closed && b == EndState::Closed)
    }
}

/// How long flows of each list may be idle, and the rule for which end began.
#[derive(Clone, Copy, Debug)]
pub struct FlowRules {
    /// TCP, ns.
    pub tcp_ns: i64,
    /// Everything else, ns.
    pub other_ns: i64,
    /// Closed TCP, ns.
    pub linger_ns: i64,
    /// How long a flow may go on before a record of it is written, ns; exact to a second.
    pub active_ns: i64,
    /// Records are cut at multiples of this time, ns; 0: never.
    pub cut_every_ns: i64,
    /// Flows may have begun before the input, and its cuts are more than there are. A flow whose SYN is not in it, or
    /// whose one end has sent FIN, may be closed for those who saw its beginning, and counts as closed. No idle time
    /// begins again. So no flow ends later than for those.
    pub is_part: bool,
    /// The sender of a flow's first packet began it, whatever the packet. Wrong (rule 8).
    pub first_sender_began: bool,
}

impl FlowRules {
    fn idle_ns(&self, list: List) -> i64 {
        match list {
            List::Tcp => self.tcp_ns,
            List::Other => self.other_ns,
            List::Closed => self.linger_ns,
            List::Reduced | List::ReducedClosed | List::None => i64::MAX,
        }
    }
}

/// Why a flow ends, as the table sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Leave {
    Timeout,
    Reused,
    Evicted,
    InputEnd,
    /// The flow goes on, and a record of it is due: it was active for long, or records are cut.
    Active,
}

/// Calls of the table to its user.
pub trait FlowUser<U> {
    /// The number of an event's packet in the whole input.
    fn number(&self, event: &Event) -> u64;
    /// A flow begins with `event`.
    fn begin(&mut self, flow: &mut Flow<U>, event: &Event);
    /// Handles a packet of a flow that is not quiet, the first included, after it was counted.
    fn packet(&mut self, flow: &mut Flow<U>, event: &Event);
    /// Handles a packet with SYN, FIN or RST of a flow that is quiet.
    fn quiet_flag(&mut self, _flow: &mut Flow<U>, _event: &Event) {}
    /// Another record of a flow that goes on begins with `event`.
    fn resume(&mut self, _flow: &mut Flow<U>, _event: &Event) {}
    /// The flow ends soon; the user may prefetch its data.
    fn prefetch(&self, _flow: &Flow<U>) {}
    /// The flow ends, or is [`Leave::Active`]. `packet`: number of the packet in the batch that
    /// ended it.
    fn end(&mut self, flow: &mut Flow<U>, closed: bool, leave: Leave, packet: u32);
    /// The flow ends and had no packet since its last record.
    fn end_without_record(&mut self, _flow: &Flow<U>, _packet: u32) {}
}

#[cfg(test)]
mod tests;
