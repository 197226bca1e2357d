//! Shapes and text as SVG elements.
//!
//! Presentation attributes only: a `<style>` would leak into the page that a figure stands in. Coordinates
//! are absolute, to a tenth of a unit, and there are no transformations, so that a reader of the file (and
//! our tests) can take every number as it stands.
//!
//! How wide text is depends on fonts that only the viewer knows. [`width_of`] is an estimate on the wide
//! side: a layout has a little too much room rather than too little.

use std::fmt::Write;

/// `(x, y)`, in units of the view box; y grows downwards.
pub(super) type Point = (f64, f64);

pub(super) const INK: &str = "#1a1a1a";
pub(super) const PALE_INK: &str = "#5c5c5c";
pub(super) const GRID: &str = "#e3e3e3";
pub(super) const PAPER: &str = "#ffffff";

const FONTS: &str =
    "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif";

/// How a shape is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pen {
    pub(super) stroke: &'static str,
    pub(super) width: f64,
    /// As in `stroke-dasharray`; empty is solid.
    pub(super) dash: &'static str,
    pub(super) fill: &'static str,
}

impl Pen {
    /// A solid line that fills nothing.
    pub(super) const fn line(stroke: &'static str, width: f64) -> Pen {
        Pen { stroke, width, dash: "", fill: "none" }
    }
}

/// Which part of a text is at its place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text is set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Font {
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) ink: &'static str,
}

pub(super) const TITLE: Font = Font { size: 16.0, bold: true, ink: INK };
pub(super) const LABEL: Font = Font { size: 12.0, bold: false, ink: INK };
pub(super) const HEADING: Font = Font { size: 12.0, bold: true, ink: INK };
pub(super) const TICK: Font = Font { size: 11.0, bold: false, ink: PALE_INK };

/// The elements so far.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    body: String,
}

impl Canvas {
    pub(super) fn line(&mut self, from: Point, to: Point, pen: Pen) {
        self.path(&[from, to], false, pen);
    }

    /// A line through the points; fewer than two draw nothing.
    pub(super) fn path(&mut self, points: &[Point], closed: bool, pen: Pen) {
        if points.len() < 2 {
            return;
        }
        self.body.push_str("<path d=\"");
        for (index, &(x, y)) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            self.put(format_args!("{command}{x:.1} {y:.1}"));
        }
        if closed {
            self.body.push('Z');
        }
        self.body.push('"');
        self.pen(pen);
    }

    pub(super) fn circle(&mut self, (x, y): Point, radius: f64, pen: Pen) {
        self.put(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\""));
        self.pen(pen);
    }

    pub(super) fn rectangle(&mut self, (x, y): Point, width: f64, height: f64, pen: Pen) {
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\""
        ));
        self.pen(pen);
    }

    /// One line of text, its base line at `y`. Empty text draws nothing.
    pub(super) fn text(&mut self, (x, y): Point, anchor: Anchor, font: Font, text: &str) {
        if text.is_empty() {
            return;
        }
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if font.bold { " font-weight=\"bold\"" } else { "" };
        let Font { size, ink, .. } = font;
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{ink}\"{anchor}{weight}>"
        ));
        escape(text, &mut self.body);
        self.body.push_str("</text>\n");
    }

    /// The document. A screen reader reads title and description.
    pub(super) fn finish(self, (width, height): Point, title: &str, description: &str) -> String {
        let mut document = Canvas { body: String::with_capacity(self.body.len() + 1024) };
        document.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" \
             role=\"img\" font-family=\"{FONTS}\">\n"
        ));
        for (element, text) in [("title", title), ("desc", description)] {
            if !text.is_empty() {
                document.put(format_args!("<{element}>"));
                escape(text, &mut document.body);
                document.put(format_args!("</{element}>\n"));
            }
        }
        let paper = Pen { stroke: "none", width: 0.0, dash: "", fill: PAPER };
        document.rectangle((0.0, 0.0), width, height, paper);
        document.body.push_str(&self.body);
        document.body.push_str("</svg>\n");
        document.body
    }

    fn pen(&mut self, pen: Pen) {
        let Pen { stroke, width, dash, fill } = pen;
        self.put(format_args!(" fill=\"{fill}\""));
        if stroke != "none" {
            self.put(format_args!(" stroke=\"{stroke}\" stroke-width=\"{width}\""));
        }
        if !dash.is_empty() {
            self.put(format_args!(" stroke-dasharray=\"{dash}\""));
        }
        self.body.push_str("/>\n");
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("writing to a String does not fail");
    }
}

