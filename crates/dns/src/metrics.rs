//! Counters of the cores, from one table ([`mod@larder_serve::counters`]), durations of misses, the health
//! of upstreams, and metrics of the cache.

mod upstreams;

use larder::Stats;
use larder_serve::counters::{Counters, Published};
use larder_serve::durations::Durations;
use larder_wire::dns::Message;
use serde_json::Value;

use self::upstreams::Upstreams;

pub use larder_serve::metrics::{Fields, Metric};

use crate::dnstap::Protocol;
use crate::zones::Upstream;

/// How long a core may delay the publication of its counters, milliseconds.
pub const PUBLISH_MS: u64 = 100;

/// The prefix of all metric names.
pub const PREFIX: &str = "larder_dns";

larder_serve::counters! {
    /// The counters of a core.
    Counts {
        "queries_total" "Queries received" {
            queries_udp ["transport" "udp"],
            queries_xdp ["transport" "xdp"],
            queries_tcp ["transport" "tcp"],
            queries_tls ["transport" "tls"],
            queries_https ["transport" "https"],
            queries_quic ["transport" "quic"],
        }
        "answers_total" "Responses sent" {
            answers_noerror ["rcode" "NOERROR"],
            answers_formerr ["rcode" "FORMERR"],
            answers_servfail ["rcode" "SERVFAIL"],
            answers_nxdomain ["rcode" "NXDOMAIN"],
            answers_notimp ["rcode" "NOTIMP"],
            answers_refused ["rcode" "REFUSED"],
            answers_other ["rcode" "other"],
        }
        "cache_hits_total" "Queries answered with a fresh response from the cache" { hits }
        "cache_misses_total" "Queries without a fresh response in the cache" { misses }
        "stale_answers_total" "Expired responses served because no upstream responded (RFC 8767)" { stale_answers }
        "denied_below_total" "Queries answered by the NXDOMAIN of a name above theirs (RFC 8020)" { denied_below }
        "cached_failures_total" "Queries answered with a cached failure" { cached_failures }
        "prefetches_total" "Responses refreshed before they expire" { prefetches }
        "merged_questions_total" "Queries coalesced with the same query of another client" { merged_questions }
        "upstream_queries_total" "Queries sent to upstreams" {
            upstream_queries_udp ["transport" "udp"],
            upstream_queries_tcp ["transport" "tcp"],
            upstream_queries_backend ["transport" "backend"],
        }
        "upstream_answers_total" "Responses received from upstreams" { upstream_answers }
        "upstream_useless_total" "Upstream responses or failed connections after which another upstream was queried" { upstream_useless }
        "upstream_timeouts_total" "Timeouts of upstreams" { upstream_timeouts }
        "upstream_hedges_total" "Queries sent to a second upstream because the first was slow" { upstream_hedges }
        "upstream_mismatches_total" "Packets from upstreams that match no query, ignored" { upstream_mismatches }
        "upstream_tcp_fallbacks_total" "Queries repeated over TCP because a response was truncated or looked forged" { upstream_tcp_fallbacks }
        "upstream_failures_total" "Queries that no upstream answered" { upstream_failures }
        "acl_refused_total" "Queries refused by access rules" { acl_refused }
        "rate_limited_total" "Queries above the rate limit of a network" {
            rate_limited_dropped ["action" "dropped"],
            rate_limited_slipped ["action" "slipped"],
        }
        "local_answers_total" "Responses from local data or policy" {
            local_answers_hosts ["source" "hosts"],
            local_answers_zone ["source" "zone"],
            local_answers_blocked ["source" "blocklist"],
            local_answers_rpz ["source" "rpz"],
            local_answers_special ["source" "special-use"],
            local_answers_chaos ["source" "chaos"],
        }
        "malformed_queries_total" "Messages that are not valid queries" { malformed_queries }
        "dropped_queries_total" "Messages without a response by design" { dropped_queries }
        "unsent_total" "Messages not sent: no socket or no buffer" {
            unsent_answers ["to" "client"],
            unsent_queries ["to" "upstream"],
        }
        "truncated_answers_total" "Truncated responses (TC), those above the rate limit included" { truncated_answers }
        "cookies_total" "DNS cookies received from clients (RFC 7873)" {
            cookies_good ["result" "good"],
            cookies_new ["result" "new"],
            cookies_bad ["result" "bad"],
        }
        "limits_reached_total" "Times that a limit was reached" {
            limit_questions ["limit" "questions-in-flight"],
            limit_waiters ["limit" "waiters"],
            limit_silent_upstreams ["limit" "silent-upstreams"],
            limit_tcp_clients ["limit" "tcp-clients"],
            limit_tcp_upstream ["limit" "tcp-upstream"],
            limit_backends ["limit" "backends"],
            limit_cache_writes ["limit" "cache-writes"],
        }
        "tcp_streams_opened_total" "TCP connections of clients accepted" { tcp_streams_opened }
        "tcp_streams_refused_total" "TCP connections of clients refused" { tcp_streams_refused }
        "tcp_streams_unaccepted_total" "TCP connections that could not be accepted: no descriptor or memory" { tcp_streams_unaccepted }
        "tcp_streams_closed_total" "TCP connections of clients closed" { tcp_streams_closed }
        "trace_records_dropped_total" "dnstap records dropped (buffer full)" { trace_records_dropped }
        "query_log_lines_dropped_total" "Lines of the query log dropped (buffer full)" { query_log_lines_dropped }
        "page_notes_dropped_total" "Responses that the lists of the page lack (buffer full)" { page_notes_dropped }
    }
    /// Durations of misses.
    miss: Durations
}

