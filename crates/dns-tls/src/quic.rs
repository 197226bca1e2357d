//! DNS over QUIC (RFC 9250): each stream that a client opens has one query and its response.
//!
//! | the client | gets |
//! |---|---|
//! | opens a stream with one query of ID 0, and finishes it | the response, and the stream's end |
//! | sends another ID, a wrong length, a second query, edns-tcp-keepalive, a stream of one direction | the connection is closed: DOQ_PROTOCOL_ERROR, or QUIC's own error |
//! | does not finish its query in time | the stream is stopped and reset: DOQ_REQUEST_CANCELLED |
//! | sends a query that gets no response | the stream is reset: DOQ_INTERNAL_ERROR |
//! | connects beyond the limits | a refusal; from half of the limit on it must first prove its address |
//!
//! Bounds: QUIC's flow control limits streams and bytes of a connection. A connection that sends
//! nothing for the idle time is dropped; PINGs keep one alive, but not beyond `unasked`, four idle
//! times without a query. Cost: a task for a query.

use std::sync::Arc;

use larder_dns::dnstap::Protocol;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Connection, Endpoint, IdleTimeout, RecvStream, SendStream, TransportConfig, VarInt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::hub::{Caller, Hub};
use crate::limits::{Event, Limits};
use crate::padding::wishes;

/// Codes of RFC 9250, section 8.4.
mod code {
    pub const NO_ERROR: u32 = 0;
    pub const INTERNAL_ERROR: u32 = 1;
    pub const PROTOCOL_ERROR: u32 = 2;
    pub const REQUEST_CANCELLED: u32 = 3;
}

/// Bytes of the length before a message.
const LENGTH_BYTES: usize = 2;

/// Bytes of the longest message, with its length.
const STREAM_BYTES_MAX: usize = LENGTH_BYTES + u16::MAX as usize;

/// Bytes of all streams together that a client may send before they are read.
const CONNECTION_BYTES_MAX: u32 = 4 * STREAM_BYTES_MAX as u32;

/// Idle times that a connection may last without a query.
const IDLE_TIMES: u32 = 4;

