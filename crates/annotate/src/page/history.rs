//! The history of a run: its samples ([`larder_serve::history`]), and the ten names with the most traffic of
//! each minute of a day.

use std::collections::HashMap;
use std::sync::Arc;

pub use larder_serve::history::Range;
use larder_serve::history::{self, Series, Timed, put, rate, rounded};
use serde_json::{Value, json};

/// Minutes with names.
pub const TRAFFIC_MAX: usize = 24 * 60;

/// Names of a minute.
pub const NAMES_MAX: usize = 10;

/// Names of the current minute that are counted.
const NAMES_COUNTED_MAX: usize = 8_192;

/// Sums over a time, and the state at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Seconds that were measured.
    pub seconds: u64,
    /// Packets.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: u64,
    /// Flows that ended.
    pub flows: u64,
    /// Of them, those whose destination can have a name.
    pub nameable: u64,
    /// Those that have one.
    pub named: u64,
    /// Packets that the kernel or the store dropped.
    pub dropped: u64,
    /// Bytes of stored packets at the end.
    pub stored_bytes: u64,
    /// The longest delay of the log, milliseconds.
    pub delay_ms: u64,
}

impl Sample {
    /// All values, for a file.
    pub fn values(&self) -> [u64; 9] {
        let Sample { seconds, packets, bytes, flows, nameable, named, .. } = *self;
        let Sample { dropped, stored_bytes, delay_ms, .. } = *self;
        [seconds, packets, bytes, flows, nameable, named, dropped, stored_bytes, delay_ms]
    }

    /// The sample of [`Sample::values`].
    pub fn of(values: [u64; 9]) -> Sample {
        let [seconds, packets, bytes, flows, nameable, named, dropped, stored_bytes, delay_ms] =
            values;
        Sample { seconds, packets, bytes, flows, nameable, named, dropped, stored_bytes, delay_ms }
    }
}

/// What samples have.
pub static SERIES: [Series; 9] = [
    Series::SECONDS,
    Series::sum("packets"),
    Series::sum("bytes"),
    Series::sum("flows"),
    Series::sum("nameable"),
    Series::sum("named"),
    Series::sum("dropped"),
    Series::last("stored_bytes"),
    Series::max("delay_ms"),
];

/// Traffic of a minute by name, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The names with the most, in the spelling of logs.
    pub names: Vec<(Arc<str>, u64)>,
    /// Of other names.
    pub other: u64,
    /// Without a name.
    pub unnamed: u64,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// [`Sample::values`].
    pub samples: history::History<9>,
    /// By minute, without the current one.
    pub traffic: Timed<Traffic>,
    names: HashMap<Arc<str>, u64>,
    unnamed: u64,
    other: u64,
}

impl Default for History {
    fn default() -> History {
        History {
            samples: history::History::new(&SERIES),
            traffic: Timed::new(),
            names: HashMap::new(),
            unnamed: 0,
            other: 0,
        }
    }
}

/// Seconds of a point of traffic by name, which has minutes of a day, and points.
fn traffic_steps(range: Range) -> (u64, u64) {
    if range.is_short() { (60, 60) } else { (600, 144) }
}

impl History {
    /// Adds the sample of the second `now_s`. True if a minute ended before it.
    pub fn push(&mut self, now_s: u64, sample: Sample) -> bool {
        if self.samples.current_minute().is_some_and(|current| current != now_s / 60) {
            self.end_minute();
            self.samples.push(now_s, sample.values());
            return true;
        }
        self.samples.push(now_s, sample.values())
    }

    /// Adds bytes of the current minute; `name`: `None` for traffic without a name.
    pub fn add_traffic(&mut self, name: Option<&str>, bytes: u64) {
        let Some(name) = name else { return self.unnamed += bytes };
        if let Some(sum) = self.names.get_mut(name) {
            *sum += bytes;
        } else if self.names.len() < NAMES_COUNTED_MAX {
            self.names.insert(name.into(), bytes);
        } else {
            self.other += bytes;
        }
    }

