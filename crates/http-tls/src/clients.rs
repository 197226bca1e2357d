//! The clients with TLS: what all their connections share, and what one that was admitted holds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use larder_http::tls_bridge::Acceptor;
use larder_serve::metrics::Metric;
use larder_tls::{ConnectionLimit, Permit};

use crate::limits::{Counters, Event, InForce, Limits};

/// The state that all connections of clients share.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) acceptor: Acceptor,
    connections: Arc<ConnectionLimit>,
    pub(crate) counters: Arc<Counters>,
    limits: InForce,
}

/// A connection that was admitted.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) clients: Arc<Clients>,
    pub(crate) peer: SocketAddr,
    /// The limits that were in force when it began.
    pub(crate) limits: Arc<Limits>,
    _permit: Permit,
}

impl Caller {
    pub(crate) fn note(&self, event: Event) {
        self.clients.counters.note(event);
    }

    /// How long it may now be without a request.
    pub(crate) fn idle(&self) -> Duration {
        self.clients.connections.patience(self.limits.idle)
    }
}

impl Clients {
    pub(crate) fn new(acceptor: Acceptor, counters: Arc<Counters>, limits: InForce) -> Clients {
        let connections = Arc::new(ConnectionLimit::new(limits.now().connections_max));
        Clients { acceptor, connections, counters, limits }
    }

    /// Admits a connection, unless that is one too many: in all, or from its address.
    pub(crate) fn admit(self: &Arc<Self>, peer: SocketAddr) -> Option<Caller> {
        let limits = self.limits();
        let Some(permit) = self.connections.admit(peer.ip(), limits.per_client_max) else {
            self.counters.note(Event::Refused);
            return None;
        };
        self.counters.note(Event::Opened);
        Some(Caller { clients: self.clone(), peer, limits, _permit: permit })
    }

    /// The limits in force.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.limits.now()
    }

    /// Open connections.
    pub(crate) fn open(&self) -> usize {
        self.connections.open()
    }

    pub(crate) fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        let help = "Connections of clients over TLS that are open";
        let open = Metric::new("tls_connections", help, self.open() as f64);
        std::iter::once(open).chain(self.counters.metrics())
    }
}
