//! What the page of an HTTP cache shows; see [`larder_serve::server_page`].
//!
//! Invariants
//! 1. Event loops note some of their exchanges ([`Notes`]), and never wait for the page (test
//!    `a_full_channel_drops`).
//! 2. A URL is data: texts have printable ASCII only (test `hostile_urls_are_text`).

mod figures;
mod seen;
mod texts;

use std::sync::{Arc, LazyLock};

use larder_serve::durations::Durations;
use larder_serve::history::Series;
use larder_serve::page_server::PageOptions;
use larder_serve::pages::{Document, Page, document};
use larder_serve::record_channel::channel;
use larder_serve::server_page::{Begun, LastMinute, ServerPage, Shown, place, quantile_us};
use serde_json::Value;

pub use self::figures::{Figures, Origin};
use self::seen::Seen;
use crate::counts::Counts;
use crate::notes::{Note, Notes};

/// The numbers of a sample.
const SERIES: [Series; 20] = [
    Series::SECONDS,
    Series::sum("requests"),
    Series::sum("responses_2xx"),
    Series::sum("responses_3xx"),
    Series::sum("responses_4xx"),
    Series::sum("responses_5xx"),
    Series::sum("responses_other"),
    Series::sum("hits"),
    Series::sum("misses"),
    Series::sum("coalesced"),
    Series::sum("passed"),
    Series::sum("sent_bytes"),
    Series::sum("received_bytes"),
    Series::sum("failures"),
    Series::sum("refused"),
    Series::sum("evicted"),
    Series::max("origin_us_p50"),
    Series::max("origin_us_p99"),
    Series::last("memory_used"),
    Series::last("clients"),
];

/// The document.
static DOCUMENT: LazyLock<Document> =
    LazyLock::new(|| document(include_str!("../ui/page.html"), include_str!("../ui/page.js")));

/// Prepares a page, and the notes of the event loops.
pub(crate) fn begin(options: &PageOptions) -> (Begun, Arc<Notes>) {
    // Invariant 1: the end of the event loops never waits.
    let (sender, received) = channel();
    (Begun::new(options.clone(), received), Arc::new(Notes::new(sender)))
}

/// What the page of a cache shows.
pub(crate) struct HttpShown {
    pub figures: Figures,
    /// The addresses of the server.
    pub listen: Vec<String>,
}

type HttpPage = ServerPage<HttpShown, 20>;

/// What the thread of the page keeps.
pub(crate) struct Kept {
    seen: Seen,
    /// Counters, and evictions, at the last sample.
    before: (Counts, u64),
    origins: LastMinute,
}

impl Shown<20> for HttpShown {
    const MAGIC: &'static [u8; 8] = b"larderw1";
    const SERIES: &'static [Series; 20] = &SERIES;
    type Kept = Kept;

    fn begin(&self) -> Kept {
        Kept {
            seen: Seen::default(),
            before: (self.figures.counts(), Memory::of(&self.figures).evicted),
            origins: LastMinute::default(),
        }
    }

    fn document() -> Page {
        DOCUMENT.page()
    }

    fn take(&self, kept: &mut Kept, mut notes: &[u8], now_s: u64) {
        while let Some(note) = Note::take(&mut notes) {
            kept.seen.take(note, now_s);
        }
    }

    fn sample(&self, kept: &mut Kept) -> [u64; 20] {
        let counts = self.figures.counts();
        let memory = Memory::of(&self.figures);
        let now = (counts.clone(), memory.evicted);
        let (before, evicted) = std::mem::replace(&mut kept.before, now);
        let mut sample = of_counts(&counts, &before, &counts.origin.since(&before.origin));
        sample[place(&SERIES, "memory_used")] = memory.used;
        sample[place(&SERIES, "evicted")] = memory.evicted.saturating_sub(evicted);
        kept.seen.advance();
        kept.origins.push(before.origin);
        sample
    }

    fn stats(page: &HttpPage) -> Value {
        texts::stats(page)
    }

    fn recent(page: &HttpPage) -> Value {
        texts::recent(page)
    }

    fn lists(page: &HttpPage, now_s: u64) -> Value {
        texts::lists(page, now_s)
    }

    fn metrics(&self) -> String {
        self.figures.text()
    }
}

/// The memory of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    /// Bytes of records and bodies, and the most there may be.
    used: u64,
    max: u64,
    /// Cached records.
    records: u64,
    /// Records and bodies that were evicted.
    evicted: u64,
}

impl Memory {
    fn of(figures: &Figures) -> Memory {
        let metrics = figures.store();
        let of = |name: &str| Figures::of_store(&metrics, name);
        let bodies = of("memory_bytes").saturating_sub(of("memory_free_bytes"));
        Memory {
            used: of("records_bytes") + bodies,
            max: of("records_bytes_max") + of("memory_bytes"),
            records: of("records"),
            evicted: of("records_evicted_total") + of("bodies_evicted_total"),
        }
    }
}

/// The sample of what was counted since `before`. `origins`: the times of origins since then.
fn of_counts(counts: &Counts, before: &Counts, origins: &Durations) -> [u64; 20] {
    let since = |value: fn(&Counts) -> u64| value(counts).saturating_sub(value(before));
    [
        0,
        since(|counts| counts.requests),
        since(|counts| counts.responses_2xx),
        since(|counts| counts.responses_3xx),
        since(|counts| counts.responses_4xx),
        since(|counts| counts.responses_5xx),
        since(|counts| counts.responses_other),
        since(|counts| counts.hits + counts.hits_stale),
        since(|counts| counts.misses),
        since(|counts| counts.collapsed),
        since(|counts| counts.passed),
        since(|counts| counts.sent_bytes),
        since(|counts| counts.received_bytes),
        since(|counts| counts.fetches_failed),
        since(refused),
        0,
        quantile_us(origins, 0.5),
        quantile_us(origins, 0.99),
        0,
        counts.clients_open,
    ]
}

/// Requests and connections that larder refused.
fn refused(counts: &Counts) -> u64 {
    let connections = counts.refused_full + counts.refused_crowded + counts.accept_failures;
    connections + counts.refused_requests + counts.queue_full
}

#[cfg(test)]
mod tests;
