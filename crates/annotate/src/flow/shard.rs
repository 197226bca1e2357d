//! One shard of the flow table.

use larder_mem::{prefetch_lines, prefetch_read, prefetch_slice};

use super::event::{Event, FlowKey, FlowNote, source_is_low};
use super::tcp::{History, Sent, account};
use super::tcp_flag::{ACK, FIN, RST, SYN};
use super::{Flow, FlowRules, FlowUser, Leave, List, Passes, RESTAMP_NS, protocol};

mod cut;

use cut::{end_record, resume};

/// A flow's place in its list is at most this much later than the clock: a packet with a wrong time must not hold up
/// the flows behind it.
const AHEAD_NS: i64 = 60_000_000_000;
const NONE: u32 = u32::MAX;
const LISTS: usize = List::None as usize;
/// Flows that a new shard has memory for, so that few tables are ever copied: half a mebibyte,
/// which the system assigns only as it is used.
const FLOWS_AT_FIRST: usize = 1 << 11;
/// Cache lines of a flow whose user's part is small.
const LINES: usize = 4;

/// The probable slot of a flow. A wrong guess costs time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guess {
    slot: u32,
    /// The index has no entry at that place, so the packet is probably the first of its flow.
    pub is_new: bool,
}

/// Counts a packet in its flow, and passes it to the user unless the flow is quiet.
#[inline(always)]
fn take<U>(flow: &mut Flow<U>, event: &Event, user: &mut impl FlowUser<U>) {
    account(flow, event);
    if flow.passes != Passes::None {
        if flow.is_cut() {
            resume(flow, event, user);
        }
        if !flow.is_quiet() {
            user.packet(flow, event);
        }
    }
}

/// The same, not inlined: for rare packets.
#[inline(never)]
fn take_apart<U>(flow: &mut Flow<U>, event: &Event, user: &mut impl FlowUser<U>) {
    take(flow, event, user);
}

/// One shard of the flow table.
pub struct Shard<U> {
    /// `slot + 1` in the high half, low 32 bits of the hash in the low half; 0 = empty.
    index: Vec<u64>,
    /// Live flows, and free slots, whose flows are in no list.
    flows: Vec<Flow<U>>,
    free: Vec<u32>,
    heads: [u32; LISTS],
    tails: [u32; LISTS],
    /// Each list's first flow is not due before this time, ns; the greatest if the list is empty. Saves reading 192
    /// flows a tick.
    due_ns: [i64; LISTS],
    /// The last second of the packets' clock, ns.
    clock_ns: i64,
    live: usize,
    limit: usize,
    rules: FlowRules,
    /// Within this time, ns, no flow becomes idle too long or moves in its list.
    moment_ns: u64,
}

impl<U: Default> Shard<U> {
    /// An empty shard for at most `limit` flows (at least one).
    pub fn new(limit: usize, rules: FlowRules) -> Shard<U> {
        Shard {
            index: vec![0; 64],
            flows: Vec::with_capacity(limit.clamp(1, FLOWS_AT_FIRST)),
            free: Vec::new(),
            heads: [NONE; LISTS],
            tails: [NONE; LISTS],
            due_ns: [i64::MAX; LISTS],
            clock_ns: i64::MIN,
            live: 0,
            limit: limit.max(1),
            rules,
            moment_ns: [rules.tcp_ns, rules.other_ns, rules.linger_ns]
                .into_iter()
                .fold(RESTAMP_NS, i64::min)
                .max(0) as u64,
        }
    }

