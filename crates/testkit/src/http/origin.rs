//! An origin. A scenario accepts its connections one by one and responds by hand, or threads
//! respond to all requests by a rule.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::connection::{Connection, Head};
use crate::wait::PATIENCE;

type Rule = Arc<dyn Fn(&Head) -> Vec<u8> + Send + Sync>;

/// See the module. The origin ends when dropped.
#[derive(Debug)]
pub struct Origin {
    /// The address at which it listens.
    pub address: SocketAddr,
    connections: Receiver<TcpStream>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    has_ended: AtomicBool,
    /// Requests to which the rule responded.
    answered: AtomicUsize,
    rule: Mutex<Option<Rule>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl Origin {
    /// An origin at a port of the loopback.
    #[expect(clippy::new_without_default, reason = "it starts a thread")]
    pub fn new() -> Origin {
        Origin::at(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    /// An origin at a listener.
    pub fn at(listener: TcpListener) -> Origin {
        let address = listener.local_addr().unwrap();
        let (sender, connections) = channel();
        let shared = Arc::new(Shared::default());
        let its = shared.clone();
        let thread = Mutex::new(Some(thread::spawn(move || accept(&listener, &its, &sender))));
        Origin { address, connections, shared, thread }
    }

    /// An address at which no program listens.
    pub fn nowhere() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    }

    /// The next connection.
    pub fn accept(&self) -> Connection {
        let stream = self.connections.recv_timeout(PATIENCE).expect("the server connects");
        Connection::new(stream)
    }

    /// The next connection, and the first line of its first request.
    pub fn receive(&self, line: &str) -> Connection {
        let mut connection = self.accept();
        connection.receive(line);
        connection
    }

    /// The next connection, if one is waiting.
    pub fn try_accept(&self) -> Option<Connection> {
        self.connections.try_recv().ok().map(Connection::new)
    }

    /// Accepts no more connections.
    pub fn stop_listening(&self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        // One more connection wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.lock().unwrap().take() {
            thread.join().unwrap();
        }
    }

    /// Asserts that no client has connected, except those that the scenario accepted.
    pub fn is_idle(&self) {
        match self.connections.try_recv() {
            Err(TryRecvError::Empty) => {}
            Ok(stream) => {
                let head = Connection::new(stream).try_head();
                panic!("the server connected, and asked for {head:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// From now on a rule responds to all requests on new connections: it returns the response
    /// bytes for each request's headers.
    pub fn answers_by(&self, rule: impl Fn(&Head) -> Vec<u8> + Send + Sync + 'static) {
        *self.shared.rule.lock().unwrap() = Some(Arc::new(rule));
    }

    /// Requests to which the rule responded.
    pub fn answered(&self) -> usize {
        self.shared.answered.load(Ordering::SeqCst)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop_listening();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, sender: &Sender<TcpStream>) {
    for stream in listener.incoming() {
        if shared.has_ended.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let Some(rule) = shared.rule.lock().unwrap().clone() else {
            let _ = sender.send(stream);
            continue;
        };
        let shared = shared.clone();
        thread::spawn(move || {
            let mut wire = Connection::new(stream);
            // The connection may stay unused for longer than a test waits.
            wire.stream.set_read_timeout(None).unwrap();
            while let Some(head) = wire.try_head() {
                wire.body_of_request(&head);
                let answer = rule(&head);
                shared.answered.fetch_add(1, Ordering::SeqCst);
                if !wire.try_send(answer) {
                    return;
                }
            }
        });
    }
}

impl Connection {
    /// Reads the next request. Its first line must be `line` and the version.
    pub fn receive(&mut self, line: &str) -> Head {
        let head = self.head();
        assert_eq!(head.line, format!("{line} HTTP/1.1"), "{head:?}");
        head
    }

    /// Sends a complete response.
    pub fn answers(&mut self, status: &str, fields: &[&str], body: impl AsRef<[u8]>) {
        self.send(answer(status, fields, body));
    }

    /// Sends headers, with the length of the body.
    pub fn begins(&mut self, status: &str, fields: &[&str], body_bytes: usize) {
        self.send(head(status, fields, Some(body_bytes)));
    }

    /// Sends headers of a chunked body.
    pub fn begins_chunks(&mut self, status: &str, fields: &[&str]) {
        self.send(head(status, &[fields, &["Transfer-Encoding: chunked"]].concat(), None));
    }

    /// Sends a chunk.
    pub fn sends_chunk(&mut self, bytes: &[u8]) {
        self.send(chunk(bytes));
    }

    /// Aborts the connection.
    pub fn stop(self) {
        self.reset_on_close();
    }

    /// The server closes or aborts the connection; it may send bytes before.
    pub fn end_of_rest(&mut self) {
        while !self.take_some().is_empty() {}
        self.end();
    }

    /// True if a request has arrived, and not the end.
    pub fn has_request(&mut self) -> bool {
        self.has_news() && self.has_bytes()
    }

    /// The server closes the connection, and sends nothing before.
    pub fn is_closed(&mut self) {
        self.end();
    }
}

fn head(status: &str, fields: &[&str], body_bytes: Option<usize>) -> Vec<u8> {
    let lines: String = fields.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body_bytes.map(|bytes| format!("Content-Length: {bytes}\r\n")).unwrap_or_default();
    format!("HTTP/1.1 {status}\r\n{lines}{length}\r\n").into_bytes()
}

/// A complete response.
pub fn answer(status: &str, fields: &[&str], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let has_length = !status.starts_with("304") && !status.starts_with("204");
    let mut bytes = head(status, fields, has_length.then_some(body.len()));
    bytes.extend_from_slice(body);
    bytes
}

/// A chunk with its length.
pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}
