//! A program that runs next to larder, with a time limit.
//!
//! It is in a process group of its own, with all programs that it starts: a signal to the group
//! ends them all. Its input and output are empty; of what it writes to standard error, the last line
//! is read. The caller polls, so a program that stays silent, or leaves its standard error to
//! another, holds up no thread.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

/// Bytes of the last line that are read, at most.
const LINE_BYTES_MAX: usize = 512;

/// A running program.
#[derive(Debug)]
pub struct Program {
    child: Child,
    errors: Option<ChildStderr>,
    /// The last line so far, and then the one that is not complete.
    last: Vec<u8>,
    partial: Vec<u8>,
}

impl Program {
    /// Starts a program: a path, or a name in `PATH`.
    pub fn start<A: AsRef<OsStr>>(program: &Path, arguments: &[A]) -> io::Result<Program> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let errors = child.stderr.take();
        if let Some(errors) = &errors {
            rustix::io::ioctl_fionbio(errors, true)?;
        }
        Ok(Program { child, errors, last: Vec::new(), partial: Vec::new() })
    }

    /// How it ended, if it has.
    pub fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        // In this order: what it wrote before its end is read.
        let status = self.child.try_wait()?;
        self.read_errors();
        Ok(status)
    }

    fn read_errors(&mut self) {
        let mut bytes = [0; 4096];
        // A pipe has no more; a program that writes all the time is read again later.
        for _ in 0..16 {
            let Some(errors) = &mut self.errors else { return };
            let Ok(read) = errors.read(&mut bytes) else { return };
            if read == 0 {
                self.errors = None;
            }
            for byte in &bytes[..read] {
                if *byte != b'\n' {
                    if self.partial.len() < LINE_BYTES_MAX {
                        self.partial.push(*byte);
                    }
                } else if !self.partial.is_empty() {
                    self.last = std::mem::take(&mut self.partial);
                }
            }
        }
    }

    /// The last line that it wrote to standard error, or its beginning.
    pub fn last_line(&self) -> String {
        let line = if self.partial.is_empty() { &self.last } else { &self.partial };
        String::from_utf8_lossy(line).into_owned()
    }

    /// Asks the program, and all that it started, to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends the program, and all that it started, and waits for the end.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.child.wait()
    }

    fn signal(&self, signal: Signal) {
        // An error: they have ended.
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn end(program: &mut Program) -> ExitStatus {
        loop {
            if let Some(status) = program.poll().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn shell(script: &str) -> Program {
        Program::start(Path::new("sh"), &["-c", script, "sh", "one argument"]).unwrap()
    }

    /// Status and last line are those of the program, also if the line has no end, or there are more
    /// than a pipe holds.
    #[test]
    fn status_and_last_line() {
        for (script, code, line) in [
            ("exit 3", 3, ""),
            ("echo one >&2; echo \"$1\" >&2; echo >&2", 0, "one argument"),
            ("printf 'no end' >&2; exit 1", 1, "no end"),
            ("yes | head -c 300000 >&2; echo last >&2", 0, "last"),
            ("cat; echo out; printf 'caf\\351' >&2", 0, "caf\u{fffd}"),
        ] {
            let mut program = shell(script);
            assert_eq!(end(&mut program).code(), Some(code), "{script}");
            assert_eq!(program.last_line(), line);
        }
        let missing = Program::start(Path::new("/nowhere/program"), &["x"]).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    /// The programs that it started end with it, by a request and by force.
    #[test]
    fn all_of_the_group_end() {
        let folder = tempfile::tempdir().unwrap();
        for is_forced in [false, true] {
            let file = folder.path().join(format!("{is_forced}"));
            let trap = if is_forced { "trap '' TERM; " } else { "" };
            let script = format!(
                "{trap}sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait",
                file.display()
            );
            let mut program = shell(&script);
            while !file.exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let grandchild = std::fs::read_to_string(&file).unwrap();
            program.terminate();
            match is_forced {
                true => drop(program.kill().unwrap()),
                false => drop(end(&mut program)),
            }
            let path = format!("/proc/{}/stat", grandchild.trim());
            // It is gone, or waits for the system to collect it.
            let is_over =
                || std::fs::read_to_string(&path).map_or(true, |stat| stat.contains(") Z "));
            larder_testkit::wait::until_so("the grandchild ends", is_over);
        }
    }
}
