//! `larder-lab sim sync` and `larder-lab sim lengths`, as a person or a script runs them.

mod common;

use common::Scratch;

const SMALL: &str = "--trace zipf:0.9:500:20000 --capacity 8/17 --period 100 --warm-up 5k";

/// The rows of a small stream, to the last digit, on any number of threads.
#[test]
fn rows_are_golden() {
    let line = format!("sim sync {SMALL} --policy lru,partitioned --format csv");
    let run = Scratch::new().run(&format!("{line} --threads 1"));
    assert_eq!(run.code, Some(0), "{}", run.err);
    let wanted = include_str!("../../../tests/sim/sync.csv");
    assert!(run.out == wanted, "{}", run.out);
    let again = Scratch::new().run(&format!("{line} --threads 3"));
    assert_eq!(again.out, run.out);
}

/// The table is for people, JSON is an array of the same rows, and modes can be chosen.
#[test]
fn forms_have_the_same_rows() {
    let scratch = Scratch::new();
    let table = scratch.run(&format!("sim sync {SMALL} --mode sharded,periodic --policy lru"));
    assert_eq!(table.out.lines().count(), 3, "{}", table.out);
    assert!(table.out.lines().nth(1).is_some_and(|line| line.starts_with("sharded   lru ")));
    let json = scratch.run(&format!("sim sync {SMALL} --mode sharded --policy lru --format json"));
    assert!(json.out.starts_with("[\n{") && json.out.contains("\"mode\":\"sharded\""));
    assert_eq!(json.out.matches("hit_ratio").count(), 1);
}

/// A share of names counts the trace's names first, a file is read like any other trace, and damage is told.
#[test]
fn files_are_replayed() {
    let scratch = Scratch::new();
    scratch.write("keys.txt", "a\nb\na\nc\na\nb\nd\na\n");
    let run = scratch.run(
        "sim sync --trace keys.txt --capacity 100% --sets 0 --mode synchronous --policy lru --format csv",
    );
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.out.contains("keys.txt,synchronous,lru,4,8,"), "{}", run.out);
    assert!(run.out.contains(",8,8,4,0.500000,"), "{}", run.out);
}

/// What makes no sense is refused with what would do.
#[test]
fn slips_are_explained() {
    let scratch = Scratch::new();
    for (line, word) in [
        ("--mode shard", "sharded"),
        ("--policy lruu", "partitioned"),
        ("--capacity 0", "10%"),
        ("--capacity ,", "empty"),
        ("--reports 2", "1/8"),
        ("--sets x", "12.5%"),
        ("--cores 0", "1"),
        ("--fill --no-fill", "exclude"),
        ("--trace nowhere.txt", "nowhere.txt"),
        ("--trace -", "--capacity"),
    ] {
        let run = scratch.run(&format!("sim sync {line}"));
        assert_eq!(run.code, Some(2), "{line}: {}", run.out);
        assert!(run.err.contains(word), "{line}: {}", run.err);
    }
}

/// Lengths are told on standard error, losses on standard output; damage ends with 1.
#[test]
fn lengths_are_reported() {
    let scratch = Scratch::new();
    let names: String =
        (0..300).map(|i| format!("{i},{}.example.com\n", "x".repeat(i % 60 + 1))).collect();
    scratch.write("names.csv", &names);
    let line =
        "sim lengths --names names.csv --requests 20k --policy lru --width 8,16 --memory 1/4";
    let run = scratch.run(&format!("{line} --format csv"));
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.err.contains("whole names"), "{}", run.err);
    assert_eq!(run.out.lines().count(), 1 + 2 * 4, "{}", run.out);
    assert!(run.out.starts_with("policy,memory_bytes,split,width,"));
    scratch.write("names.csv", format!("{names}7,\n"));
    let run = scratch.run(line);
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("line 301"), "{}", run.err);
    let run = scratch.run("sim lengths --names names.csv --alpha nan");
    assert_eq!(run.code, Some(2));
}
