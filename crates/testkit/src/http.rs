//! HTTP/1.1 for tests: connections, clients, and origins that respond by hand or by a rule.
#![expect(clippy::unwrap_used, reason = "tests")]

mod client;
mod connection;
mod origin;

pub use client::{Response, fetch, request};
pub use connection::{Connection, End, Head};
pub use origin::{Origin, answer, chunk};
