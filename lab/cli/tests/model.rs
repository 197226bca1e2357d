//! `larder-lab model`, as a person runs it.

mod common;

use common::{Scratch, is_refused};

/// The fields of CSV, line by line, header apart.
fn rows(out: &str) -> (Vec<&str>, Vec<Vec<&str>>) {
    let mut lines = out.lines().map(|line| line.split(',').collect());
    (lines.next().expect("a header"), lines.collect())
}

/// The memo's example through the whole program: 76 % of the time on hits at 170,591 and 60,138.
#[test]
fn the_example_of_the_memo() {
    let run = Scratch::new().run("model --q1 170591 --q2 60138 --format csv");
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    let (header, rows) = rows(&run.out);
    let column = |name: &str| header.iter().position(|column| *column == name).expect("a column");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0][column("hit_ratio")], "0.900000");
    assert_eq!(&rows[0][column("time_on_hits")][..4], "0.76");
    assert_eq!(rows[0][column("trace")], "");
}

/// The guide's first example is what the program prints.
#[test]
fn the_guide_shows_real_output() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/model.md");
    let page = std::fs::read_to_string(path).expect("the page exists");
    let run = Scratch::new().run("model --q1 170591 --q2 60138");
    let shown = format!("$ larder-lab model --q1 170591 --q2 60138\n{}```\n", run.out);
    assert!(page.contains(&shown), "docs/guide/model.md does not show\n{shown}");
}

/// Without rates the table says whose it uses; with them it does not; the known error is always there.
#[test]
fn the_table_states_whose_numbers_it_uses() {
    let scratch = Scratch::new();
    let run = scratch.run("model");
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    assert!(
        run.out.contains("not yours") && run.out.contains("\nunbound on one core"),
        "{}",
        run.out
    );
    let given = scratch.run("model --q1 1M --q2 100k --hit-ratio 0.8,95% --external-queries 1.5");
    assert!(!given.out.contains("not yours"), "{}", given.out);
    for out in [&run.out, &given.out] {
        assert!(out.contains("measured servers answer 3 to 21 % fewer"), "{out}");
    }
    assert!(given.out.contains("80.00 %") && given.out.contains("95.00 %"));
}

/// The inverse of the memo: 0.26, 0.17 and 0.11 for 70, 60 and 50 % of the time, as text and as CSV.
#[test]
fn the_inverse_of_the_memo() {
    let scratch = Scratch::new();
    assert!(scratch.run("model").out.contains("0.26  0.17  0.11"));
    let run = scratch.run("model --wanted 70%,60%,50% --format csv");
    let (_, rows) = rows(&run.out);
    let ratios: Vec<&str> = rows.iter().map(|row| &row[7][..5]).collect();
    assert_eq!(ratios, ["0.259", "0.166", "0.111"]);
}

/// Size, hit ratio, time on hits and rate in one table, from a trace: numbers that can be counted by hand.
#[test]
fn a_trace_gives_the_hit_ratios() {
    let scratch = Scratch::new();
    // Two keys in turn, ten times each: a cache of one never hits, one of two misses each once.
    scratch.write("keys.txt", "a\nb\n".repeat(10));
    let line = "model --trace keys.txt --trace-format keys --cache-size 1,2 --policy lru \
                --q1 1000 --q2 200";
    let run = scratch.run(&format!("{line} --format csv"));
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{run:?}");
    let (_, rows) = rows(&run.out);
    assert_eq!(rows[0][..6], ["keys.txt", "lru", "1", "20", "0", "0.000000"]);
    assert_eq!(rows[0][9..11], ["0.000000", "200.000"]);
    // 18 ms on hits and 10 ms on misses for twenty queries.
    assert_eq!(rows[1][..6], ["keys.txt", "lru", "2", "20", "18", "0.900000"]);
    assert_eq!(rows[1][9..11], ["0.642857", "714.286"]);
    let table = scratch.run(line).out;
    let row = table.lines().find(|line| line.starts_with("lru") && line.contains("90.00 %"));
    assert!(row.expect("a row").contains("64.29 %"), "{table}");
    assert!(table.contains("keys.txt: 20 lookups"), "{table}");
}

