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

use std::fmt::Write as _;

use serde_json::Value;

use crate::sample::Median;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds an operation.
    Ns,
    /// Million operations a second.
    Mops,
    /// Octets an entry above its payload.
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
    /// On so many threads.
    pub threads: usize,
    /// Unit of every figure.
    pub unit: Unit,
    /// larder's figure; not a number where it could not take part.
    pub larder: Median,
    /// Beside whom.
    pub peer: Option<Rival>,
    /// What memory alone would take, and what that is.
    pub limit: Option<(f64, String)>,
}

impl Row {
    /// The line, without its end.
    pub fn to_json(&self) -> String {
        let unit = self.unit.suffix();
        let mut text = format!(
            "{{\"work\":{},\"threads\":{},\"larder_{unit}\":{},\"interval\":{}",
            quote(&self.work),
            self.threads,
            number(self.larder.value),
            interval(self.larder)
        );
        if let Some(peer) = &self.peer {
            let _ = write!(
                text,
                ",\"peer\":{},\"peer_{unit}\":{},\"peer_interval\":{},\"ratio\":{},\"ratio_interval\":{},\"note\":{}",
                quote(&peer.name),
                number(peer.figure.value),
                interval(peer.figure),
                number(peer.ratio.value),
                interval(peer.ratio),
                quote(&peer.note)
            );
        }
        if let Some((value, what)) = &self.limit {
            let _ = write!(text, ",\"limit_{unit}\":{},\"limit\":{}", number(*value), quote(what));
        }
        let _ = write!(text, ",\"runs\":{}}}", self.larder.runs);
        text
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

/// Four digits that mean something; null for what is not a number.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "null".to_owned();
    }
    let digits = if value == 0.0 { 0 } else { 3 - value.abs().log10().floor() as i32 };
    format!("{value:.*}", digits.clamp(0, 6) as usize)
}

/// Both ends.
pub(crate) fn interval(median: Median) -> String {
    format!("[{},{}]", number(median.low), number(median.high))
}

/// Text as a JSON string.
pub fn quote(text: &str) -> String {
    Value::from(text).to_string()
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
        assert_eq!(number(f64::NAN), "null");
        assert_eq!(number(0.123_456), "0.1235");
        assert_eq!(number(12_345.6), "12346");
    }
}
