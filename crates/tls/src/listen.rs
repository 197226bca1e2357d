//! TCP connections up to the end of their handshakes.
//!
//! ```text
//! accept -> a place (Host::admit) -> handshake, within its time -> Host::serve -> closed, the place given back
//! ```
//!
//! A connection is a task. Where the system has no more descriptors, new ones wait a moment.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long nothing is accepted after the system could not.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves connections.
pub trait Host: Send + Sync + 'static {
    /// A connection's place. Dropped, it is given back.
    type Place: Send + 'static;

    /// A place for a connection, if there is one.
    fn admit(&self, peer: SocketAddr) -> Option<Self::Place>;

    /// How long a handshake may take.
    fn handshake_max(&self) -> Duration;

    /// A handshake failed, or took too long.
    fn failed(&self, place: Self::Place);

    /// Serves a connection to its end.
    fn serve(
        &self,
        place: Self::Place,
        stream: TlsStream<TcpStream>,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send;
}

/// Binds an address. Called within a runtime, to which the socket belongs.
pub fn bind(address: SocketAddr) -> io::Result<(tokio::net::TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((tokio::net::TcpListener::from_std(listener)?, address))
}

/// Accepts until it is told to stop.
pub async fn accept<H: Host>(
    host: Arc<H>,
    listener: tokio::net::TcpListener,
    acceptor: TlsAcceptor,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => return,
        };
        match accepted {
            Ok((socket, peer)) => {
                // A connection without a place is closed here.
                let Some(place) = host.admit(peer) else { continue };
                tokio::spawn(serve(host.clone(), place, socket, acceptor.clone(), stop.clone()));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn serve<H: Host>(
    host: Arc<H>,
    place: H::Place,
    socket: TcpStream,
    acceptor: TlsAcceptor,
    stop: watch::Receiver<bool>,
) {
    // Responses are written whole, so there is nothing to wait for. A socket for which this fails
    // is closed already.
    let _ = socket.set_nodelay(true);
    match timeout(host.handshake_max(), acceptor.accept(socket)).await {
        Ok(Ok(stream)) => host.serve(place, stream, stop).await,
        Ok(Err(_)) | Err(_) => host.failed(place),
    }
}
