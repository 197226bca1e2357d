//! The JSON of the page.
//!
//! Names have the spelling of the query log: printable ASCII, with other bytes as `\DDD`. So a name has no control
//! bytes and no marks that turn the direction of text, whatever a client sent.

use std::net::IpAddr;

use larder_serve::recent::Recent;
use larder_serve::server_page::{percent, times};
use serde_json::{Value, json};

use super::notes::Note;
use super::seen::{CLIENTS_MAX, NameRow};
use super::{DnsPage, DnsShown, dropped};
use crate::core::Source;
use crate::presentation::{push_name, push_rcode, push_type};

/// Rows of a list.
const ROWS_MAX: usize = 100;

/// A name in the spelling of the query log, with its dot; `-` without a name.
fn spelled(wire: &[u8]) -> String {
    if wire.is_empty() {
        return "-".to_owned();
    }
    let mut text = String::new();
    push_name(&mut text, wire);
    text
}

fn type_of(qtype: u16) -> String {
    let mut text = String::new();
    push_type(&mut text, qtype);
    text
}

/// `/api/stats`.
pub(super) fn stats(page: &DnsPage) -> Value {
    let counts = page.shown.figures.counts();
    let cache = page.shown.figures.cache.stats().ok();
    let upstreams = page.shown.figures.published.upstreams.health();
    let state = page.state();
    let kept = &state.kept;
    let of = |name: &str| state.of_minute(name);
    let answers = ["noerror", "nxdomain", "servfail", "refused", "other"].map(of).iter().sum();
    json!({
        "program": "dns",
        "version": env!("CARGO_PKG_VERSION"),
        "listen": page.shown.listen,
        "uptime_s": page.shown.figures.up_s().round(),
        "queries_s": state.rate("queries"),
        "queries": counts.all_queries(),
        "hit_percent": percent(of("hits"), of("hits") + of("misses")),
        "stale": of("stale"),
        "hit_us": times(&kept.seen.hits()),
        "miss_us": times(&kept.misses.until(&counts.miss)),
        "servfail_percent": percent(of("servfail"), answers),
        "blocked_percent": percent(of("blocked"), answers),
        "blocked": counts.local_answers_blocked + counts.local_answers_rpz,
        "dropped": of("dropped"),
        "dropped_all": dropped(&counts),
        "failures": of("failures"),
        "upstreams": upstreams.len(),
        "upstreams_up": upstreams.iter().filter(|upstream| upstream.is_up).count(),
        "entries": cache.as_ref().map(|stats| stats.entries),
        "cache_bytes": cache.as_ref().map(|stats| stats.charge_bytes),
        "cache_bytes_max": cache.as_ref().map(|stats| stats.charge_bytes_max),
        "evicted": cache.as_ref().map(|stats| stats.evicted),
        "weight_max": kept.seen.weight_max(),
        "notes_lost": counts.page_notes_dropped,
    })
}

/// `/api/recent`.
pub(super) fn recent(page: &DnsPage) -> Value {
    let health = page.shown.figures.published.upstreams.health();
    let upstreams = health.iter().map(|upstream| {
        json!({
            "address": upstream.address,
            "is_up": upstream.is_up,
            "round_trip_us": upstream.round_trip_us.map(f64::round),
            "failures": upstream.failures,
        })
    });
    let backends = page.shown.figures.backend_metrics();
    let backends = backends.iter().filter_map(|metric| {
        let (label, value) = metric.label.as_ref()?;
        (*label == "upstream")
            .then(|| json!({ "address": value, "name": metric.name, "value": metric.value }))
    });
    let state = page.state();
    json!({
        "upstreams": upstreams.collect::<Value>(),
        "backends": backends.collect::<Value>(),
        "tail": state.kept.seen.tail.iter().rev().map(|note| page.shown.line(note)).collect::<Value>(),
    })
}

/// `/api/lists`.
pub(super) fn lists(page: &DnsPage, now_s: u64) -> Value {
    let state = page.state();
    let (seen, shown) = (&state.kept.seen, &page.shown);
    let clients = seen.clients.merged(now_s, ROWS_MAX).into_iter().map(|(client, row)| {
        json!({
            "address": shown.client(client),
            "responses": row.responses,
            "blocked": row.blocked,
            "nxdomain": row.nxdomain,
        })
    });
    json!({
        "now_s": now_s,
        "window_s": seen.names.window_s(),
        "names": shown.names(&seen.names, now_s),
        "clients": clients.collect::<Value>(),
        "blocked": shown.names(&seen.blocked, now_s),
    })
}

impl DnsShown {
    /// A row of the last responses.
    fn line(&self, note: &Note) -> Value {
        let mut rcode = String::new();
        push_rcode(&mut rcode, note.rcode);
        json!({
            "unix_ms": note.unix_ms,
            "client": self.client(note.client),
            "transport": note.protocol.word(),
            "name": spelled(&note.name),
            "type": type_of(note.qtype),
            "rcode": rcode,
            "source": if note.source == Source::Blocked { "blocked" } else { note.source.word() },
            "duration_us": note.duration_us,
        })
    }

    /// A client, or its network.
    fn client(&self, client: IpAddr) -> String {
        match self.prefix {
            Some(prefix) => prefix.of((client, 0).into()).to_string(),
            None => client.to_string(),
        }
    }

    /// The rows of a table of names.
    fn names(&self, names: &Recent<Box<[u8]>, NameRow>, now_s: u64) -> Value {
        let rows = names.merged(now_s, ROWS_MAX).into_iter().map(|(name, row)| {
            json!({
                "name": spelled(&name),
                "type": type_of(row.qtype),
                "responses": row.responses,
                "hit_percent": percent(row.hits, row.lookups),
                "misses": row.lookups - row.hits.min(row.lookups),
                "failures": row.failures,
                "client": self.client(row.client),
                "clients": row.clients.len(),
                "has_more_clients": row.clients.len() >= CLIENTS_MAX,
            })
        });
        rows.collect()
    }
}
