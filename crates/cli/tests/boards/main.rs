//! The Grafana boards and Prometheus rules of `packaging/`: they are what their script makes, name
//! only what the programs export, and the rules fire when they should.
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
#[allow(dead_code)]
mod common;
mod exported;
mod queries;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Run, Scratch};
use larder_testkit::skip::has;
use serde_json::Value;

use exported::Exported;

/// The programs with a board.
const PROGRAMS: [&str; 3] = ["annotate", "dns", "http"];

/// Labels that Prometheus adds to all metrics.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn board(program: &str) -> Value {
    let text = read(&format!("packaging/grafana/larder-{program}.json"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// The panels of a board, without the headings.
fn panels(board: &Value) -> impl Iterator<Item = &Value> {
    let all = board["panels"].as_array().expect("panels").iter();
    all.filter(|panel| panel["type"] != "row")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// A rule: an alert, or a series that is recorded.
struct Rule {
    name: String,
    is_alert: bool,
    query: String,
    /// All of it.
    block: String,
}

impl Rule {
    /// The value of a line of the rule, without its quotation marks.
    fn field(&self, name: &str) -> &str {
        let mut lines = self.block.lines().map(str::trim_start);
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("{} has no {name}", self.name)).trim_matches('"')
    }
}

/// The rules, in their form: promtool reads them as YAML.
fn rules() -> Vec<Rule> {
    let whole = read("packaging/prometheus/larder.rules.yml");
    let mut rules = Vec::new();
    for block in whole.split("\n      - ").skip(1) {
        let block = block.split("\n\n").next().expect("split gives one");
        let (kind, rest) = block.split_once(": ").expect("a kind and a name");
        let (name, rest) = rest.split_once('\n').expect("more lines");
        let query = rest.trim_start().strip_prefix("expr: ").expect("the query comes first");
        let query = query.split("\n        for: ").next().expect("split gives one");
        rules.push(Rule {
            name: name.to_owned(),
            is_alert: kind == "alert",
            query: query.trim_start_matches(">-").to_owned(),
            block: block.to_owned(),
        });
    }
    assert!(rules.iter().filter(|rule| rule.is_alert).count() > 20, "the rules are read");
    rules
}

/// The committed boards are the output of their script.
#[test]
fn boards_are_those_of_the_script() {
    if !has("boards", "python3") {
        return;
    }
    let scratch = Scratch::new();
    let script = root().join("packaging/grafana/make");
    Run::of(Command::new("python3").arg(script).arg("--output").arg(scratch.path(""))).good();
    let names = |folder: &Path| -> BTreeSet<String> {
        let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file"));
        let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.ends_with(".json")).collect()
    };
    let made = names(&scratch.path(""));
    assert_eq!(made, names(&root().join("packaging/grafana")));
    assert_eq!(made.len(), PROGRAMS.len());
    for name in made {
        let committed = read(&format!("packaging/grafana/{name}"));
        assert!(scratch.read(&name) == committed, "{name} is stale: run packaging/grafana/make");
    }
}

/// All metrics, labels and values of labels in boards and rules are exported by running programs.
#[test]
fn metrics_exist() {
    let Some(exported) = Exported::of_programs("boards") else { return };
    let rules = rules();
    let recorded: Vec<&str> =
        rules.iter().filter(|rule| !rule.is_alert).map(|rule| &*rule.name).collect();
    let mut queries = 0;
    for program in PROGRAMS {
        let board = board(program);
        for panel in panels(&board) {
            let title = text(&panel["title"]);
            for target in panel["targets"].as_array().expect("targets") {
                let place = format!("{program}, {title}");
                let query = text(&target["expr"]).replace("$__rate_interval", "5m");
                let labels = queries::check(&place, &query, &exported, &[]);
                check_labels(&place, text(&target["legendFormat"]), "{{", &labels);
                assert!(query.contains("{instance=~\"$instance\""), "{place}: all instances");
                queries += 1;
            }
        }
        let instances = text(&board["templating"]["list"][1]["definition"]);
        let metric = instances.split(['(', ',']).nth(1).expect("a metric");
        assert!(exported.labels(metric).is_some(), "{program}: {instances}");
    }
    assert!(queries > 100, "{queries} queries");
    for rule in &rules {
        let labels = queries::check(&rule.name, &rule.query, &exported, &recorded);
        check_labels(&rule.name, &rule.block, "{{ $labels.", &labels);
    }
}

/// The labels that a text shows after `begin` are labels of its query.
fn check_labels(place: &str, text: &str, begin: &str, labels: &BTreeSet<String>) {
    for shown in text.split(begin).skip(1) {
        let label = shown.split(['}', ' ']).next().expect("split gives one");
        let is_known = labels.contains(label) || OF_PROMETHEUS.contains(&label);
        assert!(is_known, "{place}: its query has no label '{label}', but {labels:?}");
    }
}

/// Each panel has a place of its own, a unit, and a description of one sentence.
#[test]
fn panels_are_complete() {
    for program in PROGRAMS {
        let board = board(program);
        let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
        for panel in board["panels"].as_array().expect("panels") {
            let title = text(&panel["title"]);
            assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{program}, {title}");
            let at = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
            let (x, y) = (at("x"), at("y"));
            assert!(x + at("w") <= 24, "{program}, {title}: outside");
            for cell in (x..x + at("w")).flat_map(|x| (y..y + at("h")).map(move |y| (x, y))) {
                assert!(cells.insert(cell), "{program}, {title}: two panels at {cell:?}");
            }
        }
        for panel in panels(&board) {
            let (title, about) = (text(&panel["title"]), text(&panel["description"]));
            assert!(!text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(), "{title}");
            let is_sentence = about.ends_with('.') && about.matches(". ").count() == 0;
            assert!(is_sentence && about.len() > 15, "{program}, {title}: {about}");
        }
    }
}

/// `promtool` accepts the rules, and they fire in exactly the cases of their tests.
#[test]
fn promtool_accepts_rules() {
    if !has("promtool_accepts_rules", "promtool") {
        return;
    }
    for line in ["check rules larder.rules.yml", "test rules larder.rules.test.yml"] {
        let mut command = Command::new("promtool");
        command.current_dir(root().join("packaging/prometheus")).args(line.split(' '));
        let run = Run::of(&mut command);
        assert_eq!(run.code, Some(0), "{line}: {}{}", run.out, run.err);
        assert!(run.out.contains("SUCCESS"), "{line}: {}", run.out);
    }
}

/// Each alert waits, has a severity, a summary, a next step with flags that exist, a case in which
/// it fires, and a row in the guide.
#[test]
fn alerts_are_complete() {
    let cases = read("packaging/prometheus/larder.rules.test.yml");
    let guide = read("docs/guide/monitoring.md");
    let settings: String =
        PROGRAMS.map(|name| read(&format!("docs/reference/larder-{name}.md"))).concat();
    for rule in rules().iter().filter(|rule| rule.is_alert) {
        let name = &rule.name;
        assert!(rule.field("for").ends_with('m'), "{name}");
        assert!(["warning", "critical"].contains(&rule.field("severity")), "{name}");
        assert!(rule.field("summary").contains("{{ $labels.") || name == "LarderAbsent", "{name}");
        let next = rule.field("description");
        assert!(next.ends_with('.') && next.len() > 20, "{name}: {next}");
        for word in next.split([' ', ',', '.', ')', '(']).filter(|word| word.starts_with("--")) {
            let mut after = settings.split(word).skip(1).map(|rest| rest.chars().next());
            let is_flag = after.any(|next| matches!(next, Some(' ' | '`' | '[')));
            assert!(is_flag, "{name}: there is no flag {word}");
        }
        assert!(cases.contains(&format!("alertname=\"{name}\"")), "{name} fires in no case");
        assert!(guide.contains(&format!("\n| `{name}` |")), "{name} is not in the guide");
    }
}
