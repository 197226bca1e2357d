//! `larder dns` and `larder http` as a child process of a test: its log lines, queries to it, its
//! end.
//!
//! Tests wait for log lines and responses, and fail after one minute.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::process::Command;

use larder_testkit::dns::exchange;
use larder_testkit::process::{Program, value};

use super::Scratch;

/// A running server; killed when dropped.
pub struct Server {
    program: Option<Program>,
    /// Its first address.
    pub address: SocketAddr,
}

impl Server {
    /// Starts a server with two cores at a port of the loopback.
    pub fn start(scratch: &Scratch, more: impl IntoIterator<Item: AsRef<OsStr>>) -> Server {
        let mut command = scratch.larder();
        command.args(["dns", "--listen", "127.0.0.1:0", "--cores", "2"]).args(more);
        Server::spawn(&mut command)
    }

    /// A program that serves at an address.
    #[allow(dead_code)]
    pub fn of(program: Program, address: SocketAddr) -> Server {
        Server { program: Some(program), address }
    }

    /// Starts a command that becomes a server, and waits for the log line with its addresses.
    pub fn spawn(command: &mut Command) -> Server {
        let mut program = Program::start(command);
        let line = program.wait_for(": listening address=");
        let first = value(&line, "address").split(',').next().expect("split gives one");
        Server { program: Some(program), address: first.parse().expect("an address") }
    }

    /// Queries the address of `<label>.example`.
    pub fn query(&self, label: &str) -> Vec<u8> {
        exchange(self.address, &query(label))
    }

    /// The last byte of that address.
    pub fn last_byte(&self, label: &str) -> u8 {
        let answer = self.query(label);
        assert_eq!((answer[3] & 15, answer[7]), (0, 1), "{answer:?}");
        *answer.last().expect("an answer is longer")
    }

    /// Waits for the end; returns the exit code and all log lines.
    pub fn end(mut self) -> (Option<i32>, String) {
        self.program.take().expect("it is there until its end").end()
    }

    /// Sends SIGTERM, and waits for the end.
    pub fn stop(self) -> (Option<i32>, String) {
        self.signal("-TERM");
        self.end()
    }
}

impl Deref for Server {
    type Target = Program;

    fn deref(&self) -> &Program {
        self.program.as_ref().expect("it is there until its end")
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Program {
        self.program.as_mut().expect("it is there until its end")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(program) = &mut self.program {
            program.kill();
        }
    }
}

/// A query for the A record of `<label>.example`.
pub fn query(label: &str) -> Vec<u8> {
    larder_testkit::dns::query(0x1234, format!("{label}.example"), larder_testkit::dns::A)
}
