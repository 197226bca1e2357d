//! TLS and HTTP/2 for larder's HTTP cache, beside its loops.
//!
//! ```text
//! client == TLS, HTTP/1.1 == a task -- socket pair ----------- a loop
//! client == TLS, HTTP/2 ==== a task a stream -- socket pair -- a loop     each request is one of HTTP/1.1
//! origin == TLS, HTTP/1.1 == a task -- socket pair ----------- a loop
//! ```
//!
//! A loop of [`larder_http`] knows plain sockets and nothing of keys ([`larder_http::tls_bridge`]). Handshakes, records and frames are the
//! work of a runtime with threads of its own, so what they cost is not paid by those who ask in the clear; what is asked is answered by
//! the same loops, from the same store, by the same rules.
//!
//! | module | duty |
//! |---|---|
//! | [`Encrypted`] | what is served, started and ended with the server |
//! | `clients` | a client's connection: which protocol it speaks, and HTTP/1.1 |
//! | `http2` | HTTP/2: a stream is a request of HTTP/1.1 to a loop |
//! | `loop_connections` | connections to loops, made anew or used again |
//! | `pump` | octets from one connection to the other, and how they end |
//! | `origins` | connections of loops to origins |
//! | [`limits`] | what clients may do together, and what they did |
//!
//! Invariants
//! 1. What was cut is seen as cut. A body ends for a client only where the loop said that it is whole: else HTTP/1.1 over TLS is reset
//!    without `close_notify`, and a stream of HTTP/2 gets `RST_STREAM`. What an origin cut, by an end without `close_notify`, is no whole
//!    body for the loop.
//! 2. Nobody is read who is not drained: octets are taken from one side as the other takes them. So a slow client holds what the
//!    windows of its connection, a socket pair and the loop's own limits let it, however long a body is.
//! 3. Each wait has an end: handshakes, streams and clients that take nothing, connections without requests.
//!
//! Bounds of a connection: a place ([`larder_tls::ConnectionLimit`]); some 60 kB for HTTP/1.1; for HTTP/2, for each stream, a read, a frame's
//! queue and a socket pair, and the window of what clients send. Cost beside TLS itself: a copy into the socket pair and one out of it,
//! and for each of them a system call for some tens of kilobytes.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod clients;
mod http2;
pub mod limits;
mod loop_connections;
mod origins;
mod pump;
mod server;

pub use larder_tls::{Files, Trust};
pub use limits::Limits;
pub use origins::host_of;
pub use server::Encrypted;
