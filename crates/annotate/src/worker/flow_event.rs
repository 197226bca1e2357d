//! Flow events for the packet store: names of a flow when it begins, when it states its own, and
//! when it ends.
//!
//! The events of a flow have every name that its record in the log has, so `larder find` finds a
//! flow by the names in the log. Names that come late are in the last event.

use larder_store::flow_event::{Choice, FlowEvent, NameRole};
use larder_wire::Name;

use super::{FlowState, Known};
use crate::flow::Flow;
use crate::record::{End, FlowRecord, Naming};

fn blank(flow: &Flow<FlowState>) -> FlowEvent {
    FlowEvent {
        key: flow.key(),
        first_packet: flow.first_packet,
        start_ns: flow.start_ns,
        end_packet: None,
        last_ns: flow.last_ns,
        source_is_low: flow.source_is_low,
        names: Vec::new(),
        choices: [None; 2],
    }
}

/// A flow begins, and its addresses have names.
pub(super) fn of_known(flow: &Flow<FlowState>, known: &Known) -> FlowEvent {
    let mut event = blank(flow);
    let ends = [(&known.destination, NameRole::Destination), (&known.source, NameRole::Source)];
    for (found, role) in ends {
        let Some(found) = found else { continue };
        event.names.push((role, found.name.clone()));
        let rivals = found.rivals.iter().map(|rival| rival.name.clone());
        event.names.extend(rivals.map(|name| (NameRole::Candidate, name)));
    }
    event
}

/// A flow has stated its name.
pub(super) fn of_own(flow: &Flow<FlowState>, names: Vec<Name>) -> FlowEvent {
    let mut event = blank(flow);
    event.names.extend(names.iter().map(destination));
    event
}

/// A DNS flow queries a name.
pub(super) fn of_lookup(flow: &Flow<FlowState>, name: Name) -> FlowEvent {
    let mut event = blank(flow);
    event.names.push((NameRole::Lookup, name));
    event
}

/// The rest of a flow after a record of it was written.
pub(super) fn of_rest(flow: &Flow<FlowState>, known: &Known) -> FlowEvent {
    let mut event = of_known(flow, known);
    if let Some(own) = &known.own {
        event.names.extend(own.names().map(destination));
    }
    event
}

fn destination(name: &Name) -> (NameRole, Name) {
    (NameRole::Destination, name.clone())
}

/// Adds the name that was chosen for the destination after the flow ended; `is_other`: the event
/// lacks it.
pub(crate) fn add_choice(event: &mut FlowEvent, naming: &Naming, is_other: bool) {
    event.choices[0] = Some(choice_of(naming));
    if is_other {
        event.names.insert(0, (NameRole::Destination, naming.name.clone()));
    }
}

/// What the store keeps of a choice.
fn choice_of(naming: &Naming) -> Choice {
    let Naming { source, flags, confidence, .. } = *naming;
    Choice { source, flags, confidence }
}

/// A flow has ended with `record`; packets from number `end_packet` on do not belong to it.
pub(super) fn of_record(flow: &Flow<FlowState>, record: &FlowRecord, end_packet: u64) -> FlowEvent {
    let mut event = blank(flow);
    event.end_packet = Some(end_packet);
    let ends = [(&record.destination, NameRole::Destination), (&record.source, NameRole::Source)];
    for ((end, role), choice) in ends.into_iter().zip(&mut event.choices) {
        let End { naming: Some(naming), candidates, .. } = end else { continue };
        *choice = Some(choice_of(naming));
        event.names.push((role, naming.name.clone()));
        let rivals = candidates.iter().filter(|name| **name != naming.name).cloned();
        event.names.extend(rivals.map(|name| (NameRole::Candidate, name)));
    }
    // A stated name is a name of the flow also if another was chosen. (The name that was chosen at
    // the start is in the first event, also if the flow then states another.)
    for name in record.tls_server_name.iter().chain(&record.http_host) {
        if !event.names.contains(&destination(name)) {
            event.names.push(destination(name));
        }
    }
    event
}
