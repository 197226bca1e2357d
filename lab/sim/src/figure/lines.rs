//! A figure of lines, laid out.
//!
//! The plot has a fixed width; the picture around it is as wide as the texts of the ticks to its left and
//! the names to its right ask for. Names longer than [`NAME_WIDTH`] are cut. The plot grows with the number of
//! lines, so that a hundred of them are a tall picture and not a heap.

use std::collections::HashMap;

use super::axis::{Ends, Ruler, project};
use super::canvas::{
    Anchor, Canvas, GRID, HEADING, LABEL, PALE_INK, Pen, Point, TICK, cut, width_of,
};
use super::frame::{Frame, MARGIN, hidden_note, marks_note};
use super::labels::spread;
use super::style::Style;
use super::{Figure, Series};

const PLOT_WIDTH: f64 = 540.0;
const PLOT_HEIGHT: f64 = 340.0;
/// Height of a plot with more lines than fit [`PLOT_HEIGHT`], a line.
const LINE_ROOM: f64 = 24.0;
/// From the base line of one name to the next.
const NAME_GAP: f64 = 15.0;
const _: () = assert!(NAME_GAP <= LINE_ROOM, "all names have a place next to the plot");
/// Widest name.
const NAME_WIDTH: f64 = 220.0;
/// From the plot to the markers next to the names: room for leaders to be seen.
const LEADER: f64 = 44.0;
/// A piece of the line through that marker, long enough to know its dashes by.
const SAMPLE: f64 = 28.0;
/// From the marker to the name.
const KEY: f64 = 18.0;
/// Most points of one line.
const POINTS_MAX: usize = 4_000;
/// A line of more points has markers this far apart.
const MARKED_POINTS_MAX: usize = 40;
const MARKER_GAP: f64 = 40.0;

/// Where the plot lies. Points inside it are shares of its width and height, `(0, 0)` at the lower left.
struct Plot {
    left: f64,
    top: f64,
    height: f64,
}

/// One series as it will be drawn.
struct Line<'a> {
    /// Its name, unless another line already has it.
    name: Option<&'a str>,
    style: Style,
    /// In shares of the plot; none is a gap.
    points: Vec<Option<Point>>,
    hollow: bool,
}

/// Draws the figure.
pub(super) fn draw(figure: &Figure) -> String {
    let (x, y, hidden) = rulers(figure);
    let lines = lines_of(figure, &x, &y);
    let named: Vec<(&Line, &str, Point)> =
        lines.iter().filter_map(|line| Some((line, line.name?, line.end()?))).collect();

    let tick_width = y.ticks.iter().map(|(_, text)| width_of(text, TICK)).fold(24.0, f64::max);
    let left = MARGIN + tick_width + 8.0;
    let name_width = named
        .iter()
        .map(|(_, name, _)| width_of(&cut(name, HEADING, NAME_WIDTH), HEADING))
        .fold(0.0, f64::max);
    let width = left + PLOT_WIDTH + LEADER + KEY + name_width + MARGIN;

    let frame =
        Frame { title: &figure.title, caption: &figure.caption, source: &figure.source, width };
    let mut canvas = Canvas::default();
    let mut top = frame.head(&mut canvas) + 14.0;
    if !figure.y.label.is_empty() {
        top += 18.0;
        let label = cut(&figure.y.label, LABEL, width - 2.0 * MARGIN);
        canvas.text((MARGIN, top - 14.0), Anchor::Start, LABEL, &label);
    }
    let plot = Plot { left, top, height: PLOT_HEIGHT.max(named.len() as f64 * LINE_ROOM) };
    plot.draw_axes(&mut canvas, &x, &y);
    for line in lines.iter().rev() {
        plot.draw_line(&mut canvas, line);
    }
    plot.draw_names(&mut canvas, &named);

    let mut below = plot.bottom() + 20.0;
    if !figure.x.label.is_empty() {
        below += 18.0;
        let label = cut(&figure.x.label, LABEL, PLOT_WIDTH);
        canvas.text((left + PLOT_WIDTH / 2.0, below), Anchor::Middle, LABEL, &label);
    }
    let marks = lines.iter().any(|line| line.hollow && line.end().is_some());
    let marks = marks.then(|| marks_note(&figure.marks_note));
    let notes: Vec<String> = marks.into_iter().chain(hidden_note(hidden)).collect();
    frame.finish(canvas, below + 6.0, &notes)
}

/// Both axes over the points that can be shown, and how many cannot.
fn rulers(figure: &Figure) -> (Ruler, Ruler, usize) {
    let all = || figure.series.iter().chain(&figure.marks).flat_map(|series| &series.points);
    let is_shown = |&&(x, y): &&(f64, f64)| {
        project(figure.x.scale, x).is_some() && project(figure.y.scale, y).is_some()
    };
    let x = Ruler::new(&figure.x, all().filter(is_shown).map(|point| point.0), Ends::Tight);
    let y = Ruler::new(&figure.y, all().filter(is_shown).map(|point| point.1), Ends::Round);
    (x, y, all().filter(|point| !is_shown(point)).count())
}

