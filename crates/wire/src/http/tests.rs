use super::*;

fn host(bytes: &[u8]) -> Option<&[u8]> {
    match request_head(bytes) {
        Head::Found(request) => request.host,
        other => panic!("{other:?}"),
    }
}

fn target_authority(bytes: &[u8]) -> Option<&[u8]> {
    match request_head(bytes) {
        Head::Found(request) => request.target_authority,
        other => panic!("{other:?}"),
    }
}

/// The Host is found in every spelling that servers take, and at its line's end.
#[test]
fn hosts() {
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\nHost: a.example\r\n"[..], Some(&b"a.example"[..])),
        (b"GET / HTTP/1.1\r\nAccept: */*\r\nhOST:a.example:80 \t\r\nX: y", Some(b"a.example:80")),
        (b"\r\n\r\nPOST /x?y HTTP/1.0\nHost:\ta.example\n", Some(b"a.example")),
        (b"PROPFIND / HTTP/1.1\r\nHost:\r\n a.example\r\n", Some(b"a.example")),
        (b"GET / HTTP/1.1\r\nX: y\r\n Host: b\r\nHost: a.example\r\n", Some(b"a.example")),
        (b"GET / HTTP/1.1\r\nHost: \r\nHost: a.example\r\n\r\n", None),
        (b"GET / HTTP/1.0\r\n\r\n", None),
        (b"foo-Bar! \xff HTTP/1.1\r\nHost: a\r\n", Some(b"a")),
    ] {
        assert_eq!(host(bytes), expected, "{}", bytes.escape_ascii());
    }
}

proptest::proptest! {
    /// The first line end is found wherever it is, also among bytes that differ from it in one
    /// bit.
    #[test]
    fn line_ends(bytes in proptest::collection::vec(0x08u8..0x0d, 0..40), high in 0u8..2) {
        let bytes: Vec<u8> = bytes.into_iter().map(|byte| byte | high << 7).collect();
        proptest::prop_assert_eq!(line_end(&bytes), bytes.iter().position(|&byte| byte == b'\n'));
    }
}

/// Absolute form and CONNECT state an authority; other targets do not.
#[test]
fn authorities() {
    for (target, expected) in [
        (&b"GET http://a.example/x"[..], Some(&b"a.example"[..])),
        (b"GET http://user:pass@a.example:81?x", Some(b"a.example:81")),
        (b"GET http://a@b@a.example/", Some(b"a.example")),
        (b"GET http://a.example", Some(b"a.example")),
        (b"GET http:///x", None),
        (b"CONNECT a.example:443", Some(b"a.example:443")),
        (b"OPTIONS *", None),
        (b"GET /http://a.example/", None),
        (b"GET ://a.example/", None),
    ] {
        let bytes = [target, b" HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(target_authority(&bytes), expected, "{}", target.escape_ascii());
    }
}

/// Other protocols are refused, at the latest with their first line.
#[test]
fn not_http() {
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"EHLO a.example\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"\x16\x03\x01",
        b"GET  HTTP/1.1\r\n",
        b"GET / HTTP/1.\r\n",
        b"GET /a b HTTP/1.1\r\n",
        b"GET / HTTP/1.1 \r\n",
        b"GET / HTTP/11\r\n",
        b"AVERYLONGWORDTHATISNOMETHOD",
        b" GET / HTTP/1.1\r\n",
        b"GET\r\n",
    ] {
        assert_eq!(request_head(bytes), Head::NotHttp, "{}", bytes.escape_ascii());
    }
}

/// Headers with an error after the request line give no name.
#[test]
fn malformed() {
    let long = [&b"GET / HTTP/1.1\r\nX: "[..], &[b'x'; HEAD_BYTES_MAX]].concat();
    for bytes in [
        &b"GET / HTTP/1.1\r\nno field\r\n"[..],
        b"GET / HTTP/1.1\r\nHost : a.example\r\n",
        b"GET / HTTP/1.1\r\n: a.example\r\n",
        b"GET / HTTP/1.1\r\n\x00\x01\x02\r\n",
        &long,
    ] {
        assert_eq!(request_head(bytes), Head::Malformed);
    }
    let long = [&b"GET /"[..], &[b'x'; HEAD_BYTES_MAX]].concat();
    assert_eq!(request_head(&long), Head::NotHttp);
}

