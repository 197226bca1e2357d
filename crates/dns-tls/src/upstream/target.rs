//! Upstreams as operators write them.
//!
//! ```text
//! tls://192.0.2.1                     the certificate is for the address
//! tls://192.0.2.1:8853#dns.example    for a name
//! https://[2001:db8::1]/dns-query#dns.example
//! quic://192.0.2.1#dns.example
//! ```
//!
//! The server is given by its address, and after `#` by the name that its certificate must have, as
//! in systemd-resolved and unbound. A name alone would need a lookup first.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use rustls::pki_types::ServerName;

use crate::server::HTTPS_PATH;

/// The port of RFC 7858 and RFC 9250, and of HTTPS.
const PORT: u16 = 853;
const HTTPS_PORT: u16 = 443;

/// The transport to an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// DNS over TLS.
    Tls,
    /// DNS over HTTPS, at this path.
    Https(String),
    /// DNS over QUIC.
    Quic,
}

impl Transport {
    pub(crate) fn alpn(&self) -> &'static [u8] {
        match self {
            Transport::Tls => b"dot",
            Transport::Https(_) => b"h2",
            Transport::Quic => b"doq",
        }
    }

    fn scheme(&self) -> &'static str {
        match self {
            Transport::Tls => "tls",
            Transport::Https(_) => "https",
            Transport::Quic => "quic",
        }
    }
}

/// An upstream: transport, address and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The transport.
    pub transport: Transport,
    /// The server's address.
    pub address: SocketAddr,
    /// The name that its certificate must have.
    pub name: ServerName<'static>,
}

/// Why a text is not an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetError {
    /// No scheme, or an unknown one.
    Scheme,
    /// No address; perhaps a name.
    Address,
    /// The text after `#` is not a name.
    Name,
    /// A path, but the transport has none; or a text that is not a path.
    Path,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TargetError::Scheme => "expected tls://, https:// or quic://",
            TargetError::Address => {
                "expected an address and the server's name behind #, as tls://192.0.2.1#dns.example \
                 or https://192.0.2.1/dns-query#dns.example; names are not looked up to find whom to ask"
            }
            TargetError::Name => "expected a name or an address behind #, as in tls://192.0.2.1#dns.example",
            TargetError::Path => "only https:// has a path, as https://192.0.2.1/dns-query#dns.example",
        })
    }
}

impl Target {
    /// Parses an upstream; see the module header.
    pub fn parse(text: &str) -> Result<Target, TargetError> {
        let (scheme, rest) = text.split_once("://").ok_or(TargetError::Scheme)?;
        let (rest, name) = match rest.split_once('#') {
            Some((rest, name)) => (rest, Some(name)),
            None => (rest, None),
        };
        let (at, path) = match rest.find('/') {
            Some(slash) => (&rest[..slash], Some(&rest[slash..])),
            None => (rest, None),
        };
        let transport = match (scheme, path) {
            ("tls", None) => Transport::Tls,
            ("quic", None) => Transport::Quic,
            ("https", path) => Transport::Https(match path {
                None | Some("/") => HTTPS_PATH.to_owned(),
                Some(path) if is_path(path) => path.to_owned(),
                Some(_) => return Err(TargetError::Path),
            }),
            ("tls" | "quic", Some(_)) => return Err(TargetError::Path),
            _ => return Err(TargetError::Scheme),
        };
        let port = if scheme == "https" { HTTPS_PORT } else { PORT };
        let bare = at.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(at);
        let address = match bare.parse::<IpAddr>() {
            Ok(address) => SocketAddr::new(address, port),
            Err(_) => at.parse().map_err(|_| TargetError::Address)?,
        };
        let name = match name {
            Some(name) => ServerName::try_from(name.to_owned()).map_err(|_| TargetError::Name)?,
            None => ServerName::IpAddress(address.ip().into()),
        };
        Ok(Target { transport, address, name })
    }

    /// The name that the certificate must have, as text.
    pub(crate) fn name_text(&self) -> String {
        match &self.name {
            ServerName::DnsName(name) => name.as_ref().to_owned(),
            ServerName::IpAddress(address) => IpAddr::from(*address).to_string(),
            _ => self.address.ip().to_string(),
        }
    }
}

/// True if a text may be sent as a path; a query string would be part of the DNS query.
fn is_path(path: &str) -> bool {
    path.bytes().all(|byte| {
        byte.is_ascii_graphic()
            && !matches!(
                byte,
                b'?' | b'#' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
            )
    })
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.transport.scheme(), self.address)?;
        if let Transport::Https(path) = &self.transport {
            f.write_str(path)?;
        }
        match &self.name {
            ServerName::IpAddress(ip) if IpAddr::from(*ip) == self.address.ip() => Ok(()),
            _ => write!(f, "#{}", self.name_text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ports, paths and names have defaults, and the text form reads back.
    #[test]
    fn texts() {
        for (text, whole) in [
            ("tls://192.0.2.1", "tls://192.0.2.1:853"),
            ("tls://192.0.2.1:8853#dns.example", "tls://192.0.2.1:8853#dns.example"),
            ("tls://2001:db8::1#dns.example", "tls://[2001:db8::1]:853#dns.example"),
            ("quic://[2001:db8::1]:8853", "quic://[2001:db8::1]:8853"),
            ("https://192.0.2.1#dns.example", "https://192.0.2.1:443/dns-query#dns.example"),
            ("tls://192.0.2.1#192.0.2.9", "tls://192.0.2.1:853#192.0.2.9"),
            ("https://192.0.2.1/#dns.example", "https://192.0.2.1:443/dns-query#dns.example"),
            (
                "https://[2001:db8::1]:8443/q/x#a.example",
                "https://[2001:db8::1]:8443/q/x#a.example",
            ),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!(target.to_string(), whole);
            assert_eq!(Target::parse(whole).unwrap(), target);
        }
    }

    /// Each error has its own value.
    #[test]
    fn errors() {
        for (text, error) in [
            ("192.0.2.1", TargetError::Scheme),
            ("tcp://192.0.2.1", TargetError::Scheme),
            ("tls://", TargetError::Address),
            ("tls://dns.example", TargetError::Address),
            ("https://dns.example/dns-query", TargetError::Address),
            ("tls://192.0.2.1:x", TargetError::Address),
            ("tls://192.0.2.1#", TargetError::Name),
            ("tls://192.0.2.1#a b", TargetError::Name),
            ("tls://192.0.2.1/dns-query", TargetError::Path),
            ("https://192.0.2.1/a?b", TargetError::Path),
            ("https://192.0.2.1/ ", TargetError::Path),
        ] {
            assert_eq!(Target::parse(text), Err(error), "{text}");
        }
    }
}
