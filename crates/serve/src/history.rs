//! The history that a page shows: an hour by the second, and thirty days by the minute.
//!
//! ```text
//! second   pushed once a second           3,600, the oldest is removed
//! minute   made of its seconds            43,200
//! ```
//!
//! A sample has a number for each [`Series`] of a program; the first is the seconds that were measured. Times are
//! those of the day. A time without a sample (the program did not run) is a gap: `null` in the points of a chart.
//! If the clock was set back, samples after the new time are removed.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::saved::{Input, Output};

/// Seconds, and minutes.
pub const SECONDS_MAX: usize = 3_600;
/// See there.
pub const MINUTES_MAX: usize = 30 * 24 * 60;

/// How the samples of a longer time become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Their sum; charts have its rate, a second.
    Sum,
    /// The last one: a state.
    Last,
    /// The greatest one.
    Max,
}

/// A number of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// Its name in the JSON of a chart.
    pub name: &'static str,
    /// How it is joined.
    pub kind: Kind,
}

impl Series {
    /// The first series of each program.
    pub const SECONDS: Series = Series::sum("seconds");

    /// A sum.
    pub const fn sum(name: &'static str) -> Series {
        Series { name, kind: Kind::Sum }
    }

    /// A state.
    pub const fn last(name: &'static str) -> Series {
        Series { name, kind: Kind::Last }
    }

    /// A peak.
    pub const fn max(name: &'static str) -> Series {
        Series { name, kind: Kind::Max }
    }
}

/// A value, and the number of its second or minute since 1970.
pub type Timed<T> = VecDeque<(u64, T)>;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History<const N: usize> {
    series: &'static [Series; N],
    /// By second.
    pub seconds: Timed<[u64; N]>,
    /// By minute, without the current one.
    pub minutes: Timed<[u64; N]>,
    minute: Option<(u64, [u64; N])>,
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

    /// Whether it is made of seconds.
    pub fn is_short(self) -> bool {
        matches!(self, Range::Minute | Range::Hour)
    }

    /// Seconds of a point, and points.
    pub fn steps(self) -> (u64, u64) {
        match self {
            Range::Minute => (1, 60),
            Range::Hour => (10, 360),
            Range::Day => (300, 288),
            Range::Month => (7_200, 360),
        }
    }
}

/// The points of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Points<const N: usize> {
    /// Seconds of a point.
    pub step_s: u64,
    /// The end of the last point, seconds since 1970.
    pub end_s: u64,
    /// The samples of each point; `None`: a gap.
    pub samples: Vec<Option<[u64; N]>>,
}

impl<const N: usize> History<N> {
    /// An empty history. The first of the series is [`Series::SECONDS`].
    pub fn new(series: &'static [Series; N]) -> History<N> {
        debug_assert!(series.first() == Some(&Series::SECONDS));
        History { series, seconds: Timed::new(), minutes: Timed::new(), minute: None }
    }

    /// The numbers of a sample.
    pub fn series(&self) -> &'static [Series; N] {
        self.series
    }

    /// Adds the sample of the second `now_s`. True if a minute ended before it.
    pub fn push(&mut self, now_s: u64, sample: [u64; N]) -> bool {
        let minute = now_s / 60;
        let is_over = self.minute.is_some_and(|(current, _)| current != minute);
        if is_over {
            self.end_minute();
        }
        put(&mut self.seconds, now_s, sample, SECONDS_MAX);
        let series = self.series;
        match &mut self.minute {
            Some((_, sum)) => add(series, sum, &sample),
            None => self.minute = Some((minute, sample)),
        }
        is_over
    }

    /// The number of the current minute, if it has a sample.
    pub fn current_minute(&self) -> Option<u64> {
        self.minute.map(|(minute, _)| minute)
    }

    /// Ends the current minute, also before its time, and returns its number.
    pub fn end_minute(&mut self) -> Option<u64> {
        let (minute, sample) = self.minute.take()?;
        put(&mut self.minutes, minute, sample, MINUTES_MAX);
        Some(minute)
    }

    /// The sample of the last second.
    pub fn last(&self) -> [u64; N] {
        self.seconds.back().map_or([0; N], |(_, sample)| *sample)
    }

    /// The last samples, at most `count`, as one.
    pub fn sum_of_last(&self, count: usize) -> [u64; N] {
        let from = self.seconds.len().saturating_sub(count);
        let mut samples = self.seconds.range(from..);
        let mut sum = samples.next().map_or([0; N], |(_, sample)| *sample);
        samples.for_each(|(_, sample)| add(self.series, &mut sum, sample));
        sum
    }

    /// The points of a chart, up to the second `now_s`.
    pub fn points(&self, range: Range, now_s: u64) -> Points<N> {
        let (step_s, points) = range.steps();
        let end = now_s / step_s + 1;
        let mut samples: Vec<Option<[u64; N]>> = vec![None; points as usize];
        let mut take = |at_s: u64, sample: &[u64; N]| {
            let place = (at_s / step_s + points).checked_sub(end);
            match place.and_then(|at| samples.get_mut(at as usize)) {
                Some(Some(sum)) => add(self.series, sum, sample),
                Some(place) => *place = Some(*sample),
                None => {}
            }
        };
        if range.is_short() {
            self.seconds.iter().for_each(|(second, sample)| take(*second, sample));
        } else {
            self.minutes.iter().for_each(|(minute, sample)| take(minute * 60, sample));
            self.minute.iter().for_each(|(minute, sample)| take(minute * 60, sample));
        }
        Points { step_s, end_s: end * step_s, samples }
    }

    /// The points of a chart as JSON: an array for each series, with rates of sums.
    pub fn chart(&self, range: Range, now_s: u64) -> Value {
        let points = self.points(range, now_s);
        let mut chart = json!({ "step_s": points.step_s, "end_s": points.end_s });
        for (at, series) in self.series.iter().enumerate().skip(1) {
            let value = |sample: &[u64; N]| match series.kind {
                Kind::Sum => rounded(rate(sample[at], sample[0])),
                Kind::Last | Kind::Max => sample[at] as f64,
            };
            let values = points.samples.iter().map(|sample| sample.as_ref().map(value));
            chart[series.name] = values.collect();
        }
        chart
    }

    /// Adds the history to a file.
    pub fn write(&self, out: &mut Output) {
        for samples in [&self.seconds, &self.minutes] {
            out.timed(samples, |sample, out| sample.iter().for_each(|value| out.number(*value)));
        }
    }

    /// Reads what [`History::write`] wrote; `None`: it is damaged.
    pub fn read(series: &'static [Series; N], input: &mut Input<'_>) -> Option<History<N>> {
        let sample = |input: &mut Input<'_>| {
            let mut sample = [0; N];
            for value in &mut sample {
                *value = input.number()?;
            }
            Some(sample)
        };
        let seconds = input.timed(SECONDS_MAX, sample)?;
        let minutes = input.timed(MINUTES_MAX, sample)?;
        Some(History { seconds, minutes, ..History::new(series) })
    }
}

