//! Runs the built program in an empty directory with an empty environment, so that no file or
//! variable of the machine decides a test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed at the end of a test.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new empty directory.
    pub fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("the scratch directory can be made");
        Scratch(path)
    }

    /// Path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in it, with the directories it needs.
    #[allow(dead_code)]
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(&path, content).expect("written");
        path
    }

    /// The program, to be run in it without input.
    pub fn larder(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.current_dir(&self.0).env_clear().stdin(Stdio::null());
        command
    }

    /// Runs the program with `line`, split at spaces.
    pub fn run(&self, line: &str) -> Run {
        Run::of(self.larder().args(line.split_whitespace()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A finished run.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    /// Runs a command to its end.
    pub fn of(command: &mut Command) -> Run {
        let Output { status, stdout, stderr } = command.output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Run { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    /// Asserts a usage failure: exit 2, nothing on standard output, each text on standard error.
    #[allow(dead_code)]
    pub fn refused(&self, texts: &[&str]) {
        assert_eq!(self.code, Some(2), "{self:?}");
        assert_eq!(self.out, "", "results only on standard output");
        for text in texts {
            assert!(self.err.contains(text), "'{text}' is missing from\n{}", self.err);
        }
    }
}
