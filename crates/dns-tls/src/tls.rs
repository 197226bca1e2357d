//! DNS over TLS (RFC 7858): queries and responses of one connection, each after its length.
//!
//! A client may send several queries before the first response, and responses are sent in the order
//! in which they arrive. While `unanswered_max` queries have no response nothing is read, so the
//! client's TCP window makes it wait. A client that has finished sending still gets its responses.
//!
//! A connection is closed if no query arrives within the idle time, or if a query is not complete
//! within it. It is also closed if the client does not receive its responses within the stall time.
//!
//! Bounds: a connection has a read of 4 kB, a part of a query, and twice the responses that
//! `hub.rs` counts. Cost: a read, a lookup and a write for a query. Responses that are ready
//! together share a write, and so mostly a TLS record.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::server::TlsStream;

use crate::hub::{Answer, Caller};
use crate::limits::Event;

/// Bytes of the length before each message.
const LENGTH_BYTES: usize = 2;

/// Bytes that are read at once.
const READ_BYTES: usize = 4 << 10;

/// Bytes of responses after which they are written, even if others are ready.
const WRITE_BYTES: usize = 16 << 10;

/// Why a connection is closed.
enum End {
    /// All queries have their responses.
    Done,
    /// The client is gone.
    Lost,
    /// The client caused this event.
    Blame(Event),
}

/// Serves a connection to its end.
pub(crate) async fn serve(
    caller: &Caller,
    mut stream: TlsStream<TcpStream>,
    stop: watch::Receiver<bool>,
) {
    match converse(caller, &mut stream, stop).await {
        End::Lost => return,
        End::Done => {}
        End::Blame(event) => caller.note(event),
    }
    // The client learns that nothing was cut off; the wait for a slow one is limited.
    let _ = timeout(caller.hub.limits.stall, stream.shutdown()).await;
}

async fn converse(
    caller: &Caller,
    stream: &mut TlsStream<TcpStream>,
    mut stop: watch::Receiver<bool>,
) -> End {
    let limits = &caller.hub.limits;
    let (answered, mut answers) = mpsc::unbounded_channel();
    let mut input = BytesMut::new();
    let mut output = Output::default();
    let mut unanswered = 0;
    let mut is_finished = false;
    let mut received = Instant::now();
    loop {
        let mut taken = 0;
        while unanswered < limits.unanswered_max {
            let Some(message) = next_message(&input[taken..]) else { break };
            if message.is_empty() {
                return End::Blame(Event::Violated);
            }
            taken += LENGTH_BYTES + message.len();
            unanswered += 1;
            received = Instant::now();
            let answered = answered.clone();
            // The connection may have ended by then.
            caller.query(message.to_vec(), move |answer| drop(answered.send(answer)));
        }
        input.advance(taken);
        if is_finished && unanswered == 0 {
            return End::Done;
        }
        let may_read = !is_finished && unanswered < limits.unanswered_max;
        tokio::select! {
            Some(answer) = answers.recv() => {
                unanswered -= output.gather(answer, &mut answers);
                received = Instant::now();
                match timeout(limits.stall, write(stream, &output.bytes)).await {
                    Ok(Ok(())) => output.clear(),
                    Ok(Err(_)) => return End::Lost,
                    Err(_) => return End::Blame(Event::TimedOut),
                }
            }
            read = read(stream, &mut input), if may_read => match read {
                // An end without TLS's close_notify counts as one: nothing depends on bytes that
                // did not arrive.
                Ok(0) => is_finished = true,
                Ok(_) => {}
                Err(_) => return End::Lost,
            },
            // A core's own time limit applies while queries have no response.
            () = sleep_until(received + caller.hub.idle()), if unanswered == 0 => {
                return if input.is_empty() { End::Done } else { End::Blame(Event::TimedOut) };
            }
            // Earlier queries get their responses. An error means that the sender of `stop` is
            // gone.
            _ = stop.changed(), if !is_finished => is_finished = true,
        }
    }
}

/// The first message of the bytes, if it is complete.
fn next_message(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

/// Bytes that are written together.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    /// The responses in it: they count until they are written.
    held: Vec<Answer>,
}

impl Output {
    /// Takes a response and others that are ready, and returns the number of queries that they end.
    fn gather(
        &mut self,
        first: Option<Answer>,
        answers: &mut mpsc::UnboundedReceiver<Option<Answer>>,
    ) -> usize {
        let (mut next, mut count) = (first, 1);
        loop {
            if let Some(answer) = next {
                self.bytes.extend_from_slice(&(answer.bytes.len() as u16).to_be_bytes());
                self.bytes.extend_from_slice(&answer.bytes);
                self.held.push(answer);
            }
            if self.bytes.len() >= WRITE_BYTES {
                return count;
            }
            let Ok(another) = answers.try_recv() else { return count };
            (next, count) = (another, count + 1);
        }
    }

    /// After a write: frees the memory, since most connections are idle most of the time.
    fn clear(&mut self) {
        *self = Output::default();
    }
}

/// Reads once. If it is dropped before its end, it has read nothing.
async fn read(stream: &mut TlsStream<TcpStream>, input: &mut BytesMut) -> io::Result<usize> {
    input.reserve(READ_BYTES);
    stream.read_buf(input).await
}

async fn write(stream: &mut TlsStream<TcpStream>, output: &[u8]) -> io::Result<()> {
    stream.write_all(output).await?;
    stream.flush().await
}
