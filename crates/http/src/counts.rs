//! What is counted, by each loop for itself, and shown together.
//!
//! A loop counts in plain numbers and copies them to where others see them ten times a second. One table names them all: metrics and
//! summaries are made of it.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_serve::figures::{Fields, write_head};
use parking_lot::Mutex;

/// What every name of a metric begins with.
pub const PREFIX: &str = "larder_http";

macro_rules! counts {
    ($($name:ident $kind:ident $text:literal)*) => {
        /// One loop's counters, or the sum of all.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Counts {
            $(#[doc = $text] pub $name: u64,)*
        }

        /// Names, kinds (`counter`, `gauge`) and meanings, in the order of [`Counts::values`].
        pub const ROWS: &[(&str, &str, &str)] =
            &[$((stringify!($name), stringify!($kind), $text),)*];

        impl Counts {
            /// Adds another loop's.
            pub fn add(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
            }

            /// In the order of [`ROWS`].
            pub fn values(&self) -> impl Iterator<Item = u64> {
                [$(self.$name,)*].into_iter()
            }
        }
    };
}

counts! {
    requests counter "Valid requests of clients"
    hits counter "Requests answered from the cache"
    hits_stale counter "Requests answered with a stale response during its revalidation"
    misses counter "Requests that started a fetch that others may share"
    collapsed counter "Requests coalesced with an in-flight fetch"
    passed counter "Requests passed through to the origin, for one client"
    renewed counter "Revalidations that confirmed the cached response (304)"
    stale_on_error counter "Stale responses served because the origin failed"
    kept counter "Responses stored"
    outdated counter "Responses not stored because their URL was written or purged during the fetch"
    not_kept counter "Cacheable responses not stored: no memory"
    refused_requests counter "Invalid requests"
    sent_bytes counter "Bytes of long bodies sent to clients"
    received_bytes counter "Bytes of bodies received from origins"
    bodies_failed counter "Client connections reset because a body failed"
    too_long counter "Bodies streamed because they were too long to be cached"
    no_memory counter "Bodies aborted: no memory in time"
    bodies_broken counter "Bodies that an origin did not complete"
    bad_responses counter "Invalid responses of origins"
    fetches_failed counter "Failed fetches"
    fetches_abandoned counter "Fetches aborted because no client waited for them"
    origin_connections counter "Connections to origins"
    origin_failures counter "Failed connections to origins"
    origin_timeouts counter "Timeouts of origins"
    queue_full counter "Requests refused: queue of the origin full"
    connections counter "Client connections"
    refused_full counter "Client connections refused: --clients-max"
    refused_crowded counter "Client connections refused: limit per client"
    bad_proxy_headers counter "Connections with an invalid PROXY protocol header"
    bodies_too_long counter "Requests refused: body too long"
    shortages counter "Connections not made: no more open files, memory or ports"
    accept_failures counter "Client connections that could not be accepted"
    closed_idle counter "Client connections closed: idle timeout"
    closed_slow counter "Client connections closed: too slow"
    clients_gone counter "Clients that disconnected before the end of their response"
    log_dropped counter "Lines of the access log dropped (buffer full)"
    clients_open gauge "Open client connections"
    origins_open gauge "Open connections to origins"
}

impl Counts {
    /// As the answer to `stats`, by name.
    pub fn fields(&self) -> Fields {
        let rows = ROWS.iter().zip(self.values());
        rows.map(|((name, ..), value)| ((*name).to_owned(), value.into())).collect()
    }

    /// In Prometheus' text format.
    pub fn write_text(&self, out: &mut String) {
        for (&(name, kind, help), value) in ROWS.iter().zip(self.values()) {
            let end = if kind == "counter" { "_total" } else { "" };
            let name = format!("{PREFIX}_{name}{end}");
            write_head(out, &name, help, kind);
            // Writing to a string does not fail.
            let _ = writeln!(out, "{name} {value}");
        }
    }
}

/// Where loops show what they counted.
#[derive(Debug)]
pub struct Shared {
    loops: Box<[Mutex<Counts>]>,
    /// Loops that have no clients any more.
    drained: AtomicUsize,
}

impl Shared {
    /// For so many loops.
    pub fn new(loops: usize) -> Shared {
        let loops = (0..loops).map(|_| Mutex::default()).collect();
        Shared { loops, drained: AtomicUsize::new(0) }
    }

    /// A loop has no clients any more, and gets none; true where it was the last.
    pub fn drained(&self) -> bool {
        self.drained.fetch_add(1, Ordering::AcqRel) + 1 == self.loops.len()
    }

    /// True where no loop has clients.
    pub fn are_all_drained(&self) -> bool {
        self.drained.load(Ordering::Acquire) == self.loops.len()
    }

    /// A loop shows its counters.
    pub fn publish(&self, number: usize, counts: &Counts) {
        if let Some(place) = self.loops.get(number) {
            place.lock().clone_from(counts);
        }
    }

    /// All loops' counters.
    pub fn sum(&self) -> Counts {
        let mut sum = Counts::default();
        self.loops.iter().for_each(|counts| sum.add(&counts.lock()));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What loops show is summed, and rows and values have one order.
    #[test]
    fn sums() {
        let shared = Shared::new(2);
        shared.publish(0, &Counts { requests: 1, origins_open: 2, ..Counts::default() });
        shared.publish(1, &Counts { requests: 10, ..Counts::default() });
        shared.publish(1, &Counts { requests: 20, ..Counts::default() });
        let sum = shared.sum();
        assert_eq!((sum.requests, sum.origins_open), (21, 2));
        let mut text = String::new();
        sum.write_text(&mut text);
        assert!(text.contains("\nlarder_http_requests_total 21\n"), "{text}");
        assert!(text.ends_with(" gauge\nlarder_http_origins_open 2\n"), "{text}");
        assert_eq!(sum.fields()["requests"], 21);
        assert_eq!(ROWS.len(), sum.values().count());
        assert_eq!((ROWS[0].0, sum.values().next()), ("requests", Some(21)));
        assert_eq!((ROWS.last().unwrap().0, sum.values().last()), ("origins_open", Some(2)));
    }
}
