//! Figures by the clock, of one machine.

use crate::figure::{Axis, Bars, Figure, Group, Series};
use larder_bench::result_table::{Cell, ResultTable};

use super::reported;

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    /// The machine, in words.
    pub machine: String,
    /// Its cores.
    pub cores: usize,
    /// Entries of each table.
    pub entries: usize,
    /// Rounds behind each figure.
    pub rounds: usize,
    /// The contestants, larder first.
    pub contestants: Vec<String>,
    /// The contestants that stand for the paper's system, its FIFO and its LRU.
    pub stands_for: [String; 3],
    /// Nanoseconds of an insert; `percent` is how full the table is.
    pub inserts: Vec<Timed>,
    /// Million operations a second; `percent` is the share of puts.
    pub throughput: Vec<Timed>,
    /// Table 1.
    pub modes: Vec<TimedMode>,
}

/// A figure of one contestant.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// The contestant.
    pub name: String,
    /// Cores that it ran on.
    pub cores: usize,
    /// See [`Measured`].
    pub percent: usize,
    /// Median, and the ends of its 95 % interval.
    pub value: [f64; 3],
}

/// A mode of Table 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Every put is seen by the next get anywhere.
    Synchronous,
    /// Proxies sync now and then.
    Asynchronous,
    /// Each core has a cache of its own.
    Single,
}

/// What a mode did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedMode {
    /// Which.
    pub mode: Mode,
    /// Million requests a second: median, and the ends of its interval.
    pub mops: [f64; 3],
    /// Hits a request.
    pub hit_ratio: f64,
}

impl Measured {
    /// Numbers of cores there are figures for.
    pub(super) fn cores_measured(&self) -> Vec<usize> {
        let mut cores: Vec<usize> = self.inserts.iter().map(|point| point.cores).collect();
        cores.dedup();
        cores
    }

    /// An insert into a table so full.
    pub(super) fn insert_ns(&self, name: &str, cores: usize, percent: usize) -> Option<f64> {
        value(&self.inserts, name, cores, percent)
    }

    /// Million operations a second with such a share of puts.
    pub(super) fn mops(&self, name: &str, cores: usize, percent: usize) -> Option<f64> {
        value(&self.throughput, name, cores, percent)
    }

    /// Figures 7 to 9 on this number of cores.
    pub(super) fn insert_figure(&self, cores: usize) -> Figure {
        let line = |name: &String| {
            let of = |point: &&Timed| (&point.name, point.cores) == (name, cores);
            let points = self.inserts.iter().filter(of);
            let points = points.map(|point| (point.percent as f64 / 100.0, point.value[0]));
            Series::new(name.clone(), points.collect())
        };
        let number = reported::INSERTS.iter().find(|insert| insert.cores == cores);
        let marks = number.map_or(Vec::new(), |of| {
            let [own, fifo, lru] = &self.stands_for;
            [(own, of.own_ns), (fifo, of.fifo_ns), (lru, of.lru_ns)]
                .map(|(name, ns)| Series::new(name.clone(), vec![(1.0, ns)]))
                .to_vec()
        });
        let which = number.map_or(String::new(), |of| format!("Figure {}: ", of.figure));
        let what = if which.is_empty() { "Time" } else { "time" };
        Figure {
            title: format!("{which}{what} of an insert, {}", cores_text(cores)),
            caption: "Nanoseconds that an insert takes its core, by how full the table is."
                .to_owned(),
            source: self.machine.clone(),
            x: Axis::linear("load factor").percent(),
            y: Axis::log("ns an insert"),
            series: self.contestants.iter().map(line).collect(),
            marks,
            marks_note: reported::NOTE.to_owned(),
        }
    }

    /// Figures 10 and 11, and 12 if the figure is one core's share.
    pub(super) fn throughput_bars(&self, percent: usize, is_per_core: bool) -> Bars {
        let nan = |_: &String| f64::NAN;
        let group = |cores: usize| Group {
            name: cores_text(cores),
            values: (self.contestants.iter())
                .map(|name| self.mops(name, cores, percent).unwrap_or(f64::NAN))
                .map(|mops| if is_per_core { mops / cores as f64 } else { mops })
                .collect(),
            marks: self.contestants.iter().map(nan).collect(),
        };
        let mut groups: Vec<Group> = self.cores_measured().into_iter().map(group).collect();
        // The one number that the paper gives: eight cores, 70 % puts.
        let reported = reported::SYSTEMS[0];
        if percent == 100 - usize::from(reported.get_percent) {
            if !self.cores_measured().contains(&8) {
                groups.push(group(8));
                if let Some(group) = groups.last_mut() {
                    group.name.push_str(" (not measured: fewer cores here)");
                }
            }
            let at = self.contestants.iter().position(|name| *name == self.stands_for[0]);
            let eight = groups.iter_mut().find(|group| group.name.starts_with("8 "));
            if let (Some(at), Some(group)) = (at, eight) {
                group.marks[at] = if is_per_core { reported.mops / 8.0 } else { reported.mops };
            }
        }
        let what = if is_per_core { "Throughput a core" } else { "Throughput" };
        Bars {
            title: format!("{what}, {percent} % put"),
            caption: String::new(),
            source: self.machine.clone(),
            values: Axis::linear("million operations a second"),
            series: self.contestants.clone(),
            groups,
            marks_note: reported::NOTE.to_owned(),
        }
    }

    /// Figures with their intervals, as rows.
    pub(super) fn table(
        points: &[Timed],
        columns: &[&'static str; 6],
        rounds: usize,
    ) -> ResultTable {
        let mut columns = columns.to_vec();
        columns.push("rounds");
        let mut table = ResultTable::new(&columns);
        for point in points {
            let [value, low, high] = point.value.map(|value| Cell::Number(value, 3));
            table.push([
                point.name.clone().into(),
                (point.cores as u64).into(),
                (point.percent as u64).into(),
                value,
                low,
                high,
                (rounds as u64).into(),
            ]);
        }
        table
    }
}

pub(super) fn cores_text(cores: usize) -> String {
    format!("{cores} core{}", if cores == 1 { "" } else { "s" })
}

fn value(points: &[Timed], name: &str, cores: usize, percent: usize) -> Option<f64> {
    let of = |point: &&Timed| {
        (point.name.as_str(), point.cores, point.percent) == (name, cores, percent)
    };
    points.iter().find(of).map(|point| point.value[0]).filter(|value| value.is_finite())
}
