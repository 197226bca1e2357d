//! What the model says, as a table for eyes, as CSV, and as JSON.
//!
//! A case is a hit ratio: one that somebody gave, or that of a trace replayed against a policy at a capacity.
//! The known error stands beside every result: as a range in every row, and in the table and in JSON as what
//! was measured of real servers beside what the formula says of them.

use serde_json::{Value, json};

use super::{DEFAULT_SOURCE, Error, HitRatio, MIXED_HIT_RATIO, Rates, SERVERS, SHORTFALL, Wanted};
use crate::report::{aligned, grouped};
use crate::sheet::quoted;

/// Columns of [`Report::csv`]; the first five are empty where no trace was replayed. Rates are answers a
/// second, ratios parts of one.
pub const CSV_COLUMNS: &str = "trace,policy,capacity,requests,hits,hit_ratio,q1,q2,external_queries_per_miss,\
time_on_hits,answers_per_s,answers_per_s_least,answers_per_s_most";

/// Columns of [`Report::wanted_csv`].
pub const WANTED_CSV_COLUMNS: &str =
    "trace,policy,capacity,requests,hits,hit_ratio,wanted_time_on_hits,q2_per_q1,q2";

/// A hit ratio, and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The replay that gave it, or nobody but the caller.
    pub traced: Option<Traced>,
    /// The part of the queries that hit.
    pub hit_ratio: HitRatio,
}

/// A replay of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Traced {
    /// What the caller calls the trace.
    pub trace: String,
    /// Name of the policy.
    pub policy: String,
    /// Capacity of the cache, in entries.
    pub capacity: u64,
    /// Look-ups.
    pub requests: u64,
    /// Look-ups answered.
    pub hits: u64,
}

/// Cases, and the server that they are about.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// With [`Self::external_queries`] a miss.
    rates: Rates,
    is_default: bool,
    external_queries: f64,
    cases: Vec<Case>,
    wanted: Vec<Wanted>,
}

impl Report {
    /// A report on a server with these rates, measured with one external query a miss; on [`Rates::default`]
    /// where there are none. For each case and each part of the time that is wanted, it also says which Q2/Q1
    /// that takes.
    ///
    /// # Errors
    /// As [`Rates::with_external_queries`].
    pub fn new(
        rates: Option<Rates>,
        external_queries: f64,
        cases: Vec<Case>,
        wanted: Vec<Wanted>,
    ) -> Result<Report, Error> {
        let is_default = rates.is_none();
        let rates = rates.unwrap_or_default().with_external_queries(external_queries)?;
        Ok(Report { rates, is_default, external_queries, cases, wanted })
    }

    /// For a person: the inputs, the cases, what is wanted, and the known error.
    pub fn table(&self) -> String {
        let mut text = self.inputs();
        for cases in self.by_trace() {
            text.push_str(&heading(cases));
            text.push_str(&aligned(&self.case_cells(cases)));
        }
        if !self.wanted.is_empty() {
            text.push_str(
                "\nQ2/Q1 with which hits take this part of the time (-: above 1, as if a miss were less work \
                 than a hit):\n",
            );
            for cases in self.by_trace() {
                text.push_str(&aligned(&self.wanted_cells(cases)));
            }
        }
        text.push_str(&known_error());
        text
    }

    /// The cases (RFC 4180, but with line feeds).
    pub fn csv(&self) -> String {
        let mut text = format!("{CSV_COLUMNS}\n");
        let (q1, q2) = (rate_field(self.rates.q1()), rate_field(self.rates.q2()));
        for case in &self.cases {
            let r = case.hit_ratio;
            let (least, most) = self.rates.expected(r);
            text.push_str(&format!(
                "{},{:.6},{q1},{q2},{},{:.6},{},{},{}\n",
                origin_fields(case),
                r.get(),
                self.external_queries,
                self.rates.time_on_hits(r),
                rate_field(self.rates.throughput(r)),
                rate_field(least),
                rate_field(most),
            ));
        }
        text
    }

