//! DNS cookies, the server's side (RFC 7873, in the interoperable form of RFC 9018).
//!
//! A client sends eight bytes of its own. The server adds sixteen that only it can make for that
//! client and address, and the client sends all of them from then on. A client with a valid cookie
//! has received a response at its address, so it needs no limit against forged senders.
//!
//! ```text
//! bytes    0..8     8        9..12     12..16      16..24
//!          client   version  reserved  time, s     SipHash-2-4 over all before it and the client's address
//! ```
//!
//! No state is stored for a client. Servers that share a secret accept each other's cookies, as an
//! anycast set must. [`Cookies::roll`] replaces a secret; cookies of the previous one are still
//! accepted, and renewed.
//!
//! Time is seconds since 1970 and wraps at 32 bits (RFC 1982 arithmetic, RFC 9018, section 4.3). It
//! is correct as long as the clocks of two servers differ by less than 68 years.
//!
//! Cost: one hash of 20 or 32 bytes to write; one or two to verify. No allocation.

use std::net::IpAddr;

use siphasher::sip::SipHasher24;

/// Bytes of a client's own part.
pub const CLIENT_BYTES: usize = 8;

/// Bytes of the cookie that this server writes.
pub const COOKIE_BYTES: usize = 24;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 16;

/// The version of cookie that this server makes and accepts.
const VERSION: u8 = 1;

/// Bytes of a server's part that another server may have made, at most (RFC 7873, section 4).
const SERVER_BYTES_MAX: usize = 32;

/// How old a cookie may be, how far ahead of the clock, and from what age it is renewed, seconds
/// (RFC 9018, section 4.3).
const AGE_S_MAX: i32 = 3_600;
const AHEAD_S_MAX: i32 = 300;
const RENEW_S: i32 = 1_800;

/// The option's length is not one of 8 and 16 to 40: the query has a format error (RFC 7873,
/// section 5.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// A client's cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cookie {
    client: [u8; CLIENT_BYTES],
    /// The server's part, if it has the length that this server makes.
    server: Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    Absent,
    Foreign,
    Ours { head: [u8; 8], hash: [u8; 8] },
}

impl Cookie {
    /// The client's part, for [`Cookies::write`].
    pub fn client(&self) -> [u8; CLIENT_BYTES] {
        self.client
    }
}

/// The result of verifying a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nothing: the client has no cookie of this server yet. Send one.
    ClientOnly,
    /// The client has received a response at its address within half an hour.
    Valid,
    /// Like [`Standing::Valid`], but send a new one: it is old, or made with the previous secret.
    ValidButOld,
    /// Nothing: it is too old, of a future time, of another version, or of another server. Send a
    /// new one.
    Invalid,
}

/// Reads the content of the option (number 10).
pub fn read(option: &[u8]) -> Result<Cookie, Malformed> {
    let (&client, server) = option.split_first_chunk::<CLIENT_BYTES>().ok_or(Malformed)?;
    let server = match server.len() {
        0 => Server::Absent,
        8..=SERVER_BYTES_MAX => match (server.first_chunk(), server.last_chunk()) {
            (Some(&head), Some(&hash)) if server.len() == COOKIE_BYTES - CLIENT_BYTES => {
                Server::Ours { head, hash }
            }
            _ => Server::Foreign,
        },
        _ => return Err(Malformed),
    };
    Ok(Cookie { client, server })
}

/// Makes and verifies cookies.
#[derive(Clone)]
pub struct Cookies {
    current: SipHasher24,
    previous: Option<SipHasher24>,
}

impl Cookies {
    /// With a secret from the system's random source or, for several servers behind one address,
    /// from their settings.
    pub fn new(secret: &[u8; SECRET_BYTES]) -> Cookies {
        Cookies { current: SipHasher24::new_with_key(secret), previous: None }
    }

    /// Replaces the secret. Cookies of the previous one stay valid; older ones do not.
    pub fn roll(&mut self, secret: &[u8; SECRET_BYTES]) {
        let before = std::mem::replace(&mut self.current, SipHasher24::new_with_key(secret));
        self.previous = Some(before);
    }

