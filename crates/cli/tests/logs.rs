//! `--log-level` and `--log-format` of the three programs that keep running: at the start, and
//! after a reload.
#![cfg(target_os = "linux")]

mod common;

use std::io::Write;
use std::process::Stdio;

use common::{Scratch, TestCapture};
use larder_testkit::process::{Program, Run};
use larder_testkit::wait::until;
use serde_json::Value;

/// A command line of each program with which it runs until it is stopped, with a control socket.
const PROGRAMS: [(&str, &str); 3] = [
    ("dns", "dns --listen 127.0.0.1:0 --upstream 127.0.0.1:9 --cores 1 --ctl ctl"),
    ("http", "http --listen 127.0.0.1:0 --origin http://127.0.0.1:9 --cores 1 --ctl ctl"),
    ("annotate", "annotate -r - -o flows --quiet --cores 1 --ctl ctl"),
];

fn start(scratch: &Scratch, line: &str) -> Program {
    let mut command = scratch.larder();
    command.args(line.split_whitespace()).args(["--metrics", "127.0.0.1:0"]);
    let mut program = Program::start(command.stdin(Stdio::piped()).stdout(Stdio::null()));
    // annotate serves once it has read the header of its capture; the others do not read their
    // input.
    if let Some(pipe) = &mut program.child.stdin {
        let _ = pipe.write_all(&TestCapture::new().bytes);
    }
    program
}

/// Stops a program through the socket, or by the end of its input; returns all that it logged.
fn end(scratch: &Scratch, mut program: Program) -> String {
    until("it is asked to end", || {
        (scratch.run("ctl stop --socket ctl").code == Some(0)).then_some(())
    });
    drop(program.child.stdin.take());
    let (code, said) = program.end();
    assert!(code == Some(0) || code == Some(130), "{code:?} {said}");
    said
}

/// By default each line has level, component and event; a higher level omits the less important
/// ones.
#[test]
fn levels() {
    for (component, line) in PROGRAMS {
        let scratch = Scratch::new();
        let said = end(&scratch, start(&scratch, line));
        assert!(said.contains(&format!("info {component}: metrics listening url=")), "{said}");
        let is_log = |line: &str| line.starts_with("info ") || line.starts_with("warn ");
        assert!(said.lines().all(is_log), "{said}");
        let said = end(&scratch, start(&scratch, &format!("{line} --log-level error")));
        assert_eq!(said, "", "{component}");
    }
}

/// Each JSON line is an object with time, level, component, event and the keys.
#[test]
fn json() {
    for (component, line) in PROGRAMS {
        let scratch = Scratch::new();
        let said = end(&scratch, start(&scratch, &format!("{line} --log-format json")));
        let lines: Vec<Value> = said
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
            .collect();
        assert!(!lines.is_empty());
        for line in &lines {
            let names = ["time", "level", "component", "event"];
            assert!(names.iter().all(|name| line[name].is_string()), "{line}");
        }
        let is_metrics = |line: &&Value| line["event"] == "metrics listening";
        let metrics = lines.iter().find(is_metrics).expect("it is logged");
        assert_eq!(metrics["component"], component);
        assert!(metrics["url"].as_str().is_some_and(|url| url.starts_with("http://127")));
    }
}

/// A reload applies both settings, and names them as changed.
#[test]
fn reloads() {
    for (component, line) in PROGRAMS {
        let scratch = Scratch::new();
        scratch.write("larder.toml", format!("[{component}]\nlog_level = 'error'\n"));
        let mut program = start(&scratch, line);
        until("it runs", || {
            let runs = scratch.run("ctl version --socket ctl").code == Some(0);
            (runs && (component != "annotate" || program.has_thread("reopen"))).then_some(())
        });
        scratch.write("larder.toml", format!("[{component}]\nlog_format = 'json'\n"));
        program.signal("-HUP");
        let line = program.wait_for("");
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        assert_eq!(line["event"], "settings reloaded");
        assert_eq!((&line["level"], &line["component"]), (&"info".into(), &component.into()));
        assert_eq!(line["changed"], "log-level,log-format");
        end(&scratch, program);
    }
}

/// An invalid level or format is rejected with the valid ones.
#[test]
fn wrong_words_are_refused() {
    for (_, line) in PROGRAMS {
        let run = |words: &str| -> Run { Scratch::new().run(&format!("{line} {words}")) };
        run("--log-level loud").refused(&["--log-level", "debug"]);
        run("--log-format xml").refused(&["--log-format", "json"]);
    }
}
