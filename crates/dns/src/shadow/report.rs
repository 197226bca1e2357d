//! The results of a trial, as text and as JSON.
//!
//! The report states the limits of its figures: messages missing at first, how the resolver's share
//! is estimated, how a replay affects times. Percentiles are off by 3 % at most (`spread.rs`).

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use larder_serve::histogram::Histogram;
use larder_serve::log::Log;
use serde_json::{Value, json};

use super::copy;
use super::known::KNOWN;
use super::spread::percentile;
use super::tally::Tally;
use crate::metrics;

/// Percentiles in the report, percent.
const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];

/// Percentiles of TTLs.
const TTL_PERCENTILES: [f64; 7] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0];

/// The results of a trial.
#[derive(Debug, Clone)]
pub struct Report {
    /// The resolver's addresses.
    pub resolvers: Vec<SocketAddr>,
    /// The source of the copy.
    pub from: String,
    /// Larder's upstreams.
    pub upstreams: Vec<String>,
    /// True for a live copy.
    pub is_live: bool,
    /// How long the trial took.
    pub took: Duration,
    /// The time that the copy spans.
    pub copied: Duration,
    /// Below this the resolver is assumed to have responded from its cache, microseconds.
    pub hit_us: u64,
    /// Messages of the copy that are not compared.
    pub copy: copy::Counts,
    /// The comparison.
    pub tally: Tally,
    /// The core's counters, without the warm-up.
    pub counts: metrics::Counts,
}

/// A share as a fraction; 0 if `of` is 0.
fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

impl Report {
    /// Larder's share of responses without a query to an upstream, or a wait for one.
    fn ours_at_once(&self) -> f64 {
        let counts = &self.counts;
        let all = counts.queries_udp + counts.queries_tcp;
        let known = counts.denied_below + counts.cached_failures;
        share(all.saturating_sub(counts.misses.saturating_sub(known)), all)
    }

    /// The resolver's share of responses without a query to an upstream, and how it was found.
    fn theirs_at_once(&self) -> (f64, &'static str) {
        let tally = &self.tally;
        if tally.upstream_theirs > 0 {
            (share(tally.unforwarded_theirs, tally.compared), "not seen to ask for the same")
        } else {
            (share(tally.fast_theirs, tally.theirs_us.count()), "faster than a limit")
        }
    }

    fn upstream_ours(&self) -> u64 {
        self.counts.upstream_queries_udp + self.counts.upstream_queries_tcp
    }

    /// Logs a line during the trial.
    pub fn log(&self, log: &Log) {
        let tally = &self.tally;
        let (theirs, _) = self.theirs_at_once();
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        let median_us = |spread| percentile(spread, 0.5);
        log.info("comparison")
            .number("queries", tally.queries)
            .number("compared", tally.compared)
            .number("different", tally.differences())
            .text("hit_percent", percent(self.ours_at_once()))
            .text("resolver_hit_percent", percent(theirs))
            .number("median_us", median_us(&tally.ours_us))
            .number("resolver_median_us", median_us(&tally.theirs_us));
    }

