//! One stream: a request to an event loop, and its response back.
//!
//! ```text
//! asking -> the request's body, while the response comes
//!        -> interim headers -> headers -> body -> END_STREAM, and the connection to the event loop is idle
//! any    -> the response is cut, or invalid: RST_STREAM (INTERNAL_ERROR)
//!        -> no event loop accepted it: RST_STREAM (REFUSED_STREAM), so the client may try again
//!        -> the client receives nothing for too long: RST_STREAM (CANCEL)
//!        -> the client resets: the connection to the event loop is closed, which aborts the request
//! ```
//!
//! The event loop may have closed a connection that was used before. Then a request without a body
//! is sent once more. The close state shows that the event loop had not begun with the request: it
//! is whole only where there was none.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, Response, StatusCode};
use larder_http::handoff::CloseState;
use larder_http::message::{Limits, push_chunk_size};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::request::{Framing, Unsaid, head, trailers};
use super::response::{self, Body, Next};
use crate::clients::Clients;
use crate::limits::Event;
use crate::loop_connections::{LoopConnection, Pool};

/// Bytes of a response that are read at once: a frame.
const READ_BYTES: usize = 16 << 10;

/// How an exchange ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The client has its response; true: the connection to the event loop may be used again.
    Answered(bool),
    /// The event loop closed a connection that had been used before, and had not received the
    /// request.
    NothingReceived,
    /// The response was cut, or invalid.
    Broken,
    /// The client received nothing for too long.
    Stalled,
    /// The client has disconnected, or aborted the request.
    Gone,
}

/// Answers a request.
pub(super) async fn exchange(
    clients: Arc<Clients>,
    stall: Duration,
    pool: Arc<Pool>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let (parts, mut body) = request.into_parts();
    let (head, framing) = match head(&parts, body.is_end_stream()) {
        Ok(said) => said,
        Err(Unsaid::Reset(reason)) => {
            clients.counters.note(Event::Violated);
            return respond.send_reset(reason);
        }
        Err(Unsaid::Status(status)) => {
            let mut refusal = Response::new(());
            *refusal.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
            // A client that has disconnected needs no response.
            let _ = respond.send_response(refusal, true);
            return;
        }
    };
    let has_body = framing != Framing::None;
    let mut may_reuse = !has_body;
    loop {
        let mut reply = Reply { stall, method: &parts.method, respond: &mut respond, stream: None };
        let Ok(mut connection) = pool.request(&head, may_reuse) else {
            clients.counters.note(Event::Reset);
            return reply.reset(Reason::REFUSED_STREAM);
        };
        let end = both_directions(&mut connection, &head, framing, &mut body, &mut reply).await;
        match end {
            End::Answered(keeps_alive) => {
                if keeps_alive {
                    pool.give_back(LoopConnection { written: 0, ..connection });
                }
                return;
            }
            End::NothingReceived if may_reuse => {
                may_reuse = false;
                continue;
            }
            End::Broken | End::NothingReceived => {
                clients.counters.note(Event::Reset);
                let is_refused = !connection.close_state.is_taken();
                reply.reset(match is_refused {
                    true => Reason::REFUSED_STREAM,
                    false => Reason::INTERNAL_ERROR,
                });
            }
            End::Stalled => {
                clients.counters.note(Event::TimedOut);
                reply.reset(Reason::CANCEL);
            }
            End::Gone => {}
        }
        return;
    }
}

/// Sends a request to an event loop, and its response to the client.
async fn both_directions(
    connection: &mut LoopConnection,
    head: &[u8],
    framing: Framing,
    body: &mut RecvStream,
    reply: &mut Reply<'_>,
) -> End {
    let LoopConnection { stream, close_state, inbox, written, is_reused, .. } = connection;
    let (mut from_loop, mut to_loop) = stream.split();
    let up = send_request(&mut to_loop, &head[*written..], framing, body);
    let down = reply.answer(&mut from_loop, close_state, inbox, *is_reused);
    tokio::pin!(up, down);
    let mut is_up = true;
    let mut has_sent = false;
    let end = loop {
        tokio::select! {
            end = &mut down => break end,
            sent = &mut up, if is_up => {
                is_up = false;
                match sent {
                    Ok(()) => has_sent = true,
                    // The event loop receives no more; its response may state why.
                    Err(Unsent::Loop) => {}
                    Err(Unsent::Client) => break End::Gone,
                }
            }
        }
    };
    match end {
        End::Answered(keeps_alive) => End::Answered(keeps_alive && has_sent),
        end => end,
    }
}

/// Why a request was not sent completely.
enum Unsent {
    /// The event loop receives no more.
    Loop,
    /// The client has aborted it.
    Client,
}

