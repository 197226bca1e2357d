//! Decides about requests and responses: no sockets, no clock, no threads.
//!
//! ```text
//! request()   hit    the response is written to `out`, or its headers are and its body follows
//!             miss   the client joins the in-flight fetch; the first one starts it: Net::fetch
//!             pass   the fetch is for this client alone
//! response()  the headers from an origin: stored or not, and Net::complete for each client that waits
//! body        Incoming takes bytes into memory; completed() stores the record
//! outcome()   what a client that waited gets: a response, another lookup, or an error
//! failed()    the origin gave no response: a stale response, or an error
//! ```
//!
//! The caller states the time: [`Core::begin`]. So each rule can be tested as a scenario
//! (`crates/http/tests/rules`) with time that moves only when the scenario says so.
//!
//! | module | duty |
//! |---|---|
//! | `request` | from the headers of a request to a response, a wait, or a fetch |
//! | `response` | from the headers of a response to the clients that get it |
//! | `renewal` | 304, stale responses, failures, writes that invalidate |
//! | `fetch` | what an origin is sent, and for which clients |
//! | `storing` | records: the headers in final form, memory, time to live |
//! | `body` | bytes of a body on their way into memory |
//! | `purge` | `PURGE` of a URL or of tags |
//!
//! Invariants
//! 1. Each fetch ends in exactly one of: its shared fetch is completed, its client gets an outcome,
//!    or it starts again. So a client that waits gets an outcome in the end.
//! 2. A client gets a response that was fetched for another client only where the rules of
//!    [`crate::cacheability`] let it be stored, or the other client's fields did not matter.
//!
//! Cost of a hit: one lookup (two for a variant), a copy of the record. Nothing is allocated.

mod body;
mod fetch;
mod purge;
mod renewal;
mod request;
mod response;
mod storing;

use std::net::SocketAddr;
use std::sync::Arc;

use larder::Seconds;
use larder_mem::object::Object;

pub use self::body::{Incoming, Reading, Remaining, Taken, Upload};
pub use self::fetch::{Fetch, Purpose};
pub use self::request::{Exchange, Reply, Step};
pub use self::response::Next;
use crate::answer::{Body, Trailers};
use crate::coalescing::{Flight, Outcome, Waiter};
use crate::counts::Counts;
use crate::message::{RequestHead, Scheme};
use crate::options::Options;
use crate::parts::Part;
use crate::store::{Store, StoreHandle};

/// The functions of an event loop that a core calls. No call blocks.
pub trait Net {
    /// Sends a request to an origin, or queues it until there is a connection.
    fn fetch(&mut self, fetch: Box<Fetch>);

    /// Gives a waiting client, of this event loop or another, the outcome of its request. The
    /// client gets it after the call into the core has returned.
    fn complete(&mut self, waiter: Waiter, outcome: Outcome);

    /// True while a client of this event loop is connected.
    fn is_connected(&self, client: u64) -> bool;
}

/// A client's request, and the client.
#[derive(Clone, Copy)]
pub struct ClientRequest<'a> {
    /// The headers, parsed.
    pub head: &'a RequestHead<'a>,
    /// The headers as they were received.
    pub bytes: &'a [u8],
    /// The client's token in its event loop.
    pub client: u64,
    /// The scheme by which the client sent it.
    pub scheme: Scheme,
    /// The client's address. The core calls it only where the address matters: it may need a system
    /// call.
    pub peer: &'a dyn Fn() -> Option<SocketAddr>,
    /// The connection ends after this response.
    pub closes: bool,
    /// The client still sends the body of the request.
    pub has_upload: bool,
}

/// A body that follows headers, of a response or a request.
#[derive(Debug)]
pub struct Content {
    /// Its bytes.
    pub object: Arc<Object>,
    /// Which of them, and how they are framed.
    pub body: Body,
    /// Only one receiver gets it, so its memory is reused at once.
    pub is_private: bool,
    /// Fields after the last chunk.
    pub trailers: Option<Arc<Trailers>>,
    /// Where the body continues, if it is longer than its object.
    pub part: Option<Arc<Part>>,
}

/// The response that larder sent a client, as the access log states it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResponseSummary {
    /// The status code.
    pub status: u16,
    /// Bytes of the body that are in the same buffer as the headers.
    pub body_bytes: u64,
    /// What the cache did.
    pub cache: Option<&'static str>,
    /// The origin's status code, where this is its response.
    pub origin_status: Option<u16>,
}

/// The decisions of one event loop.
#[derive(Debug)]
pub struct Core {
    /// The number of the event loop.
    pub number: u32,
    /// The settings in force.
    pub options: Arc<Options>,
    /// The cache of all event loops.
    pub store: Arc<Store>,
    /// This event loop's reader and writer of it.
    pub handle: StoreHandle,
    /// Counters.
    pub counts: Counts,
    /// The response to the last request or outcome, for the access log.
    pub summary: ResponseSummary,
    /// Responses to new requests state `Connection: close`.
    pub is_draining: bool,
    /// Seconds since 1970.
    now_s: u64,
    url: Vec<u8>,
    note: Vec<u8>,
}

impl Core {
    /// For one event loop.
    pub fn new(
        number: u32,
        options: Arc<Options>,
        store: Arc<Store>,
    ) -> Result<Core, larder::Error> {
        Ok(Core {
            number,
            options,
            handle: store.handle()?,
            store,
            counts: Counts::default(),
            summary: ResponseSummary::default(),
            is_draining: false,
            now_s: 0,
            url: Vec::new(),
            note: Vec::new(),
        })
    }

    /// A turn of the event loop begins at this time, seconds since 1970. The core sees what other
    /// event loops have stored and purged.
    pub fn begin(&mut self, now_s: u64) {
        self.now_s = now_s;
        self.handle.sync(&self.store);
    }

    /// The turn ends: other event loops see what this one has stored.
    pub fn finish(&mut self) {
        self.handle.flush();
    }

    fn seconds(&self) -> Seconds {
        Seconds(u32::try_from(self.now_s).unwrap_or(u32::MAX - 1))
    }

    /// The scheme that origins are sent. It is sent only if larder terminates TLS: no proxy in
    /// front of it knows the scheme.
    fn stated_scheme(&self, scheme: Scheme) -> Option<Scheme> {
        let is_stated = self.options.tls_bridge.as_ref().is_some_and(|it| it.has_clients());
        is_stated.then_some(scheme)
    }

    /// Completes an in-flight fetch: each client that waits for it gets this outcome.
    fn complete(&self, net: &mut impl Net, flight: &Flight, outcome: &Outcome) {
        for waiter in flight.complete(outcome.clone()) {
            net.complete(waiter, outcome.clone());
        }
    }

    /// Gives a client of this event loop the outcome of its own fetch.
    fn complete_one(&self, net: &mut impl Net, client: u64, outcome: Outcome) {
        net.complete(Waiter { loop_number: self.number, client }, outcome);
    }

    /// Evicts bodies if one waits for memory.
    pub fn make_room(&mut self) {
        let bytes = self.store.objects.shortage_bytes();
        if bytes > 0 {
            self.store.bodies.evict(bytes);
        }
    }
}
