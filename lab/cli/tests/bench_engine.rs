//! `larder-lab bench engine`, tiny: its rows, those of other caches, and what it says when they fail.

mod common;

use common::Scratch;

const TINY: &str = "bench engine --entries 2000 --operations 1000 --rounds 1 --threads 2";

/// Alone it prints a row for each work and number of threads, and says how to build the other caches.
#[test]
fn alone_it_measures_larder_and_the_limit() {
    let run = Scratch::new().run(TINY);
    assert_eq!(run.code, Some(0), "{run:?}");
    for work in ["get hit, uniform, dependent", "get miss", "put, full table", "apply a log record"]
    {
        assert!(run.out.lines().any(|line| line.starts_with(work)), "{work}: {run:?}");
    }
    assert!(run.out.contains("limit: "), "{run:?}");
    assert!(run.err.contains("cargo build --release --manifest-path bench/Cargo.toml"), "{run:?}");
}

/// Rows that another program prints stand among larder's; lines that are none go to standard error; the
/// program is told the sizes.
#[cfg(unix)]
#[test]
fn rows_of_other_caches_are_merged() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let row = r#"{"work":"get","threads":1,"larder_ns":1,"peer":"other","peer_ns":2,"ratio":0.5,"runs":3}"#;
    let script = format!("#!/bin/sh\necho \"asked: $*\"\necho '{row}'\n");
    let program = scratch.write("peers", script);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let run = scratch.run(&format!("{TINY} --format json --peers ./peers"));
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.out.lines().all(|line| line.starts_with('{')), "{run:?}");
    for field in ["\"peer\":\"other\"", "\"peer_ns\":2"] {
        assert!(run.out.contains(field), "{field}: {run:?}");
    }
    assert!(run.err.contains("asked: --entries 2000 --operations 1000 --rounds 1"), "{run:?}");

    scratch.write("peers", "#!/bin/sh\nexit 3\n");
    let run = scratch.run(&format!("{TINY} --peers ./peers"));
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.err.contains("failed") && run.err.contains("cargo build"), "{run:?}");
}

/// A program that is not there is refused before anything is measured.
#[test]
fn a_missing_program_is_refused() {
    let run = Scratch::new().run(&format!("{TINY} --peers nowhere"));
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.err.contains("nowhere: there is no such program"), "{run:?}");
}
