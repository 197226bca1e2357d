//! DNS over TLS and DNS over HTTPS, after the handshakes of [`larder_tls::listen`].
//!
//! ```text
//! larder_tls::listen -> a permit (hub.rs) -> handshake -> tls.rs or https.rs -> closed, the permit returned
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use larder_dns::dnstap::Protocol;
use larder_tls::listen::Host;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use crate::hub::{Caller, Hub};
use crate::limits::Event;
use crate::{https, tls};

/// The protocol after a handshake.
#[derive(Debug, Clone)]
pub(crate) enum Transport {
    /// DNS over TLS.
    Tls,
    /// DNS over HTTPS at this path.
    Https(Arc<str>),
}

/// Serves the connections of one listener.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) hub: Arc<Hub>,
    pub(crate) transport: Transport,
}

impl Host for Listener {
    type Place = Caller;

    fn admit(&self, peer: SocketAddr) -> Option<Caller> {
        let protocol = match self.transport {
            Transport::Tls => Protocol::Tls,
            Transport::Https(_) => Protocol::Https,
        };
        self.hub.admit(protocol, peer)
    }

    fn handshake_max(&self) -> Duration {
        self.hub.limits.handshake
    }

    fn failed(&self, caller: Caller) {
        caller.note(Event::HandshakeFailed);
    }

    async fn serve(
        &self,
        caller: Caller,
        stream: TlsStream<TcpStream>,
        stop: watch::Receiver<bool>,
    ) {
        match &self.transport {
            Transport::Tls => tls::serve(&caller, stream, stop).await,
            Transport::Https(path) => https::serve(caller, stream, path.clone(), stop).await,
        }
    }
}
