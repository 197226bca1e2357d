//! The upstream_sockets to upstreams: sockets to a server, or the number of a backend.
//!
//! There is one for each upstream, at the place of its number, as long as there is the core.

use crate::upstream_udp::UpstreamUdp;
use crate::zones::{Answers, Upstream};

/// The way to one upstream.
#[expect(clippy::large_enum_variant, reason = "few are made, once, and nearly all are pools")]
pub(super) enum UpstreamSocket {
    /// Sockets to it.
    Server(UpstreamUdp),
    /// It is a thread of this process.
    Backend(Answers),
}

/// Those to all upstreams.
pub(super) struct UpstreamSockets(Vec<UpstreamSocket>);

impl UpstreamSockets {
    /// Without sockets yet; their tokens begin with what `token_of` says for the number of an
    /// upstream.
    pub fn new(
        upstreams: impl Iterator<Item = Upstream>,
        token_of: impl Fn(usize) -> u64,
    ) -> UpstreamSockets {
        let way = |(number, upstream)| match upstream {
            Upstream::Server(address) => {
                UpstreamSocket::Server(UpstreamUdp::new(address, token_of(number)))
            }
            Upstream::Backend(answers) => UpstreamSocket::Backend(answers),
        };
        UpstreamSockets(upstreams.enumerate().map(way).collect())
    }

    /// The way to an upstream.
    pub fn get(&self, upstream: usize) -> Option<&UpstreamSocket> {
        self.0.get(upstream)
    }

    /// The sockets to an upstream that is a server.
    pub fn pool(&self, upstream: usize) -> Option<&UpstreamUdp> {
        self.0.get(upstream).and_then(UpstreamSocket::pool)
    }

    /// The sockets to an upstream that is a server.
    pub fn pool_mut(&mut self, upstream: usize) -> Option<&mut UpstreamUdp> {
        self.0.get_mut(upstream).and_then(UpstreamSocket::pool_mut)
    }

    /// The sockets to all servers.
    pub fn pools(&self) -> impl Iterator<Item = &UpstreamUdp> {
        self.0.iter().filter_map(UpstreamSocket::pool)
    }

    /// The sockets to all servers.
    pub fn pools_mut(&mut self) -> impl Iterator<Item = &mut UpstreamUdp> {
        self.0.iter_mut().filter_map(UpstreamSocket::pool_mut)
    }
}

impl UpstreamSocket {
    fn pool(&self) -> Option<&UpstreamUdp> {
        match self {
            UpstreamSocket::Server(pool) => Some(pool),
            UpstreamSocket::Backend(_) => None,
        }
    }

    fn pool_mut(&mut self) -> Option<&mut UpstreamUdp> {
        match self {
            UpstreamSocket::Server(pool) => Some(pool),
            UpstreamSocket::Backend(_) => None,
        }
    }
}
