//! `larder bench dns`, tiny: the limits, a server that is not there, and wrong words.

mod common;

use common::Scratch;

const TINY: &str = "bench dns --hot 20 --rounds 1 --measured-ms 20 --no-waiting";

/// Whether the run was refused a network of its own; says so.
fn is_refused(test: &str, run: &common::Run) -> bool {
    let refused = run.code == Some(2) && run.err.contains("a network of its own");
    if refused {
        eprintln!("SKIP {test}: no network of its own");
    }
    refused
}

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

    let run = Scratch::new().run(&format!("{TINY} {work} --format markdown"));
    assert_eq!(run.code, Some(0), "{run:?}");
    for part in ["### hits: 100 % hits over 20 names", "| (echo)", "| (relay)", "* k/CPU s: "] {
        assert!(run.out.contains(part), "{part}: {run:?}");
    }
}

/// The program itself, started as a recursor, finds all names by root, top level and domains, with no more questions than it
/// takes: one, and another for each domain that is new.
#[test]
fn names_are_found_from_the_root() {
    let work = "--hierarchy --servers larder --work 50 --format json";
    let run = Scratch::new().run(&format!("{TINY} {work}"));
    if is_refused("names_are_found_from_the_root", &run) {
        return;
    }
    assert_eq!(run.code, Some(0), "{run:?}");
    let row = run.out.lines().find(|line| line.contains("\"server\":\"larder\"")).expect("a row");
    let row: serde_json::Value = serde_json::from_str(row).expect("JSON");
    assert_eq!((&row["wrong"], &row["lost"]), (&0.into(), &0.into()), "{row}");
    let upstream = row["upstream"].as_f64().expect("a figure");
    assert!((1.0..2.5).contains(&upstream), "{row}");
}

/// Words that mean nothing are refused before anything is started, with what there is.
#[test]
fn wrong_words_are_refused() {
    for (words, says) in [("--work hit", "a percentage"), ("--servers unbond", "unbound")] {
        let run = Scratch::new().run(&format!("{TINY} {words}"));
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.err.contains(says), "{run:?}");
    }
}
