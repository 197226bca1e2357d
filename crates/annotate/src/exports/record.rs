//! One exported flow: the fields of a data record, and its form in a sorter.
//!
//! Exporters state the time of a flow in many ways: absolute (seconds to nanoseconds), since the exporter
//! booted (v5, v9), before the packet was sent. Here all are absolute, on the clock of the exporter, and
//! [`Export::slack_ns`] is how much later than stated the flow may have begun, since most round down.
//!
//! A record has one direction, or both (RFC 5103, or fields of initiator and responder). Counters stay as
//! exported; nothing is multiplied by the sampling rate.
//!
//! The form in a sorter is private to a run: 140 bytes, numbers little-endian.

use larder_wire::Addr;
use netflow_parser::variable_versions::field_value::{DurationValue, FieldValue};
use netflow_parser::variable_versions::ipfix::lookup::{
    IANAIPFixField as Iana, ReverseInformationElement as Reverse,
};

use super::check::Checked;
use crate::flow::protocol;
use crate::record::Exporter;

/// Seconds from 1900 to 1970: times in the format of NTP begin in 1900.
const NTP_SECONDS: u32 = 2_208_988_800;
const MS_NS: i64 = 1_000_000;

/// One flow of an exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// The exporter, and its sampling rate.
    pub exporter: Exporter,
    /// First packet, ns since 1970 UTC.
    pub start_ns: i64,
    /// Last packet, ns since 1970 UTC.
    pub end_ns: i64,
    /// The flow began up to this much later than `start_ns`, ns.
    pub slack_ns: i64,
    /// IP protocol number.
    pub protocol: u8,
    /// The sender of the record's packets.
    pub source: (Addr, u16),
    /// Their receiver.
    pub destination: (Addr, u16),
    /// Packets and bytes from source to destination.
    pub sent: [u64; 2],
    /// Packets and bytes back, where the record has both directions.
    pub received: [u64; 2],
    /// The exporter states which end began.
    pub is_oriented: bool,
}

/// Collects the fields of one record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fields {
    source: Option<Addr>,
    destination: Option<Addr>,
    source_port: u16,
    destination_port: u16,
    protocol: u8,
    sent: [u64; 2],
    received: [u64; 2],
    start: Time,
    end: Time,
    duration_ms: Option<u64>,
    boot_ms: Option<u64>,
    icmp: Option<(u16, u16)>,
    direction: u64,
    has_both_ends: bool,
    interval: Option<u64>,
    space: u64,
}

/// A time as a record has it.
#[derive(Clone, Copy, Debug, Default)]
enum Time {
    #[default]
    Absent,
    /// ns since 1970, and the slack.
    Absolute(i64, i64),
    /// ms since the exporter booted.
    Uptime(u32),
    /// µs before the packet was sent.
    Before(u64),
}

impl Fields {
    /// Takes a field of an IPFIX or v9 record. Fields that larder has no use for are ignored.
    pub fn take(&mut self, field: Iana, value: &FieldValue) {
        match (field, value) {
            (Iana::SourceIpv4address | Iana::SourceIpv6address, value) => {
                self.source = addr(value).or(self.source);
            }
            (Iana::DestinationIpv4address | Iana::DestinationIpv6address, value) => {
                self.destination = addr(value).or(self.destination);
            }
            (Iana::ProtocolIdentifier, value) => self.protocol = value.as_u8().unwrap_or(0),
            (_, FieldValue::Duration(time)) => self.take_time(field, time),
            (_, value) => {
                if let Some(number) = value.as_u64() {
                    self.take_number(field, number);
                }
            }
        }
    }

    fn take_time(&mut self, field: Iana, time: &DurationValue) {
        match field {
            Iana::FlowStartSeconds
            | Iana::FlowStartMilliseconds
            | Iana::FlowStartMicroseconds
            | Iana::FlowStartNanoseconds => self.start = absolute(time),
            Iana::FlowEndSeconds
            | Iana::FlowEndMilliseconds
            | Iana::FlowEndMicroseconds
            | Iana::FlowEndNanoseconds => self.end = absolute(time),
            // In v9 these are durations.
            _ => {
                if let DurationValue::Millis { value, .. } = time {
                    self.take_number(field, *value);
                }
            }
        }
    }

