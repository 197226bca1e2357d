//! Flows of routers, with names: NetFlow v5, v9 and IPFIX become flow records.
//!
//! ```text
//! capture, socket -> check -> collect -> sort by start -> name as of the start -> any --format
//!                    lengths  templates                   crate::knowledge
//! ```
//!
//! | module | task |
//! |---|---|
//! | [`mod@check`] | every length of an export packet, before the parser |
//! | [`collect`] | packets of many exporters become flows; templates, limits, counts |
//! | [`empty`] | strings without bytes, for the parser |
//! | [`record`] | one exported flow: times, ends, counters |
//! | [`capture`] | export packets out of captures |
//! | [`listen`] | export packets of a socket, while names are learned |
//!
//! **A flow gets the name that was known at its start.** A flow without one waits until its own end, and at
//! least for [`Options::flows_delay_s`] after its start; a name that comes in this time is marked late. (Flows
//! of packets wait as long as they are open.)
//!
//! **Which end began.** Most records have one direction, so the response of a server is a record whose source
//! is the server. larder turns such a record: then the client is the source of both, and the counters stay
//! with the end that sent the packets. It goes by the fields of RFC 5103, then by ports (as for packets),
//! then by the range of ephemeral ports, then by which end is local.
//!
//! Invariants
//! 1. Records are named in the order of their starts, and waiting ones in the order of their deadlines, so no
//!    lookup sees a later name.
//!
//! Bounds: the sorter ([`MEMORY_BYTES_MAX`], and disk), [`WAITING_MAX`] flows that wait for a name: the one with
//! the earliest deadline waits no longer if there are more. Those of the modules.

pub mod capture;
pub mod check;
pub mod collect;
pub mod empty;
pub mod listen;
pub mod record;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::feeds::dns_observation::time_key;
use crate::files::{make_directory, open_inputs, save_all_names, save_stats};
use crate::flow::{is_response, protocol};
use crate::format::Format;
use crate::knowledge::Knowledge;
use crate::log::Log;
use crate::names::{Ends, give_name};
use crate::options::{Damage, Options, SortBy, Summary, Unresolved, add_damage};
use crate::record::{ConnState, End, EndReason, FlowRecord, UnnamedReason};
use crate::sort::{MEMORY_BYTES_MAX, Sorter};
use crate::stated::is_resolver_traffic;
use crate::{Error, Progress, evidence};
use collect::{Collector, LOST_KINDS, REFUSED_KINDS};
use record::Export;

/// UDP ports to which routers export: NetFlow (2055, 9995), IPFIX (4739).
pub const PORTS: [u16; 3] = [2055, 4739, 9995];
/// Flows that wait for a name, at most.
pub const WAITING_MAX: usize = 1 << 16;
/// The first of the ports that clients choose from on Linux; on other systems they begin later.
const EPHEMERAL_MIN: u16 = 32_768;
/// Records between two checks of the stop flag.
const RECORDS_A_LOOK: u64 = 1 << 10;

/// True when the options name flows of routers.
pub fn is_wanted(options: &Options) -> bool {
    !options.flows_read.is_empty() || !options.flows_listen.is_empty()
}

/// Names the exported flows of the options, to the end of the input (or until `progress.stop`).
///
/// # Errors
/// Options that contradict each other, inputs and outputs that cannot be opened or written.
pub fn run(options: &Options, progress: &Arc<Progress>) -> Result<Summary, Error> {
    if !options.flows_listen.is_empty() {
        return listen::run(options, None, progress);
    }
    check_options(options)?;
    let mut summary = Summary::default();
    let mut collector = Collector::new();
    let mut sorter = Sorter::new(MEMORY_BYTES_MAX, None);
    let (mut scratch, mut first_ns) = (Vec::new(), None::<i64>);
    let inputs = open_inputs(&options.flows_read, &options.log, &progress.stop)?;
    if let Some(directory) = &options.directory {
        make_directory(directory, "-d", options.access)?;
    }
    let log = Log::open(options)?;
    capture::read(inputs, options, &mut collector, &mut summary, progress, |export| {
        let export = oriented(export);
        first_ns = Some(first_ns.map_or(export.start_ns, |first_ns| first_ns.min(export.start_ns)));
        scratch.clear();
        export.write(&mut scratch);
        sorter.push(time_key(export.started_ns()), &scratch)
    })?;
    let mut knowledge = Knowledge::open(options, progress)?;
    knowledge.first_ns = knowledge.first_ns.or(first_ns);
    let mut naming = Naming::new(options, log, knowledge)?;
    naming.begin(first_ns.unwrap_or(0))?;
    let mut sorted = sorter.sorted()?;
    while let Some((_, record)) = sorted.advance()? {
        if let Some(export) = Export::read(record) {
            naming.take(export, progress)?;
        }
        if naming.taken % RECORDS_A_LOOK == 0 && progress.stop.load(Ordering::Relaxed) {
            break;
        }
    }
    naming.finish(collector, summary, options, progress)
}

