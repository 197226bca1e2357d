//! The PROXY protocol: a verdict is not taken back, and what is read does not depend on what follows.

use larder_http::proxy_protocol::{HEADER_BYTES_MAX, LINE_BYTES_MAX, Proxied, read};

/// The beginning of a connection, as it is.
pub fn proxy_protocol(input: &[u8]) {
    let whole = read(input);
    for end in 0..input.len() {
        match read(&input[..end]) {
            Ok(None) => {}
            early => {
                assert_eq!(early, whole, "after {end}");
                break;
            }
        }
    }
    match whole {
        Ok(Some((proxied, used))) => {
            assert!(used <= input.len() && used <= HEADER_BYTES_MAX);
            assert_eq!(read(&input[..used]), whole, "what follows does not matter");
            if let Proxied::Client { from, to } = proxied {
                assert_eq!(from.is_ipv4(), to.is_ipv4());
                let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
                let (ip, port) = (from.ip(), from.port());
                let line = format!("PROXY {family} {ip} {} {port} {}\r\n", to.ip(), to.port());
                assert_eq!(read(line.as_bytes()), Ok(Some((proxied, line.len()))), "{line:?}");
            }
        }
        Ok(None) => assert!(input.len() < HEADER_BYTES_MAX.max(LINE_BYTES_MAX)),
        Err(_) => {}
    }
}
