//! HTTP/2: each stream is one request of HTTP/1.1 to an event loop, over a connection of a pool.
//!
//! ```text
//! HEADERS         -> request.rs: headers of HTTP/1.1 -> an event loop
//! DATA            -> as it is, or in chunks -> the event loop; the client's window grows as it is received
//! an event loop   -> response.rs: headers -> HEADERS, also those below 200; body -> DATA, as the client's window has room
//!                 -> cut -> RST_STREAM
//! ```
//!
//! | module | duty |
//! |---|---|
//! | `request` | the headers of a request in HTTP/1.1, or an error |
//! | `response` | headers and bodies of HTTP/1.1 for HTTP/2 |
//! | `exchange` | one stream, to its end |
//!
//! Bounds: streams of a connection, a limit that HTTP/2 sends to the client. A reset stream counts
//! until its task has ended; above the limit new ones are reset. A stream holds a read of a body,
//! [`SEND_BYTES`] that fit the client's window and not its socket, and a socket pair. All streams
//! together hold [`WINDOW_BYTES`] that the client sent and event loops did not receive yet. A
//! connection without requests is closed after the idle time, whatever else it sends. h2 ends a
//! connection for floods of resets and empty frames, and [`larder_tls::flood`] for floods of PING,
//! SETTINGS, PRIORITY and unknown frames.

mod exchange;
mod request;
mod response;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use larder_tls::flood::Counted;
use larder_tls::http2::{self, Streams};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::clients::{Caller, Clients};
use crate::limits::{Event, Limits};
use crate::loop_connections::Pool;

/// Bytes that a client may send before an event loop has received any: on one stream, and on a
/// connection.
const WINDOW_STREAM_BYTES: u32 = 256 << 10;
const WINDOW_BYTES: u32 = 1 << 20;

/// Bytes of a stream that are queued for the client's socket.
const SEND_BYTES: usize = 64 << 10;

/// Bytes of a frame, in both directions.
const FRAME_BYTES: u32 = 16 << 10;

/// Serves a connection to its end.
pub(crate) async fn serve(
    caller: Caller,
    stream: TlsStream<TcpStream>,
    stop: watch::Receiver<bool>,
) {
    let clients = caller.clients.clone();
    let limits = caller.limits.clone();
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(limits.head_bytes_max)
        .initial_window_size(WINDOW_STREAM_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_send_buffer_size(SEND_BYTES);
    let handshake = timeout(limits.handshake, builder.handshake::<_, Bytes>(Counted::new(stream)));
    let Ok(Ok(connection)) = handshake.await else {
        return caller.note(Event::HandshakeFailed);
    };
    let pool = Arc::new(Pool::new(clients.acceptor.clone(), caller.peer));
    http2::serve(Requests { caller, clients, limits, pool }, connection, stop).await;
}

/// A connection's requests.
struct Requests {
    caller: Caller,
    clients: Arc<Clients>,
    limits: Arc<Limits>,
    pool: Arc<Pool>,
}

impl Streams for Requests {
    const REFUSAL: Reason = Reason::REFUSED_STREAM;

    fn streams_max(&self) -> usize {
        self.limits.streams_max as usize
    }

    fn idle(&self) -> Duration {
        self.caller.idle()
    }

    fn came(&self) {
        self.caller.note(Event::Stream);
    }

    fn violated(&self) {
        self.caller.note(Event::Violated);
    }

    fn begin(
        &self,
        tasks: &mut JoinSet<()>,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
    ) {
        let (clients, pool) = (self.clients.clone(), self.pool.clone());
        tasks.spawn(exchange::exchange(clients, self.limits.stall, pool, request, respond));
    }
}
