//! DNS over TLS (RFC 7858), HTTPS (RFC 8484) and QUIC (RFC 9250) for larder's DNS server, beside
//! its cores.
//!
//! ```text
//! client == TLS, HTTP/2, QUIC == a task of a runtime -> hub.rs -> larder_dns::side_query -> a core, which answers
//! ```
//!
//! | module | duty |
//! |---|---|
//! | [`Encrypted`] | what is served, started and ended with the server |
//! | `listen` | what comes after the handshakes of a listener |
//! | `tls`, `https`, `quic` | one connection each, to its end |
//! | [`upstream`] | servers that are asked over the same transports |
//! | `hub` | the way of a question to a core, and of its answer back |
//! | [`limits`] | what clients may do together, and what they did |
//! | [`padding`] | lengths that say less |
//!
//! Certificates, and TCP connections up to the end of their handshakes, are [`larder_tls`]'.
//!
//! A core knows nothing of all this but that a question came from beside. TLS is rustls', HTTP/2
//! h2's, QUIC quinn's, and tokio runs them, on threads of their own: what handshakes cost is not
//! paid by those who ask in the clear.
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
