//! Results in rows under named columns: as text, CSV, JSON, Markdown and HTML, all with the same numbers.
//!
//! A number is written with the digits that its column is good for. A value that is not known is `-` in text, empty
//! in CSV and `null` in JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::sample::Median;

/// How a table is drawn for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Aligned columns.
    Text,
    /// A Markdown table.
    Markdown,
}

/// A table of results.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResultTable {
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// A column: its name, and how it makes its cell of a row.
pub type Column<'a, R> = (&'a str, &'a dyn Fn(&R) -> Cell);

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number as people read it, with a unit or an interval perhaps.
    Figure(String),
    /// A whole number.
    Count(u64),
    /// A number, and how many digits of it follow the point.
    Number(f64, usize),
    /// Not known, or not measured.
    Unknown,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Cell {
        Cell::Count(count)
    }
}

impl From<bool> for Cell {
    fn from(is: bool) -> Cell {
        Cell::from(if is { "yes" } else { "no" })
    }
}

impl Cell {
    /// A ratio, to a millionth: one request in a million.
    pub fn ratio(value: f64) -> Cell {
        Cell::Number(value, 6)
    }

    /// What `make` makes of a value that may be unknown.
    pub fn known<T>(value: Option<T>, make: impl FnOnce(T) -> Cell) -> Cell {
        value.map_or(Cell::Unknown, make)
    }

    /// A ratio as percent, to a hundredth.
    pub fn percent(value: f64) -> Cell {
        Cell::Number(100.0 * value, 2)
    }

    /// A figure with three digits that mean something.
    pub fn short(value: f64) -> Cell {
        Cell::Figure(short(value))
    }

    /// A median with its interval.
    pub fn ranged(median: Median) -> Cell {
        let Median { value, low, high, .. } = median;
        match value.is_finite() {
            true => Cell::Figure(format!("{} [{}, {}]", short(value), short(low), short(high))),
            false => Cell::Unknown,
        }
    }

    fn text(&self, unknown: &str) -> String {
        match self {
            Cell::Text(text) | Cell::Figure(text) => text.clone(),
            Cell::Count(count) => count.to_string(),
            Cell::Number(value, digits) if value.is_finite() => {
                let text = format!("{value:.digits$}");
                // No minus before zero.
                if text.bytes().all(|byte| b"-0.".contains(&byte)) {
                    text.trim_start_matches('-').to_owned()
                } else {
                    text
                }
            }
            Cell::Number(..) | Cell::Unknown => unknown.to_owned(),
        }
    }

    fn is_text(&self) -> bool {
        matches!(self, Cell::Text(_))
    }
}

impl ResultTable {
    /// No rows yet.
    pub fn new<T: AsRef<str>>(columns: &[T]) -> ResultTable {
        let columns = columns.iter().map(|column| column.as_ref().to_owned()).collect();
        ResultTable { columns, rows: Vec::new() }
    }

    /// A row for each of `rows`.
    pub fn of<R>(rows: impl IntoIterator<Item = R>, columns: &[Column<'_, R>]) -> ResultTable {
        let mut table = ResultTable::new(&columns.iter().map(|(name, _)| name).collect::<Vec<_>>());
        for row in rows {
            table.push(columns.iter().map(|(_, cell)| cell(&row)));
        }
        table
    }

    /// Adds a row. A value without a column is dropped, a missing value is unknown.
    pub fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
        let mut row: Vec<Cell> = row.into_iter().take(self.columns.len()).collect();
        row.resize(self.columns.len(), Cell::Unknown);
        self.rows.push(row);
    }

