//! Checks requests of HTTP clients before a server of packets or pages responds.
//!
//! A page in a browser may send requests to any address that its user reaches. It may read the
//! response if the browser takes the address for the page's own host (DNS rebinding). The name of
//! that host is in `Host`; it cannot be an address, nor a name that is served here. So these are
//! refused:
//!
//! * a `Host` that is missing, or is neither `localhost`, nor a loopback address, nor the address
//!   that the client has reached, nor a name of the list. The port is not compared: it may be
//!   forwarded.
//! * a `Sec-Fetch-Site` that is neither `same-origin` nor `none`, except for the page itself: browsers send it
//!   also for images, which have no `Origin`;
//! * an `Origin` that is not that host.
//! * with a token: no `Authorization`, or another token. The time of the comparison does not depend
//!   on where they differ.
//!
//! A browser cannot reach a Unix socket: only `Origin` and the token are checked.

use std::fmt;
use std::net::IpAddr;

use subtle::ConstantTimeEq;

use crate::http_server::Request;

/// The header fields that decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// `Host`.
    pub host: Option<String>,
    /// `Origin`.
    pub origin: Option<String>,
    /// `Authorization`.
    pub authorization: Option<Vec<u8>>,
    /// A browser says in `Sec-Fetch-Site` that a page of another site made the request.
    pub is_foreign: bool,
}

impl Claims {
    /// Reads the fields of a request; `None` if one of them is repeated.
    pub fn of(request: &Request<'_>) -> Option<Claims> {
        let mut claims = Claims::default();
        for (name, value) in request.fields() {
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            let text = || str::from_utf8(value).unwrap_or_default().trim().to_owned();
            let is_twice = if is("host") {
                claims.host.replace(text()).is_some()
            } else if is("origin") {
                claims.origin.replace(text()).is_some()
            } else if is("authorization") {
                claims.authorization.replace(value.to_vec()).is_some()
            } else {
                if is("sec-fetch-site") {
                    claims.is_foreign |= !matches!(&text()[..], "same-origin" | "none");
                }
                false
            };
            if is_twice {
                return None;
            }
        }
        Some(claims)
    }
}

/// See the module.
pub struct Authorizer {
    /// In lower case.
    hosts: Vec<String>,
    token: Option<Vec<u8>>,
}

impl fmt::Debug for Authorizer {
    /// Without the token, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_token = self.token.is_some();
        f.debug_struct("Authorizer")
            .field("hosts", &self.hosts)
            .field("has_token", &has_token)
            .finish()
    }
}

impl Authorizer {
    /// Serves `hosts` besides loopback and the address itself, and requires `token` if there is one.
    pub fn new(hosts: &[String], token: Option<Vec<u8>>) -> Authorizer {
        Authorizer { hosts: hosts.iter().map(|host| plain(host)).collect(), token }
    }

    /// The status of a refusal. `local`: the address that the client has reached, over TCP.
    pub fn judge(&self, claims: &Claims, local: Option<IpAddr>) -> Result<(), u16> {
        self.judge_place(claims, local)?;
        // An image of another site has no origin, and would start a search.
        if claims.is_foreign {
            return Err(403);
        }
        let Some(token) = &self.token else { return Ok(()) };
        let given = claims.authorization.as_deref().and_then(bearer).unwrap_or_default();
        if bool::from(given.ct_eq(token)) { Ok(()) } else { Err(401) }
    }

    /// The same for a resource without data: its client needs no token.
    pub fn judge_place(&self, claims: &Claims, local: Option<IpAddr>) -> Result<(), u16> {
        let host = claims.host.as_deref().unwrap_or_default();
        if let Some(local) = local
            && !name_of(host).is_some_and(|name| self.serves(&plain(name), local))
        {
            return Err(421);
        }
        if let Some(origin) = &claims.origin {
            let own = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
            if !own.is_some_and(|own| !own.is_empty() && own.eq_ignore_ascii_case(host)) {
                return Err(403);
            }
        }
        Ok(())
    }

    fn serves(&self, name: &str, local: IpAddr) -> bool {
        let address =
            name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        match address.parse::<IpAddr>() {
            Ok(address) => {
                let address = address.to_canonical();
                address.is_loopback()
                    || address == local.to_canonical()
                    || self.hosts.iter().any(|host| host == name)
            }
            Err(_) => name == "localhost" || self.hosts.iter().any(|host| host == name),
        }
    }
}

