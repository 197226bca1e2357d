//! The figures of `larder-lab names`: shares of right names with their intervals, and reliability.

use std::collections::BTreeMap;

use larder_annotate::evidence::Trial;
use larder_annotate::record::NameFlags;
use larder_bench::result_table::{Cell, ResultTable};
use larder_sim::figure::{Axis, Figure, Series};
use serde_json::{Value, json};

/// Bins of the confidence, each of ten percent.
const BINS: usize = 10;
/// The normal distribution's 97.5 % point: intervals are of 95 %.
const Z: f64 = 1.96;

/// Flows of one kind, and how many of them have the right name.
#[derive(Clone, Copy, Default)]
struct Share {
    flows: u64,
    right: u64,
}

impl Share {
    fn add(&mut self, is_right: bool) {
        self.flows += 1;
        self.right += u64::from(is_right);
    }

    /// `None` without flows.
    fn value(self) -> Option<f64> {
        (self.flows > 0).then(|| self.right as f64 / self.flows as f64)
    }

    /// The 95 % interval of the share (Wilson, 1927).
    fn interval(self) -> Option<(f64, f64)> {
        let (share, n) = (self.value()?, self.flows as f64);
        let middle = share + Z * Z / (2.0 * n);
        let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        Some((((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0)))
    }

    fn json(self) -> Value {
        json!({ "flows": self.flows, "right": self.right, "share": self.value(),
            "interval": self.interval().map(|(low, high)| [low, high]) })
    }
}

/// A bin of the reliability: its share, and the sum of the confidences, percent.
#[derive(Clone, Copy, Default)]
struct Bin {
    share: Share,
    confidence_sum: u64,
}

impl Bin {
    /// The mean confidence, from 0 to 1.
    fn confidence(&self) -> Option<f64> {
        let flows = self.share.flows;
        (flows > 0).then(|| self.confidence_sum as f64 / flows as f64 / 100.0)
    }
}

/// See the module.
#[derive(Default)]
pub struct Figures {
    all: Share,
    sure: Share,
    by_source: BTreeMap<&'static str, Share>,
    by_flag: BTreeMap<&'static str, Share>,
    bins: [Bin; BINS],
    /// Flows whose stated name is among the candidates: no choice can be right more often.
    possible: u64,
}

impl Figures {
    /// Counts a trial.
    pub fn count(&mut self, trial: &Trial) {
        let (naming, is_right) = (&trial.naming, trial.is_right());
        self.all.add(is_right);
        self.possible += u64::from(trial.candidates.contains(&trial.stated));
        if naming.confidence >= 90 {
            self.sure.add(is_right);
        }
        self.by_source.entry(naming.source.as_str()).or_default().add(is_right);
        for (flag, word) in NameFlags::ALL {
            if naming.flags.has(flag) {
                self.by_flag.entry(word).or_default().add(is_right);
            }
        }
        if !naming.flags.has(NameFlags::AMBIGUOUS) {
            self.by_flag.entry("not ambiguous").or_default().add(is_right);
        }
        let bin = &mut self.bins[(usize::from(naming.confidence) / BINS).min(BINS - 1)];
        bin.share.add(is_right);
        bin.confidence_sum += u64::from(naming.confidence);
    }

    /// The expected calibration error: the mean distance of confidence and share of right names,
    /// weighted by flows (Naeini et al., AAAI 2015). `None` without flows.
    fn calibration_error(&self) -> Option<f64> {
        let distance = |bin: &Bin| {
            let (share, confidence) = (bin.share.value()?, bin.confidence()?);
            Some((share - confidence).abs() * bin.share.flows as f64)
        };
        let sum: f64 = self.bins.iter().filter_map(distance).sum();
        (self.all.flows > 0).then(|| sum / self.all.flows as f64)
    }

    /// Tables for people.
    pub fn text(&self) -> String {
        let Some(error) = self.calibration_error() else {
            return "No flow states a name and has a name by lookups.\n".to_owned();
        };
        let mut exact = ResultTable::new(&["names", "flows", "right", "share", "95 % interval"]);
        let groups =
            self.by_source.iter().chain(&self.by_flag).map(|(word, share)| (*word, *share));
        let first = [("all", self.all), ("confidence 90 % or more", self.sure)];
        for (word, share) in first.into_iter().chain(groups) {
            exact.push(row(word.to_owned(), share));
        }
        let mut reliability = ResultTable::new(&[
            "confidence",
            "flows",
            "right",
            "share",
            "95 % interval",
            "mean confidence",
        ]);
        for (at, bin) in self.bins.iter().enumerate().filter(|(_, bin)| bin.share.flows > 0) {
            let mut cells = row(format!("{} to {} %", at * BINS, at * BINS + BINS - 1), bin.share);
            cells.push(Cell::known(bin.confidence(), percent));
            reliability.push(cells);
        }
        let possible = self.possible as f64 / self.all.flows as f64;
        format!(
            "{}\n{:.1} % of the flows have the right name among their candidates.\n\n{}\nExpected \
             calibration error: {error:.4}\n",
            exact.text(),
            possible * 100.0,
            reliability.text(),
        )
    }

    /// All figures.
    pub fn json(&self) -> Value {
        let shares = |of: &BTreeMap<&'static str, Share>| -> Value {
            of.iter().map(|(word, share)| ((*word).to_owned(), share.json())).collect()
        };
        let bins = self.bins.iter().enumerate().filter(|(_, bin)| bin.share.flows > 0);
        let reliability: Vec<Value> = bins
            .map(|(at, bin)| {
                json!({ "from": at * BINS, "to": at * BINS + BINS - 1, "share": bin.share.json(),
                    "mean_confidence": bin.confidence() })
            })
            .collect();
        json!({
            "all": self.all.json(),
            "confidence_90_or_more": self.sure.json(),
            "by_source": shares(&self.by_source),
            "by_flag": shares(&self.by_flag),
            "right_among_candidates": self.possible,
            "reliability": reliability,
            "expected_calibration_error": self.calibration_error(),
        })
    }

    /// The reliability as a figure.
    pub fn svg(&self) -> String {
        let points = |high: fn((f64, f64)) -> f64| -> Vec<(f64, f64)> {
            let of_bin = |bin: &Bin| Some((bin.confidence()?, high(bin.share.interval()?)));
            self.bins.iter().filter_map(of_bin).collect()
        };
        let of_bin = |bin: &Bin| Some((bin.confidence()?, bin.share.value()?));
        let measured: Vec<(f64, f64)> = self.bins.iter().filter_map(of_bin).collect();
        Figure {
            title: "Reliability of name_confidence".to_owned(),
            x: Axis::linear("confidence").percent(),
            y: Axis::linear("names that are right").percent(),
            series: vec![
                Series::new("measured", measured),
                Series::new("perfect", vec![(0.0, 0.0), (1.0, 1.0)]),
                Series::new("95 % interval, low", points(|(low, _)| low)),
                Series::new("95 % interval, high", points(|(_, high)| high)),
            ],
            ..Figure::default()
        }
        .svg()
    }
}

fn row(word: String, share: Share) -> Vec<Cell> {
    let interval = |(low, high): (f64, f64)| {
        Cell::Text(format!("{:.1} to {:.1} %", low * 100.0, high * 100.0))
    };
    vec![
        Cell::Text(word),
        Cell::Count(share.flows),
        Cell::Count(share.right),
        Cell::known(share.value(), percent),
        Cell::known(share.interval(), interval),
    ]
}

pub fn percent(share: f64) -> Cell {
    Cell::Text(format!("{:.2} %", share * 100.0))
}
