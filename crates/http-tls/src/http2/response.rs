//! Converts a response of HTTP/1.1 to HTTP/2: headers without fields of a connection, and bodies
//! without their framing.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use larder_http::message::{self, Chunked, FieldRoom, Framing, Limits, Piece};

/// Fields that HTTP/2 does not allow (RFC 9113, section 8.2.2).
const NOT_PASSED: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Headers.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) response: Response<()>,
    pub(super) framing: Framing,
    pub(super) keeps_alive: bool,
}

/// The bytes are no response of HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bad;

/// Takes headers out of the received bytes; `None`: more have to come.
pub(super) fn head(
    inbox: &mut BytesMut,
    method: &str,
    limits: &Limits,
) -> Result<Option<Head>, Bad> {
    if inbox.is_empty() {
        return Ok(None);
    }
    let (head, head_bytes) = {
        let mut room = FieldRoom::new();
        let Some(read) = message::response(inbox, &mut room, method, limits).map_err(|_| Bad)?
        else {
            return Ok(None);
        };
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(read.status).map_err(|_| Bad)?;
        let headers = response.headers_mut();
        for field in read.fields {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Bad)?;
            if !NOT_PASSED.contains(&name.as_str()) {
                headers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| Bad)?);
            }
        }
        let head = Head { response, framing: read.framing, keeps_alive: read.keeps_alive };
        (head, read.head_bytes)
    };
    inbox.advance(head_bytes);
    Ok(Some(head))
}

/// The rest of a body.
#[derive(Debug)]
pub(super) enum Body {
    Bytes(u64),
    Chunks(Box<Chunked>),
    UntilClose,
}

/// The next piece of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Data(Bytes),
    /// More has to be read.
    More,
    End,
}

impl Body {
    /// `None`: there is no body.
    pub(super) fn new(framing: Framing) -> Option<Body> {
        match framing {
            Framing::None | Framing::Length(0) => None,
            Framing::Length(bytes) => Some(Body::Bytes(bytes)),
            Framing::Chunked => Some(Body::Chunks(Box::default())),
            Framing::UntilClose => Some(Body::UntilClose),
        }
    }

    /// True where no more bytes can come, as far as is known.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Body::Bytes(0))
    }

    /// Trailers, after the end of the body.
    pub(super) fn trailers(&self) -> Result<Option<HeaderMap>, Bad> {
        let Body::Chunks(chunked) = self else { return Ok(None) };
        let mut trailers = HeaderMap::new();
        for line in chunked.trailers().split(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
            let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| Bad)?;
            let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).map_err(|_| Bad)?;
            trailers.append(name, value);
        }
        Ok((!trailers.is_empty()).then_some(trailers))
    }

    /// Takes the received bytes.
    pub(super) fn take(&mut self, inbox: &mut BytesMut) -> Result<Next, Bad> {
        match self {
            Body::Bytes(0) => Ok(Next::End),
            _ if inbox.is_empty() => Ok(Next::More),
            Body::Bytes(left) => {
                let bytes = usize::try_from(*left).unwrap_or(usize::MAX).min(inbox.len());
                *left -= bytes as u64;
                Ok(Next::Data(inbox.split_to(bytes).freeze()))
            }
            Body::UntilClose => Ok(Next::Data(inbox.split().freeze())),
            Body::Chunks(chunked) => {
                let (consumed, data_bytes, is_end) = match chunked.next(inbox).map_err(|_| Bad)? {
                    Piece::Data { bytes, consumed } => (consumed, bytes.len(), false),
                    Piece::More { consumed } => (consumed, 0, false),
                    Piece::End { consumed } => (consumed, 0, true),
                };
                inbox.advance(consumed - data_bytes);
                match data_bytes {
                    0 if is_end => Ok(Next::End),
                    0 => Ok(Next::More),
                    bytes => Ok(Next::Data(inbox.split_to(bytes).freeze())),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers lose the fields of the connection, and the bytes after them are not consumed.
    /// Incomplete headers wait, and invalid ones are an error.
    #[test]
    fn heads() {
        let limits = Limits::default();
        let bytes = "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3";
        for cut in 0..bytes.len() - 1 {
            let mut inbox = BytesMut::from(&bytes[..cut]);
            assert!(head(&mut inbox, "GET", &limits).unwrap().is_none());
            assert_eq!(inbox.len(), cut);
        }
        let mut inbox = BytesMut::from(bytes);
        let read = head(&mut inbox, "GET", &limits).unwrap().unwrap();
        assert_eq!((read.framing, read.keeps_alive), (Framing::Chunked, false));
        assert_eq!(&inbox[..], b"3");
        let names: Vec<_> = read.response.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["etag"]);
        assert!(head(&mut BytesMut::from("XTTP"), "GET", &limits).is_err());
    }

    /// Bodies of each framing give the same bytes in whatever pieces they come. Only framed ones
    /// have their own end.
    #[test]
    fn bodies() {
        for (framing, bytes, ends) in [
            (Framing::Length(6), "abcdef", true),
            (Framing::Chunked, "3\r\nabc\r\n3;x\r\ndef\r\n0\r\nA: b\r\n\r\n", true),
            (Framing::UntilClose, "abcdef", false),
        ] {
            for step in 1..bytes.len() {
                let mut body = Body::new(framing).unwrap();
                let (mut inbox, mut got, mut ended) = (BytesMut::new(), Vec::new(), false);
                for part in bytes.as_bytes().chunks(step) {
                    inbox.extend_from_slice(part);
                    loop {
                        match body.take(&mut inbox).unwrap() {
                            Next::Data(data) => got.extend_from_slice(&data),
                            Next::More => break,
                            Next::End => {
                                ended = true;
                                break;
                            }
                        }
                    }
                }
                assert_eq!((&got[..], ended), (&b"abcdef"[..], ends), "{framing:?} by {step}");
                let trailers = body.trailers().unwrap();
                assert_eq!(trailers.is_some(), framing == Framing::Chunked);
                assert!(trailers.is_none_or(|it| it["a"] == "b"));
            }
        }
        assert!(Body::new(Framing::Length(0)).is_none() && Body::new(Framing::None).is_none());
        let mut body = Body::new(Framing::Chunked).unwrap();
        assert_eq!(body.take(&mut BytesMut::from("zz\r\n")), Err(Bad));
    }
}
