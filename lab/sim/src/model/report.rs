//! The model's results as a table for people, as CSV, and as JSON.
//!
//! A case is a hit ratio: one that the caller gave, or that of a trace replayed against a policy at a capacity.
//! Every result has the known error: as a range in every row, and in the table and in JSON as measurements of
//! real servers next to the formula's results for them.

use larder_bench::result_table::{Cell, ResultTable, grouped};
use serde_json::{Value, json};

use super::{DEFAULT_SOURCE, Error, HitRatio, MIXED_HIT_RATIO, Rates, SERVERS, SHORTFALL, Wanted};

/// Columns that say where a hit ratio comes from; the first five are empty where no trace was replayed.
const ORIGIN_COLUMNS: [&str; 6] = ["trace", "policy", "capacity", "requests", "hits", "hit_ratio"];

/// The other columns of [`Report::csv`]. Rates are responses a second, ratios parts of one.
const CASE_COLUMNS: [&str; 7] = [
    "q1",
    "q2",
    "external_queries_per_miss",
    "time_on_hits",
    "answers_per_s",
    "answers_per_s_least",
    "answers_per_s_most",
];

/// The other columns of [`Report::wanted_csv`].
const WANTED_COLUMNS: [&str; 3] = ["wanted_time_on_hits", "q2_per_q1", "q2"];

/// A hit ratio, and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The replay that gave it; `None` if the caller gave it.
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
    /// Lookups.
    pub requests: u64,
    /// Lookups answered.
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
    /// where there are none. For each case and each part of the time that is wanted, it also states the Q2/Q1
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
            text.push_str(&self.case_rows(cases).text());
        }
        if !self.wanted.is_empty() {
            text.push_str(
                "\nQ2/Q1 with which hits take this part of the time (-: above 1, as if a miss were less work \
                 than a hit):\n",
            );
            for cases in self.by_trace() {
                text.push_str(&self.wanted_rows(cases).text());
            }
        }
        text.push_str(&known_error());
        text
    }

    /// The cases (RFC 4180, but with line feeds).
    pub fn csv(&self) -> String {
        let mut table = ResultTable::new(&[&ORIGIN_COLUMNS[..], &CASE_COLUMNS].concat());
        for case in &self.cases {
            let r = case.hit_ratio;
            let (least, most) = self.rates.expected(r);
            let rate = |rate| Cell::Number(rate, 3);
            table.push(origin(case).into_iter().chain([
                rate(self.rates.q1()),
                rate(self.rates.q2()),
                Cell::Figure(self.external_queries.to_string()),
                Cell::ratio(self.rates.time_on_hits(r)),
                rate(self.rates.throughput(r)),
                rate(least),
                rate(most),
            ]));
        }
        table.csv()
    }

    /// What is wanted of Q2, a row for each case and wanted part; empty fields where nothing would do.
    pub fn wanted_csv(&self) -> String {
        let mut table = ResultTable::new(&[&ORIGIN_COLUMNS[..], &WANTED_COLUMNS].concat());
        for case in &self.cases {
            for wanted in &self.wanted {
                let ratio = wanted.rate_ratio(case.hit_ratio);
                let q2 = |ratio| Cell::Number(ratio * self.rates.q1(), 3);
                table.push(origin(case).into_iter().chain([
                    Cell::Figure(wanted.get().to_string()),
                    ratio.map_or(Cell::Unknown, Cell::ratio),
                    ratio.map_or(Cell::Unknown, q2),
                ]));
            }
        }
        table.csv()
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

    fn case_rows(&self, cases: &[Case]) -> ResultTable {
        let less = format!("less {:.0} to {:.0} %", SHORTFALL.0 * 100.0, SHORTFALL.1 * 100.0);
        let mut titles = origin_titles(cases);
        titles.extend(["hit ratio r", "time on hits A", "answers/s", &less]);
        let mut table = ResultTable::new(&titles);
        for case in cases {
            let (low, high) = self.rates.expected(case.hit_ratio);
            let mut cells = origin_cells(case);
            cells.extend([
                Cell::Figure(percent(self.rates.time_on_hits(case.hit_ratio))),
                Cell::Figure(rate_text(self.rates.throughput(case.hit_ratio))),
                Cell::Figure(span(rate_text(low), rate_text(high))),
            ]);
            table.push(cells);
        }
        table
    }

    fn wanted_rows(&self, cases: &[Case]) -> ResultTable {
        let part = |wanted: &Wanted| format!("{} %", (wanted.get() * 1e8).round() / 1e6);
        let parts: Vec<String> = self.wanted.iter().map(part).collect();
        let mut titles = origin_titles(cases);
        titles.push("hit ratio r");
        titles.extend(parts.iter().map(String::as_str));
        let mut table = ResultTable::new(&titles);
        for case in cases {
            let ratios = self.wanted.iter().map(|wanted| wanted.rate_ratio(case.hit_ratio));
            let cell = |ratio: Option<f64>| match ratio {
                Some(ratio) if ratio <= 1.0 => Cell::Number(ratio, 2),
                _ => Cell::Unknown,
            };
            table.push(origin_cells(case).into_iter().chain(ratios.map(cell)));
        }
        table
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
            format!("\n{trace}: {} lookups\n", grouped(*requests))
        }
        None => "\n".to_owned(),
    }
}

