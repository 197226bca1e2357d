//! The user of the flow table while a worker handles one batch: names of flows that begin, names that
//! flows state, records of flows that end.

use larder_mem::prefetch_read;
use larder_wire::dns::{Message, NameBuf};
use larder_wire::note::Note;
use larder_wire::{Addr, Name};

use super::{
    BatchInput, Body, Ended, FlowState, Known, Output, Place, Purpose, Resolved, WorkerState,
    flow_event,
};
use crate::decode::Held;
use crate::evidence;
use crate::flow::{Event, Flow, FlowKey, FlowUser, Leave, Sent, protocol};
use crate::names::{Ends, Found, Support, View};
use crate::options::{NameSources, Unresolved};
use crate::own_name::{OwnName, Segment, Stated};
use crate::record::{
    App, End, EndReason, FlowRecord, NameFlags, NameSource, NoNames, UnnamedReason,
};
use crate::seen::Noted;
use crate::stated::{is_resolver_traffic, state};

/// The lookup of a flow that began this soon after the capture may have been before the capture.
const BEFORE_CAPTURE_NS: i64 = 10_000_000_000;

/// See the module.
pub(super) struct Lane<'a, 'b> {
    pub state: &'a mut WorkerState,
    pub view: View<'a>,
    pub input: &'a BatchInput<'b>,
    pub output: &'a mut Output,
    /// All packets of the batch are counted: a flow that ends now may have had the last of them.
    pub is_behind: bool,
    /// Flows end by time, not by a packet.
    pub is_between_packets: bool,
    /// The log has not begun.
    pub is_early: bool,
}

impl<'a, 'b> Lane<'a, 'b> {
    pub fn new(
        state: &'a mut WorkerState,
        view: View<'a>,
        input: &'a BatchInput<'b>,
        output: &'a mut Output,
    ) -> Lane<'a, 'b> {
        let is_early = input.packets_before < input.logged_after;
        Lane { state, view, input, output, is_behind: false, is_between_packets: false, is_early }
    }
}

impl Lane<'_, '_> {
    pub fn names(&self) -> NameSources {
        self.state.shared.options.names
    }

    /// True for DNS over UDP if packets are stored: the store then needs the names of its queries.
    fn wants_lookups(&self, flow: &Flow<FlowState>) -> bool {
        flow.app == Some(App::Dns)
            && flow.protocol == protocol::UDP
            && self.state.shared.options.store.is_some()
    }

    /// Sends the name of a query to the packet store.
    #[cold]
    fn send_lookup(&mut self, flow: &Flow<FlowState>, event: &Event) {
        let Some(Ok(message)) = self.input.payload(event).map(Message::parse) else { return };
        let mut name = NameBuf::new();
        if message.query(&mut name).is_some() {
            self.output
                .flow_events
                .push(flow_event::of_lookup(flow, Name::from_canonical(name.as_bytes())));
        }
    }

    /// Prefetches the first data that is read when `event` begins a flow.
    #[cold]
    #[inline(never)]
    pub fn foresee(&self, event: &Event) {
        let FlowKey { low, high, low_port, high_port, scope, .. } = event.key;
        // The lower port is mostly the responder's.
        self.view.within(scope.network()).prefetch_marks(if low_port < high_port {
            low
        } else {
            high
        });
    }

    fn find_names(&mut self, flow: &mut Flow<FlowState>, packet: u64, now_ns: i64) {
        let (source, _) = flow.source();
        let (destination, _) = flow.destination();
        let view = self.view.within(flow.key().scope.network());
        let ends = view.ends(source, destination, packet, now_ns);
        self.take_names(flow, ends, now_ns);
    }

    /// The names that a flow had before the first packet that is counted in it, `event`.
    fn find_first_names(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        let Some(held) = self.held(event) else {
            return self.find_names(flow, flow.first_packet, event.time_ns);
        };
        let by_sender = event.from_low == flow.source_is_low;
        let ends = held.ends.as_ref().map(|ends| ends[usize::from(!by_sender)].clone());
        self.take_names(flow, ends.unwrap_or_default(), event.time_ns);
    }

    /// Number and names of an event that was held.
    fn held(&self, event: &Event) -> Option<&Held> {
        let held = event.is_held.then(|| self.input.held.get(event.payload_offset as usize));
        held.flatten()
    }

    #[inline]
    fn take_names(&mut self, flow: &mut Flow<FlowState>, ends: Ends, now_ns: i64) {
        flow.looked_up_from_low = flow.source_is_low;
        // Most flows have none.
        if !ends.is_empty() || flow.user.known.is_some() || !self.state.stated.is_empty() {
            self.take_some_names(flow, ends, now_ns);
        }
    }

