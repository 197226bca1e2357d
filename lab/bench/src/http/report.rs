//! What was measured, as tables for people and lines of JSON for programs.
//!
//! ```json
//! {"work":"hits 1 KB","bytes":1024,"cores":1,"connections":100,"server":"nginx","is_limit":false,
//!  "cpu_us_per_request":15.3,"cpu_us_per_request_interval":[..],"cpu_s_per_gb":..,"cpu_of_best":..,"larder_over_this":..,
//!  "requests_per_s":..,"gb_per_s":..,"rate_of_best":..,"busy":..,"clients_busy":..,"switches_per_s":..,"p50_us":..,"p99_us":..,
//!  "fetches":..,"first_ms":..,"first_ms_most":..,"last_s":..,"threads":4,"peak_bytes":..,"calls_per_request":..,
//!  "calls":{"sendto":1.0},"wrong":0,"failed":0,"first_fault":null,"runs":5}
//! ```
//!
//! Every median has its 95 % interval, in a field that ends in `_interval`. What was not measured is
//! null in JSON and a dash in tables.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::plan::{Entry, Kind, Measured};
use crate::result_table::{self, Cell, ResultTable, Style, short};
use crate::row::{add_medians, rounded};
use crate::sample::Median;
use crate::servers::{self, LARDER};

/// Columns of a table, with their meaning.
const COLUMNS: [(&str, &str); 20] = [
    ("server", "the contestant; in brackets what a sender without HTTP does"),
    (
        "CPU us/req",
        "microseconds of the server's processor time a response, median and 95 % interval",
    ),
    ("CPU s/GB", "seconds of it for 10^9 bytes of bodies"),
    (
        "of best",
        "its processor time over that of the best server that is not larder, round by round",
    ),
    ("larder/this", "larder's processor time over this one's, round by round"),
    ("req/s", "responses a second by the clock, server and clients together"),
    ("GB/s", "10^9 bytes of bodies a second"),
    ("of fastest", "its bytes a second over those of the fastest server that is not larder"),
    ("busy", "share of its cores' time that the server ran"),
    (
        "clients",
        "share of as many cores' time that the clients ran: near 1 they are what limits the rate",
    ),
    ("p50 us", "how long half of the responses took at most, from request to last byte"),
    ("p99 us", "and 99 %"),
    ("fetches", "requests that the origin got"),
    ("first ms", "from the origin's first byte to a client's, for half of the clients at most"),
    ("most ms", "and for all of them"),
    ("last s", "from request to last byte, for half of the clients at most"),
    ("threads", "of all its processes"),
    ("switches/s", "times a second that a thread left its processor"),
    ("peak MB", "most memory, the sum over its processes, what they share counted for each"),
    ("calls/req", "system calls a response, in a run of their own under strace"),
];

/// Those that works which ask again and again have no use for, and those of the others.
const ONLY_BUSY: [&str; 4] = ["fetches", "first ms", "most ms", "last s"];
const NOT_BUSY: [&str; 6] = ["CPU us/req", "req/s", "of fastest", "p50 us", "p99 us", "calls/req"];

impl Measured {
    fn columns(&self) -> impl Iterator<Item = &'static str> + use<> {
        let is_busy = self.work.kind == Kind::Busy;
        let left_out = if is_busy { &NOT_BUSY[..] } else { &ONLY_BUSY[..] };
        COLUMNS.iter().map(|(title, _)| *title).filter(|title| !left_out.contains(title))
    }

    fn larder_over(&self, entry: &Entry) -> Median {
        let found = self.entries.iter().find(|entry| entry.name == LARDER);
        let own = found.map_or(&[][..], |larder| self.costs(&larder.figures));
        Median::of_ratios(own, self.costs(&entry.figures))
    }

    fn of_best(&self, entry: &Entry) -> Median {
        let best = self.least(LARDER, |figures| self.costs(figures));
        Median::of_ratios(self.costs(&entry.figures), best.unwrap_or_default())
    }

    fn of_fastest(&self, entry: &Entry) -> Median {
        let others = self.entries.iter().filter(|entry| !entry.is_limit && entry.name != LARDER);
        let rates = others.map(|entry| &entry.figures.gb_per_s);
        let value = |rates: &[f64]| Median::of(rates).value;
        let fastest = rates.max_by(|one, other| value(one).total_cmp(&value(other)));
        Median::of_ratios(&entry.figures.gb_per_s, fastest.map_or(&[][..], Vec::as_slice))
    }
}

impl servers::Measured for Measured {
    /// A title and a table, and what was wrong if anything was.
    fn table(&self, style: Style) -> String {
        let titles: Vec<&str> = self.columns().chain(["wrong/failed"]).collect();
        let mut table = ResultTable::new(&titles);
        self.entries.iter().for_each(|entry| table.push(self.cells(entry)));
        let mut text = match style {
            Style::Text => String::new(),
            Style::Markdown => "### ".to_owned(),
        };
        let plan = &self.plan;
        let _ = write!(text, "{}: ", self.work.name());
        let _ = match self.work.kind {
            Kind::Busy => write!(
                text,
                "{} clients at once, origin sends for {} s, ",
                plan.clients,
                plan.takes.as_secs_f64()
            ),
            _ => write!(text, "{} connections, ", plan.connections),
        };
        let _ = writeln!(text, "server on {} core(s), {} rounds\n", plan.cores, plan.rounds);
        text += &table.draw(style);
        for Entry { name, figures, .. } in &self.entries {
            if let Some(fault) = &figures.first_fault {
                let _ = writeln!(text, "\n{name}: the first fault was: {fault}");
            }
        }
        if let Some(calls) = self.calls() {
            let _ = write!(text, "\n{calls}");
        }
        text
    }