    fn take_number(&mut self, field: Iana, number: u64) {
        let short = number as u16;
        match field {
            Iana::PacketDeltaCount | Iana::PacketTotalCount => self.sent[0] = number,
            Iana::OctetDeltaCount | Iana::OctetTotalCount => self.sent[1] = number,
            Iana::PostPacketDeltaCount if self.sent[0] == 0 => self.sent[0] = number,
            Iana::PostOctetDeltaCount if self.sent[1] == 0 => self.sent[1] = number,
            Iana::InitiatorPackets => (self.sent[0], self.has_both_ends) = (number, true),
            Iana::InitiatorOctets => (self.sent[1], self.has_both_ends) = (number, true),
            Iana::ResponderPackets => (self.received[0], self.has_both_ends) = (number, true),
            Iana::ResponderOctets => (self.received[1], self.has_both_ends) = (number, true),
            Iana::SourceTransportPort => self.source_port = short,
            Iana::DestinationTransportPort => self.destination_port = short,
            Iana::FlowStartSysUpTime => self.start = Time::Uptime(number as u32),
            Iana::FlowEndSysUpTime => self.end = Time::Uptime(number as u32),
            Iana::FlowStartDeltaMicroseconds => self.start = Time::Before(number),
            Iana::FlowEndDeltaMicroseconds => self.end = Time::Before(number),
            Iana::FlowDurationMilliseconds => self.duration_ms = Some(number),
            Iana::SystemInitTimeMilliseconds => self.boot_ms = Some(number),
            Iana::IcmpTypeCodeIpv4 | Iana::IcmpTypeCodeIpv6 => {
                self.icmp = Some((short >> 8, short & 0xff));
            }
            Iana::IcmpTypeIpv4 | Iana::IcmpTypeIpv6 => {
                self.icmp = Some((short & 0xff, self.icmp.map_or(0, |(_, code)| code)));
            }
            Iana::IcmpCodeIpv4 | Iana::IcmpCodeIpv6 => {
                self.icmp = Some((self.icmp.map_or(0, |(kind, _)| kind), short & 0xff));
            }
            Iana::BiflowDirection => self.direction = number,
            Iana::SamplingInterval | Iana::SamplerRandomInterval | Iana::SamplingPacketInterval => {
                self.interval = Some(number);
            }
            Iana::SamplingPacketSpace => self.space = number,
            _ => {}
        }
    }

    /// Takes a field about the way back (RFC 5103).
    pub fn take_reverse(&mut self, field: Reverse, value: &FieldValue) {
        let Some(number) = value.as_u64() else { return };
        match field {
            Reverse::ReversePacketDeltaCount | Reverse::ReversePacketTotalCount => {
                self.received[0] = number;
            }
            Reverse::ReverseOctetDeltaCount | Reverse::ReverseOctetTotalCount => {
                self.received[1] = number;
            }
            _ => return,
        }
        self.has_both_ends = true;
    }

    /// The sampling rate that the fields state: one of this many packets was seen.
    pub fn sampling_rate(&self) -> Option<u64> {
        let interval = self.interval.filter(|interval| *interval > 0)?;
        // With a space (RFC 5477, section 8.2.2) the interval is the packets that were seen together.
        Some(if self.space > 0 { interval.saturating_add(self.space) / interval } else { interval })
    }

    /// The time at which the exporter booted, if an options record states it, ms since 1970.
    pub fn boot_ms(&self) -> Option<u64> {
        self.boot_ms
    }

    /// The flow. `boot_ms`: when the exporter booted, where the packet does not tell.
    ///
    /// # Errors
    /// The kind of damage: `flows_no_address`, `flows_no_time`.
    pub fn export(
        &self,
        packet: &Checked<'_>,
        exporter: Exporter,
        boot_ms: Option<u64>,
    ) -> Result<Export, &'static str> {
        let (Some(source), Some(destination)) = (self.source, self.destination) else {
            return Err("flows_no_address");
        };
        let boot_ms = self.boot_ms.or(boot_ms);
        let start = self.start.resolve(packet, boot_ms);
        let end = self.end.resolve(packet, boot_ms);
        let duration_ns =
            i64::try_from(self.duration_ms.unwrap_or(0)).unwrap_or(0).saturating_mul(MS_NS);
        let (start_ns, slack_ns, end_ns) = match (start, end) {
            (Some((start_ns, slack_ns)), Some((end_ns, _))) => (start_ns, slack_ns, end_ns),
            (Some((start_ns, slack_ns)), None) => {
                (start_ns, slack_ns, start_ns.saturating_add(duration_ns))
            }
            (None, Some((end_ns, slack_ns))) => {
                (end_ns.saturating_sub(duration_ns), slack_ns, end_ns)
            }
            (None, None) => return Err("flows_no_time"),
        };
        let is_icmp = matches!(self.protocol, protocol::ICMP | protocol::ICMP6);
        let (source_port, destination_port) = match (is_icmp, self.icmp) {
            (true, Some(icmp)) => icmp,
            // v5 and many exporters of v9 have type and code in the destination's port.
            (true, None) => (self.destination_port >> 8, self.destination_port & 0xff),
            (false, _) => (self.source_port, self.destination_port),
        };
        let export = Export {
            exporter: Exporter {
                sampling_rate: self.sampling_rate().or(exporter.sampling_rate),
                ..exporter
            },
            start_ns,
            end_ns: end_ns.max(start_ns),
            slack_ns,
            protocol: self.protocol,
            source: (source, source_port),
            destination: (destination, destination_port),
            sent: self.sent,
            received: self.received,
            is_oriented: self.has_both_ends || matches!(self.direction, 1 | 2),
        };
        Ok(if self.direction == 2 { export.turned() } else { export })
    }
}

