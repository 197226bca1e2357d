//! What was measured, as tables for people and lines of JSON for programs.
//!
//! ```json
//! {"work":"hits","hot":10000,"hit_percent":100,"cores":1,"server":"unbound","is_limit":false,
//!  "answers_per_cpu_s":150000,"answers_per_cpu_s_interval":[..],"answers_per_s":..,"busy":..,"of_limit":..,
//!  "larder_over_this":..,"upstream":..,"latency_rate_per_s":..,"p50_us":..,"p99_us":..,"p99_9_us":..,
//!  "bytes_a_name":..,"filled_bytes":..,"wrong":0,"lost":0,"runs":10}
//! ```
//!
//! Every median has its 95 % interval, in a field that ends in `_interval`. What was not measured is
//! null in JSON and a dash in tables.

use std::fmt::Write as _;

use serde_json::json;

use super::plan::{Entry, Figures, Measured};
use crate::result_table::{self, Cell, ResultTable, Style};
use crate::row::{add_medians, rounded};
use crate::sample::Median;
use crate::servers::{self, LARDER};

/// Columns of a table, with their meaning.
const COLUMNS: [(&str, &str); 12] = [
    ("server", "the contestant; in brackets what UDP allows: an echo, a relay, a mix of both"),
    (
        "k/CPU s",
        "thousand answers a second of the server's processor time, median and 95 % interval",
    ),
    (
        "of limit",
        "that over the limit's, round by round: echo for hits, relay for misses, both for a mix",
    ),
    ("larder/this", "larder's over this one's, round by round"),
    ("k/s", "thousand answers a second by the clock, server and generator together"),
    ("busy", "share of its cores' time that the server ran"),
    ("p50 us", "how long half of the answers took at most, at half the rate of the slowest"),
    ("p99 us", "and 99 %"),
    ("p99.9 us", "and 99.9 %"),
    ("upstream", "questions to the upstream for a miss; where there are no misses, for a question"),
    ("B/name", "bytes that the process grew by for a hot name; of few names that says nothing"),
    ("wrong/lost", "answers that were wrong, questions without an answer; of all rounds"),
];

/// larder's figures, where it took part.
fn larder(measured: &Measured) -> Option<&Figures> {
    let found = measured.entries.iter().find(|entry| entry.name == LARDER);
    found.map(|entry| &entry.figures)
}

/// larder's answers a second of processor time over another's.
fn larder_over(measured: &Measured, entry: &Entry) -> Median {
    let own = larder(measured).map_or(&[][..], |larder| &larder.per_cpu_s);
    Median::of_ratios(own, &entry.figures.per_cpu_s)
}

/// Bytes that a process grew by for each hot name.
fn bytes_a_name(measured: &Measured, figures: &Figures) -> f64 {
    match (figures.empty_bytes, figures.filled_bytes) {
        (Some(empty), Some(filled)) => {
            (filled as f64 - empty as f64) / f64::from(measured.work.hot.max(1))
        }
        _ => f64::NAN,
    }
}

impl servers::Measured for Measured {
    fn table(&self, style: Style) -> String {
        let work = &self.work;
        let mut text = match style {
            Style::Text => String::new(),
            Style::Markdown => "### ".to_owned(),
        };
        let _ =
            write!(text, "{}: {} % hits over {} names, ", work.name, work.hit_percent, work.hot);
        let _ = write!(text, "server on {} core(s), {} rounds", self.cores, self.rounds);
        if self.rate_per_s > 0 {
            let _ = write!(text, ", waiting at {}/s", self.rate_per_s);
        }
        text.push_str("\n\n");
        let mut table = ResultTable::new(&COLUMNS.map(|(title, _)| title));
        self.entries.iter().for_each(|entry| table.push(self.cells(entry)));
        text + &table.draw(style)
    }

    fn json(&self) -> String {
        self.entries.iter().map(|entry| self.line(entry) + "\n").collect()
    }
}

