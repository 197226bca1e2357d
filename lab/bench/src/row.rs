//! One comparison, one line of JSON.
//!
//! ```json
//! {"work":"get hit, uniform","threads":1,"larder_ns":61.2,"interval":[60.1,62.0],"peer":"moka",
//!  "peer_ns":230.5,"peer_interval":[225.0,240.1],"ratio":0.266,"ratio_interval":[0.26,0.27],
//!  "limit_ns":40.0,"limit":"what it is","runs":10,"note":""}
//! ```
//!
//! The unit is in the names: `ns` an operation, `mops` (million operations a second), `bytes` an entry above
//! its payload, `share` (0 to 1). A row without a peer is larder's alone.

use serde_json::{Value, json};

use crate::sample::Median;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds an operation.
    Ns,
    /// Million operations a second.
    Mops,
    /// Bytes an entry above its payload.
    Bytes,
    /// A part of a whole, 0 to 1.
    Share,
}

impl Unit {
    const ALL: [Unit; 4] = [Unit::Ns, Unit::Mops, Unit::Bytes, Unit::Share];

    /// As it ends the names of JSON fields.
    pub fn suffix(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::Mops => "mops",
            Unit::Bytes => "bytes",
            Unit::Share => "share",
        }
    }
}

/// Somebody else's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Rival {
    /// Who.
    pub name: String,
    /// Its figure.
    pub figure: Median,
    /// larder's figure over its own, round by round.
    pub ratio: Median,
    /// What a reader should know of this contestant.
    pub note: String,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What was done.
    pub work: String,
    /// The number of threads.
    pub threads: usize,
    /// Unit of every figure.
    pub unit: Unit,
    /// larder's figure; not a number where it could not take part.
    pub larder: Median,
    /// The contestant that it is compared with.
    pub peer: Option<Rival>,
    /// What memory alone would take, and what that is.
    pub limit: Option<(f64, String)>,
}

impl Row {
    /// Rows of what contestants, larder first, did round by round: each has a name, what a reader should know of it,
    /// and its figures. A row for each other contestant, or one row when there is none.
    pub fn of_rounds<'a>(
        work: &str,
        threads: usize,
        unit: Unit,
        contestants: impl IntoIterator<Item = (&'a str, &'a str, &'a [f64])>,
        limit: Option<(f64, String)>,
    ) -> Vec<Row> {
        let mut contestants = contestants.into_iter();
        let Some((_, _, larder)) = contestants.next() else { return Vec::new() };
        let row = |peer| Row {
            work: work.to_owned(),
            threads,
            unit,
            larder: Median::of(larder),
            peer,
            limit: limit.clone(),
        };
        let rival = |(name, note, figures): (&str, &str, &[f64])| Rival {
            name: name.to_owned(),
            figure: Median::of(figures),
            ratio: Median::of_ratios(larder, figures),
            note: note.to_owned(),
        };
        let rows: Vec<Row> = contestants.map(|other| row(Some(rival(other)))).collect();
        if rows.is_empty() { vec![row(None)] } else { rows }
    }

    /// The line, without its end.
    pub fn to_json(&self) -> String {
        let unit = self.unit.suffix();
        let mut line = json!({
            "work": self.work,
            "threads": self.threads,
            "interval": interval(self.larder),
            "runs": self.larder.runs,
        });
        line[format!("larder_{unit}")] = rounded(self.larder.value);
        if let Some(peer) = &self.peer {
            line["peer"] = json!(peer.name);
            line["note"] = json!(peer.note);
            line[format!("peer_{unit}")] = rounded(peer.figure.value);
            line["peer_interval"] = interval(peer.figure);
            line["ratio"] = rounded(peer.ratio.value);
            line["ratio_interval"] = interval(peer.ratio);
        }
        if let Some((value, what)) = &self.limit {
            line[format!("limit_{unit}")] = rounded(*value);
            line["limit"] = json!(what);
        }
        line.to_string()
    }

