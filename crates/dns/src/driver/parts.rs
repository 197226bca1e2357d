//! What a core is made of, put together by whoever starts it.

use std::net::TcpListener;
use std::sync::Arc;

use larder_io::epoll::Waker;
use larder_io::udp::UdpSocket;

use crate::backend::Backends;
use crate::clock::Clock;
use crate::core::Core;
use crate::core_tap::CoreTap;
use crate::metrics::Shared;
use crate::query_log::QueryLog;
use crate::reload::Follower;
use crate::side_query::Inbox;
use crate::upstream_udp::QuerySource;
use crate::{client_tcp, upstream_tcp, xdp};
use larder_serve::lifecycle::Lifecycle;

/// What a core is made of. [`Parts::bare`] has what there is no doing without; the rest is named
/// where it is more.
pub struct Parts {
    /// What decides.
    pub core: Core,
    /// Bound sockets to be asked by.
    pub listeners: Vec<UdpSocket>,
    /// Queues of network interfaces.
    pub queues: Vec<xdp::Queue>,
    /// Listening sockets for TCP.
    pub stream_listeners: Vec<TcpListener>,
    /// What streams of clients may do.
    pub client_tcp_limits: client_tcp::Limits,
    /// What is handed in from beside; its sender has the same waker.
    pub inbox: Option<Inbox>,
    /// What TCP to upstreams may do.
    pub upstream_tcp_limits: upstream_tcp::Limits,
    /// Those of the upstreams that are backends; the same waker.
    pub backends: Backends,
    /// How upstreams are asked.
    pub origin: QuerySource,
    /// The policy, and those that come after it.
    pub policy: Follower,
    /// The clock, the same for all cores.
    pub clock: Clock,
    /// Which of the cores this is, and where they publish what they counted.
    pub number: usize,
    /// See `number`.
    pub published: Arc<Shared>,
    /// Who is told of messages.
    pub tap: Option<CoreTap>,
    /// Who is told of answers to clients.
    pub log: Option<QueryLog>,
    /// Ends the loop; the waker is called when it has changed.
    pub lifecycle: Arc<Lifecycle>,
    /// Interrupts a wait.
    pub waker: Arc<Waker>,
}

impl Parts {
    /// The first core, or the only one, which nobody can ask yet and which asks servers alone,
    /// within the usual limits. Nobody is told of its messages.
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
            lifecycle,
            waker,
        }
    }
}
