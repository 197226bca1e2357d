//! The packets of flows that `larder extract` takes.
//!
//! A flow whose first packet here is none of a client that connects may have begun in an input before, and there a head
//! that continues here. So more payload of it is taken than what is read here: as much as a reader may need to read
//! that head to its end ([`crate::own_name`]).

use larder_wire::note::Note;

use super::lane::{Lane, app_by_port};
use super::{FlowState, Purpose, Teaching};
use crate::flow::tcp_flag::{ACK, FIN, RST, SYN};
use crate::flow::{Event, Flow, Sent, protocol};
use crate::own_name::{DATAGRAMS_MAX, HEAD_BYTES_MAX, SEGMENTS_MAX, may_follow, may_state};

impl Lane<'_, '_> {
    /// Notes a packet of a flow that may state a name. Of one whose payload is not read, the headers count, and that
    /// it has a payload.
    #[cold]
    pub(super) fn extract(&mut self, event: &Event, is_read: bool) {
        // Fragments are taken whole anyway, by their own numbers.
        if !event.is_held {
            let head = event.payload_offset.saturating_add(event.payload_len.min(1));
            let end = if is_read { u32::MAX } else { head };
            self.output.teaching.push(Teaching { packet: event.packet, end });
        }
    }

    /// Takes the first packet of a flow. Fragments are taken anyway, and a reader may not know the flow by them.
    pub(super) fn extract_first(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        let is_tcp = flow.protocol == protocol::TCP;
        // A cut begins the idle time again, once.
        let idle_ns = 2_000_000_000 * i64::from(self.state.shared.options.udp_idle_s);
        let may_be_rest = match is_tcp {
            true => event.tcp_flags & (SYN | ACK) != SYN,
            false => event.time_ns < self.input.capture_start_ns.saturating_add(idle_ns),
        };
        if may_be_rest && !flow.is_quiet() {
            self.expect_head(flow);
        }
        if event.is_made {
            let open = Note::Open(flow.key(), event.time_ns);
            self.output.notes.push((event.packet.saturating_add(1), open));
        }
        self.extract(event, false);
    }

    /// Takes payload of both ends of a flow: a reader may need to read a head in it.
    fn expect_head(&mut self, flow: &mut Flow<FlowState>) {
        let spare = &mut self.state.spare;
        let known = flow.user.known.get_or_insert_with(|| spare.known());
        known.rest_bytes = [HEAD_BYTES_MAX; 2];
    }

    /// Takes a packet with SYN, FIN or RST of a flow that is not read any more.
    #[cold]
    pub(super) fn extract_flag(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        self.extract(event, false);
        if is_another_syn(flow, event) {
            self.begin_again(flow);
        }
    }

    /// Takes the first packet of a record of a flow that had one before.
    #[cold]
    pub(super) fn extract_rest(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        self.extract(event, false);
        flow.set_quiet(flow.is_quiet() && flow.protocol != protocol::TCP);
        if is_syn(flow, event) {
            self.begin_again(flow);
        }
    }

    /// A SYN that may open the ports again. Here the cuts, which begin sequence numbers again, hide whether it does; a
    /// reader without cuts knows, and reads the head of another flow then.
    fn begin_again(&mut self, flow: &mut Flow<FlowState>) {
        if app_by_port(flow).is_none() {
            self.expect_head(flow);
            flow.set_quiet(false);
        }
    }

    /// True while more of a flow is taken than what its statement needs: the state of a TCP connection depends on
    /// whether its other end has sent anything, and a flow that may have begun before the input may have begun a head.
    pub(super) fn is_extracted(&self, flow: &Flow<FlowState>) -> bool {
        let rest = flow.user.known.as_ref().is_some_and(|known| known.rest_bytes != [0; 2]);
        self.state.shared.purpose == Purpose::Extract && (rest || !flow.has_both_ends())
    }

    /// Takes what a reader may need of a packet. Returns whether the packet is also read here.
    #[cold]
    pub(super) fn extract_packet(
        &mut self,
        flow: &mut Flow<FlowState>,
        event: &Event,
        is_read: bool,
    ) -> bool {
        if is_another_syn(flow, event) {
            self.begin_again(flow);
        }
        let known = flow.user.known.as_deref_mut();
        let is_done =
            known.as_ref().is_some_and(|known| known.own.as_ref().is_some_and(|own| own.is_done()));
        let is_tcp = flow.protocol == protocol::TCP;
        let is_taken = event.payload_len > 0
            && known.is_some_and(|known| {
                let rest = &mut known.rest_bytes[usize::from(event.from_low)];
                let packets_max = if is_tcp { SEGMENTS_MAX } else { DATAGRAMS_MAX };
                let share = HEAD_BYTES_MAX / u32::from(packets_max);
                std::mem::replace(rest, rest.saturating_sub(share.max(event.payload_len))) > 0
            });
        let payload = self.input.payload(event).filter(|_| is_taken);
        let is_head = payload.is_some_and(|payload| is_tcp || may_state(payload));
        if let (Some(known), Some(payload)) = (&mut flow.user.known, payload)
            && !is_tcp
            && !may_follow(payload)
        {
            // A reader gives up.
            known.rest_bytes[usize::from(event.from_low)] = 0;
        }
        let is_first = sent_by_sender(flow, event).packets == 1;
        let is_state = is_tcp && (is_first || event.tcp_flags & (SYN | FIN | RST) != 0);
        // A bare acknowledgment changes nothing that a later packet's record depends on.
        let may_state = !is_done && event.payload_len > 0;
        if may_state || is_taken || is_state {
            self.extract(event, is_read && !is_done || is_head);
        }
        if is_done {
            flow.set_quiet(!self.is_extracted(flow));
        }
        !is_done
    }
}

/// True for a packet of a client that connects.
fn is_syn(flow: &Flow<FlowState>, event: &Event) -> bool {
    flow.protocol == protocol::TCP && event.tcp_flags & (SYN | ACK | RST) == SYN
}

/// True for such a packet that is not the one with which this end of the flow began, as far as this is known.
fn is_another_syn(flow: &Flow<FlowState>, event: &Event) -> bool {
    let first_seq = sent_by_sender(flow, event).first_payload_seq();
    is_syn(flow, event) && first_seq != Some(event.tcp_seq.wrapping_add(1))
}

/// The counts of the end that sent a packet.
fn sent_by_sender<'a>(flow: &'a Flow<FlowState>, event: &Event) -> &'a Sent {
    match event.from_low == flow.source_is_low {
        true => flow.sent_by_source(),
        false => flow.sent_by_destination(),
    }
}
