//! Metrics of the three programs as Prometheus reads them.
#![cfg(target_os = "linux")]

mod common;

use std::collections::HashMap;
use std::io::Write;
use std::process::{Command, Stdio};

use common::{Scratch, TestCapture};
use larder_testkit::http::fetch;
use larder_testkit::process::Program;
use larder_testkit::skip::has;

/// The metrics of a program with these settings.
fn text(scratch: &Scratch, line: &str) -> String {
    let mut command = scratch.larder();
    command.args(line.split_whitespace()).args(["--metrics", "127.0.0.1:0"]);
    let mut program = Program::start(command.stdin(Stdio::piped()).stdout(Stdio::null()));
    if let Some(pipe) = &mut program.child.stdin {
        // Only annotate reads its input.
        let _ = pipe.write_all(&TestCapture::new().bytes);
    }
    let said = program.wait_for("metrics listening url=http://");
    let at = said.split("http://").nth(1).and_then(|at| at.strip_suffix("/metrics"));
    let response = fetch(at.expect("a URL").parse().expect("an address"), "/metrics");
    program.kill();
    assert_eq!(response.status(), 200);
    response.text().to_owned()
}

/// The metrics of each program, with all optional ones that need no other machine.
fn texts() -> Vec<(&'static str, String)> {
    let scratch = Scratch::new();
    let lines = [
        ("dns", "dns --listen 127.0.0.1:0 --upstream 127.0.0.1:9 --cores 1 --query-log queries"),
        (
            "http",
            "http --listen 127.0.0.1:0 --origin http://127.0.0.1:9 --cores 1 --access-log requests \
             --health-check /",
        ),
        ("annotate", "annotate -r - -o flows -w packets --store 16MiB --no-progress"),
    ];
    lines.map(|(name, line)| (name, text(&scratch, line))).into()
}

/// Counters, and only counters, have the name and type of a counter; each program reports its
/// build.
#[test]
fn types_follow_names() {
    for (program, text) in texts() {
        let mut types = HashMap::new();
        for line in text.lines() {
            if let Some((name, kind)) =
                line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' '))
            {
                assert_eq!(name.ends_with("_total"), kind == "counter", "{program}: {line}");
                assert_eq!(types.insert(name, kind), None, "{program}: {line}");
            } else if let Some(help) = line.strip_prefix("# HELP ") {
                let is_sum = help.contains("since the start") && !help.contains("Time since");
                assert!(!is_sum || help.contains("_total "), "{program}: {line}");
            }
        }
        let info = format!("larder_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        assert!(text.lines().any(|line| line == info), "{program}: {text}");
        // Each program has some of both.
        let count = |wanted| types.values().filter(|kind| **kind == wanted).count();
        assert!(count("counter") > 5 && count("gauge") > 5, "{program}: {types:?}");
        let first = [
            "larder_dns_queries_total",
            "larder_http_requests_total",
            "larder_annotate_packets_total",
        ];
        assert!(first.iter().any(|name| types.contains_key(name)), "{program}: {types:?}");
    }
}

/// `promtool` accepts them without a message.
#[test]
fn promtool_accepts_them() {
    if !has("promtool_accepts_them", "promtool") {
        return;
    }
    for (program, text) in texts() {
        let mut check = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool runs");
        let mut pipe = check.stdin.take().expect("piped");
        pipe.write_all(text.as_bytes()).expect("it reads");
        drop(pipe);
        let done = check.wait_with_output().expect("it ends");
        let said = [done.stdout, done.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        assert!(done.status.success() && said.concat().is_empty(), "{program}: {said:?}\n{text}");
    }
}