impl Counts {
    /// The counter of queries over a transport.
    #[inline]
    pub(crate) fn queries(&mut self, protocol: Protocol) -> &mut u64 {
        match protocol {
            Protocol::Udp => &mut self.queries_udp,
            Protocol::Tcp => &mut self.queries_tcp,
            Protocol::Tls => &mut self.queries_tls,
            Protocol::Https => &mut self.queries_https,
            Protocol::Quic => &mut self.queries_quic,
        }
    }

    /// Queries over all transports.
    pub fn all_queries(&self) -> u64 {
        let plain = self.queries_udp + self.queries_xdp + self.queries_tcp;
        plain + self.queries_tls + self.queries_https + self.queries_quic
    }

    /// Responses from the policy alone.
    pub fn by_policy(&self) -> u64 {
        self.local_answers_hosts
            + self.local_answers_zone
            + self.local_answers_blocked
            + self.local_answers_rpz
            + self.local_answers_special
            + self.local_answers_chaos
    }

    /// Counts a response that is sent: its response code, and whether it is truncated. Codes above
    /// 15 have their upper bits in the OPT record. BADVERS (16) looks like NOERROR in the header,
    /// so the OPT record is read if the response has no other record.
    #[inline]
    pub fn answered(&mut self, bytes: &[u8]) {
        let Some(&[high, low]) = bytes.get(2..).and_then(|rest| rest.first_chunk()) else {
            return;
        };
        self.truncated_answers += u64::from(high >> 1 & 1);
        let is_bare = bytes.get(6..12) == Some(&[0, 0, 0, 0, 0, 1]);
        let counter = match low & 15 {
            0 if is_bare && extended_rcode(bytes) != 0 => &mut self.answers_other,
            0 => &mut self.answers_noerror,
            1 => &mut self.answers_formerr,
            2 => &mut self.answers_servfail,
            3 => &mut self.answers_nxdomain,
            4 => &mut self.answers_notimp,
            5 => &mut self.answers_refused,
            _ => &mut self.answers_other,
        };
        *counter += 1;
    }

    /// The result of `stats`: each counter by its field, and quantiles of the durations of misses.
    pub fn fields(&self) -> Fields {
        let mut fields = Counters::fields(self);
        for (name, share) in [("miss_us_p50", 0.5), ("miss_us_p99", 0.99)] {
            let time = self.miss.quantile_us(share).map_or(Value::Null, Value::from);
            fields.insert(name.to_owned(), time);
        }
        fields
    }

    /// Writes Prometheus' text format.
    pub fn write_text(&self, out: &mut String) {
        Counters::write_text(self, out, PREFIX);
        let help = "Time from query to response for cache misses";
        self.miss.write_text(out, &format!("{PREFIX}_miss_seconds"), help);
    }
}

#[cold]
fn extended_rcode(bytes: &[u8]) -> u16 {
    Message::parse(bytes).map_or(0, |message| message.extended_rcode())
}

/// What the cores publish.
#[derive(Debug)]
pub struct Shared {
    /// Their counters.
    pub counts: Published<Counts>,
    /// The health of their upstreams.
    pub upstreams: Upstreams,
}

impl Shared {
    /// For `cores` cores and these upstreams, numbered as the cores number them.
    pub fn new(cores: usize, upstreams: impl Iterator<Item = Upstream>) -> Shared {
        Shared { counts: Published::new(cores), upstreams: Upstreams::new(cores, upstreams) }
    }
}

