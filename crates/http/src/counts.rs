//! What is counted, by each loop for itself, and shown together: one table ([`mod@larder_serve::counters`]).

use std::sync::atomic::{AtomicUsize, Ordering};

use larder_serve::counters::{Counters, Published};
use larder_serve::durations::Durations;
use larder_serve::metrics::Fields;
use serde_json::Value;

/// What every name of a metric begins with.
pub const PREFIX: &str = "larder_http";

larder_serve::counters! {
    /// One loop's counters, or the sum of all.
    Counts {
        "requests_total" "Valid requests of clients" { requests }
        "responses_total" "Responses to clients, by class of their status code" {
            responses_2xx ["class" "2xx"],
            responses_3xx ["class" "3xx"],
            responses_4xx ["class" "4xx"],
            responses_5xx ["class" "5xx"],
            responses_other ["class" "other"],
        }
        "hits_total" "Requests answered from the cache" { hits }
        "hits_stale_total" "Requests answered with a stale response during its revalidation" { hits_stale }
        "misses_total" "Requests that started a fetch that others may share" { misses }
        "collapsed_total" "Requests coalesced with an in-flight fetch" { collapsed }
        "passed_total" "Requests passed through to the origin, for one client" { passed }
        "renewed_total" "Revalidations that confirmed the cached response (304)" { renewed }
        "stale_on_error_total" "Stale responses served because the origin failed" { stale_on_error }
        "kept_total" "Responses stored" { kept }
        "outdated_total" "Responses not stored because their URL was written or purged during the fetch" { outdated }
        "not_kept_total" "Cacheable responses not stored: no memory, or expired before they were complete" { not_kept }
        "refused_requests_total" "Invalid requests" { refused_requests }
        "sent_bytes_total" "Bytes of bodies sent to clients" { sent_bytes }
        "received_bytes_total" "Bytes of bodies received from origins" { received_bytes }
        "bodies_failed_total" "Client connections reset because a body failed" { bodies_failed }
        "too_long_total" "Bodies streamed because they were too long to be cached" { too_long }
        "no_memory_total" "Bodies aborted: no memory in time" { no_memory }
        "bodies_broken_total" "Bodies that an origin did not complete" { bodies_broken }
        "bad_responses_total" "Invalid responses of origins" { bad_responses }
        "fetches_failed_total" "Failed fetches" { fetches_failed }
        "fetches_abandoned_total" "Fetches aborted because no client waited for them" { fetches_abandoned }
        "origin_connections_total" "Connections to origins" { origin_connections }
        "origin_failures_total" "Failed connections to origins" { origin_failures }
        "origin_timeouts_total" "Timeouts of origins" { origin_timeouts }
        "queue_full_total" "Requests refused: queue of the origin full" { queue_full }
        "connections_total" "Client connections" { connections }
        "refused_full_total" "Client connections refused: --clients-max" { refused_full }
        "refused_crowded_total" "Client connections refused: limit per client" { refused_crowded }
        "bad_proxy_headers_total" "Connections with an invalid PROXY protocol header" { bad_proxy_headers }
        "bodies_too_long_total" "Requests refused: body too long" { bodies_too_long }
        "shortages_total" "Connections not made: no more open files, memory or ports" { shortages }
        "accept_failures_total" "Client connections that could not be accepted" { accept_failures }
        "closed_idle_total" "Client connections closed: idle timeout" { closed_idle }
        "closed_slow_total" "Client connections closed: too slow" { closed_slow }
        "clients_gone_total" "Clients that disconnected before the end of their response" { clients_gone }
        "log_dropped_total" "Lines of the access log dropped (buffer full)" { log_dropped }
        "page_notes_dropped_total" "Exchanges that the lists of the page lack (buffer full)" { page_notes_dropped }
        "clients_open" "Open client connections" { clients_open }
        "origins_open" "Open connections to origins" { origins_open }
    }
    /// From a request to an origin to the headers of its response.
    origin: Durations
}

impl Counts {
    /// Counts a response to a client, and the bytes of its body that follow its headers at once.
    #[inline]
    pub(crate) fn responded(&mut self, status: u16, body_bytes: u64) {
        self.sent_bytes += body_bytes;
        let counter = match status / 100 {
            2 => &mut self.responses_2xx,
            3 => &mut self.responses_3xx,
            4 => &mut self.responses_4xx,
            5 => &mut self.responses_5xx,
            _ => &mut self.responses_other,
        };
        *counter += 1;
    }

    /// The result of `stats`: each counter by its field, and quantiles of the durations of origins.
    pub fn fields(&self) -> Fields {
        let mut fields = Counters::fields(self);
        for (name, share) in [("origin_us_p50", 0.5), ("origin_us_p99", 0.99)] {
            let time = self.origin.quantile_us(share).map_or(Value::Null, Value::from);
            fields.insert(name.to_owned(), time);
        }
        fields
    }

    /// Writes Prometheus' text format.
    pub fn write_text(&self, out: &mut String) {
        Counters::write_text(self, out, PREFIX);
        let help = "Time from the request to an origin to the headers of its response";
        self.origin.write_text(out, &format!("{PREFIX}_origin_seconds"), help);
    }
}

/// What loops show to one another and to the supervisor.
#[derive(Debug)]
pub struct Shared {
    /// What they counted.
    pub counts: Published<Counts>,
    loops: usize,
    /// Loops that have no clients any more.
    drained: AtomicUsize,
}

impl Shared {
    /// For this number of loops.
    pub fn new(loops: usize) -> Shared {
        Shared { counts: Published::new(loops), loops, drained: AtomicUsize::new(0) }
    }

    /// A loop has no clients any more, and gets none; true where it was the last.
    pub fn drained(&self) -> bool {
        self.drained.fetch_add(1, Ordering::AcqRel) + 1 == self.loops
    }

    /// True where no loop has clients.
    pub fn are_all_drained(&self) -> bool {
        self.drained.load(Ordering::Acquire) == self.loops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each class has a counter, codes of no class share one, and durations are in both forms.
    #[test]
    fn classes_and_durations() {
        let mut counts = Counts::default();
        for status in [200, 206, 304, 404, 503, 0, 999] {
            counts.responded(status, 5);
        }
        counts.origin.note(3);
        let fields = counts.fields();
        let all = ["2xx", "3xx", "4xx", "5xx", "other"];
        let of_class = all.map(|class| fields[&format!("responses_{class}")].as_u64());
        assert_eq!(of_class, [Some(2), Some(1), Some(1), Some(1), Some(2)]);
        assert_eq!(fields["origin_us_p99"].as_u64(), Some(4));
        assert_eq!(fields["sent_bytes"].as_u64(), Some(35));
        let mut text = String::new();
        counts.write_text(&mut text);
        for line in [
            "larder_http_responses_total{class=\"2xx\"} 2",
            "larder_http_responses_total{class=\"other\"} 2",
            "larder_http_origin_seconds_bucket{le=\"0.000004\"} 1",
            "larder_http_origin_seconds_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
