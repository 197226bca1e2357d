//! A range of numbers, its ticks, and their texts.
//!
//! Linear ticks are 1, 2 or 5 times a power of ten apart, about six of them. Logarithmic ticks are the
//! decades, with 2 and 5 between them where there are three decades or fewer, every n-th where there are
//! many; a logarithmic axis too short for two such ticks has linear ones at their logarithmic places.
//!
//! Bounds: numbers between 1e-150 and 1e150 in size are told apart; smaller ones are zero, larger ones cannot
//! be shown. So no difference, quotient or power below overflows. A tick's text is at most some 20 characters.

use super::canvas::{Anchor, Canvas, GRID, INK, PALE_INK, Pen, TICK, width_of};
use super::{Axis, Scale, Unit};

const SMALLEST: f64 = 1e-150;
const LARGEST: f64 = 1e150;

/// Below this share of their size, differences are rounding errors: the numbers are equal.
const SAME: f64 = 1e-9;

/// The logarithms of two numbers nearer than this are equal.
const SAME_LOG: f64 = 1e-6;

const TICKS_WANTED: f64 = 6.0;

/// Where an axis ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// A little beyond the outermost numbers.
    Tight,
    /// At ticks; at zero too, where it is not far away.
    Round,
    /// At ticks, and zero is one of them.
    Zero,
}

/// An axis over some numbers.
#[derive(Debug)]
pub(super) struct Ruler {
    scale: Scale,
    /// Ends, in logarithms where the scale is logarithmic.
    low: f64,
    high: f64,
    /// Place, 0 to 1, and text.
    pub(super) ticks: Vec<(f64, String)>,
    /// Places of the ticks without text.
    pub(super) minor: Vec<f64>,
    /// Nothing is on it; its range is made up.
    pub(super) is_empty: bool,
}

/// The number as it lies on the scale; none where it cannot be shown.
pub(super) fn project(scale: Scale, value: f64) -> Option<f64> {
    match scale {
        Scale::Linear if value.abs() < SMALLEST => Some(0.0),
        Scale::Linear => (value.abs() <= LARGEST).then_some(value),
        Scale::Log => (SMALLEST..=LARGEST).contains(&value).then(|| value.log10()),
    }
}