    /// Verifies a cookie from `client` at `now_s`.
    pub fn verify(&self, cookie: &Cookie, client: IpAddr, now_s: u64) -> Standing {
        let (head, hash) = match &cookie.server {
            Server::Absent => return Standing::ClientOnly,
            Server::Foreign => return Standing::Invalid,
            Server::Ours { head, hash } => (head, hash),
        };
        let [version, _, _, _, time @ ..] = *head;
        let age_s = (now_s as u32).wrapping_sub(u32::from_be_bytes(time)) as i32;
        if version != VERSION || !(-AHEAD_S_MAX..=AGE_S_MAX).contains(&age_s) {
            return Standing::Invalid;
        }
        // Reserved bytes are hashed as they arrived: a later revision may set them. The hashes are
        // compared as whole numbers, so the time does not depend on where they differ.
        let hash = u64::from_le_bytes(*hash);
        let is_by = |secret: &SipHasher24| digest(secret, cookie.client, *head, client) == hash;
        if is_by(&self.current) {
            if age_s > RENEW_S { Standing::ValidButOld } else { Standing::Valid }
        } else if self.previous.as_ref().is_some_and(is_by) {
            Standing::ValidButOld
        } else {
            Standing::Invalid
        }
    }

    /// The cookie for a client at its address.
    pub fn write(
        &self,
        client_cookie: [u8; CLIENT_BYTES],
        client: IpAddr,
        now_s: u64,
    ) -> [u8; COOKIE_BYTES] {
        let mut head = [VERSION, 0, 0, 0, 0, 0, 0, 0];
        head[4..].copy_from_slice(&(now_s as u32).to_be_bytes());
        let mut cookie = [0; COOKIE_BYTES];
        cookie[..8].copy_from_slice(&client_cookie);
        cookie[8..16].copy_from_slice(&head);
        let hash = digest(&self.current, client_cookie, head, client);
        cookie[16..].copy_from_slice(&hash.to_le_bytes());
        cookie
    }
}

/// Debug output has no secrets.
impl std::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cookies").field("rolled", &self.previous.is_some()).finish()
    }
}

