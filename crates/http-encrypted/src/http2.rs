//! HTTP/2: each stream is one request of HTTP/1.1 to a loop, over a connection of a pool.
//!
//! ```text
//! HEADERS    -> request.rs: a head -> a loop
//! DATA       -> as it is, or in chunks -> the loop; the client's window grows as the loop takes it
//! a loop     -> response.rs: heads -> HEADERS, also those below 200; body -> DATA, as the client's window has room
//!            -> cut -> RST_STREAM
//! ```
//!
//! | module | duty |
//! |---|---|
//! | `request` | a request's head as HTTP/1.1 says it, or why not |
//! | `response` | heads and bodies of HTTP/1.1 for HTTP/2 |
//! | `exchange` | one stream, to its end |
//!
//! Bounds: streams of a connection, which HTTP/2 tells the client; one that has been reset counts until its task has ended, and beyond
//! the limit new ones are reset. A stream holds a read of a body, [`SEND_BYTES`] that its client's window has room for and its socket
//! has not, and a socket pair; all streams together [`WINDOW_BYTES`] of what the client sent and loops did not take. A connection
//! without requests is told to go after the idle time, whatever else it sends. Floods of resets, settings and empty frames end the
//! connection in h2.

mod exchange;
mod request;
mod response;

use std::sync::Arc;

use bytes::Bytes;
use h2::Reason;
use h2::server::Builder;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::server::TlsStream;

use crate::clients::Caller;
use crate::inner::Pool;
use crate::limits::Event;

/// Octets that a client may send before a loop has taken any: on one stream, and on a connection.
const WINDOW_STREAM_BYTES: u32 = 256 << 10;
const WINDOW_BYTES: u32 = 1 << 20;

/// Octets of a stream that are queued for the client's socket.
const SEND_BYTES: usize = 64 << 10;

/// Octets of a frame of ours, and of theirs.
const FRAME_BYTES: u32 = 16 << 10;

/// Serves a connection to its end.
pub(crate) async fn serve(
    caller: Caller,
    stream: TlsStream<TcpStream>,
    mut stop: watch::Receiver<bool>,
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
    let handshake = timeout(limits.handshake, builder.handshake::<_, Bytes>(stream));
    let Ok(Ok(mut connection)) = handshake.await else {
        return caller.note(Event::HandshakeFailed);
    };
    let pool = Arc::new(Pool::new(clients.door.clone(), caller.peer));
    let mut exchanges = JoinSet::new();
    let mut heard = Instant::now();
    let mut is_ending = false;
    loop {
        tokio::select! {
            next = connection.accept() => match next {
                Some(Ok((request, mut respond))) => {
                    caller.note(Event::Stream);
                    heard = Instant::now();
                    if exchanges.len() >= limits.streams_max as usize {
                        caller.note(Event::Violated);
                        respond.send_reset(Reason::REFUSED_STREAM);
                        continue;
                    }
                    let (clients, pool) = (clients.clone(), pool.clone());
                    exchanges.spawn(exchange::exchange(clients, limits.stall, pool, request, respond));
                }
                Some(Err(error)) => {
                    // Others are connections that were lost.
                    if !error.is_io() {
                        caller.note(Event::Violated);
                    }
                    return;
                }
                None => return,
            },
            Some(_) = exchanges.join_next(), if !exchanges.is_empty() => heard = Instant::now(),
            () = sleep_until(heard + caller.idle()), if exchanges.is_empty() => {
                if is_ending {
                    return;
                }
                // The client is told that it may ask elsewhere, and given time once more to hear it.
                connection.graceful_shutdown();
                (is_ending, heard) = (true, Instant::now());
            }
            _ = stop.changed(), if !is_ending => {
                connection.graceful_shutdown();
                (is_ending, heard) = (true, Instant::now());
            }
        }
    }
}
