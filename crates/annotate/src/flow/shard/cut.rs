//! Records of flows that go on, and flows of which a reduced capture leaves out packets.
//!
//! ```text
//! record   begins with                          ends with
//! open     the flow's first packet; a resume    cut, active timeout, the flow's end
//! cut      its end while the flow goes on       the next packet (a resume); the flow's end, without a record
//! ```
//!
//! A cut leaves nothing in the table that depends on packets before it but what flows are open, their ends and
//! states, and the first cut after their last packets. A reduced capture has these, so the same records follow.
//!
//! Cost: a cut reads all flows and sorts them by key; without cuts, one comparison a packet.

use super::*;

/// Begins the next record of a flow that goes on.
#[cold]
#[inline(never)]
pub(super) fn resume<U>(flow: &mut Flow<U>, event: &Event, user: &mut impl FlowUser<U>) {
    flow.start_ns = event.time_ns;
    flow.last_ns = event.time_ns;
    flow.first_packet = user.number(event);
    flow.passes = if flow.is_quiet() { Passes::None } else { Passes::Each };
    user.resume(flow, event);
}

/// Ends the current record of a flow that goes on.
pub(super) fn end_record<U>(flow: &mut Flow<U>, packet: u32, user: &mut impl FlowUser<U>) {
    if !flow.is_cut() {
        user.end(flow, false, Leave::Active, packet);
        flow.history = History::EMPTY;
        flow.sent.iter_mut().for_each(Sent::renew);
        flow.passes = if flow.is_quiet() { Passes::CutThenNone } else { Passes::CutThenEach };
    }
}

impl<U: Default> Shard<U> {
    /// Handles a packet from `cut_ns` on before the cut, which belongs to the next record of its flow; or one of a
    /// reduced capture.
    #[cold]
    #[inline(never)]
    pub fn odd_packet(&mut self, cut_ns: i64, event: &Event, user: &mut impl FlowUser<U>) {
        let slot = self.find(&event.key, event.hash as u32);
        if let Some(note) = event.note {
            if let Some(slot) = slot {
                self.take_note(slot, note, event.time_ns);
            }
            return;
        }
        if let Some(slot) = slot
            && event.time_ns >= cut_ns
            && self.flow(slot).start_ns < cut_ns
            && !self.is_over(slot, event)
            // A held fragment is older: no new record begins with it.
            && !event.is_held
        {
            end_record(self.flow_mut(slot), event.packet, user);
        }
        self.packet_of_any(event, Guess::default(), user);
        if event.is_reduced
            // The packets of a flow of fragments are all there.
            && !event.is_made
            && let Some(slot) = self.find(&event.key, event.hash as u32)
        {
            self.move_to(slot, self.flow(slot).list.reduced());
        }
    }

    /// Takes a note of a reduced capture. Of a flow that is in no such capture, all packets are known without it.
    fn take_note(&mut self, slot: u32, note: FlowNote, time_ns: i64) {
        let flow = &mut self.flows[slot as usize];
        match note {
            FlowNote::Open => {
                let list = flow.list.reduced();
                self.move_to(slot, list);
            }
            FlowNote::Last if matches!(flow.list, List::Reduced | List::ReducedClosed) => {
                flow.last_ns = time_ns;
                if flow.is_cut() {
                    flow.begin_idle_time(self.rules.cut_every_ns);
                }
                let list = match flow.protocol {
                    _ if flow.list == List::ReducedClosed => List::Closed,
                    protocol::TCP => List::Tcp,
                    _ => List::Other,
                };
                self.move_to(slot, list);
            }
            FlowNote::Last => {}
        }
    }

    /// Ends the record of every flow that has packets before `cut_ns`: the next packet of a flow that goes on begins
    /// another. Flows that are closed or have been idle too long end. The idle time of the others begins again at the
    /// first cut after their last packet, and their order is that of their keys: what comes later does not depend on
    /// packets before the cut.
    pub fn cut(&mut self, cut_ns: i64, now_ns: i64, packet: u32, user: &mut impl FlowUser<U>) {
        self.clock_ns = self.clock_ns.max(now_ns);
        let FlowRules { cut_every_ns, is_part, .. } = self.rules;
        let mut open: Vec<(FlowKey, u32)> =
            self.open_flows().map(|(_, slot)| (self.key(slot), slot)).collect();
        open.sort_unstable_by_key(|&(key, _)| key);
        for (_, slot) in open {
            let list = self.flow(slot).list;
            let is_closed = matches!(list, List::Closed | List::ReducedClosed);
            if is_closed || self.is_idle(slot, now_ns) {
                self.remove(slot, Leave::Timeout, packet, user);
            } else {
                let flow = self.flow_mut(slot);
                if flow.start_ns < cut_ns && !flow.is_cut() {
                    end_record(flow, packet, user);
                    if list != List::Reduced && !is_part {
                        flow.begin_idle_time(cut_every_ns);
                    }
                }
                self.move_to(slot, list);
            }
        }
        for list in [List::Tcp, List::Other, List::Closed] {
            let head = self.flows.get(self.heads[list as usize] as usize);
            let due_ns = |flow: &Flow<U>| flow.stamp_ns.saturating_add(self.rules.idle_ns(list));
            self.due_ns[list as usize] = head.map_or(i64::MAX, due_ns);
        }
    }
}
