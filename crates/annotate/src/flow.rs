//! Flows: what belongs together, who began it, and when it ended.
//!
//! A flow is a bidirectional 5-tuple in one network (VLAN, VNI: [`larder_wire::scope`]), inside any tunnel. Its life:
//!
//! ```text
//! phase      begins with                                ends with
//! open       its first packet                           FIN from both ends, RST; idle; eviction
//!            (active too long: a record is handed out, and its books begin anew)
//! closed     both FINs or a RST                         linger (5 s) without a packet, a new SYN
//! ended      one of the above, or the end of input      its record is handed out, its slot freed
//! ```
//!
//! The table is split into [`SHARDS`] shards by the hash of the 5-tuple, a fixed number, so that
//! what happens in a shard never depends on how many workers there are. A shard has its own limit;
//! when it is full, the flow that has been idle longest ends (`evicted`). All times are packet
//! times: a shard's clock is the time of the latest packet of the input so far, moved at batch
//! edges, and never goes back.
//!
//! Invariants (checked by [`Shard::validate`])
//! 1. Every live flow is in the index exactly once and in exactly one of the three lists.
//! 2. A list is ordered by `stamp_ns` where packets come in the order of their times, and
//!    `last_ns - stamp_ns` of a flow is below `RESTAMP_NS` when its packet was handled. So a flow ends at
//!    most a second late, and eviction is exact to a second, without a list move per packet.
//! 3. `live <= limit`.
//!
//! Cost: one index line and two of a flow's four lines a packet, all prefetched ahead.

mod event;
mod tcp;

use larder::{prefetch_lines, prefetch_read, prefetch_slice};
use larder_wire::Addr;
use larder_wire::packet::Tunnel;
use larder_wire::scope::Scope;

pub use event::{Event, FlowKey, protocol, shard_of, tcp_flag};
pub use tcp::{History, Sent};

use crate::record::{App, ConnState};
use event::source_is_low;
use tcp::{EndState, account, tcp_state};
use tcp_flag::{ACK, FIN, RST, SYN};

/// Shards of the flow table: fixed, so that results do not depend on the number of workers.
pub const SHARDS: usize = 64;
/// A flow is moved to its list's end when its place is older than this.
const RESTAMP_NS: i64 = 1_000_000_000;
const NONE: u32 = u32::MAX;
/// Flows of a shard that have room from the beginning, so that few tables are ever moved: half a
/// mebibyte, which the system gives only as it is used.
const FLOWS_AT_FIRST: usize = 1 << 11;
/// Lines of a flow whose user's part is small.
const LINES: usize = 4;

/// The three lists of a shard, and where a flow is that has ended: in none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum List {
    Tcp = 0,
    Other = 1,
    Closed = 2,
    None = 3,
}

/// A live flow. `U` is what the user of the table keeps beside it (names, heads).
///
/// The order of the fields is that of memory. A packet touches the first line and that of its
/// sender; the fourth is for a flow's begin and end.
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
    /// The user wants to see no more packets of this flow.
    pub is_quiet: bool,
    /// Time of the last packet, ns.
    pub last_ns: i64,
    stamp_ns: i64,
    /// What each end sent: `[high, low]`, so that `from_low as usize` indexes it.
    sent: [Sent; 2],
    /// Zeek's letters.
    pub history: History,
    /// The user's: what the flow states itself is watched until its responder answers.
    pub awaits_reply: bool,
    prev: u32,
    next: u32,
    /// The low half of the key's hash, as the index has it.
    hash: u32,
    /// Innermost tunnel of the first packet.
    pub tunnel: Option<Tunnel>,
    /// Application protocol, as far as known.
    pub app: Option<App>,
    /// The first packet was TCP, and no SYN.
    pub midstream: bool,
    /// The user's: its names are those of a flow that the key's `low` end began.
    pub looked_up_from_low: bool,
    /// Time of the first packet, ns.
    pub start_ns: i64,
    /// Number of the first packet in the whole input.
    pub first_packet: u64,
    /// The user's part.
    pub user: U,
}

