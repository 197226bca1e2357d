//! The summary of a run.

use std::collections::BTreeMap;

use larder_serve::histogram::Histogram;

use crate::record::{End, EndReason, FlowRecord, NameFlags, NameSource};

/// The result of a run: all numbers of the summary and of `stats.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Packets read.
    pub packets: u64,
    /// Packets read for names only, besides.
    pub packets_for_names: u64,
    /// Bytes of capture read, after decompression.
    pub input_bytes: u64,
    /// Times of the packets; `None` without packets.
    pub times: Option<Times>,
    /// Flow records made.
    pub flows: u64,
    /// Flow records whose destination is named, or could be (not multicast or broadcast).
    pub flows_nameable: u64,
    /// Flow records with a named destination.
    pub flows_named: u64,
    /// The same by source of the name.
    pub flows_named_by: BTreeMap<NameSource, u64>,
    /// Flow records without, by reason.
    pub flows_unnamed_by: BTreeMap<&'static str, u64>,
    /// Named destinations that had rivals.
    pub ambiguous: u64,
    /// Named destinations past their TTL.
    pub stale: u64,
    /// Names learned after their flow began.
    pub late: u64,
    /// Flows that state a name of another registered domain than DNS gave.
    pub conflicts: u64,
    /// Named destinations by flag: [`NameFlags::UNSOLICITED`] and the flags after it.
    pub unsolicited: u64,
    /// See [`Summary::unsolicited`].
    pub one_sided: u64,
    /// See [`Summary::unsolicited`].
    pub unconfirmed: u64,
    /// See [`Summary::unsolicited`].
    pub claimed: u64,
    /// Flows ended because the table was full.
    pub flows_evicted: u64,
    /// DNS (and mDNS, LLMNR, NBNS, DHCP) messages that gave a name.
    pub answers: u64,
    /// Addresses (and client-address pairs) known at the end.
    pub names_known: u64,
    /// Names that were evicted.
    pub names_evicted: u64,
    /// Names that were not learned because they are IP addresses.
    pub names_refused: u64,
    /// Damage by kind: count, and file offset of the first.
    pub damaged: Damages,
    /// Sound packets of protocols that larder does not read, by kind.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Lookups made for single packets (`--lookup packet`).
    pub lookups: u64,
    /// Lookups that found a name.
    pub lookup_hits: u64,
    /// Durations of single lookups ([`time_lookups`](super::Options::time_lookups)).
    pub lookup_times: Histogram,
    /// Packets of files before the filter that took [`Summary::packets`]; `None` without a filter,
    /// and if not all were read.
    pub filtered_of: Option<u64>,
    /// Counts by kind of each exporter of flows; empty without one.
    pub exporters: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// Packets from each interface, and dropped ones; empty for files.
    pub captured: Vec<Dropped>,
    /// Counts of the packet store, by name; `None` without one.
    pub kept: Option<Vec<(&'static str, u64)>>,
    /// The input was cut short or damaged (exit 1, with `--strict` 2).
    pub input_damaged: bool,
    /// The run was interrupted (exit 130).
    pub interrupted: bool,
    /// The input has no end of its own: interfaces, or exports of a socket.
    pub is_endless: bool,
    /// Why a live capture ended, and the next step (exit 2).
    pub failure: Option<String>,
}

/// Times of the packets that were read, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Of the first one.
    pub first_ns: i64,
    /// The greatest.
    pub latest_ns: i64,
    /// Of the last one.
    pub last_ns: i64,
    /// The last second that two packets in a row have reached: what the packets' clock says. `None` of one packet.
    pub clock_ns: Option<i64>,
}

impl Times {
    /// As `stats.json` has them: whole seconds.
    fn seconds(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let Times { first_ns, latest_ns, last_ns, clock_ns } = *self;
        let known = [
            ("first_s", Some(first_ns)),
            ("latest_s", Some(latest_ns)),
            ("last_s", Some(last_ns)),
            ("clock_s", clock_ns),
        ];
        known
            .into_iter()
            .filter_map(|(name, ns)| Some((name, ns?.div_euclid(1_000_000_000).to_string())))
    }
}

/// Packets of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// The interface.
    pub interface: String,
    /// Packets that the kernel put into rings.
    pub received: u64,
    /// Packets that the kernel dropped because the rings were full.
    pub dropped: u64,
}

/// Damage by kind.
pub type Damages = BTreeMap<&'static str, Damage>;

/// Adds damage of one kind. The place that was added first stays.
pub fn add_damage(damages: &mut Damages, kind: &'static str, damage: Damage) {
    let count = damage.count;
    damages.entry(kind).or_insert(Damage { count: 0, ..damage }).count += count;
}

/// The count, and the first place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Occurrences.
    pub count: u64,
    /// Offset of the first in the (decompressed) input, bytes.
    pub first_offset: u64,
    /// The file of the first.
    pub first_file: String,
}