    /// What is wanted of Q2, a row for each case and wanted part; empty fields where nothing would do.
    pub fn wanted_csv(&self) -> String {
        let mut text = format!("{WANTED_CSV_COLUMNS}\n");
        for case in &self.cases {
            for wanted in &self.wanted {
                let ratio = wanted.rate_ratio(case.hit_ratio);
                text.push_str(&format!(
                    "{},{:.6},{},{},{}\n",
                    origin_fields(case),
                    case.hit_ratio.get(),
                    wanted.get(),
                    ratio.map(|ratio| format!("{ratio:.6}")).unwrap_or_default(),
                    ratio.map(|ratio| rate_field(ratio * self.rates.q1())).unwrap_or_default(),
                ));
            }
        }
        text
    }

    /// As one JSON object.
    pub fn json(&self) -> String {
        let known_error = json!({
            "hit_ratio": MIXED_HIT_RATIO.get(),
            "fewer_answers_least": SHORTFALL.0,
            "fewer_answers_most": SHORTFALL.1,
            "servers": SERVERS.map(|server| json!({
                "name": server.name,
                "q1_least": server.hits.0,
                "q1_most": server.hits.1,
                "q2": server.misses,
                "formula_answers_per_s": [server.formula().0, server.formula().1],
                "measured_answers_per_s": server.mixed,
                "fewer_answers": [server.shortfall().0, server.shortfall().1],
            })),
        });
        let report = json!({
            "q1": self.rates.q1(),
            "q2": self.rates.q2(),
            "external_queries_per_miss": self.external_queries,
            "rates_from": if self.is_default { DEFAULT_SOURCE } else { "given" },
            "cases": self.cases.iter().map(|case| self.case_json(case)).collect::<Vec<Value>>(),
            "known_error": known_error,
        });
        format!("{report:#}\n")
    }

    fn case_json(&self, case: &Case) -> Value {
        let r = case.hit_ratio;
        let (least, most) = self.rates.expected(r);
        let wanted = self.wanted.iter().map(
            |wanted| json!({ "time_on_hits": wanted.get(), "q2_per_q1": wanted.rate_ratio(r) }),
        );
        let traced = case.traced.as_ref();
        json!({
            "trace": traced.map(|traced| &traced.trace),
            "policy": traced.map(|traced| &traced.policy),
            "capacity": traced.map(|traced| traced.capacity),
            "requests": traced.map(|traced| traced.requests),
            "hits": traced.map(|traced| traced.hits),
            "hit_ratio": r.get(),
            "time_on_hits": self.rates.time_on_hits(r),
            "answers_per_s": self.rates.throughput(r),
            "answers_per_s_least": least,
            "answers_per_s_most": most,
            "wanted": wanted.collect::<Vec<Value>>(),
        })
    }

    fn inputs(&self) -> String {
        let (q1, q2) = (rate_text(self.rates.q1()), rate_text(self.rates.q2()));
        let width = q1.len().max(q2.len());
        let queries = if self.external_queries == 1.0 { "query" } else { "queries" };
        let mut text = format!(
            "A = r*Q2 / (r*Q2 + Q1*(1-r)), the part of its time that a server spends on hits\n\
             Q1  {q1:>width$} answers/s when all queries hit\n\
             Q2  {q2:>width$} answers/s when all miss, with {} external {queries} a miss\n",
            self.external_queries
        );
        if self.is_default {
            text.push_str(&format!(
                "Q1 and Q2 are not yours (give --q1 and --q2) but those of\n{DEFAULT_SOURCE}\n"
            ));
        }
        text
    }

    fn case_cells(&self, cases: &[Case]) -> Vec<Vec<String>> {
        let (least, most) = (SHORTFALL.0 * 100.0, SHORTFALL.1 * 100.0);
        let mut header = origin_header(cases);
        header.extend([
            "hit ratio r".to_owned(),
            "time on hits A".to_owned(),
            "answers/s".to_owned(),
            format!("less {least:.0} to {most:.0} %"),
        ]);
        let row = |case: &Case| {
            let (low, high) = self.rates.expected(case.hit_ratio);
            let mut cells = origin_cells(case);
            cells.extend([
                percent(case.hit_ratio.get()),
                percent(self.rates.time_on_hits(case.hit_ratio)),
                rate_text(self.rates.throughput(case.hit_ratio)),
                span(rate_text(low), rate_text(high)),
            ]);
            cells
        };
        [header].into_iter().chain(cases.iter().map(row)).collect()
    }

