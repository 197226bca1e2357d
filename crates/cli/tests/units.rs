//! The units of `packaging/`, as systemd reads them.
#![cfg(target_os = "linux")]

mod common;

use std::process::Command;

use common::Scratch;
use larder_testkit::skip::skip;

/// systemd accepts the units; the test replaces their program with the built one.
#[test]
fn units_are_verified() {
    let scratch = Scratch::new();
    let mut paths = Vec::new();
    for name in [
        "larder-dns.service",
        "larder-dns.socket",
        "larder-http.service",
        "larder-annotate@.service",
    ] {
        let from = format!("{}/../../packaging/{name}", env!("CARGO_MANIFEST_DIR"));
        let unit = std::fs::read_to_string(from).expect("a unit");
        let unit = unit.replace("/usr/local/bin/larder", env!("CARGO_BIN_EXE_larder"));
        std::fs::write(scratch.path(name), unit).expect("written");
        paths.push(scratch.path(name));
    }
    let verify = ["verify", "--man=no", "--recursive-errors=no"];
    let Ok(said) = Command::new("systemd-analyze").args(verify).args(paths).output() else {
        return skip("units_are_verified", "systemd-analyze is not installed");
    };
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && !text.contains("larder-"), "{text}");
}