impl Measured {
    fn cells(&self, entry: &Entry) -> [Cell; COLUMNS.len()] {
        let figures = &entry.figures;
        let thousands = |figures: &[f64]| {
            let Median { value, low, high, runs } = Median::of(figures);
            Median { value: value / 1e3, low: low / 1e3, high: high / 1e3, runs }
        };
        let median = |figures: &[f64]| Cell::short(Median::of(figures).value);
        let [p50, p99, p999] = figures.latency_us.each_ref().map(|figures| median(figures));
        let ratio = match entry.name == LARDER {
            true => Cell::Unknown,
            false => Cell::ranged(larder_over(self, entry)),
        };
        let name = if entry.is_limit { format!("({})", entry.name) } else { entry.name.to_owned() };
        [
            name.into(),
            Cell::ranged(thousands(&figures.per_cpu_s)),
            Cell::ranged(Median::of(&figures.of_limit)),
            ratio,
            Cell::short(thousands(&figures.per_s).value),
            median(&figures.busy),
            p50,
            p99,
            p999,
            median(&figures.upstream),
            Cell::short(bytes_a_name(self, figures)),
            Cell::Figure(format!("{}/{}", figures.wrong, figures.lost)),
        ]
    }

    fn line(&self, entry: &Entry) -> String {
        let (work, figures) = (&self.work, &entry.figures);
        let mut line = json!({
            "work": work.name,
            "hot": work.hot,
            "hit_percent": work.hit_percent,
            "cores": self.cores,
            "server": entry.name,
            "is_limit": entry.is_limit,
            "latency_rate_per_s": self.rate_per_s,
            "bytes_a_name": rounded(bytes_a_name(self, figures)),
            "empty_bytes": figures.empty_bytes,
            "filled_bytes": figures.filled_bytes,
            "wrong": figures.wrong,
            "lost": figures.lost,
            "runs": self.rounds,
        });
        let [p50, p99, p999] = figures.latency_us.each_ref().map(|figures| Median::of(figures));
        let medians = [
            ("answers_per_cpu_s", Median::of(&figures.per_cpu_s)),
            ("of_limit", Median::of(&figures.of_limit)),
            ("larder_over_this", larder_over(self, entry)),
            ("answers_per_s", Median::of(&figures.per_s)),
            ("busy", Median::of(&figures.busy)),
            ("upstream", Median::of(&figures.upstream)),
            ("p50_us", p50),
            ("p99_us", p99),
            ("p99_9_us", p999),
        ];
        add_medians(&mut line, medians);
        line.to_string()
    }
}

/// What the columns say.
pub fn legend(style: Style) -> String {
    result_table::legend(&COLUMNS, style)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Work;
    use super::servers::Measured as _;
    use super::*;
    use serde_json::Value;

    fn measured() -> Measured {
        let figures = |scale: f64| Figures {
            per_cpu_s: vec![100e3 * scale, 102e3 * scale, 101e3 * scale],
            per_s: vec![90e3; 3],
            of_limit: vec![0.9 * scale; 3],
            filled_bytes: Some(3_000_000),
            empty_bytes: Some(1_000_000),
            ..Figures::default()
        };
        let entry = |name, is_limit, scale| Entry { name, is_limit, figures: figures(scale) };
        Measured {
            work: Work { name: "hits".to_owned(), hot: 10_000, hit_percent: 100 },
            cores: 1,
            rounds: 3,
            rate_per_s: 0,
            entries: vec![
                entry(LARDER, false, 1.0),
                entry("bind", false, 0.5),
                entry("echo", true, 1.1),
            ],
        }
    }

    /// A table has a line for each contestant with larder's ratio to it; Markdown has as many cells in every line.
    #[test]
    fn tables_are_tables() {
        let text = measured().table(Style::Text);
        assert!(text.starts_with("hits: 100 % hits over 10000 names"), "{text}");
        let line =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(
            line("bind").contains("50.5 [50.0, 51.0]") && line("bind").contains("2.00"),
            "{text}"
        );
        assert!(
            line("larder").contains("101 [100, 102]") && line("(echo)").contains(" 200 "),
            "{text}"
        );
        let markdown = measured().table(Style::Markdown);
        let bars: Vec<usize> =
            markdown.lines().skip(2).map(|line| line.matches('|').count()).collect();
        assert_eq!(bars, vec![COLUMNS.len() + 1; 5], "{markdown}");
        assert_eq!(legend(Style::Text).lines().count(), COLUMNS.len());
    }

    /// Lines of JSON are objects; what was not measured is null.
    #[test]
    fn lines_are_json() {
        let json = measured().json();
        let lines: Vec<Value> =
            json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1]["server"], "bind");
        assert_eq!(lines[1]["larder_over_this"], 2.0);
        assert_eq!(lines[1]["bytes_a_name"], 200.0);
        assert_eq!(lines[2]["is_limit"], true);
        assert!(lines[0]["p99_us"].is_null() && lines[0]["p99_us_interval"][1].is_null());
    }
}
