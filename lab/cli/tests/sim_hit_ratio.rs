//! `larder-lab sim hit-ratio` as a person runs it: what is printed where, what is written, how it ends.

mod common;

use common::{Run, Scratch};

/// A trace small enough to be replayed by hand: with room for two, FIFO and LRU hit at the places marked.
///
/// ```text
/// key    1  2  1  3  1  2  4  4
/// fifo         ^           ^     3 replaces 1, 1 replaces 2, 2 replaces 3, 4 replaces 1
/// lru          ^     ^        ^  3 replaces 2, 2 replaces 3, 4 replaces 1
/// ```
const KEYS: &str = "1\n2\n1\n3\n1\n2\n4\n4\n";

/// The CSV with its last column, a time, cut off.
fn without_times(csv: &str) -> String {
    csv.lines()
        .map(|line| line.rsplit_once(',').map_or(line, |cut| cut.0).to_owned() + "\n")
        .collect()
}

/// Rows are policies by capacities in the order asked for, in exactly the promised columns, and right.
#[test]
fn csv_is_golden() {
    let scratch = Scratch::new();
    scratch.write("small.keys", KEYS);
    let line = "sim hit-ratio --trace small.keys --trace-format keys --policy lru,fifo,belady \
                --capacity 2,50%,100% --format csv";
    let run = scratch.run(line);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    assert!(run.out.starts_with("trace,policy,capacity,requests,hits,hit_ratio,byte_hit_ratio,"));
    assert_eq!(
        without_times(&run.out),
        "trace,policy,capacity,requests,hits,hit_ratio,byte_hit_ratio,miss_reduction_vs_fifo\n\
         small.keys,lru,2,8,3,0.375000,0.375000,0.166667\n\
         small.keys,lru,4,8,4,0.500000,0.500000,0.000000\n\
         small.keys,fifo,2,8,2,0.250000,0.250000,0.000000\n\
         small.keys,fifo,4,8,4,0.500000,0.500000,0.000000\n\
         small.keys,belady,2,8,4,0.500000,0.500000,0.333333\n\
         small.keys,belady,4,8,4,0.500000,0.500000,0.000000\n"
    );
}

/// Sizes count where capacities are bytes; objects that no cache of the size can hold are mentioned.
#[test]
fn bytes_are_counted() {
    let scratch = Scratch::new();
    // time id size
    scratch.write("web.trace", "0 1 10\n1 2 90\n2 1 10\n3 3 500\n4 1 10\n5 2 90\n");
    let run = scratch.run(
        "sim hit-ratio --trace web.trace --trace-format adaptsize --policy fifo --by bytes \
         --capacity 100,50% --format csv",
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(
        without_times(&run.out).lines().skip(1).collect::<Vec<_>>(),
        [
            "web.trace,fifo,100,6,3,0.500000,0.154930,0.000000",
            "web.trace,fifo,300,6,3,0.500000,0.154930,0.000000"
        ]
    );
    assert!(run.err.contains("objects larger than a cache passed it by"), "{}", run.err);
}

/// A directory gets the CSV that is printed, all there is to know as JSON, and a figure a trace.
#[test]
fn a_directory_is_filled() {
    let scratch = Scratch::new();
    let line = "sim hit-ratio --trace zipf:0.9:1000:20000 dns:3:20000 --policy all --capacity 5%,20% \
                --cores 2 --format csv -o out/curves";
    let run = scratch.run(line);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    let read = |name: &str| std::fs::read_to_string(scratch.path("out/curves").join(name)).unwrap();
    assert_eq!(read("hit-ratio.csv"), run.out);
    for name in ["hit-ratio-zipf-0.9-1000-20000.svg", "hit-ratio-dns-3-20000.svg"] {
        let svg = read(name);
        assert!(svg.contains("<svg") && svg.contains("partitioned") && svg.contains("belady"));
    }
    let json = read("results.json");
    assert!(json.contains("\"trace\": \"dns:3:20000\"") && json.contains("\"bypassed\": 0"));
    // No policy passes the bound.
    let hits = |line: &str| line.split(',').nth(4).unwrap().parse::<u64>().unwrap();
    let rows: Vec<&str> = run.out.lines().skip(1).collect();
    let key =
        |line: &str| line.split(',').step_by(2).take(2).map(str::to_owned).collect::<Vec<_>>();
    for row in &rows {
        let bound = rows.iter().find(|other| other.contains(",belady,") && key(other) == key(row));
        assert!(hits(row) <= hits(bound.unwrap()), "{row}");
    }
}

/// Damage is told with its place and makes the exit code 1; the sound records count.
#[test]
fn damage_is_reported() {
    let scratch = Scratch::new();
    scratch.write("odd.trace", "0 1 10\n1 2\n2 5 big\n3 1 10\n");
    let run = scratch
        .run("sim hit-ratio --trace odd.trace --trace-format adaptsize --policy lru --capacity 1");
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.err.contains("odd.trace: 2 records could not be read"), "{}", run.err);
    assert!(run.err.contains("line 2"), "{}", run.err);
    assert!(run.out.starts_with("odd.trace: 2 requests, 1 different keys\n"), "{}", run.out);
}

