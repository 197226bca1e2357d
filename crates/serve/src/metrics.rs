//! Metrics of a server in the two forms that operators read: Prometheus' text, and fields of `larder ctl stats`.

use std::borrow::Cow;
use std::fmt::{Display, Write};

use serde_json::{Map, Value};

/// The values of a response to an operator, by name.
pub type Fields = Map<String, Value>;

/// How the name of a counter ends: a metric that only grows while the server runs.
const COUNTER_END: &str = "_total";

/// A metric that is read at the moment. It is a gauge, unless its name ends in `_total`.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name, `[a-z_]+`, without prefix. Metrics of one name follow one another, and differ in their label.
    pub name: Cow<'static, str>,
    /// Its description, one line.
    pub help: Cow<'static, str>,
    /// A label and its value; the value may be any text.
    pub label: Option<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

impl Metric {
    /// A metric without a label.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        help: impl Into<Cow<'static, str>>,
        value: f64,
    ) -> Metric {
        Metric { name: name.into(), help: help.into(), label: None, value }
    }

    /// The same metric with a label.
    pub fn of(self, label: &'static str, value: &str) -> Metric {
        Metric { label: Some((label, value.to_owned())), ..self }
    }

    /// Its name among the fields of `stats`.
    pub fn field(&self) -> &str {
        self.name.strip_suffix(COUNTER_END).unwrap_or(&self.name)
    }

    fn is_counter(&self) -> bool {
        self.name.ends_with(COUNTER_END)
    }
}

/// The lines that begin a metric of Prometheus: its full name, its description, and `counter`,
/// `gauge` or `histogram`.
pub fn write_head(out: &mut String, name: &str, help: &str, kind: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Which build this is, in Prometheus' text format.
pub fn write_build_info(out: &mut String) {
    let version = ("version", env!("CARGO_PKG_VERSION"));
    write_head(out, "larder_build_info", "The build of larder that runs", "gauge");
    write_value(out, "larder_build_info", Some(version), 1.0);
}

/// Metrics in Prometheus' text format, their names after `prefix` and an underscore.
pub fn write_metrics(out: &mut String, prefix: &str, metrics: &[Metric]) {
    let all = metrics.iter().map(|Metric { name, help, label, value }| {
        let label = label.as_ref().map(|(label, of)| (*label, of.as_str()));
        (&**name, &**help, label, *value)
    });
    write_all(out, prefix, all);
}

/// Names, help texts, labels and values in Prometheus' text format, with one head for each name.
pub(crate) fn write_all<'a>(
    out: &mut String,
    prefix: &str,
    metrics: impl Iterator<Item = (&'a str, &'a str, Option<(&'a str, &'a str)>, impl Display)>,
) {
    let mut last = "";
    for (name, help, label, value) in metrics {
        let full = format!("{prefix}_{name}");
        if name != last {
            last = name;
            let kind = if name.ends_with(COUNTER_END) { "counter" } else { "gauge" };
            write_head(out, &full, help, kind);
        }
        write_value(out, &full, label, value);
    }
}

/// A line of a metric: its name in full, a label whose value may be any text, the value.
fn write_value(out: &mut String, name: &str, label: Option<(&str, &str)>, value: impl Display) {
    let _ = match label {
        Some((label, of)) => {
            let of = of.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            writeln!(out, "{name}{{{label}=\"{of}\"}} {value}")
        }
        None => writeln!(out, "{name} {value}"),
    };
}

/// Metrics as fields of `stats`: by name, or below their name by label. Counters are integers.
pub fn metric_fields(metrics: &[Metric]) -> Fields {
    let mut fields = Fields::new();
    for metric in metrics {
        let is_counter = metric.is_counter();
        let value = if is_counter { (metric.value as u64).into() } else { metric.value.into() };
        let Some((_, label)) = &metric.label else {
            fields.insert(metric.field().to_owned(), value);
            continue;
        };
        let family = fields.entry(metric.field()).or_insert_with(|| Fields::new().into());
        if let Value::Object(family) = family {
            family.insert(label.clone(), value);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A metric has one header for all labels; labels may be any text; fields have the same values.
    #[test]
    fn both_forms() {
        let up = |label| Metric::new("up", "Whether it answers", 1.0).of("origin", label);
        let free = Metric::new("free", "Bytes", 2.5);
        let made = Metric::new("made_total", "Made", 3.0);
        let metrics = [up("a\"b\\\n"), up("c"), free, made];
        let mut text = String::new();
        write_metrics(&mut text, "x", &metrics);
        assert_eq!(
            text,
            "# HELP x_up Whether it answers\n# TYPE x_up gauge\nx_up{origin=\"a\\\"b\\\\\\n\"} 1\n\
             x_up{origin=\"c\"} 1\n# HELP x_free Bytes\n# TYPE x_free gauge\nx_free 2.5\n\
             # HELP x_made_total Made\n# TYPE x_made_total counter\nx_made_total 3\n"
        );
        let fields = metric_fields(&metrics);
        assert_eq!((fields["up"]["c"].as_f64(), fields["free"].as_f64()), (Some(1.0), Some(2.5)));
        assert_eq!(fields["made"].as_u64(), Some(3));
    }
}