    fn json(&self) -> String {
        self.entries.iter().map(|entry| self.line(entry) + "\n").collect()
    }
}

impl Measured {
    /// System calls by name.
    fn calls(&self) -> Option<String> {
        let mut text = String::new();
        for Entry { name, figures, .. } in &self.entries {
            let Some(calls) = &figures.calls else { continue };
            let often = calls.by_name.iter().filter(|(_, calls)| *calls >= 0.01);
            let often: Vec<String> =
                often.map(|(call, calls)| format!("{call} {}", short(*calls))).collect();
            let _ = writeln!(text, "calls of {name}: {}", often.join(", "));
        }
        (!text.is_empty()).then_some(text)
    }

    fn cells(&self, entry: &Entry) -> Vec<Cell> {
        let figures = &entry.figures;
        let median = |figures: &[f64]| Cell::short(Median::of(figures).value);
        let cell = |title: &str| match title {
            "server" if entry.is_limit => format!("({})", entry.name).into(),
            "server" => entry.name.into(),
            "CPU us/req" if self.work.is_short() => {
                Cell::ranged(Median::of(&figures.cpu_us_per_request))
            }
            "CPU us/req" => median(&figures.cpu_us_per_request),
            "CPU s/GB" if self.work.is_short() => median(&figures.cpu_s_per_gb),
            "CPU s/GB" => ranged3(Median::of(&figures.cpu_s_per_gb)),
            "of best" => Cell::ranged(self.of_best(entry)),
            "larder/this" if entry.name == LARDER => Cell::Unknown,
            "larder/this" => Cell::short(self.larder_over(entry).value),
            "req/s" => median(&figures.requests_per_s),
            "GB/s" => median(&figures.gb_per_s),
            "of fastest" => Cell::short(self.of_fastest(entry).value),
            "busy" => median(&figures.busy),
            "clients" => median(&figures.clients_busy),
            "p50 us" => median(&figures.p50_us),
            "p99 us" => median(&figures.p99_us),
            "fetches" => median(&figures.fetches),
            "first ms" => Cell::ranged(Median::of(&figures.first_ms)),
            "most ms" => median(&figures.first_ms_most),
            "last s" => median(&figures.last_s),
            "threads" => figures.threads.into(),
            "switches/s" => median(&figures.switches_per_s),
            "peak MB" if figures.peak_bytes == 0 => Cell::Unknown,
            "peak MB" => Cell::short(figures.peak_bytes as f64 / 1e6),
            "calls/req" => {
                Cell::short(figures.calls.as_ref().map_or(f64::NAN, |calls| calls.per_request))
            }
            _ => Cell::Unknown,
        };
        let wrong = Cell::Figure(format!("{}/{}", figures.wrong, figures.failed));
        self.columns().map(cell).chain([wrong]).collect()
    }

    fn line(&self, entry: &Entry) -> String {
        let (work, plan, figures) = (&self.work, &self.plan, &entry.figures);
        let calls = figures.calls.as_ref();
        let by_name = calls.map(|calls| {
            let pairs = calls.by_name.iter();
            pairs
                .map(|(name, calls)| (name.clone(), rounded(*calls)))
                .collect::<Map<String, Value>>()
        });
        let mut line = json!({
            "work": work.name(),
            "bytes": work.bytes,
            "cores": plan.cores,
            "connections": if work.kind == Kind::Busy { plan.clients } else { plan.connections },
            "server": entry.name,
            "is_limit": entry.is_limit,
            "threads": figures.threads,
            "peak_bytes": figures.peak_bytes,
            "calls_per_request": calls.map(|calls| rounded(calls.per_request)),
            "calls": by_name,
            "wrong": figures.wrong,
            "failed": figures.failed,
            "first_fault": figures.first_fault,
            "runs": plan.rounds,
        });
        let of = |figures: &Vec<f64>| Median::of(figures);
        let medians = [
            ("cpu_us_per_request", of(&figures.cpu_us_per_request)),
            ("cpu_s_per_gb", of(&figures.cpu_s_per_gb)),
            ("cpu_of_best", self.of_best(entry)),
            ("larder_over_this", self.larder_over(entry)),
            ("requests_per_s", of(&figures.requests_per_s)),
            ("gb_per_s", of(&figures.gb_per_s)),
            ("rate_of_best", self.of_fastest(entry)),
            ("busy", of(&figures.busy)),
            ("clients_busy", of(&figures.clients_busy)),
            ("switches_per_s", of(&figures.switches_per_s)),
            ("p50_us", of(&figures.p50_us)),
            ("p99_us", of(&figures.p99_us)),
            ("fetches", of(&figures.fetches)),
            ("first_ms", of(&figures.first_ms)),
            ("first_ms_most", of(&figures.first_ms_most)),
            ("last_s", of(&figures.last_s)),
        ];
        add_medians(&mut line, medians);
        line.to_string()
    }
}

/// What the columns say.
pub fn legend(style: Style) -> String {
    let wrong = "responses with a wrong status, length or bytes; connections that ended early; of all rounds";
    let columns: Vec<(&str, &str)> =
        COLUMNS.iter().copied().chain([("wrong/failed", wrong)]).collect();
    result_table::legend(&columns, style)
}

/// A median with its interval, of figures that are small.
fn ranged3(Median { value, low, high, .. }: Median) -> Cell {
    match value.is_finite() {
        true => Cell::Figure(format!("{value:.3} [{low:.3}, {high:.3}]")),
        false => Cell::Unknown,
    }
}
