//! Fragments: their events go to the flows of their datagrams, and whole datagrams are read like others.

use larder_wire::fragment::{self, Outcome, Reject};
use larder_wire::packet::{self, Packet};

use super::{NameLearner, Place, payload_of};
use crate::decode::{self, Decoded, Rare, count};
use crate::flow::{Event, protocol};
use crate::names::Ends;
use crate::own_name;

impl NameLearner {
    /// Handles a fragment: its event goes to its flow as soon as the flow is known, and a datagram that
    /// is now whole is read like any other.
    pub(super) fn fragment(
        &mut self,
        rare: &Rare,
        frame: &[u8],
        place: Place,
        injected: &mut Injected,
    ) {
        let Some(fragment) = rare.packet.fragment else { return };
        let Place { number, file, offset } = place;
        let injected_before = injected.events.len();
        let start = fragment.data_offset as usize;
        let data = frame.get(start..start + fragment.data_len as usize).unwrap_or_default();
        let push = self.fragments.push(&rare.packet, data, number, rare.time_ns);
        match push.ports {
            Some(ports) => {
                for held in &push.released {
                    self.give_held(&rare.packet, held, ports, rare.number, injected);
                }
                injected.events.push(self.event_of(&rare.packet, ports, rare.number, rare.time_ns));
            }
            None => self.remember_names(&rare.packet, number, rare.time_ns),
        }
        let own = injected.events.len() - usize::from(push.ports.is_some());
        self.give_orphans(rare.number, injected);
        match push.outcome {
            Outcome::Incomplete => {}
            Outcome::Rejected(reject) => {
                count(&mut self.damaged, reject_kind(reject), file, offset);
            }
            Outcome::Complete { outer, payload } => {
                let read = packet::decode_payload(&outer, &payload);
                match read.map(|packet| self.keying.of(packet)) {
                    Ok(mut packet) => {
                        // A tunnel's scope is new.
                        if rare.packet.scope.is_for_names() {
                            packet.scope = packet.scope.for_names();
                        }
                        let inner = payload_of(&packet, &payload);
                        if packet.tunnels > outer.tunnels {
                            let ports = (packet.src_port, packet.dst_port);
                            let event = self.event_of(&packet, ports, rare.number, rare.time_ns);
                            injected.events.push(event);
                            injected.attach(injected.events.len() - 1, &packet, inner);
                        } else if push.ports.is_some() {
                            injected.attach(own, &packet, inner);
                        }
                        self.whole(rare, &packet, inner, None, place, None);
                    }
                    Err(_) => count(&mut self.damaged, "transport_malformed", file, offset),
                }
            }
        }
        for event in &mut injected.events[injected_before..] {
            (event.is_made, event.is_reduced) = (true, rare.is_reduced);
        }
    }

    /// Remembers the names that are known now, for a flow that begins with a held fragment.
    fn remember_names(&mut self, packet: &Packet, number: u64, time_ns: i64) {
        let Packet { src, dst, scope, .. } = *packet;
        let view = self.names.view().within(scope.network());
        let ends =
            [(src, dst), (dst, src)].map(|(from, to)| view.ends(from, to, u64::MAX, time_ns));
        if !ends.iter().all(Ends::is_empty) {
            self.held_named.insert(number, Box::new(ends));
        }
    }

    /// The event of a packet without its payload, with the ports of its datagram.
    fn event_of(&self, packet: &Packet, ports: (u16, u16), number: u32, time_ns: i64) -> Event {
        let (src_port, dst_port) = ports;
        let (payload_len, payload_offset, fragment) = (0, 0, None);
        let whole = Packet { src_port, dst_port, payload_len, payload_offset, fragment, ..*packet };
        Event::of(&whole, self.keying.seed, number, time_ns, 0)
    }

    /// Makes the event of a fragment that was held until packet `counted_with` of the batch; `packet`
    /// belongs to the same datagram.
    fn give_held(
        &mut self,
        packet: &Packet,
        held: &fragment::Held,
        ports: (u16, u16),
        counted_with: u32,
        injected: &mut Injected,
    ) {
        let event = self.event_of(&held_packet(packet, held), ports, counted_with, held.ts_ns);
        let payload_offset = injected.held.len() as u32;
        injected.events.push(Event { is_held: true, payload_offset, ..event });
        let ends = self.held_named.remove(&held.number);
        injected.held.push(decode::Held { number: held.number, ends });
    }

    /// The same for fragments that the reassembler gave up.
    pub(super) fn give_orphans(&mut self, counted_with: u32, injected: &mut Injected) {
        for at in 0..self.fragments.orphans().len() {
            let orphan = self.fragments.orphans()[at];
            self.give_held(&orphan.seen, &orphan.held, (0, 0), counted_with, injected);
        }
    }
}

/// Events that the name learner adds to a batch.
#[derive(Default)]
pub(super) struct Injected {
    /// In the order of the packets with which they are counted.
    pub events: Vec<Event>,
    /// Numbers and names of the fragments that were held.
    pub held: Vec<decode::Held>,
    /// Payloads reassembled from fragments. Offsets count them as if they followed the batch's bytes.
    pub joined: Vec<u8>,
    /// Length of the batch's bytes.
    pub base: u32,
}

impl Injected {
    /// Gives an event the payload of the datagram that it completes, if that may state the flow's name.
    /// Only TCP counts it differently then: the event has the whole segment, since the other fragments
    /// have no sequence number.
    fn attach(&mut self, event: usize, packet: &Packet, payload: &[u8]) {
        let is_tcp = packet.protocol == protocol::TCP;
        let is_wanted = match packet.protocol {
            protocol::TCP => !payload.is_empty(),
            protocol::UDP => own_name::may_begin(payload),
            _ => false,
        };
        let (Some(event), true) = (self.events.get_mut(event), is_wanted) else { return };
        let Some(offset) = self.base.checked_add(self.joined.len() as u32) else { return };
        event.payload_offset = offset;
        event.payload_len = payload.len() as u32;
        if is_tcp {
            event.tcp_seq = packet.tcp_seq;
            event.payload_bytes = packet.payload_bytes;
        }
        self.joined.extend_from_slice(payload);
    }

    pub fn put_in(self, decoded: &mut Decoded) {
        decoded.held = self.held;
        decoded.joined = self.joined;
        if !self.events.is_empty() {
            decoded.inject(self.events);
        }
    }
}

/// An earlier fragment, as a packet of the datagram that `packet` belongs to.
fn held_packet(packet: &Packet, held: &fragment::Held) -> Packet {
    let header_bytes = if packet.ip_version == 4 { 20 } else { 48 };
    Packet {
        ip_bytes: held.ip_bytes,
        payload_bytes: held.ip_bytes.saturating_sub(header_bytes),
        tcp_flags: 0,
        ..*packet
    }
}

fn reject_kind(reject: Reject) -> &'static str {
    match reject {
        Reject::NotFragment => "fragment_none",
        Reject::Truncated => "fragment_truncated",
        Reject::Malformed => "fragment_malformed",
        Reject::Oversize => "fragment_oversize",
        Reject::Contradiction => "fragment_contradiction",
        Reject::Overlap => "fragment_overlap",
        Reject::NoRoom => "fragment_no_room",
    }
}
