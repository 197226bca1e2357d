//! A line over TLS (RFC 7858). A task writes queries as they arrive, each with an ID of its own,
//! and passes responses on by ID.
//!
//! The task ends when the server closes the connection, breaks the framing or does not receive
//! queries. It also ends when no query arrived for the idle time. The line ends with it, and
//! queries that wait then fail as lost.

use std::collections::HashMap;
use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::client::TlsStream;

use super::{CONNECT, Fault, HEADER_BYTES, IDLE, QUERIES_MAX, Shared};

/// Bytes of the length before each message.
const LENGTH_BYTES: usize = 2;

/// Bytes that are read at once.
const READ_BYTES: usize = 4 << 10;

/// Bytes of queries after which they are written, even if others wait.
const WRITE_BYTES: usize = 16 << 10;

/// Queries that wait to be written.
const QUEUE_MAX: usize = 256;

/// A query, and the receiver of its response.
type PendingQuery = (Vec<u8>, oneshot::Sender<Vec<u8>>);

/// A line over TLS.
#[derive(Debug, Clone)]
pub(super) struct Line {
    sender: mpsc::Sender<PendingQuery>,
}

impl Line {
    pub(super) async fn connect(shared: &Shared) -> Result<Line, Fault> {
        let stream = shared.connect_tls().await?;
        let (sender, queries) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(async move {
            // For any error, queries that wait fail as lost.
            let _ = converse(stream, queries).await;
        });
        Ok(Line { sender })
    }

    pub(super) async fn query(&self, message: Vec<u8>) -> Result<Vec<u8>, Fault> {
        let (say, received) = oneshot::channel();
        self.sender.send((message, say)).await.map_err(|_| Fault::Lost)?;
        received.await.map_err(|_| Fault::Lost)
    }
}

async fn converse(
    mut stream: TlsStream<TcpStream>,
    mut queries: mpsc::Receiver<PendingQuery>,
) -> io::Result<()> {
    let mut waiting: HashMap<u16, oneshot::Sender<Vec<u8>>> = HashMap::new();
    let mut last_id = 0;
    let mut output = Vec::new();
    let mut input = BytesMut::new();
    let mut used = Instant::now();
    loop {
        input.reserve(READ_BYTES);
        tokio::select! {
            received = queries.recv() => {
                let Some(mut next) = received else { return stream.shutdown().await };
                used = Instant::now();
                loop {
                    if waiting.len() >= QUERIES_MAX {
                        // Queries that no task waits for make room.
                        waiting.retain(|_, say| !say.is_closed());
                    }
                    if waiting.len() < QUERIES_MAX {
                        put(next, &mut last_id, &mut waiting, &mut output);
                    }
                    if output.len() >= WRITE_BYTES {
                        break;
                    }
                    let Ok(another) = queries.try_recv() else { break };
                    next = another;
                }
                let write = async {
                    stream.write_all(&output).await?;
                    stream.flush().await
                };
                timeout(CONNECT, write).await??;
                output.clear();
            }
            read = stream.read_buf(&mut input) => {
                if read? == 0 {
                    return Ok(());
                }
                while let Some(message) = next_message(&input) {
                    let length = LENGTH_BYTES + message.len();
                    let Some(id) = message.first_chunk().filter(|_| message.len() >= HEADER_BYTES) else {
                        return Ok(());
                    };
                    // A response that no task waits for is late, or has no query.
                    if let Some(say) = waiting.remove(&u16::from_be_bytes(*id)) {
                        let _ = say.send(message.to_vec());
                    }
                    input.advance(length);
                }
            }
            () = sleep_until(used + IDLE) => return stream.shutdown().await,
        }
    }
}

/// Appends a query to `output` under an unused ID; there is one, since fewer queries wait than
/// there are IDs.
fn put(
    (mut message, say): PendingQuery,
    last_id: &mut u16,
    waiting: &mut HashMap<u16, oneshot::Sender<Vec<u8>>>,
    output: &mut Vec<u8>,
) {
    let Some(room) = message.first_chunk_mut() else { return };
    loop {
        *last_id = last_id.wrapping_add(1);
        if !waiting.contains_key(last_id) {
            break;
        }
    }
    *room = last_id.to_be_bytes();
    output.extend_from_slice(&(message.len() as u16).to_be_bytes());
    output.extend_from_slice(&message);
    waiting.insert(*last_id, say);
}

/// The first message of the bytes, if it is complete.
fn next_message(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}
