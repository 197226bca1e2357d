//! `larder dns` and `larder http` as a child of a test: what it says, how it is asked, how it ends.
//!
//! Tests wait for what it says or answers, and fail after a minute without.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::Scratch;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// The server at work; killed when dropped.
pub struct Server {
    pub child: Child,
    /// The first that it answers at.
    pub address: SocketAddr,
    lines: Receiver<String>,
    /// What it said, as far as it was listened to.
    pub heard: Vec<String>,
}

impl Server {
    /// Starts one of two cores at a port of the loopback.
    pub fn start(scratch: &Scratch, more: impl IntoIterator<Item: AsRef<OsStr>>) -> Server {
        let mut command = scratch.larder();
        command.args(["dns", "--listen", "127.0.0.1:0", "--cores", "2"]).args(more);
        Server::spawn(&mut command)
    }

    /// Starts a command that becomes the server; it answers.
    pub fn spawn(command: &mut Command) -> Server {
        Server::spawn_until(command, "answering at ")
    }

    /// Starts a command that becomes a server of HTTP.
    #[allow(dead_code)]
    pub fn spawn_http(command: &mut Command) -> Server {
        Server::spawn_until(command, "serving at ")
    }

    /// Starts a command, and waits for the line in which it says its address as the fifth word.
    fn spawn_until(command: &mut Command, text: &str) -> Server {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
        let (say, lines) = channel();
        let pipe = BufReader::new(child.stderr.take().expect("piped"));
        std::thread::spawn(move || {
            for line in pipe.lines().map_while(Result::ok) {
                let _ = say.send(line);
            }
        });
        let address = SocketAddr::from(([0; 4], 0));
        let mut server = Server { child, address, lines, heard: Vec::new() };
        let line = server.hear(text);
        let word = line.split_whitespace().nth(4).expect("an address").trim_end_matches(',');
        server.address = word.parse().expect("an address");
        server
    }

    /// Waits for another line with `text` on standard error.
    pub fn hear(&mut self, text: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.heard.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(_) => panic!("{text:?} was not said, but {:?}", self.heard),
            }
        }
    }

    /// A line with `text` was heard before.
    pub fn has_said(&self, text: &str) -> bool {
        self.heard.iter().any(|line| line.contains(text))
    }

    /// Asks for the address of `<label>.example`.
    pub fn ask(&self, label: &str) -> Vec<u8> {
        ask(self.address, &question(label))
    }

    /// The last octet of that address.
    pub fn octet(&self, label: &str) -> u8 {
        let answer = self.ask(label);
        assert_eq!((answer[3] & 15, answer[7]), (0, 1), "{answer:?}");
        *answer.last().expect("an answer is longer")
    }

    pub fn signal(&self, signal: &str) {
        let killed = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(killed.expect("kill runs").success());
    }

    /// Waits for the end: its code and all it said.
    pub fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().expect("ends").code();
        self.heard.extend(self.lines.iter());
        (code, std::mem::take(&mut self.heard).join("\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A question for the A record of `<label>.example`.
pub fn question(label: &str) -> Vec<u8> {
    let mut question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0".to_vec();
    question.push(label.len() as u8);
    question.extend(label.bytes());
    question.extend(b"\x07example\0\0\x01\0\x01");
    question
}

/// Asks over UDP from a new port, again after a while, as clients do.
pub fn ask(server: SocketAddr, question: &[u8]) -> Vec<u8> {
    let client = client(server);
    let mut room = [0; 512];
    for _ in 0..60 {
        client.send(question).expect("sent");
        if let Ok(length) = client.recv(&mut room) {
            return room[..length].to_vec();
        }
    }
    panic!("no answer of {server} to {}", question.escape_ascii());
}

/// A socket to ask by, which waits for a second.
pub fn client(server: SocketAddr) -> UdpSocket {
    let any: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let client = UdpSocket::bind((any, 0)).expect("a socket");
    client.connect(server).expect("an address");
    client.set_read_timeout(Some(Duration::from_secs(1))).expect("a time");
    client
}