/// Limits of a connection.
pub(crate) fn config(
    tls: rustls::ServerConfig,
    limits: &Limits,
) -> Result<quinn::ServerConfig, String> {
    let wrong = |what: &str| format!("QUIC cannot be set up: {what}");
    let crypto = QuicServerConfig::try_from(tls).map_err(|error| wrong(&error.to_string()))?;
    let mut transport = TransportConfig::default();
    let streams_max = u32::try_from(limits.unanswered_max).unwrap_or(u32::MAX);
    let idle = IdleTimeout::try_from(limits.idle).map_err(|error| wrong(&error.to_string()))?;
    transport
        .max_concurrent_bidi_streams(streams_max.into())
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window((STREAM_BYTES_MAX as u32).into())
        .receive_window(CONNECTION_BYTES_MAX.into())
        .send_window(u64::from(CONNECTION_BYTES_MAX))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(Some(idle));
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// Accepts connections until `stop`.
pub(crate) async fn accept(hub: Arc<Hub>, endpoint: Endpoint, mut stop: watch::Receiver<bool>) {
    loop {
        let incoming = tokio::select! {
            Some(incoming) = endpoint.accept() => incoming,
            _ = stop.changed() => break,
            else => return,
        };
        // Near the limit, a connection is accepted only from an address that the client has proved.
        let is_scarce = hub.open() * 2 >= hub.limits.connections_max;
        if is_scarce && !incoming.remote_address_validated() && incoming.may_retry() {
            // It cannot fail here, since the incoming connection may retry.
            let _ = incoming.retry();
            continue;
        }
        let Some(caller) = hub.admit(Protocol::Quic, incoming.remote_address()) else {
            incoming.refuse();
            continue;
        };
        tokio::spawn(serve(caller, incoming, stop.clone()));
    }
    endpoint.wait_idle().await;
}

/// Serves a connection to its end.
async fn serve(caller: Caller, incoming: quinn::Incoming, mut stop: watch::Receiver<bool>) {
    let handshake = async { incoming.accept().ok()?.await.ok() };
    let Ok(Some(connection)) = timeout(caller.hub.limits.handshake, handshake).await else {
        return caller.note(Event::HandshakeFailed);
    };
    let caller = Arc::new(caller);
    let mut queries = JoinSet::new();
    let mut received = Instant::now();
    let mut is_ending = false;
    while !(is_ending && queries.is_empty()) {
        tokio::select! {
            opened = connection.accept_bi(), if !is_ending => match opened {
                Ok((send, receive)) => {
                    received = Instant::now();
                    queries.spawn(answer(caller.clone(), connection.clone(), send, receive));
                }
                Err(error) => {
                    if matches!(error, quinn::ConnectionError::TransportError(_)) {
                        caller.note(Event::Violated);
                    }
                    return;
                }
            },
            Some(_) = queries.join_next(), if !queries.is_empty() => received = Instant::now(),
            () = sleep_until(received + caller.hub.idle() * IDLE_TIMES), if queries.is_empty() => break,
            _ = stop.changed(), if !is_ending => is_ending = true,
        }
    }
    connection.close(code::NO_ERROR.into(), b"");
}

/// Why a query gets no response.
enum Unanswered {
    /// The client broke the rules: the connection is closed.
    Violated,
    /// It took too long.
    Late,
    /// The stream or the connection has ended.
    Gone,
    /// The core sends no response.
    Ignored,
}

/// Responds to the query of a stream.
async fn answer(
    caller: Arc<Caller>,
    connection: Connection,
    mut send: SendStream,
    mut receive: RecvStream,
) {
    let Err(reason) = converse(&caller, &mut send, &mut receive).await else { return };
    match reason {
        Unanswered::Violated => {
            caller.note(Event::Violated);
            connection.close(code::PROTOCOL_ERROR.into(), b"");
        }
        // Both fail for streams that are closed already.
        Unanswered::Late => {
            caller.note(Event::TimedOut);
            let _ = receive.stop(code::REQUEST_CANCELLED.into());
            let _ = send.reset(code::REQUEST_CANCELLED.into());
        }
        Unanswered::Gone => {}
        Unanswered::Ignored => {
            let _ = send.reset(code::INTERNAL_ERROR.into());
        }
    }
}

async fn converse(
    caller: &Caller,
    send: &mut SendStream,
    receive: &mut RecvStream,
) -> Result<(), Unanswered> {
    let stall = caller.hub.limits.stall;
    let query = match timeout(stall, receive.read_to_end(STREAM_BYTES_MAX)).await {
        Ok(Ok(bytes)) => query(bytes)?,
        Ok(Err(quinn::ReadToEndError::TooLong)) => return Err(Unanswered::Violated),
        Ok(Err(quinn::ReadToEndError::Read(_))) => return Err(Unanswered::Gone),
        Err(_) => return Err(Unanswered::Late),
    };
    let answer = caller.resolve(query).await.ok_or(Unanswered::Ignored)?;
    let length = (answer.bytes.len() as u16).to_be_bytes();
    let write = async {
        send.write_all(&[&length, answer.bytes.as_slice()].concat()).await.ok()?;
        send.finish().ok()?;
        // The response counts until the client has it, or has refused it.
        send.stopped().await.ok()
    };
    match timeout(stall, write).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Unanswered::Gone),
        Err(_) => Err(Unanswered::Late),
    }
}

/// The one query of a stream, without its length (RFC 9250, sections 4.2 and 5.5.2).
fn query(mut bytes: Vec<u8>) -> Result<Vec<u8>, Unanswered> {
    let Some((length, message)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(Unanswered::Violated);
    };
    let fits = usize::from(u16::from_be_bytes(*length)) == message.len();
    let is_query = message.first_chunk() == Some(&[0, 0]) && !wishes(message).has_keepalive;
    if !fits || !is_query {
        return Err(Unanswered::Violated);
    }
    bytes.drain(..LENGTH_BYTES);
    Ok(bytes)
}