    /// Limits of the figures' meaning.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let tally = &self.tally;
        if !self.is_live {
            let speed = self.copied.as_secs_f64() / self.took.as_secs_f64().max(1e-6);
            notes.push(format!(
                "The copy was replayed {speed:.1} times as fast as it was taken. Upstreams were asked now, so answers may have \
                 changed since; TTLs ran by this clock, so larder's share known at once and its questions upstream \
                 compare only at --shadow-speed 1, and TTLs not at all."
            ));
        }
        if tally.upstream_theirs == 0 {
            notes.push(format!(
                "The copy has no questions of the resolver to others, so what it answered within {} counts as known at \
                 once (--shadow-hit-us).",
                milliseconds(self.hit_us)
            ));
        } else {
            notes.push(
                "The resolver is taken not to have known what it asked others, by the same name and type, while the \
                 client waited."
                    .to_owned(),
            );
        }
        notes.push(
            "The resolver's time is that between its messages in the copy: inside the server with dnstap, on the wire in a \
             capture. Larder's has two steps between threads in it, and a wait in line where the copy comes in bursts."
                .to_owned(),
        );
        if tally.warm_up == 0 {
            notes.push(
                "Larder began with an empty cache; --shadow-warmup TIME leaves the first questions out."
                    .to_owned(),
            );
        }
        if self.copy.tcp_packets > 0 || self.copy.fragments > 0 {
            notes.push(
                "Messages over TCP and in fragments are not read from captures; dnstap has them."
                    .to_owned(),
            );
        }
        notes
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        let Report { tally, copy, .. } = self;
        let list = |addresses: &[SocketAddr]| {
            addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
        };
        writeln!(
            out,
            "resolver {}, copied from {}{}; larder asked {}",
            list(&self.resolvers),
            self.from,
            if self.is_live { " as it answered" } else { "" },
            self.upstreams.join(", ")
        )?;
        writeln!(
            out,
            "{} records that span {:.1} s, in {:.1} s",
            copy.records,
            self.copied.as_secs_f64(),
            self.took.as_secs_f64()
        )?;
        writeln!(out, "\nquestions {:>12}", tally.queries)?;
        for (count, what) in self.left_out() {
            if count > 0 {
                writeln!(out, "  {count:>10}  {what}")?;
            }
        }
        writeln!(out, "\ncompared {:>13}", tally.compared)?;
        let percent = |count| 100.0 * share(count, tally.compared);
        for (count, what) in [
            (tally.equal, "equal in every field"),
            (tally.expected, "different as expected"),
            (tally.differences(), "different"),
        ] {
            writeln!(out, "  {count:>10}  {:>6.2} %  {what}", percent(count))?;
        }
        if tally.known.iter().any(|count| *count > 0) {
            writeln!(out, "\nexpected differences (an answer may have several)")?;
            for (known, count) in KNOWN.iter().zip(tally.known).filter(|(_, count)| *count > 0) {
                writeln!(out, "  {count:>10}  {}: {}", known.name, known.why)?;
            }
        }
        if !tally.different.is_empty() {
            writeln!(out, "\ndifferences")?;
        }
        for (kind, different) in &tally.different {
            writeln!(out, "  {:>10}  {kind}", different.count)?;
            for example in &different.examples {
                writeln!(out, "              {} {}", example.name, example.rtype)?;
                writeln!(out, "                larder:   {}", example.ours)?;
                writeln!(out, "                resolver: {}", example.theirs)?;
            }
        }
        self.write_figures(out)?;
        writeln!(out)?;
        for note in self.notes() {
            writeln!(out, "Note: {note}")?;
        }
        Ok(())
    }

    fn write_figures(&self, out: &mut String) -> std::fmt::Result {
        let tally = &self.tally;
        writeln!(out, "\n{:<22} {:>12} {:>12}", "", "larder", "resolver")?;
        let row = |out: &mut String, name: &str, ours: String, theirs: String| {
            writeln!(out, "{name:<22} {ours:>12} {theirs:>12}")
        };
        let (theirs, _) = self.theirs_at_once();
        let ours = self.ours_at_once();
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        row(out, "known at once", percent(ours), percent(theirs))?;
        let upstream_theirs = match tally.upstream_theirs {
            0 => "not seen".to_owned(),
            count => count.to_string(),
        };
        row(out, "asked upstream", self.upstream_ours().to_string(), upstream_theirs)?;
        for percent in PERCENTILES {
            let at = |spread: &Histogram| milliseconds(percentile(spread, percent / 100.0));
            let name = format!("answered within p{percent}");
            row(out, &name, at(&tally.ours_us), at(&tally.theirs_us))?;
        }
        let longest = |spread: &Histogram| milliseconds(spread.max());
        row(out, "longest", longest(&tally.ours_us), longest(&tally.theirs_us))?;
        write!(out, "\nTTL, larder's less the resolver's, of {} records:", tally.ttl_s.count())?;
        for percent in TTL_PERCENTILES {
            write!(out, " p{percent} {} s", tally.ttl_s.percentile(percent / 100.0))?;
        }
        writeln!(out)
    }

    /// Queries and responses that are not compared.
    fn left_out(&self) -> [(u64, &'static str); 15] {
        let Report { tally, copy, .. } = self;
        [
            (tally.warm_up, "before, while larder warmed up"),
            (tally.unanswered_theirs, "whose answer by the resolver is not in the copy"),
            (tally.unanswered_ours, "that larder did not answer in time"),
            (tally.ignored_ours, "that larder would not answer, by policy or rate"),
            (tally.unreadable, "with an answer that cannot be read"),
            (tally.passed_over, "passed over: too many were open"),
            (tally.repeated, "seen again while they were open"),
            (tally.malformed, "messages that ask for no data"),
            (tally.unsolicited, "answers to no question that was seen"),
            (copy.foreign, "records of others"),
            (copy.own, "larder's own"),
            (copy.tcp_packets + copy.fragments, "packets of TCP and fragments, not read"),
            (copy.cut, "messages that the capture cut short: capture whole packets"),
            (copy.damaged, "damaged records"),
            (copy.refused_senders, "senders that were refused"),
        ]
    }

    /// Records and queries that are not compared, by why.
    fn left_out_json(&self) -> Value {
        let Report { tally, copy, .. } = self;
        json!({
            "warm_up": tally.warm_up,
            "unanswered_by_resolver": tally.unanswered_theirs,
            "unanswered_by_larder": tally.unanswered_ours,
            "ignored_by_larder": tally.ignored_ours,
            "unreadable": tally.unreadable,
            "passed_over": tally.passed_over,
            "repeated": tally.repeated,
            "malformed": tally.malformed,
            "unasked": tally.unsolicited,
            "foreign": copy.foreign,
            "own": copy.own,
            "tcp_packets": copy.tcp_packets,
            "fragments": copy.fragments,
            "cut": copy.cut,
            "damaged": copy.damaged,
            "refused_senders": copy.refused_senders,
        })
    }

    /// The report as JSON. Times are in microseconds, TTLs in seconds, shares from 0 to 1.
    pub fn json(&self) -> Value {
        let Report { tally, copy, .. } = self;
        let list = |addresses: &[SocketAddr]| {
            addresses.iter().map(|address| address.to_string().into()).collect::<Vec<Value>>()
        };
        let latency = |spread: &Histogram| {
            let mut fields: serde_json::Map<String, Value> = PERCENTILES
                .iter()
                .map(|percent| (format!("p{percent}"), percentile(spread, percent / 100.0).into()))
                .collect();
            fields.insert("max".to_owned(), spread.max().into());
            fields.insert("count".to_owned(), spread.count().into());
            Value::Object(fields)
        };
        let ttl: serde_json::Map<String, Value> = TTL_PERCENTILES
            .iter()
            .map(|percent| (format!("p{percent}"), tally.ttl_s.percentile(percent / 100.0).into()))
            .collect();
        let known: serde_json::Map<String, Value> = (KNOWN.iter().zip(tally.known))
            .filter(|(_, count)| *count > 0)
            .map(|(known, count)| (known.name.to_owned(), count.into()))
            .collect();
        let different: Vec<Value> = (tally.different.iter())
            .map(|(kind, different)| {
                let examples: Vec<Value> = (different.examples.iter())
                    .map(|it| {
                        json!({"name": it.name, "type": it.rtype, "larder": it.ours, "resolver": it.theirs})
                    })
                    .collect();
                json!({"kind": kind, "count": different.count, "examples": examples})
            })
            .collect();
        let (theirs, how) = self.theirs_at_once();
        json!({
            "resolver": list(&self.resolvers),
            "from": self.from,
            "upstreams": self.upstreams,
            "live": self.is_live,
            "took_s": self.took.as_secs_f64(),
            "copied_s": self.copied.as_secs_f64(),
            "records": copy.records,
            "questions": tally.queries,
            "left_out": self.left_out_json(),
            "compared": tally.compared,
            "equal": tally.equal,
            "different_as_expected": tally.expected,
            "expected": known,
            "different": tally.differences(),
            "differences": different,
            "ttl_difference_s": ttl,
            "ttl_records": tally.ttl_s.count(),
            "known_at_once": {
                "larder": self.ours_at_once(),
                "resolver": theirs,
                "resolver_by": how,
            },
            "upstream_questions": {
                "larder": self.upstream_ours(),
                "resolver": (tally.upstream_theirs > 0).then_some(tally.upstream_theirs),
            },
            "latency_us": {"larder": latency(&tally.ours_us), "resolver": latency(&tally.theirs_us)},
            "notes": self.notes(),
        })
    }
}