fn origin_titles(cases: &[Case]) -> Vec<&str> {
    let is_traced = cases.iter().any(|case| case.traced.is_some());
    if is_traced { vec!["policy", "capacity"] } else { vec![] }
}

/// The cells of [`origin_titles`], and the hit ratio; the first one is to the left.
fn origin_cells(case: &Case) -> Vec<Cell> {
    let hit_ratio = percent(case.hit_ratio.get());
    match &case.traced {
        Some(Traced { policy, capacity, .. }) => {
            let capacity = Cell::Figure(grouped(*capacity));
            vec![policy.as_str().into(), capacity, Cell::Figure(hit_ratio)]
        }
        None => vec![hit_ratio.into()],
    }
}

/// The cells of [`ORIGIN_COLUMNS`].
fn origin(case: &Case) -> [Cell; ORIGIN_COLUMNS.len()] {
    let hit_ratio = Cell::ratio(case.hit_ratio.get());
    match &case.traced {
        Some(Traced { trace, policy, capacity, requests, hits }) => [
            trace.as_str().into(),
            policy.as_str().into(),
            (*capacity).into(),
            (*requests).into(),
            (*hits).into(),
            hit_ratio,
        ],
        None => {
            [Cell::Unknown, Cell::Unknown, Cell::Unknown, Cell::Unknown, Cell::Unknown, hit_ratio]
        }
    }
}

/// The formula's results for measured servers, next to the measurements.
fn known_error() -> String {
    let thousands = |rate: f64| format!("{:.0}", rate / 1_000.0);
    let mut table = ResultTable::new(&["server", "Q1", "Q2", "formula", "measured", "fewer by"]);
    for server in &SERVERS {
        let (formula, shortfall) = (server.formula(), server.shortfall());
        let fewer =
            span(format!("{:.0}", shortfall.0 * 100.0), format!("{:.0}", shortfall.1 * 100.0));
        table.push([
            server.name.into(),
            Cell::Figure(span(thousands(server.hits.0), thousands(server.hits.1))),
            Cell::Figure(thousands(server.misses)),
            Cell::Figure(span(thousands(formula.0), thousands(formula.1))),
            Cell::Figure(thousands(server.mixed)),
            Cell::Figure(fewer + " %"),
        ]);
    }
    format!(
        "\nThe formula leaves out what hits and misses cost one another: measured servers answer {:.0} to \
         {:.0} % fewer\nat {:.0} % hits. Three of them (thousands of answers a CPU second, one core, loopback, \
         forwarding):\n{}",
        SHORTFALL.0 * 100.0,
        SHORTFALL.1 * 100.0,
        MIXED_HIT_RATIO.get() * 100.0,
        table.text()
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
        assert_eq!(
            header,
            "trace,policy,capacity,requests,hits,hit_ratio,q1,q2,external_queries_per_miss,\
             time_on_hits,answers_per_s,answers_per_s_least,answers_per_s_most"
        );
        // 0.9 ms on hits, 0.7 ms on misses: 1.6 ms a query, 625 a second, and 56.25 % of it on hits.
        assert_eq!(
            row,
            "\"monday, all.pcap\",lru,10000,1000,900,0.900000,1000.000,142.857,1.5,0.562500,625.000,\
             493.750,606.250\n"
        );
        let text = report(Some(rates), 1.0).wanted_csv();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "trace,policy,capacity,requests,hits,hit_ratio,wanted_time_on_hits,q2_per_q1,q2"
        );
        assert_eq!(
            lines[1],
            "\"monday, all.pcap\",lru,10000,1000,900,0.900000,0.7,0.259259,259.259"
        );
        assert_eq!(lines.len(), 3);
    }

    /// The table states whose numbers it uses, the result with its range, what is wanted, and the known error.
    #[test]
    fn the_table_is_complete() {
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
    fn json_is_complete() {
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
