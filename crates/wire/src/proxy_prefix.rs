//! The PROXY protocol's header, in which a proxy states the client's address before the client's
//! stream (HAProxy's "The PROXY protocol, versions 1 and 2"). Only its length matters here: the TLS
//! or HTTP that names a server begins after it.

/// Longest header of version 1 with its line end.
const V1_BYTES_MAX: usize = 107;
const V1_START: &[u8] = b"PROXY ";
const V2_START: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_HEADER_BYTES: usize = 16;

/// How the first bytes of a stream begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// Not with a PROXY header.
    None,
    /// With a PROXY header as far as one can see.
    NeedMore,
    /// With a PROXY header of this many bytes.
    Bytes(usize),
}

/// Looks for a PROXY header at the start of `bytes`.
#[inline]
pub fn prefix(bytes: &[u8]) -> Prefix {
    // Most streams are decided here.
    match bytes.first() {
        Some(b'P') => v1(bytes),
        Some(b'\r') => v2(bytes),
        _ => Prefix::None,
    }
}

fn v1(bytes: &[u8]) -> Prefix {
    let start = &bytes[..bytes.len().min(V1_START.len())];
    if !V1_START.starts_with(start) {
        return Prefix::None;
    }
    let line = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    match line.iter().position(|&byte| byte == b'\n') {
        Some(end) if line[..end].ends_with(b"\r") && is_v1(&line[start.len()..end - 1]) => {
            Prefix::Bytes(end + 1)
        }
        None if bytes.len() < V1_BYTES_MAX => Prefix::NeedMore,
        _ => Prefix::None,
    }
}

/// The text between `PROXY ` and the line's end: a family, and its fields.
fn is_v1(rest: &[u8]) -> bool {
    let mut words = rest.split(|&byte| byte == b' ');
    match words.next() {
        Some(b"TCP4" | b"TCP6") => words.count() == 4,
        Some(b"UNKNOWN") => true,
        _ => false,
    }
}

fn v2(bytes: &[u8]) -> Prefix {
    let start = &bytes[..bytes.len().min(V2_START.len())];
    if !V2_START.starts_with(start) {
        return Prefix::None;
    }
    match bytes.first_chunk::<V2_HEADER_BYTES>() {
        // Version 2, LOCAL or PROXY.
        Some(&[.., 0x20 | 0x21, _, high, low]) => {
            let end = V2_HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
            if end <= bytes.len() { Prefix::Bytes(end) } else { Prefix::NeedMore }
        }
        Some(_) => Prefix::None,
        None => Prefix::NeedMore,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Headers of both versions end where they state, and every cut of one needs more.
    #[test]
    fn headers() {
        let v2 = [&V2_START[..], &[0x21, 0x11, 0, 12], &[7; 12]].concat();
        let local = [&V2_START[..], &[0x20, 0, 0, 0]].concat();
        for header in [
            &b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"[..],
            b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n",
            b"PROXY UNKNOWN\r\n",
            b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n",
            &v2,
            &local,
        ] {
            let stream = [header, b"\x16\x03\x01GET"].concat();
            assert_eq!(prefix(&stream), Prefix::Bytes(header.len()), "{}", header.escape_ascii());
            for len in 1..header.len() {
                assert_eq!(prefix(&header[..len]), Prefix::NeedMore, "{len}");
            }
        }
    }

    /// Other streams have no such header; HTTP methods and empty lines are not taken for one.
    #[test]
    fn others() {
        let long = [b"PROXY UNKNOWN ", &[b'x'; 100][..], b"\r\n"].concat();
        for stream in [
            &b""[..],
            b"POST / HTTP/1.1\r\n",
            b"PROXY\r\n",
            b"PROXY TCP4 1 2 3\r\n",
            b"PROXY SCTP 1 2 3 4\r\n",
            b"PROXY UNKNOWN\n",
            b"\r\nGET / HTTP/1.1\r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\0",
            &long,
        ] {
            assert_eq!(prefix(stream), Prefix::None, "{}", stream.escape_ascii());
        }
    }

    proptest! {
        /// A final result does not change when more bytes come, and a header is within the bytes.
        #[test]
        fn verdicts_stand(start in 0usize..3, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let start = [&b""[..], b"PROXY TCP4 ", V2_START][start];
            let stream = [start, &bytes].concat();
            let whole = prefix(&stream);
            if let Prefix::Bytes(len) = whole {
                prop_assert!(len <= stream.len());
            }
            for len in 1..stream.len() {
                let early = prefix(&stream[..len]);
                prop_assert!(early == whole || early == Prefix::NeedMore);
            }
        }
    }
}