/// What ends by its TTL misses, however large the cache is: the same keys with and without ends.
#[test]
fn ends_of_lives_count() {
    let scratch = Scratch::new();
    let trace = |ttl: &str| {
        let lines = (0..10).map(|second| format!("{second},1,1,get,{ttl}\n"));
        format!("time,key,size,op,ttl\n{}", lines.collect::<String>())
    };
    scratch.write("long.csv", trace("100"));
    scratch.write("short.csv", trace("2"));
    let hits = |name: &str| {
        let line = format!(
            "model --trace {name} --trace-format csv --cache-size 10 --policy lru --format csv"
        );
        let run = scratch.run(&line);
        let (_, rows) = rows(&run.out);
        assert_eq!(rows.len(), 1, "{run:?}");
        rows[0][4].to_owned()
    };
    assert_eq!(hits("long.csv"), "9");
    assert_eq!(hits("short.csv"), "5", "stored at 0, 2, 4, 6 and 8");
}

/// Slips are refused with what to write instead, before any trace is read.
#[test]
fn slips_are_refused() {
    let scratch = Scratch::new();
    for (line, expected) in [
        ("model --hit-ratio 90", "per cent are written 90%"),
        ("model --hit-ratio much", "write 0.9 or 90%"),
        ("model --hit-ratio 1.5", "between 0 and 1"),
        ("model --q1 100", "--q1 without --q2"),
        ("model --q2 100", "--q2 without --q1"),
        ("model --q1 0 --q2 0", "a number from 1"),
        ("model --q1 100 --q2 200", "Q1 is the rate at 100 % hits"),
        ("model --external-queries=-1", "external queries a miss"),
        ("model --wanted 100%", "never misses"),
        ("model --cache-size 10", "--cache-size needs --trace"),
        ("model --hit-ratio 0.9 --trace x", "give one of them"),
        ("model --trace no.lirs --cache-size 1", "no.lirs"),
        ("model --trace no.lirs --cache-size 0", "--cache-size 0: expected"),
        ("model --trace no.lirs --cache-size 1GiB", "--cache-size 1GiB"),
        ("model --trace no.lirs --cache-size ,", "the list is empty"),
        ("model --trace no.lirs --cache-size 0%", "expected a share"),
        ("model --trace no.lirs --policy lruu", "did you mean 'lru'"),
        ("model --trace zipf:x", "zipf"),
    ] {
        scratch.run(line).refused(&[expected]);
    }
}

/// A trace of which some cannot be read gives its numbers, says what was skipped, and exits with 1.
#[test]
fn damage_is_reported() {
    let scratch = Scratch::new();
    scratch.write("odd.lirs", "1\n1\nx\n1\n");
    let run = scratch.run("model --trace odd.lirs --trace-format lirs --cache-size 1 --format csv");
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(
        run.err.contains("odd.lirs: 1 record could not be read") && run.err.contains("line 3"),
        "{}",
        run.err
    );
    assert_eq!(run.out.lines().count(), 3, "a header and two policies: {}", run.out);
}

/// The experiment, tiny, with larder itself: the ends and a mix are measured, and the model stands beside them. One
/// asked for what is no whole percentage, or for what the experiment is to find, is told so.
#[test]
fn the_experiment_is_run() {
    const TINY: &str = "model --measure --measure-servers larder --measure-rounds 1 --measure-ms 200 --measure-hot 20 --quiet";
    let scratch = Scratch::new();
    for (words, expected) in [
        ("--hit-ratio 100%", "whole percentages from 1 to 99"),
        ("--q1 2 --q2 1", "--measure measures the value of --q1"),
        ("--measure-servers unbond", "unbound"),
    ] {
        let run = scratch.run(&format!("model --measure {words}"));
        assert_eq!(run.code, Some(2), "{run:?}");
        assert!(run.err.contains(expected), "{run:?}");
    }
    if !common::has_larder("the_experiment_is_run") {
        return;
    }
    let run = scratch.run(&format!("{TINY} --hit-ratio 50%,90% --format csv"));
    if is_refused("the_experiment_is_run", &run) {
        return;
    }
    if run.err.contains("measure longer") {
        // A machine so busy that hits cost more than misses has no figures, and says so.
        assert!(run.err.contains("cannot be"), "{run:?}");
        return;
    }
    assert_eq!(run.code, Some(0), "{run:?}");
    let (header, rows) = rows(&run.out);
    assert_eq!(rows.len(), 2, "{run:?}");
    for row in rows {
        assert_eq!((row.len(), row[0]), (header.len(), "larder"));
        let number = |name: &str| {
            let at = header.iter().position(|column| *column == name).expect("a column");
            row[at].parse::<f64>().expect("a number")
        };
        assert!(number("q1") > number("q2") && number("q2") > 0.0, "{row:?}");
        assert!((0.9..1.5).contains(&number("external_queries_per_miss")), "{row:?}");
        assert!((0.0..1.0).contains(&number("a_predicted")), "{row:?}");
    }
}