    /// Ends the current minute, also before its time.
    pub fn end_minute(&mut self) {
        let Some(minute) = self.samples.end_minute() else { return };
        let traffic = self.current_traffic();
        put(&mut self.traffic, minute, traffic, TRAFFIC_MAX);
        self.names.clear();
        (self.other, self.unnamed) = (0, 0);
    }

    /// Traffic of the current minute so far.
    fn current_traffic(&self) -> Traffic {
        let names = self.names.iter().map(|(name, bytes)| (Arc::clone(name), *bytes));
        let mut names: Vec<(Arc<str>, u64)> = names.collect();
        names.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        let behind = names.split_off(names.len().min(NAMES_MAX));
        let other = self.other + behind.iter().map(|(_, bytes)| bytes).sum::<u64>();
        Traffic { names, other, unnamed: self.unnamed }
    }

    /// The points of charts, up to the second `now_s`.
    pub fn chart(&self, range: Range, now_s: u64) -> Value {
        let points = self.samples.points(range, now_s);
        let samples = points.samples.iter().map(|sample| sample.map(Sample::of));
        let series = |value: fn(&Sample) -> Option<f64>| -> Value {
            samples.clone().map(|sample| sample.as_ref().and_then(value).map(rounded)).collect()
        };
        json!({
            "step_s": points.step_s,
            "end_s": points.end_s,
            "packets": series(|sample| Some(rate(sample.packets, sample.seconds))),
            "bits": series(|sample| Some(rate(sample.bytes.saturating_mul(8), sample.seconds))),
            "flows": series(|sample| Some(rate(sample.flows, sample.seconds))),
            "named": series(named_percent),
            "dropped": series(|sample| Some(sample.dropped as f64)),
            "stored_bytes": series(|sample| Some(sample.stored_bytes as f64)),
            "delay_ms": series(|sample| Some(sample.delay_ms as f64)),
            "traffic": self.traffic_chart(range, now_s),
        })
    }

    /// Traffic by name, bits a second: the names with the most in all, the others, and no name.
    fn traffic_chart(&self, range: Range, now_s: u64) -> Value {
        let (step_s, points) = traffic_steps(range);
        let (end, points) = (now_s / step_s + 1, points as usize);
        let place = |minute: u64| {
            let at = (minute * 60 / step_s + points as u64).checked_sub(end)? as usize;
            (at < points).then_some(at)
        };
        let current = self.samples.current_minute();
        let current = current.map(|minute| (minute, self.current_traffic()));
        let rows = || {
            let minutes = self.traffic.iter().chain(&current);
            minutes.filter_map(|(minute, traffic)| Some((place(*minute)?, traffic)))
        };
        let mut totals: HashMap<&str, u64> = HashMap::new();
        for (name, bytes) in rows().flat_map(|(_, traffic)| &traffic.names) {
            let total = totals.entry(name).or_default();
            *total = total.saturating_add(*bytes);
        }
        let mut order: Vec<(&str, u64)> = totals.into_iter().collect();
        order.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
        order.truncate(NAMES_MAX);
        let names: Vec<&str> = order.iter().map(|(name, _)| *name).collect();
        let mut bits = vec![vec![0.0; points]; names.len()];
        let (mut other, mut unnamed) = (vec![0.0; points], vec![0.0; points]);
        let as_bits = |bytes: u64| bytes as f64 * 8.0 / step_s as f64;
        for (at, traffic) in rows() {
            for (name, bytes) in &traffic.names {
                match names.iter().position(|known| **known == **name) {
                    Some(row) => bits[row][at] += as_bits(*bytes),
                    None => other[at] += as_bits(*bytes),
                }
            }
            other[at] += as_bits(traffic.other);
            unnamed[at] += as_bits(traffic.unnamed);
        }
        bits.iter_mut()
            .chain([&mut other, &mut unnamed])
            .flatten()
            .for_each(|value| *value = value.round());
        json!({
            "step_s": step_s,
            "end_s": end * step_s,
            "names": names,
            "bits": bits,
            "other": other,
            "unnamed": unnamed,
        })
    }

    /// The share of named flows in the last minute, percent; `None` if no flow ended.
    pub fn named_percent(&self) -> Option<f64> {
        named_percent(&Sample::of(self.samples.sum_of_last(60))).map(rounded)
    }
}

