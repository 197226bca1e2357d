//! HTTP headers compared with `httparse`, and hostile bytes.

use larder_wire::http::{HEAD_BYTES_MAX, Head, HeadScanner, Request, host_name, request_head};
use proptest::prelude::*;

/// The reading of complete headers by `httparse`.
struct Judgement {
    method: String,
    target: String,
    host: Option<Vec<u8>>,
}

fn judge(bytes: &[u8]) -> Option<Judgement> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => Some(Judgement {
            method: request.method?.to_owned(),
            target: request.path?.to_owned(),
            host: request
                .headers
                .iter()
                .find(|header| header.name.eq_ignore_ascii_case("host"))
                .map(|header| header.value.trim_ascii().to_vec())
                .filter(|value| !value.is_empty()),
        }),
        _ => None,
    }
}

fn method() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("GET".to_owned()),
        Just("POST".to_owned()),
        Just("CONNECT".to_owned()),
        "[A-Za-z!#$%&'*+.^_`|~-]{1,20}",
    ]
}

fn target() -> impl Strategy<Value = String> {
    prop_oneof![
        "/[a-z0-9/?&=%:@]{0,20}",
        "http://([a-z]{1,5}@)?[a-z.]{1,12}(:[0-9]{1,5})?(/[a-z:@]{0,5})?",
        "[a-z.]{1,12}:[0-9]{1,5}",
        Just("*".to_owned()),
    ]
}

fn field() -> impl Strategy<Value = String> {
    let name = prop_oneof![Just("Host"), Just("hOsT"), Just("Hos"), Just("Hosts"), Just("Accept")];
    let value = prop_oneof!["[a-z.:0-9]{0,12}", "[ \t]{0,2}[a-z.]{1,8}[ \t]{0,2}", "[!-~ ]{0,20}"];
    (name, value).prop_map(|(name, value)| format!("{name}:{value}"))
}

fn head() -> impl Strategy<Value = String> {
    let end = prop_oneof![4 => Just("\r\n"), 1 => Just("\n")];
    let version = prop_oneof![Just("HTTP/1.1"), Just("HTTP/1.0")];
    (method(), target(), version, prop::collection::vec(field(), 0..6), end).prop_map(
        |(method, target, version, fields, end)| {
            let mut head = format!("{method} {target} {version}{end}");
            for field in fields {
                head.push_str(&field);
                head.push_str(end);
            }
            head + end
        },
    )
}

fn is_inside(part: &[u8], whole: &[u8]) -> bool {
    part.is_empty() || whole.windows(part.len()).any(|window| window == part)
}

/// Checks that the parts found are slices of the input.
fn check_borrowed(head: Head<'_>, bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Head::Found(Request { method, host, target_authority }) = head {
        for part in [Some(method), host, target_authority].into_iter().flatten() {
            prop_assert!(is_inside(part, bytes));
            prop_assert!(!part.is_empty());
            if let Some((name, _)) = host_name(part) {
                prop_assert!(is_inside(name, part));
                prop_assert!(name.iter().all(|&byte| byte > b' ' && byte != 0x7f));
            }
        }
    }
    Ok(())
}

proptest! {
    /// If `httparse` accepts headers, so does larder, with the same method and the same Host.
    #[test]
    fn same_as_httparse(head in head()) {
        let Some(judgement) = judge(head.as_bytes()) else { return Ok(()) };
        match request_head(head.as_bytes()) {
            Head::Found(Request { method, host, target_authority }) => {
                prop_assert_eq!(method, judgement.method.as_bytes());
                prop_assert_eq!(host, judgement.host.as_deref());
                if let Some(authority) = target_authority {
                    prop_assert!(is_inside(authority, judgement.target.as_bytes()));
                }
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// The same with some bytes changed: larder agrees on what `httparse` still accepts. Nothing
    /// panics, and no name is invented.
    #[test]
    fn changed_heads(
        head in head(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = head.into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let answer = request_head(&bytes);
        check_borrowed(answer, &bytes)?;
        if let (Some(judgement), Head::Found(Request { method, host, .. })) = (judge(&bytes), answer) {
            prop_assert_eq!(method, judgement.method.as_bytes());
            prop_assert_eq!(host, judgement.host.as_deref());
        }
    }

    /// A scanner that gets headers in any pieces returns the same result as for the complete
    /// headers.
    #[test]
    fn parts_are_the_whole(head in head(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let bytes = head.as_bytes();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let mut scanner = HeadScanner::new();
        let answer = cuts
            .iter()
            .map(|&cut| scanner.scan(&bytes[..cut]))
            .find(|answer| *answer != Head::NeedMore)
            .unwrap_or(Head::NeedMore);
        prop_assert_eq!(answer, request_head(bytes));
    }

    /// Random bytes, and random bytes after a valid request line, never cause a panic.
    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check_borrowed(request_head(&bytes), &bytes)?;
        let after = [b"GET / HTTP/1.1\r\n", &bytes[..]].concat();
        check_borrowed(request_head(&after), &after)?;
        if let Some((name, _)) = host_name(&bytes) {
            prop_assert!(bytes.starts_with(name) && !name.is_empty());
        }
    }

    /// Addresses as the standard library prints them are not names, with or without a port.
    #[test]
    fn addresses_are_no_names(v4 in any::<std::net::Ipv4Addr>(), v6 in any::<std::net::Ipv6Addr>(), port in any::<u16>()) {
        for text in [format!("{v4}"), format!("{v4}:{port}"), format!("{v6}"), format!("[{v6}]"), format!("[{v6}]:{port}")] {
            prop_assert_eq!(host_name(text.as_bytes()), None);
        }
    }
}

/// At the limit the scanner gives up on headers without a Host, whatever follows.
#[test]
fn limit() {
    let mut head = b"GET / HTTP/1.1\r\n".to_vec();
    while head.len() < HEAD_BYTES_MAX {
        assert_eq!(request_head(&head), Head::NeedMore);
        head.extend_from_slice(b"X: y\r\n");
    }
    head.extend_from_slice(b"Host: a.example\r\n\r\n");
    assert_eq!(request_head(&head), Head::Malformed);
}