impl<U> Flow<U> {
    /// Its 5-tuple and network. Its parts lie among those of the flow, so that both fit the first line.
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

    /// What the initiator sent.
    pub fn sent_by_source(&self) -> &Sent {
        &self.sent[usize::from(self.source_is_low)]
    }

    /// What the responder sent.
    pub fn sent_by_destination(&self) -> &Sent {
        &self.sent[usize::from(!self.source_is_low)]
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

    fn is_closed(&self) -> bool {
        let [a, b] = [self.sent[0].state, self.sent[1].state];
        a == EndState::Reset
            || b == EndState::Reset
            || (a == EndState::Closed && b == EndState::Closed)
    }
}

/// How long flows of each list may be idle, and who began them.
#[derive(Clone, Copy, Debug)]
pub struct FlowRules {
    /// TCP, ns.
    pub tcp_ns: i64,
    /// Everything else, ns.
    pub other_ns: i64,
    /// Closed TCP, ns.
    pub linger_ns: i64,
    /// How long a flow may go on before a record of it is handed out, ns; exact to a second.
    pub active_ns: i64,
    /// The sender of a flow's first packet began it, whatever the packet says. Wrong (rule 8).
    pub first_sender_began: bool,
}

impl FlowRules {
    fn idle_ns(&self, list: List) -> i64 {
        match list {
            List::Tcp => self.tcp_ns,
            List::Other => self.other_ns,
            List::Closed => self.linger_ns,
            List::None => i64::MAX,
        }
    }
}

/// Why a flow left the table, as the table sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Leave {
    Timeout,
    Reused,
    Evicted,
    InputEnd,
    /// It did not: it is active, and a record of it is due.
    Active,
}

/// What the table asks its user.
pub trait FlowUser<U> {
    /// The number of an event's packet in the whole input.
    fn number(&self, event: &Event) -> u64;
    /// A flow begins with `event`.
    fn begin(&mut self, flow: &mut Flow<U>, event: &Event);
    /// A packet of a flow that is not quiet, the first included, after the books are up to date.
    fn packet(&mut self, flow: &mut Flow<U>, event: &Event);
    /// The flow will soon leave the table; what it leads to may come near.
    fn prefetch(&self, _flow: &Flow<U>) {}
    /// The flow left the table, or is [`Leave::Active`]. `packet`: number of the packet in the batch that ended it.
    fn end(&mut self, flow: &mut Flow<U>, closed: bool, leave: Leave, packet: u32);
}

/// Where a flow most likely is. Wrong, it costs time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guess {
    slot: u32,
    /// Nothing was found where the flow's entry would be: its first packet most likely.
    pub is_new: bool,
}

/// Enters a packet in the books of its flow, and shows it to the user where it wants to see it.
#[inline(always)]
fn take<U>(flow: &mut Flow<U>, event: &Event, user: &mut impl FlowUser<U>) {
    account(flow, event);
    if !flow.is_quiet {
        user.packet(flow, event);
    }
}

/// The same where it is not in the way of most packets.
#[inline(never)]
fn take_apart<U>(flow: &mut Flow<U>, event: &Event, user: &mut impl FlowUser<U>) {
    take(flow, event, user);
}

/// One shard of the flow table.
pub struct Shard<U> {
    /// `slot + 1` in the high half, low 32 bits of the hash in the low half; 0 = empty.
    index: Vec<u64>,
    /// Live flows, and free places, whose flows are in no list.
    flows: Vec<Flow<U>>,
    free: Vec<u32>,
    heads: [u32; 3],
    tails: [u32; 3],
    /// Each list's first flow is not to be ended before this time, ns; the least time where that is
    /// not known, the greatest where there is none. Spares a look at 192 flows a batch.
    due_ns: [i64; 3],
    live: usize,
    limit: usize,
    rules: FlowRules,
    /// After so long, ns, no flow is idle too long nor wants another place in its list.
    moment_ns: u64,
}

