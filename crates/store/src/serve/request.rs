//! What a client asks for.

/// Header fields of a request at most.
const FIELDS_MAX: usize = 64;

/// Octets of a head at most.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The list, for eyes.
    List,
    /// The list, for programs.
    Json,
    /// A segment.
    Segment(u64),
    /// What comes from now on.
    Live,
    /// Something that there is not.
    Unknown,
}

/// A request that can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is wanted.
    pub what: What,
    /// Only the head of it (HEAD).
    pub is_head: bool,
    /// The client speaks HTTP/1.1: chunks are understood.
    pub takes_chunks: bool,
    /// The connection stays open afterwards.
    pub keeps: bool,
    /// What it says of itself, to be judged.
    pub claims: Claims,
    /// First octet, and the one behind the last; both may lie behind the end. One range as `Range` has it (RFC 9110, section 14.2);
    /// several are as none.
    pub range: Option<(Option<u64>, Option<u64>)>,
}

/// What decides whether a client may ask. A field that comes twice ends the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// `Host`.
    pub host: Option<String>,
    /// `Origin`.
    pub origin: Option<String>,
    /// `Authorization`.
    pub authorization: Option<Vec<u8>>,
}

/// How reading a head ends. What is refused ends the connection: where the next head begins nobody knows.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// So many octets were a request.
    Request(Request, usize),
    /// It goes on.
    More,
    /// No; with this status.
    Refused(u16),
}

/// Reads a head.
pub fn read(octets: &[u8]) -> Read {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    let bytes = match parsed.parse(octets) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) if octets.len() < HEAD_BYTES_MAX => return Read::More,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Read::Refused(431);
        }
        Err(_) => return Read::Refused(400),
    };
    let is_head = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Read::Refused(405),
    };
    let takes_chunks = parsed.version == Some(1);
    let mut keeps = takes_chunks;
    let mut range = None;
    let mut claims = Claims::default();
    for field in parsed.headers.iter() {
        let value = str::from_utf8(field.value).unwrap_or_default().trim();
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("connection") {
            let has =
                |word: &str| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word));
            keeps = (keeps && !has("close")) || has("keep-alive");
        } else if is("host") || is("origin") {
            let claim = if is("host") { &mut claims.host } else { &mut claims.origin };
            if claim.replace(value.to_owned()).is_some() {
                return Read::Refused(400);
            }
        } else if is("authorization") {
            if claims.authorization.replace(field.value.to_vec()).is_some() {
                return Read::Refused(400);
            }
        } else if is("range") {
            range = read_range(value);
        } else if is("transfer-encoding") || (is("content-length") && value != "0") {
            // What is asked here has no body, and one that is not read would be the next request.
            return Read::Refused(400);
        }
    }
    let path = parsed.path.unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    let segment = |name: &str| name.strip_suffix(".pcapng").and_then(|digits| digits.parse().ok());
    let what = match path {
        "/" => What::List,
        "/segments" | "/segments/" => What::Json,
        "/live.pcapng" => What::Live,
        path => match path.strip_prefix("/segments/").and_then(segment) {
            Some(number) => What::Segment(number),
            None => What::Unknown,
        },
    };
    Read::Request(Request { what, is_head, takes_chunks, keeps, claims, range }, bytes)
}

fn read_range(value: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| match text.trim() {
        "" => Some(None),
        digits if digits.bytes().all(|octet| octet.is_ascii_digit()) => {
            digits.parse().ok().map(Some)
        }
        _ => None,
    };
    match (number(first)?, number(last)?) {
        (None, None) => None,
        (Some(first), Some(last)) if last < first => None,
        (Some(first), last) => Some((Some(first), last.map(|last| last.saturating_add(1)))),
        suffix => Some(suffix),
    }
}

/// Which octets of `bytes` a range means; `None`: none of them (416).
pub fn within(range: (Option<u64>, Option<u64>), bytes: u64) -> Option<(u64, u64)> {
    let (first, end) = match range {
        (Some(first), end) => (first, end.unwrap_or(u64::MAX).min(bytes)),
        (None, suffix) => (bytes.saturating_sub(suffix.unwrap_or(0)), bytes),
    };
    (first < end).then_some((first, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(head: &str) -> Read {
        read(head.as_bytes())
    }

    /// Paths, methods, versions, ranges; what cannot be answered has the status that says why.
    #[test]
    fn requests() {
        let Read::Request(request, bytes) =
            of("GET /segments/00000012.pcapng?x=1 HTTP/1.1\r\nRange: bytes=5-9\r\n\r\nGET")
        else {
            panic!("a request")
        };
        assert_eq!((request.what, bytes), (What::Segment(12), 64));
        assert!(request.keeps && request.takes_chunks && !request.is_head);
        assert_eq!(request.range, Some((Some(5), Some(10))));
        assert_eq!(of("GET / HTTP/1.1\r\nHost: a"), Read::More);
        for path in ["/nowhere", "/segments/../x.pcapng"] {
            let Read::Request(request, _) = of(&format!("GET {path} HTTP/1.1\r\n\r\n")) else {
                panic!("a request")
            };
            assert_eq!(request.what, What::Unknown);
        }
        assert_eq!(of("POST / HTTP/1.1\r\n\r\n"), Read::Refused(405));
        assert_eq!(of("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"), Read::Refused(400));
        assert_eq!(of("\x16\x03\x01\x02\r\n\r\n"), Read::Refused(400));
        let long = format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(of(&long), Read::Refused(431));
        let keeps = |head: &str| matches!(of(head), Read::Request(request, _) if request.keeps);
        assert!(
            !keeps("GET / HTTP/1.0\r\n\r\n")
                && !keeps("GET / HTTP/1.1\r\nConnection: x, Close\r\n\r\n")
        );
    }

    /// Ranges that mean nothing are as none; suffixes count from the end.
    #[test]
    fn ranges() {
        assert_eq!(read_range("bytes=9-5"), None);
        assert_eq!(read_range("bytes=-"), None);
        assert_eq!(read_range("bytes=1-2,5-6"), None);
        assert_eq!(within(read_range("bytes=-4").unwrap(), 10), Some((6, 10)));
        assert_eq!(within(read_range("bytes=-40").unwrap(), 10), Some((0, 10)));
        assert_eq!(within(read_range("bytes=3-").unwrap(), 10), Some((3, 10)));
        assert_eq!(within(read_range("bytes=10-").unwrap(), 10), None);
        assert_eq!(within(read_range("bytes=-0").unwrap(), 10), None);
    }
}