/// Metrics of a cache.
pub fn cache_metrics(stats: &Stats) -> Vec<Metric> {
    let behind = stats.readers.iter().filter_map(|reader| reader.behind).max().unwrap_or(0);
    let figures = [
        ("cache_entries", "Cached responses, expired ones included", stats.entries as f64),
        ("cache_entries_max", "Limit of cached responses", stats.entries_max as f64),
        ("cache_bytes_max", "Limit of the memory of the cache, bytes", stats.budget_bytes as f64),
        ("cache_entry_bytes", "Bytes of cached responses", stats.charge_bytes as f64),
        (
            "cache_entry_bytes_max",
            "Limit of the bytes of cached responses",
            stats.charge_bytes_max as f64,
        ),
        ("cache_index_load", "Share of the index in use", stats.index_load),
        ("cache_inserted_total", "Responses stored", stats.inserted as f64),
        ("cache_updated_total", "Responses replaced", stats.updated as f64),
        ("cache_removed_total", "Responses flushed", stats.removed as f64),
        ("cache_evicted_total", "Responses evicted", stats.evicted as f64),
        (
            "cache_behind_records",
            "Log records that the slowest core has not applied",
            behind as f64,
        ),
    ];
    figures.map(|(name, help, value)| Metric::new(name, help, value)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_serve::metrics::{metric_fields, write_metrics};
    use std::collections::BTreeSet;

    /// The sum has the last publication of each core. Counters of two parts can be added too.
    #[test]
    fn cores_are_summed() {
        let published = Published::new(2);
        let mut counts = Counts { hits: 3, trace_records_dropped: 1, ..Counts::default() };
        counts.miss.note(1000);
        counts.answered(&[0, 0, 0x81, 0x83, 0]);
        counts.answered(&[0, 0, 0x83, 0x8f]);
        counts.answered(&[0, 0, 0x83]);
        for core in [0, 1, 1, 2] {
            published.publish(core, &counts);
        }
        let sum = published.sum();
        assert_eq!((sum.hits, sum.trace_records_dropped), (6, 2));
        assert_eq!((sum.answers_nxdomain, sum.answers_other, sum.truncated_answers), (2, 2, 2));
        assert_eq!((sum.miss.count(), sum.miss.sum_us()), (2, 2000));
        assert_eq!(sum.fields()["hits"], 6);
        assert_eq!(sum.fields()["miss_us_p99"], 1024);
        counts.add(&sum);
        assert_eq!((counts.hits, counts.miss.count(), counts.miss.sum_us()), (9, 3, 3000));
    }

    /// BADVERS is not counted as NOERROR, whose bits the header has. An empty response without an
    /// error is.
    #[test]
    fn codes_of_opt_count() {
        let mut counts = Counts::default();
        let mut bytes =
            b"\0\0\x81\x80\0\x01\0\0\0\0\0\x01\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0".to_vec();
        counts.answered(&bytes);
        bytes[22] = 1;
        counts.answered(&bytes);
        counts.answered(&bytes[..20]);
        assert_eq!((counts.answers_noerror, counts.answers_other), (2, 1));
    }

    /// The text has the header of each family once, each metric once, and cumulative buckets.
    /// Labels are escaped.
    #[test]
    fn the_text_is_prometheus() {
        let mut counts = Counts { queries_tcp: 7, ..Counts::default() };
        counts.miss.note(3);
        let mut text = String::new();
        counts.write_text(&mut text);
        let up =
            |label| Metric::new("upstream_up", "Whether it answers", 1.0).of("upstream", label);
        write_metrics(&mut text, PREFIX, &[up("[::1]:53"), up("a\"b\\\n")]);
        for line in [
            "larder_dns_queries_total{transport=\"tcp\"} 7",
            "larder_dns_miss_seconds_bucket{le=\"0.000002\"} 0",
            "larder_dns_miss_seconds_bucket{le=\"0.000004\"} 1",
            "larder_dns_miss_seconds_bucket{le=\"+Inf\"} 1",
            "larder_dns_miss_seconds_sum 0.000003",
            "larder_dns_upstream_up{upstream=\"[::1]:53\"} 1",
            "larder_dns_upstream_up{upstream=\"a\\\"b\\\\\\n\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let (mut heads, mut metrics) = (BTreeSet::new(), BTreeSet::new());
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(head) => assert!(heads.insert(head.to_owned()), "{line}"),
                None if line.starts_with("# HELP ") => {}
                None => {
                    let (metric, value) = line.rsplit_once(' ').unwrap();
                    assert!(metrics.insert(metric.to_owned()), "{line}");
                    value.parse::<f64>().unwrap();
                }
            }
        }
    }

    /// A cache has metrics, and fields by their names.
    #[test]
    fn a_cache_has_metrics() {
        let cache = larder::Cache::builder().budget(1 << 20).readers_max(1).build().unwrap();
        let metrics = cache_metrics(&cache.stats().unwrap());
        let fields = metric_fields(&metrics);
        assert_eq!(fields["cache_bytes_max"], f64::from(1 << 20));
        let labelled = Metric::new("up", "", 1.0).of("upstream", "a");
        assert_eq!(metric_fields(&[labelled])["up"]["a"], 1.0);
    }
}
