//! TLS for larder's servers: what DNS and HTTP have in common.
//!
//! | module | duty |
//! |---|---|
//! | `certificate` | the server's certificate, reloaded while it serves |
//! | [`listen`] | TCP connections up to the end of their handshakes |
//! | [`flood`] | frames of HTTP/2 that cost work and are no request |
//! | [`http2`] | a connection of HTTP/2: its requests, its idle time, its end |
//! | [`trust`] | the authorities that certify servers, where larder is the client |
//!
//! TLS is rustls', with ring; tokio runs it, on threads next to those that serve in the clear.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod certificate;
pub mod flood;
pub mod http2;
pub mod listen;
pub mod trust;

pub use certificate::{Certificate, Files};
pub use larder_serve::connection_limit::{ConnectionLimit, Permit};
pub use trust::Trust;
