//! The history of a run: an hour by the second, thirty days by the minute, and the names with the
//! most traffic of each minute of a day.
//!
//! ```text
//! second   pushed once a second           3,600, the oldest is removed
//! minute   the sum of its seconds         43,200
//! traffic  ten names of a minute          1,440
//! ```
//!
//! Times are those of the day. A time without a sample (larder did not run) is a gap: `null` in the
//! points of a chart. If the clock was set back, samples after the new time are removed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

/// Seconds, minutes, and minutes with names.
pub const SECONDS_MAX: usize = 3_600;
/// See there.
pub const MINUTES_MAX: usize = 30 * 24 * 60;
/// See there.
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

    fn add(&mut self, later: &Sample) {
        // A file may have any values.
        let add = |sum: &mut u64, value: u64| *sum = sum.saturating_add(value);
        add(&mut self.seconds, later.seconds);
        add(&mut self.packets, later.packets);
        add(&mut self.bytes, later.bytes);
        add(&mut self.flows, later.flows);
        add(&mut self.nameable, later.nameable);
        add(&mut self.named, later.named);
        add(&mut self.dropped, later.dropped);
        self.stored_bytes = later.stored_bytes;
        self.delay_ms = self.delay_ms.max(later.delay_ms);
    }
}

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

/// A sample, and the number of its second or minute since 1970.
pub type Timed<T> = VecDeque<(u64, T)>;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// By second.
    pub seconds: Timed<Sample>,
    /// By minute, without the current one.
    pub minutes: Timed<Sample>,
    /// By minute, without the current one.
    pub traffic: Timed<Traffic>,
    minute: Option<(u64, Sample)>,
    names: HashMap<Arc<str>, u64>,
    unnamed: u64,
    other: u64,
}

/// The time that a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Range {
    /// A minute, by the second.
    Minute,
    /// An hour, by ten seconds.
    Hour,
    /// A day, by five minutes.
    Day,
    /// Thirty days, by two hours.
    Month,
}

impl Range {
    /// The range of its name in a path.
    pub fn named(name: &str) -> Option<Range> {
        Some(match name {
            "1m" => Range::Minute,
            "1h" => Range::Hour,
            "24h" => Range::Day,
            "30d" => Range::Month,
            _ => return None,
        })
    }

    /// Seconds of a point, and points.
    fn steps(self) -> (u64, u64) {
        match self {
            Range::Minute => (1, 60),
            Range::Hour => (10, 360),
            Range::Day => (300, 288),
            Range::Month => (7_200, 360),
        }
    }

    /// The same for traffic by name, which has minutes of a day.
    fn traffic_steps(self) -> (u64, u64) {
        match self {
            Range::Minute | Range::Hour => (60, 60),
            Range::Day | Range::Month => (600, 144),
        }
    }
}

impl History {
    /// Adds the sample of the second `now_s`. True if a minute ended before it.
    pub fn push(&mut self, now_s: u64, sample: Sample) -> bool {
        let minute = now_s / 60;
        let is_over = self.minute.is_some_and(|(current, _)| current != minute);
        if is_over {
            self.end_minute();
        }
        put(&mut self.seconds, now_s, sample, SECONDS_MAX);
        self.minute.get_or_insert((minute, Sample::default())).1.add(&sample);
        is_over
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
        let Some((minute, sample)) = self.minute.take() else { return };
        put(&mut self.minutes, minute, sample, MINUTES_MAX);
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
        let (step_s, points) = range.steps();
        let end = now_s / step_s + 1;
        let mut sums: Vec<Option<Sample>> = vec![None; points as usize];
        let mut add = |at_s: u64, sample: &Sample| {
            let place = (at_s / step_s + points).checked_sub(end);
            if let Some(sum) = place.and_then(|at| sums.get_mut(at as usize)) {
                sum.get_or_insert_default().add(sample);
            }
        };
        if matches!(range, Range::Minute | Range::Hour) {
            self.seconds.iter().for_each(|(second, sample)| add(*second, sample));
        } else {
            self.minutes.iter().for_each(|(minute, sample)| add(minute * 60, sample));
            self.minute.iter().for_each(|(minute, sample)| add(minute * 60, sample));
        }
        let series = |value: fn(&Sample) -> Option<f64>| -> Value {
            sums.iter().map(|sum| sum.as_ref().and_then(value).map(rounded)).collect()
        };
        json!({
            "step_s": step_s,
            "end_s": end * step_s,
            "packets": series(|sample| Some(rate(sample.packets, sample))),
            "bits": series(|sample| Some(rate(sample.bytes.saturating_mul(8), sample))),
            "flows": series(|sample| Some(rate(sample.flows, sample))),
            "named": series(named_percent),
            "dropped": series(|sample| Some(sample.dropped as f64)),
            "stored_bytes": series(|sample| Some(sample.stored_bytes as f64)),
            "delay_ms": series(|sample| Some(sample.delay_ms as f64)),
            "traffic": self.traffic_chart(range, now_s),
        })
    }

