//! The PROXY protocol, versions 1 and 2, as in HAProxy's `proxy-protocol.txt`: the proxy in front
//! of larder states the client's address before the connection's first bytes.
//!
//! ```text
//! PROXY TCP4 192.0.2.1 198.51.100.7 51000 80\r\n
//! \r\n\r\n\0\r\nQUIT\n  version and command, family, length  addresses  additions
//! ```
//!
//! It is strict: all other bytes are an error. The additions of version 2 (TLVs) are ignored.
//!
//! Bounds: [`LINE_BYTES_MAX`], [`HEADER_BYTES_MAX`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of a line of version 1, with its end.
pub const LINE_BYTES_MAX: usize = 107;

/// Bytes of a header of version 2.
pub const HEADER_BYTES_MAX: usize = 16 + (8 << 10);

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const WORD: &[u8; 6] = b"PROXY ";

/// The owner of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxied {
    /// The proxy's own, for example a health check, or one of a kind without usable addresses.
    Own,
    /// A client's.
    Client {
        /// Its address.
        from: SocketAddr,
        /// The address that it connected to.
        to: SocketAddr,
    },
}

/// The bytes are not a valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

/// Reads the beginning of a connection: its owner, and the length of the header; `None`: more bytes
/// have to come.
pub fn read(bytes: &[u8]) -> Result<Option<(Proxied, usize)>, Damaged> {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(one, other)| one == other);
    if begins(SIGNATURE) && bytes.len() >= SIGNATURE.len() {
        header(bytes)
    } else if begins(WORD) && bytes.len() >= WORD.len() {
        line(bytes)
    } else if begins(SIGNATURE) || begins(WORD) {
        Ok(None)
    } else {
        Err(Damaged)
    }
}

/// Version 1.
fn line(bytes: &[u8]) -> Result<Option<(Proxied, usize)>, Damaged> {
    let within = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', within) else {
        return if within.len() == LINE_BYTES_MAX { Err(Damaged) } else { Ok(None) };
    };
    let text = within[WORD.len()..end].strip_suffix(b"\r").ok_or(Damaged)?;
    let text = std::str::from_utf8(text).map_err(|_| Damaged)?;
    let mut words = text.split(' ');
    let family = words.next().unwrap_or_default();
    if family == "UNKNOWN" {
        // The rest is to be ignored.
        return Ok(Some((Proxied::Own, end + 1)));
    }
    let mut next = || words.next().ok_or(Damaged);
    let (from, to) = (next()?, next()?);
    let (from_port, to_port) = (port(next()?)?, port(next()?)?);
    if words.next().is_some() {
        return Err(Damaged);
    }
    let address = |text: &str| -> Result<IpAddr, Damaged> {
        let address: IpAddr = text.parse().map_err(|_| Damaged)?;
        let is_of_family = match family {
            "TCP4" => address.is_ipv4(),
            "TCP6" => address.is_ipv6(),
            _ => false,
        };
        if is_of_family { Ok(address) } else { Err(Damaged) }
    };
    let from = SocketAddr::new(address(from)?, from_port);
    let to = SocketAddr::new(address(to)?, to_port);
    Ok(Some((Proxied::Client { from, to }, end + 1)))
}

/// Digits without a leading zero.
fn port(text: &str) -> Result<u16, Damaged> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_zero = text.len() > 1 && text.starts_with('0');
    if is_plain && !has_zero { text.parse().map_err(|_| Damaged) } else { Err(Damaged) }
}

/// Version 2.
fn header(bytes: &[u8]) -> Result<Option<(Proxied, usize)>, Damaged> {
    let at = |place: usize| bytes.get(place).copied();
    // Each byte is checked as soon as it is there.
    let is_own = match at(12) {
        None => return Ok(None),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return Err(Damaged),
    };
    let address_bytes = match at(13) {
        None => return Ok(None),
        // Unspecified, and TCP over IPv4, over IPv6, and a Unix socket.
        Some(0x00) => 0,
        Some(0x11) => 12,
        Some(0x21) => 36,
        Some(0x31) => 216,
        // The addresses of a proxy's own connection are ignored.
        Some(_) if is_own => 0,
        Some(_) => return Err(Damaged),
    };
    let (Some(high), Some(low)) = (at(14), at(15)) else { return Ok(None) };
    let end = 16 + usize::from(u16::from_be_bytes([high, low]));
    if end > HEADER_BYTES_MAX || !is_own && end < 16 + address_bytes {
        return Err(Damaged);
    }
    let Some(said) = bytes.get(16..end) else { return Ok(None) };
    let proxied = match (is_own, bytes[13]) {
        (false, 0x11) => addresses(said, |bytes: [u8; 4]| Ipv4Addr::from(bytes).into()),
        (false, 0x21) => addresses(said, |bytes: [u8; 16]| Ipv6Addr::from(bytes).into()),
        _ => Some(Proxied::Own),
    };
    Ok(Some((proxied.ok_or(Damaged)?, end)))
}