fn check_options(options: &Options) -> Result<(), Error> {
    let refuse = |text: &str| Err(Error::Options(text.to_owned()));
    if options.write_packets.is_some() {
        return refuse("-w: exported flows have no packets to write; leave it out");
    }
    if options.store.is_some() {
        return refuse("--store: exported flows have no packets to store; leave it out");
    }
    if options.packets_max.is_some() {
        return refuse("-c: exported flows have no packets to count; leave it out");
    }
    Ok(())
}

/// The flow from the end that began it.
fn oriented(export: Export) -> Export {
    let (from, to) = (export.source, export.destination);
    if export.is_oriented || to.0.is_multicast_or_broadcast() {
        return export;
    }
    let is_turned = if is_response(export.protocol, from.1, to.1) {
        true
    } else if !matches!(export.protocol, protocol::TCP | protocol::UDP)
        || is_response(export.protocol, to.1, from.1)
    {
        false
    } else if (from.1 < EPHEMERAL_MIN) != (to.1 < EPHEMERAL_MIN) {
        from.1 < EPHEMERAL_MIN
    } else {
        to.0.is_local() && !from.0.is_local()
    };
    if is_turned { export.turned() } else { export }
}

/// Names flows and writes them.
struct Naming<'a> {
    options: &'a Options,
    format: Format,
    log: Log,
    sorter: Option<Sorter>,
    knowledge: Knowledge,
    /// Flows without a name, by deadline and number.
    waiting: BTreeMap<(i64, u64), Export>,
    /// Flows taken so far.
    taken: u64,
    /// The latest end of a record that was written, ns.
    now_ns: i64,
    summary: Summary,
    scratch: Vec<u8>,
}

