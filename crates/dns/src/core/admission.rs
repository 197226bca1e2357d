//! Who is answered at all, and how often: cookies and the rate of answers.
//!
//! A client that shows a cookie of ours has received an answer at its address (RFC 7873): what it
//! asks is no forgery, and is not limited. Over a stream neither matters. What is limited is what a
//! forger of addresses could have sent elsewhere: a network's answers a second. Above them most
//! questions get nothing, and some an empty answer with TC set, which sends those who are honest to
//! TCP.
//!
//! Cost: nothing for a question without a cookie where nothing is limited; a hash for each
//! otherwise.

use larder_wire::dns::edns::{option, rcode};
use larder_wire::dns::query::Query;

use super::answer::Options;
use super::{Client, Core, Net, Now};
use crate::cookie::{self, Cookies, Standing};
use crate::limit::Verdict;

/// TC, in the third octet of the header.
pub(super) const TRUNCATED: u8 = 2;

impl Core {
    /// True where a question is to be answered; else that was done, or nothing is to be.
    #[inline]
    pub(super) fn admits(
        &mut self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        net: &mut impl Net,
    ) -> bool {
        let has_cookie = self.cookies.is_some() && cookie_of(query).is_some();
        if !has_cookie && self.limiter.is_none() {
            return true;
        }
        self.check(now, client, query, net)
    }

    fn check(&mut self, now: Now, client: &Client, query: &Query<'_>, net: &mut impl Net) -> bool {
        if let (Some(cookies), Some(option)) = (&self.cookies, cookie_of(query)) {
            let Ok(cookie) = cookie::read(option) else {
                self.counts.malformed_queries += 1;
                self.answer_empty(now, client, query, rcode::FORMERR, &Options::new(), net);
                return false;
            };
            match cookies.verify(&cookie, client.address(), now.wall_s.into()) {
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
        match limiter.take(client.address(), now.ms()) {
            Verdict::Pass => return true,
            Verdict::Drop => {
                self.counts.rate_limited_dropped += 1;
                net.ignore(client);
            }
            Verdict::Slip => {
                self.counts.rate_limited_slipped += 1;
                let udp_bytes = self.settings.udp_bytes_max;
                self.answer_with(now, client, query, &Options::new(), net, |options, _, out| {
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
pub(super) fn cookie_of<'a>(query: &Query<'a>) -> Option<&'a [u8]> {
    query.edns.and_then(|edns| edns.option(option::COOKIE))
}

/// Adds the cookie for a client that sent one.
#[inline]
pub(super) fn add_cookie(
    cookies: Option<&Cookies>,
    now: Now,
    client: &Client,
    query: &Query<'_>,
    options: &mut Options,
) {
    if let (Some(cookies), Some(sent)) = (cookies, cookie_of(query))
        && let Ok(sent) = cookie::read(sent)
    {
        let made = cookies.write(sent.client(), client.address(), now.wall_s.into());
        options.push(option::COOKIE, &made);
    }
}
