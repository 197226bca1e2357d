//! Requests of clients.

use larder_serve::http_server::Request;

/// The requested resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The list, for people.
    List,
    /// The list, for programs.
    Json,
    /// A segment.
    Segment(u64),
    /// All packets from now on.
    Live,
    /// The result of a search.
    Find,
    /// An unknown path.
    Unknown,
}

/// First byte, and end; both may be after the end of the file. One range of `Range` (RFC 9110,
/// section 14.2); several count as none.
pub type Range = (Option<u64>, Option<u64>);

/// The resource of a path.
pub fn wanted(path: &str) -> What {
    let segment = |name: &str| name.strip_suffix(".pcapng").and_then(|digits| digits.parse().ok());
    match path {
        "/" => What::List,
        "/segments" | "/segments/" => What::Json,
        "/live.pcapng" => What::Live,
        "/find" => What::Find,
        path => match path.strip_prefix("/segments/").and_then(segment) {
            Some(number) => What::Segment(number),
            None => What::Unknown,
        },
    }
}

/// The range of bytes that the request names, if it names one.
pub fn range_of(request: &Request<'_>) -> Option<Range> {
    let ranges = request.fields().filter(|(name, _)| name.eq_ignore_ascii_case("range"));
    let (_, value) = ranges.last()?;
    read_range(str::from_utf8(value).unwrap_or_default().trim())
}

fn read_range(value: &str) -> Option<Range> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| match text.trim() {
        "" => Some(None),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok().map(Some),
        _ => None,
    };
    match (number(first)?, number(last)?) {
        (None, None) => None,
        (Some(first), Some(last)) if last < first => None,
        (Some(first), last) => Some((Some(first), last.map(|last| last.saturating_add(1)))),
        suffix => Some(suffix),
    }
}

/// The bytes of a range, of `bytes`; `None`: none of them (416).
pub fn within(range: Range, bytes: u64) -> Option<(u64, u64)> {
    let (first, end) = match range {
        (Some(first), end) => (first, end.unwrap_or(u64::MAX).min(bytes)),
        (None, suffix) => (bytes.saturating_sub(suffix.unwrap_or(0)), bytes),
    };
    (first < end).then_some((first, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths, with and without leading zeros; others are unknown.
    #[test]
    fn paths() {
        assert_eq!(wanted("/segments/00000012.pcapng"), What::Segment(12));
        assert_eq!(wanted("/segments/"), What::Json);
        for path in ["/nowhere", "/segments/../x.pcapng", "/segments/1", ""] {
            assert_eq!(wanted(path), What::Unknown, "{path}");
        }
    }

    /// Invalid ranges count as none; suffixes count from the end.
    #[test]
    fn ranges() {
        assert_eq!(read_range("bytes=5-9"), Some((Some(5), Some(10))));
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
