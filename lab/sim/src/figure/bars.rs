//! A figure of bars, laid out.
//!
//! Bars lie: then names of any length fit next to them, each bar carries the name of its series, and no reader
//! looks a fill up in a legend. A row is a bar, its name to the left, its number to the right; a group is a
//! heading and its rows. Lengths begin at zero, since the eye compares lengths.
//!
//! Bounds: the picture grows by a row for each value. Names are cut at [`NAME_WIDTH`].

use super::Axis;
use super::axis::{Ends, Ruler, value_text};
use super::canvas::{Anchor, Canvas, HEADING, LABEL, PAPER, Pen, cut, width_of};
use super::frame::{Frame, MARGIN, marks_note};
use super::style::Style;

const PLOT_WIDTH: f64 = 420.0;
const ROW_HEIGHT: f64 = 19.0;
const BAR_HEIGHT: f64 = 14.0;
/// Above a heading, and below the last row.
const GROUP_GAP: f64 = 10.0;
/// Widest name of a row or group.
const NAME_WIDTH: f64 = 220.0;
/// From a bar's end to its number.
const VALUE_GAP: f64 = 8.0;

/// A chart of bars: values of several series in each of several groups.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bars {
    /// Stands above, bold.
    pub title: String,
    /// Stands below: what is seen, in a sentence or two.
    pub caption: String,
    /// Where the numbers come from: a command, a paper. Small, last.
    pub source: String,
    /// What the lengths are. A linear axis, which holds zero, unless the caller knows better: bars on a
    /// logarithmic one start at an arbitrary number.
    pub values: Axis,
    /// Names of the series, the first the one that the figure is about. With one series or none, rows are
    /// named by their groups.
    pub series: Vec<String>,
    /// Groups, from the top.
    pub groups: Vec<Group>,
    /// What the hollow markers are; `as reported elsewhere` where it is empty.
    pub marks_note: String,
}

/// One value of each series.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Group {
    /// What these values have in common.
    pub name: String,
    /// In the order of the series. One that cannot be shown has a dash for a number.
    pub values: Vec<f64>,
    /// Numbers reported by others, in the same order; not a number where there is none.
    pub marks: Vec<f64>,
}

/// One bar.
struct Row<'a> {
    /// Heading above it, if it opens a group that has one.
    heading: Option<&'a str>,
    name: &'a str,
    pen: Pen,
    value: f64,
    mark: Option<f64>,
}

impl Bars {
    /// The chart as an SVG document, which may also stand inside an HTML page.
    pub fn svg(&self) -> String {
        let rows = self.rows();
        let numbers = rows.iter().flat_map(|row| [Some(row.value), row.mark]).flatten();
        let ruler = Ruler::new(&self.values, numbers, Ends::Zero);

        let fold = |widths: &mut dyn Iterator<Item = f64>| widths.fold(0.0, f64::max);
        let name_width = fold(&mut rows.iter().map(|row| width_of(&row.short_name(), LABEL)));
        let number_width = fold(&mut rows.iter().map(|row| width_of(&self.number(row), LABEL)));
        let left = MARGIN + name_width + 8.0;
        let right = left + PLOT_WIDTH;
        let width = right + VALUE_GAP + number_width.max(30.0) + MARGIN;

        let (title, caption, source) = (&self.title, &self.caption, &self.source);
        let frame = Frame { title, caption, source, width };
        let mut canvas = Canvas::default();
        let top = frame.head(&mut canvas) + 10.0;
        let bottom = rows.iter().map(Row::height).fold(top, |y, height| y + height) + GROUP_GAP;
        ruler.draw_below(&mut canvas, (left, right), (top, bottom));
        let mut y = top;
        for row in &rows {
            y += row.height();
            self.draw(&mut canvas, row, &ruler, left, y - ROW_HEIGHT);
        }
        if rows.is_empty() {
            canvas.text((left + 8.0, top + GROUP_GAP + 4.0), Anchor::Start, LABEL, "no data");
        }
        let mut below = bottom + 20.0;
        if !self.values.label.is_empty() {
            below += 18.0;
            let label = cut(&self.values.label, LABEL, PLOT_WIDTH);
            canvas.text((left + PLOT_WIDTH / 2.0, below), Anchor::Middle, LABEL, &label);
        }
        let marks = rows.iter().any(|row| row.mark.is_some());
        let notes = marks.then(|| marks_note(&self.marks_note));
        frame.finish(canvas, below + 6.0, notes.as_slice())
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let many = self.series.len() > 1;
        let rows = self.groups.iter().flat_map(|group| {
            let count = group.values.len().max(group.marks.len());
            (0..count).map(move |index| {
                let series = self.series.get(index).map_or("", String::as_str);
                Row {
                    heading: (many && index == 0).then_some(group.name.as_str()),
                    name: if many { series } else { &group.name },
                    pen: Style::bar(index),
                    value: group.values.get(index).copied().unwrap_or(f64::NAN),
                    mark: group.marks.get(index).copied().filter(|mark| mark.is_finite()),
                }
            })
        });
        rows.collect()
    }

    /// What stands to the right of a row.
    fn number(&self, row: &Row<'_>) -> String {
        let ours = value_text(row.value, self.values.unit);
        match row.mark {
            Some(mark) => format!("{ours}  (◇ {})", value_text(mark, self.values.unit)),
            None => ours,
        }
    }

    /// Draws a row whose upper edge is at `y`.
    fn draw(&self, canvas: &mut Canvas, row: &Row<'_>, ruler: &Ruler, left: f64, y: f64) {
        if let Some(heading) = row.heading {
            let heading = cut(heading, HEADING, NAME_WIDTH + PLOT_WIDTH);
            // The grid does not run through it.
            let paper = Pen { stroke: "none", width: 0.0, dash: "", fill: PAPER };
            let width = width_of(&heading, HEADING);
            canvas.rectangle((MARGIN, y - ROW_HEIGHT), width, ROW_HEIGHT, paper);
            canvas.text((MARGIN, y - 5.0), Anchor::Start, HEADING, &heading);
        }
        let middle = y + ROW_HEIGHT / 2.0;
        canvas.text((left - 8.0, middle + 4.0), Anchor::End, LABEL, &row.short_name());
        let across = |place: f64| left + place * PLOT_WIDTH;
        // Zero, or on a logarithmic axis the start of it.
        let base = across(ruler.at(0.0).unwrap_or(0.0));
        let mut end = base;
        if let Some(place) = ruler.at(row.value) {
            let tip = across(place);
            end = end.max(tip);
            let corner = (base.min(tip), middle - BAR_HEIGHT / 2.0);
            canvas.rectangle(corner, (tip - base).abs(), BAR_HEIGHT, row.pen);
        }
        if let Some(place) = row.mark.and_then(|mark| ruler.at(mark)) {
            let at = across(place);
            end = end.max(at + 4.0);
            Style::hollow_diamond(canvas, (at, middle));
        }
        canvas.text((end + VALUE_GAP, middle + 4.0), Anchor::Start, LABEL, &self.number(row));
    }
}

impl Row<'_> {
    fn height(&self) -> f64 {
        ROW_HEIGHT + if self.heading.is_some() { GROUP_GAP + ROW_HEIGHT } else { 0.0 }
    }

    fn short_name(&self) -> String {
        cut(self.name, LABEL, NAME_WIDTH)
    }
}