/// Joins two samples.
fn add<const N: usize>(series: &[Series; N], sum: &mut [u64; N], later: &[u64; N]) {
    for ((sum, later), series) in sum.iter_mut().zip(later).zip(series) {
        *sum = match series.kind {
            // A file may have any values.
            Kind::Sum => sum.saturating_add(*later),
            Kind::Last => *later,
            Kind::Max => (*sum).max(*later),
        };
    }
}

/// Adds the value of a time, the latest one.
pub fn put<T>(timed: &mut Timed<T>, time: u64, value: T, length_max: usize) {
    while timed.back().is_some_and(|(last, _)| *last >= time) {
        timed.pop_back();
    }
    timed.push_back((time, value));
    while timed.len() > length_max {
        timed.pop_front();
    }
}

/// A sum by the second.
pub fn rate(sum: u64, seconds: u64) -> f64 {
    sum as f64 / seconds.max(1) as f64
}

/// With one decimal: texts stay short.
pub fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIES: [Series; 4] =
        [Series::SECONDS, Series::sum("units"), Series::last("state"), Series::max("peak")];

    fn history() -> History<4> {
        History::new(&SERIES)
    }

    /// Seconds become minutes; both are bounded, and the oldest are removed.
    #[test]
    fn seconds_are_joined_and_bounded() {
        let mut history = history();
        for second in 60..60 + 2 * 3_600 {
            let is_over = history.push(second, [1, 2, second, second % 60]);
            assert_eq!(is_over, second % 60 == 0 && second > 60, "{second}");
        }
        assert_eq!(history.seconds.len(), SECONDS_MAX);
        assert_eq!(history.minutes.len(), 119);
        assert_eq!(history.minutes[0], (1, [60, 120, 119, 59]));
        assert_eq!(history.current_minute(), Some(120));
        for minute in 200..200 + 2 * MINUTES_MAX as u64 {
            history.push(minute * 60, [1; 4]);
        }
        assert_eq!(history.minutes.len(), MINUTES_MAX);
    }

    /// A chart has rates, states and peaks of its time, and gaps where nothing was measured.
    #[test]
    fn points_have_gaps() {
        let mut history = history();
        for second in [1_000, 1_001, 1_002, 1_007] {
            history.push(second, [1, second - 999, second, 1_010 - second]);
        }
        assert_eq!(history.last(), [1, 8, 1_007, 3]);
        assert_eq!(history.sum_of_last(2), [2, 11, 1_007, 8]);
        assert_eq!(history.sum_of_last(99), [4, 14, 1_007, 10]);
        let chart = history.chart(Range::Minute, 1_007);
        let units = chart["units"].as_array().expect("points");
        assert_eq!((units.len(), chart["end_s"].as_u64()), (60, Some(1_008)));
        assert_eq!(units[52..56], [json!(1.0), json!(2.0), json!(3.0), Value::Null]);
        let hour = history.chart(Range::Hour, 1_007);
        // Six units in three seconds, and eight in one.
        assert_eq!(
            (&hour["units"][359], &hour["state"][359], &hour["peak"][359]),
            (&json!(3.5), &json!(1_007.0), &json!(10.0))
        );
        assert_eq!(history.chart(Range::Day, 1_007)["units"][287], json!(3.5));
        assert_eq!(history.chart(Range::Month, 0)["units"].as_array().map(Vec::len), Some(360));
        assert!(chart["seconds"].is_null());
    }

    /// A clock that was set back removes what it will measure again.
    #[test]
    fn a_clock_is_set_back() {
        let mut history = history();
        for second in 0..600 {
            history.push(second, [1; 4]);
        }
        history.push(100, [7; 4]);
        assert_eq!((history.seconds.len(), history.last()), (101, [7; 4]));
    }
}
