//! What the packet store is told of a flow's names: when it begins, when it says its own, and when it ends.
//!
//! The notes of a flow have every name that its record in the log has, so that what is found by a name is what the log
//! calls so. Names that are not known before the end (they came late) are in the last event.

use larder_store::flow_event::{FlowEvent, NameRole};
use larder_wire::Name;

use super::{FlowState, Known};
use crate::flow::Flow;
use crate::record::{End, FlowRecord};

fn blank(flow: &Flow<FlowState>) -> FlowEvent {
    FlowEvent {
        key: flow.key(),
        first_packet: flow.first_packet,
        start_ns: flow.start_ns,
        end_packet: None,
        last_ns: flow.last_ns,
        source_is_low: flow.source_is_low,
        names: Vec::new(),
    }
}

/// A flow begins, and its addresses have names.
pub(super) fn of_known(flow: &Flow<FlowState>, known: &Known) -> FlowEvent {
    let mut event = blank(flow);
    let ends = [(&known.destination, NameRole::Destination), (&known.source, NameRole::Source)];
    for (found, role) in ends {
        let Some(found) = found else { continue };
        event.names.push((role, found.name.clone()));
        let rivals = found.rivals.iter().cloned();
        event.names.extend(rivals.map(|name| (NameRole::Candidate, name)));
    }
    event
}

/// A flow has said its name.
pub(super) fn of_own(flow: &Flow<FlowState>, names: Vec<Name>) -> FlowEvent {
    let mut event = blank(flow);
    event.names.extend(names.iter().map(destination));
    event
}

/// A name is asked for in a flow of DNS.
pub(super) fn of_lookup(flow: &Flow<FlowState>, name: Name) -> FlowEvent {
    let mut event = blank(flow);
    event.names.push((NameRole::Lookup, name));
    event
}

/// The rest of a flow of which a record was handed out, before its packet `first_packet`.
pub(super) fn of_rest(flow: &Flow<FlowState>, known: &Known, first_packet: u64) -> FlowEvent {
    let mut event = of_known(flow, known);
    if let Some(own) = &known.own {
        event.names.extend(own.names().map(destination));
    }
    FlowEvent { first_packet, start_ns: flow.last_ns, ..event }
}

fn destination(name: &Name) -> (NameRole, Name) {
    (NameRole::Destination, name.clone())
}

/// A flow has ended as `record` has it; packets from number `end_packet` on are not its own.
pub(super) fn of_record(flow: &Flow<FlowState>, record: &FlowRecord, end_packet: u64) -> FlowEvent {
    let mut event = blank(flow);
    event.end_packet = Some(end_packet);
    let ends = [(&record.destination, NameRole::Destination), (&record.source, NameRole::Source)];
    for (end, role) in ends {
        let End { naming: Some(naming), candidates, .. } = end else { continue };
        event.names.push((role, naming.name.clone()));
        let rivals = candidates.iter().filter(|name| **name != naming.name).cloned();
        event.names.extend(rivals.map(|name| (NameRole::Candidate, name)));
    }
    // What the flow says of itself is a name of it also where another was chosen (and what was chosen when it began it has by
    // its first event, also where it then says another).
    for name in record.tls_server_name.iter().chain(&record.http_host) {
        if !event.names.contains(&destination(name)) {
            event.names.push(destination(name));
        }
    }
    event
}