impl<'a> Naming<'a> {
    fn new(options: &'a Options, log: Log, knowledge: Knowledge) -> Result<Naming<'a>, Error> {
        let sorter = || Sorter::new(MEMORY_BYTES_MAX, None);
        Ok(Naming {
            options,
            format: Format::new(options.format, options.ports_numeric)?,
            log,
            sorter: (options.sort_by == SortBy::Start).then(sorter),
            knowledge,
            waiting: BTreeMap::new(),
            taken: 0,
            now_ns: i64::MIN,
            summary: Summary::default(),
            scratch: Vec::new(),
        })
    }

    /// Writes the header of the log.
    fn begin(&mut self, first_ns: i64) -> Result<(), Error> {
        self.log.start()?;
        self.log.begin(first_ns)
    }

    /// Takes a flow; flows come in the order of their starts. One that comes too late for that is named by what is
    /// known now, and a name that is newer than its start is marked late.
    fn take(&mut self, export: Export, progress: &Progress) -> Result<(), Error> {
        self.taken += 1;
        let number = self.taken;
        let start_ns = export.started_ns();
        self.until(start_ns.max(self.knowledge.now_ns), progress)?;
        let ends = self.ends(&export);
        let delay_ns = i64::from(self.options.flows_delay_s) * 1_000_000_000;
        let deadline_ns = export.end_ns.max(start_ns.saturating_add(delay_ns));
        let can_be_named = !export.destination.0.is_multicast_or_broadcast();
        if ends.destination.is_some() || !can_be_named || delay_ns == 0 {
            return self.write(number, &export, ends);
        }
        self.waiting.insert((deadline_ns, number), export);
        if self.waiting.len() > WAITING_MAX
            && let Some(((_, number), export)) = self.waiting.pop_first()
        {
            let ends = self.ends(&export);
            self.write(number, &export, ends)?;
        }
        Ok(())
    }

    /// Learns up to `time_ns`, and writes the waiting flows whose deadline has come.
    fn until(&mut self, time_ns: i64, progress: &Progress) -> Result<(), Error> {
        debug_assert!(time_ns >= self.knowledge.now_ns, "invariant 1: the order of starts");
        while let Some((&(deadline_ns, number), export)) = self.waiting.first_key_value()
            && deadline_ns <= time_ns
        {
            let export = *export;
            self.waiting.pop_first();
            // A flow that was exported late has a deadline that has passed.
            self.knowledge.until(deadline_ns.max(self.knowledge.now_ns), progress)?;
            let ends = self.ends(&export);
            self.write(number, &export, ends)?;
        }
        self.knowledge.until(time_ns, progress)
    }

    fn ends(&self, export: &Export) -> Ends {
        let start_ns = export.started_ns();
        self.knowledge.ends(export.source.0, export.destination.0, start_ns)
    }

    fn write(&mut self, number: u64, export: &Export, ends: Ends) -> Result<(), Error> {
        let mut record = record_of(number, export);
        let start_ns = export.started_ns();
        let has_lookup = ends.destination.as_ref().is_some_and(|found| found.support.has_lookup());
        let is_known = ends.destination.is_some();
        give_name(&mut record.source, ends.source, start_ns);
        give_name(&mut record.destination, ends.destination, start_ns);
        let (client, server) = (record.source.addr, record.destination.addr);
        let ends = [&mut record.source, &mut record.destination];
        evidence::leave_out(ends, self.options.min_confidence);
        self.summary.flows += 1;
        let mut why = UnnamedReason::Local;
        if !server.is_multicast_or_broadcast() {
            why = self.knowledge.why_unnamed(client, server, start_ns, is_known);
            if record.destination.naming.is_none() && record.destination.unnamed_reason.is_none() {
                record.destination.unnamed_reason = Some(why);
            }
            self.summary.count_destination(&record.destination);
        }
        self.now_ns = self.now_ns.max(export.end_ns);
        let is_lookup = is_resolver_traffic(record.protocol, server, record.destination.port);
        let is_wanted = match self.options.unresolved {
            Unresolved::False => true,
            _ if is_lookup || server.is_multicast_or_broadcast() => false,
            Unresolved::True => !has_lookup && why == UnnamedReason::NoLookupSeen,
            Unresolved::All => record.destination.naming.is_none(),
        };
        if !is_wanted {
            return Ok(());
        }
        self.scratch.clear();
        self.format.writer().record(&record, &mut self.scratch);
        match &mut self.sorter {
            Some(sorter) => sorter.push(number, &self.scratch),
            None => self.log.take(&self.scratch, self.now_ns),
        }
    }

    /// Writes what waits, closes the log, and completes the summary.
    fn finish(
        mut self,
        collector: Collector,
        mut summary: Summary,
        options: &Options,
        progress: &Progress,
    ) -> Result<Summary, Error> {
        self.until(i64::MAX, progress)?;
        let now_ns = self.now_ns.max(0);
        if let Some(sorter) = self.sorter.take() {
            sorter.finish(|rendered| self.log.take(rendered, now_ns))?;
        }
        self.log.finish(now_ns)?;
        summary.add_flows(&self.summary);
        let names = self.knowledge.finish(&mut summary)?;
        save_all_names(&names, options, &mut summary)?;
        if collector.counts.is_empty() && options.flows_listen.is_empty() {
            let ports = PORTS.map(|port| port.to_string()).join(", ");
            options.log.of("flows").warn("no export packets").text("udp_ports", ports);
        }
        add_exporters(collector, &mut summary);
        summary.input_damaged = !summary.damaged.is_empty();
        summary.interrupted = progress.stop.load(Ordering::Relaxed);
        save_stats(&summary, options)?;
        Ok(summary)
    }
}

/// Adds the counts of the exporters, and what was lost of their packets as damage.
fn add_exporters(collector: Collector, summary: &mut Summary) {
    let is_counted: Vec<&str> =
        REFUSED_KINDS.into_iter().filter(|kind| summary.damaged.contains_key(kind)).collect();
    for (exporter, counts) in collector.counts {
        let exporter = exporter.to_string();
        for (kind, count) in &counts {
            let is_lost = LOST_KINDS.contains(kind)
                || REFUSED_KINDS.contains(kind) && !is_counted.contains(kind);
            if is_lost {
                let first_file = format!("the packets of {exporter}");
                let damage = Damage { count: *count, first_offset: 0, first_file };
                add_damage(&mut summary.damaged, kind, damage);
            }
        }
        summary.exporters.insert(exporter, counts);
    }
}

/// The record of a flow, without names.
fn record_of(number: u64, export: &Export) -> FlowRecord {
    let end = |(addr, port), [packets, ip_bytes]: [u64; 2]| End {
        port,
        packets,
        ip_bytes,
        ..End::of(addr)
    };
    FlowRecord {
        first_packet: number,
        end_packet: number,
        start_ns: export.start_ns,
        end_ns: export.end_ns,
        protocol: export.protocol,
        source: end(export.source, export.sent),
        destination: end(export.destination, export.received),
        conn_state: ConnState::OTH,
        end_reason: EndReason::Idle,
        exporter: Some(export.exporter),
        ..FlowRecord::blank()
    }
}
