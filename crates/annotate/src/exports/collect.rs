//! The collector: export packets of many exporters become flows.
//!
//! Templates belong to one exporter address and one observation domain (or source ID), so each such pair
//! has a parser of its own. A packet reaches its parser only after the length checks of
//! [`check`](super::check).
//!
//! ```text
//! phase      begins with                        ends with
//! known      the first packet of the pair       eviction: too many domains of the address, or too many pairs
//! template   a template set                     the same number again (replaced); eviction: the least used
//! ```
//!
//! Bounds: [`PAIRS_MAX`] pairs, [`DOMAINS_MAX`] of one address, [`TEMPLATES_MAX`] templates and as many
//! options templates of a pair, [`FIELDS_MAX`] fields of a template. An attacker who fills all of it holds
//! about 128 MiB. Counts of [`ADDRESSES_MAX`] exporters are kept apart; those of others share one entry.
//! Every loss is counted by kind and exporter.
//!
//! Wrong clocks: the receiver knows when a packet came. Where the exporter's own time of sending is more than
//! [`CLOCK_NS_MAX`] from that, the exporter's times are moved onto the receiver's clock, and the
//! records are counted (`flows_clock`): else flows would get the names of another time.
//!
//! Coarse clocks: v9 states the second in which a packet was sent, and flows in milliseconds before that
//! moment. A packet that came within that second is taken to have been sent when it came; of another one,
//! the start of a flow is uncertain by a second more ([`Export::slack_ns`]).
//!
//! Cost: one allocation for each record and some of its fields, by the parser.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use larder_wire::Addr;
use netflow_parser::static_versions::v5::V5;
use netflow_parser::variable_versions::field_value::FieldValue;
use netflow_parser::variable_versions::ipfix::lookup::IANAIPFixField as Iana;
use netflow_parser::variable_versions::ipfix::{FlowSetBody as IpfixBody, IPFix};
use netflow_parser::variable_versions::v9::{FlowSetBody as V9Body, V9};
use netflow_parser::{IpfixField, NetflowPacket, NetflowParser, V9Field};

use super::check::{Checked, FIELDS_MAX, IPFIX, RECORD_BYTES_MAX, check};
use super::empty::Templates;
use super::record::{Export, Fields};
use crate::record::Exporter;

/// Pairs of exporter and observation domain, at most.
pub const PAIRS_MAX: usize = 256;
/// Observation domains of one exporter, at most.
pub const DOMAINS_MAX: usize = 16;
/// Templates of a pair, at most; options templates are counted apart.
pub const TEMPLATES_MAX: usize = 64;
/// Exporters with counts of their own, at most.
pub const ADDRESSES_MAX: usize = 1024;
/// Records of one set, at most: a datagram has no more.
const RECORDS_MAX: usize = 1 << 14;
/// An exporter's clock may differ by this much, ns: packets wait in queues, and v9 rounds to seconds.
pub const CLOCK_NS_MAX: i64 = 60_000_000_000;

/// Counts of one exporter, by kind. `flows_packets` and `flows_records` count what was taken, all other
/// kinds what was not, or not as stated.
pub type ExporterCounts = BTreeMap<&'static str, u64>;

/// Kinds of a packet that is refused whole.
pub const REFUSED_KINDS: [&str; 5] =
    ["flows_version", "flows_cut", "flows_length", "flows_template", "flows_parser"];
/// Kinds of a set or a record that was not taken.
pub const LOST_KINDS: [&str; 3] = ["flows_no_template", "flows_no_address", "flows_no_time"];

/// See the module.
#[derive(Default)]
pub struct Collector {
    pairs: HashMap<(Addr, u32), Pair, foldhash::fast::RandomState>,
    /// Counts by exporter.
    pub counts: BTreeMap<Addr, ExporterCounts>,
    packets: u64,
}

/// A parser with its templates.
struct Pair {
    parser: NetflowParser,
    empty: Templates,
    /// The packet that used it last.
    used: u64,
    /// The rate that an options record, or a header, stated last.
    sampling_rate: Option<u64>,
    boot_ms: Option<u64>,
    evictions: u64,
    collisions: u64,
}

impl Pair {
    fn new() -> Option<Pair> {
        let parser = NetflowParser::builder()
            .with_cache_size(TEMPLATES_MAX)
            .with_max_field_count(FIELDS_MAX)
            .with_max_template_total_size(RECORD_BYTES_MAX)
            .with_max_records_per_flowset(RECORDS_MAX)
            .with_max_error_sample_size(1)
            .with_allowed_versions(&[5, 9, 10])
            .build()
            .ok()?;
        let (sampling_rate, boot_ms) = (None, None);
        let empty = Templates::default();
        Some(Pair { parser, empty, used: 0, sampling_rate, boot_ms, evictions: 0, collisions: 0 })
    }
}

