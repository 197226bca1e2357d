//! HTTP clients.

use std::net::SocketAddr;

use super::connection::{Connection, End, Head};

/// A response, with all of its body.
#[derive(Debug, Clone)]
pub struct Response {
    /// Its head.
    pub head: Head,
    /// Its body.
    pub body: Vec<u8>,
}

impl Response {
    /// Its status.
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    /// Its body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Connection {
    /// Asks, with further lines of fields.
    pub fn ask(&mut self, method: &str, path: &str, fields: &[&str]) {
        self.send(request(method, path, fields));
    }

    /// Asks.
    pub fn get(&mut self, path: &str) {
        self.ask("GET", path, &[]);
    }

    /// A whole response to a GET.
    pub fn response(&mut self) -> Response {
        let head = self.head();
        let body = match head.status() {
            204 | 304 => Vec::new(),
            _ => self.try_body(&head).unwrap_or_else(|(bytes, end)| {
                panic!("{end:?} after {} bytes of the body of {head:?}", bytes.len())
            }),
        };
        Response { head, body }
    }

    /// Asks, and takes the whole answer.
    pub fn fetch(&mut self, path: &str) -> Response {
        self.get(path);
        self.response()
    }

    /// Like [`Client::fetch`], with further field lines.
    pub fn fetch_with(&mut self, path: &str, fields: &[&str]) -> Response {
        self.ask("GET", path, fields);
        self.response()
    }

    /// A response whose body breaks: what came of it. It may not look like one that is whole.
    pub fn broken(&mut self) -> Vec<u8> {
        let Some(head) = self.try_head() else { return Vec::new() };
        self.broken_body(&head)
    }

    /// Like [`Client::broken`], for a body whose headers were read.
    pub fn broken_body(&mut self, head: &Head) -> Vec<u8> {
        match self.try_body(head) {
            Ok(bytes) => panic!("{} bytes, and a clean end of {head:?}", bytes.len()),
            Err((bytes, _)) => bytes,
        }
    }

    /// An error of the server's own, after which it closes.
    pub fn is_refused(&mut self, status: u16) {
        let response = self.response();
        assert_eq!(response.status(), status, "{response:?}");
        assert_eq!(response.head.field("connection"), Some("close"), "{response:?}");
        assert_eq!(self.end(), End::Clean);
    }
}

/// The bytes of a request.
pub fn request(method: &str, path: &str, fields: &[&str]) -> String {
    let lines: String = fields.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n")
}

/// The response of a server to a GET on a connection of its own, which it closes.
pub fn fetch(server: SocketAddr, path: &str) -> Response {
    Connection::open(server).fetch_with(path, &["Connection: close"])
}