    /// Traffic by name, bits a second: the names with the most in all, the others, and no name.
    fn traffic_chart(&self, range: Range, now_s: u64) -> Value {
        let (step_s, points) = range.traffic_steps();
        let (end, points) = (now_s / step_s + 1, points as usize);
        let place = |minute: u64| {
            let at = (minute * 60 / step_s + points as u64).checked_sub(end)? as usize;
            (at < points).then_some(at)
        };
        let current = self.minute.map(|(minute, _)| (minute, self.current_traffic()));
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
        let mut sum = Sample::default();
        self.seconds.iter().rev().take(60).for_each(|(_, sample)| sum.add(sample));
        named_percent(&sum).map(rounded)
    }
}

/// Adds the value of a time, the latest one.
fn put<T>(timed: &mut Timed<T>, time: u64, value: T, length_max: usize) {
    while timed.back().is_some_and(|(last, _)| *last >= time) {
        timed.pop_back();
    }
    timed.push_back((time, value));
    while timed.len() > length_max {
        timed.pop_front();
    }
}

fn rate(sum: u64, sample: &Sample) -> f64 {
    sum as f64 / sample.seconds.max(1) as f64
}

fn named_percent(sample: &Sample) -> Option<f64> {
    (sample.nameable > 0).then(|| sample.named as f64 * 100.0 / sample.nameable as f64)
}

/// With one decimal: texts stay short.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(packets: u64) -> Sample {
        Sample { seconds: 1, packets, bytes: 10 * packets, ..Sample::default() }
    }

    /// Seconds become minutes; both are bounded, and the oldest are removed.
    #[test]
    fn seconds_become_minutes() {
        let mut history = History::default();
        for second in 60..60 + 2 * 3_600 {
            let is_over = history.push(second, sample(2));
            assert_eq!(is_over, second % 60 == 0 && second > 60, "{second}");
        }
        assert_eq!(history.seconds.len(), SECONDS_MAX);
        assert_eq!(history.minutes.len(), 119);
        assert_eq!(
            history.minutes[0],
            (1, Sample { seconds: 60, ..sample(120) }.with_bytes(1_200))
        );
        for minute in 200..200 + 2 * MINUTES_MAX as u64 {
            history.push(minute * 60, sample(1));
        }
        assert_eq!(history.minutes.len(), MINUTES_MAX);
        assert_eq!(history.traffic.len(), TRAFFIC_MAX);
    }

    impl Sample {
        fn with_bytes(self, bytes: u64) -> Sample {
            Sample { bytes, ..self }
        }
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

    /// A clock that was set back removes what it will measure again.
    #[test]
    fn a_clock_is_set_back() {
        let mut history = History::default();
        for second in 0..600 {
            history.push(second, sample(1));
        }
        history.push(100, sample(7));
        assert_eq!(history.seconds.len(), 101);
        assert_eq!(history.seconds.back(), Some(&(100, sample(7))));
    }
}
