//! Tables of figures, for a terminal or a page.

use std::fmt::Write as _;

use crate::sample::Median;

/// How a table is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Aligned columns.
    Text,
    /// A Markdown table.
    Markdown,
}

/// What the columns say.
pub fn legend(columns: &[(&str, &str)], style: Style) -> String {
    let mut text = String::new();
    for (title, what) in columns {
        let _ = match style {
            Style::Text => writeln!(text, "{title:<12} {what}"),
            Style::Markdown => writeln!(text, "* {title}: {what}"),
        };
    }
    text
}

/// A table: the first column to the left, the others to the right.
pub fn draw(titles: &[String], rows: &[Vec<String>], style: Style) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].len());
        cells.chain([titles[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let cells: Vec<String> = cells.collect();
        match style {
            Style::Text => cells.join("  ").trim_end().to_owned() + "\n",
            Style::Markdown => format!("| {} |\n", cells.join(" | ")),
        }
    };
    let mut text = line(titles);
    if style == Style::Markdown {
        let rules = widths.iter().enumerate().map(|(at, &width)| match at {
            0 => format!(":{}", "-".repeat(width + 1)),
            _ => format!("{}:", "-".repeat(width + 1)),
        });
        let rules: Vec<String> = rules.collect();
        let _ = writeln!(text, "|{}|", rules.join("|"));
    }
    rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}

/// A median with its interval.
pub fn ranged(median: Median) -> String {
    match median.value.is_finite() {
        true => format!("{} [{}, {}]", short(median.value), short(median.low), short(median.high)),
        false => "-".to_owned(),
    }
}

/// Three digits that mean something.
pub fn short(value: f64) -> String {
    match value {
        value if !value.is_finite() => "-".to_owned(),
        value if value.abs() >= 100.0 => format!("{value:.0}"),
        value if value.abs() >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
