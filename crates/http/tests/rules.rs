//! Scenarios of the caching rules, without sockets, with clients and an origin around
//! [`larder_http::core`]. Time passes only where a scenario says so.
//!
//! A scenario is a file in `rules/`; `rules/script.rs` lists its lines. Each event needs a line: a
//! request to the origin, or a response, without a line is an error.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "rules/client.rs"]
mod client;
#[path = "rules/script.rs"]
mod script;
#[path = "rules/world.rs"]
mod world;

use std::path::Path;

fn run(text: &str) -> Result<(), String> {
    let script = script::read(text)?;
    let mut world = world::World::new(&script.settings)?;
    for (number, step) in &script.steps {
        world.step(step).map_err(|why| format!("line {number}: {why}"))?;
    }
    world.end().map_err(|why| format!("at the end: {why}"))
}

/// Each scenario runs as it is written, and no client waits when nothing is in flight. Invariants 1
/// and 2 of `core`.
#[test]
fn scenarios() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "scenario"));
    paths.sort();
    assert!(paths.len() >= 20, "{} scenarios", paths.len());
    let mut faults = Vec::new();
    for path in paths {
        if let Err(why) = run(&std::fs::read_to_string(&path).unwrap()) {
            faults.push(format!("{}: {why}", path.file_name().unwrap().display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A scenario that does not run as it is written fails with its line. It may have a wrong status,
/// field or body, or lack a line for an event.
#[test]
fn faults_are_found() {
    let begin = "client 1 requests GET /a\norigin gets GET /a\n\
        origin answers 200\n  Cache-Control: max-age=9\n  body x\n";
    let cases = [
        ("client 1 gets 201\n  body x", "line 6"),
        ("client 1 gets 200\n  body y", "line 6"),
        ("client 1 gets 200\n  Age: 1\n  body x", "line 6"),
        ("client 1 gets 200\n  no Via\n  body x", "line 6"),
        ("client 2 gets 200", "line 6"),
        ("client 1 gets 200\n  body x\norigin gets GET /a", "line 8"),
        ("client 1 gets 200\n  body x\nafter 9 s\nclient 1 requests GET /a", "at the end"),
        ("", "at the end"),
        ("client 1 dances", "line 6"),
    ];
    for (end, expected) in cases {
        let why = run(&format!("{begin}{end}")).expect_err(end);
        assert!(why.starts_with(expected), "{end}: {why}");
    }
    run(&format!("{begin}client 1 gets 200\n  Age: 0\n  body x")).unwrap();
}