    #[inline(never)]
    fn take_some_names(&mut self, flow: &mut Flow<FlowState>, ends: Ends, now_ns: i64) {
        let (destination, _) = flow.destination();
        let Ends { source: found_source, destination: mut found } = ends;
        if let Some(name) = self.state.stated.get(&destination) {
            found = Some(Found {
                name: name.clone(),
                source: NameSource::Sni,
                time_ns: now_ns,
                flags: NameFlags::NONE,
                rivals: Vec::new(),
                support: Support::default(),
            });
        }
        if found.is_some() || found_source.is_some() || flow.user.known.is_some() {
            let known = flow.user.known.get_or_insert_with(|| self.state.spare.known());
            known.destination = found;
            known.source = found_source;
        }
    }
}

impl FlowUser<FlowState> for Lane<'_, '_> {
    #[inline]
    fn number(&self, event: &Event) -> u64 {
        let counted_with = self.input.packets_before + u64::from(event.packet);
        self.held(event).map_or(counted_with, |held| held.number)
    }

    fn begin(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        flow.app = app_by_port(flow);
        flow.set_quiet(match flow.protocol {
            protocol::TCP => flow.app.is_some(),
            // The packet store needs the names that DNS flows query.
            protocol::UDP => flow.app.is_some() && !self.wants_lookups(flow),
            _ => true,
        });
        if self.state.shared.purpose == Purpose::Extract {
            return self.extract_first(flow, event);
        }
        self.find_first_names(flow, event);
        if self.state.shared.options.write_packets.is_some()
            && !flow.key().scope.is_for_names()
            && let Some(known) = &flow.user.known
        {
            let ends =
                [(flow.destination().0, &known.destination), (flow.source().0, &known.source)];
            for (addr, found) in ends {
                let Some(found) = found else { continue };
                let rivals = found.rivals.iter().rev();
                let mut names: Vec<Name> = rivals.map(|rival| rival.name.clone()).collect();
                names.push(found.name.clone());
                let (packet, key) = (flow.first_packet, flow.key());
                self.output.resolved.push(Resolved { packet, key, addr, names });
            }
        }
        if self.state.shared.options.store.is_some()
            && let Some(known) = &flow.user.known
        {
            self.output.flow_events.push(flow_event::of_known(flow, known));
        }
    }

    #[inline]
    fn packet(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        let is_read = event.payload_len > 0 && event.from_low == flow.source_is_low;
        if self.state.shared.purpose == Purpose::Extract
            && !self.extract_packet(flow, event, is_read)
        {
            return;
        }
        if is_read {
            if self.wants_lookups(flow) {
                self.send_lookup(flow, event);
            } else {
                self.look_for_own_name(flow, event);
            }
        } else if flow.awaits_reply && event.payload_len > 0 {
            self.take_reply(flow, event);
        }
    }

    fn quiet_flag(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        if self.state.shared.purpose == Purpose::Extract {
            self.extract_flag(flow, event);
        }
    }

    #[inline]
    fn prefetch(&self, flow: &Flow<FlowState>) {
        match &flow.user.known {
            Some(known) => prefetch_read(&**known),
            // It is looked up again: for a late name, or for the reason why it has none.
            None => {
                self.view.within(flow.key().scope.network()).prefetch_marks(flow.destination().0)
            }
        }
    }

    fn resume(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        if self.state.shared.purpose == Purpose::Extract {
            self.extract_rest(flow, event);
        } else if self.state.shared.options.store.is_some()
            && let Some(known) = &flow.user.known
            && known.has_names()
        {
            self.output.flow_events.push(flow_event::of_rest(flow, known));
        }
    }

