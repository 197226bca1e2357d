//! The JSON of the page.
//!
//! URLs and methods have the spelling of the access log: printable ASCII, with other bytes as `\xHH`. So they have no
//! control bytes and no marks that turn the direction of text, whatever a client sent.

use larder_serve::recent::Recent;
use larder_serve::server_page::{percent, times};
use serde_json::{Value, json};

use super::seen::UrlRow;
use super::{HttpPage, Memory, refused};
use crate::notes::Note;

/// Rows of a list.
const ROWS_MAX: usize = 100;

/// Bytes of a client as printable ASCII.
fn spelled(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        match byte {
            b' '..=b'~' if byte != b'\\' => text.push(char::from(byte)),
            _ => {
                text.push_str("\\x");
                for digit in [byte >> 4, byte & 15] {
                    text.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
                }
            }
        }
    }
    text
}

/// `/api/stats`.
pub(super) fn stats(page: &HttpPage) -> Value {
    let counts = page.shown.figures.counts();
    let memory = Memory::of(&page.shown.figures);
    let origins = page.shown.figures.origins();
    let state = page.state();
    let of = |name: &str| state.of_minute(name);
    let cacheable = of("hits") + of("misses") + of("coalesced");
    let classes = ["2xx", "3xx", "4xx", "5xx", "other"];
    let responses = classes.iter().map(|class| of(&format!("responses_{class}"))).sum();
    let seen = state.kept.seen.times();
    json!({
        "program": "http",
        "version": env!("CARGO_PKG_VERSION"),
        "listen": page.shown.listen,
        "uptime_s": page.shown.figures.now_ms() / 1_000,
        "requests_s": state.rate("requests"),
        "requests": counts.requests,
        "sent_bits_s": state.rate("sent_bytes") * 8.0,
        "hit_percent": percent(of("hits"), cacheable),
        "byte_hit_percent":
            percent(of("sent_bytes").saturating_sub(of("received_bytes")), of("sent_bytes")),
        "coalesced": of("coalesced"),
        "coalesced_all": counts.collapsed,
        "passed_percent": percent(of("passed"), of("passed") + cacheable),
        "error_percent": percent(of("responses_5xx"), responses),
        "failures": of("failures"),
        "hit_us": times(&seen.hits),
        "miss_us": times(&seen.misses),
        "origin_us": times(&state.kept.origins.until(&counts.origin)),
        "origins": origins.len(),
        "origins_up": origins.iter().filter(|origin| origin.is_good).count(),
        "origin_connections": counts.origins_open,
        "clients": counts.clients_open,
        "refused": of("refused"),
        "refused_all": refused(&counts),
        "memory_bytes": memory.used,
        "memory_bytes_max": memory.max,
        "records": memory.records,
        "evicted": of("evicted"),
        "evicted_all": memory.evicted,
        "weight_max": seen.weight_max.max(1),
        "notes_lost": counts.page_notes_dropped,
    })
}

/// `/api/recent`.
pub(super) fn recent(page: &HttpPage) -> Value {
    let origins = page.shown.figures.origins().into_iter().map(|origin| {
        json!({
            "name": spelled(origin.name.as_bytes()),
            "is_up": origin.is_good,
            "failures": origin.failures,
            "why": origin.why,
        })
    });
    let origins: Value = origins.collect();
    let state = page.state();
    let tail: Value = state.kept.seen.tail.iter().rev().map(line).collect();
    json!({ "origins": origins, "tail": tail })
}

/// `/api/lists`.
pub(super) fn lists(page: &HttpPage, now_s: u64) -> Value {
    let state = page.state();
    let seen = &state.kept.seen;
    let clients = seen.clients.merged(now_s, ROWS_MAX).into_iter().map(|(client, row)| {
        json!({
            "address": client.to_string(),
            "requests": row.requests,
            "errors": row.errors,
            "bytes": row.bytes,
        })
    });
    let statuses = seen.statuses.merged(now_s, ROWS_MAX).into_iter().map(
        |(status, row)| json!({ "status": status, "requests": row.requests, "bytes": row.bytes }),
    );
    json!({
        "now_s": now_s,
        "window_s": seen.urls.window_s(),
        "urls": urls(&seen.urls, now_s),
        "missed": urls(&seen.missed, now_s),
        "clients": clients.collect::<Value>(),
        "statuses": statuses.collect::<Value>(),
    })
}

/// A row of the last exchanges.
fn line(note: &Note) -> Value {
    json!({
        "unix_ms": note.unix_ms,
        "client": note.client.to_string(),
        "method": spelled(&note.method),
        "url": spelled(&note.url),
        "status": note.status,
        "cache": note.cache,
        "bytes": note.body_bytes,
        "duration_us": note.duration_us,
    })
}

/// The rows of a table of URLs.
fn urls(table: &Recent<Box<[u8]>, UrlRow>, now_s: u64) -> Value {
    let rows = table.merged(now_s, ROWS_MAX).into_iter().map(|(url, row)| {
        json!({
            "url": spelled(&url),
            "requests": row.requests,
            "misses": row.misses,
            "hit_percent": percent(row.hits, row.hits + row.misses),
            "bytes": row.bytes,
            "status": row.status,
        })
    });
    rows.collect()
}
