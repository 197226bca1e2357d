//! Programs: run to their end, or running with their standard error read.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::wait::PATIENCE;

/// A finished run.
#[derive(Debug)]
pub struct Run {
    /// Its exit status; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Run {
    /// Runs a command to its end.
    pub fn of(command: &mut Command) -> Run {
        let Output { status, stdout, stderr } = command.output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Run { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    /// The output of a run that succeeded.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Asserts a usage error: exit 2, nothing on standard output, each text on standard error.
    #[track_caller]
    pub fn refused(&self, texts: &[&str]) {
        assert_eq!(self.code, Some(2), "{self:?}");
        assert_eq!(self.out, "", "results only on standard output");
        for text in texts {
            assert!(self.err.contains(text), "'{text}' is missing from\n{}", self.err);
        }
    }
}

/// The value of `key=value` in a log line; the value has no spaces.
#[track_caller]
pub fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let is_key = |word: &&str| word.strip_prefix(key).is_some_and(|rest| rest.starts_with('='));
    let word = line.split(' ').find(is_key).unwrap_or_else(|| panic!("no {key} in {line:?}"));
    &word[key.len() + 1..]
}

/// Sends a signal (`-TERM`) to a process.
pub fn signal(process: u32, signal: &str) {
    let killed = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(killed.expect("kill runs").success());
}

/// True if one of the process's threads has this name.
pub fn has_thread(process: u32, name: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("it lives");
    let comm = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks.flatten().any(|task| comm(task).is_ok_and(|comm| comm.trim() == name))
}

/// A running program, and its lines on standard error. Drop sends SIGTERM, and later kills it.
#[derive(Debug)]
pub struct Program {
    /// The process.
    pub child: Child,
    lines: Receiver<String>,
    /// The lines read so far.
    pub lines_read: Vec<String>,
}

impl Program {
    /// Starts it.
    pub fn start(command: &mut Command) -> Program {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
        let (say, lines) = channel();
        let pipe = BufReader::new(child.stderr.take().expect("piped"));
        thread::spawn(move || {
            for line in pipe.lines().map_while(Result::ok) {
                let _ = say.send(line);
            }
        });
        Program { child, lines, lines_read: Vec::new() }
    }

    /// The process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for another line with `text`.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
                Ok(line) => {
                    self.lines_read.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(_) => panic!("{text:?} was not said, but {:?}", self.lines_read),
            }
        }
    }

    /// Waits for any line; `None` if the program ends before.
    pub fn next_line(&mut self) -> Option<String> {
        let line = self.lines.recv_timeout(PATIENCE).ok()?;
        self.lines_read.push(line.clone());
        Some(line)
    }

    /// True if a line with `text` was read before.
    pub fn has_said(&self, text: &str) -> bool {
        self.lines_read.iter().any(|line| line.contains(text))
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Its status if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it can be asked")
    }

    /// True if one of its threads has this name.
    pub fn has_thread(&self, name: &str) -> bool {
        has_thread(self.id(), name)
    }

    /// Waits for the program to end; returns its exit status and all lines.
    pub fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().expect("it ends").code();
        self.lines_read.extend(self.lines.iter());
        (code, std::mem::take(&mut self.lines_read).join("\n"))
    }

    /// Sends SIGTERM, and waits for the program to end.
    pub fn stop(self) -> (Option<i32>, String) {
        self.signal("-TERM");
        self.end()
    }

    /// Kills the program, as a crash does.
    pub fn kill(&mut self) {
        // The program may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // On SIGTERM, programs with children end these too.
        let _ = Command::new("kill").args(["-TERM", &self.id().to_string()]).status();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.kill();
    }
}

/// The output of `tshark` for a capture: a line per packet with these fields, separated by tabs;
/// `None` if it is not installed.
pub fn tshark(capture: &Path, options: &[&str], fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(options).args(["-T", "fields"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.arg("-r").arg(capture).output().ok()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", capture.display());
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().map(str::to_owned).collect())
}