    fn end(&mut self, flow: &mut Flow<FlowState>, closed: bool, leave: Leave, packet: u32) {
        let is_extract = self.state.shared.purpose == Purpose::Extract;
        if is_extract && leave == Leave::Active {
            return;
        }
        if let Some(own) = flow.user.known.as_mut().and_then(|known| known.own.as_mut()) {
            own.finish(&mut self.state.budgets[self.state.shard]);
        }
        if is_extract {
            return self.end_without_record(flow, packet);
        }
        let end_packet = match leave {
            Leave::InputEnd => u64::MAX,
            _ => self.input.packets_before + u64::from(packet),
        };
        let is_turned = flow.looked_up_from_low != flow.source_is_low;
        if is_turned {
            self.find_names(flow, end_packet, flow.began_ns());
        }
        let rest = (leave == Leave::Active).then(|| flow.of_rest());
        let is_for_names = self.is_early || flow.key().scope.is_for_names();
        if is_for_names && self.state.shared.purpose == Purpose::Log {
            return self.end_without_log(flow, rest);
        }
        let had_names = flow.user.known.as_ref().is_some_and(|known| known.has_names())
            || self.wants_lookups(flow);
        let blank = || Box::new(FlowRecord::blank());
        let mut record =
            self.state.record.take().or_else(|| self.output.spare.pop()).unwrap_or_else(blank);
        let trials = self.output.trials.len();
        record.end_reason = end_reason(leave, closed);
        let (has_name, has_lookup) = self.fill(&mut record, flow, end_packet, is_turned);
        let trial = (self.output.trials.len() > trials).then_some(trials as u32);
        let mut flow_event = None;
        if self.state.shared.options.store.is_some() {
            let behind = end_packet.saturating_add(u64::from(self.is_behind));
            let note = flow_event::of_record(flow, &record, behind);
            if had_names || !note.names.is_empty() {
                flow_event = Some(self.output.flow_events.len() as u32);
                self.output.flow_events.push(note);
            }
        }
        if let Some(rest) = rest {
            continue_with(flow, rest);
        }
        if self.state.shared.options.page.is_some() && !is_for_names {
            self.note(flow, &record, end_packet, (has_name, has_lookup));
        }
        let destination = &record.destination;
        let is_wanted = match self.state.shared.options.unresolved {
            _ if is_for_names => false,
            Unresolved::False => true,
            _ if is_resolver_traffic(record.protocol, destination.addr, destination.port) => false,
            Unresolved::True => {
                let why = || self.why_unnamed(flow, end_packet, has_name);
                !has_lookup && why() == UnnamedReason::NoLookupSeen
            }
            Unresolved::All => destination.naming.is_none(),
        };
        let (first_packet, key, end_ns) = (flow.first_packet, flow.key(), record.end_ns);
        let is_by_packet = !self.is_between_packets;
        let place = Place { end_packet, is_by_packet, first_packet, key };
        let body = if is_wanted { self.log(record) } else { self.leave_out(record, is_for_names) };
        if is_wanted || trial.is_some() {
            self.output.ended.push(Ended { place, end_ns, body, trial, flow_event });
        }
    }

    fn end_without_record(&mut self, flow: &Flow<FlowState>, packet: u32) {
        if self.state.shared.purpose == Purpose::Extract {
            self.output.notes.push((packet, Note::Flow(flow.key(), flow.last_ns)));
        }
    }
}

impl Lane<'_, '_> {
    #[cold]
    fn look_for_own_name(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        let Some(data) = self.input.payload(event) else { return };
        let budget = &mut self.state.budgets[self.state.shard];
        let seq_first = flow.sent_by_source().first_payload_seq();
        let spare = &mut self.state.spare;
        let known = flow.user.known.get_or_insert_with(|| spare.known());
        let own = known.own.get_or_insert_with(|| spare.own());
        let was_looking = own.is_looking();
        if flow.protocol == protocol::TCP {
            own.tcp(&Segment { seq: event.tcp_seq, seq_first, data }, budget);
        } else {
            own.udp(data, budget);
        }
        if own.app.is_some() {
            flow.app = own.app;
        }
        let is_done = own.is_done();
        flow.awaits_reply = own.awaits_reply();
        let was_read = was_looking && !own.is_looking();
        let wants_flow_event = was_read && self.state.shared.options.store.is_some();
        let names: Vec<Name> =
            if wants_flow_event { own.names().cloned().collect() } else { Vec::new() };
        if !self.view.rules.has(6)
            && let Some(stated) = &own.server_name
            && stated.is_name
        {
            let name = stated.text.clone();
            self.state.stated.insert(flow.destination().0, name);
        }
        flow.set_quiet(is_done && !self.is_extracted(flow));
        if !names.is_empty() {
            self.output.flow_events.push(flow_event::of_own(flow, names));
        }
    }

    /// The responder of a flow that stated a name sent its first bytes.
    #[cold]
    fn take_reply(&mut self, flow: &mut Flow<FlowState>, event: &Event) {
        let own = flow.user.known.as_mut().and_then(|known| known.own.as_mut());
        if let Some(own) = own {
            own.replied(&mut self.state.budgets[self.state.shard]);
        }
        flow.set_quiet(!self.is_extracted(flow));
        flow.awaits_reply = false;
        if self.state.shared.purpose == Purpose::Extract {
            return;
        }
        let statement = self.statement_of(flow, event);
        self.output.statements.extend(statement);
    }