    fn wanted_cells(&self, cases: &[Case]) -> Vec<Vec<String>> {
        let mut header = origin_header(cases);
        header.push("hit ratio r".to_owned());
        let parts = self.wanted.iter().map(|wanted| {
            let part = wanted.get() * 100.0;
            format!("{} %", (part * 1e6).round() / 1e6)
        });
        header.extend(parts);
        let row = |case: &Case| {
            let mut cells = origin_cells(case);
            cells.push(percent(case.hit_ratio.get()));
            let ratio = |wanted: &Wanted| wanted.rate_ratio(case.hit_ratio);
            let text = |ratio: Option<f64>| match ratio {
                Some(ratio) if ratio <= 1.0 => format!("{ratio:.2}"),
                _ => "-".to_owned(),
            };
            cells.extend(self.wanted.iter().map(|wanted| text(ratio(wanted))));
            cells
        };
        [header].into_iter().chain(cases.iter().map(row)).collect()
    }

    /// Cases of the same trace that follow one another.
    fn by_trace(&self) -> impl Iterator<Item = &[Case]> {
        self.cases.chunk_by(|one, other| trace_of(one) == trace_of(other))
    }
}

fn trace_of(case: &Case) -> Option<&str> {
    case.traced.as_ref().map(|traced| traced.trace.as_str())
}

/// What stands above the cases of a trace.
fn heading(cases: &[Case]) -> String {
    match cases.first().and_then(|case| case.traced.as_ref()) {
        Some(Traced { trace, requests, .. }) => {
            format!("\n{trace}: {} look-ups\n", grouped(*requests))
        }
        None => "\n".to_owned(),
    }
}

fn origin_header(cases: &[Case]) -> Vec<String> {
    let is_traced = cases.iter().any(|case| case.traced.is_some());
    let names = if is_traced { vec!["policy", "capacity"] } else { vec![] };
    names.into_iter().map(str::to_owned).collect()
}

fn origin_cells(case: &Case) -> Vec<String> {
    let traced = case.traced.iter();
    traced.flat_map(|traced| [traced.policy.clone(), grouped(traced.capacity)]).collect()
}

fn origin_fields(case: &Case) -> String {
    match &case.traced {
        Some(Traced { trace, policy, capacity, requests, hits }) => {
            format!("{},{},{capacity},{requests},{hits}", quoted(trace), quoted(policy))
        }
        None => ",,,,".to_owned(),
    }
}

/// What the formula says of measured servers, beside what they do.
fn known_error() -> String {
    let thousands = |rate: f64| format!("{:.0}", rate / 1_000.0);
    let header =
        ["server", "Q1", "Q2", "formula", "measured", "fewer by"].map(str::to_owned).to_vec();
    let row = |server: &super::Server| {
        let (formula, shortfall) = (server.formula(), server.shortfall());
        vec![
            server.name.to_owned(),
            span(thousands(server.hits.0), thousands(server.hits.1)),
            thousands(server.misses),
            span(thousands(formula.0), thousands(formula.1)),
            thousands(server.mixed),
            span(format!("{:.0}", shortfall.0 * 100.0), format!("{:.0}", shortfall.1 * 100.0))
                + " %",
        ]
    };
    let rows: Vec<Vec<String>> = [header].into_iter().chain(SERVERS.iter().map(row)).collect();
    format!(
        "\nThe formula leaves out what hits and misses cost one another: measured servers answer {:.0} to \
         {:.0} % fewer\nat {:.0} % hits. Three of them (thousands of answers a CPU second, one core, loopback, \
         forwarding):\n{}",
        SHORTFALL.0 * 100.0,
        SHORTFALL.1 * 100.0,
        MIXED_HIT_RATIO.get() * 100.0,
        aligned(&rows)
    )
}

/// `24 to 27`, or one of them where they read the same.
fn span(least: String, most: String) -> String {
    if least == most { least } else { format!("{least} to {most}") }
}

