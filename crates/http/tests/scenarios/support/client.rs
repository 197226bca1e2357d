//! A client that does what it is told, a step at a time.

use std::net::{SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};

use super::wire::{End, Head, Wire};

#[derive(Debug)]
pub struct Client(Wire);

/// A response, with all of its body.
#[derive(Debug, Clone)]
pub struct Response {
    pub head: Head,
    pub body: Vec<u8>,
}

impl Response {
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Deref for Client {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.0
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.0
    }
}

impl Client {
    pub fn new(address: SocketAddr) -> Client {
        Client(Wire::new(TcpStream::connect(address).unwrap()))
    }

    /// Asks, with further lines of fields.
    pub fn ask(&mut self, method: &str, path: &str, fields: &[&str]) {
        self.send(request(method, path, fields));
    }

    pub fn get(&mut self, path: &str) {
        self.ask("GET", path, &[]);
    }

    /// A whole response to a GET.
    pub fn response(&mut self) -> Response {
        let head = self.head();
        let body = match head.status() {
            204 | 304 => Vec::new(),
            _ => self.try_body(&head).unwrap_or_else(|(octets, end)| {
                panic!("{end:?} after {} octets of the body of {head:?}", octets.len())
            }),
        };
        Response { head, body }
    }

    /// Asks, and takes the whole answer.
    pub fn fetch(&mut self, path: &str) -> Response {
        self.get(path);
        self.response()
    }

    pub fn fetch_with(&mut self, path: &str, fields: &[&str]) -> Response {
        self.ask("GET", path, fields);
        self.response()
    }

    /// Leaves at once, with a reset.
    pub fn stop(self) {
        self.reset_on_close();
    }

    /// A response whose body breaks: what came of it. It may not look like one that is whole.
    pub fn broken(&mut self) -> Vec<u8> {
        let Some(head) = self.try_head() else { return Vec::new() };
        self.broken_body(&head)
    }

    pub fn broken_body(&mut self, head: &Head) -> Vec<u8> {
        match self.try_body(head) {
            Ok(octets) => panic!("{} octets, and a clean end of {head:?}", octets.len()),
            Err((octets, _)) => octets,
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

/// The octets of a request.
pub fn request(method: &str, path: &str, fields: &[&str]) -> String {
    let lines: String = fields.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n")
}
