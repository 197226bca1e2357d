//! Connections of event loops to origins.
//!
//! ```text
//! Origins::connect -> a socket pair -> TCP and handshake, within their time -> one byte to the event loop -> copied both ways
//!                                   -> failed: closed: for the event loop, the origin cannot be reached
//! ```
//!
//! An origin needs a valid certificate for the host of its URL. If it has none, larder sends it no
//! request, and counts that. ALPN states HTTP/1.1. An attacker may have cut a connection that ends
//! without `close_notify`, so its close state is not whole.
//!
//! Bounds: one for each connection of event loops to origins, some 100 kB each.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use larder_http::handoff::CloseState;
use larder_http::options::OriginAddress;
use larder_tls::Trust;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::limits::{Counters, Event, InForce};
use crate::loop_connections::pair;
use crate::pump::{End, copy};

/// How long the other side may take to close after one side has closed.
const CLOSING: Duration = Duration::from_secs(60);

/// The name that an origin's certificate must have: the host of its URL, a name or an address. The
/// error states what is wrong.
pub fn host_of(origin: &OriginAddress) -> Result<ServerName<'static>, String> {
    let host = match origin.name.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => &origin.name,
    };
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned())
        .map_err(|_| format!("{host:?} is no name that a certificate can be for"))
}

/// How connections to origins are made.
#[derive(Debug)]
pub(crate) struct Origins {
    tls: Option<Arc<ClientConfig>>,
    limits: InForce,
    counters: Arc<Counters>,
}

impl Origins {
    pub(crate) fn new(
        trust: Option<&Trust>,
        limits: InForce,
        counters: Arc<Counters>,
    ) -> Result<Origins, String> {
        let tls = trust.map(|it| it.config(b"http/1.1", "origin-ca")).transpose()?;
        Ok(Origins { tls: tls.map(Arc::new), limits, counters })
    }

    /// Begins a connection. The caller is within the runtime.
    pub(crate) fn connect(
        &self,
        origin: &OriginAddress,
    ) -> io::Result<(StdUnixStream, CloseState)> {
        let tls = self.tls.clone().ok_or(io::ErrorKind::Unsupported)?;
        let (address, name) = (origin.address, host_of(origin).map_err(io::Error::other)?);
        let (ours, theirs) = pair()?;
        let ours = UnixStream::from_std(ours)?;
        let close_state = CloseState::default();
        let (counters, its) = (self.counters.clone(), close_state.clone());
        let limits = self.limits.now();
        tokio::spawn(async move {
            let connected = timeout(limits.connect, shake(address, name, tls)).await;
            let event = match connected {
                Ok(Ok(stream)) => {
                    counters.note(Event::OriginShaken);
                    return converse(stream, ours, &its, limits.stall, &counters).await;
                }
                Ok(Err(error)) if is_unproven(&error) => Event::OriginUnproven,
                Ok(Err(_)) | Err(_) => Event::OriginUnreachable,
            };
            counters.note(event);
        });
        Ok((theirs, close_state))
    }
}

async fn shake(
    address: SocketAddr,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(tls).connect(name, stream).await
}

/// True if the certificate is not valid.
fn is_unproven(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}

/// Copies both ways until the origin or the event loop has closed.
async fn converse(
    stream: TlsStream<TcpStream>,
    mut local: UnixStream,
    close_state: &CloseState,
    stall: Duration,
    counters: &Counters,
) {
    if local.write_all(&[0]).await.is_err() {
        return;
    }
    let (mut from_origin, mut to_origin) = tokio::io::split(stream);
    let (mut from_loop, mut to_loop) = local.into_split();
    let up = async {
        let end = copy(&mut from_loop, &mut to_origin, None, Some(stall)).await;
        if end == End::Whole {
            let _ = timeout(CLOSING, to_origin.shutdown()).await;
        }
        end
    };
    let down = async {
        let end = copy(&mut from_origin, &mut to_loop, None, None).await;
        match end {
            End::Whole => close_state.set_whole(),
            End::Cut => counters.note(Event::OriginCut),
            End::Gone | End::Stalled => {}
        }
        let _ = to_loop.shutdown().await;
        end
    };
    tokio::pin!(up, down);
    tokio::select! {
        // The event loop has closed, and reads no more.
        end = &mut up => if end == End::Gone {
            // The origin receives no more, and may have stated why. Nothing shows any more that the
            // event loop has closed.
            let _ = timeout(CLOSING, &mut down).await;
        },
        // This end stays open until the event loop has closed its own. Else bytes of the event loop
        // could be left unread here, which would be a reset.
        _ = &mut down => {
            let _ = timeout(CLOSING, &mut up).await;
        }
    }
}
