//! Figures of a server in the two forms that operators read: Prometheus' text, and fields of `larder ctl stats`.

use std::fmt::Write;

use serde_json::{Map, Value};

/// The values of a response to an operator, by name.
pub type Fields = Map<String, Value>;

/// How the name of a counter ends: a figure that only grows while the server runs.
const COUNTER_END: &str = "_total";

/// A figure. It goes up and down, unless its name ends in `_total`.
#[derive(Debug, Clone, PartialEq)]
pub struct Gauge {
    /// Its name, `[a-z_]+`, without prefix. Figures of one name follow one another, and differ in their label.
    pub name: &'static str,
    /// Its description, one line.
    pub help: &'static str,
    /// A label and its value; the value may be any text.
    pub label: Option<(&'static str, String)>,
    /// The figure.
    pub value: f64,
}

impl Gauge {
    /// Its name among the fields of `stats`.
    pub fn field(&self) -> &'static str {
        self.name.strip_suffix(COUNTER_END).unwrap_or(self.name)
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
    let version = ("version", env!("CARGO_PKG_VERSION").to_owned());
    write_head(out, "larder_build_info", "The build of larder that runs", "gauge");
    write_value(out, "larder_build_info", Some(&version), 1.0);
}

/// Figures in Prometheus' text format, their names after `prefix` and an underscore.
pub fn write_gauges(out: &mut String, prefix: &str, gauges: &[Gauge]) {
    let mut last = "";
    for gauge in gauges {
        let name = format!("{prefix}_{}", gauge.name);
        if gauge.name != last {
            last = gauge.name;
            let kind = if name.ends_with(COUNTER_END) { "counter" } else { "gauge" };
            write_head(out, &name, gauge.help, kind);
        }
        write_value(out, &name, gauge.label.as_ref(), gauge.value);
    }
}

/// A line of a metric: its name in full, a label whose value may be any text, the figure.
pub fn write_value(out: &mut String, name: &str, label: Option<&(&str, String)>, value: f64) {
    let _ = match label {
        Some((label, of)) => {
            let of = of.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            writeln!(out, "{name}{{{label}=\"{of}\"}} {value}")
        }
        None => writeln!(out, "{name} {value}"),
    };
}

/// Figures as fields of `stats`: by name, or below their name by label.
pub fn gauge_fields(gauges: &[Gauge]) -> Fields {
    let mut fields = Fields::new();
    for gauge in gauges {
        let label = gauge.label.as_ref().map(|(_, label)| label.clone());
        insert_value(&mut fields, gauge.field(), label, gauge.value.into());
    }
    fields
}

/// Puts a figure into the fields of `stats`: by name, or below its name by label.
pub fn insert_value(fields: &mut Fields, name: &str, label: Option<String>, value: Value) {
    let Some(label) = label else {
        fields.insert(name.to_owned(), value);
        return;
    };
    let family = fields.entry(name).or_insert_with(|| Fields::new().into());
    if let Value::Object(family) = family {
        family.insert(label, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A metric has one header for all labels; labels may be any text; fields have the same values.
    #[test]
    fn both_forms() {
        let up = |label: &str| {
            let label = Some(("origin", label.to_owned()));
            Gauge { name: "up", help: "Whether it answers", label, value: 1.0 }
        };
        let free = Gauge { name: "free", help: "Octets", label: None, value: 2.5 };
        let made = Gauge { name: "made_total", help: "Made", label: None, value: 3.0 };
        let gauges = [up("a\"b\\\n"), up("c"), free, made];
        let mut text = String::new();
        write_gauges(&mut text, "x", &gauges);
        assert_eq!(
            text,
            "# HELP x_up Whether it answers\n# TYPE x_up gauge\nx_up{origin=\"a\\\"b\\\\\\n\"} 1\n\
             x_up{origin=\"c\"} 1\n# HELP x_free Octets\n# TYPE x_free gauge\nx_free 2.5\n\
             # HELP x_made_total Made\n# TYPE x_made_total counter\nx_made_total 3\n"
        );
        let fields = gauge_fields(&gauges);
        assert_eq!((fields["up"]["c"].as_f64(), fields["free"].as_f64()), (Some(1.0), Some(2.5)));
        assert_eq!(fields["made"].as_f64(), Some(3.0));
    }
}
