//! Line charts as SVG: axes from zero, a legend, nothing else.
//!
//! Colours are those of Okabe and Ito, which people who see few colours can tell apart; every line also has
//! markers of its own shape.

use std::fmt::Write as _;

/// A chart.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below the horizontal axis.
    pub x_label: String,
    /// Beside the vertical axis.
    pub y_label: String,
    /// Lines: a name, and points from left to right.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

impl Chart {
    /// The picture. Points that are not numbers are left out.
    pub fn render(&self) -> String {
        let points = || self.series.iter().flat_map(|(_, points)| points).filter(is_point);
        let x_step = step(points().map(|point| point.0).fold(0.0, f64::max));
        let y_step = step(points().map(|point| point.1).fold(0.0, f64::max));
        let end = |step: f64, values: f64| step * (values / step).ceil().max(1.0);
        let x_end = end(x_step, points().map(|point| point.0).fold(0.0, f64::max));
        let y_end = end(y_step, points().map(|point| point.1).fold(0.0, f64::max));
        let x = |value: f64| LEFT + value / x_end * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / y_end * (HEIGHT - TOP - BOTTOM);

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        text(&mut svg, WIDTH / 2.0, 22.0, "middle", &self.title);
        text(&mut svg, WIDTH / 2.0, HEIGHT - 12.0, "middle", &self.x_label);
        let _ = writeln!(
            svg,
            "<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            HEIGHT / 2.0,
            escape(&self.y_label)
        );
        for mark in marks(y_step, y_end) {
            line(&mut svg, (LEFT, y(mark)), (WIDTH - RIGHT, y(mark)), "#dddddd");
            text(&mut svg, LEFT - 6.0, y(mark) + 4.0, "end", &short(mark));
        }
        for mark in marks(x_step, x_end) {
            line(&mut svg, (x(mark), HEIGHT - BOTTOM), (x(mark), HEIGHT - BOTTOM + 4.0), "black");
            text(&mut svg, x(mark), HEIGHT - BOTTOM + 18.0, "middle", &short(mark));
        }
        line(&mut svg, (LEFT, y(0.0)), (WIDTH - RIGHT, y(0.0)), "black");
        line(&mut svg, (LEFT, TOP), (LEFT, y(0.0)), "black");
        for (number, (name, points)) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let at: Vec<(f64, f64)> =
                points.iter().filter(is_point).map(|p| (x(p.0), y(p.1))).collect();
            let list: Vec<String> = at.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                list.join(" ")
            );
            at.iter().for_each(|&at| marker(&mut svg, number, at, colour));
            let legend = (LEFT + 14.0, TOP + 6.0 + 16.0 * number as f64);
            marker(&mut svg, number, legend, colour);
            text(&mut svg, legend.0 + 10.0, legend.1 + 4.0, "start", name);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn is_point(point: &&(f64, f64)) -> bool {
    point.0.is_finite() && point.1.is_finite()
}

/// A round distance that gives four to eight marks up to `end`.
fn step(end: f64) -> f64 {
    if end <= 0.0 || !end.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf((end / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|unit| unit * power)
        .into_iter()
        .find(|s| end / s <= 8.0)
        .unwrap_or(end)
}

fn marks(step: f64, end: f64) -> impl Iterator<Item = f64> {
    (0..=(end / step).round() as u32).map(move |mark| f64::from(mark) * step)
}

fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = escape(words);
    let _ =
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn marker(svg: &mut String, number: usize, (x, y): (f64, f64), colour: &str) {
    let corners: &[(f64, f64)] = match number % 3 {
        0 => &[(-3.0, -3.0), (3.0, -3.0), (3.0, 3.0), (-3.0, 3.0)],
        1 => &[(0.0, -4.0), (4.0, 3.0), (-4.0, 3.0)],
        _ => &[(0.0, -4.0), (4.0, 0.0), (0.0, 4.0), (-4.0, 0.0)],
    };
    let list: Vec<String> =
        corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
    let _ = writeln!(svg, "<polygon points=\"{}\" fill=\"{colour}\"/>", list.join(" "));
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The highest point touches no border, marks are round, words are escaped, and an empty chart is one too.
    #[test]
    fn charts_are_drawn() {
        let mut chart = Chart {
            title: "a < b".to_owned(),
            x_label: "x".to_owned(),
            y_label: "y".to_owned(),
            series: vec![("one".to_owned(), vec![(0.0, 1.0), (10.0, 37.0), (20.0, f64::NAN)])],
        };
        let svg = chart.render();
        assert!(svg.contains("a &lt; b") && svg.contains(">40<") && svg.contains("<polyline"));
        assert!(!svg.contains("NaN"));
        chart.series.clear();
        assert!(chart.render().ends_with("</svg>\n"));
    }

    /// Steps are 1, 2 or 5 of a power of ten.
    #[test]
    fn steps_are_round() {
        for (end, wanted) in [(37.0, 5.0), (100.0, 20.0), (0.9, 0.2), (7.0, 1.0), (0.0, 1.0)] {
            assert!((step(end) - wanted).abs() < 1e-9, "{end}: {}", step(end));
        }
    }
}