/// What is wrong is said with what to do, at once, and nothing is printed as a result.
#[test]
fn mistakes_are_explained() {
    let scratch = Scratch::new();
    scratch.write("empty.keys", "");
    let run = |rest: &str| scratch.run(&format!("sim hit-ratio {rest}"));
    run("").refused(&["--trace"]);
    run("--trace no.such --trace-format keys").refused(&["no.such", "check the path"]);
    run("--trace zipf:0.9 --policy lru,s3fifo").refused(&["did you mean 's3-fifo'?"]);
    run("--trace zipf:0.9 --policy ,").refused(&["--policy", "empty"]);
    run("--trace zipf:0.9 --capacity 1GiB").refused(&["--by bytes"]);
    run("--trace zipf:0.9 --capacity 0%").refused(&["--capacity 0%"]);
    run("--trace zipf:0.9 --sample 7").refused(&["--sample 7", "auto"]);
    run("--trace zipf:0.9 --fill --no-fill").refused(&["exclude each other"]);
    run("--trace empty.keys --trace-format keys").refused(&["empty.keys", "0 requests"]);
    run("--trace zipf:0.9:100:1000 --policy belady --by bytes")
        .refused(&["belady", "leave it out of --policy"]);
    run("--trace zipf:0.9:100:1000 --policy lru --capacity 2000000000")
        .refused(&["lru", "1073741824"]);
}

/// One bad trace among several does not take the others' results with it.
#[test]
fn other_traces_are_still_replayed() {
    let scratch = Scratch::new();
    scratch.write("empty.keys", "");
    scratch.write("small.keys", KEYS);
    let run = scratch.run(
        "sim hit-ratio --trace empty.keys small.keys --trace-format keys --policy lru --capacity 2 \
         --format csv",
    );
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.out.contains("small.keys,lru,2,8,3,"), "{}", run.out);
}

/// A pipe that has to be read once only is, and a sample has its error beside it.
#[test]
fn pipes_and_samples() {
    let scratch = Scratch::new();
    let keys = scratch.write("keys", KEYS);
    let mut command = scratch.lab();
    let line =
        "sim hit-ratio --trace - --trace-format keys --policy lru --capacity 50% --format csv";
    command.args(line.split_whitespace()).stdin(std::fs::File::open(keys).unwrap());
    let run = Run::of(&mut command);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.out.contains("-,lru,2,8,3,"), "{}", run.out);
    let run = scratch.run("sim hit-ratio --trace zipf:0.8:20000:100000 --sample 20% --capacity 5%");
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.out.contains("a sample of 20 % of the keys"), "{}", run.out);
    assert!(run.out.contains("+- (95 %)"), "{}", run.out);
    assert!(run.err.contains("is coarse"), "25 entries a miniature: {}", run.err);
}
