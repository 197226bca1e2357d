//! DNS over HTTPS (RFC 8484) over HTTP/2: a request is a query.
//!
//! | request | response |
//! |---|---|
//! | POST of `application/dns-message`, GET with `?dns=` in base64url | 200, with the DNS response; its age limit is its smallest TTL |
//! | another path | 404 |
//! | another method | 405 |
//! | another content type | 415 |
//! | more than 65,535 bytes | 413 |
//! | a body that does not arrive in time | 408 |
//! | not a DNS query | 400 |
//! | a query that gets no response, such as one that the policy drops | the stream is reset |
//!
//! HTTP/1.1 is not supported: ALPN refuses clients that support nothing else.
//!
//! Bounds: streams of a connection, a limit that HTTP/2 announces to the client. A stream that the
//! client has reset counts until the core has responded, and beyond the limit new ones are reset.
//! Headers have at most [`HEAD_BYTES_MAX`]. A connection without requests is closed after the idle
//! time, even if it sends other frames. h2 ends connections that flood it with resets, settings or
//! empty frames. Cost: a task for a request, and some 100 bytes of headers.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use larder_tls::flood::Counted;
use larder_tls::http2::{self, Streams};
use larder_wire::dns::Message;
use larder_wire::dns::{Section, rtype};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::hub::{Answer, Caller};
use crate::limits::Event;

/// Bytes of a request's headers, unpacked: enough for a GET of the longest useful query.
const HEAD_BYTES_MAX: u32 = 16 << 10;

/// Bytes of the longest message.
const MESSAGE_BYTES_MAX: usize = 65_535;

/// Bytes of a message's header.
const HEADER_BYTES: usize = 12;

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/dns-message");

/// Serves a connection to its end.
pub(crate) async fn serve(
    caller: Caller,
    stream: TlsStream<TcpStream>,
    path: Arc<str>,
    stop: watch::Receiver<bool>,
) {
    let caller = Arc::new(caller);
    let limits = &caller.hub.limits;
    let streams_max = u32::try_from(limits.unanswered_max).unwrap_or(u32::MAX);
    let mut builder = Builder::new();
    builder.max_concurrent_streams(streams_max).max_header_list_size(HEAD_BYTES_MAX);
    let Ok(Ok(connection)) =
        timeout(limits.handshake, builder.handshake::<_, Bytes>(Counted::new(stream))).await
    else {
        return caller.note(Event::HandshakeFailed);
    };
    http2::serve(Requests { caller, path }, connection, stop).await;
}

/// Requests of a connection.
struct Requests {
    caller: Arc<Caller>,
    path: Arc<str>,
}

impl Streams for Requests {
    const REFUSAL: Reason = Reason::ENHANCE_YOUR_CALM;

    fn streams_max(&self) -> usize {
        self.caller.hub.limits.unanswered_max
    }

    fn idle(&self) -> Duration {
        self.caller.hub.idle()
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
        tasks.spawn(answer(self.caller.clone(), request, respond, self.path.clone()));
    }
}

/// Responds to a request.
async fn answer(
    caller: Arc<Caller>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    path: Arc<str>,
) {
    let query = match timeout(caller.hub.limits.stall, query(request, &path)).await {
        Ok(query) => query,
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    };
    let sent = match query {
        Err(status) => {
            caller.note(match status {
                StatusCode::REQUEST_TIMEOUT => Event::TimedOut,
                _ => Event::Violated,
            });
            respond.send_response(refusal(status), true).map(drop)
        }
        Ok(query) => match caller.resolve(query).await {
            // No HTTP response if there is no DNS response.
            None => {
                respond.send_reset(Reason::REFUSED_STREAM);
                Ok(())
            }
            Some(mut answer) => {
                let bytes = Bytes::from(std::mem::take(&mut answer.bytes));
                match respond.send_response(head(&bytes), false) {
                    Ok(stream) => send(&caller, stream, bytes, answer).await,
                    Err(error) => Err(error),
                }
            }
        },
    };
    // The client has closed or reset the stream.
    drop(sent);
}

/// The DNS query of a request, or the status of an error.
async fn query(request: Request<RecvStream>, path: &str) -> Result<Vec<u8>, StatusCode> {
    let (head, body) = request.into_parts();
    if head.uri.path() != path {
        return Err(StatusCode::NOT_FOUND);
    }
    let query = match head.method {
        Method::GET => from_query(head.uri.query().unwrap_or_default())?,
        Method::POST => {
            let media_type = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
            if !media_type.is_some_and(|it| it.eq_ignore_ascii_case(MEDIA_TYPE.as_bytes())) {
                return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
            }
            from_body(body).await?
        }
        _ => return Err(StatusCode::METHOD_NOT_ALLOWED),
    };
    // A message without a complete header is not a query, and neither is a response.
    let is_query = query.len() >= HEADER_BYTES && query[2] & 0x80 == 0;
    is_query.then_some(query).ok_or(StatusCode::BAD_REQUEST)
}

/// The variable `dns` of a URL's query (RFC 8484, section 4.1), in base64url without padding.
fn from_query(query: &str) -> Result<Vec<u8>, StatusCode> {
    let value = query.split('&').find_map(|each| each.strip_prefix("dns="));
    let value = value.ok_or(StatusCode::BAD_REQUEST)?;
    URL_SAFE_NO_PAD.decode(value).map_err(|_| StatusCode::BAD_REQUEST)
}