impl Ruler {
    /// An axis on which all of `values` that can be shown have a place.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, ends: Ends) -> Ruler {
        let extent = values
            .filter_map(|value| project(axis.scale, value))
            .map(|value| (value, value))
            .reduce(|(low, high), (value, _)| (low.min(value), high.max(value)));
        let ruler = match axis.scale {
            Scale::Linear => Ruler::linear(axis.unit, extent.unwrap_or((0.0, 1.0)), ends),
            Scale::Log => Ruler::log(axis.unit, extent.unwrap_or((0.0, 1.0)), ends),
        };
        Ruler { is_empty: extent.is_none(), ..ruler }
    }

    fn bare(scale: Scale, low: f64, high: f64) -> Ruler {
        Ruler { scale, low, high, ticks: Vec::new(), minor: Vec::new(), is_empty: false }
    }

    /// Place of a number, 0 at the start of the axis and 1 at its end; none where it cannot be shown.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        Some(self.place(project(self.scale, value)?))
    }

    fn place(&self, projected: f64) -> f64 {
        // Rounding may put an outermost number a hair outside.
        ((projected - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Draws it as the lower edge of a plot that reaches from `left` to `right` and from `top` to `bottom`: the
    /// grid, the ticks, and those of their texts that do not lie on one another.
    pub(super) fn draw_below(
        &self,
        canvas: &mut Canvas,
        (left, right): (f64, f64),
        (top, bottom): (f64, f64),
    ) {
        let across = |place: f64| left + place * (right - left);
        let mut free = 0.0;
        for (place, text) in &self.ticks {
            let (x, half) = (across(*place), width_of(text, TICK) / 2.0);
            canvas.line((x, top), (x, bottom), Pen::line(GRID, 1.0));
            canvas.line((x, bottom), (x, bottom + 5.0), Pen::line(PALE_INK, 1.0));
            if x - half >= free {
                canvas.text((x, bottom + 18.0), Anchor::Middle, TICK, text);
                free = x + half + 6.0;
            }
        }
        for place in &self.minor {
            let x = across(*place);
            canvas.line((x, bottom), (x, bottom + 3.0), Pen::line(PALE_INK, 0.7));
        }
        canvas.line((left, bottom), (right, bottom), Pen::line(INK, 1.0));
    }

    fn linear(unit: Unit, (mut low, mut high): (f64, f64), ends: Ends) -> Ruler {
        let wide = ends == Ends::Zero;
        if ends != Ends::Tight && low > 0.0 && (wide || low < high / 2.0) {
            low = 0.0;
        }
        if ends != Ends::Tight && high < 0.0 && (wide || high > low / 2.0) {
            high = 0.0;
        }
        let size = low.abs().max(high.abs());
        if size == 0.0 {
            high = 1.0;
        } else if high - low <= SAME * size {
            (low, high) = (low - 0.1 * size, high + 0.1 * size);
        }
        let step = Step::near((high - low) / TICKS_WANTED);
        match ends {
            Ends::Tight => {
                let margin = 0.02 * (high - low);
                (low, high) = (low - margin, high + margin);
            }
            // The hair keeps 0.3 in steps of 0.05 from becoming seven of them.
            Ends::Round | Ends::Zero => {
                low = (low / step.size + SAME).floor() * step.size;
                high = (high / step.size - SAME).ceil() * step.size;
            }
        }
        let mut ruler = Ruler::bare(Scale::Linear, low, high);
        ruler.ticks = step
            .between(low, high)
            .map(|tick| (ruler.place(tick), text(tick, step.exponent, size, unit)))
            .collect();
        ruler
    }

    fn log(unit: Unit, (mut low, mut high): (f64, f64), ends: Ends) -> Ruler {
        if high - low < SAME_LOG {
            (low, high) = (low - 0.5, high + 0.5);
        } else if ends != Ends::Tight && high - low >= 1.0 {
            low = log_ticks(low - 1.0, low, &FINE).last().map_or(low, |tick| tick.at);
            high = log_ticks(high, high + 1.0, &FINE).next().map_or(high, |tick| tick.at);
        } else {
            let margin = 0.02 * (high - low);
            (low, high) = (low - margin, high + margin);
        }
        let mut ruler = Ruler::bare(Scale::Log, low, high);
        let span = high - low;
        let factors: &[i32] = if span <= 3.2 { &FINE } else { &[1] };
        let stride = (span / 8.0).ceil() as i32;
        ruler.ticks = log_ticks(low, high, factors)
            .filter(|tick| tick.exponent.rem_euclid(stride) == 0 || span <= 3.2)
            .map(|tick| (ruler.place(tick.at), tick.text(unit)))
            .collect();
        if span <= 12.0 {
            let all = log_ticks(low, high, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
            ruler.minor = all.map(|tick| ruler.place(tick.at)).collect();
        }
        if ruler.ticks.len() < 2 {
            let (from, to) = (10f64.powf(low), 10f64.powf(high));
            let step = Step::near((to - from) / TICKS_WANTED);
            ruler.ticks = step
                .between(from, to)
                .filter(|&tick| tick > 0.0)
                .map(|tick| (ruler.place(tick.log10()), text(tick, step.exponent, to, unit)))
                .collect();
            ruler.minor.clear();
        }
        ruler
    }
}

/// The distance of linear ticks: 1, 2 or 5 times ten to the power of `exponent`.
struct Step {
    size: f64,
    exponent: i32,
}

impl Step {
    /// The least step that is not below `size`, a number above zero.
    fn near(size: f64) -> Step {
        let exponent = size.log10().floor() as i32;
        let unit = 10f64.powi(exponent);
        for factor in [1.0, 2.0, 5.0] {
            if factor * unit >= size * (1.0 - SAME) {
                return Step { size: factor * unit, exponent };
            }
        }
        Step { size: 10f64.powi(exponent + 1), exponent: exponent + 1 }
    }

    /// Multiples of the step from `low` to `high`, ends included.
    fn between(&self, low: f64, high: f64) -> impl Iterator<Item = f64> + use<> {
        let size = self.size;
        let first = (low / size - SAME).ceil() as i64;
        let last = (high / size + SAME).floor() as i64;
        (first..=last).map(move |index| index as f64 * size)
    }
}

/// Factors of ticks that have a text on a short logarithmic axis.
const FINE: [i32; 3] = [1, 2, 5];

/// A tick at `factor * 10^exponent`.
struct LogTick {
    at: f64,
    factor: i32,
    exponent: i32,
}

impl LogTick {
    fn text(&self, unit: Unit) -> String {
        let value = f64::from(self.factor) * 10f64.powi(self.exponent);
        text(value, self.exponent, value, unit)
    }
}

/// Ticks with these factors from `low` to `high`, ends included.
fn log_ticks(low: f64, high: f64, factors: &[i32]) -> impl Iterator<Item = LogTick> {
    (low.floor() as i32 - 1..=high.ceil() as i32)
        .flat_map(move |exponent| {
            factors.iter().map(move |&factor| LogTick {
                at: f64::from(factor).log10() + f64::from(exponent),
                factor,
                exponent,
            })
        })
        .filter(move |tick| tick.at >= low - SAME && tick.at <= high + SAME)
}

/// A number for a reader: three figures of it, four where they are per cent.
pub(super) fn value_text(value: f64, unit: Unit) -> String {
    let Some(value) = project(Scale::Linear, value) else { return "–".to_owned() };
    if value == 0.0 {
        return text(0.0, 0, 0.0, unit);
    }
    let size = value.abs();
    let figures = if unit == Unit::Percent { 4 } else { 3 };
    text(value, size.log10().floor() as i32 - figures + 1, size, unit)
}

/// Decimal prefixes and the power of a thousand that each stands for.
const PREFIXES: [(i32, &str); 10] = [
    (-4, "p"),
    (-3, "n"),
    (-2, "µ"),
    (-1, "m"),
    (0, ""),
    (1, "k"),
    (2, "M"),
    (3, "G"),
    (4, "T"),
    (5, "P"),
];

/// `value` with its last figure at `10^exponent`. The prefix is that of `size`, the largest number next to it.
fn text(value: f64, exponent: i32, size: f64, unit: Unit) -> String {
    let thousands = if size == 0.0 { 0 } else { ((size.log10() + SAME) / 3.0).floor() as i32 };
    let written = match unit {
        Unit::Plain => decimal(value, -exponent, true),
        Unit::Percent => decimal(value * 100.0, -exponent - 2, true).map(|number| number + " %"),
        Unit::Si => {
            PREFIXES.iter().find(|(power, _)| *power == thousands).and_then(|(power, prefix)| {
                let number = decimal(value / 1_000f64.powi(*power), 3 * power - exponent, false)?;
                Some(if value == 0.0 { number } else { number + prefix })
            })
        }
    };
    written.unwrap_or_else(|| format!("{value:.2e}")).replace('-', "−")
}

/// The number with `decimals` places, superfluous zeros left out; none where that would be too long to read.
fn decimal(value: f64, decimals: i32, grouped: bool) -> Option<String> {
    if value.abs() >= 1e9 || decimals > 10 {
        return None;
    }
    let mut text = format!("{value:.*}", decimals.max(0) as usize);
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    if grouped {
        let end = text.find('.').unwrap_or(text.len());
        let start = usize::from(text.starts_with('-'));
        for place in (start + 1..end).rev().filter(|place| (end - place).is_multiple_of(3)) {
            text.insert(place, ',');
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &Axis, values: &[f64], ends: Ends) -> Vec<String> {
        let ruler = Ruler::new(axis, values.iter().copied(), ends);
        ruler.ticks.into_iter().map(|(_, text)| text).collect()
    }

    /// Linear ticks are round numbers from the end below the least to the end above the largest.
    #[test]
    fn linear_ticks_are_round() {
        let plain = Axis::linear("");
        assert_eq!(ticks(&plain, &[0.0, 8.0], Ends::Round), ["0", "2", "4", "6", "8"]);
        assert_eq!(
            ticks(&plain, &[-3.0, 3.0], Ends::Round),
            ["−3", "−2", "−1", "0", "1", "2", "3"]
        );
        let percent = Axis::linear("").percent();
        assert_eq!(
            ticks(&percent, &[0.01, 0.3], Ends::Round),
            ["0 %", "5 %", "10 %", "15 %", "20 %", "25 %", "30 %"]
        );
        assert_eq!(ticks(&percent, &[0.681, 0.684], Ends::Round)[..2], ["68.1 %", "68.15 %"]);
        assert_eq!(
            ticks(&Axis::linear("").si(), &[0.0, 27_200_000.0], Ends::Round),
            ["0", "5M", "10M", "15M", "20M", "25M", "30M"]
        );
        assert_eq!(ticks(&plain, &[1e100, 3e100], Ends::Round)[0], "0");
    }

    /// A short logarithmic axis names 1, 2 and 5, a long one decades, a very long one some of them, and one
    /// shorter than that has linear ticks.
    #[test]
    fn log_ticks_suit_the_span() {
        let si = Axis::log("").si();
        assert_eq!(ticks(&si, &[1_000.0, 30_000.0], Ends::Tight), ["1k", "2k", "5k", "10k", "20k"]);
        assert_eq!(
            ticks(&si, &[1.0, 1e6], Ends::Round),
            ["1", "10", "100", "1k", "10k", "100k", "1M"]
        );
        assert!(ticks(&si, &[1e-150, 1e150], Ends::Round).len() < 10);
        assert_eq!(ticks(&si, &[905.0, 990.0], Ends::Tight), ["920", "940", "960", "980"]);
        assert_eq!(
            ticks(&Axis::log("").percent(), &[0.01, 0.3], Ends::Round),
            ["1 %", "2 %", "5 %", "10 %", "20 %", "50 %"]
        );
    }

    /// Numbers are as short as they can be without lying, and prefixes step at thousands.
    #[test]
    fn values_are_short() {
        for (value, unit, expected) in [
            (0.6804, Unit::Percent, "68.04 %"),
            (1.0, Unit::Percent, "100 %"),
            (27_200_000.0, Unit::Si, "27.2M"),
            (999.4, Unit::Si, "999"),
            (1000.0, Unit::Si, "1k"),
            (0.000_025, Unit::Si, "25µ"),
            (1_234_567.0, Unit::Plain, "1,234,567"),
            (-1_234.5, Unit::Plain, "−1,234"),
            (0.0, Unit::Si, "0"),
            (1e-30, Unit::Si, "1.00e−30"),
            (1e40, Unit::Plain, "1.00e40"),
            (f64::NAN, Unit::Plain, "–"),
        ] {
            assert_eq!(value_text(value, unit), expected, "{value}");
        }
    }

    /// Equal numbers, no numbers, and numbers at the ends of what a float holds have an axis with ticks.
    #[test]
    fn any_numbers_have_an_axis() {
        let sets: [&[f64]; 8] = [
            &[],
            &[0.0],
            &[5.0, 5.0],
            &[f64::NAN, f64::INFINITY],
            &[f64::MAX, f64::MIN_POSITIVE, -f64::MAX],
            &[1e150, -1e150],
            &[1e-160, 1e-149],
            &[1e15, 1e15 + 0.125],
        ];
        for scale in [Scale::Linear, Scale::Log] {
            for ends in [Ends::Tight, Ends::Round, Ends::Zero] {
                for values in sets {
                    let axis = Axis { label: String::new(), scale, unit: Unit::Si };
                    let ruler = Ruler::new(&axis, values.iter().copied(), ends);
                    assert!((1..=30).contains(&ruler.ticks.len()), "{values:?} {ruler:?}");
                    let places = values.iter().filter_map(|value| ruler.at(*value));
                    for place in places.chain(ruler.ticks.iter().map(|tick| tick.0)) {
                        assert!((0.0..=1.0).contains(&place), "{values:?} {ruler:?}");
                    }
                }
            }
        }
    }
}