fn milliseconds(us: u64) -> String {
    format!("{:.3} ms", us as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_serve::log::{Format, Level};

    fn report() -> Report {
        Report {
            resolvers: vec!["192.0.2.1:53".parse().unwrap()],
            from: "tap.sock".to_owned(),
            upstreams: vec!["192.0.2.2:53".to_owned()],
            is_live: true,
            took: Duration::from_secs(2),
            copied: Duration::from_secs(2),
            hit_us: 1_000,
            copy: copy::Counts { records: 9, tcp_packets: 2, ..copy::Counts::default() },
            tally: Tally::default(),
            counts: metrics::Counts::default(),
        }
    }

    /// Without data no share is outside its range, and no division fails.
    #[test]
    fn nothing_is_reported_of_nothing() {
        let report = report();
        assert_eq!(report.json()["known_at_once"]["larder"], 0.0);
        let log = Log::new("dns", Level::Info, Format::Text);
        report.log(&log);
        assert!(log.take()[0].starts_with("info dns: comparison queries=0 compared=0 "));
        assert!(report.text().contains("compared             0"), "{}", report.text());
    }

    /// An estimate states its basis, and a replay its limits.
    #[test]
    fn figures_say_what_they_rest_on() {
        let mut report = report();
        report.tally.compared = 4;
        report.tally.unforwarded_theirs = 3;
        report.tally.theirs_us.add(10);
        assert!(report.text().contains("no questions of the resolver"));
        assert!(report.text().contains("not read from captures"));
        assert!(!report.text().contains("replayed"));
        report.tally.upstream_theirs = 1;
        report.is_live = false;
        assert_eq!(report.json()["known_at_once"]["resolver"], 0.75);
        assert!(report.text().contains("replayed 1.0 times"));
        assert!(!report.text().contains("no questions of the resolver"));
        assert_eq!(report.json()["upstream_questions"]["resolver"], 1);
    }
}
