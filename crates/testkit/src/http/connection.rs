//! One end of a connection, with blocking reads for a bounded time.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::wait::PATIENCE;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The peer closed it in order.
    Clean,
    /// The peer aborted it.
    Reset,
}

/// Headers: a start line, and fields.
#[derive(Debug, Clone)]
pub struct Head {
    /// `GET / HTTP/1.1`, `HTTP/1.1 200 OK`.
    pub line: String,
    /// Names and values, in the order received.
    pub fields: Vec<(String, String)>,
}

impl Head {
    fn read(bytes: &[u8]) -> Head {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
        let line = lines.next().unwrap_or_default().to_owned();
        let field = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap_or((line, ""));
            (name.to_owned(), value.to_owned())
        };
        Head { line, fields: lines.map(field).collect() }
    }

    /// The value of this field, which must not be repeated.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(it, _)| it.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} is there twice: {self:?}");
        value
    }

    /// True if there is a field of this name.
    pub fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(it, _)| it.eq_ignore_ascii_case(name))
    }

    /// The status of a response.
    pub fn status(&self) -> u16 {
        let code = self.line.split(' ').nth(1).and_then(|it| it.parse().ok());
        code.unwrap_or_else(|| panic!("no response: {:?}", self.line))
    }

    /// The length of the body, as the headers state it.
    pub fn length(&self) -> Option<usize> {
        self.field("content-length").map(|it| it.parse().unwrap())
    }

    /// True if the body is chunked.
    pub fn is_chunked(&self) -> bool {
        self.field("transfer-encoding") == Some("chunked")
    }

    /// The Cache-Status field.
    pub fn cache_status(&self) -> &str {
        self.field("cache-status").unwrap_or_default()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub stream: TcpStream,
    /// Bytes that were received, but not yet taken.
    inbox: Vec<u8>,
    end: Option<End>,
}

impl Connection {
    /// Connects to a server.
    pub fn open(server: SocketAddr) -> Connection {
        Connection::new(TcpStream::connect(server).unwrap())
    }

    /// A connection over this stream.
    pub fn new(stream: TcpStream) -> Connection {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream, inbox: Vec::new(), end: None }
    }

    /// Sends all bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends until the peer aborts the connection; true if all bytes were sent.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Waits for more bytes; false at the end.
    fn more(&mut self) -> bool {
        if self.end.is_some() {
            return false;
        }
        let mut room = [0; 16 << 10];
        match self.stream.read(&mut room) {
            Ok(0) => self.end = Some(End::Clean),
            Ok(bytes) => self.inbox.extend_from_slice(&room[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("nothing came for {PATIENCE:?}; there is {:?}", self.shown());
            }
            Err(_) => self.end = Some(End::Reset),
        }
        self.end.is_none()
    }

    fn shown(&self) -> String {
        self.inbox[..self.inbox.len().min(100)].escape_ascii().to_string()
    }

    /// The next headers; `None` if the connection ended before them.
    pub fn try_head(&mut self) -> Option<Head> {
        loop {
            if let Some(at) = self.inbox.windows(4).position(|it| it == b"\r\n\r\n") {
                let rest = self.inbox.split_off(at + 4);
                let head = std::mem::replace(&mut self.inbox, rest);
                return Some(Head::read(&head));
            }
            if !self.more() {
                return None;
            }
        }
    }

    /// The next headers.
    pub fn head(&mut self) -> Head {
        let head = self.try_head();
        head.unwrap_or_else(|| panic!("ended ({:?}) before a head: {:?}", self.end, self.shown()))
    }

    /// The next `bytes` bytes, or fewer if the connection ends before.
    fn up_to(&mut self, bytes: usize) -> Vec<u8> {
        while self.inbox.len() < bytes && self.more() {}
        let rest = self.inbox.split_off(self.inbox.len().min(bytes));
        std::mem::replace(&mut self.inbox, rest)
    }

    /// All bytes up to the end.
    pub fn rest(&mut self) -> Vec<u8> {
        self.up_to(usize::MAX)
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let bytes = self.up_to(count);
        assert_eq!(bytes.len(), count, "ended ({:?}) too early", self.end);
        bytes
    }

    /// The bytes that are available; waits for the first one, or for the end.
    pub fn take_some(&mut self) -> Vec<u8> {
        while self.inbox.is_empty() && self.more() {}
        std::mem::take(&mut self.inbox)
    }

    fn try_line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.inbox.windows(2).position(|it| it == b"\r\n") {
                let line = self.take(at + 2);
                return Some(String::from_utf8(line[..at].to_vec()).unwrap());
            }
            if !self.more() {
                return None;
            }
        }
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> String {
        let line = self.try_line();
        line.unwrap_or_else(|| panic!("ended ({:?}) in a line: {:?}", self.end, self.shown()))
    }

    /// The next chunk, empty for the last one. `Err` has the partial chunk if the connection ended
    /// first.
    pub fn try_chunk(&mut self) -> Result<Vec<u8>, Vec<u8>> {
        let Some(line) = self.try_line() else { return Err(Vec::new()) };
        let size = usize::from_str_radix(&line, 16).unwrap();
        let mut bytes = self.up_to(size + 2);
        if bytes.len() < size + 2 {
            bytes.truncate(size);
            return Err(bytes);
        }
        assert_eq!(bytes.split_off(size), b"\r\n");
        Ok(bytes)
    }

    /// The body of a request; empty if its headers describe none.
    pub fn body_of_request(&mut self, head: &Head) -> Vec<u8> {
        let has_body = head.is_chunked() || head.length().is_some();
        if has_body { self.try_body(head).unwrap_or_else(|(bytes, _)| bytes) } else { Vec::new() }
    }

    /// Reads the body that these headers describe. `Err` has the partial body and the end.
    pub fn try_body(&mut self, head: &Head) -> Result<Vec<u8>, (Vec<u8>, End)> {
        let (bytes, is_whole) = if head.is_chunked() {
            let mut bytes = Vec::new();
            loop {
                match self.try_chunk() {
                    Ok(chunk) if chunk.is_empty() => break (bytes, true),
                    Ok(chunk) => bytes.extend(chunk),
                    Err(part) => {
                        bytes.extend(part);
                        break (bytes, false);
                    }
                }
            }
        } else if let Some(length) = head.length() {
            let bytes = self.up_to(length);
            let is_whole = bytes.len() == length;
            (bytes, is_whole)
        } else {
            let bytes = self.rest();
            (bytes, self.end == Some(End::Clean))
        };
        if is_whole { Ok(bytes) } else { Err((bytes, self.end.expect("it has ended"))) }
    }

    /// Waits for the end, and returns its kind; no bytes may come before.
    pub fn end(&mut self) -> End {
        while self.more() {}
        assert_eq!(self.shown(), "", "before the end");
        self.end.expect("it has ended")
    }

    /// Shuts down the sending direction.
    pub fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Makes the close of this connection a reset.
    pub fn reset_on_close(&self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    /// Waits for bytes or the end; true if bytes came.
    pub fn has_bytes(&mut self) -> bool {
        if self.inbox.is_empty() {
            self.more();
        }
        !self.inbox.is_empty()
    }

    /// True if bytes are available, or the connection has ended.
    pub fn has_news(&mut self) -> bool {
        if !self.inbox.is_empty() || self.end.is_some() {
            return true;
        }
        self.stream.set_nonblocking(true).unwrap();
        let is_there = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        !matches!(is_there, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}