/// Source and destination: two addresses and two ports.
fn addresses<const N: usize>(said: &[u8], address: impl Fn([u8; N]) -> IpAddr) -> Option<Proxied> {
    let (from, rest) = said.split_first_chunk::<N>()?;
    let (to, rest) = rest.split_first_chunk::<N>()?;
    let (from_port, rest) = rest.split_first_chunk::<2>()?;
    let to_port = rest.first_chunk::<2>()?;
    let socket = |bytes, port| SocketAddr::new(address(bytes), u16::from_be_bytes(port));
    Some(Proxied::Client { from: socket(*from, *from_port), to: socket(*to, *to_port) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(from: &str, to: &str) -> Proxied {
        Proxied::Client { from: from.parse().unwrap(), to: to.parse().unwrap() }
    }

    fn v2(command: u8, family: u8, said: &[u8]) -> Vec<u8> {
        let length = (said.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, said].concat()
    }

    /// Bytes give the same result in whatever pieces they come: none before it is known, and the
    /// same whatever follows.
    fn read_all(bytes: &[u8]) -> Result<(Proxied, usize), Damaged> {
        let whole = read(bytes);
        let followed = read(&[bytes, b"GET / HTTP/1.1\r\n"].concat());
        for cut in 0..bytes.len() {
            match read(&bytes[..cut]) {
                Ok(None) => {}
                early => assert_eq!(early, whole, "{cut} of {bytes:?}"),
            }
        }
        if let Ok(Some((_, used))) = whole {
            assert_eq!((used, followed), (bytes.len(), whole));
        }
        whole.map(|read| read.expect("whole"))
    }

    /// Lines of version 1 are read, among them the examples of the specification.
    #[test]
    fn lines() {
        for (line, proxied) in [
            ("TCP4 192.0.2.1 198.51.100.7 51000 80", client("192.0.2.1:51000", "198.51.100.7:80")),
            (
                "TCP4 255.255.255.255 255.255.255.255 65535 65535",
                client("255.255.255.255:65535", "255.255.255.255:65535"),
            ),
            ("TCP6 2001:db8::1 ::1 0 443", client("[2001:db8::1]:0", "[::1]:443")),
            ("UNKNOWN", Proxied::Own),
            ("UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535", Proxied::Own),
        ] {
            let line = format!("PROXY {line}\r\n");
            assert_eq!(read_all(line.as_bytes()), Ok((proxied, line.len())), "{line}");
        }
    }

    /// A line that is not exactly valid is refused.
    #[test]
    fn bad_lines() {
        for line in [
            "GET / HTTP/1.1\r\n",
            "PROXY\r\n",
            "PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
            "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            "proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        ] {
            assert_eq!(read(line.as_bytes()), Err(Damaged), "{line:?}");
        }
        let endless = format!("PROXY UNKNOWN {}", "x".repeat(200));
        assert_eq!(read(&endless.as_bytes()[..106]), Ok(None));
        assert_eq!(read(endless.as_bytes()), Err(Damaged));
        assert_eq!(read(b"G"), Err(Damaged));
        assert_eq!(read(b"PROXX"), Err(Damaged));
        assert_eq!(read(b""), Ok(None));
    }

    /// Headers of version 2 are read, with their additions. Those without usable addresses are the
    /// proxy's own.
    #[test]
    fn headers() {
        let four = [192, 0, 2, 1, 198, 51, 100, 7, 0xc7, 0x38, 0, 80];
        let said = client("192.0.2.1:51000", "198.51.100.7:80");
        let added = [&four[..], &[4, 0, 1, 0]].concat();
        let mut six = [0; 36];
        (six[0], six[15], six[31], six[33], six[35]) = (0x20, 1, 1, 7, 80);
        for (bytes, proxied) in [
            (v2(0x21, 0x11, &four), said),
            (v2(0x21, 0x11, &added), said),
            (v2(0x21, 0x21, &six), client("[2000::1]:7", "[::1]:80")),
            (v2(0x21, 0x31, &[7; 216]), Proxied::Own),
            (v2(0x21, 0x00, b""), Proxied::Own),
            (v2(0x21, 0x00, b"xyz"), Proxied::Own),
            (v2(0x20, 0x00, b""), Proxied::Own),
            (v2(0x20, 0x11, &four), Proxied::Own),
            (v2(0x20, 0x77, b"x"), Proxied::Own),
        ] {
            assert_eq!(read_all(&bytes), Ok((proxied, bytes.len())), "{bytes:?}");
        }
    }

    /// Headers of another version, command or protocol, too short for their addresses or too long, are refused.
    #[test]
    fn bad_headers() {
        for bytes in [
            v2(0x11, 0x11, &[0; 12]),
            v2(0x22, 0x11, &[0; 12]),
            v2(0x21, 0x12, &[0; 12]),
            v2(0x21, 0x41, &[0; 12]),
            v2(0x21, 0x11, &[0; 11]),
            v2(0x21, 0x21, &[0; 35]),
            v2(0x21, 0x31, &[0; 215]),
            v2(0x21, 0x11, &[0; (8 << 10) + 1]),
        ] {
            assert_eq!(read(&bytes), Err(Damaged), "{bytes:?}");
        }
        assert_eq!(read(b"\r\n\r\n\0\r\nQUIX"), Err(Damaged));
    }
}