/// A scanner that gets the headers byte by byte has the same result as one that gets them
/// whole, and only `NeedMore` before.
#[test]
fn byte_by_byte() {
    for head in [
        &b"\r\nGET http://b/ HTTP/1.1\r\nX: 1\r\nHost: a.example:8080\r\n"[..],
        b"GET / HTTP/1.1\r\nHost:\r\n\ta.example\r\n",
        b"CONNECT a.example:443 HTTP/1.0\r\nA: b\r\n\r\n",
    ] {
        let mut scanner = HeadScanner::new();
        for len in 0..head.len() {
            assert_eq!(scanner.scan(&head[..len]), Head::NeedMore, "{len} bytes");
        }
        assert_eq!(scanner.scan(head), request_head(head));
        assert!(matches!(request_head(head), Head::Found(_)));
    }
}

/// A second Host is found anywhere, in whatever pieces it arrives; bytes after the headers are not
/// part of them.
#[test]
fn another_host() {
    for (head, expected) in [
        (&b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nhOST:\tb \r\n\r\n"[..], Some(&b"b"[..])),
        (b"GET / HTTP/1.1\nHost: a\nHost : b\n\n", Some(b"b")),
        (b"GET / HTTP/1.1\r\nHost:\r\nHost: b\r\n\r\n", Some(b"b")),
        (b"GET / HTTP/1.1\r\nHost:\r\n a\r\nHost: b\r\n\r\n", Some(b"b")),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHosts: b\r\nX-Host: b\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\nHost: b\r\n", None),
        (b"GET / HTTP/1.1\r\n\r\nHost: b\r\n", None),
    ] {
        for step in [1, 5, head.len()] {
            let mut scanner = HeadScanner::new();
            let mut is_found = false;
            let mut rest = Rest::NeedMore;
            for len in (step..=head.len()).step_by(step).chain([head.len()]) {
                is_found = is_found || scanner.scan(&head[..len]) != Head::NeedMore;
                if is_found && rest == Rest::NeedMore {
                    rest = scanner.rest(&head[..len]);
                }
            }
            let expected = expected.map_or(Rest::Ended, Rest::AnotherHost);
            assert_eq!(rest, expected, "{}, {step}", head.escape_ascii());
        }
    }
    let long = [&b"GET / HTTP/1.1\r\nHost: a\r\nX: "[..], &[b'x'; HEAD_BYTES_MAX]].concat();
    let mut scanner = HeadScanner::new();
    assert!(matches!(scanner.scan(&long), Head::Found(_)));
    assert_eq!(scanner.rest(&long[..1000]), Rest::NeedMore);
    assert_eq!(scanner.rest(&long), Rest::Ended);
}

/// A name may be as long as RFC 1035 allows, and no longer; nor may one of its labels, or be
/// empty.
#[test]
fn lengths_of_names() {
    let name =
        |labels: &[usize]| labels.iter().map(|&n| "x".repeat(n)).collect::<Vec<_>>().join(".");
    for labels in [&[63, 63, 63, 61][..], &[63], &[1; 127]] {
        let name = name(labels);
        assert_eq!(host_name(name.as_bytes()), Some((name.as_bytes(), None)), "{name}");
        let dotted = name + ".";
        assert_eq!(host_name(dotted.as_bytes()), Some((dotted.as_bytes(), None)), "{dotted}");
    }
    for labels in [&[63, 63, 63, 62][..], &[64], &[3, 64, 3], &[1; 128], &[1, 0, 1], &[300]] {
        let name = name(labels);
        assert_eq!(host_name(name.as_bytes()), None, "{name}");
    }
}

/// Names have their port; addresses in any spelling and invalid bytes are no names.
#[test]
fn host_names() {
    for (authority, expected) in [
        (&b"www.Example.com"[..], Some((&b"www.Example.com"[..], None))),
        (b"a.example:8080", Some((b"a.example", Some(8080)))),
        (b"a.example.:", Some((b"a.example.", None))),
        (b"localhost:1", Some((b"localhost", Some(1)))),
        (b"_x.a-b.example", Some((b"_x.a-b.example", None))),
        (b"3com.example", Some((b"3com.example", None))),
        (b"b\xc3\xbccher.example", Some((b"b\xc3\xbccher.example", None))),
        (b"192.0.2.1", None),
        (b"192.0.2.1.:80", None),
        (b"127.1", None),
        (b"0x7f000001", None),
        (b"[2001:db8::1]:443", None),
        (b"2001:db8::1", None),
        (b"a.example:99999", None),
        (b"a.example:http", None),
        (b"a b", None),
        (b"a\x00.example", None),
        (b"user@a.example", None),
        (b".example", None),
        (b"a.example..", None),
        (b".", None),
        (b"", None),
        (b":80", None),
    ] {
        assert_eq!(host_name(authority), expected, "{}", authority.escape_ascii());
    }
}