    /// Its rows.
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// As CSV (RFC 4180, but with line feeds).
    pub fn csv(&self) -> String {
        let mut text = self.columns.join(",") + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| quoted(&cell.text(""))).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }

    /// As a JSON array of objects, a row a line.
    pub fn json(&self) -> String {
        let value = |cell: &Cell| match cell {
            Cell::Text(text) | Cell::Figure(text) => Value::from(text.as_str()),
            Cell::Count(count) => Value::from(*count),
            // The digits that all other forms have.
            Cell::Number(..) => cell.text("").parse::<f64>().map_or(Value::Null, Value::from),
            Cell::Unknown => Value::Null,
        };
        let object = |row: &Vec<Cell>| {
            let pairs = self.columns.iter().cloned().zip(row.iter().map(value));
            Value::Object(pairs.collect::<Map<String, Value>>()).to_string()
        };
        let rows: Vec<String> = self.rows.iter().map(object).collect();
        format!("[\n{}\n]\n", rows.join(",\n"))
    }

    /// For people.
    pub fn draw(&self, style: Style) -> String {
        match style {
            Style::Text => self.text(),
            Style::Markdown => self.markdown(),
        }
    }

    /// As aligned columns: words to the left, numbers to the right.
    pub fn text(&self) -> String {
        let cells = self.cells();
        let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        for row in &cells {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let width = widths[at];
                let _ = if self.is_text(at) {
                    write!(line, "{cell:<width$}  ")
                } else {
                    write!(line, "{cell:>width$}  ")
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// As a table in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for (number, row) in self.cells().iter().enumerate() {
            let row: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            let _ = writeln!(text, "| {} |", row.join(" | "));
            if number == 0 {
                let rule = |at| if self.is_text(at) { "---|" } else { "--:|" };
                let rules: String = (0..self.columns.len()).map(rule).collect();
                let _ = writeln!(text, "|{rules}");
            }
        }
        text
    }

    /// As a table in HTML.
    pub fn html(&self) -> String {
        let mut text = "<table>\n".to_owned();
        for (number, row) in self.cells().iter().enumerate() {
            let tag = if number == 0 { "th" } else { "td" };
            text.push_str("<tr>");
            for (at, cell) in row.iter().enumerate() {
                let class = if self.is_text(at) { "" } else { " class=\"n\"" };
                let _ = write!(text, "<{tag}{class}>{}</{tag}>", escape(cell));
            }
            text.push_str("</tr>\n");
        }
        text + "</table>\n"
    }

    /// The header, in words, and all rows, for people.
    fn cells(&self) -> Vec<Vec<String>> {
        let header = self.columns.iter().map(|column| column.replace('_', " ")).collect();
        let row = |row: &Vec<Cell>| row.iter().map(|cell| cell.text("-")).collect();
        [header].into_iter().chain(self.rows.iter().map(row)).collect()
    }

    fn is_text(&self, at: usize) -> bool {
        self.rows.iter().any(|row| row[at].is_text())
    }
}

/// The meaning of columns.
pub fn legend(columns: &[(&str, &str)], style: Style) -> String {
    let mut text = String::new();
    for (title, meaning) in columns {
        let _ = match style {
            Style::Text => writeln!(text, "{title:<12} {meaning}"),
            Style::Markdown => writeln!(text, "* {title}: {meaning}"),
        };
    }
    text
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

/// A number with a comma every three digits: 1234567 is `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Text as it may stand in HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A field of CSV, in quotes where it needs them.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ResultTable {
        let mut table = ResultTable::new(&["who", "hit_ratio", "hits"]);
        table.push(["a,\"b\"|<c>".into(), Cell::ratio(0.5), 1234.into()]);
        table.push(["d".into(), Cell::Number(-0.000_000_1, 6), Cell::Unknown, 7.into()]);
        table.push(["e".into(), Cell::Number(f64::NAN, 2)]);
        table
    }

    /// All forms have the same numbers; each escapes what means something in it; an unknown value is marked.
    #[test]
    fn forms_agree() {
        let table = table();
        assert_eq!(
            table.csv(),
            "who,hit_ratio,hits\n\"a,\"\"b\"\"|<c>\",0.500000,1234\nd,0.000000,\ne,,\n"
        );
        let json: Value = serde_json::from_str(&table.json()).unwrap();
        assert_eq!((&json[0]["hits"], &json[0]["who"]), (&1234.into(), &"a,\"b\"|<c>".into()));
        assert!(json[1]["hits"].is_null() && json[2]["hit_ratio"].is_null());
        assert_eq!(
            table.text(),
            "who        hit ratio  hits\na,\"b\"|<c>   0.500000  1234\nd           0.000000     -\n\
             e                  -     -\n"
        );
        assert!(table.markdown().starts_with(
            "| who | hit ratio | hits |\n|---|--:|--:|\n| a,\"b\"\\|<c> | 0.500000 | 1234 |\n"
        ));
        assert!(
            table
                .html()
                .contains("<td>a,&quot;b&quot;|&lt;c&gt;</td><td class=\"n\">0.500000</td>")
        );
    }

    /// No rows are an empty array, a header, and no panic.
    #[test]
    fn nothing_is_something() {
        let empty = ResultTable::new(&["a", "b"]);
        assert_eq!(serde_json::from_str::<Value>(&empty.json()).unwrap(), Value::Array(vec![]));
        assert_eq!((empty.csv(), empty.text()), ("a,b\n".to_owned(), "a  b\n".to_owned()));
    }

    /// Groups of three digits have commas, three digits mean something.
    #[test]
    fn numbers_are_short() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!([0.123, 12.34, 1234.6, f64::NAN].map(short), ["0.12", "12.3", "1235", "-"]);
    }
}
