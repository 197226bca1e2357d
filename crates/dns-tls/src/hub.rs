//! Passes queries of all transports to the cores, and responses back.
//!
//! ```text
//! Hub::admit(peer) -> Caller, for a connection; it belongs to one core
//! Caller::ask(message, then) -> SideSender -> the core -> then(response), on the core's thread
//! Caller::resolve(message).await                   the same, for one query at a time
//! ```
//!
//! Invariant: `then` is called once. If the core has ended, it is dropped without a call.
//!
//! Bounds: see [`crate::limits`]. An [`Answer`] counts its bytes as unsent until it is dropped, so
//! a sender drops it after sending.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use larder_dns::dnstap::Protocol;
use larder_dns::metrics::Metric;
use larder_dns::side_query::{SideQuery, SideSender};
use larder_wire::dns::edns::rcode;
use larder_wire::dns::query::{KeyBuf, Query};
use tokio::sync::oneshot;

use crate::limits::{Counters, Event, Limits};
use crate::padding::{ANSWER_BLOCK_BYTES, pad, wishes};
use larder_tls::{ConnectionLimit, Permit};

/// Bytes of a response of this server without records: a question with the longest name, and an OPT
/// record.
const EMPTY_BYTES_MAX: usize = 512;

/// The UDP size in an OPT record of this server. It has no meaning here, so it is the usual one.
const UDP_BYTES: u16 = 1_232;

/// Connects all connections to all cores.
#[derive(Debug)]
pub(crate) struct Hub {
    senders: Vec<SideSender>,
    /// Connections distributed over the cores.
    dealt: AtomicUsize,
    connections: Arc<ConnectionLimit>,
    unsent_bytes: AtomicUsize,
    pub(crate) counters: Counters,
    pub(crate) limits: Limits,
}

/// Sends the queries of one connection.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) hub: Arc<Hub>,
    sender: usize,
    pub(crate) protocol: Protocol,
    peer: SocketAddr,
    _permit: Permit,
}

/// A response on its way to a client.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    hub: Arc<Hub>,
    counted: usize,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.hub.unsent_bytes.fetch_sub(self.counted, Relaxed);
    }
}

impl Hub {
    pub(crate) fn new(senders: Vec<SideSender>, limits: Limits) -> Hub {
        Hub {
            senders,
            dealt: AtomicUsize::new(0),
            connections: Arc::new(ConnectionLimit::new(limits.connections_max)),
            unsent_bytes: AtomicUsize::new(0),
            counters: Counters::default(),
            limits,
        }
    }

    /// Admits a connection, unless a limit is reached.
    pub(crate) fn admit(self: &Arc<Hub>, protocol: Protocol, peer: SocketAddr) -> Option<Caller> {
        let Some(permit) = self.connections.admit(peer.ip(), self.limits.per_client_max) else {
            self.counters.note(Event::Refused, protocol);
            return None;
        };
        self.counters.note(Event::Opened, protocol);
        let sender = self.dealt.fetch_add(1, Relaxed) % self.senders.len().max(1);
        Some(Caller { hub: self.clone(), sender, protocol, peer, _permit: permit })
    }

    /// Open connections.
    pub(crate) fn open(&self) -> usize {
        self.connections.open()
    }

    /// How long a connection may be idle at present.
    pub(crate) fn idle(&self) -> std::time::Duration {
        self.connections.patience(self.limits.idle)
    }

    /// All counters.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let open = "Connections of encrypted transports that are open";
        let unsent = "Bytes of responses that clients of encrypted transports have not received";
        let now = [
            Metric::new("encrypted_connections", open, self.open() as f64),
            Metric::new("encrypted_unsent_bytes", unsent, self.unsent_bytes.load(Relaxed) as f64),
        ];
        now.into_iter().chain(self.counters.metrics()).collect()
    }

    /// Counts a response's bytes until it is dropped; `None` if there are too many.
    fn count(self: &Arc<Hub>, bytes: Vec<u8>, protocol: Protocol) -> Option<Answer> {
        let counted = bytes.len();
        let before = self.unsent_bytes.fetch_add(counted, Relaxed);
        let answer = Answer { bytes, hub: self.clone(), counted };
        if before + counted > self.limits.unsent_bytes_max {
            self.counters.note(Event::Unsent, protocol);
            return None;
        }
        Some(answer)
    }
}

