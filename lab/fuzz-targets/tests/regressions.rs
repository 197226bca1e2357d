//! Inputs that once broke something, replayed without a fuzzer.

use std::path::{Path, PathBuf};

use larder_fuzz_targets::TARGETS;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions")
}

/// Every input of `fuzz/regressions/<target>/` keeps the properties of its target. A failure names
/// the file.
#[test]
fn findings_stay_fixed() {
    for (name, target) in TARGETS {
        let Ok(entries) = std::fs::read_dir(folder().join(name)) else { continue };
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.expect("a readable folder").path()).collect();
        paths.sort();
        for path in paths {
            let input = std::fs::read(&path).expect("a readable file");
            if std::panic::catch_unwind(|| target(&input)).is_err() {
                panic!("{} breaks its target again", path.display());
            }
        }
    }
}

/// Every folder of findings is some target's, and every target has a program for the fuzzer: a name
/// with a typing mistake is not replayed.
#[test]
fn names_agree() {
    let known = |name: &str| TARGETS.iter().any(|(target, _)| *target == name);
    for entry in std::fs::read_dir(folder()).expect("fuzz/regressions") {
        let entry = entry.expect("a readable folder");
        let name = entry.file_name().into_string().expect("a plain name");
        assert!(!entry.path().is_dir() || known(&name), "{name} is no target");
    }
    let manifest =
        std::fs::read_to_string(folder().join("../Cargo.toml")).expect("fuzz/Cargo.toml");
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} has no program");
    }
}

/// The recordings of `tests/captures` keep the properties of a capture and of a whole run: the
/// targets themselves are right about sound input.
#[test]
fn recordings_pass() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let mut count = 0;
    for entry in std::fs::read_dir(captures).expect("tests/captures") {
        let path = entry.expect("a readable folder").path();
        if path.extension().is_some_and(|extension| extension == "pcap") {
            let mut input = std::fs::read(&path).expect("a readable file");
            larder_fuzz_targets::capture(&input);
            input.push(count % 32);
            larder_fuzz_targets::pipeline(&input);
            count += 1;
        }
    }
    assert!(count > 0, "no recordings");
}
