//! UDP sockets to each upstream, or the number of its backend. They exist as long as the core does.

use crate::upstream_udp::UpstreamUdp;
use crate::zones::{Answers, Upstream};

/// How a core reaches one upstream.
#[expect(clippy::large_enum_variant, reason = "few are made, once, and nearly all are pools")]
pub(super) enum UpstreamSocket {
    /// A server.
    Server(UpstreamUdp),
    /// A thread of this process.
    Backend(Answers),
}

/// All upstreams, by number.
pub(super) struct UpstreamSockets(Vec<UpstreamSocket>);

impl UpstreamSockets {
    /// No sockets yet. `token_of` returns the first token of an upstream's sockets.
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

    /// The sockets or the backend of an upstream.
    pub fn get(&self, upstream: usize) -> Option<&UpstreamSocket> {
        self.0.get(upstream)
    }

    /// The sockets to a server.
    pub fn pool(&self, upstream: usize) -> Option<&UpstreamUdp> {
        self.0.get(upstream).and_then(UpstreamSocket::pool)
    }

    /// The sockets to a server.
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
