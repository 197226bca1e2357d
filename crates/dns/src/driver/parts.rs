//! The parts of a core.

use std::net::TcpListener;
use std::sync::Arc;

use larder_io::epoll::Waker;
use larder_io::udp::UdpSocket;

use crate::backend::Backends;
use crate::clock::Clock;
use crate::core::Core;
use crate::core_tap::CoreTap;
use crate::metrics::Shared;
use crate::page::Notes;
use crate::query_log::QueryLog;
use crate::reload::Follower;
use crate::side_query::Inbox;
use crate::upstream_udp::QuerySource;
use crate::{client_tcp, upstream_tcp, xdp};
use larder_serve::lifecycle::Lifecycle;

/// The parts of a core. [`Parts::bare`] has the necessary ones.
pub struct Parts {
    /// The core.
    pub core: Core,
    /// Listening UDP sockets.
    pub listeners: Vec<UdpSocket>,
    /// AF_XDP queues.
    pub queues: Vec<xdp::Queue>,
    /// Listening TCP sockets.
    pub stream_listeners: Vec<TcpListener>,
    /// Limits of TCP connections from clients.
    pub client_tcp_limits: client_tcp::Limits,
    /// Queries of other transports; the sender has the same waker.
    pub inbox: Option<Inbox>,
    /// Limits of TCP connections to upstreams.
    pub upstream_tcp_limits: upstream_tcp::Limits,
    /// Backends among the upstreams; with the same waker.
    pub backends: Backends,
    /// Options of sockets to upstreams.
    pub origin: QuerySource,
    /// The policy, and its replacements.
    pub policy: Follower,
    /// The clock, the same for all cores.
    pub clock: Clock,
    /// The number of this core, and where cores publish their counters.
    pub number: usize,
    /// See `number`.
    pub published: Arc<Shared>,
    /// Records messages with dnstap.
    pub tap: Option<CoreTap>,
    /// Logs queries.
    pub log: Option<QueryLog>,
    /// Notes responses for the page.
    pub notes: Option<Notes>,
    /// Ends the event loop; the waker is called after a change.
    pub lifecycle: Arc<Lifecycle>,
    /// Interrupts a wait.
    pub waker: Arc<Waker>,
}

impl Parts {
    /// The first or only core, without clients and backends, with default limits, without dnstap
    /// and query log.
    pub fn bare(
        core: Core,
        policy: Follower,
        clock: Clock,
        published: Arc<Shared>,
        lifecycle: Arc<Lifecycle>,
        waker: Arc<Waker>,
    ) -> Parts {
        Parts {
            core,
            listeners: Vec::new(),
            queues: Vec::new(),
            stream_listeners: Vec::new(),
            client_tcp_limits: client_tcp::Limits::default(),
            inbox: None,
            upstream_tcp_limits: upstream_tcp::Limits::default(),
            backends: Backends::new(&[], 0, 0, waker.clone()),
            origin: QuerySource::default(),
            policy,
            clock,
            number: 0,
            published,
            tap: None,
            log: None,
            notes: None,
            lifecycle,
            waker,
        }
    }
}