/// Text as XML character data. What XML 1.0 (section 2.2) has no way to write becomes U+FFFD.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
}

/// Estimated width of one line of text, a little too wide.
pub(super) fn width_of(text: &str, font: Font) -> f64 {
    let ems: f64 = text.chars().map(ems_of).sum();
    ems * font.size * if font.bold { 1.1 } else { 1.0 }
}

fn ems_of(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.34,
        ' ' | 'f' | 'r' | 't' | '-' | '(' | ')' | '[' | ']' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.98,
        'A'..='Z' => 0.74,
        '\u{1100}'.. => 1.05,
        _ => 0.64,
    }
}

/// Text broken at spaces into lines of at most `width`; a word that is wider is cut.
pub(super) fn wrap(text: &str, font: Font, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut used = f64::INFINITY;
    for word in text.split_whitespace() {
        let wide = width_of(word, font);
        let space = width_of(" ", font);
        match lines.last_mut() {
            Some(line) if used + space + wide <= width => {
                line.push(' ');
                line.push_str(word);
                used += space + wide;
            }
            _ => {
                lines.push(String::new());
                used = 0.0;
                for c in word.chars() {
                    let step = width_of(c.encode_utf8(&mut [0; 4]), font);
                    if used > 0.0 && used + step > width {
                        lines.push(String::new());
                        used = 0.0;
                    }
                    used += step;
                    if let Some(line) = lines.last_mut() {
                        line.push(c);
                    }
                }
            }
        }
    }
    lines
}

/// Text cut to at most `width`, with an ellipsis where it was cut.
pub(super) fn cut(text: &str, font: Font, width: f64) -> String {
    if width_of(text, font) <= width {
        return text.to_owned();
    }
    let mut left = width - width_of("…", font);
    let fits = |c: &char| {
        left -= width_of(c.encode_utf8(&mut [0; 4]), font);
        left >= 0.0
    };
    let mut short: String = text.chars().take_while(fits).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Markup in a text stays text, and what XML cannot hold is replaced rather than written.
    #[test]
    fn text_is_escaped() {
        let mut out = String::new();
        escape("a<b>&\"c\"\n\u{0}\u{1b}\u{ffff}é", &mut out);
        assert_eq!(out, "a&lt;b&gt;&amp;\"c\" \u{fffd}\u{fffd}\u{fffd}é");
    }

    /// Wrapped text keeps every word, no line is wider than asked, and a long word is cut in pieces.
    #[test]
    fn text_wraps_within_the_width() {
        let text = "one two three fourfivesixseveneightnineteneleventwelve thirteen";
        let lines = wrap(text, LABEL, 100.0);
        assert!(lines.len() > 4);
        for line in &lines {
            assert!(width_of(line, LABEL) <= 100.0, "{line}");
        }
        let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
        assert_eq!(letters(&lines.concat()), letters(text));
        assert!(wrap("  ", LABEL, 100.0).is_empty());
    }

    /// A name too long for its place ends in an ellipsis and fits; a short one stays.
    #[test]
    fn long_names_are_cut() {
        let short = cut(&"w".repeat(100), LABEL, 60.0);
        assert!(short.ends_with('…') && width_of(&short, LABEL) <= 60.0);
        assert_eq!(cut("lru", LABEL, 60.0), "lru");
    }
}
