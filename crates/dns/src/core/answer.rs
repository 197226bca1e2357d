//! Answers that need no upstream: refusals, odd questions, failures.

use larder_wire::dns::edns::{option, rcode};
use larder_wire::dns::query::{Query, Refused};
use larder_wire::dns::rendered::{self, Asked as AskedOf, Reply, Rules};
use larder_wire::dns::{class, rtype};

use super::admission::add_cookie;
use super::local::Locally;
use super::{Client, Core, Net, Now, is_meta, reply};

/// INFO-CODEs of extended errors (RFC 8914, section 4).
#[allow(missing_docs)]
pub mod extended {
    pub const STALE_ANSWER: u16 = 3;
    pub const CACHED_ERROR: u16 = 13;
    pub const STALE_NXDOMAIN: u16 = 19;
    pub const PROHIBITED: u16 = 18;
    pub const NOT_AUTHORITATIVE: u16 = 20;
    pub const NOT_SUPPORTED: u16 = 21;
    pub const NO_REACHABLE_AUTHORITY: u16 = 22;
    pub const NETWORK_ERROR: u16 = 23;
    pub const OTHER: u16 = 0;
}

/// TTL of the answer to ANY (RFC 8482 leaves it open), seconds.
const ANY_TTL_S: u32 = 3_789;

const TYPE_AXFR: u16 = 252;
const TYPE_IXFR: u16 = 251;
const TYPE_HINFO: u16 = 13;

/// Options of an answer, in wire form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    bytes: [u8; Options::BYTES_MAX],
    len: usize,
}

impl Options {
    /// A cookie and two extended errors.
    const BYTES_MAX: usize = 48;

    /// None.
    pub fn new() -> Options {
        Options { bytes: [0; _], len: 0 }
    }

    /// One extended error.
    pub fn error(info_code: u16) -> Options {
        let mut options = Options::new();
        options.push(option::EXTENDED_ERROR, &info_code.to_be_bytes());
        options
    }

    /// Adds an option; one for which there is no room is left out.
    pub fn push(&mut self, number: u16, content: &[u8]) {
        let end = self.len + 4 + content.len();
        let Some(room) = self.bytes.get_mut(self.len..end) else { return };
        room[..2].copy_from_slice(&number.to_be_bytes());
        room[2..4].copy_from_slice(&(content.len() as u16).to_be_bytes());
        room[4..].copy_from_slice(content);
        self.len = end;
    }

    /// All of them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Core {
    /// Says why a message is not answered as a question.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        client: &Client,
        message: &[u8],
        refused: &Refused,
        net: &mut impl Net,
    ) {
        if refused.rcode().is_none() {
            self.counts.dropped_queries += 1;
            return net.ignore(client);
        }
        self.counts.malformed_queries += 1;
        let udp_bytes = self.settings.udp_bytes_max;
        // A repeated question and OPT are shorter than this.
        net.answer(client, 512, |out| refused.write(message, udp_bytes, out));
    }

    /// Answers a question that is not for data of the Internet, or not for a resolver; false where
    /// it may be looked up all the same.
    #[cold]
    pub(super) fn answer_odd(
        &mut self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        view: u16,
        net: &mut impl Net,
    ) -> bool {
        // Nobody is asked for these, wherever an alias leads.
        if !is_meta(query.qtype)
            && !matches!(self.answer_locally(now, client, query, view, net), Locally::Nothing)
        {
            return true;
        }
        let (rcode, error) = match query.qtype {
            _ if query.qclass != class::IN => (rcode::REFUSED, extended::NOT_SUPPORTED),
            rtype::ANY => {
                self.answer_any(now, client, query, net);
                return true;
            }
            TYPE_AXFR | TYPE_IXFR => (rcode::REFUSED, extended::NOT_AUTHORITATIVE),
            0 | rtype::OPT => (rcode::FORMERR, extended::OTHER),
            other if is_meta(other) => (rcode::NOTIMP, extended::NOT_SUPPORTED),
            // Who does not desire recursion asks what is in the cache: others' business.
            _ if !self.settings.cache_only => (rcode::REFUSED, extended::NOT_AUTHORITATIVE),
            _ => return false,
        };
        self.answer_empty(now, client, query, rcode, &Options::error(error), net);
        true
    }

    /// An answer without records.
    pub(super) fn answer_empty(
        &self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        rcode: u16,
        options: &Options,
        net: &mut impl Net,
    ) {
        let udp_bytes = self.settings.udp_bytes_max;
        self.answer_with(now, client, query, options, net, |options, _, out| {
            query.write_empty(rcode, udp_bytes, options.as_bytes(), out)
        });
    }

    /// Answers with what `write` makes of the options, a cookie among them where the client has
    /// one, and of how many octets the client takes.
    pub(super) fn answer_with(
        &self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        options: &Options,
        net: &mut impl Net,
        write: impl FnOnce(&Options, usize, &mut [u8]) -> Option<usize>,
    ) {
        let bytes_max = client.bytes_max(query, self.settings.udp_bytes_max);
        let mut options = *options;
        add_cookie(self.cookies.as_ref(), now, client, query, &mut options);
        net.answer(client, bytes_max, |out| write(&options, bytes_max, out));
    }

    /// ANY is answered with a HINFO record that says where that is told (RFC 8482, section 4.2):
    /// all there is would be what a forger of addresses wants to be sent elsewhere.
    fn answer_any(&mut self, now: Now, client: &Client, query: &Query<'_>, net: &mut impl Net) {
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        message.extend_from_slice(&[0, 0, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        message.extend_from_slice(query.question());
        message.extend_from_slice(&[0xc0, 12]);
        message.extend_from_slice(&TYPE_HINFO.to_be_bytes());
        message.extend_from_slice(&class::IN.to_be_bytes());
        message.extend_from_slice(&ANY_TTL_S.to_be_bytes());
        message.extend_from_slice(b"\0\x09\x07RFC8482\0");
        self.answer_own(now, client, query, &message, &Options::new(), net);
        self.scratch = message;
    }

    /// Answers with a message that was made here.
    pub(super) fn answer_own(
        &mut self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        message: &[u8],
        options: &Options,
        net: &mut impl Net,
    ) {
        let asked = asked_of(query);
        let rules = Rules { is_minimal: false, ..self.settings.rules };
        match self.renderer.render(message, &asked, now.wall_s, &rules) {
            Ok(_) => self.answer_rendered(now, client, query, options, net),
            Err(_) => self.answer_empty(now, client, query, rcode::SERVFAIL, options, net),
        }
    }

    /// Answers with what was rendered last.
    pub(super) fn answer_rendered(
        &self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        options: &Options,
        net: &mut impl Net,
    ) {
        self.answer_stored(now, client, query, self.renderer.stored(), 0, options, net);
    }

    /// Answers with something that was stored; `stale_ttl_s` is told of what is past its end.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn answer_stored(
        &self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        stored: &[u8],
        stale_ttl_s: u32,
        options: &Options,
        net: &mut impl Net,
    ) {
        self.answer_with(now, client, query, options, net, |options, bytes_max, out| {
            let reply = Reply { stale_ttl_s, ..reply(&self.settings, now, bytes_max, options) };
            rendered::write(stored, query, &reply, out)
        });
    }
}

/// A client's question, as what renders answers wants it.
pub(super) fn asked_of<'a>(query: &'a Query<'_>) -> AskedOf<'a> {
    AskedOf { question: query.question(), is_case_random: false, dnssec_ok: query.dnssec_ok() }
}
