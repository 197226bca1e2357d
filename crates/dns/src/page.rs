//! What the page of a DNS server shows; see [`larder_serve::server_page`].
//!
//! Invariants
//! 1. Cores note some of their responses ([`Notes`]), and never wait for the page (test `a_full_channel_drops`).
//! 2. A name is data: texts have the spelling of logs (test `hostile_names_are_text`).

mod figures;
mod notes;
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

pub use self::figures::Figures;
pub use self::notes::{Note, Notes};
use self::seen::Seen;
use crate::clock::Clock;
use crate::metrics::Counts;
use crate::query_log::Prefix;

/// The numbers of a sample.
const SERIES: [Series; 20] = [
    Series::SECONDS,
    Series::sum("queries"),
    Series::sum("noerror"),
    Series::sum("nxdomain"),
    Series::sum("servfail"),
    Series::sum("refused"),
    Series::sum("other"),
    Series::sum("hits"),
    Series::sum("misses"),
    Series::sum("stale"),
    Series::sum("blocked"),
    Series::sum("local"),
    Series::sum("dropped"),
    Series::sum("upstream_queries"),
    Series::sum("upstream_timeouts"),
    Series::sum("failures"),
    Series::max("miss_us_p50"),
    Series::max("miss_us_p99"),
    Series::last("entries"),
    Series::sum("limits"),
];

/// The document.
static DOCUMENT: LazyLock<Document> =
    LazyLock::new(|| document(include_str!("../ui/page.html"), include_str!("../ui/page.js")));

/// Prepares a page, and the notes of the cores, if there are options for it.
pub(crate) fn begin(options: Option<&PageOptions>, clock: Clock) -> (Option<Begun>, Option<Notes>) {
    let page = options.map(|options| {
        // Invariant 1: the end of the cores never waits.
        let (sender, received) = channel();
        (Begun::new(options.clone(), received), Notes::new(sender, clock))
    });
    page.unzip()
}

/// What the page of a server shows.
pub(crate) struct DnsShown {
    pub figures: Arc<Figures>,
    /// The addresses of the server.
    pub listen: Vec<String>,
    /// Networks are shown instead of clients.
    pub prefix: Option<Prefix>,
}

type DnsPage = ServerPage<DnsShown, 20>;

/// What the thread of the page keeps.
pub(crate) struct Kept {
    seen: Seen,
    /// Counters at the last sample.
    before: Counts,
    misses: LastMinute,
}

impl Shown<20> for DnsShown {
    const MAGIC: &'static [u8; 8] = b"larderd1";
    const SERIES: &'static [Series; 20] = &SERIES;
    type Kept = Kept;

    fn begin(&self) -> Kept {
        Kept { seen: Seen::default(), before: self.figures.counts(), misses: LastMinute::default() }
    }

    fn document() -> Page {
        DOCUMENT.page()
    }

    fn take(&self, kept: &mut Kept, mut notes: &[u8], now_s: u64) {
        while let Some(mut note) = Note::take(&mut notes) {
            if let Some(prefix) = self.prefix {
                note.client = prefix.first_address(note.client);
            }
            kept.seen.take(note, now_s);
        }
    }

    fn sample(&self, kept: &mut Kept) -> [u64; 20] {
        let counts = self.figures.counts();
        let before = std::mem::replace(&mut kept.before, counts.clone());
        let mut sample = of_counts(&counts, &before, &counts.miss.since(&before.miss));
        sample[place(&SERIES, "entries")] = self.figures.entries();
        kept.seen.advance();
        kept.misses.push(before.miss);
        sample
    }

    fn stats(page: &DnsPage) -> Value {
        texts::stats(page)
    }

    fn recent(page: &DnsPage) -> Value {
        texts::recent(page)
    }

    fn lists(page: &DnsPage, now_s: u64) -> Value {
        texts::lists(page, now_s)
    }

    fn metrics(&self) -> String {
        self.figures.text()
    }
}

/// Queries and messages that got no response.
fn dropped(counts: &Counts) -> u64 {
    counts.dropped_queries + counts.rate_limited_dropped + counts.unsent_answers
}

/// The sample of what was counted since `before`. `misses`: the times of misses since then.
fn of_counts(counts: &Counts, before: &Counts, misses: &Durations) -> [u64; 20] {
    let since = |value: fn(&Counts) -> u64| value(counts).saturating_sub(value(before));
    [
        0,
        since(Counts::all_queries),
        since(|counts| counts.answers_noerror),
        since(|counts| counts.answers_nxdomain),
        since(|counts| counts.answers_servfail),
        since(|counts| counts.answers_refused),
        since(|counts| counts.answers_formerr + counts.answers_notimp + counts.answers_other),
        since(|counts| counts.hits),
        since(|counts| counts.misses),
        since(|counts| counts.stale_answers),
        since(|counts| counts.local_answers_blocked + counts.local_answers_rpz),
        since(Counts::by_policy),
        since(dropped),
        since(|counts| {
            let plain = counts.upstream_queries_udp + counts.upstream_queries_tcp;
            plain + counts.upstream_queries_backend
        }),
        since(|counts| counts.upstream_timeouts),
        since(|counts| counts.upstream_failures),
        quantile_us(misses, 0.5),
        quantile_us(misses, 0.99),
        0,
        since(|counts| counts.limit_questions + counts.limit_waiters + counts.limit_tcp_clients),
    ]
}

#[cfg(test)]
mod tests;