/// The counts of one packet, which are added when it is done.
struct Counting<'a> {
    counts: &'a mut ExporterCounts,
}

impl Counting<'_> {
    fn add(&mut self, kind: &'static str, count: u64) {
        if count > 0 {
            *self.counts.entry(kind).or_default() += count;
        }
    }
}

impl Collector {
    /// An empty collector.
    pub fn new() -> Collector {
        Collector::default()
    }

    /// Takes a datagram of `exporter` that came at `received_ns`, and gives its flows to `take`.
    ///
    /// # Errors
    /// The kind of damage if the packet was refused. It is counted.
    pub fn datagram(
        &mut self,
        exporter: Addr,
        received_ns: i64,
        datagram: &[u8],
        mut take: impl FnMut(Export),
    ) -> Result<(), &'static str> {
        self.packets += 1;
        let mut counting = Counting { counts: counts_of(&mut self.counts, exporter) };
        let refused = |kind, counting: &mut Counting<'_>| {
            counting.add(kind, 1);
            Err(kind)
        };
        let mut packet = match check(datagram) {
            Ok(packet) => packet,
            Err(kind) => return refused(kind, &mut counting),
        };
        let key = (exporter, packet.domain);
        if !self.pairs.contains_key(&key) {
            counting.add("flows_exporters_evicted", make_room(&mut self.pairs, exporter));
            let Some(pair) = Pair::new() else { return refused("flows_parser", &mut counting) };
            self.pairs.insert(key, pair);
        }
        let Some(pair) = self.pairs.get_mut(&key) else {
            return refused("flows_parser", &mut counting);
        };
        pair.used = self.packets;
        let bytes = match packet.version {
            IPFIX => pair.empty.filled(packet.bytes),
            _ => Cow::Borrowed(packet.bytes),
        };
        let parsed = pair.parser.parse_bytes(&bytes);
        counting.add("flows_packets", 1);
        let late_ns = received_ns.saturating_sub(packet.sent_ns);
        if (0..=packet.sent_slack_ns).contains(&late_ns) {
            // It came in the second in which it was sent: the moment is better known than stated.
            (packet.sent_ns, packet.sent_slack_ns) = (received_ns, 0);
        }
        let step_ns = if late_ns.abs() > CLOCK_NS_MAX { late_ns } else { 0 };
        let exporter =
            Exporter { addr: exporter, domain: packet.domain, sampling_rate: pair.sampling_rate };
        let mut reading = Reading { packet, pair, exporter, step_ns, counting };
        for packet in &parsed.packets {
            match packet {
                NetflowPacket::V5(v5) => reading.v5(v5, &mut take),
                NetflowPacket::V9(v9) => reading.v9(v9, &mut take),
                NetflowPacket::IPFix(ipfix) => reading.ipfix(ipfix, &mut take),
                _ => {}
            }
        }
        reading.count_templates();
        match parsed.error {
            Some(_) => refused("flows_parser", &mut reading.counting),
            None => Ok(()),
        }
    }

    /// Parsers with templates, for tests of the bounds.
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }
}

/// The counts of an exporter; beyond [`ADDRESSES_MAX`] those of the unspecified address.
fn counts_of(counts: &mut BTreeMap<Addr, ExporterCounts>, exporter: Addr) -> &mut ExporterCounts {
    let is_full = counts.len() >= ADDRESSES_MAX && !counts.contains_key(&exporter);
    counts.entry(if is_full { Addr::UNSPECIFIED } else { exporter }).or_default()
}

/// Evicts the least used pair of the address if it has too many, else of all if there are too many. Returns
/// the number of evicted pairs.
fn make_room(
    pairs: &mut HashMap<(Addr, u32), Pair, foldhash::fast::RandomState>,
    exporter: Addr,
) -> u64 {
    let of_address = pairs.keys().filter(|(addr, _)| *addr == exporter).count();
    let is_own = of_address >= DOMAINS_MAX;
    if !is_own && pairs.len() < PAIRS_MAX {
        return 0;
    }
    let candidates = pairs.iter().filter(|((addr, _), _)| !is_own || *addr == exporter);
    let oldest = candidates.min_by_key(|(_, pair)| pair.used).map(|(key, _)| *key);
    oldest.and_then(|key| pairs.remove(&key)).map_or(0, |_| 1)
}

/// One packet that passed the checks.
struct Reading<'a> {
    packet: Checked<'a>,
    pair: &'a mut Pair,
    exporter: Exporter,
    step_ns: i64,
    counting: Counting<'a>,
}

