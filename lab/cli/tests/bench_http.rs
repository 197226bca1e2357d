//! `larder-lab bench http`, tiny: the limits, a server that is not there, and wrong words.

mod common;

use common::{Scratch, is_refused};

const TINY: &str = "bench http --rounds 1 --measured-ms 20 --connections 4";

/// A server that does not start is left out with a line that says why; the limits are measured all the same.
#[test]
fn limits_are_printed() {
    let work = "--servers larder --larder /bin/false --work hits --sizes 1KB,1MB";
    let run = Scratch::new().run(&format!("{TINY} {work} --format json"));
    if is_refused("limits_are_printed", &run) {
        return;
    }
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.err.contains("SKIP larder: it ended"), "{run:?}");
    assert_eq!(run.out.lines().count(), 3, "{run:?}");
    for line in run.out.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!((&line["is_limit"], &line["wrong"]), (&true.into(), &0.into()), "{line}");
        assert!(line["requests_per_s"].as_f64() > Some(0.0), "{line}");
    }

    let run = Scratch::new().run(&format!("{TINY} {work} --format markdown"));
    assert_eq!(run.code, Some(0), "{run:?}");
    for part in ["### hits 1 KB: 4 connections", "| (send)", "| (sendfile)", "* CPU s/GB: "] {
        assert!(run.out.contains(part), "{part}: {run:?}");
    }
}

/// Words that mean nothing are refused before anything is started, with what there is.
#[test]
fn wrong_words_are_refused() {
    for (words, expected) in
        [("--work hit", "through"), ("--servers ngnix", "nginx"), ("--sizes 1XB", "such as 10KB")]
    {
        let run = Scratch::new().run(&format!("{TINY} {words}"));
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.err.contains(expected), "{run:?}");
    }
}