/// Lower case, without the last dot.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// The host of `host:port`, if the port is valid.
fn name_of(host: &str) -> Option<&str> {
    let end = match host.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_sound = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    (is_sound && !name.is_empty()).then_some(name)
}

/// The token of `Bearer TOKEN`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.trim_ascii().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(host: &str, origin: Option<&str>, authorization: Option<&str>) -> Claims {
        Claims {
            host: (!host.is_empty()).then(|| host.to_owned()),
            origin: origin.map(str::to_owned),
            authorization: authorization.map(|value| value.as_bytes().to_vec()),
            is_foreign: false,
        }
    }

    /// A request that a browser says to be of another site is refused, also without an origin; the page
    /// itself may be linked.
    #[test]
    fn images_of_others_are_refused() {
        let authorizer = Authorizer::new(&[], None);
        let local = Some(IpAddr::from([127, 0, 0, 1]));
        let foreign = Claims { is_foreign: true, ..claims("localhost", None, None) };
        assert_eq!(authorizer.judge(&foreign, local), Err(403));
        assert_eq!(authorizer.judge_place(&foreign, local), Ok(()));
    }

    /// Loopback names, the address that was reached and listed names are served, in any case and
    /// with any port; all others are refused, also similar ones.
    #[test]
    fn hosts_are_listed() {
        let authorizer = Authorizer::new(&["Tap.Example.".to_owned()], None);
        let local = Some(IpAddr::from([10, 0, 0, 7]));
        for (host, local) in [
            ("localhost", local),
            ("LOCALHOST.:9000", local),
            ("127.0.0.1:8053", local),
            ("127.4.5.6", local),
            ("[::1]:8053", local),
            ("10.0.0.7:8053", local),
            ("tap.example", local),
            ("TAP.EXAMPLE:80", local),
            ("[::ffff:10.0.0.7]", local),
            ("evil.example", None),
            ("", None),
        ] {
            assert_eq!(authorizer.judge(&claims(host, None, None), local), Ok(()), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "10.0.0.8",
            "0.0.0.0",
            "localhost.evil.example",
            "evil.localhost:80x",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "tap.example.evil.example",
            "localhost:evil.example",
            "[::1",
            "[::1]evil.example",
            "[localhost]x",
            ":80",
            "localhost,evil.example",
            "tap.example..",
        ] {
            assert_eq!(authorizer.judge(&claims(host, None, None), local), Err(421), "{host}");
        }
    }

    /// Pages of other sites are refused, also over a Unix socket; own pages are not.
    #[test]
    fn origins_are_our_own() {
        let authorizer = Authorizer::new(&[], None);
        let local = Some(IpAddr::from([127, 0, 0, 1]));
        let judge = |origin| authorizer.judge(&claims("localhost:8053", Some(origin), None), local);
        assert_eq!(judge("http://localhost:8053"), Ok(()));
        for origin in [
            "null",
            "",
            "http://",
            "http://localhost",
            "http://evil.example",
            "localhost:8053",
            "http://localhost:8053.evil.example",
        ] {
            assert_eq!(judge(origin), Err(403), "{origin}");
            assert_eq!(
                authorizer.judge(&claims("", Some(origin), None), None),
                Err(403),
                "{origin}"
            );
        }
    }

    /// With a token only requests with the whole token are served.
    #[test]
    fn tokens_are_compared_whole() {
        let authorizer = Authorizer::new(&[], Some(b"s3cret".to_vec()));
        let judge = |value| authorizer.judge(&claims("localhost", None, value), None);
        for value in [Some("Bearer s3cret"), Some("bearer   s3cret ")] {
            assert_eq!(judge(value), Ok(()), "{value:?}");
        }
        for value in [
            None,
            Some(""),
            Some("Bearer"),
            Some("Bearer "),
            Some("Bearer s3cre"),
            Some("Bearer s3crets"),
            Some("Basic s3cret"),
            Some("s3cret"),
        ] {
            assert_eq!(judge(value), Err(401), "{value:?}");
        }
    }
}
