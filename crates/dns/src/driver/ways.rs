//! The ways to upstreams: sockets to a server, or the number of an answerer.
//!
//! There is one for each upstream, at the place of its number, as long as there is the core.

use crate::pool::Pool;
use crate::zones::{Answers, Upstream};

/// The way to one upstream.
#[expect(clippy::large_enum_variant, reason = "few are made, once, and nearly all are pools")]
pub(super) enum Way {
    /// Sockets to it.
    Server(Pool),
    /// It is a thread of this process.
    Answerer(Answers),
}

/// Those to all upstreams.
pub(super) struct Ways(Vec<Way>);

impl Ways {
    /// Without sockets yet; their tokens begin with what `token_of` says for the number of an upstream.
    pub fn new(upstreams: impl Iterator<Item = Upstream>, token_of: impl Fn(usize) -> u64) -> Ways {
        let way = |(number, upstream)| match upstream {
            Upstream::Server(address) => Way::Server(Pool::new(address, token_of(number))),
            Upstream::Answerer(answers) => Way::Answerer(answers),
        };
        Ways(upstreams.enumerate().map(way).collect())
    }

    /// The way to an upstream.
    pub fn get(&self, upstream: usize) -> Option<&Way> {
        self.0.get(upstream)
    }

    /// The sockets to an upstream that is a server.
    pub fn pool(&self, upstream: usize) -> Option<&Pool> {
        self.0.get(upstream).and_then(Way::pool)
    }

    /// The sockets to an upstream that is a server.
    pub fn pool_mut(&mut self, upstream: usize) -> Option<&mut Pool> {
        self.0.get_mut(upstream).and_then(Way::pool_mut)
    }

    /// The sockets to all servers.
    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.0.iter().filter_map(Way::pool)
    }

    /// The sockets to all servers.
    pub fn pools_mut(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.0.iter_mut().filter_map(Way::pool_mut)
    }
}

impl Way {
    fn pool(&self) -> Option<&Pool> {
        match self {
            Way::Server(pool) => Some(pool),
            Way::Answerer(_) => None,
        }
    }

    fn pool_mut(&mut self) -> Option<&mut Pool> {
        match self {
            Way::Server(pool) => Some(pool),
            Way::Answerer(_) => None,
        }
    }
}