impl Time {
    /// ns since 1970 and the slack.
    fn resolve(self, packet: &Checked<'_>, boot_ms: Option<u64>) -> Option<(i64, i64)> {
        match self {
            Time::Absent => None,
            Time::Absolute(time_ns, slack_ns) => Some((time_ns, slack_ns)),
            Time::Before(us) => {
                let before_ns = i64::try_from(us).ok()?.checked_mul(1_000)?;
                Some((packet.sent_ns.checked_sub(before_ns)?, 999))
            }
            // IPFIX has no uptime; the time of boot comes with an option.
            Time::Uptime(at_ms) if packet.version == 10 => {
                let boot_ns = i64::try_from(boot_ms?).ok()?.checked_mul(MS_NS)?;
                Some((boot_ns.checked_add(i64::from(at_ms) * MS_NS)?, MS_NS - 1))
            }
            Time::Uptime(at_ms) => {
                // The counter wraps after 49 days; a time of the next half is in the future.
                let before_ms = packet.uptime_ms.wrapping_sub(at_ms).cast_signed();
                let slack_ns = packet.sent_slack_ns + MS_NS - 1;
                Some((packet.sent_ns.checked_sub(i64::from(before_ms) * MS_NS)?, slack_ns))
            }
        }
    }
}

fn absolute(time: &DurationValue) -> Time {
    let ntp = |seconds: u32, fraction: u32, slack_ns: i64| {
        let seconds = i64::from(seconds.wrapping_sub(NTP_SECONDS));
        let ns = (u64::from(fraction) * 1_000_000_000) >> 32;
        Time::Absolute(seconds * 1_000_000_000 + ns as i64, slack_ns)
    };
    let scaled = |value: u64, unit_ns: i64| {
        let time_ns = i64::try_from(value).ok().and_then(|value| value.checked_mul(unit_ns));
        time_ns.map_or(Time::Absent, |time_ns| Time::Absolute(time_ns, unit_ns - 1))
    };
    match *time {
        DurationValue::Seconds { value, .. } => scaled(value, 1_000_000_000),
        DurationValue::Millis { value, .. } => scaled(value, MS_NS),
        DurationValue::MicrosNtp { seconds, fraction } => ntp(seconds, fraction, 999),
        DurationValue::NanosNtp { seconds, fraction } => ntp(seconds, fraction, 0),
    }
}

fn addr(value: &FieldValue) -> Option<Addr> {
    match value {
        FieldValue::Ip4Addr(v4) => Some(Addr::v4(v4.octets())),
        FieldValue::Ip6Addr(v6) => Some(Addr::v6(v6.octets())),
        _ => None,
    }
}

impl Export {
    /// The same flow, written down by its other end.
    #[must_use]
    pub fn turned(self) -> Export {
        Export {
            source: self.destination,
            destination: self.source,
            sent: self.received,
            received: self.sent,
            ..self
        }
    }

    /// The latest time at which the flow can have begun, ns since 1970 UTC: its names are as of then.
    pub fn started_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.slack_ns)
    }

    /// Moves the times by `step_ns`: from the exporter's clock to that of the receiver.
    pub fn move_by(&mut self, step_ns: i64) {
        self.start_ns = self.start_ns.saturating_add(step_ns);
        self.end_ns = self.end_ns.saturating_add(step_ns);
    }

    /// Appends the form for a sorter.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.exporter.addr.0);
        out.extend_from_slice(&self.exporter.domain.to_le_bytes());
        // No exporter states the rate 0.
        out.extend_from_slice(&self.exporter.sampling_rate.unwrap_or(0).to_le_bytes());
        for time_ns in [self.start_ns, self.end_ns, self.slack_ns] {
            out.extend_from_slice(&time_ns.to_le_bytes());
        }
        out.extend_from_slice(&[self.protocol, self.is_oriented.into()]);
        for (addr, port) in [self.source, self.destination] {
            out.extend_from_slice(&addr.0);
            out.extend_from_slice(&port.to_le_bytes());
        }
        for count in self.sent.into_iter().chain(self.received) {
            out.extend_from_slice(&count.to_le_bytes());
        }
    }

    /// Reads what [`Export::write`] wrote.
    pub fn read(mut from: &[u8]) -> Option<Export> {
        let from = &mut from;
        let exporter = Exporter {
            addr: Addr(take(from)?),
            domain: u32::from_le_bytes(take(from)?),
            sampling_rate: Some(u64::from_le_bytes(take(from)?)).filter(|rate| *rate > 0),
        };
        let mut time = || take(from).map(i64::from_le_bytes);
        let (start_ns, end_ns, slack_ns) = (time()?, time()?, time()?);
        let [protocol, is_oriented] = take(from)?;
        let mut end = || Some((Addr(take(from)?), u16::from_le_bytes(take(from)?)));
        let (source, destination) = (end()?, end()?);
        let mut count = || take(from).map(u64::from_le_bytes);
        Some(Export {
            exporter,
            start_ns,
            end_ns,
            slack_ns,
            protocol,
            source,
            destination,
            sent: [count()?, count()?],
            received: [count()?, count()?],
            is_oriented: is_oriented != 0,
        })
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}
