//! The JSON of the page.
//!
//! Names have the spelling of logs: printable ASCII, with other bytes as `\xHH`. So a name has no
//! control bytes and no marks that turn the direction of text, whatever a packet had.

use larder_wire::{Addr, Name};
use serde_json::{Value, json};

use super::history::Sample;
use super::{Shared, State, now_s};
use crate::live::CaptureStats;
use crate::options::Options;
use crate::record::NameSource;
use crate::seen::{CLIENTS_MAX, OddRow, Server, Traffic};

/// Rows of a list.
const ROWS_MAX: usize = 100;

/// The metrics that count dropped packets.
pub(super) const DROPS: [&str; 3] =
    ["kernel_dropped_total", "store_packets_dropped_total", "store_packets_lost_total"];

/// Facts of the run that do not change.
pub(super) struct Facts {
    /// Interfaces, or files.
    inputs: Vec<String>,
    is_live: bool,
    /// Bytes that the store may have, and its folder; `None` without a store.
    store: Option<(u64, String)>,
}

impl Facts {
    pub fn of(
        options: &Options,
        capture: Option<&CaptureStats>,
        store: Option<&larder_store::Options>,
    ) -> Facts {
        let interfaces = capture.map(|capture| {
            capture.interfaces().iter().map(|interface| interface.name.clone()).collect()
        });
        let files = || options.read.iter().map(crate::options::Endpoint::name).collect();
        Facts {
            is_live: capture.is_some(),
            inputs: interfaces.unwrap_or_else(files),
            store: store.map(|store| (store.budget_bytes, store.directory.display().to_string())),
        }
    }
}

/// A name in the spelling of logs.
pub(super) fn spelled(name: &Name) -> String {
    let mut text = Vec::new();
    Name::write_escaped(name.as_bytes(), &mut text);
    // It is ASCII.
    String::from_utf8_lossy(&text).into_owned()
}

impl Shared {
    /// `/api/stats`.
    pub(super) fn stats(&self) -> Vec<u8> {
        let metrics = self.figures.metrics();
        let sum = |name: &str| -> f64 {
            // The sum of no floats is -0.
            let of_name = metrics.iter().filter(|metric| metric.name == name);
            of_name.fold(0.0, |sum, metric| sum + metric.value)
        };
        let segments = self.catalog.list();
        let store = self.facts.store.as_ref().map(|(budget_bytes, directory)| {
            json!({
                "directory": directory,
                "budget_bytes": budget_bytes,
                "bytes": segments.iter().map(|segment| segment.bytes).sum::<u64>(),
                "packets": segments.iter().map(|segment| segment.packets).sum::<u64>(),
                "first_ns": segments.iter().filter_map(|segment| segment.first_ns).min(),
                "last_ns": segments.iter().filter_map(|segment| segment.last_ns).max(),
                "dropped": sum(DROPS[1]) + sum(DROPS[2]),
            })
        });
        let state = self.state();
        let last = Sample::of(state.history.samples.last());
        let rate = |sum: u64| sum as f64 / last.seconds.max(1) as f64;
        let stats = json!({
            "program": "annotate",
            "version": env!("CARGO_PKG_VERSION"),
            "inputs": self.facts.inputs,
            "is_live": self.facts.is_live,
            "uptime_s": self.figures.now_ms() / 1_000,
            "now_s": now_s(),
            "begun_s": state.begun_s,
            "poll_ms": self.demand.poll_ms(),
            "packets_s": rate(last.packets),
            "bits_s": rate(last.bytes.saturating_mul(8)),
            "flows_s": rate(last.flows),
            "flows": sum("flows"),
            "packets": sum("packets_total"),
            "names": sum("names"),
            "named_percent": state.history.named_percent(),
            "kernel_dropped": sum(DROPS[0]),
            "dropped": DROPS.iter().map(|name| sum(name)).sum::<f64>(),
            "records_lost": sum("records_lost_total"),
            "notes_lost": sum("page_records_lost_total"),
            "delay_ms": last.delay_ms,
            "store": store,
        });
        stats.to_string().into_bytes()
    }

    /// `/api/lists`.
    pub(super) fn lists(&self) -> Vec<u8> {
        lists(&self.state(), now_s()).to_string().into_bytes()
    }
}

fn lists(state: &State, now_s: u64) -> Value {
    let seen = &state.seen;
    let today = seen.today();
    let is_new = |bytes: &[u8]| seen.known.first_day(bytes) == Some(today);
    let names = seen.names.merged(now_s, ROWS_MAX).into_iter().map(|(name, row)| {
        json!({
            "name": spelled(&name),
            "flows": row.traffic.flows,
            "bytes": row.traffic.bytes,
            "clients": row.clients.len(),
            "has_more_clients": row.clients.len() >= CLIENTS_MAX,
            "source": row.source.as_str(),
            "is_new": is_new(name.as_bytes()),
        })
    });
    let clients = seen.clients.merged(now_s, ROWS_MAX).into_iter().map(|(client, row)| {
        json!({
            "address": client.to_string(),
            "name": row.name.as_ref().map(spelled),
            "flows": row.traffic.flows,
            "bytes": row.traffic.bytes,
            "is_new": is_new(&client.0),
        })
    });
    let unresolved = seen.unresolved.merged(now_s, ROWS_MAX);
    let unresolved = unresolved.into_iter().map(|(_, row)| odd(&row, None));
    let conflicts = seen.conflicts.merged(now_s, ROWS_MAX);
    let conflicts = conflicts.into_iter().map(|((_, looked_up), row)| odd(&row, Some(&looked_up)));
    let new_names = seen.new_names.iter().rev().take(ROWS_MAX).map(|new| {
        json!({
            "name": spelled(&new.name),
            "first_ns": new.first_ns,
            "client": new.client.to_string(),
        })
    });
    let sources = NameSource::ALL.iter().zip(&seen.sources).filter(|(_, flows)| **flows > 0);
    json!({
        "now_s": now_s,
        "begun_s": state.begun_s,
        "window_s": seen.names.window_s(),
        "odd_window_s": seen.unresolved.window_s(),
        "names": names.collect::<Value>(),
        "clients": clients.collect::<Value>(),
        "new_names": new_names.collect::<Value>(),
        "new_names_all": seen.new_names.len(),
        "unresolved": unresolved.collect::<Value>(),
        "conflicts": conflicts.collect::<Value>(),
        "sources": sources.map(|(source, flows)| json!([source.as_str(), flows])).collect::<Value>(),
        "reasons":
            seen.reasons.iter().map(|(why, flows)| json!([why.as_str(), flows])).collect::<Value>(),
    })
}

/// A row of unresolved destinations, or of conflicts.
fn odd(row: &OddRow, looked_up: Option<&Name>) -> Value {
    let OddRow { traffic: Traffic { flows, bytes }, first_ns, last_ns, client, server, .. } = row;
    let Server { addr, port, protocol } = server;
    json!({
        "stated": row.stated.as_ref().map(spelled),
        "looked_up": looked_up.map(spelled),
        "address": addr.to_string(),
        "is_v4": addr.is_v4(),
        "port": port,
        "protocol": protocol_name(*protocol),
        "client": Addr::to_string(client),
        "flows": flows,
        "bytes": bytes,
        "first_ns": first_ns,
        "last_ns": last_ns,
    })
}

/// A protocol as flows are spelled in a search.
fn protocol_name(protocol: u8) -> String {
    match protocol {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmp6".to_owned(),
        132 => "sctp".to_owned(),
        other => other.to_string(),
    }
}
