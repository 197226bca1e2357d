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
    requests counter "Requests of clients that were understood"
    hits counter "Requests answered from what is kept"
    hits_stale counter "Requests answered from what is stale, while the origin is asked"
    misses counter "Requests for which the origin was asked, to answer all who want the same"
    collapsed counter "Requests that waited for what was being asked already"
    passed counter "Requests for which the origin was asked, to answer them alone"
    renewed counter "Answers of an origin that what is kept is still good"
    stale_on_error counter "Times that what is stale was given because the origin failed"
    kept counter "Responses kept"
    outdated counter "Responses not kept because their URL was written or purged while they were fetched"
    not_kept counter "Responses that could have been kept, had there been room"
    refused_requests counter "Requests that were refused for their form"
    sent_bytes counter "Octets of long bodies sent to clients"
    received_bytes counter "Octets of bodies read from origins"
    bodies_failed counter "Connections of clients that were reset because a body failed"
    too_long counter "Bodies that turned out to be too long to be cached, and were streamed"
    no_memory counter "Bodies that were broken off because memory to keep them in did not come"
    bodies_broken counter "Bodies that an origin did not finish"
    bad_responses counter "Responses that were no proper HTTP"
    fetches_failed counter "Questions to origins that brought nothing"
    fetches_abandoned counter "Fetches that nobody wanted any more, and were broken off"
    origin_connections counter "Connections made to origins"
    origin_failures counter "Connections to origins that failed"
    origin_timeouts counter "Waits for origins that were too long"
    queue_full counter "Requests that failed because too many waited for an origin"
    connections counter "Connections of clients"
    refused_full counter "Connections of clients that were refused because there were too many"
    refused_crowded counter "Connections of clients that were refused because their address had too many"
    bad_proxy_headers counter "Connections that did not begin as the PROXY protocol has it"
    bodies_too_long counter "Requests that were refused because their bodies were too long"
    shortages counter "Connections, of clients or to origins, that were not made because this process or machine had no more open files, memory or ports"
    accept_failures counter "Connections of clients that could not be taken"
    closed_idle counter "Connections of clients closed because they were not used"
    closed_slow counter "Connections of clients closed because they were too slow"
    clients_gone counter "Clients that left before their answer's end"
    log_dropped counter "Lines of the access log that found no room because its writer did not keep up"
    clients_open gauge "Connections of clients"
    origins_open gauge "Connections to origins"
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
