//! `larder ctl`: asks a running `larder dns`, and prints what it answers.
//!
//! ```text
//! stats, version   a name and a value a line           --json: the object
//! dump             an entry a line, in columns         --json: an object a line, which load takes
//! load             entries from standard input
//! the others       what was done, in a few words       --json: the object
//! ```

use std::io::{self, BufWriter, Write};

use larder_dns::ctl::client::{self, Error};
use larder_dns::ctl::{Fields, Request};
use serde_json::Value;

use crate::exit::{self, Failure, Outcome};
use crate::layers::Resolved;
use crate::show::print;

/// Runs the command.
pub fn ctl(settings: &Resolved) -> Outcome {
    let path = settings.path("socket").ok_or_else(|| Failure::usage("--socket names no path"))?;
    let is_json = settings.switch("json");
    let action = settings.choice("action");
    let request = request(action, settings.word("name"))?;
    let fields = match request {
        Request::Dump => return dump(is_json, |each| client::request(&path, &request, each)),
        Request::Load => client::load(&path, &mut io::stdin().lock()),
        _ => client::request(&path, &request, |_| Ok(())),
    };
    let fields = fields.map_err(failure)?;
    let is_partial = fields.get("refused").and_then(Value::as_u64).is_some_and(|count| count > 0);
    if is_json {
        print(&format!("{}\n", Value::Object(fields)))?;
    } else if fields.is_empty() {
        print(&format!("{action}: done\n"))?;
    } else {
        print(&table(&fields))?;
    }
    Ok(if is_partial { exit::DAMAGED } else { exit::DONE })
}

/// What is asked for; an argument too many or too few is a slip.
fn request(action: &str, name: Option<&str>) -> Result<Request, Failure> {
    match (action, name) {
        ("flush", Some(name)) => Request::flush(name).map_err(Failure::usage),
        ("flush-zone", Some(zone)) => Request::flush_zone(zone).map_err(Failure::usage),
        ("flush" | "flush-zone", None) => {
            Err(Failure::usage(format!("{action} of what? larder ctl {action} NAME")))
        }
        (_, Some(_)) => Err(Failure::usage(format!("{action} takes no name; leave it out"))),
        (_, None) => {
            let line = format!("{{\"command\":\"{action}\"}}");
            Request::parse(line.as_bytes()).map_err(Failure::usage)
        }
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Own(error) => Failure::stdout(&error),
        other => Failure::usage(other.to_string()),
    }
}

/// Prints entries as they come.
fn dump(
    is_json: bool,
    ask: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<Fields, Error>,
) -> Outcome {
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let asked = ask(&mut |line| {
        if is_json { out.write_all(line) } else { out.write_all(row(line).as_bytes()) }
    });
    let fields = asked.map_err(failure)?;
    if !is_json && fields.get("entries").and_then(Value::as_u64) == Some(0) {
        out.write_all(b"the cache is empty\n").map_err(|error| Failure::stdout(&error))?;
    }
    out.flush().map_err(|error| Failure::stdout(&error))?;
    Ok(exit::DONE)
}

/// An entry in columns: seconds left, flags, octets, code, class, type, name.
fn row(line: &[u8]) -> String {
    let entry: Value = serde_json::from_slice(line).unwrap_or_default();
    let word = |name| entry.get(name).and_then(Value::as_str).unwrap_or("?");
    let number = |name| match entry.get(name).and_then(Value::as_u64) {
        Some(number) => number.to_string(),
        None => "-".to_owned(),
    };
    let flag = |name, word| match entry.get(name).and_then(Value::as_bool) {
        Some(true) => word,
        _ => "--",
    };
    format!(
        "{:>7} {} {} {:>5} {:<8} {:<3} {:<6} {}\n",
        number("ttl_s"),
        flag("dnssec_ok", "do"),
        flag("checking_disabled", "cd"),
        number("octets"),
        word("rcode"),
        word("class"),
        word("type"),
        word("name"),
    )
}

/// A line a value; those within objects and lists by their path.
fn table(fields: &Fields) -> String {
    let mut rows = Vec::new();
    for (name, value) in fields {
        flatten(name.clone(), value, &mut rows);
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}

fn flatten(path: String, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                flatten(format!("{path}.{name}"), value, rows);
            }
        }
        Value::Array(values) => {
            for (number, value) in values.iter().enumerate() {
                flatten(format!("{path}.{number}"), value, rows);
            }
        }
        Value::String(text) => rows.push((path, text.clone())),
        other => rows.push((path, other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries come in columns, and one without an end or flags has a dash.
    #[test]
    fn entries_are_rows() {
        let line = br#"{"name":"a.example.","type":"AAAA","class":"IN","dnssec_ok":true,
            "checking_disabled":false,"ttl_s":299,"rcode":"NOERROR","octets":70}"#;
        assert_eq!(row(line), "    299 do --    70 NOERROR  IN  AAAA   a.example.\n");
        assert_eq!(row(b"{}"), "      - -- --     - ?        ?   ?      ?\n");
    }

    /// Values are found by their path, whatever they are in.
    #[test]
    fn values_have_paths() {
        let fields: Fields =
            serde_json::from_str(r#"{"cache":{"entries":3},"upstreams":[{"up":true}]}"#).unwrap();
        assert_eq!(table(&fields), "cache.entries   3\nupstreams.0.up  true\n");
    }

    /// Every word of the table is a request, with a name where it needs one.
    #[test]
    fn actions_are_requests() {
        for action in crate::settings::CTL_ACTIONS {
            let is_named = action.starts_with("flush");
            assert_eq!(request(action, None).is_ok(), !is_named, "{action}");
            assert_eq!(request(action, Some("a.example")).is_ok(), is_named, "{action}");
        }
        assert!(request("flush", Some("a..b")).unwrap_err().message.contains("no domain name"));
    }
}
