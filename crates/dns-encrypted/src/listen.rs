//! TCP connections of DNS over TLS and DNS over HTTPS, up to the end of their handshakes.
//!
//! ```text
//! accept -> a place (hub.rs) -> handshake, within its time -> tls.rs or https.rs -> closed, the place given back
//! ```
//!
//! A connection is a task. Where the system has no more descriptors, new ones wait a moment.

use std::sync::Arc;
use std::time::Duration;

use larder_dns::dnstap::Protocol;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::hub::{Caller, Hub};
use crate::limits::Event;
use crate::{https, tls};

/// How long nothing is accepted after the system could not.
const PAUSE: Duration = Duration::from_millis(100);

/// What comes after a handshake.
#[derive(Debug, Clone)]
pub(crate) enum Transport {
    /// DNS over TLS.
    Tls,
    /// DNS over HTTPS, asked at this path.
    Https(Arc<str>),
}

impl Transport {
    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Transport::Tls => Protocol::Tls,
            Transport::Https(_) => Protocol::Https,
        }
    }
}

/// Accepts until told to stop.
pub(crate) async fn accept(
    hub: Arc<Hub>,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    transport: Transport,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => return,
        };
        match accepted {
            Ok((socket, peer)) => {
                // One that has no place is closed here.
                let Some(caller) = hub.admit(transport.protocol(), peer) else { continue };
                tokio::spawn(serve(
                    caller,
                    socket,
                    acceptor.clone(),
                    transport.clone(),
                    stop.clone(),
                ));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn serve(
    caller: Caller,
    socket: TcpStream,
    acceptor: TlsAcceptor,
    transport: Transport,
    stop: watch::Receiver<bool>,
) {
    // Answers are written whole, so there is nothing to wait for. A socket that cannot be told is closed already.
    let _ = socket.set_nodelay(true);
    let handshake = timeout(caller.hub.limits.handshake, acceptor.accept(socket));
    let Ok(Ok(stream)) = handshake.await else {
        caller.note(Event::HandshakeFailed);
        return;
    };
    match transport {
        Transport::Tls => tls::serve(&caller, stream, stop).await,
        Transport::Https(path) => https::serve(caller, stream, path, stop).await,
    }
}
