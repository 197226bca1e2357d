//! Admission: DNS cookies and the rate limit of responses.
//!
//! A client that sends a cookie of this server has received a response at its address (RFC 7873).
//! So its address is not forged, and it is not limited. Over a stream neither cookies nor the limit
//! matter. The limit is on the responses per second to a network, which an attacker with forged
//! addresses could otherwise flood. Above the limit most queries get no response. Some get an empty
//! response with TC set, which makes honest clients retry over TCP.
//!
//! Cost: nothing for a query without a cookie if there is no limit; otherwise a hash.

use larder_wire::dns::edns::{option, rcode};
use larder_wire::dns::query::Query;

use super::answer::Options;
use super::{Core, Net, Now, Request};
use crate::cookie::{self, Cookies, Standing};
use crate::limit::Verdict;

/// TC, in the third byte of the header.
pub(super) const TRUNCATED: u8 = 2;

impl Core {
    /// True if the query is to be processed. Otherwise it got its response here, or gets none.
    #[inline]
    pub(super) fn admits(&mut self, request: &Request<'_>, net: &mut impl Net) -> bool {
        let has_cookie = self.cookies.is_some() && cookie_of(&request.query).is_some();
        if !has_cookie && self.limiter.is_none() {
            return true;
        }
        self.check(request, net)
    }

    fn check(&mut self, request: &Request<'_>, net: &mut impl Net) -> bool {
        let Request { client, query } = request;
        if let (Some(cookies), Some(option)) = (&self.cookies, cookie_of(query)) {
            let Ok(cookie) = cookie::read(option) else {
                self.counts.malformed_queries += 1;
                self.respond_empty(request, rcode::FORMERR, &Options::new(), net);
                return false;
            };
            match cookies.verify(&cookie, client.address(), self.now.wall_s.into()) {
                Standing::Valid | Standing::ValidButOld => {
                    self.counts.cookies_good += 1;
                    return true;
                }
                Standing::ClientOnly => self.counts.cookies_new += 1,
                Standing::Invalid => self.counts.cookies_bad += 1,
            }
        }
        if client.is_stream() {
            return true;
        }
        let Some(limiter) = &mut self.limiter else { return true };
        match limiter.take(client.address(), self.now.ms()) {
            Verdict::Pass => return true,
            Verdict::Drop => {
                self.counts.rate_limited_dropped += 1;
                net.drop_query(client);
            }
            Verdict::Slip => {
                self.counts.rate_limited_slipped += 1;
                let udp_bytes = self.settings.udp_bytes_max;
                self.respond_with(request, &Options::new(), net, |options, _, out| {
                    let length =
                        query.write_empty(rcode::NOERROR, udp_bytes, options.as_bytes(), out)?;
                    out[2] |= TRUNCATED;
                    Some(length)
                });
            }
        }
        false
    }
}

/// The cookie that a client sent.
#[inline]
fn cookie_of<'a>(query: &Query<'a>) -> Option<&'a [u8]> {
    query.edns.and_then(|edns| edns.option(option::COOKIE))
}

/// Adds the server's cookie to the response to a client that sent one.
#[inline]
pub(super) fn add_cookie(
    cookies: Option<&Cookies>,
    now: Now,
    request: &Request<'_>,
    options: &mut Options,
) {
    if let (Some(cookies), Some(sent)) = (cookies, cookie_of(&request.query))
        && let Ok(sent) = cookie::read(sent)
    {
        let made = cookies.write(sent.client(), request.client.address(), now.wall_s.into());
        options.push(option::COOKIE, &made);
    }
}
