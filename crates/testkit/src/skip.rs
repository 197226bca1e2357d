//! A test that cannot run on this machine prints a line. `.ci/skips` allows that line, or the run
//! fails.

use std::fmt::Display;
use std::io::Write;

/// Prints on the real standard error that a test does not run: the test runner hides the output of
/// tests that pass.
pub fn skip(test: &str, reason: impl Display) {
    let _ = std::io::stderr().write_all(format!("SKIP {test}: {reason}\n").as_bytes());
}

/// Whether a program is on the path; prints SKIP if not.
pub fn has(test: &str, program: &str) -> bool {
    let found = is_installed(program);
    if !found {
        skip(test, format_args!("{program} is not installed"));
    }
    found
}

/// Whether a program is on the path.
pub fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(program).is_file())
}