fn named_percent(sample: &Sample) -> Option<f64> {
    (sample.nameable > 0).then(|| sample.named as f64 * 100.0 / sample.nameable as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(packets: u64) -> Sample {
        Sample { seconds: 1, packets, bytes: 10 * packets, ..Sample::default() }
    }

    /// Seconds become minutes, with the names of each; both are bounded.
    #[test]
    fn seconds_become_minutes() {
        let mut history = History::default();
        for second in 60..60 + 2 * 3_600 {
            let is_over = history.push(second, sample(2));
            assert_eq!(is_over, second % 60 == 0 && second > 60, "{second}");
        }
        let minute = Sample { seconds: 60, bytes: 1_200, ..sample(120) };
        assert_eq!(history.samples.minutes[0], (1, minute.values()));
        assert_eq!((history.samples.minutes.len(), history.traffic.len()), (119, 119));
        for minute in 200..200 + 2 * TRAFFIC_MAX as u64 {
            history.push(minute * 60, sample(1));
        }
        assert_eq!(history.traffic.len(), TRAFFIC_MAX);
    }

    /// A chart has the rates of its time, and gaps where nothing was measured.
    #[test]
    fn charts_have_gaps() {
        let mut history = History::default();
        for second in [1_000, 1_001, 1_002, 1_007] {
            history.push(second, Sample { nameable: 4, named: 3, ..sample(second - 999) });
        }
        let chart = history.chart(Range::Minute, 1_007);
        let packets = chart["packets"].as_array().expect("points");
        assert_eq!((packets.len(), chart["end_s"].as_u64()), (60, Some(1_008)));
        let expected = [json!(1.0), json!(2.0), json!(3.0), Value::Null];
        assert_eq!(packets[52..56], expected);
        assert_eq!((&packets[59], &chart["bits"][59]), (&json!(8.0), &json!(640.0)));
        assert_eq!(chart["named"][59], json!(75.0));
        let hour = history.chart(Range::Hour, 1_007);
        // Six units in three seconds, and eight in one.
        assert_eq!(hour["packets"][359], json!(3.5));
        assert_eq!(history.chart(Range::Day, 1_007)["packets"][287], json!(3.5));
        assert_eq!(history.chart(Range::Month, 0)["packets"].as_array().map(Vec::len), Some(360));
    }

    /// Ten names of a minute are kept, the others are summed; a chart has the ten of its time.
    #[test]
    fn names_of_minutes() {
        let mut history = History::default();
        for minute in 0..2 {
            history.push(minute * 60, sample(1));
            for number in 0..12 {
                history.add_traffic(Some(&format!("n{number:02}")), 60 * (12 - number));
            }
            history.add_traffic(Some("n00"), 60 * minute);
            history.add_traffic(None, 600);
        }
        let current = history.chart(Range::Hour, 119)["traffic"].clone();
        history.end_minute();
        assert_eq!(history.chart(Range::Hour, 119)["traffic"], current);
        let traffic = &history.traffic[1].1;
        assert_eq!((traffic.names.len(), traffic.other, traffic.unnamed), (NAMES_MAX, 180, 600));
        let chart = &history.chart(Range::Hour, 119)["traffic"];
        assert_eq!(chart["names"][0], "n00");
        assert_eq!((&chart["bits"][0][58], &chart["bits"][0][59]), (&json!(96.0), &json!(104.0)));
        assert_eq!((&chart["other"][59], &chart["unnamed"][59]), (&json!(24.0), &json!(80.0)));
        assert_eq!(chart["bits"][0][57], json!(0.0));
    }

    /// Hostile names of a minute are bounded, and counted as others.
    #[test]
    fn names_are_bounded() {
        let mut history = History::default();
        history.push(0, sample(1));
        for number in 0..2 * NAMES_COUNTED_MAX {
            history.add_traffic(Some(&format!("{number}")), 1);
        }
        assert_eq!(history.names.len(), NAMES_COUNTED_MAX);
        history.end_minute();
        assert_eq!(history.traffic[0].1.other, 2 * NAMES_COUNTED_MAX as u64 - 10);
    }
}
