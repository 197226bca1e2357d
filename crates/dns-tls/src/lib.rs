//! DNS over TLS (RFC 7858), HTTPS (RFC 8484) and QUIC (RFC 9250) for `larder dns`.
//!
//! ```text
//! client == TLS, HTTP/2, QUIC == a task of a runtime -> hub.rs -> larder_dns::side_query -> a core, which responds
//! ```
//!
//! | module | duty |
//! |---|---|
//! | [`Encrypted`] | the listeners, started and ended with the server |
//! | `listen` | DNS over TLS and HTTPS after the handshake |
//! | `tls`, `https`, `quic` | serve a connection |
//! | [`upstream`] | upstreams over the same transports |
//! | `hub` | passes queries to the cores, and responses back |
//! | [`limits`] | limits and counters of clients |
//! | [`padding`] | hides the lengths of messages |
//!
//! Certificates, and TCP connections until the end of their handshakes, are in [`larder_tls`].
//!
//! To a core these are only side queries. TLS is rustls', HTTP/2 h2's, QUIC quinn's, and tokio runs
//! them in threads of their own, so handshakes do not slow down plain queries.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod https;
mod hub;
pub mod limits;
mod listen;
pub mod padding;
mod quic;
mod server;
mod tls;
pub mod upstream;

pub use larder_tls::Files;
pub use limits::Limits;
pub use server::{Encrypted, HTTPS_PATH};
