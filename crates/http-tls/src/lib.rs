//! TLS and HTTP/2 for larder's HTTP cache, on threads next to its event loops.
//!
//! ```text
//! client == TLS, HTTP/1.1 == a task -- socket pair ----------- an event loop
//! client == TLS, HTTP/2 ==== a task a stream -- socket pair -- an event loop     each request is one of HTTP/1.1
//! origin == TLS, HTTP/1.1 == a task -- socket pair ----------- an event loop
//! ```
//!
//! An event loop of [`larder_http`] uses plain sockets and has no keys
//! ([`larder_http::tls_bridge`]). A runtime with its own threads does handshakes, records and
//! frames, so clients without TLS do not pay for them. The same event loops serve all requests,
//! from the same store, by the same rules.
//!
//! | module | duty |
//! |---|---|
//! | [`Encrypted`] | what is served; started and ended with the server |
//! | `listener` | a client's connection: its protocol, and HTTP/1.1 |
//! | `clients` | what all connections of clients share |
//! | `http2` | HTTP/2: a stream is a request of HTTP/1.1 to an event loop |
//! | `loop_connections` | connections to event loops, new or used again |
//! | `pump` | bytes from one connection to the other, and how they end |
//! | `origins` | connections of event loops to origins |
//! | [`limits`] | limits of clients, and counters |
//!
//! Invariants
//! 1. A cut body is recognized as cut. A body ends for a client only where the event loop stated
//!    that it is complete. Otherwise HTTP/1.1 over TLS is reset without `close_notify`, and a
//!    stream of HTTP/2 gets `RST_STREAM`. A body that an origin cut, by an end without
//!    `close_notify`, is not complete for the event loop.
//! 2. Bytes are read from one side only as the other side receives them. So a slow client holds at
//!    most the windows of its connection, a socket pair and the event loop's own limits, however
//!    long a body is.
//! 3. Each wait has a limit: handshakes, streams, clients that receive nothing, connections without
//!    requests.
//!
//! Bounds of a connection: a permit ([`larder_tls::ConnectionLimit`]); some 60 kB for HTTP/1.1. For
//! HTTP/2, each stream needs a read, a frame's queue, a socket pair, and the window of the client's
//! bytes. Cost in addition to TLS: a copy into the socket pair and one out of it, each with a
//! system call for some tens of kilobytes.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod clients;
mod http2;
pub mod limits;
mod listener;
mod loop_connections;
mod origins;
mod pump;
mod server;

pub use larder_tls::{Files, Trust};
pub use limits::Limits;
pub use origins::host_of;
pub use server::Encrypted;
