//! A client's connection after its handshake: HTTP/2 where ALPN states it, else HTTP/1.1, whose
//! bytes an event loop reads.
//!
//! ```text
//! both directions copied -> the client ends by close_notify: the event loop sees an end, and continues to respond
//!                        -> the client ends without it: it has disconnected, and its request is aborted
//!                        -> all responses are sent: close_notify; later bytes of the client are discarded for a while
//!                        -> a response was aborted: reset
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use larder_io::tcp::reset_on_close;
use larder_tls::listen::Host;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::clients::{Caller, Clients};
use crate::http2;
use crate::limits::Event;
use crate::loop_connections::LoopConnection;
use crate::pump::{End, copy};

/// ALPN tokens, the preferred one first.
pub(crate) const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// How long a client may send after its last response: longer than the event loop waits for it.
const LINGER: Duration = Duration::from_secs(2);

/// Serves the connections that a listener accepts.
#[derive(Debug)]
pub(crate) struct Listener(pub(crate) Arc<Clients>);

impl Host for Listener {
    type Place = Caller;

    fn admit(&self, peer: SocketAddr) -> Option<Caller> {
        self.0.admit(peer)
    }

    fn handshake_max(&self) -> Duration {
        self.0.limits().handshake
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
        caller.note(Event::Shaken);
        if stream.get_ref().1.alpn_protocol() == Some(ALPN[0]) {
            caller.note(Event::Http2);
            http2::serve(caller, stream, stop).await;
        } else {
            http1(&caller, stream).await;
        }
    }
}

/// Copies both directions.
async fn http1(caller: &Caller, mut stream: TlsStream<TcpStream>) {
    let Ok(connection) = LoopConnection::connect(&caller.clients.acceptor, caller.peer, false, &[])
    else {
        return;
    };
    let stall = caller.limits.stall;
    let LoopConnection { stream: local, close_state, peer_close_state, .. } = connection;
    let (mut from_loop, mut to_loop) = local.into_split();
    let end = {
        let (mut from_client, mut to_client) = tokio::io::split(&mut stream);
        let up = async {
            // The event loop has its own limit for a client that sends nothing.
            if copy(&mut from_client, &mut to_loop, None, None).await == End::Whole {
                peer_close_state.set_whole();
            }
            // Bodies of requests state their length, so any end is enough for the event loop.
            let _ = to_loop.shutdown().await;
        };
        let down = async {
            let end = copy(&mut from_loop, &mut to_client, Some(&close_state), Some(stall)).await;
            if end == End::Whole {
                // A client that has stopped reading does not get it.
                let _ = timeout(stall, to_client.shutdown()).await;
            }
            end
        };
        tokio::pin!(up, down);
        let mut is_up = true;
        let end = loop {
            tokio::select! {
                end = &mut down => break end,
                () = &mut up, if is_up => is_up = false,
            }
        };
        if is_up && end == End::Whole {
            // A socket closed with unread bytes is reset, and the client loses the response.
            let _ = timeout(LINGER, &mut up).await;
        }
        end
    };
    match end {
        End::Whole => return,
        End::Gone => {}
        End::Cut => caller.note(Event::Reset),
        End::Stalled => caller.note(Event::TimedOut),
    }
    // If it cannot be reset, it is closed without `close_notify`.
    let _ = reset_on_close(stream.get_ref().0);
}
