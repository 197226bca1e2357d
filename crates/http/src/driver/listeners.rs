//! The sockets at which an event loop accepts connections.
//!
//! A listener that failed, most likely for lack of open files, listens again after
//! [`LISTEN_AGAIN_MS`].

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use larder_io::reactor::Reactor;
use larder_io::table::ID_BITS;
use larder_io::tcp;

use super::LISTENERS;

/// How long until a listener that failed listens again, milliseconds.
const LISTEN_AGAIN_MS: u64 = 100;

#[derive(Debug)]
pub struct Listeners {
    sockets: Vec<TcpListener>,
    /// Those that failed, and when each listens again.
    failed: Vec<(usize, u64)>,
}

fn token_of(which: usize) -> u64 {
    u64::from(LISTENERS) << ID_BITS | which as u64
}

impl Listeners {
    pub fn new(sockets: Vec<TcpListener>, reactor: &mut Reactor) -> io::Result<Listeners> {
        for (at, socket) in sockets.iter().enumerate() {
            reactor.listen(socket, token_of(at))?;
        }
        Ok(Listeners { sockets, failed: Vec::new() })
    }

    pub fn has_failed(&mut self, token: u64, now_ms: u64) {
        let which = (token & ((1 << ID_BITS) - 1)) as usize;
        self.failed.push((which, now_ms + LISTEN_AGAIN_MS));
    }

    /// How long until one listens again.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.failed.iter().map(|(_, due_ms)| due_ms.saturating_sub(now_ms)).min()
    }

    pub fn listen_again(&mut self, reactor: &mut Reactor, now_ms: u64) {
        let mut at = 0;
        while let Some(&(which, due_ms)) = self.failed.get(at) {
            if now_ms < due_ms {
                at += 1;
                continue;
            }
            self.failed.swap_remove(at);
            if let Some(socket) = self.sockets.get(which)
                && reactor.listen(socket, token_of(which)).is_err()
            {
                self.failed.push((which, now_ms + LISTEN_AGAIN_MS));
                break;
            }
        }
    }

    /// Ends listening. A client that has connected already is not reset: it is among these.
    pub fn close(&mut self, reactor: &mut Reactor) -> Vec<(TcpStream, SocketAddr)> {
        let mut connected = Vec::new();
        for (at, socket) in std::mem::take(&mut self.sockets).into_iter().enumerate() {
            reactor.unlisten(&socket, token_of(at));
            while let Ok(Some(stream)) = tcp::accept(&socket) {
                connected.push(stream);
            }
        }
        connected
    }
}
