//! `larder-lab bench dns`, tiny: the limits, a server that is not there, and wrong words.

mod common;

use common::{Scratch, is_refused};

const FEW: &str = "bench dns --hot 20 --rounds 1 --no-waiting";
const TINY: &str = "bench dns --hot 20 --rounds 1 --no-waiting --measured-ms 20";

/// A server that does not start is left out with a line that says why; the limits are measured all the same.
#[test]
fn limits_are_printed() {
    let work = "--servers larder --larder /bin/false --work hits,90";
    let run = Scratch::new().run(&format!("{TINY} {work} --format json"));
    if is_refused("limits_are_printed", &run) {
        return;
    }
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.err.contains("SKIP larder: it ended"), "{run:?}");
    assert_eq!(run.out.lines().count(), 4, "{run:?}");
    assert!(run.out.lines().all(|line| line.contains("\"is_limit\":true")), "{run:?}");

    // A relative path is that of who asks, wherever the server is started.
    let scratch = Scratch::new();
    std::os::unix::fs::symlink("/bin/false", scratch.path("own")).expect("a link");
    let work = work.replace("/bin/false", "./own");
    let run = scratch.run(&format!("{TINY} {work} --format markdown"));
    assert!(run.err.contains("SKIP larder: it ended"), "{run:?}");
    assert_eq!(run.code, Some(0), "{run:?}");
    for part in ["### hits: 100 % hits over 20 names", "| (echo)", "| (relay)", "* k/CPU s: "] {
        assert!(run.out.contains(part), "{part}: {run:?}");
    }
}

/// A program that is not there is a mistake, not a server that is left out.
#[test]
fn a_program_must_be_there() {
    for work in ["bench dns", "bench http"] {
        let run = Scratch::new().run(&format!("{work} --larder ./none"));
        run.refused(&["--larder \"./none\": no such file"]);
    }
}

/// Measures the program itself, started as a recursor, and gives how many questions a miss took; `None` where it may
/// not.
fn queries_from_the_root(test: &str, more: &str) -> Option<f64> {
    if !common::has_larder(test) {
        return None;
    }
    let work = "--hierarchy --servers larder --work 50 --format json";
    let run = Scratch::new().run(&format!("{FEW} {work} {more}"));
    if is_refused(test, &run) {
        return None;
    }
    assert_eq!(run.code, Some(0), "{run:?}");
    let row = run.out.lines().find(|line| line.contains("\"server\":\"larder\"")).expect("a row");
    let row: serde_json::Value = serde_json::from_str(row).expect("JSON");
    assert_eq!((&row["wrong"], &row["lost"]), (&0.into(), &0.into()), "{row}");
    assert!(row["answers_per_s"].as_f64() > Some(0.0), "{row}");
    Some(row["upstream"].as_f64().expect("a figure"))
}

/// The program itself, started as a recursor, finds all names by root, top level and domains, with no more questions
/// than it takes: one, and another for each domain that is new.
#[test]
fn names_are_found_from_the_root() {
    let test = "names_are_found_from_the_root";
    if let Some(upstream) = queries_from_the_root(test, "--measured-ms 300") {
        assert!((1.0..2.5).contains(&upstream), "{upstream}");
    }
}

/// In signed zones it also says of every answer that it was validated, which takes a question more for each domain's
/// key.
#[cfg(feature = "signed")]
#[test]
fn names_are_validated_from_the_root() {
    let test = "names_are_validated_from_the_root";
    if let Some(upstream) = queries_from_the_root(test, "--measured-ms 300 --dnssec") {
        // A fast machine asks for names of known domains most of the time, which takes one question.
        assert!((1.0..8.0).contains(&upstream), "{upstream}");
    }
}

/// Without zones there is nothing to sign, and where the build cannot sign it says what can.
#[test]
fn signing_needs_zones_and_keys() {
    let run = Scratch::new().run(&format!("{TINY} --dnssec"));
    assert!(run.code == Some(2) && run.err.contains("--hierarchy"), "{run:?}");
    if cfg!(not(feature = "signed")) {
        let run = Scratch::new().run(&format!("{TINY} --hierarchy --dnssec"));
        assert!(run.code == Some(2) && run.err.contains("--features signed"), "{run:?}");
    }
}

/// Words that mean nothing are refused before anything is started, with what there is.
#[test]
fn wrong_words_are_refused() {
    for (words, expected) in [("--work hit", "a percentage"), ("--servers unbond", "unbound")] {
        let run = Scratch::new().run(&format!("{TINY} {words}"));
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.err.contains(expected), "{run:?}");
    }
}