    /// Reads a line that [`Row::to_json`] wrote, or another program after its example; `None` for anything else.
    pub fn from_json(line: &str) -> Option<Row> {
        let value: Value = serde_json::from_str(line).ok()?;
        let unit = Unit::ALL.into_iter().find(|unit| {
            ["larder", "peer"]
                .iter()
                .any(|who| value.get(format!("{who}_{}", unit.suffix())).is_some())
        })?;
        let figure = |who: &str, range: &str| {
            let field = format!("{who}_{}", unit.suffix());
            median(value.get(&field), value.get(range), value.get("runs"))
        };
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let peer = text("peer").map(|name| Rival {
            name,
            figure: figure("peer", "peer_interval"),
            ratio: median(value.get("ratio"), value.get("ratio_interval"), value.get("runs")),
            note: text("note").unwrap_or_default(),
        });
        let limit = value
            .get(format!("limit_{}", unit.suffix()))
            .and_then(Value::as_f64)
            .map(|limit| (limit, text("limit").unwrap_or_default()));
        Some(Row {
            work: text("work")?,
            threads: usize::try_from(value.get("threads")?.as_u64()?).ok()?,
            unit,
            larder: figure("larder", "interval"),
            peer,
            limit,
        })
    }
}

/// A field that is missing, or null, is not a number.
fn median(value: Option<&Value>, interval: Option<&Value>, runs: Option<&Value>) -> Median {
    let float = |value: Option<&Value>| value.and_then(Value::as_f64).unwrap_or(f64::NAN);
    let value = float(value);
    let end = |at: usize| match interval.and_then(|interval| interval.get(at)) {
        Some(end) => float(Some(end)),
        None => value,
    };
    let runs = runs.and_then(Value::as_u64).unwrap_or(1);
    Median { value, low: end(0), high: end(1), runs: usize::try_from(runs).unwrap_or(0) }
}

/// Four digits that mean something; null for a value that is not a number.
pub fn rounded(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    let digits = if value == 0.0 { 0 } else { 3 - value.abs().log10().floor() as i32 };
    let text = format!("{value:.*}", digits.clamp(0, 6) as usize);
    text.parse::<f64>().map_or(Value::Null, Value::from)
}

/// Both ends.
pub fn interval(median: Median) -> Value {
    json!([rounded(median.low), rounded(median.high)])
}

/// Adds the medians of figures to a line, each with its interval under `NAME_interval`.
#[cfg(feature = "net")]
pub(crate) fn add_medians<const N: usize>(line: &mut Value, medians: [(&str, Median); N]) {
    for (name, median) in medians {
        line[name] = rounded(median.value);
        line[format!("{name}_interval")] = interval(median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64) -> Median {
        Median { value, low: value - 1.0, high: value + 1.0, runs: 10 }
    }

    /// What is written is read back the same, with and without a peer, in every unit.
    #[test]
    fn rows_read_back() {
        for unit in Unit::ALL {
            let mut row = Row {
                work: "get \"hit\"".to_owned(),
                threads: 2,
                unit,
                larder: figure(61.25),
                peer: None,
                limit: Some((40.0, "memory".to_owned())),
            };
            assert_eq!(Row::from_json(&row.to_json()).as_ref(), Some(&row), "{}", row.to_json());
            row.peer = Some(Rival {
                name: "peer".to_owned(),
                figure: figure(230.5),
                ratio: figure(2.5),
                note: String::new(),
            });
            row.limit = None;
            assert_eq!(Row::from_json(&row.to_json()).as_ref(), Some(&row), "{}", row.to_json());
        }
    }

    /// What is no row is none, and what is not a number is written as null.
    #[test]
    fn anything_else_is_no_row() {
        for line in ["", "SKIP go", "{}", "[1]", "{\"work\":\"x\",\"threads\":-1,\"larder_ns\":1}"]
        {
            assert_eq!(Row::from_json(line), None, "{line}");
        }
        assert_eq!(rounded(f64::NAN), Value::Null);
        assert_eq!(rounded(0.123_456), 0.1235);
        assert_eq!(rounded(12_345.6), 12_346.0);
    }
}
