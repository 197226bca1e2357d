//! Charts for people: lines and bars as SVG, made without a library.
//!
//! A [`Figure`] draws series of points as lines, a [`Bars`] groups of values as bars. A chart must
//! survive a bad printer and any pair of eyes:
//!
//! * Lines carry their names at their ends; there is no legend to look things up in. Names that would lie on
//!   one another are moved apart, with a thin leader back to the line.
//! * Every line has a dash pattern and a marker of its own; colors, from a set that people of all kinds of
//!   color vision can distinguish, come on top. The first series is the one that the figure is about: it is
//!   the widest, solid, black, and lies over the others.
//! * Numbers that others reported are [`Figure::marks`]: hollow markers, never joined by a line.
//!
//! ```
//! use larder_sim::figure::{Axis, Figure, Series};
//!
//! let lru = Series::new("lru", vec![(1_000.0, 0.33), (2_000.0, 0.42), (5_000.0, 0.53)]);
//! let figure = Figure {
//!     title: "OLTP".to_owned(),
//!     x: Axis::log("capacity, entries").si(),
//!     y: Axis::linear("hit ratio").percent(),
//!     series: vec![lru],
//!     ..Figure::default()
//! };
//! assert!(figure.svg().starts_with("<svg "));
//! ```
//!
//! | module | duty |
//! |---|---|
//! | `axis` | a range, its ticks and their texts |
//! | `lines` | a figure of lines, laid out |
//! | `bars` | a figure of bars, laid out |
//! | `labels` | names moved apart |
//! | `style` | how series differ from one another |
//! | `frame` | title, notes, caption and source around a plot |
//! | `canvas` | shapes and text as SVG elements |
//!
//! Invariants
//! 1. Any numbers and any text give a well-formed document whose coordinates are finite and inside its view
//!    box. A point that cannot be shown (not a number, infinite, beyond 1e150, not positive on a logarithmic
//!    axis) leaves a gap in its line, and a note under the plot says how many there were.
//! 2. The same figure gives the same bytes.
//!
//! Bounds: a line of more than 4,000 points is thinned to that many, highs and lows kept. The plot grows with
//! the number of lines. Cost: linear in points, n log n in names.

mod axis;
mod bars;
mod canvas;
mod frame;
mod labels;
mod lines;
mod style;

pub use bars::{Bars, Group};

/// Points under one name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// What stands at the end of the line.
    pub name: String,
    /// `(x, y)` in the order in which the line goes through them. A point that is not finite is a gap.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A series of these points.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), points }
    }
}

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Equal steps are equally far.
    #[default]
    Linear,
    /// Equal factors are equally far. Only numbers above zero can be shown.
    Log,
}

/// How an axis writes its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// As they are: 0.25, 1,000, 1e9.
    #[default]
    Plain,
    /// Shares of one as per cent: 0.25 is `25 %`.
    Percent,
    /// With a decimal prefix: 2,500,000 is `2.5M`, 0.001 is `1m`.
    Si,
}

/// One axis. It runs over all the numbers there are to show; there is nothing to set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axis {
    /// What is on it, and in which unit.
    pub label: String,
    /// How it is divided.
    pub scale: Scale,
    /// How its numbers are written.
    pub unit: Unit,
}

impl Axis {
    /// A linear axis with plain numbers.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear, unit: Unit::Plain }
    }

    /// A logarithmic axis with plain numbers.
    pub fn log(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Log, unit: Unit::Plain }
    }

    /// The same with shares written as per cent.
    #[must_use]
    pub fn percent(self) -> Axis {
        Axis { unit: Unit::Percent, ..self }
    }

    /// The same with decimal prefixes.
    #[must_use]
    pub fn si(self) -> Axis {
        Axis { unit: Unit::Si, ..self }
    }
}

/// A chart of lines.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figure {
    /// Stands above, bold.
    pub title: String,
    /// Stands below: what is seen, in a sentence or two.
    pub caption: String,
    /// Where the numbers come from: a command, a paper. Small, last.
    pub source: String,
    /// To the right. It ends where the numbers end.
    pub x: Axis,
    /// Upwards. It ends at a round number, and starts at zero where that does not waste half of it.
    pub y: Axis,
    /// The lines; the first is the one that the figure is about.
    pub series: Vec<Series>,
    /// Numbers reported by others: hollow markers, in the style of the series of the same name if there is one.
    pub marks: Vec<Series>,
    /// What the hollow markers are; `as reported elsewhere` where it is empty.
    pub marks_note: String,
}

impl Figure {
    /// The chart as an SVG document, which may also stand inside an HTML page.
    pub fn svg(&self) -> String {
        lines::draw(self)
    }
}
