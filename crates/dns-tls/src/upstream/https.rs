//! A line over HTTPS (RFC 8484): a query is a POST over HTTP/2.
//!
//! A response other than 200 with a DNS message is of no use, but shows that the line works.
//! Queries above the server's limit of streams wait for others to end.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use h2::client::SendRequest;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use tokio::time::sleep;

use super::{Fault, IDLE, MESSAGE_BYTES_MAX, Shared, is_message};

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/dns-message");

/// A line over HTTPS.
#[derive(Debug, Clone)]
pub(super) struct Line {
    requests: SendRequest<Bytes>,
    uri: Uri,
    /// A query used it since the last check.
    was_used: Arc<AtomicBool>,
}

impl Line {
    pub(super) async fn connect(shared: &Shared, path: &str) -> Result<Line, Fault> {
        let target = &shared.target;
        let port = match target.address.port() {
            443 => String::new(),
            port => format!(":{port}"),
        };
        let name = match target.name_text() {
            name if name.contains(':') => format!("[{name}]"),
            name => name,
        };
        let uri = format!("https://{name}{port}{path}");
        let uri = uri.parse().map_err(|_| Fault::Unreachable(format!("{uri} is no URI")))?;
        let stream = shared.connect_tls().await?;
        let unreachable = |error: h2::Error| Fault::Unreachable(error.to_string());
        let mut builder = h2::client::Builder::new();
        builder.enable_push(false);
        // Until the server has stated its limit of streams, it would refuse more.
        builder.initial_max_send_streams(1);
        let (requests, mut connection) =
            builder.handshake::<_, Bytes>(stream).await.map_err(unreachable)?;
        let was_used = Arc::new(AtomicBool::new(true));
        let used = was_used.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    // Queries that wait get the error themselves.
                    _ = &mut connection => return,
                    () = sleep(IDLE) => {
                        if !used.swap(false, Relaxed) {
                            return;
                        }
                    }
                }
            }
        });
        Ok(Line { requests, uri, was_used })
    }

    pub(super) async fn query(&self, message: Vec<u8>) -> Result<Vec<u8>, Fault> {
        self.was_used.store(true, Relaxed);
        let mut requests = self.requests.clone().ready().await.map_err(|_| Fault::Lost)?;
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().insert(CONTENT_TYPE, MEDIA_TYPE);
        request.headers_mut().insert(ACCEPT, MEDIA_TYPE);
        let (response, mut body) =
            requests.send_request(request, false).map_err(|_| Fault::Lost)?;
        // The server's window may be small; a query is small too, and waits for it in h2.
        body.send_data(message.into(), true).map_err(|_| Fault::Lost)?;
        let (head, mut body) = response.await.map_err(|error| fault(&error))?.into_parts();
        let is_message_type = head.headers.get(CONTENT_TYPE) == Some(&MEDIA_TYPE);
        if head.status != StatusCode::OK || !is_message_type {
            return Err(Fault::Useless);
        }
        let mut answer = Vec::new();
        while let Some(part) = poll_fn(|context| body.poll_data(context)).await {
            let part = part.map_err(|error| fault(&error))?;
            if answer.len() + part.len() > MESSAGE_BYTES_MAX {
                return Err(Fault::Useless);
            }
            answer.extend_from_slice(&part);
            // Fails for a stream that has ended, which needs no room.
            let _ = body.flow_control().release_capacity(part.len());
        }
        if is_message(&answer) { Ok(answer) } else { Err(Fault::Useless) }
    }
}

/// A reset stream does not mean that the line is lost, unless the server never processed the
/// stream.
fn fault(error: &h2::Error) -> Fault {
    let was_looked_at = error.is_reset() && error.reason() != Some(h2::Reason::REFUSED_STREAM);
    if was_looked_at { Fault::Useless } else { Fault::Lost }
}
