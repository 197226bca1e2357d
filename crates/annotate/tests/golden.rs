//! Golden captures: recordings of real programs, each flow with the name it must get.
//!
//! `tests/captures/expected.tsv` lists them. Where a row is about one of the nine naming rules, the
//! capture is run again with that rule off, and must then say the *wrong* name of the row: a rule
//! that makes no difference is not tested.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_annotate::options::{Endpoint, NameSources, Options, OutputFormat, Rules};
use larder_annotate::record::NameFlags;
use larder_annotate::{Progress, run};
use serde_json::Value;

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures")
}

struct Row {
    capture: String,
    flow: String,
    end: String,
    name: Option<String>,
    kind: Option<String>,
    flags: String,
    names: NameSources,
    rule: Option<u8>,
    wrong: String,
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(captures().join("expected.tsv")).expect("expected.tsv");
    let known = |text: &str| (text != "-").then(|| text.to_owned());
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            Row {
                capture: fields[0].to_owned(),
                flow: fields[1].to_owned(),
                end: fields[2].to_owned(),
                name: known(fields[3]),
                kind: known(fields[4]),
                flags: fields[5].to_owned(),
                names: NameSources::parse(fields[6]).expect("a list of sources"),
                rule: fields[7].parse().ok(),
                wrong: fields[8].to_owned(),
            }
        })
        .collect()
}

/// Flow -> its record, as ECS.
fn flows(capture: &str, names: NameSources, rules: Rules) -> HashMap<String, Value> {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let log = directory.path().join("flows.ndjson");
    let options = Options {
        read: vec![Endpoint::Path(captures().join(capture))],
        output: Endpoint::Path(log.clone()),
        format: OutputFormat::Ecs,
        names,
        rules,
        names_budget_bytes: 8 << 20,
        ..Options::default()
    };
    run(&options, &Arc::new(Progress::default())).expect("a run");
    std::fs::read_to_string(log)
        .expect("a log")
        .lines()
        .map(|line| {
            let record: Value = serde_json::from_str(line).expect("JSON");
            let end = |side: &str| {
                let ip = record[format!("{side}.ip")].as_str().unwrap_or("?").to_owned();
                let port = &record[format!("{side}.port")];
                if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
            };
            let transport = record["network.transport"].as_str().unwrap_or("?");
            (format!("{transport} {} > {}", end("source"), end("destination")), record)
        })
        .collect()
}

fn text<'v>(record: &'v Value, key: &str) -> Option<&'v str> {
    record[key].as_str()
}

/// Every flow of every recording gets the name, source and flags that its row says; and what a row
/// says of a rule's worth is true.
#[test]
fn every_flow_is_named_as_listed() {
    let mut wrong = Vec::new();
    let mut cache: HashMap<(String, NameSources, Rules), HashMap<String, Value>> = HashMap::new();
    let mut get = |row: &Row, rules: Rules| {
        cache
            .entry((row.capture.clone(), row.names, rules))
            .or_insert_with(|| flows(&row.capture, row.names, rules))
            .get(&row.flow)
            .cloned()
    };
    let rows = rows();
    for row in &rows {
        let place = format!("{} {} {}", row.capture, row.flow, row.end);
        let Some(record) = get(row, Rules::all()) else {
            wrong.push(format!("{place}: no such flow"));
            continue;
        };
        let name = text(&record, &format!("{}.domain", row.end));
        if name != row.name.as_deref() {
            wrong.push(format!("{place}: named {name:?}, not {:?}", row.name));
        }
        let kind = text(&record, &format!("larder.{}.name_source", row.end));
        if kind != row.kind.as_deref() {
            wrong.push(format!("{place}: by {kind:?}, not {:?}", row.kind));
        }
        for (_, flag) in NameFlags::ALL {
            let set = record[format!("larder.{}.name_{flag}", row.end)] == Value::Bool(true);
            let listed = row.flags.split(',').any(|listed| listed == flag);
            let either = row.flags.split(',').any(|listed| listed == format!("?{flag}"));
            if set != listed && !either {
                wrong.push(format!("{place}: {flag} is {set}"));
            }
        }
        if let Some(rule) = row.rule
            && row.wrong != "="
        {
            let record = get(row, Rules::all().without(rule));
            let key = format!("{}.domain", row.end);
            let without = record.as_ref().and_then(|record| text(record, &key)).unwrap_or("-");
            if without != row.wrong {
                let expected = &row.wrong;
                wrong.push(format!("{place}: without rule {rule} {without}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