impl Reading<'_> {
    fn give(&mut self, fields: &Fields, take: &mut impl FnMut(Export)) {
        match fields.export(&self.packet, self.exporter, self.pair.boot_ms) {
            Ok(mut export) => {
                export.move_by(self.step_ns);
                self.counting.add("flows_clock", u64::from(self.step_ns != 0));
                self.counting.add("flows_records", 1);
                take(export);
            }
            Err(kind) => self.counting.add(kind, 1),
        }
    }

    /// Takes the fields of an options record: sampling, and the time of boot.
    fn options(&mut self, fields: &Fields) {
        self.counting.add("flows_options", 1);
        if let Some(rate) = fields.sampling_rate() {
            self.pair.sampling_rate = Some(rate);
            self.exporter.sampling_rate = Some(rate);
        }
        self.pair.boot_ms = fields.boot_ms().or(self.pair.boot_ms);
    }

    fn v5(&mut self, v5: &V5, take: &mut impl FnMut(Export)) {
        // The two high bits are the mode.
        let rate = u64::from(v5.header.sampling_interval & 0x3fff);
        self.exporter.sampling_rate = (rate > 0).then_some(rate);
        for record in &v5.flowsets {
            let mut fields = Fields::default();
            let number =
                |number: u64| FieldValue::DataNumber(netflow_parser::DataNumber::U64(number));
            fields.take(Iana::SourceIpv4address, &FieldValue::Ip4Addr(record.src_addr));
            fields.take(Iana::DestinationIpv4address, &FieldValue::Ip4Addr(record.dst_addr));
            fields.take(Iana::ProtocolIdentifier, &number(record.protocol_number.into()));
            fields.take(Iana::SourceTransportPort, &number(record.src_port.into()));
            fields.take(Iana::DestinationTransportPort, &number(record.dst_port.into()));
            fields.take(Iana::PacketDeltaCount, &number(record.d_pkts.into()));
            fields.take(Iana::OctetDeltaCount, &number(record.d_octets.into()));
            fields.take(Iana::FlowStartSysUpTime, &number(record.first.into()));
            fields.take(Iana::FlowEndSysUpTime, &number(record.last.into()));
            self.give(&fields, take);
        }
    }

    fn v9(&mut self, v9: &V9, take: &mut impl FnMut(Export)) {
        let fields_of = |record: &[(V9Field, FieldValue)]| {
            let mut fields = Fields::default();
            for (field, value) in record {
                fields.take(Iana::from(u16::from(*field)), value);
            }
            fields
        };
        for set in &v9.flowsets {
            match &set.body {
                V9Body::Data(data) => {
                    data.fields.iter().for_each(|record| self.give(&fields_of(record), take));
                }
                V9Body::OptionsData(data) => {
                    let records = data.fields.iter().map(|record| &record.options_fields);
                    records.for_each(|record| self.options(&fields_of(record)));
                }
                V9Body::NoTemplate(_) => self.counting.add("flows_no_template", 1),
                _ => {}
            }
        }
    }

    fn ipfix(&mut self, ipfix: &IPFix, take: &mut impl FnMut(Export)) {
        let fields_of = |record: &[(IpfixField, FieldValue)]| {
            let mut fields = Fields::default();
            for (field, value) in record {
                match field {
                    IpfixField::IANA(field) => fields.take(*field, value),
                    IpfixField::ReverseInformationElement(field) => {
                        fields.take_reverse(*field, value);
                    }
                    _ => {}
                }
            }
            fields
        };
        for set in &ipfix.flowsets {
            match &set.body {
                IpfixBody::Data(data) => {
                    data.fields.iter().for_each(|record| self.give(&fields_of(record), take));
                }
                IpfixBody::OptionsData(data) => {
                    data.fields.iter().for_each(|record| self.options(&fields_of(record)));
                }
                IpfixBody::NoTemplate(_) => self.counting.add("flows_no_template", 1),
                _ => {}
            }
        }
    }

    /// Counts the templates that the packet changed or displaced.
    fn count_templates(&mut self) {
        let caches = [self.pair.parser.v9_cache_info(), self.pair.parser.ipfix_cache_info()];
        let evictions = caches.iter().map(|cache| cache.metrics.evictions).sum();
        let collisions = caches.iter().map(|cache| cache.metrics.collisions).sum();
        let evicted = evictions - std::mem::replace(&mut self.pair.evictions, evictions);
        let changed = collisions - std::mem::replace(&mut self.pair.collisions, collisions);
        self.counting.add("flows_templates_evicted", evicted);
        self.counting.add("flows_templates_changed", changed);
    }
}
