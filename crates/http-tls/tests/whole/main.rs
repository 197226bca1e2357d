//! HTTP over TLS, HTTP/2 and origins over TLS, through real sockets on the loopback.
#![expect(clippy::unwrap_used, reason = "tests")]

mod http1;
mod http2;
mod origins;
mod world;