    /// Prefetches the index line of `hash`.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        prefetch_slice(&self.index, hash as u32 as usize & (self.index.len() - 1));
    }

    /// Prefetches the flow of `hash`, whose index line should have arrived. Returns the probable
    /// slot, for [`Shard::packet`].
    #[inline]
    pub fn prefetch_flow(&self, hash: u64, from_low: bool) -> Guess {
        let mask = self.index.len() - 1;
        let entry = self.index[hash as u32 as usize & mask];
        // Slot 0 of an empty or foreign place is as good a guess as any: its key differs.
        let slot = ((entry >> 32) as u32).saturating_sub(1);
        if let Some(flow) = self.flows.get(slot as usize) {
            // Two lines: the first, and that of the end that sent the packet.
            prefetch_read(flow);
            prefetch_read(&flow.sent[usize::from(from_low)]);
        }
        Guess { slot, is_new: entry == 0 }
    }

    /// The slot of a key. The index leads to the one live flow with that key (invariant 1), so a
    /// right guess saves the search.
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

    /// Handles one packet. Inlined into the loop over packets: a call would take a tenth longer.
    #[inline(always)]
    pub fn packet(&mut self, event: &Event, guess: Guess, user: &mut impl FlowUser<U>) {
        // Nearly all packets belong to a flow that had one a moment ago, and neither open nor close
        // it: the flow keeps its place in its list.
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
                // A held fragment is older: no new record begins with it.
                if since_ns > self.rules.active_ns && !event.is_held {
                    end_record(self.flow_mut(slot), event.packet, user);
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
        let flow = &mut self.flows[slot as usize];
        let list = flow.list;
        take_apart(flow, event, user);
        if flow.is_quiet() && event.is_tcp() && event.tcp_flags & (SYN | FIN | RST) != 0 {
            user.quiet_flag(flow, event);
        }
        if flow.is_closed_by(&self.rules) && matches!(list, List::Tcp | List::Other) {
            self.move_to(slot, List::Closed);
        } else if flow.is_closed() && list == List::Reduced {
            self.move_to(slot, List::ReducedClosed);
        } else if flow.is_misplaced() {
            self.move_to(slot, list);
        }
    }

    /// Moves a flow to the end of a list.
    fn move_to(&mut self, slot: u32, list: List) {
        self.unlink(slot);
        self.link(slot, list);
    }

    /// Moves all times by a step of the clock, so that no flow lasts longer or shorter because of
    /// it.
    pub fn shift_times(&mut self, step_ns: i64) {
        self.clock_ns = self.clock_ns.saturating_add(step_ns);
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

    /// True when `event` cannot belong to the flow in `slot`: idle too long, or a SYN that opens
    /// the 5-tuple again.
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
            passes: Passes::Each,
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
        let list = match flow.midstream && self.rules.is_part {
            true => List::Closed,
            false => flow.list,
        };
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
        // Closes the hole: every later entry of the run moves back if its home slot allows it.
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
        let idle_ns = self.rules.idle_ns(list);
        let latest_ns = self.clock_ns.saturating_add(AHEAD_NS);
        let flow = self.flow_mut(slot);
        flow.list = list;
        flow.stamp_ns = flow.last_ns.min(latest_ns);
        flow.prev = tail;
        flow.next = NONE;
        let due_ns = flow.stamp_ns.saturating_add(idle_ns);
        if tail == NONE {
            self.heads[list as usize] = slot;
            self.due_ns[list as usize] = due_ns;
        } else {
            self.flow_mut(tail).next = slot;
        }
        self.tails[list as usize] = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let (list, prev, next, due_ns) = {
            let flow = self.flow(slot);
            // The next flow moved in its list no earlier (invariant 2).
            let due_ns = flow.stamp_ns.saturating_add(self.rules.idle_ns(flow.list));
            (flow.list as usize, flow.prev, flow.next, due_ns)
        };
        match prev {
            NONE => {
                self.heads[list] = next;
                self.due_ns[list] = if next == NONE { i64::MAX } else { due_ns };
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
        // In place: a flow is large, and moving it costs.
        if flow.is_cut() {
            user.end_without_record(flow, packet);
        } else {
            user.end(flow, flow.list.reduced() == List::ReducedClosed, leave, packet);
        }
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
        self.clock_ns = self.clock_ns.max(now_ns);
        for list in [List::Tcp, List::Other, List::Closed] {
            if self.is_due(list, now_ns) {
                self.expire_list(list, now_ns, packet, user);
            }
        }
    }

    fn expire_list(&mut self, list: List, now_ns: i64, packet: u32, user: &mut impl FlowUser<U>) {
        let idle_ns = self.rules.idle_ns(list);
        let (mut at, mut next_due_ns) = (self.heads[list as usize], i64::MAX);
        while let Some(flow) = self.flows.get(at as usize) {
            let (slot, is_misplaced) = (at, flow.is_misplaced());
            let placed_until_ns = flow.stamp_ns.saturating_add(idle_ns);
            let due_ns = flow.last_ns.saturating_add(idle_ns);
            if placed_until_ns >= now_ns {
                // The flows behind it are due no earlier (invariant 2).
                next_due_ns = next_due_ns.min(placed_until_ns);
                break;
            }
            at = flow.next;
            if due_ns < now_ns {
                self.remove(slot, Leave::Timeout, packet, user);
            } else if is_misplaced {
                // Of a time that the clock has not reached: it waits at the end of its list.
                self.move_to(slot, list);
                next_due_ns = next_due_ns.min(self.flow(slot).stamp_ns.saturating_add(idle_ns));
            } else {
                // Its place may be less than a second too early. It stays there: at the end of the list it would be
                // behind flows that had packets much later (invariant 2).
                next_due_ns = next_due_ns.min(due_ns);
            }
        }
        self.due_ns[list as usize] = next_due_ns;
    }

    /// True if the first flow of a list may have been idle too long at `now_ns`.
    #[inline]
    fn is_due(&self, list: List, now_ns: i64) -> bool {
        self.due_ns[list as usize] < now_ns
    }

    /// Moves the clock to `now_ns`. True if a flow may have been idle too long then.
    #[inline]
    pub fn tick(&mut self, now_ns: i64) -> bool {
        self.clock_ns = now_ns;
        let [tcp, other, closed, ..] = self.due_ns;
        tcp.min(other).min(closed) < now_ns
    }

    /// Prefetches the first flows that [`Shard::expire`] will read.
    #[inline]
    pub fn prefetch_due(&self, now_ns: i64) {
        for list in [List::Tcp, List::Other, List::Closed] {
            if self.is_due(list, now_ns) {
                self.prefetch_slot(self.heads[list as usize]);
            }
        }
    }

    /// After those flows have arrived, prefetches the data for their end, and the next flows.
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
        // Two lines of each flow, in the order of memory but too far apart for the CPU's own
        // prefetching.
        const AHEAD: u32 = 8;
        let flows = self.flows.iter().zip(0..);
        flows.filter_map(|(flow, slot): (_, u32)| {
            self.prefetch_slot(slot.saturating_add(AHEAD));
            (flow.list != List::None).then_some((flow.first_packet, slot))
        })
    }

    /// Prefetches a flow that will end soon.
    #[inline]
    pub fn prefetch_slot(&self, slot: u32) {
        prefetch_lines(&self.flows, slot as usize, LINES);
    }

    /// Lets the user prefetch its data of that flow, which should have arrived.
    #[inline]
    pub fn prefetch_user(&self, slot: u32, user: &impl FlowUser<U>) {
        if let Some(flow) = self.flows.get(slot as usize) {
            user.prefetch(flow);
            self.prefetch_index(u64::from(flow.hash));
        }
    }

    /// Ends a live flow at the end of the input.
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
        for list in 0..LISTS {
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
            if list < List::Reduced as usize {
                assert_eq!(self.due_ns[list] == i64::MAX, prev == NONE);
            }
        }
        assert_eq!(linked, self.live, "invariant 1");
    }
}
