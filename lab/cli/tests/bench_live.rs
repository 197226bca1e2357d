//! `larder-lab bench live`, tiny.

mod common;

use common::{Scratch, is_refused};

/// Every stage is measured for every size, with one ring, with two and with a small one, and every frame is accounted
/// for, as the run itself checks.
#[test]
fn stages_are_measured() {
    if !common::has_larder("stages_are_measured") {
        return;
    }
    let (both, small, large) = (&[60, 1500][..], &[60][..], &[1500][..]);
    let runs = [
        ("", both),
        ("--rings 2 --sizes 60", small),
        ("--ring 256KiB --rate 50000 --sizes 1500", large),
    ];
    for (more, sizes) in runs {
        let line = format!("bench live --rounds 1 --measured-ms 50 --format json {more}");
        let run = Scratch::new().run(&line);
        if is_refused("stages_are_measured", &run) {
            return;
        }
        assert_eq!(run.code, Some(0), "{run:?}");
        let rows: Vec<serde_json::Value> =
            run.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let found: Vec<(u64, &str)> = rows
            .iter()
            .map(|row| (row["size"].as_u64().unwrap_or(0), row["stage"].as_str().unwrap_or("")))
            .collect();
        let stages = ["walk", "source", "decode", "annotate", "store", "page"];
        let of_size = |&size: &u64| stages.map(|stage| (size, stage));
        let expected: Vec<(u64, &str)> = sizes.iter().flat_map(of_size).collect();
        assert_eq!(found, expected);
        for row in &rows {
            let number = |name: &str| row[name].as_u64().expect("a number");
            assert!(number("read") > 0, "{row}");
            assert_eq!(number("fetched") > 0, row["stage"] == "page", "{row}");
            assert_eq!(number("sent"), number("read") + number("dropped"), "{row}");
        }
    }
}

/// The table has a line for each stage; sizes that no frame has are refused with those that may be.
#[test]
fn tables_and_errors() {
    let run = Scratch::new().run("bench live --rounds 1 --measured-ms 10 --sizes 60");
    if is_refused("tables_and_errors", &run) {
        return;
    }
    assert_eq!((run.code, run.out.lines().count()), (Some(0), 7), "{run:?}");
    for sizes in ["59", "1515", "x", "60,,70"] {
        let run = Scratch::new().run(&format!("bench live --sizes {sizes}"));
        assert!(run.code == Some(2) && run.err.contains("60 to 1514"), "{run:?}");
    }
}
