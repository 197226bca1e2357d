//! `larder ctl`: sends a request to the control socket of a running server, and prints the response. A server
//! refuses a request that it does not support.
//!
//! ```text
//! stats, version   a name and a value a line           --json: the object
//! dump             an entry a line, in columns         --json: an object a line, which load takes
//! load             entries from standard input
//! other actions    the result in a few words           --json: the object
//! ```

use std::io::{self, BufWriter, Write};

use larder_serve::control::Fields;
use larder_serve::control::client::{self, Error};
use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::terminal::print;
use serde_json::Value;

use crate::settings::Ctl;

/// Runs the command.
pub fn ctl(settings: &Ctl) -> Outcome {
    let Ctl { action, name, soft, socket: path, json: is_json } = settings;
    let line = line(action, name.as_deref(), *soft)?;
    let fields = match *action {
        "dump" => return dump(*is_json, |each| client::exchange(path, &line, each)),
        "load" => client::upload(path, &line, &mut io::stdin().lock()),
        _ => client::exchange(path, &line, |_| Ok(())),
    };
    let fields = fields.map_err(failure)?;
    let is_partial = fields.get("refused").and_then(Value::as_u64).is_some_and(|count| count > 0);
    if *is_json {
        print(&format!("{}\n", Value::Object(fields)))?;
    } else if fields.is_empty() {
        print(&format!("{action}: done\n"))?;
    } else {
        print(&table(&fields))?;
    }
    Ok(if is_partial { exit::DAMAGED } else { exit::DONE })
}

/// The request as a line of JSON. A missing or superfluous argument is an error.
fn line(action: &str, name: Option<&str>, is_soft: bool) -> Result<String, Failure> {
    let mut request = Fields::from_iter([("command".to_owned(), action.into())]);
    let (argument, must) = match action {
        // One server flushes a name, the other all.
        "flush" => ("name", false),
        "flush-zone" => ("zone", true),
        "purge" => ("url", true),
        "purge-tag" => ("tag", true),
        _ if name.is_some() => {
            return Err(Failure::usage(format!("{action} takes no name; leave it out")));
        }
        _ => ("", false),
    };
    match name {
        Some(name) => drop(request.insert(argument.to_owned(), name.into())),
        None if must => {
            let word = argument.to_uppercase();
            return Err(Failure::usage(format!(
                "{action} needs an argument: larder ctl {action} {word}"
            )));
        }
        None => {}
    }
    if is_soft {
        if !matches!(action, "purge" | "purge-tag" | "flush") || action == "flush" && name.is_some()
        {
            return Err(Failure::usage(format!(
                "--soft is for purges, not for {action}; leave it out"
            )));
        }
        request.insert("soft".to_owned(), true.into());
    }
    Ok(Value::Object(request).to_string())
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
    exchange: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<Fields, Error>,
) -> Outcome {
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let result = exchange(&mut |line| {
        if is_json { out.write_all(line) } else { out.write_all(row(line).as_bytes()) }
    });
    let fields = result.map_err(failure)?;
    if !is_json && fields.get("entries").and_then(Value::as_u64) == Some(0) {
        out.write_all(b"the cache is empty\n").map_err(|error| Failure::stdout(&error))?;
    }
    out.flush().map_err(|error| Failure::stdout(&error))?;
    Ok(exit::DONE)
}

/// An entry in columns: seconds left, flags, bytes, code, class, type, name.
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
        // Words are for a line: what changed, for example.
        Value::Array(values) if values.iter().all(Value::is_string) => {
            let words: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            rows.push((path, if words.is_empty() { "-".to_owned() } else { words.join(", ") }));
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
        let fields: Fields = serde_json::from_str(r#"{"a":["b","c"],"d":[]}"#).unwrap();
        assert_eq!(table(&fields), "a  b, c\nd  -\n");
    }

    /// Each action makes a request, with a name if it needs one; an error is reported before anything is sent.
    #[test]
    fn actions_are_lines() {
        for action in crate::settings::CTL_ACTIONS {
            let needs = matches!(action, "flush-zone" | "purge" | "purge-tag");
            let takes = needs || action == "flush";
            assert_eq!(line(action, None, false).is_err(), needs, "{action}");
            assert_eq!(line(action, Some("a"), false).is_ok(), takes, "{action}");
        }
        let request = |action, name, is_soft| line(action, name, is_soft).map_err(|it| it.message);
        assert_eq!(
            request("flush", Some("a\"b"), false).unwrap(),
            r#"{"command":"flush","name":"a\"b"}"#
        );
        assert_eq!(request("flush", None, true).unwrap(), r#"{"command":"flush","soft":true}"#);
        assert_eq!(
            request("flush-zone", Some("."), false).unwrap(),
            r#"{"command":"flush-zone","zone":"."}"#
        );
        assert!(request("purge", None, true).unwrap_err().contains("larder ctl purge URL"));
        assert!(request("stop", None, true).unwrap_err().contains("--soft is for purges"));
        assert!(request("flush", Some("a"), true).unwrap_err().contains("--soft is for purges"));
    }
}