fn percent(part: f64) -> String {
    format!("{:.2} %", part * 100.0)
}

/// A rate for a person: whole answers, with decimals where there are few.
fn rate_text(rate: f64) -> String {
    if rate >= 100.0 { grouped(rate.round() as u64) } else { format!("{rate:.3}") }
}

/// A rate for a program.
fn rate_field(rate: f64) -> String {
    format!("{rate:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rates: Option<Rates>, external_queries: f64) -> Report {
        let hit_ratio = HitRatio::new(0.9).unwrap();
        let traced = Traced {
            trace: "monday, all.pcap".to_owned(),
            policy: "lru".to_owned(),
            capacity: 10_000,
            requests: 1_000,
            hits: 900,
        };
        let case = Case { traced: Some(traced), hit_ratio };
        let wanted = [0.7, 0.5].map(|part| Wanted::new(part).unwrap());
        Report::new(rates, external_queries, vec![case], wanted.to_vec()).unwrap()
    }

    fn line<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
        let line = text.lines().find(|line| line.starts_with(start)).expect("the line is there");
        line.split_whitespace().collect()
    }

    /// CSV has the promised columns, and in them what the formula gives by hand.
    #[test]
    fn csv_is_as_promised() {
        let rates = Rates::new(1_000.0, 200.0).unwrap();
        let text = report(Some(rates), 1.5).csv();
        let (header, row) = text.split_once('\n').unwrap();
        assert_eq!(header, CSV_COLUMNS);
        // 0.9 ms on hits, 0.7 ms on misses: 1.6 ms a query, 625 a second, and 56.25 % of it on hits.
        assert_eq!(
            row,
            "\"monday, all.pcap\",lru,10000,1000,900,0.900000,1000.000,142.857,1.5,0.562500,625.000,\
             493.750,606.250\n"
        );
        let text = report(Some(rates), 1.0).wanted_csv();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], WANTED_CSV_COLUMNS);
        assert_eq!(
            lines[1],
            "\"monday, all.pcap\",lru,10000,1000,900,0.900000,0.7,0.259259,259.259"
        );
        assert_eq!(lines.len(), 3);
    }

    /// The table says whose numbers it uses, the result with its range, what is wanted, and the known error.
    #[test]
    fn the_table_tells_all() {
        let text = report(None, 1.0).table();
        assert!(text.contains("not yours") && text.contains("\nunbound on one core"), "{text}");
        assert_eq!(
            line(&text, "lru")[..],
            ["lru", "10,000", "90.00", "%", "56.25", "%", "105,000", "82,950", "to", "101,850"]
        );
        assert!(text.lines().any(|line| line.ends_with("  0.26  0.11")), "{text}");
        assert_eq!(
            line(&text, "unbound  ")[..],
            ["unbound", "160", "to", "176", "24", "102", "to", "108", "100", "2", "to", "7", "%"]
        );
        assert_eq!(line(&text, "dnsdist")[..], ["dnsdist", "167", "76", "149", "124", "17", "%"]);
        let given = report(Some(Rates::new(50.0, 20.0).unwrap()), 1.44).table();
        assert!(
            given.contains("with 1.44 external queries a miss") && !given.contains("not yours")
        );
    }

    /// JSON has what the table has; what cannot be reached is null.
    #[test]
    fn json_tells_all() {
        let none = Case { traced: None, hit_ratio: HitRatio::new(0.0).unwrap() };
        let wanted = vec![Wanted::new(0.5).unwrap()];
        let report = Report::new(None, 1.0, vec![none], wanted).unwrap();
        let value: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(value["cases"][0]["wanted"][0]["q2_per_q1"], Value::Null);
        assert_eq!(value["cases"][0]["trace"], Value::Null);
        assert_eq!(value["cases"][0]["answers_per_s"], 24_000.0);
        assert_eq!(value["known_error"]["servers"][2]["name"], "BIND");
        assert!(report.table().lines().any(|line| line.split_whitespace().eq(["0.00", "%", "-"])));
        assert!(value["rates_from"].as_str().unwrap().starts_with("unbound"));
        assert!(report.wanted_csv().ends_with(",0.000000,0.5,,\n"));
    }
}
