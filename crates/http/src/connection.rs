//! What connections need to know of the settings: where an origin is, how long to wait, how much to take.

use std::net::SocketAddr;

/// An origin: a server that larder sends requests to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginAddress {
    /// Its address.
    pub address: SocketAddr,
    /// Its name in messages: host and port.
    pub name: String,
    /// Requests are sent over TLS, by [`Options::tls_bridge`](crate::options::Options::tls_bridge).
    pub is_secure: bool,
}

/// Timeouts, milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the next request on a connection.
    pub idle_ms: u64,
    /// At most this long once the server drains.
    pub drain_idle_ms: u64,
    /// For the rest of a request's headers, from the first byte on.
    pub head_ms: u64,
    /// For a client to receive something, or to send more of its body.
    pub client_ms: u64,
    /// For a connection to an origin.
    pub connect_ms: u64,
    /// For the headers of its response.
    pub first_byte_ms: u64,
    /// For more of its body.
    pub between_bytes_ms: u64,
    /// For memory to store a body in, once all bodies that can be evicted are.
    pub memory_ms: u64,
    /// For the next request on an unused connection to an origin.
    pub origin_idle_ms: u64,
}

impl Default for Patience {
    /// Mostly the defaults of Varnish.
    fn default() -> Patience {
        Patience {
            idle_ms: 60_000,
            drain_idle_ms: 2_000,
            head_ms: 10_000,
            client_ms: 60_000,
            connect_ms: 3_500,
            first_byte_ms: 60_000,
            between_bytes_ms: 60_000,
            memory_ms: 1_000,
            origin_idle_ms: 30_000,
        }
    }
}

/// The settings that apply to encrypted connections of clients as to the others.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// How long to wait.
    pub patience: Patience,
    /// Connections of one client at once; 0: no limit.
    pub per_address: u32,
    /// Bytes of a request's headers.
    pub head_bytes_max: usize,
}