fn digest(secret: &SipHasher24, cookie: [u8; 8], head: [u8; 8], client: IpAddr) -> u64 {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&cookie);
    bytes[8..16].copy_from_slice(&head);
    match client.to_canonical() {
        IpAddr::V4(v4) => {
            bytes[16..20].copy_from_slice(&v4.octets());
            secret.hash(&bytes[..20])
        }
        IpAddr::V6(v6) => {
            bytes[16..].copy_from_slice(&v6.octets());
            secret.hash(&bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        assert_eq!(hex.len(), 2 * N);
        std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
    }

    fn standing(cookies: &Cookies, option: &[u8], client: &str, now_s: u64) -> Standing {
        cookies.verify(&read(option).unwrap(), client.parse().unwrap(), now_s)
    }

    /// The four examples of RFC 9018, appendix A, byte for byte, for interoperability.
    #[test]
    fn examples_of_the_rfc() {
        let first = bytes("e5e973e5a6b2a43f48e7dc849e37bfcf");
        let mut cookies = Cookies::new(&first);
        let client = "198.51.100.100";
        let learned: [u8; 24] = bytes("2464c4abcf10c957010000005cf79f111f8130c3eee29480");
        let own = bytes("2464c4abcf10c957");
        assert_eq!(standing(&cookies, &own, client, 1_559_731_985), Standing::ClientOnly);
        assert_eq!(cookies.write(own, client.parse().unwrap(), 1_559_731_985), learned);

        let renewed: [u8; 24] = bytes("2464c4abcf10c957010000005cf7a871d4a564a1442aca77");
        assert_eq!(standing(&cookies, &learned, client, 1_559_734_385), Standing::ValidButOld);
        assert_eq!(cookies.write(own, client.parse().unwrap(), 1_559_734_385), renewed);

        // The reserved bytes are set, and the hash covers them; in a new cookie they are 0.
        let client = "203.0.113.203";
        let reserved: [u8; 24] = bytes("fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5");
        let renewed: [u8; 24] = bytes("fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e");
        assert_eq!(standing(&cookies, &reserved, client, 1_559_727_985), Standing::Valid);
        let own = bytes("fc93fc62807ddb86");
        assert_eq!(cookies.write(own, client.parse().unwrap(), 1_559_734_700), renewed);

        // Made with the previous secret, and over IPv6.
        let client = "2001:db8:220:1:59de:d0f4:8769:82b8";
        cookies = Cookies::new(&bytes("dd3bdf9344b678b185a6f5cb60fca715"));
        cookies.roll(&bytes("445536bcd2513298075a5d379663c962"));
        let old: [u8; 24] = bytes("22681ab97d52c298010000005cf7c57926556bd0934c72f8");
        let new: [u8; 24] = bytes("22681ab97d52c298010000005cf7c609a6bb79d16625507a");
        assert_eq!(standing(&cookies, &old, client, 1_559_741_961), Standing::ValidButOld);
        let own = bytes("22681ab97d52c298");
        assert_eq!(cookies.write(own, client.parse().unwrap(), 1_559_741_961), new);
    }

    /// After two replacements of the secret, no cookie of the first one is valid.
    #[test]
    fn two_rolls_forget() {
        let mut cookies = Cookies::new(&[1; 16]);
        let cookie = cookies.write([7; 8], "192.0.2.1".parse().unwrap(), 1_000);
        cookies.roll(&[2; 16]);
        assert_eq!(standing(&cookies, &cookie, "192.0.2.1", 1_000), Standing::ValidButOld);
        cookies.roll(&[3; 16]);
        assert_eq!(standing(&cookies, &cookie, "192.0.2.1", 1_000), Standing::Invalid);
    }

    /// Each edge of the time window, to the second, also where the 32-bit clock wraps.
    #[test]
    fn time_window() {
        let cookies = Cookies::new(&[9; 16]);
        for made_s in [1_000_000, u64::from(u32::MAX) - 100, (1 << 32) + 50] {
            let cookie = cookies.write([7; 8], "2001:db8::1".parse().unwrap(), made_s);
            for (age_s, expected) in [
                (-301, Standing::Invalid),
                (-300, Standing::Valid),
                (0, Standing::Valid),
                (1_800, Standing::Valid),
                (1_801, Standing::ValidButOld),
                (3_600, Standing::ValidButOld),
                (3_601, Standing::Invalid),
            ] {
                let now_s = made_s.checked_add_signed(age_s).unwrap();
                assert_eq!(standing(&cookies, &cookie, "2001:db8::1", now_s), expected, "{age_s}");
            }
        }
    }

    /// Only the lengths of RFC 7873 are accepted; a server's part of another length is not of this
    /// server.
    #[test]
    fn lengths() {
        let cookies = Cookies::new(&[9; 16]);
        for length in 0..64 {
            let option = vec![1; length];
            match length {
                8 => assert_eq!(standing(&cookies, &option, "::1", 0), Standing::ClientOnly),
                16..=40 => assert_eq!(standing(&cookies, &option, "::1", 0), Standing::Invalid),
                _ => assert_eq!(read(&option), Err(Malformed)),
            }
        }
    }

    proptest! {
        /// A cookie is valid for its client and address; with any bit changed, or from any other
        /// address, it is not.
        #[test]
        fn only_what_was_written_is_valid(
            secret: [u8; 16],
            own: [u8; 8],
            address: u32,
            other: u32,
            bit in 0_usize..192,
            now_s in 0_u64..1 << 33,
        ) {
            let cookies = Cookies::new(&secret);
            let client = IpAddr::from(address.to_be_bytes());
            let mut cookie = cookies.write(own, client, now_s);
            prop_assert_eq!(read(&cookie).unwrap().client(), own);
            let verify = |cookie: &[u8], client| cookies.verify(&read(cookie).unwrap(), client, now_s);
            prop_assert_eq!(verify(&cookie, client), Standing::Valid);
            if other != address {
                let other = IpAddr::from(other.to_be_bytes());
                prop_assert_eq!(verify(&cookie, other), Standing::Invalid);
            }
            cookie[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(verify(&cookie, client), Standing::Invalid);
        }
    }
}
