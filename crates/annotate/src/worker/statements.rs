//! What a flow that states its name teaches, and the trial of the choice among names that it makes possible.

use larder_wire::Name;

use super::lane::Lane;
use super::{FlowState, Known, Purpose};
use crate::evidence::{self, FlowStart, Meaning, Parties, Statement, Trial};
use crate::flow::{Event, Flow, FlowUser};
use crate::names::Found;
use crate::own_name::OwnName;
use crate::record::{End, FlowRecord, Naming, Origin};

impl Lane<'_, '_> {
    /// What the name that a flow states teaches, if anything learns from it.
    pub(super) fn statement_of(&self, flow: &Flow<FlowState>, event: &Event) -> Option<Statement> {
        let Known { destination, own, .. } = &**flow.user.known.as_ref()?;
        let own = own.as_ref()?;
        // The server name of an encrypted ClientHello is the provider's.
        let is_plain = flow.looked_up_from_low == flow.source_is_low
            && !own.contradicts
            && own.ech != Some(true);
        let (name, _) = is_plain.then(|| own.chosen(self.names()))??;
        let (packet, time_ns, key) = (self.number(event), event.time_ns, flow.key());
        let trial = self.trial_of_statement(flow, destination.as_ref(), name, (packet, time_ns));
        let looked_up = destination.as_ref().filter(|found| {
            let is_head = || self.view.is_alias(name, &found.name, packet);
            evidence::teaches(found, name, is_head)
        });
        let (client, server) = (flow.source().0, flow.destination());
        let hashes = &self.state.shared.hashes;
        Some(Statement {
            packet,
            time_ns,
            flow: FlowStart { flow: flow.first_packet, start_ns: flow.began_ns() },
            key,
            client,
            keys: Parties::of(hashes, key.scope.network(), client, server).keys(hashes, name),
            meaning: looked_up.map(|found| Meaning::new(name, &found.name)),
            trial,
        })
    }

    /// The trial of a flow that just stated `stated`, if it is in the sample and lookups gave names: `found`, or late.
    fn trial_of_statement(
        &self,
        flow: &Flow<FlowState>,
        found: Option<&Found>,
        stated: &Name,
        (packet, now_ns): (u64, i64),
    ) -> Option<Box<Trial>> {
        if !evidence::is_tried(flow.began_ns(), self.input.capture_start_ns) {
            return None;
        }
        let late = match found {
            None => {
                let view = self.view.within(flow.key().scope.network());
                view.ends(flow.source().0, flow.destination().0, packet, now_ns).destination
            }
            Some(_) => None,
        };
        let mut found = found.or(late.as_ref())?.clone();
        let naming = found.naming(flow.began_ns(), late.is_some());
        evidence::is_by_lookup(&naming).then(|| {
            let mut end = End::of(flow.destination().0);
            found.move_names(&mut end);
            let End { candidates, origins, .. } = end;
            Box::new(trial(flow, naming, (candidates, origins), stated))
        })
    }

    /// For an observer: the trial of a flow that states its name and whose record has names by lookups so far. There is
    /// no choice for the record itself then, so the trial takes the origins.
    pub(super) fn trial_of(
        &mut self,
        record: &mut FlowRecord,
        own: &OwnName,
        flow: &Flow<FlowState>,
    ) -> Option<Trial> {
        if self.state.shared.purpose != Purpose::Observed {
            return None;
        }
        let FlowRecord { destination, .. } = record;
        let naming = destination.naming.as_ref().filter(|naming| evidence::is_by_lookup(naming))?;
        let (stated, _) = own.chosen(self.names())?;
        let is_plain = own.ech != Some(true) && !own.contradicts && !own.is_rest;
        is_plain.then(|| {
            let origins = std::mem::take(&mut destination.origins);
            let names = (destination.candidates.clone(), origins);
            trial(flow, naming.clone(), names, stated)
        })
    }
}

/// The trial of a flow that states `stated`, and to whose destination lookups gave `naming` among others.
fn trial(
    flow: &Flow<FlowState>,
    naming: Naming,
    (candidates, origins): (Vec<Name>, Vec<Origin>),
    stated: &Name,
) -> Trial {
    Trial {
        packet: flow.first_packet,
        scope: flow.key().scope.network(),
        start_ns: flow.began_ns(),
        client: flow.source(),
        server: flow.destination(),
        naming,
        candidates,
        origins,
        features: Vec::new(),
        stated: stated.clone(),
    }
}