    /// Ends a record of packets that are read for names only: nothing reads it, so it is not made.
    fn end_without_log(&mut self, flow: &mut Flow<FlowState>, rest: Option<Box<Known>>) {
        if let Some(known) = flow.user.known.take() {
            self.state.spare.take_back(known);
        }
        if let Some(rest) = rest {
            continue_with(flow, rest);
        }
    }

    /// Notes a record for the page, unless the writer chooses its name.
    fn note(
        &mut self,
        flow: &Flow<FlowState>,
        record: &FlowRecord,
        end_packet: u64,
        (has_name, has_lookup): (bool, bool),
    ) {
        let destination = &record.destination;
        if destination.naming.as_ref().is_some_and(evidence::is_by_lookup) {
            return;
        }
        let is_unresolved = !has_lookup
            && !is_resolver_traffic(flow.protocol, destination.addr, destination.port)
            && self.why_unnamed(flow, end_packet, has_name) == UnnamedReason::NoLookupSeen;
        let least = self.state.shared.options.min_confidence;
        self.output.notes_of_records.push(Noted::of(record, least, is_unresolved));
    }

    /// Counts a record that is not logged, unless its packets are read for names only.
    fn leave_out(&mut self, record: Box<FlowRecord>, is_for_names: bool) -> Body {
        if !is_for_names {
            self.state.summary.count(&record);
        }
        self.state.record = Some(record);
        Body::LeftOut
    }

    /// Sends a record to the log: rendered, unless its name depends on what other flows stated.
    fn log(&mut self, mut record: Box<FlowRecord>) -> Body {
        let output = &mut *self.output;
        let naming = record.destination.naming.as_ref();
        if naming.is_some_and(evidence::is_by_lookup) {
            output.undecided.push(record);
            Body::Undecided(output.undecided.len() - 1)
        } else {
            let start = output.bytes.len();
            let least = self.state.shared.options.min_confidence;
            evidence::leave_out([&mut record.source, &mut record.destination], least);
            self.state.summary.count(&record);
            self.state.shared.format.writer().record(&record, &mut output.bytes);
            self.state.record = Some(record);
            Body::Rendered(start, output.bytes.len())
        }
    }

    /// Fills `record`, whatever it held, from a flow that ends. Returns whether the destination has a name
    /// that the flow does not state, and whether a lookup gave its address.
    fn fill(
        &mut self,
        record: &mut FlowRecord,
        flow: &mut Flow<FlowState>,
        end_packet: u64,
        is_turned: bool,
    ) -> (bool, bool) {
        let began_ns = flow.began_ns();
        let mut late = false;
        let valid_at_start = self.view.rules.has(7);
        let known = flow.user.known.as_ref();
        let wants_name = match known.and_then(|known| known.destination.as_ref()) {
            None => valid_at_start,
            Some(_) => !valid_at_start,
        };
        if wants_name && !is_turned {
            self.find_names(flow, end_packet, began_ns);
            late = true;
        }
        let is_tcp = flow.protocol == protocol::TCP;
        record.start_ns = flow.start_ns;
        record.continued_since_ns = flow.user.known.as_ref().and_then(|known| known.began_ns);
        fill_end(&mut record.source, flow.source(), flow.sent_by_source(), is_tcp);
        fill_end(&mut record.destination, flow.destination(), flow.sent_by_destination(), is_tcp);
        (record.tls_server_name, record.tls_ech, record.http_host) = (None, None, None);
        record.no_names = NoNames::default();
        let mut support = Support::default();
        let mut has_name = false;
        if let Some(mut known) = flow.user.known.take() {
            if let Some(found) = &mut known.destination {
                record.destination.naming = Some(found.naming(began_ns, late));
                support = found.support;
                has_name = true;
                found.move_names(&mut record.destination);
            }
            if let Some(found) = &mut known.source {
                record.source.naming = Some(found.naming(began_ns, late));
                found.move_names(&mut record.source);
            }
            if let Some(own) = &mut known.own {
                let trial = self.trial_of(record, own, flow);
                self.output.trials.extend(trial);
                self.take_stated_name(record, own, support, end_packet);
            }
            self.state.spare.take_back(known);
        }
        let unnamed = record.destination.naming.is_none();
        record.destination.unnamed_reason =
            unnamed.then(|| self.why_unnamed(flow, end_packet, false));
        record.first_packet = flow.first_packet;
        record.end_packet = end_packet;
        record.end_ns = flow.last_ns;
        record.protocol = flow.protocol;
        record.scope = flow.key().scope;
        record.tunnel = flow.tunnel;
        record.app = flow.app;
        record.conn_state = flow.conn_state();
        record.history.clear();
        record.history.push_str(flow.history.as_str());
        (has_name, support.has_lookup())
    }

