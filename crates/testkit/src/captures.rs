//! Paths of capture files, for the tests of every crate.
//!
//! The repository has recordings of its own, so these tests run on any machine. Tests also read the
//! public captures in `../shared/data/pcap` if that folder exists. `LARDER_SHARED_DATA` names
//! another folder, whose `pcap` they read instead.

use std::path::{Path, PathBuf};

use crate::skip::skip;

/// The folder of the repository's recordings.
pub fn recorded_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures")
}

/// The folder of public captures, logs and traces; it may not exist.
pub fn public_folder() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    std::env::var_os("LARDER_SHARED_DATA").map_or(beside, PathBuf::from)
}

/// The folder of public logs and traces; prints SKIP if there is none.
pub fn public_traces(test: &str) -> Option<PathBuf> {
    let traces = public_folder().join("traces");
    if traces.is_dir() {
        return Some(traces);
    }
    skip(test, "no shared/data beside the repository");
    None
}

/// The repository's recordings, in the order of their names.
pub fn recorded() -> Vec<PathBuf> {
    let found = captures_in(&recorded_folder());
    assert!(!found.is_empty(), "the recordings are part of the repository");
    found
}

/// The public captures, in the order of their names; empty if the folder does not exist.
pub fn public() -> Vec<PathBuf> {
    captures_in(&public_folder().join("pcap"))
}

/// The repository's recordings, then the public captures.
pub fn all() -> Vec<PathBuf> {
    [recorded(), public()].concat()
}

fn captures_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder that can be read").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "pcap" || kind == "pcapng"))
        .collect();
    paths.sort();
    paths
}