/// Series, then marks, with their looks and places.
fn lines_of<'a>(figure: &'a Figure, x: &Ruler, y: &Ruler) -> Vec<Line<'a>> {
    let place = |series: &Series| {
        let points = series.points.iter().map(|point| Some((x.at(point.0)?, y.at(point.1)?)));
        thin(points.collect())
    };
    let series = figure.series.iter().enumerate().map(|(index, series)| Line {
        name: Some(&series.name),
        style: Style::of(index),
        points: place(series),
        hollow: false,
    });
    let mut known = HashMap::new();
    for (index, series) in figure.series.iter().enumerate() {
        known.entry(series.name.as_str()).or_insert(index);
    }
    let marks = figure.marks.iter().enumerate().map(|(index, marks)| {
        let same = known.get(marks.name.as_str()).copied();
        Line {
            name: same.is_none().then_some(&marks.name),
            style: Style::of(same.unwrap_or(figure.series.len() + index)),
            points: place(marks),
            hollow: true,
        }
    });
    series.chain(marks).collect()
}

/// The points, or of too many the lowest and highest of each of as many groups of neighbors as there may be.
fn thin(points: Vec<Option<Point>>) -> Vec<Option<Point>> {
    if points.len() <= POINTS_MAX {
        return points;
    }
    let group = points.len().div_ceil(POINTS_MAX / 2);
    let mut kept = Vec::with_capacity(POINTS_MAX);
    for group in points.chunks(group) {
        let shown = || group.iter().flatten().enumerate();
        let low = shown().min_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let high = shown().max_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let (Some(low), Some(high)) = (low, high) else {
            kept.push(None);
            continue;
        };
        let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
        kept.push(Some(*first.1));
        if first.0 != second.0 {
            kept.push(Some(*second.1));
        }
    }
    kept
}

impl Line<'_> {
    /// The point farthest to the right, of several the last.
    fn end(&self) -> Option<Point> {
        self.points.iter().flatten().copied().max_by(|a, b| a.0.total_cmp(&b.0))
    }
}

impl Plot {
    fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn at(&self, (x, y): Point) -> Point {
        (self.left + x * PLOT_WIDTH, self.top + (1.0 - y) * self.height)
    }

    fn draw_axes(&self, canvas: &mut Canvas, x: &Ruler, y: &Ruler) {
        let (left, right, bottom) = (self.left, self.left + PLOT_WIDTH, self.bottom());
        for (place, text) in &y.ticks {
            let height = self.at((0.0, *place)).1;
            canvas.line((left, height), (right, height), Pen::line(GRID, 1.0));
            canvas.text((left - 8.0, height + 4.0), Anchor::End, TICK, text);
        }
        for place in &y.minor {
            let height = self.at((0.0, *place)).1;
            canvas.line((left - 3.0, height), (left, height), Pen::line(PALE_INK, 0.7));
        }
        x.draw_below(canvas, (left, right), (self.top, bottom));
        if x.is_empty || y.is_empty {
            let middle = (left + PLOT_WIDTH / 2.0, self.top + self.height / 2.0);
            canvas.text(middle, Anchor::Middle, LABEL, "no data");
        }
    }

    fn draw_line(&self, canvas: &mut Canvas, line: &Line<'_>) {
        let shown = line.points.iter().flatten().count();
        let mut marked: Option<Point> = None;
        for run in line.points.split(Option::is_none) {
            let run: Vec<Point> = run.iter().flatten().map(|point| self.at(*point)).collect();
            if !line.hollow {
                canvas.path(&run, false, line.style.line());
            }
            for &at in &run {
                let near = marked.is_some_and(|(x, y)| (at.0 - x).hypot(at.1 - y) < MARKER_GAP);
                if shown > MARKED_POINTS_MAX && near && run.len() > 1 {
                    continue;
                }
                marked = Some(at);
                if line.hollow {
                    line.style.hollow(canvas, at);
                } else {
                    line.style.mark(canvas, at);
                }
            }
        }
    }

    /// Names at the right, each as near to the height of its line's end as the others let it, and a leader
    /// from there.
    fn draw_names(&self, canvas: &mut Canvas, named: &[(&Line<'_>, &str, Point)]) {
        let wanted: Vec<f64> = named.iter().map(|(_, _, end)| self.at(*end).1).collect();
        let heights = spread(&wanted, NAME_GAP, self.top, self.bottom());
        let key = self.left + PLOT_WIDTH + LEADER;
        for (index, ((line, name, end), height)) in named.iter().zip(heights).enumerate() {
            let end = self.at(*end);
            let sample = (key - SAMPLE / 2.0, height);
            canvas.line(end, sample, line.style.leader());
            if line.hollow {
                line.style.hollow(canvas, (key, height));
            } else {
                canvas.line(sample, (key + SAMPLE / 2.0, height), line.style.line());
                line.style.mark(canvas, (key, height));
            }
            let font = if index == 0 && !line.hollow { HEADING } else { LABEL };
            let name = cut(name, font, NAME_WIDTH);
            canvas.text((key + KEY, height + 4.0), Anchor::Start, font, &name);
        }
    }
}
