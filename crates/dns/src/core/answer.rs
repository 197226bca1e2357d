//! Responses that need no upstream: refusals, unusual queries, failures.

use larder_wire::dns::edns::{option, rcode};
use larder_wire::dns::query::{Query, Refused};
use larder_wire::dns::rendered::{self, QueryInfo, Reply, Rules};
use larder_wire::dns::{class, rtype};

use super::admission::add_cookie;
use super::local::LocalResult;
use super::{Client, Core, Net, Request, is_meta, reply};

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

/// TTL of the response to ANY (RFC 8482 leaves it open), seconds.
const ANY_TTL_S: u32 = 3_789;

const TYPE_AXFR: u16 = 252;
const TYPE_IXFR: u16 = 251;
const TYPE_HINFO: u16 = 13;

/// EDNS options of a response, in wire form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    bytes: [u8; Options::BYTES_MAX],
    len: usize,
}

impl Options {
    /// A cookie and two extended errors.
    const BYTES_MAX: usize = 48;

    /// No options.
    pub fn new() -> Options {
        Options { bytes: [0; _], len: 0 }
    }

    /// One extended error.
    pub fn error(info_code: u16) -> Options {
        let mut options = Options::new();
        options.push(option::EXTENDED_ERROR, &info_code.to_be_bytes());
        options
    }

    /// Adds an option, unless there is no room for it.
    pub fn push(&mut self, number: u16, content: &[u8]) {
        let end = self.len + 4 + content.len();
        let Some(room) = self.bytes.get_mut(self.len..end) else { return };
        room[..2].copy_from_slice(&number.to_be_bytes());
        room[2..4].copy_from_slice(&(content.len() as u16).to_be_bytes());
        room[4..].copy_from_slice(content);
        self.len = end;
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Core {
    /// Responds to a message that is not a valid query with the reason, or drops it.
    #[cold]
    pub(super) fn reject(
        &mut self,
        client: &Client,
        message: &[u8],
        refused: &Refused,
        net: &mut impl Net,
    ) {
        if refused.rcode().is_none() {
            self.counts.dropped_queries += 1;
            return net.drop_query(client);
        }
        self.counts.malformed_queries += 1;
        let udp_bytes = self.settings.udp_bytes_max;
        // A repeated question and OPT are shorter than this.
        net.respond(client, 512, |out| refused.write(message, udp_bytes, out));
    }

    /// Responds to a query that is not for data of the Internet, or not for a resolver. False if
    /// the query is to be looked up nevertheless.
    #[cold]
    pub(super) fn respond_odd(
        &mut self,
        request: &Request<'_>,
        view: u16,
        net: &mut impl Net,
    ) -> bool {
        let query = &request.query;
        // These types are never sent to an upstream, not even behind an alias.
        if !is_meta(query.qtype)
            && !matches!(self.respond_locally(request, view, net), LocalResult::Nothing)
        {
            return true;
        }
        let (rcode, error) = match query.qtype {
            _ if query.qclass != class::IN => (rcode::REFUSED, extended::NOT_SUPPORTED),
            rtype::ANY => {
                self.respond_any(request, net);
                return true;
            }
            TYPE_AXFR | TYPE_IXFR => (rcode::REFUSED, extended::NOT_AUTHORITATIVE),
            0 | rtype::OPT => (rcode::FORMERR, extended::OTHER),
            other if is_meta(other) => (rcode::NOTIMP, extended::NOT_SUPPORTED),
            // A query without RD could reveal which names other clients have queried.
            _ if !self.settings.cache_only => (rcode::REFUSED, extended::NOT_AUTHORITATIVE),
            _ => return false,
        };
        self.respond_empty(request, rcode, &Options::error(error), net);
        true
    }

    /// SERVFAIL with an extended error.
    pub(super) fn respond_failure(&self, request: &Request<'_>, error: u16, net: &mut impl Net) {
        self.respond_empty(request, rcode::SERVFAIL, &Options::error(error), net);
    }

    /// Responds without records.
    pub(super) fn respond_empty(
        &self,
        request: &Request<'_>,
        rcode: u16,
        options: &Options,
        net: &mut impl Net,
    ) {
        let udp_bytes = self.settings.udp_bytes_max;
        self.respond_with(request, options, net, |options, _, out| {
            request.query.write_empty(rcode, udp_bytes, options.as_bytes(), out)
        });
    }

    /// Responds with what `write` makes of the options and of the number of bytes that the client
    /// accepts. The options include the cookie.
    pub(super) fn respond_with(
        &self,
        request: &Request<'_>,
        options: &Options,
        net: &mut impl Net,
        write: impl FnOnce(&Options, usize, &mut [u8]) -> Option<usize>,
    ) {
        let Request { client, query } = request;
        let bytes_max = client.bytes_max(query, self.settings.udp_bytes_max);
        let mut options = *options;
        add_cookie(self.cookies.as_ref(), self.now, request, &mut options);
        net.respond(client, bytes_max, |out| write(&options, bytes_max, out));
    }

    /// Responds to ANY with a HINFO record that names the RFC (RFC 8482, section 4.2). A response
    /// with all records would serve attackers that forge addresses.
    fn respond_any(&mut self, request: &Request<'_>, net: &mut impl Net) {
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        message.extend_from_slice(&[0, 0, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        message.extend_from_slice(request.query.question());
        message.extend_from_slice(&[0xc0, 12]);
        message.extend_from_slice(&TYPE_HINFO.to_be_bytes());
        message.extend_from_slice(&class::IN.to_be_bytes());
        message.extend_from_slice(&ANY_TTL_S.to_be_bytes());
        message.extend_from_slice(b"\0\x09\x07RFC8482\0");
        self.respond_own(request, &message, &Options::new(), net);
        self.scratch = message;
    }

    /// Responds with a message that this server made.
    pub(super) fn respond_own(
        &mut self,
        request: &Request<'_>,
        message: &[u8],
        options: &Options,
        net: &mut impl Net,
    ) {
        let rules = Rules { is_minimal: false, ..self.settings.rules };
        let info = query_info(&request.query);
        match self.renderer.render(message, &info, self.now.wall_s, &rules) {
            Ok(_) => self.respond_rendered(request, options, net),
            Err(_) => self.respond_empty(request, rcode::SERVFAIL, options, net),
        }
    }

    /// Responds with the message that was rendered last.
    pub(super) fn respond_rendered(
        &self,
        request: &Request<'_>,
        options: &Options,
        net: &mut impl Net,
    ) {
        self.respond_stored(request, self.renderer.stored(), 0, options, net);
    }

    /// Responds with a stored response. `stale_ttl_s` is its TTL if it is stale.
    pub(super) fn respond_stored(
        &self,
        request: &Request<'_>,
        stored: &[u8],
        stale_ttl_s: u32,
        options: &Options,
        net: &mut impl Net,
    ) {
        self.respond_with(request, options, net, |options, bytes_max, out| {
            let reply =
                Reply { stale_ttl_s, ..reply(&self.settings, self.now, bytes_max, options) };
            rendered::write(stored, &request.query, &reply, out)
        });
    }
}

/// A client's query, as the renderer needs it.
pub(super) fn query_info<'a>(query: &'a Query<'_>) -> QueryInfo<'a> {
    QueryInfo { question: query.question(), is_case_random: false, dnssec_ok: query.dnssec_ok() }
}