impl Caller {
    /// Counts an event of this connection.
    pub(crate) fn note(&self, event: Event) {
        self.hub.counters.note(event, self.protocol);
    }

    /// Sends a query. `then` receives the response, padded if the query was, or `None`; it must not
    /// wait.
    pub(crate) fn query(
        &self,
        message: Vec<u8>,
        then: impl FnOnce(Option<Answer>) + Send + 'static,
    ) {
        let pads = wishes(&message).pads;
        let (hub, protocol, peer) = (self.hub.clone(), self.protocol, self.peer);
        let reply = Box::new(move |bytes: Option<Vec<u8>>| {
            then(bytes.and_then(|mut bytes| {
                if pads {
                    pad(&mut bytes, ANSWER_BLOCK_BYTES);
                }
                hub.count(bytes, protocol)
            }));
        });
        let query = SideQuery { protocol, peer, message, reply };
        let Some(sender) = self.hub.senders.get(self.sender) else { return };
        if let Err(SideQuery { message, reply, .. }) = sender.query(query) {
            self.note(Event::Overloaded);
            reply(servfail(&message));
        }
    }

    /// Sends a query, and waits for the response.
    pub(crate) async fn resolve(&self, message: Vec<u8>) -> Option<Answer> {
        let (said, received) = oneshot::channel();
        // The receiver may have been dropped meanwhile.
        self.query(message, move |answer| drop(said.send(answer)));
        received.await.ok().flatten()
    }
}

/// The response to a query that no core can take.
fn servfail(message: &[u8]) -> Option<Vec<u8>> {
    let mut key = KeyBuf::new();
    let query = Query::read(message, &mut key).ok()?;
    let mut bytes = vec![0; EMPTY_BYTES_MAX];
    let length = query.write_empty(rcode::SERVFAIL, UDP_BYTES, &[], &mut bytes)?;
    bytes.truncate(length);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_dns::side_query;
    use larder_io::epoll::Waker;
    use std::sync::mpsc::channel;

    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01";

    fn peer() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 7))
    }

    /// A query that no core can take gets SERVFAIL, a message that is not a query gets nothing, and
    /// both are counted.
    #[test]
    fn overload_is_servfail() {
        let (sender, inbox) = side_query::channel(Arc::new(Waker::new().unwrap()), 1);
        drop(inbox);
        let hub = Arc::new(Hub::new(vec![sender], Limits::default()));
        let caller = hub.admit(Protocol::Tls, peer()).unwrap();
        let (said, received) = channel();
        for message in [QUERY, b"\0"] {
            let said = said.clone();
            caller.query(message.to_vec(), move |answer| said.send(answer).unwrap());
        }
        let answer = received.recv().unwrap().unwrap();
        assert_eq!(&answer.bytes[..4], b"\x12\x34\x81\x82");
        assert_eq!(&answer.bytes[12..], &QUERY[12..]);
        assert!(received.recv().unwrap().is_none());
        let overloads = hub.metrics().into_iter().find(|it| it.field() == "encrypted_overloads");
        assert_eq!(overloads.unwrap().value, 2.0);
    }

    /// Bytes count until their response is dropped, and beyond the limit responses are dropped at
    /// once.
    #[test]
    fn unsent_bytes_are_bounded() {
        let limits = Limits { unsent_bytes_max: 10, ..Limits::default() };
        let hub = Arc::new(Hub::new(vec![], limits));
        let first = hub.count(vec![0; 6], Protocol::Tls).unwrap();
        assert!(hub.count(vec![0; 5], Protocol::Tls).is_none());
        let second = hub.count(vec![0; 4], Protocol::Tls).unwrap();
        drop((first, second));
        assert_eq!(hub.unsent_bytes.load(Relaxed), 0);
    }
}
