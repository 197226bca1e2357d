//! HTTP clients.

use std::net::SocketAddr;

use super::connection::{Connection, End, Head};

/// A response with its complete body.
#[derive(Debug, Clone)]
pub struct Response {
    /// Its headers.
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
    /// Sends a request, with additional field lines.
    pub fn request(&mut self, method: &str, path: &str, fields: &[&str]) {
        self.send(request(method, path, fields));
    }

    /// Sends a GET.
    pub fn get(&mut self, path: &str) {
        self.request("GET", path, &[]);
    }

    /// Reads a complete response to a GET.
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

    /// Sends a GET, and reads the complete response.
    pub fn fetch(&mut self, path: &str) -> Response {
        self.get(path);
        self.response()
    }

    /// Like [`Connection::fetch`], with further field lines.
    pub fn fetch_with(&mut self, path: &str, fields: &[&str]) -> Response {
        self.request("GET", path, fields);
        self.response()
    }

    /// Reads a response whose body breaks, and returns the bytes that arrived. The response must
    /// not look complete.
    pub fn broken(&mut self) -> Vec<u8> {
        let Some(head) = self.try_head() else { return Vec::new() };
        self.broken_body(&head)
    }

    /// Like [`Connection::broken`], for a response whose headers were read.
    pub fn broken_body(&mut self, head: &Head) -> Vec<u8> {
        match self.try_body(head) {
            Ok(bytes) => panic!("{} bytes, and a clean end of {head:?}", bytes.len()),
            Err((bytes, _)) => bytes,
        }
    }

    /// Reads an error response of the server itself, after which the server closes the connection.
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

/// The response of a server to a GET on its own connection, which the server closes.
pub fn fetch(server: SocketAddr, path: &str) -> Response {
    Connection::open(server).fetch_with(path, &["Connection: close"])
}
