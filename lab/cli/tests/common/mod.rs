//! Runs the built program in an empty directory with an empty environment, so that no file or
//! variable of the machine decides a test.

use std::ops::Deref;
use std::path::Path;
use std::process::Command;

pub use larder_testkit::process::Run;
use larder_testkit::skip::skip;

const PROGRAM: &str = env!("CARGO_BIN_EXE_larder-lab");

/// A directory that is removed at the end of a test.
pub struct Scratch(larder_testkit::scratch::Scratch);

impl Scratch {
    /// A new empty directory.
    pub fn new() -> Scratch {
        Scratch(larder_testkit::scratch::Scratch::within(env!("CARGO_TARGET_TMPDIR")))
    }

    /// The program, to be run in it without input.
    pub fn lab(&self) -> Command {
        self.command(PROGRAM)
    }

    /// Runs the program with `line`, split at spaces.
    #[allow(dead_code)]
    pub fn run(&self, line: &str) -> Run {
        Run::of(self.lab().args(line.split_whitespace()))
    }
}

impl Deref for Scratch {
    type Target = larder_testkit::scratch::Scratch;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Whether larder, which is measured, is built beside the program; says so where it is not. (`cargo
/// test --workspace` builds both.)
#[allow(dead_code)]
pub fn has_larder(test: &str) -> bool {
    let is_there = Path::new(PROGRAM).with_file_name("larder").is_file();
    if !is_there {
        skip(test, "larder is not built");
    }
    is_there
}

/// Whether the run was refused a network of its own; says so.
#[allow(dead_code)]
pub fn is_refused(test: &str, run: &Run) -> bool {
    let is_refused = run.code == Some(2) && run.err.contains("a network of its own");
    if is_refused {
        skip(test, "no network of its own");
    }
    is_refused
}
