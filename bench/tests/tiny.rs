//! The programs run tiny, so that they do not rot.

use std::process::Command;

use larder_bench::row::Row;

/// Every contestant does every work on one thread and on two with right answers (the program fails
/// otherwise), and what it prints are rows that read back.
#[test]
fn every_contestant_does_every_work() {
    let output = Command::new(env!("CARGO_BIN_EXE_larder-peers"))
        .args(["--tiny", "--threads", "1,2"])
        .output()
        .expect("the program of this workspace starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("rows are text");
    let rows: Vec<Row> =
        text.lines().map(|line| Row::from_json(line).unwrap_or_else(|| panic!("{line}"))).collect();
    for name in ["moka", "quick_cache", "segcache", "lru, 64 locks", "dashmap", "left-right"] {
        let figures = rows.iter().filter_map(|row| row.peer.as_ref()).filter(|p| p.name == name);
        assert!(figures.clone().count() >= 14, "{name}");
        assert!(figures.clone().all(|peer| peer.figure.value.is_finite()), "{name}");
    }
    assert!(rows.iter().all(|row| row.larder.value.is_finite()));
}

/// Flags that nobody knows are refused with a sentence.
#[test]
fn wrong_flags_are_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_larder-peers"))
        .args(["--only", "nobody", "--tiny"])
        .output()
        .expect("the program of this workspace starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no contestant is called 'nobody'"));
}

/// Contestants that are named run next to larder, the others do not; one wrong name among them is refused.
#[test]
fn named_contestants_run() {
    let run = |only: &str| {
        let arguments = ["--only", only, "--tiny", "--works", "get miss", "--threads", "1"];
        Command::new(env!("CARGO_BIN_EXE_larder-peers"))
            .args(arguments)
            .output()
            .expect("the program of this workspace starts")
    };
    let output = run("larder, Map;dashmap");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("rows are text");
    let names: Vec<String> = text
        .lines()
        .map(|line| Row::from_json(line).and_then(|row| row.peer).expect(line).name)
        .collect();
    assert_eq!(names, ["larder, Map", "dashmap"]);
    let output = run("dashmap;nobody");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no contestant is called 'nobody'"));
}

/// The programs that measure something else than caches run tiny too.
#[test]
fn the_other_programs_run() {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().expect("the program starts");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {err}");
        String::from_utf8(output.stdout).expect("text")
    };
    let tiny = ["--rounds", "1", "--entries", "2000", "--operations", "1000"];
    let rows = run(env!("CARGO_BIN_EXE_larder-ablate"), &tiny);
    assert!(rows.lines().count() > 10 && rows.lines().all(|line| Row::from_json(line).is_some()));
    let rows = run(env!("CARGO_BIN_EXE_larder-remote"), &tiny);
    assert!(rows.lines().all(|line| Row::from_json(line).is_some() || line.starts_with("SKIP ")));
    let table = run(env!("CARGO_BIN_EXE_larder-rings"), &["--rounds", "1", "--items", "10000"]);
    assert!(table.lines().all(|line| line.starts_with('|')) && table.lines().count() == 2 + 36);
}
