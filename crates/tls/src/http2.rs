//! A connection of HTTP/2, from its preface to its end.
//!
//! ```text
//! open -> requests, a task each -> idle, or the server drains -> GOAWAY -> all requests ended -> closed
//! ```
//!
//! Bounds: requests at once ([`Streams::streams_max`]); one that was reset counts until its task
//! has ended, and above the limit new ones are reset.

use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::server::TlsStream;

use crate::flood::{Counted, is_flood};

/// Answers the requests of a connection.
pub trait Streams {
    /// Why a request beyond the limit is reset.
    const REFUSAL: Reason;

    /// Requests at once.
    fn streams_max(&self) -> usize;

    /// How long there may be no request now.
    fn idle(&self) -> Duration;

    /// A request has come, whether it is accepted or not.
    fn came(&self) {}

    /// The client broke the rules.
    fn violated(&self);

    /// Begins the task that answers a request.
    fn begin(
        &self,
        tasks: &mut JoinSet<()>,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
    );
}

/// Serves a connection to its end.
pub async fn serve<S: Streams>(
    streams: S,
    mut connection: Connection<Counted<TlsStream<TcpStream>>, Bytes>,
    mut stop: watch::Receiver<bool>,
) {
    let mut tasks = JoinSet::new();
    let mut received = Instant::now();
    let mut is_ending = false;
    loop {
        tokio::select! {
            next = connection.accept() => match next {
                Some(Ok((request, mut respond))) => {
                    streams.came();
                    if tasks.len() >= streams.streams_max() {
                        streams.violated();
                        respond.send_reset(S::REFUSAL);
                        continue;
                    }
                    received = Instant::now();
                    streams.begin(&mut tasks, request, respond);
                }
                Some(Err(error)) => {
                    // Others are connections that were lost.
                    if !error.is_io() || error.get_io().is_some_and(is_flood) {
                        streams.violated();
                    }
                    return;
                }
                None => return,
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => received = Instant::now(),
            () = sleep_until(received + streams.idle()), if tasks.is_empty() => {
                if is_ending {
                    return;
                }
                // The client learns by GOAWAY that it may ask elsewhere, and gets time once more to
                // receive it.
                connection.graceful_shutdown();
                (is_ending, received) = (true, Instant::now());
            }
            _ = stop.changed(), if !is_ending => {
                connection.graceful_shutdown();
                (is_ending, received) = (true, Instant::now());
            }
        }
    }
}
