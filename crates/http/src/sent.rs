//! The request that an origin is sent, with the fields that can select a response.
//!
//! The fields that the origin received select a response with `Vary`, not those that the client
//! sent. Fields of one connection are not forwarded, conditions and ranges of one client are not
//! part of a shared fetch, and a proxy adds fields of its own. [`Sent::value`] states the value of
//! a field in the origin's request without making one, and a lookup finds variants by it.
//!
//! Cost: a look at the fields for each name; the client's address is looked up only for
//! `X-Forwarded-For`.

use std::net::IpAddr;

use crate::Field;
use crate::cacheability::selecting_value;
use crate::freshness::is_hop_by_hop;
use crate::message::trailers::takes_trailers;
use crate::message::{RequestHead, Scheme};

/// Fields of conditions and ranges: a shared fetch does not have those of one client.
pub const OF_ONE: [&str; 6] =
    ["if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "range", "if-range"];

/// States the scheme of a client's request.
pub const SCHEME_FIELD: &str = "X-Forwarded-Proto";

/// The value that a fetch adds to `Via`.
pub const VIA: &str = "1.1 larder";

/// A request as an origin is sent it.
#[derive(Clone, Copy)]
pub struct Sent<'a> {
    /// The client's fields.
    pub fields: &'a [Field<'a>],
    /// The authority of the request.
    pub host: &'a [u8],
    /// The origin may send trailers.
    pub takes_trailers: bool,
    /// The scheme that the origin is sent.
    pub scheme: Option<Scheme>,
    /// The fetch is for all clients that want the object.
    pub is_shared: bool,
    /// The client's address.
    pub client: &'a dyn Fn() -> Option<IpAddr>,
}

impl<'a> Sent<'a> {
    /// Of a client's request.
    pub fn new(
        head: &RequestHead<'a>,
        scheme: Option<Scheme>,
        is_shared: bool,
        client: &'a dyn Fn() -> Option<IpAddr>,
    ) -> Sent<'a> {
        let takes_trailers = head.minor_version > 0 && takes_trailers(head.fields);
        Sent { fields: head.fields, host: head.host, takes_trailers, scheme, is_shared, client }
    }

    /// The value that the origin gets in the fields of a name in lower case, in the form of
    /// [`selecting_value`]; `None`: no such field.
    pub fn value(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            "host" => Some(self.host.to_vec()),
            "connection" => self.takes_trailers.then(|| b"TE".to_vec()),
            "te" => self.takes_trailers.then(|| b"trailers".to_vec()),
            "expect" | "content-length" => None,
            "via" => Some(self.with("via", VIA.as_bytes())),
            "x-forwarded-for" => match (self.client)() {
                Some(address) => Some(self.with("x-forwarded-for", address.to_string().as_bytes())),
                None => self.passed_on(name),
            },
            "x-forwarded-proto" => match self.scheme {
                Some(scheme) => Some(scheme.as_str().as_bytes().to_vec()),
                None => self.passed_on(name),
            },
            _ if self.is_shared && OF_ONE.contains(&name) => None,
            _ => self.passed_on(name),
        }
    }

    /// The client's value, unless the field is for one connection.
    fn passed_on(&self, name: &str) -> Option<Vec<u8>> {
        if is_hop_by_hop(name, self.fields) {
            return None;
        }
        selecting_value(self.fields, name)
    }

    /// The same, with larder's member at the end.
    fn with(&self, name: &str, ours: &[u8]) -> Vec<u8> {
        match self.passed_on(name).filter(|value| !value.is_empty()) {
            Some(theirs) => [&theirs, &b", "[..], ours].concat(),
            None => ours.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::forward::push_request;
    use crate::message::{FieldRoom, Limits, request};

    /// The request for an origin that a fetch makes.
    fn made(head: &RequestHead<'_>, sent: &Sent<'_>) -> Vec<u8> {
        let mut extra: Vec<(&str, &[u8])> = Vec::new();
        if sent.takes_trailers {
            extra.extend([("Connection", &b"TE"[..]), ("TE", b"trailers")]);
        }
        extra.push(("Via", VIA.as_bytes()));
        let address = (sent.client)().map(|it| it.to_string());
        extra.extend(address.iter().map(|it| ("X-Forwarded-For", it.as_bytes())));
        extra.extend(sent.scheme.map(|it| (SCHEME_FIELD, it.as_str().as_bytes())));
        let mut out = Vec::new();
        push_request(&mut out, head, None, &extra, |name| {
            sent.is_shared && OF_ONE.iter().any(|it| it.eq_ignore_ascii_case(name))
                || sent.scheme.is_some() && name.eq_ignore_ascii_case(SCHEME_FIELD)
        });
        out
    }

    proptest! {
        /// The stated value is the one in the request: for fields that are dropped, added and
        /// forwarded, and for any of them that `Connection` names. larder's own `TE` and
        /// `Connection` are for the next hop, and are compared as they are.
        #[test]
        fn as_it_is_sent(
            lines in prop::collection::vec((0usize..12, 0usize..6), 0..12),
            is_shared: bool,
            is_secure: Option<bool>,
            has_address: bool,
            minor_version in 0u8..2,
        ) {
            const NAMES: [&str; 12] = [
                "X", "accept-encoding", "Via", "X-Forwarded-For", "x-forwarded-proto", "Range", "If-None-Match", "TE",
                "Connection", "Upgrade", "Expect", "Cookie",
            ];
            const VALUES: [&str; 6] = [
                "a, B", "", "trailers", "x, cookie, via", "range ,x-forwarded-for", "\"q,r\" , s",
            ];
            let mut bytes = format!("GET / HTTP/1.{minor_version}\r\nHost: a.example\r\n");
            for (name, value) in lines {
                bytes.push_str(&format!("{}: {}\r\n", NAMES[name], VALUES[value]));
            }
            bytes.push_str("\r\n");
            let mut room = FieldRoom::new();
            let Ok(Some(head)) = request(bytes.as_bytes(), &mut room, &Limits::default()) else { return Ok(()) };
            let client = || has_address.then(|| "192.0.2.1".parse().unwrap());
            let scheme = is_secure.map(|it| if it { Scheme::Https } else { Scheme::Http });
            let sent = Sent::new(&head, scheme, is_shared, &client);
            let made = made(&head, &sent);
            let mut room = FieldRoom::new();
            let received = request(&made, &mut room, &Limits::READ_BEFORE).unwrap().unwrap();
            for name in NAMES.iter().chain(&["host", "content-length"]) {
                let name = name.to_ascii_lowercase();
                prop_assert_eq!(sent.value(&name), selecting_value(received.fields, &name), "{}", name);
            }
        }
    }
}
