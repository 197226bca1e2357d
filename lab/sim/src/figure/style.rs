//! How series differ from one another: color, dash, marker, width.
//!
//! Dash and marker alone suffice, so a figure can be printed in black. The colors are those of Okabe and Ito
//! (2008), which people with any of the common kinds of color blindness can distinguish, without the yellow that
//! white paper swallows and with a grey in its place.

use super::canvas::{Canvas, INK, PAPER, Pen, Point};

const COLORS: [&str; 8] =
    ["#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#707070"];

/// Fills of bars, which carry their names and need no more: the same colors, the dark ones apart from the light.
const FILLS: [&str; 6] = ["#0072b2", "#e69f00", "#56b4e9", "#d55e00", "#009e73", "#b0b0b0"];

/// Seven patterns: no common factor with eight, so that color and dash come back together after fifty-six.
const DASHES: [&str; 7] = ["", "7 3", "2 2", "9 3 2 3", "13 4", "9 3 2 3 2 3", "4 2"];

const MARKERS: [Marker; 8] = [
    Marker::Circle,
    Marker::Square,
    Marker::Up,
    Marker::Diamond,
    Marker::Down,
    Marker::Cross,
    Marker::Plus,
    Marker::Bar,
];

/// A shape at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    Circle,
    Square,
    Up,
    Diamond,
    Down,
    Cross,
    Plus,
    Bar,
}

/// The looks of one series.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    color: &'static str,
    dash: &'static str,
    width: f64,
    marker: Marker,
}

impl Style {
    /// Looks of the series with this number; the first stands out.
    pub(super) fn of(index: usize) -> Style {
        Style {
            color: COLORS[index % COLORS.len()],
            dash: DASHES[index % DASHES.len()],
            width: if index == 0 { 2.6 } else { 1.5 },
            // Shifted every eight, so that a color comes back with another marker.
            marker: MARKERS[(index + 3 * (index / COLORS.len())) % MARKERS.len()],
        }
    }

    /// The pen of its line.
    pub(super) fn line(&self) -> Pen {
        Pen { stroke: self.color, width: self.width, dash: self.dash, fill: "none" }
    }

    /// The pen of the leader from its end to its name: dotted, so that it does not look like data.
    pub(super) fn leader(&self) -> Pen {
        Pen { stroke: self.color, width: 0.8, dash: "1 2", fill: "none" }
    }

    /// The pen of a bar of the series with this number.
    pub(super) fn bar(index: usize) -> Pen {
        Pen { stroke: INK, width: 0.6, dash: "", fill: FILLS[index % FILLS.len()] }
    }

    /// A number of ours.
    pub(super) fn mark(&self, canvas: &mut Canvas, at: Point) {
        let pen = Pen { stroke: self.color, width: 1.2, dash: "", fill: self.color };
        self.marker.draw(canvas, at, if self.width > 2.0 { 3.6 } else { 3.0 }, pen);
    }

    /// A number from another source: larger and hollow, so that ours is seen inside it.
    pub(super) fn hollow(&self, canvas: &mut Canvas, at: Point) {
        let pen = Pen { stroke: self.color, width: 1.4, dash: "", fill: "none" };
        // Strokes have no inside: a square around them.
        let marker = match self.marker {
            Marker::Cross | Marker::Plus | Marker::Bar => Marker::Square,
            other => other,
        };
        marker.draw(canvas, at, 6.0, pen);
    }

    /// A number from another source next to a bar: pale inside, so that it is seen on the bar too.
    pub(super) fn hollow_diamond(canvas: &mut Canvas, at: Point) {
        let pen = Pen { stroke: INK, width: 1.4, dash: "", fill: PAPER };
        Marker::Diamond.draw(canvas, at, 4.4, pen);
    }
}

impl Marker {
    fn draw(self, canvas: &mut Canvas, (x, y): Point, r: f64, pen: Pen) {
        let stroke = Pen { fill: "none", width: pen.width * 1.3, ..pen };
        let tall = r * 1.25;
        match self {
            Marker::Circle => canvas.circle((x, y), r, pen),
            Marker::Square => {
                canvas.rectangle((x - r * 0.9, y - r * 0.9), r * 1.8, r * 1.8, pen);
            }
            Marker::Up => {
                canvas.path(&[(x - r, y + r * 0.8), (x + r, y + r * 0.8), (x, y - r)], true, pen);
            }
            Marker::Down => {
                canvas.path(&[(x - r, y - r * 0.8), (x + r, y - r * 0.8), (x, y + r)], true, pen);
            }
            Marker::Diamond => {
                canvas.path(
                    &[(x - tall, y), (x, y - tall), (x + tall, y), (x, y + tall)],
                    true,
                    pen,
                );
            }
            Marker::Cross => {
                canvas.line((x - r, y - r), (x + r, y + r), stroke);
                canvas.line((x - r, y + r), (x + r, y - r), stroke);
            }
            Marker::Plus => {
                canvas.line((x - tall, y), (x + tall, y), stroke);
                canvas.line((x, y - tall), (x, y + tall), stroke);
            }
            Marker::Bar => canvas.line((x, y - tall), (x, y + tall), stroke),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Thirty-two series all look different without color, and the next twenty-four with it.
    #[test]
    fn series_look_different() {
        let black = |index: usize| (Style::of(index).dash, Style::of(index).marker as u8);
        assert_eq!((0..32).map(black).collect::<BTreeSet<_>>().len(), 32);
        let colored = |index: usize| (Style::of(index).dash, Style::of(index).color);
        assert_eq!((0..56).map(colored).collect::<BTreeSet<_>>().len(), 56);
    }
}