async fn from_body(mut body: RecvStream) -> Result<Vec<u8>, StatusCode> {
    let mut query = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.map_err(|_| StatusCode::BAD_REQUEST)?;
        if query.len() + part.len() > MESSAGE_BYTES_MAX {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        query.extend_from_slice(&part);
        // Fails for a stream that has ended, which needs no room.
        let _ = body.flow_control().release_capacity(part.len());
    }
    Ok(query)
}

fn refusal(status: StatusCode) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST"));
    }
    response
}

fn head(answer: &[u8]) -> Response<()> {
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, MEDIA_TYPE);
    headers.insert(CONTENT_LENGTH, answer.len().into());
    let age = format!("max-age={}", seconds_fresh(answer));
    headers.extend(HeaderValue::try_from(age).ok().map(|age| (CACHE_CONTROL, age)));
    response
}

/// How long a response is fresh (RFC 8484, section 5.1). With answer records it is their smallest
/// TTL. Without them it is the negative TTL of the SOA record (RFC 2308, section 5), or else 0.
fn seconds_fresh(answer: &[u8]) -> u32 {
    let Ok(message) = Message::parse(answer) else { return 0 };
    let (mut ttl_s, mut negative_s) = (None, 0);
    for record in message.records_through(Section::Authority) {
        let Ok(record) = record else { return 0 };
        if record.section == Section::Answer {
            ttl_s = Some(record.ttl_s().min(ttl_s.unwrap_or(u32::MAX)));
        } else if record.rtype == rtype::SOA {
            let minimum =
                message.rdata(&record).last_chunk().map_or(0, |it| u32::from_be_bytes(*it));
            negative_s = record.ttl_s().min(minimum);
        }
    }
    ttl_s.unwrap_or(negative_s)
}

/// Sends a response as fast as the client's window allows.
async fn send(
    caller: &Caller,
    mut stream: SendStream<Bytes>,
    mut bytes: Bytes,
    _counted: Answer,
) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = poll_fn(|context| stream.poll_capacity(context));
        let count = match timeout(stall(caller), room).await {
            Ok(Some(count)) => count?,
            // The stream is gone.
            Ok(None) => return Ok(()),
            Err(_) => {
                caller.note(Event::TimedOut);
                stream.send_reset(Reason::CANCEL);
                return Ok(());
            }
        };
        let part = bytes.split_to(count.min(bytes.len()));
        stream.send_data(part, bytes.is_empty())?;
    }
    Ok(())
}

fn stall(caller: &Caller) -> Duration {
    caller.hub.limits.stall
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of the root with this type, TTL and data.
    fn record(number: u16, ttl_s: u32, data: &[u8]) -> Vec<u8> {
        let mut record = vec![0];
        record.extend_from_slice(&number.to_be_bytes());
        record.extend_from_slice(&[0, 1]);
        record.extend_from_slice(&ttl_s.to_be_bytes());
        record.extend_from_slice(&(data.len() as u16).to_be_bytes());
        record.extend_from_slice(data);
        record
    }

    fn message(answers: &[Vec<u8>], authorities: &[Vec<u8>]) -> Vec<u8> {
        let counts = [answers.len() as u8, 0, authorities.len() as u8, 0, 0];
        let mut message = vec![0, 0, 0x81, 0x80, 0, 1, 0];
        message.extend_from_slice(&counts);
        message.extend_from_slice(b"\0\0\x01\0\x01");
        message.extend(answers.iter().chain(authorities).flatten());
        message
    }

    /// Records are fresh for their smallest TTL, negative responses for the TTL of the SOA record,
    /// failures and damaged messages not at all.
    #[test]
    fn freshness() {
        let soa = |ttl_s, minimum: u32| {
            let mut data = vec![0; 22];
            data[18..].copy_from_slice(&minimum.to_be_bytes());
            record(rtype::SOA, ttl_s, &data)
        };
        let a = |ttl_s| record(rtype::A, ttl_s, &[192, 0, 2, 1]);
        let ns = record(rtype::NS, 5, &[0]);
        assert_eq!(seconds_fresh(&message(&[a(300), a(60), a(90)], std::slice::from_ref(&ns))), 60);
        assert_eq!(seconds_fresh(&message(&[a(300), a(0)], &[])), 0);
        assert_eq!(seconds_fresh(&message(&[], &[soa(900, 300)])), 300);
        assert_eq!(seconds_fresh(&message(&[], &[soa(200, 300)])), 200);
        assert_eq!(seconds_fresh(&message(&[a(7)], &[soa(3, 3)])), 7);
        assert_eq!(seconds_fresh(&message(&[], &[ns])), 0);
        assert_eq!(seconds_fresh(&message(&[], &[])), 0);
        let whole = message(&[a(300)], &[]);
        assert_eq!(seconds_fresh(&whole[..whole.len() - 1]), 0);
        assert_eq!(seconds_fresh(b""), 0);
    }

    /// The query of a GET is base64url without padding, at any place of the URL's query. Anything
    /// else is a bad request.
    #[test]
    fn dns_variables_in_a_url_query() {
        assert_eq!(from_query("dns=AAEB_-8").unwrap(), [0, 1, 1, 0xff, 0xef]);
        assert_eq!(from_query("x=1&dns=AAEB&y").unwrap(), [0, 1, 1]);
        for wrong in ["", "dns", "xdns=AAEB", "dns=AAEB=", "dns=AA+B", "dns=A", "dns=%41AEB"] {
            assert_eq!(from_query(wrong).unwrap_err(), StatusCode::BAD_REQUEST, "{wrong}");
        }
        assert_eq!(from_query("dns=").unwrap(), b"");
    }
}