/// Sends the rest of the headers, and the body as it arrives.
async fn send_request(
    to: &mut (impl AsyncWrite + Unpin),
    head: &[u8],
    framing: Framing,
    body: &mut RecvStream,
) -> Result<(), Unsent> {
    let lost = |_: io::Error| Unsent::Loop;
    to.write_all(head).await.map_err(lost)?;
    if framing == Framing::None {
        return Ok(());
    }
    let mut line = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.map_err(|_| Unsent::Client)?;
        if framing == Framing::Chunks && !data.is_empty() {
            line.clear();
            push_chunk_size(&mut line, data.len());
            to.write_all(&line).await.map_err(lost)?;
        }
        to.write_all(&data).await.map_err(lost)?;
        if framing == Framing::Chunks && !data.is_empty() {
            to.write_all(b"\r\n").await.map_err(lost)?;
        }
        // Fails for a stream that has ended, which needs no window.
        let _ = body.flow_control().release_capacity(data.len());
    }
    let fields = body.trailers().await.map_err(|_| Unsent::Client)?;
    if framing == Framing::Chunks {
        let last = [&b"0\r\n"[..], &trailers(&fields.unwrap_or_default())].concat();
        to.write_all(&last).await.map_err(lost)?;
    }
    Ok(())
}

/// A stream that waits for its response.
struct Reply<'a> {
    /// How long the client may receive nothing.
    stall: Duration,
    method: &'a Method,
    respond: &'a mut SendResponse<Bytes>,
    /// For the body, after the headers were sent.
    stream: Option<SendStream<Bytes>>,
}

impl Reply<'_> {
    fn reset(&mut self, reason: Reason) {
        match &mut self.stream {
            Some(stream) => stream.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
    }

    /// Forwards informational responses, and reads the headers of the final one.
    async fn receive_head(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        state: &CloseState,
        inbox: &mut BytesMut,
        is_reused: bool,
    ) -> Result<response::Head, End> {
        // Event loops limit the headers of responses themselves.
        let limits = Limits { head_bytes_max: usize::MAX, ..Limits::default() };
        let mut has_received = false;
        loop {
            match response::head(inbox, self.method.as_str(), &limits) {
                Ok(Some(head)) if head.response.status().is_informational() => {
                    has_received = true;
                    if self.respond.send_informational(head.response).is_err() {
                        return Err(End::Gone);
                    }
                }
                Ok(Some(head)) => return Ok(head),
                Ok(None) => {
                    let read = tokio::select! {
                        read = read(from, inbox) => read,
                        _ = poll_fn(|context| self.respond.poll_reset(context)) => return Err(End::Gone),
                    };
                    match read {
                        Ok(0) | Err(_) if is_reused && !has_received && state.is_whole() => {
                            return Err(End::NothingReceived);
                        }
                        Ok(0) | Err(_) => return Err(End::Broken),
                        Ok(_) => {}
                    }
                }
                Err(_) => return Err(End::Broken),
            }
        }
    }

    /// Forwards the whole response.
    async fn answer(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        state: &CloseState,
        inbox: &mut BytesMut,
        is_reused: bool,
    ) -> End {
        let head = match self.receive_head(from, state, inbox, is_reused).await {
            Ok(head) => head,
            Err(end) => return end,
        };
        let body = Body::new(head.framing);
        let Ok(stream) = self.respond.send_response(head.response, body.is_none()) else {
            return End::Gone;
        };
        let Some(mut body) = body else { return End::Answered(head.keeps_alive) };
        let stream = self.stream.insert(stream);
        let stall = self.stall;
        loop {
            match body.take(inbox) {
                Ok(Next::Data(data)) => {
                    match timeout(stall, send(stream, data, body.is_over())).await {
                        Ok(true) if body.is_over() => return End::Answered(head.keeps_alive),
                        Ok(true) => {}
                        Ok(false) => return End::Gone,
                        Err(_) => return End::Stalled,
                    }
                }
                Ok(Next::End) => {
                    let sent = match body.trailers() {
                        Ok(Some(trailers)) => stream.send_trailers(trailers),
                        Ok(None) => stream.send_data(Bytes::new(), true),
                        Err(_) => return End::Broken,
                    };
                    return match sent {
                        Ok(()) => End::Answered(head.keeps_alive),
                        Err(_) => End::Gone,
                    };
                }
                Ok(Next::More) => {
                    let read = tokio::select! {
                        read = read(from, inbox) => read,
                        _ = poll_fn(|context| stream.poll_reset(context)) => return End::Gone,
                    };
                    match read {
                        Ok(0) | Err(_) if matches!(body, Body::UntilClose) && state.is_whole() => {
                            return match stream.send_data(Bytes::new(), true) {
                                Ok(()) => End::Answered(false),
                                Err(_) => End::Gone,
                            };
                        }
                        Ok(0) | Err(_) => return End::Broken,
                        Ok(_) => {}
                    }
                }
                Err(_) => return End::Broken,
            }
        }
    }
}

async fn read(from: &mut (impl AsyncRead + Unpin), inbox: &mut BytesMut) -> io::Result<usize> {
    inbox.reserve(READ_BYTES);
    from.read_buf(inbox).await
}

/// Sends bytes as the client's window allows, the last of a body or not; false: the client has
/// disconnected.
async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes, is_last: bool) -> bool {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        if stream.capacity() == 0 {
            match poll_fn(|context| stream.poll_capacity(context)).await {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return false,
            }
        }
        let part = bytes.split_to(stream.capacity().min(bytes.len()));
        if !part.is_empty() && stream.send_data(part, is_last && bytes.is_empty()).is_err() {
            return false;
        }
    }
    true
}