    /// Rule 6: the name that a flow states names this flow, and names by DNS are listed next to it. The
    /// server name of an encrypted ClientHello is the provider's: the name that this client looked up for
    /// the address comes before it.
    fn take_stated_name(
        &self,
        record: &mut FlowRecord,
        own: &mut OwnName,
        support: Support,
        packet: u64,
    ) {
        let names = self.names();
        if let Some(stated) = own.chosen(names) {
            let End { naming, candidates, .. } = &mut record.destination;
            let is_outer = own.ech == Some(true)
                && naming.as_ref().is_some_and(|naming| {
                    naming.source == NameSource::DnsPair && !naming.flags.has(NameFlags::LATE)
                });
            if is_outer && !candidates.contains(stated.0) {
                candidates.push(stated.0.clone());
            } else {
                let support = names.has(NameSource::DnsAddress).then_some(support);
                state(&mut record.destination, stated, support, |name, others| {
                    self.view.are_joined(name, others, packet)
                });
            }
        }
        let End { naming, candidates, .. } = &mut record.destination;
        if own.contradicts
            && let Some(naming) = naming
        {
            naming.flags = naming.flags.with(NameFlags::CONFLICT);
            candidates.extend(own.other.take().filter(|name| !candidates.contains(name)));
        }
        record.tls_ech = own.ech;
        let no_names = &mut record.no_names;
        let places = [
            (&mut own.server_name, &mut record.tls_server_name, &mut no_names.tls_server_name),
            (&mut own.http_host, &mut record.http_host, &mut no_names.http_host),
        ];
        for (stated, name, no_name) in places {
            let Some(Stated { text, is_name }) = stated.take() else { continue };
            *(if is_name { name } else { no_name }) = Some(text);
        }
    }

    /// Why no lookup names the destination; `is_known`: there is a name at hand.
    fn why_unnamed(
        &self,
        flow: &Flow<FlowState>,
        end_packet: u64,
        is_known: bool,
    ) -> UnnamedReason {
        let (client, _) = flow.source();
        let (addr, _) = flow.destination();
        let known = self.view.learned;
        let view = self.view.within(flow.key().scope.network());
        let hash = |addr| view.address_hash(addr);
        if addr.is_local() {
            UnnamedReason::Local
        } else if !is_known && known.named.has(hash(addr), end_packet) {
            UnnamedReason::Evicted
        } else if known.encrypted.has(hash(client), end_packet) {
            UnnamedReason::EncryptedDnsSuspected
        } else if flow.midstream
            || flow.began_ns().saturating_sub(self.input.capture_start_ns) < BEFORE_CAPTURE_NS
        {
            UnnamedReason::BeforeCapture
        } else {
            UnnamedReason::NoLookupSeen
        }
    }
}

fn end_reason(leave: Leave, is_closed: bool) -> EndReason {
    match leave {
        Leave::Evicted => EndReason::Evicted,
        Leave::Active => EndReason::Active,
        _ if is_closed => EndReason::Closed,
        Leave::Timeout => EndReason::Idle,
        Leave::Reused => EndReason::Closed,
        Leave::InputEnd => EndReason::InputEnd,
    }
}

/// A flow whose record has ended continues with what its rest keeps.
fn continue_with(flow: &mut Flow<FlowState>, rest: Box<Known>) {
    flow.set_quiet(flow.is_quiet() || rest.own.is_some());
    flow.user.known = Some(rest);
}

/// Fills the address and the counts of one end, without names.
fn fill_end(end: &mut End, (addr, port): (Addr, u16), sent: &Sent, is_tcp: bool) {
    end.addr = addr;
    end.port = port;
    end.packets = sent.packets;
    end.ip_bytes = sent.ip_bytes;
    end.payload_bytes = Some(if is_tcp { sent.stream_bytes() } else { sent.payload_bytes });
    end.missed_bytes = sent.gap_bytes;
    end.naming = None;
    end.candidates.clear();
    end.origins.clear();
    end.unnamed_reason = None;
}

pub(super) fn app_by_port(flow: &Flow<FlowState>) -> Option<App> {
    let (low, high) = (flow.source().1, flow.destination().1);
    let either = |port| low == port || high == port;
    match flow.protocol {
        protocol::TCP | protocol::UDP if either(53) => Some(App::Dns),
        protocol::UDP if either(5353) => Some(App::Mdns),
        protocol::UDP if either(5355) => Some(App::Llmnr),
        protocol::UDP if either(137) => Some(App::Nbns),
        protocol::UDP if either(67) || either(68) || either(546) || either(547) => Some(App::Dhcp),
        _ => None,
    }
}
