//! Leaving the process once: memcached over loopback, from one thread, as the other way to keep a cache.
//!
//! The server runs as a child on a free port of 127.0.0.1 and ends with the program. Requests are its text
//! protocol; a pipeline of P sends P of them in one write and reads P answers. Every value is checked.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server.
pub const SERVER: &str = "memcached";

/// A running server and a connection to it.
#[derive(Debug)]
pub struct Remote {
    child: Child,
    reader: BufReader<TcpStream>,
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Our own child; that it had ended by itself is no matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The key of a number, as text: the protocol takes no bytes but those one can print.
fn key(number: u32) -> String {
    format!("{number:016x}")
}

/// 22 bytes, as an average value has.
fn value(number: u32) -> String {
    format!("{number:022}")
}

impl Remote {
    /// Starts the server with room for `mib` mebibytes and connects; `NotFound` when it is not installed.
    pub fn start(mib: usize) -> io::Result<Remote> {
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new(SERVER)
            .args(["-l", "127.0.0.1", "-U", "0", "-t", "1", "-u", "nobody"])
            .args(["-p", &port.to_string(), "-m", &mib.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let started = Instant::now();
        let mut remote = None;
        let mut child = Some(child);
        while remote.is_none() && started.elapsed() < Duration::from_secs(5) {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
                    let child = child.take();
                    remote = child.map(|child| Remote { child, reader: BufReader::new(stream) });
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        if let Some(mut child) = child {
            let _ = child.kill();
            let _ = child.wait();
        }
        remote.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "the server did not answer"))
    }

    /// Stores the numbers `0..entries`.
    pub fn fill(&mut self, entries: u32) -> io::Result<()> {
        let mut line = String::new();
        for start in (0..entries).step_by(256) {
            let numbers = start..entries.min(start + 256);
            let mut text = String::new();
            for number in numbers.clone() {
                let (key, value) = (key(number), value(number));
                let _ = write!(text, "set {key} 0 0 {}\r\n{value}\r\n", value.len());
            }
            self.reader.get_mut().write_all(text.as_bytes())?;
            for _ in numbers {
                line.clear();
                self.reader.read_line(&mut line)?;
                if line != "STORED\r\n" {
                    return Err(io::Error::other(line.clone()));
                }
            }
        }
        Ok(())
    }

    /// Asks for every number, `pipeline` at a time: nanoseconds a lookup by the clock.
    pub fn get(&mut self, numbers: &[u32], pipeline: usize) -> io::Result<f64> {
        let mut line = String::new();
        let mut body = Vec::new();
        let start = Instant::now();
        for numbers in numbers.chunks(pipeline.max(1)) {
            line.clear();
            for &number in numbers {
                let _ = write!(line, "get {}\r\n", key(number));
            }
            self.reader.get_mut().write_all(line.as_bytes())?;
            for &number in numbers {
                line.clear();
                self.reader.read_line(&mut line)?;
                let wanted = value(number);
                body.resize(wanted.len() + "\r\nEND\r\n".len(), 0);
                if !line.starts_with("VALUE ") {
                    return Err(io::Error::other("a key that was stored is missing"));
                }
                self.reader.read_exact(&mut body)?;
                if body.get(..wanted.len()) != Some(wanted.as_bytes()) {
                    return Err(io::Error::other("another key's value"));
                }
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / numbers.len().max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was stored is read back, one at a time and in pipelines; without the server there is nothing to test.
    #[test]
    fn stored_is_read() {
        let mut remote = match Remote::start(64) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            remote => remote.unwrap(),
        };
        remote.fill(1000).unwrap();
        let numbers: Vec<u32> = (0..1000).rev().collect();
        for pipeline in [1, 32] {
            assert!(remote.get(&numbers, pipeline).unwrap() > 0.0);
        }
        assert!(remote.get(&[5000], 1).is_err(), "a key that was never stored");
    }
}
