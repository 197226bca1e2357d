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
use larder_testkit::golden::{Expectation, WithoutRule, load};
use serde_json::Value;

/// Flow -> its record, as ECS.
fn flows(capture: &Path, names: NameSources, rules: Rules) -> HashMap<String, Value> {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let log = directory.path().join("flows.ndjson");
    let options = Options {
        read: vec![Endpoint::Path(capture.to_owned())],
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
    let mut cache: HashMap<(PathBuf, NameSources, Rules), HashMap<String, Value>> = HashMap::new();
    let mut get = |row: &Expectation, rules: Rules| {
        let names = NameSources::parse(&row.names).expect("a list of sources");
        cache
            .entry((row.capture.clone(), names, rules))
            .or_insert_with(|| flows(&row.capture, names, rules))
            .get(&row.flow)
            .cloned()
    };
    let rows = load().expect("a readable list");
    for row in &rows {
        let place = format!("{} {} {}", row.capture.display(), row.flow, row.end);
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
            let is_in = |flags: &[String]| flags.iter().any(|listed| listed == flag);
            if set != is_in(&row.flags) && !is_in(&row.flags_possible) {
                wrong.push(format!("{place}: {flag} is {set}"));
            }
        }
        if let (Some(rule), WithoutRule::Unnamed | WithoutRule::Name(_)) =
            (row.rule, &row.without_rule)
        {
            let record = get(row, Rules::all().without(rule));
            let key = format!("{}.domain", row.end);
            let without = match record.as_ref().and_then(|record| text(record, &key)) {
                None => WithoutRule::Unnamed,
                Some(name) => WithoutRule::Name(name.to_owned()),
            };
            if without != row.without_rule {
                let expected = &row.without_rule;
                wrong.push(format!("{place}: without rule {rule} {without:?}, not {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
