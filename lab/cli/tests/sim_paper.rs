//! `larder-lab sim paper --quick`: the whole chain, small.

mod common;

use std::collections::BTreeMap;

use common::Scratch;

fn files(scratch: &Scratch, folder: &str) -> BTreeMap<String, String> {
    let folder = std::fs::read_dir(scratch.path(folder)).expect("it was made");
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).expect("text"))
    };
    folder.map(file).collect()
}

/// With the engine: a page, rows and pictures of everything, nothing on standard output.
#[test]
fn everything_is_written() {
    let scratch = Scratch::new();
    scratch.write("names.txt", "example.com\nwww.example.com\nexample.net\na.b.example.org\n");
    let run = scratch.run("sim paper -o new/paper --quick --names names.txt");
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.out.is_empty() && run.err.contains("report.html"), "{}", run.err);
    let files = files(&scratch, "new/paper");
    for name in
        ["report.md", "throughput-70.svg", "insert-latency-1.svg", "hit-ratio.csv", "table-1.csv"]
    {
        assert!(files.contains_key(name), "{name}");
    }
    assert!(files["report.md"].contains("names.txt, 4 names"));
    assert!(files["throughput.csv"].lines().count() > 10);
}

/// Without the engine: the same bytes each time, whatever the number of threads.
#[test]
fn what_is_simulated_is_the_same_each_time() {
    let scratch = Scratch::new();
    for (folder, threads) in [("a", 1), ("b", 3)] {
        let run =
            scratch.run(&format!("sim paper -o {folder} --quick --no-engine --threads {threads}"));
        assert_eq!(run.code, Some(0), "{}", run.err);
    }
    let files = [files(&scratch, "a"), files(&scratch, "b")];
    assert!(files[0] == files[1] && files[0].len() > 20);
    assert!(files[0]["report.html"].contains("Left out in this run."));
}

/// A directory that cannot be made, and names that are not there, end with 2 and a sentence.
#[test]
fn slips_are_explained() {
    let scratch = Scratch::new();
    scratch.write("file", "x");
    for (line, word) in [
        ("-o file/paper --quick --no-engine", "directory"),
        ("-o a --quick --no-engine --names nowhere", "nowhere"),
        ("--quick", "--output"),
    ] {
        let run = scratch.run(&format!("sim paper {line}"));
        assert_eq!(run.code, Some(2), "{line}");
        assert!(run.err.contains(word), "{line}: {}", run.err);
    }
}
