//! DNS over QUIC (RFC 9250): a stream that the client opens is a question, and carries its answer
//! back.
//!
//! | what a client does | what it gets |
//! |---|---|
//! | a stream with one question of ID 0, finished | its answer, and the stream's end |
//! | an ID other than 0, a length that does not fit, a second question, edns-tcp-keepalive, a stream of one direction | the connection is closed: DOQ_PROTOCOL_ERROR, or QUIC's own error |
//! | does not finish its question in time | the stream is stopped and reset: DOQ_REQUEST_CANCELLED |
//! | a question that gets no answer | the stream is reset: DOQ_INTERNAL_ERROR |
//! | connects beyond the limits | refused; from half of them on it must first show that it is at its address |
//!
//! Bounds: streams and octets of a connection by QUIC's flow control. A connection that sends
//! nothing for the idle time is forgotten; PINGs keep one alive, but not beyond `unasked`, four
//! idle times without a question. Cost: a task a question.

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

/// Octets of the length before a message.
const LENGTH_BYTES: usize = 2;

/// Octets of the longest message, with its length.
const STREAM_BYTES_MAX: usize = LENGTH_BYTES + u16::MAX as usize;

/// Octets of all streams together that a client may send before they are read.
const CONNECTION_BYTES_MAX: u32 = 4 * STREAM_BYTES_MAX as u32;

/// Idle times that a connection may live without a question.
const UNASKED: u32 = 4;

/// What a connection may do.
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

/// Accepts until told to stop.
pub(crate) async fn accept(hub: Arc<Hub>, endpoint: Endpoint, mut stop: watch::Receiver<bool>) {
    loop {
        let incoming = tokio::select! {
            Some(incoming) = endpoint.accept() => incoming,
            _ = stop.changed() => break,
            else => return,
        };
        // Where places are scarce, none is given to an address that may be forged.
        let is_scarce = hub.open() * 2 >= hub.limits.connections_max;
        if is_scarce && !incoming.remote_address_validated() && incoming.may_retry() {
            // Fails for nothing that was not asked just now.
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
    let mut questions = JoinSet::new();
    let mut heard = Instant::now();
    let mut is_ending = false;
    while !(is_ending && questions.is_empty()) {
        tokio::select! {
            opened = connection.accept_bi(), if !is_ending => match opened {
                Ok((send, receive)) => {
                    heard = Instant::now();
                    questions.spawn(answer(caller.clone(), connection.clone(), send, receive));
                }
                Err(error) => {
                    if matches!(error, quinn::ConnectionError::TransportError(_)) {
                        caller.note(Event::Violated);
                    }
                    return;
                }
            },
            Some(_) = questions.join_next(), if !questions.is_empty() => heard = Instant::now(),
            () = sleep_until(heard + caller.hub.idle() * UNASKED), if questions.is_empty() => break,
            _ = stop.changed(), if !is_ending => is_ending = true,
        }
    }
    connection.close(code::NO_ERROR.into(), b"");
}

/// Why a question is not answered.
enum Unanswered {
    /// The client broke the rules: the connection is closed.
    Violated,
    /// It took too long.
    Late,
    /// It was given up, or the connection is gone.
    Gone,
    /// No answer is given.
    Ignored,
}

/// Answers the question of a stream.
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
    let question = match timeout(stall, receive.read_to_end(STREAM_BYTES_MAX)).await {
        Ok(Ok(octets)) => question(octets)?,
        Ok(Err(quinn::ReadToEndError::TooLong)) => return Err(Unanswered::Violated),
        Ok(Err(quinn::ReadToEndError::Read(_))) => return Err(Unanswered::Gone),
        Err(_) => return Err(Unanswered::Late),
    };
    let answer = caller.resolve(question).await.ok_or(Unanswered::Ignored)?;
    let length = (answer.octets.len() as u16).to_be_bytes();
    let write = async {
        send.write_all(&[&length, answer.octets.as_slice()].concat()).await.ok()?;
        send.finish().ok()?;
        // The answer counts until the client has it, or has said that it does not want it.
        send.stopped().await.ok()
    };
    match timeout(stall, write).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Unanswered::Gone),
        Err(_) => Err(Unanswered::Late),
    }
}

/// The one question of a stream, without its length (RFC 9250, sections 4.2 and 5.5.2).
fn question(mut octets: Vec<u8>) -> Result<Vec<u8>, Unanswered> {
    let Some((length, message)) = octets.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(Unanswered::Violated);
    };
    let fits = usize::from(u16::from_be_bytes(*length)) == message.len();
    let is_question = message.first_chunk() == Some(&[0, 0]) && !wishes(message).has_keepalive;
    if !fits || !is_question {
        return Err(Unanswered::Violated);
    }
    octets.drain(..LENGTH_BYTES);
    Ok(octets)
}