impl Summary {
    /// Adds the flow counts of one worker.
    pub fn add_flows(&mut self, other: &Summary) {
        self.flows += other.flows;
        self.flows_nameable += other.flows_nameable;
        self.flows_named += other.flows_named;
        self.ambiguous += other.ambiguous;
        self.stale += other.stale;
        self.late += other.late;
        self.conflicts += other.conflicts;
        self.unsolicited += other.unsolicited;
        self.one_sided += other.one_sided;
        self.unconfirmed += other.unconfirmed;
        self.claimed += other.claimed;
        self.flows_evicted += other.flows_evicted;
        for (source, count) in &other.flows_named_by {
            *self.flows_named_by.entry(*source).or_default() += count;
        }
        for (reason, count) in &other.flows_unnamed_by {
            *self.flows_unnamed_by.entry(reason).or_default() += count;
        }
    }

    /// `stats.json`: one object, counts only.
    pub fn to_json(&self) -> String {
        fn object<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> String {
            let pairs: Vec<String> =
                pairs.map(|(key, value)| format!("\"{key}\": {value}")).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        let named = self.flows_named_by.iter().map(|(by, n)| (by.as_str(), n.to_string()));
        let unnamed = self.flows_unnamed_by.iter().map(|(why, n)| (*why, n.to_string()));
        let skipped = self.skipped.iter().map(|(what, n)| (*what, n.to_string()));
        let damaged = self.damaged.iter().map(|(kind, damage)| {
            let offset = damage.first_offset.to_string();
            let count = damage.count.to_string();
            (*kind, object([("count", count), ("first_offset", offset)].into_iter()))
        });
        let captured = self.captured.iter().map(|one| {
            let counts = [("received", one.received), ("dropped", one.dropped)];
            let counts = counts.into_iter().map(|(name, n)| (name, n.to_string()));
            (one.interface.as_str(), object(counts))
        });
        let exporters = self.exporters.iter().map(|(exporter, counts)| {
            let counts = counts.iter().map(|(kind, n)| (*kind, n.to_string()));
            (exporter.as_str(), object(counts))
        });
        let times = self.times.iter().flat_map(Times::seconds);
        let kept = self.kept.iter().flatten().map(|(name, n)| (*name, n.to_string()));
        let fields = [
            ("captured", object(captured)),
            ("exporters", object(exporters)),
            ("kept", object(kept)),
            ("packets", self.packets.to_string()),
            ("packets_for_names", self.packets_for_names.to_string()),
            ("input_bytes", self.input_bytes.to_string()),
            ("times", object(times)),
            ("flows", self.flows.to_string()),
            ("flows_nameable", self.flows_nameable.to_string()),
            ("flows_named", self.flows_named.to_string()),
            ("flows_named_by", object(named)),
            ("flows_unnamed_by", object(unnamed)),
            ("ambiguous", self.ambiguous.to_string()),
            ("stale", self.stale.to_string()),
            ("late", self.late.to_string()),
            ("conflicts", self.conflicts.to_string()),
            ("unsolicited", self.unsolicited.to_string()),
            ("one_sided", self.one_sided.to_string()),
            ("unconfirmed", self.unconfirmed.to_string()),
            ("claimed", self.claimed.to_string()),
            ("flows_evicted", self.flows_evicted.to_string()),
            ("answers", self.answers.to_string()),
            ("names_known", self.names_known.to_string()),
            ("names_evicted", self.names_evicted.to_string()),
            ("names_refused", self.names_refused.to_string()),
            ("lookups", self.lookups.to_string()),
            ("lookup_hits", self.lookup_hits.to_string()),
            ("skipped", object(skipped)),
            ("damaged", object(damaged)),
            ("interrupted", self.interrupted.to_string()),
        ];
        let lines: Vec<String> =
            fields.iter().map(|(key, value)| format!("  \"{key}\": {value}")).collect();
        format!("{{\n{}\n}}\n", lines.join(",\n"))
    }

    /// Counts the flow of a record.
    pub fn count(&mut self, record: &FlowRecord) {
        self.flows += 1;
        self.flows_evicted += u64::from(record.end_reason == EndReason::Evicted);
        if !record.destination.addr.is_multicast_or_broadcast() {
            self.count_destination(&record.destination);
        }
    }

    /// Counts a flow by the source of its destination's name, or by the reason for none.
    pub fn count_destination(&mut self, destination: &End) {
        self.flows_nameable += 1;
        match (&destination.naming, destination.unnamed_reason) {
            (Some(naming), _) => {
                self.flows_named += 1;
                *self.flows_named_by.entry(naming.source).or_default() += 1;
                for (sum, flag) in [
                    (&mut self.ambiguous, NameFlags::AMBIGUOUS),
                    (&mut self.stale, NameFlags::STALE),
                    (&mut self.late, NameFlags::LATE),
                    (&mut self.conflicts, NameFlags::CONFLICT),
                    (&mut self.unsolicited, NameFlags::UNSOLICITED),
                    (&mut self.one_sided, NameFlags::ONE_SIDED),
                    (&mut self.unconfirmed, NameFlags::UNCONFIRMED),
                    (&mut self.claimed, NameFlags::CLAIMED),
                ] {
                    *sum += u64::from(naming.flags.has(flag));
                }
            }
            (None, Some(reason)) => {
                *self.flows_unnamed_by.entry(reason.as_str()).or_default() += 1;
            }
            (None, None) => {}
        }
    }
}