impl<U: Default> Shard<U> {
    /// An empty shard for at most `limit` flows (at least one).
    pub fn new(limit: usize, rules: FlowRules) -> Shard<U> {
        Shard {
            index: vec![0; 64],
            flows: Vec::with_capacity(limit.clamp(1, FLOWS_AT_FIRST)),
            free: Vec::new(),
            heads: [NONE; 3],
            tails: [NONE; 3],
            due_ns: [i64::MAX; 3],
            live: 0,
            limit: limit.max(1),
            rules,
            moment_ns: [rules.tcp_ns, rules.other_ns, rules.linger_ns]
                .into_iter()
                .fold(RESTAMP_NS, i64::min)
                .max(0) as u64,
        }
    }

    /// Asks for the index line of `hash` to be brought near.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        prefetch_slice(&self.index, hash as u32 as usize & (self.index.len() - 1));
    }

    /// Asks for the flow of `hash` to be brought near; its index line should be there by now. The
    /// answer is where it most likely is, for [`Shard::packet`].
    #[inline]
    pub fn prefetch_flow(&self, hash: u64, from_low: bool) -> Guess {
        let mask = self.index.len() - 1;
        let entry = self.index[hash as u32 as usize & mask];
        // Slot 0 of an empty or foreign place is as good a guess as any: its key will differ.
        let slot = ((entry >> 32) as u32).saturating_sub(1);
        if let Some(flow) = self.flows.get(slot as usize) {
            // Two lines: the first, and that of the end that sent the packet.
            prefetch_read(flow);
            prefetch_read(&flow.sent[usize::from(from_low)]);
        }
        Guess { slot, is_new: entry == 0 }
    }

    /// The slot of a key. A live flow with that key is the one that the index would lead to
    /// (invariant 1), so that a right guess saves the way there.
    #[inline]
    fn find_guessed(&self, key: &FlowKey, hash: u32, guess: Guess) -> Option<u32> {
        match self.flows.get(guess.slot as usize) {
            Some(flow) if flow.key() == *key && flow.list != List::None => Some(guess.slot),
            _ => self.find(key, hash),
        }
    }

    fn find(&self, key: &FlowKey, hash: u32) -> Option<u32> {
        let mask = self.index.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let entry = self.index[at];
            if entry >> 32 == 0 {
                return None;
            }
            if entry as u32 == hash {
                let slot = (entry >> 32) as u32 - 1;
                if self.flow(slot).key() == *key {
                    return Some(slot);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// The live flow of a key.
    pub fn get(&self, key: &FlowKey, hash: u64) -> Option<&Flow<U>> {
        self.find(key, hash as u32).map(|slot| self.flow(slot))
    }

    fn flow(&self, slot: u32) -> &Flow<U> {
        &self.flows[slot as usize]
    }

    fn flow_mut(&mut self, slot: u32) -> &mut Flow<U> {
        &mut self.flows[slot as usize]
    }

    /// Takes one packet. Part of the loop over packets, whatever the compiler counts: called, it would
    /// take a tenth longer.
    #[inline(always)]
    pub fn packet(&mut self, event: &Event, guess: Guess, user: &mut impl FlowUser<U>) {
        // What nearly all packets are: one more of a flow that had one a moment ago, and none that
        // opens or closes it: the flow keeps its place then.
        if let Some(flow) = self.flows.get_mut(guess.slot as usize)
            && flow.key() == event.key
            && flow.list != List::None
            && (event.time_ns.wrapping_sub(flow.stamp_ns) as u64) < self.moment_ns
            && event.tcp_flags & (SYN | FIN | RST) == 0
        {
            take(flow, event, user);
        } else {
            self.packet_of_any(event, guess, user);
        }
    }

    #[inline(never)]
    fn packet_of_any(&mut self, event: &Event, guess: Guess, user: &mut impl FlowUser<U>) {
        let slot = match self.find_guessed(&event.key, event.hash as u32, guess) {
            Some(slot) if !self.is_over(slot, event) => {
                let since_ns = event.time_ns.saturating_sub(self.flow(slot).start_ns);
                // What was held is of the time before: no rest begins with it.
                if since_ns > self.rules.active_ns && !event.is_held {
                    self.renew(slot, event, user);
                }
                slot
            }
            Some(slot) => {
                let leave =
                    if self.is_idle(slot, event.time_ns) { Leave::Timeout } else { Leave::Reused };
                self.remove(slot, leave, event.packet, user);
                self.open(event, user)
            }
            None => self.open(event, user),
        };
        let flow = self.flow_mut(slot);
        let list = flow.list;
        take_apart(flow, event, user);
        if list != List::Closed && flow.is_closed() {
            self.unlink(slot);
            self.link(slot, List::Closed);
        } else if flow.last_ns - flow.stamp_ns >= RESTAMP_NS {
            self.unlink(slot);
            self.link(slot, list);
        }
    }

    /// Hands out a record of a flow that goes on; `event` is the first packet of the rest.
    #[cold]
    fn renew(&mut self, slot: u32, event: &Event, user: &mut impl FlowUser<U>) {
        let flow = &mut self.flows[slot as usize];
        user.end(flow, false, Leave::Active, event.packet);
        flow.start_ns = event.time_ns;
        flow.first_packet = user.number(event);
        flow.history = History::EMPTY;
        flow.sent.iter_mut().for_each(Sent::renew);
    }

    /// The clock was set: what is held of times is told in the new one, so that no flow lives longer or shorter for it.
    pub fn shift_times(&mut self, step_ns: i64) {
        for flow in &mut self.flows {
            for time_ns in [&mut flow.start_ns, &mut flow.last_ns, &mut flow.stamp_ns] {
                *time_ns = time_ns.saturating_add(step_ns);
            }
        }
        for (due_ns, head) in self.due_ns.iter_mut().zip(self.heads) {
            *due_ns = if head == NONE { i64::MAX } else { i64::MIN };
        }
    }

    fn is_idle(&self, slot: u32, now_ns: i64) -> bool {
        let flow = self.flow(slot);
        now_ns.saturating_sub(flow.last_ns) > self.rules.idle_ns(flow.list)
    }

    /// True when `event` cannot belong to the flow in `slot` any more: idle too long, or a SYN
    /// that opens the 5-tuple anew.
    fn is_over(&self, slot: u32, event: &Event) -> bool {
        if self.is_idle(slot, event.time_ns) {
            return true;
        }
        if !event.is_tcp() || event.tcp_flags & (SYN | ACK | RST) != SYN {
            return false;
        }
        let flow = self.flow(slot);
        let sent = &flow.sent[usize::from(event.from_low)];
        flow.is_closed() || (sent.syn && sent.seq_start != event.tcp_seq)
    }

    #[inline(never)]
    fn open(&mut self, event: &Event, user: &mut impl FlowUser<U>) -> u32 {
        if self.live >= self.limit {
            self.evict(event.packet, user);
        }
        if (self.live + 1) * 2 > self.index.len() {
            self.grow();
        }
        let is_tcp = event.is_tcp();
        let FlowKey { low, high, low_port, high_port, protocol, scope } = event.key;
        let mut flow = Flow {
            low,
            high,
            scope,
            low_port,
            high_port,
            protocol,
            hash: event.hash as u32,
            looked_up_from_low: false,
            awaits_reply: false,
            is_quiet: false,
            last_ns: event.time_ns,
            stamp_ns: event.time_ns,
            sent: [Sent::NOTHING; 2],
            source_is_low: match self.rules.first_sender_began {
                true => event.from_low,
                false => source_is_low(event),
            },
            list: if is_tcp { List::Tcp } else { List::Other },
            prev: NONE,
            next: NONE,
            start_ns: event.time_ns,
            first_packet: user.number(event),
            tunnel: event.tunnel,
            app: None,
            history: History::EMPTY,
            midstream: is_tcp && event.tcp_flags & SYN == 0,
            user: U::default(),
        };
        if is_tcp && flow.source_is_low != event.from_low {
            flow.history.push(b'^');
        }
        let list = flow.list;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.flows[slot as usize] = flow;
                slot
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        user.begin(self.flow_mut(slot), event);
        self.index_insert(event.hash as u32, slot);
        self.link(slot, list);
        self.live += 1;
        slot
    }

    fn index_insert(&mut self, hash: u32, slot: u32) {
        let mask = self.index.len() - 1;
        let mut at = hash as usize & mask;
        while self.index[at] >> 32 != 0 {
            at = (at + 1) & mask;
        }
        self.index[at] = u64::from(slot + 1) << 32 | u64::from(hash);
    }

    fn index_remove(&mut self, hash: u32, slot: u32) {
        let mask = self.index.len() - 1;
        let wanted = u64::from(slot + 1) << 32 | u64::from(hash);
        let mut hole = hash as usize & mask;
        while self.index[hole] != wanted {
            hole = (hole + 1) & mask;
        }
        // Close the hole: every later entry of the run moves back if its home allows.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.index[at];
            if entry >> 32 == 0 {
                break;
            }
            let home = entry as u32 as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.index[hole] = entry;
                hole = at;
            }
        }
        self.index[hole] = 0;
    }

    fn grow(&mut self) {
        let entries: Vec<u64> = self.index.iter().copied().filter(|e| e >> 32 != 0).collect();
        let len = self.index.len() * 2;
        self.index.clear();
        self.index.resize(len, 0);
        for entry in entries {
            self.index_insert(entry as u32, (entry >> 32) as u32 - 1);
        }
    }

    fn link(&mut self, slot: u32, list: List) {
        let tail = self.tails[list as usize];
        let flow = self.flow_mut(slot);
        flow.list = list;
        flow.stamp_ns = flow.last_ns;
        flow.prev = tail;
        flow.next = NONE;
        if tail == NONE {
            self.heads[list as usize] = slot;
            self.due_ns[list as usize] = i64::MIN;
        } else {
            self.flow_mut(tail).next = slot;
        }
        self.tails[list as usize] = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let (list, prev, next) = {
            let flow = self.flow(slot);
            (flow.list as usize, flow.prev, flow.next)
        };
        match prev {
            NONE => {
                self.heads[list] = next;
                self.due_ns[list] = if next == NONE { i64::MAX } else { i64::MIN };
            }
            prev => self.flow_mut(prev).next = next,
        }
        match next {
            NONE => self.tails[list] = prev,
            next => self.flow_mut(next).prev = prev,
        }
    }

    fn remove(&mut self, slot: u32, leave: Leave, packet: u32, user: &mut impl FlowUser<U>) {
        self.unlink(slot);
        let flow = &mut self.flows[slot as usize];
        // Where it lies: a flow is large, and each move of it is felt.
        user.end(flow, flow.list == List::Closed, leave, packet);
        let hash = flow.hash;
        flow.list = List::None;
        flow.user = U::default();
        self.index_remove(hash, slot);
        self.free.push(slot);
        self.live -= 1;
    }

    /// Ends the flow that has been idle longest.
    fn evict(&mut self, packet: u32, user: &mut impl FlowUser<U>) {
        let longest_idle =
            self.heads.iter().copied().filter(|&head| head != NONE).min_by_key(|&head| {
                let flow = self.flow(head);
                (flow.last_ns, flow.first_packet)
            });
        if let Some(slot) = longest_idle {
            self.remove(slot, Leave::Evicted, packet, user);
        }
    }

    /// Ends every flow that has been idle too long at `now_ns`.
    #[inline(never)]
    pub fn expire(&mut self, now_ns: i64, packet: u32, user: &mut impl FlowUser<U>) {
        for list in [List::Tcp, List::Other, List::Closed] {
            let timeout_ns = self.rules.idle_ns(list);
            while self.is_due(list, now_ns) {
                let head = self.heads[list as usize];
                let flow = self.flow(head);
                let due_ns = flow.last_ns.saturating_add(timeout_ns);
                if now_ns <= due_ns {
                    // Its place may be less than a second too early. It stays there: at the end of the
                    // list it would be behind flows that had packets much later (invariant 2).
                    self.due_ns[list as usize] = due_ns;
                    break;
                }
                self.remove(head, Leave::Timeout, packet, user);
            }
        }
    }

    /// True when the first flow of a list may have been idle too long at `now_ns`.
    #[inline]
    fn is_due(&self, list: List, now_ns: i64) -> bool {
        self.due_ns[list as usize] < now_ns
    }

    /// Asks for the flows to be brought near that [`Shard::expire`] will look at first.
    #[inline]
    pub fn prefetch_due(&self, now_ns: i64) {
        for list in [List::Tcp, List::Other, List::Closed] {
            if self.is_due(list, now_ns) {
                self.prefetch_slot(self.heads[list as usize]);
            }
        }
    }

    /// With those flows here, asks for what their end leads to, and for the flows behind them.
    #[inline]
    pub fn prefetch_due_users(&self, now_ns: i64, user: &impl FlowUser<U>) {
        for list in [List::Tcp, List::Other, List::Closed] {
            if self.is_due(list, now_ns)
                && let Some(flow) = self.flows.get(self.heads[list as usize] as usize)
                && now_ns.saturating_sub(flow.stamp_ns) > self.rules.idle_ns(list)
            {
                user.prefetch(flow);
                self.prefetch_index(u64::from(flow.hash));
                self.prefetch_slot(flow.next);
            }
        }
    }

    /// The key of the flow in a slot.
    pub fn key(&self, slot: u32) -> FlowKey {
        self.flow(slot).key()
    }

    /// Every live flow: its first packet, and its slot for [`Shard::finish`].
    pub fn open_flows(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        // Two lines of each flow, in the order of memory but too far apart for the CPU to foresee.
        const AHEAD: u32 = 8;
        let flows = self.flows.iter().zip(0..);
        flows.filter_map(|(flow, slot): (_, u32)| {
            self.prefetch_slot(slot.saturating_add(AHEAD));
            (flow.list != List::None).then_some((flow.first_packet, slot))
        })
    }

    /// Asks for a flow to be brought near that will soon be ended.
    #[inline]
    pub fn prefetch_slot(&self, slot: u32) {
        prefetch_lines(&self.flows, slot as usize, LINES);
    }

    /// Asks the user to bring its part of that flow near, which should be there itself by now.
    #[inline]
    pub fn prefetch_user(&self, slot: u32, user: &impl FlowUser<U>) {
        if let Some(flow) = self.flows.get(slot as usize) {
            user.prefetch(flow);
            self.prefetch_index(u64::from(flow.hash));
        }
    }

    /// Ends a live flow; the input is over.
    pub fn finish(&mut self, slot: u32, user: &mut impl FlowUser<U>) {
        self.remove(slot, Leave::InputEnd, u32::MAX, user);
    }

    /// Live flows.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Walks everything and panics where an invariant does not hold. For tests.
    pub fn validate(&self) {
        assert!(self.live <= self.limit, "invariant 3");
        assert_eq!(self.index.iter().filter(|&&entry| entry >> 32 != 0).count(), self.live);
        let mut linked = 0;
        for list in 0..3 {
            let (mut at, mut prev) = (self.heads[list], NONE);
            while at != NONE {
                let flow = self.flow(at);
                assert_eq!(flow.prev, prev);
                assert_eq!(flow.list as usize, list);
                assert_eq!(self.find(&flow.key(), flow.hash), Some(at), "invariant 1");
                (prev, at) = (at, flow.next);
                linked += 1;
            }
            assert_eq!(self.tails[list], prev);
            assert_eq!(self.due_ns[list] == i64::MAX, prev == NONE);
        }
        assert_eq!(linked, self.live, "invariant 1");
    }
}

#[cfg(test)]
mod tests;
