//! Root, top level and domains' servers, for resolvers that find their way by themselves.
//!
//! All are the one thread of [`super::stub`], bound to every address; what a server knows follows from the address
//! that was asked:
//!
//! ```text
//! 127.53.0.1          root          refers to the top level
//! 127.53.1.1, .2      top level     refers to a domain's two servers
//! 127.53.2.1 … .32    domains       answer; the first of a domain's two may be lame
//! 127.53.3.1          any           answers, for the relay that is the limit
//! ```
//!
//! A name is a domain's, with labels in front or without; see [`super::query`]. Referrals bring addresses
//! with them, so a name of a domain that a resolver has not met costs two questions, and another one of it one.
//!
//! With a signer all zones are signed, and questions that ask for signatures (DO) get them: see [`super::signed`]. The
//! server of all addresses knows no zones, and signs nothing.

use std::net::{IpAddr, Ipv4Addr};

use super::query::{address, domain_start, name_hash};
use super::signed::{self, DNSKEY, DS, NSEC, RRSIG, SOA, Signer};
use super::stub::{Reply, Section, StubOptions};

/// The server of the root.
pub const ROOT: Ipv4Addr = Ipv4Addr::new(127, 53, 0, 1);
/// A server that knows all addresses.
pub const ANY: Ipv4Addr = Ipv4Addr::new(127, 53, 3, 1);
/// A file of hints that tells a resolver of the root.
pub const ROOT_HINTS: &str = ". 86400 IN NS ns1.root.\nns1.root. 86400 IN A 127.53.0.1\n";

/// Pairs of servers that domains are spread over.
const PAIRS: u64 = 16;
/// TTL of referrals: they outlive any measurement.
const REFERRAL_TTL_S: u32 = 86_400;
const TYPE_NS_CLASS_IN: [u8; 4] = [0, 2, 0, 1];
const A: u8 = 1;
const NS: u8 = 2;
const REFUSED: u8 = 5;
const AUTHORITATIVE: u8 = 4;
/// The name of the root's server.
const ROOT_SERVER: &[u8] = b"\x03ns1\x04root\0";
/// Where the question's name begins.
const NAME_AT: usize = 12;
/// The names of a zone's two servers, before the zone's own.
const SERVERS: [&[u8]; 2] = [b"\x03ns1", b"\x03ns2"];

/// What a server at an address knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Role {
    /// The top level's servers.
    Root,
    /// Domains' servers.
    Top,
    /// Addresses in its domains: the server of this number.
    Domain(u8),
    /// All addresses.
    Any,
}

impl Role {
    /// The role of the server at an address; `None` for other addresses.
    pub fn of(local: IpAddr) -> Option<Role> {
        let IpAddr::V4(local) = local else { return None };
        match local.octets() {
            [127, 53, 0, _] => Some(Role::Root),
            [127, 53, 1, _] => Some(Role::Top),
            [127, 53, 2, server] => Some(Role::Domain(server)),
            [127, 53, 3, _] => Some(Role::Any),
            _ => None,
        }
    }
}

/// The numbers of a domain's two servers.
fn pair(domain: &[u8]) -> [u8; 2] {
    let first = 2 * (name_hash(domain) % PAIRS) as u8 + 1;
    [first, first + 1]
}

/// Whether the first server of a domain is one that does not know it.
fn is_lame(domain: &[u8], share: f64) -> bool {
    ((name_hash(domain) >> 32) as f64) < share * 4_294_967_296.0
}

/// Writes what the server of a role says of a folded name. With a signer, zones are signed.
pub(super) fn answer(
    reply: &mut Reply<'_>,
    role: Role,
    name: &[u8],
    kind: &[u8],
    options: &StubOptions,
    signer: Option<&Signer>,
) {
    let top_start = last_label(name);
    let zone = |start| Zone { name, start, kind, signer };
    match role {
        Role::Root => {
            let root = zone(name.len() - 1);
            if name == [0] {
                root.respond(reply, None, REFERRAL_TTL_S);
                if kind == TYPE_NS_CLASS_IN {
                    let address = ROOT.octets();
                    reply.address(Section::Additional, ROOT_SERVER, REFERRAL_TTL_S, address);
                }
            } else if &name[top_start..] == b"\x04root\0" {
                root.respond(reply, Some(ROOT.octets()), REFERRAL_TTL_S);
            } else {
                root.refer(reply, top_start, [1, 2].map(|server| [127, 53, 1, server]));
            }
        }
        Role::Top => {
            let top = zone(top_start);
            match (own_server(name, top_start), domain_start(name)) {
                (None, Some(start)) => {
                    let servers = pair(&name[start..]).map(|server| [127, 53, 2, server]);
                    top.refer(reply, start, servers);
                }
                // A name of the top level itself: one of its servers', or its own.
                (own, _) => {
                    let address = own.map(|server| [127, 53, 1, server as u8 + 1]);
                    top.respond(reply, address, REFERRAL_TTL_S);
                }
            }
        }
        Role::Domain(server) => {
            let start = domain_start(name).filter(|start| {
                let domain = &name[*start..];
                let [first, second] = pair(domain);
                server == second || (server == first && !is_lame(domain, options.lame))
            });
            match start.map(zone) {
                Some(domain) => {
                    let address = match own_server(name, domain.start) {
                        Some(server) => [127, 53, 2, pair(domain.apex())[server]],
                        None => address(name_hash(name)),
                    };
                    domain.respond(reply, Some(address), options.ttl_s);
                }
                None => reply.room[3] |= REFUSED,
            }
        }
        Role::Any => {
            let unsigned = Zone { signer: None, ..zone(name.len() - 1) };
            unsigned.respond(reply, Some(address(name_hash(name))), options.ttl_s);
        }
    }
}

/// A zone that a question is about, or refers from.
struct Zone<'a> {
    /// The question's name.
    name: &'a [u8],
    /// Where the zone's own begins in it.
    start: usize,
    /// The question's type and class.
    kind: &'a [u8],
    /// What signs, where the question asks for it.
    signer: Option<&'a Signer>,
}

impl Zone<'_> {
    fn apex(&self) -> &[u8] {
        &self.name[self.start..]
    }

    /// The names of its servers.
    fn servers(&self) -> Vec<Vec<u8>> {
        match self.apex() {
            [0] => vec![ROOT_SERVER.to_vec()],
            apex => SERVERS.iter().map(|server| [server, apex].concat()).collect(),
        }
    }

    /// Writes all that it has of a type at the name that begins at `owner` of the question's, and what signs it.
    fn put(
        &self,
        reply: &mut Reply<'_>,
        section: Section,
        owner: usize,
        kind: u8,
        ttl_s: u32,
        data: &[&[u8]],
    ) {
        let pointer = pointer(owner);
        let wire = if self.name[owner] == 0 { &[0][..] } else { &pointer };
        for data in data {
            reply.record(section, wire, kind, ttl_s, data);
        }
        if let Some(signer) = self.signer {
            let signature = signer.rrsig(self.apex(), &self.name[owner..], kind, ttl_s, data);
            reply.record(section, wire, RRSIG, ttl_s, &signature);
        }
    }

    /// Writes what it has at the query's name, which is its own: an address, and what belongs to a zone; or proves
    /// that it has nothing of that type. Unsigned, only the root has more than addresses.
    fn respond(&self, reply: &mut Reply<'_>, address: Option<[u8; 4]>, ttl_s: u32) {
        reply.room[2] |= AUTHORITATIVE;
        let soa = || signed::soa(&[SERVERS[0], self.apex()].concat(), ttl_s);
        let is_apex = self.start == 0;
        match (self.kind, address, self.signer) {
            ([0, A, 0, 1], Some(address), _) => {
                self.put(reply, Section::Answer, 0, A, ttl_s, &[&address]);
            }
            ([0, NS, 0, 1], ..) if is_apex && (self.signer.is_some() || self.apex() == [0]) => {
                let servers = self.servers();
                let servers: Vec<&[u8]> = servers.iter().map(Vec::as_slice).collect();
                self.put(reply, Section::Answer, 0, NS, REFERRAL_TTL_S, &servers);
            }
            ([0, SOA, 0, 1], _, Some(_)) if is_apex => {
                self.put(reply, Section::Answer, 0, SOA, ttl_s, &[&soa()]);
            }
            ([0, DNSKEY, 0, 1], _, Some(signer)) if is_apex => {
                self.put(reply, Section::Answer, 0, DNSKEY, REFERRAL_TTL_S, &[signer.dnskey()]);
            }
            (_, _, Some(_)) => {
                let of_apex: &[u8] = if is_apex { &[NS, SOA, DNSKEY] } else { &[] };
                let of_address: &[u8] = if address.is_some() { &[A] } else { &[] };
                let types = [of_apex, of_address, &[RRSIG, NSEC]].concat();
                self.put(reply, Section::Authority, self.start, SOA, ttl_s, &[&soa()]);
                let nsec = signed::nsec(self.name, &types);
                self.put(reply, Section::Authority, 0, NSEC, ttl_s, &[&nsec]);
            }
            (_, _, None) => {}
        }
    }

    /// Refers to the two servers of the zone whose name begins at `child` of the question's.
    fn refer(&self, reply: &mut Reply<'_>, child: usize, addresses: [[u8; 4]; 2]) {
        let ds = self.signer.map(|signer| signer.ds(&self.name[child..]));
        // The one question about a zone that the zone above answers (RFC 4035, section 3.1.4.1).
        if let Some(ds) = ds.as_ref().filter(|_| child == 0 && self.kind == [0, DS, 0, 1]) {
            reply.room[2] |= AUTHORITATIVE;
            return self.put(reply, Section::Answer, 0, DS, REFERRAL_TTL_S, &[ds]);
        }
        let zone = pointer(child);
        let names = SERVERS.map(|server| [server, &zone].concat());
        for name in &names {
            reply.record(Section::Authority, &zone, NS, REFERRAL_TTL_S, name);
        }
        if let Some(ds) = ds {
            self.put(reply, Section::Authority, child, DS, REFERRAL_TTL_S, &[&ds]);
        }
        for (name, address) in names.iter().zip(addresses) {
            reply.address(Section::Additional, name, REFERRAL_TTL_S, address);
        }
    }
}

/// Which of the servers of the zone that begins at `zone_start` a name is, if it is one.
fn own_server(name: &[u8], zone_start: usize) -> Option<usize> {
    SERVERS.iter().position(|server| name[..zone_start] == **server)
}

/// A pointer to a place in the question's name (RFC 1035, section 4.1.4); names are below 256 bytes.
fn pointer(start: usize) -> [u8; 2] {
    (0xc000 | (NAME_AT + start) as u16).to_be_bytes()
}

/// Where the last label of a name begins, that of the top level; 0 for the root.
fn last_label(name: &[u8]) -> usize {
    let (mut last, mut at) = (0, 0);
    while let Some(&length) = name.get(at).filter(|length| **length > 0) {
        last = at;
        at += 1 + usize::from(length);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::contest::run;
    use crate::dns::plan::{Error, Event, Plan, Work};
    use crate::dns::query::{self, TYPE_A_CLASS_IN};
    use crate::dns::server::Server;
    use crate::dns::stub;
    use crate::net::load::Query;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    /// A resolver that knows the root only finds every address, with a few questions a miss, also where
    /// every tenth domain's first server is lame; and validates them where zones are signed.
    #[test]
    fn a_resolver_finds_its_way() {
        let test = "a_resolver_finds_its_way";
        let server = match Server::find("unbound", Path::new("larder")) {
            Ok(server) => server,
            Err(reason) => return eprintln!("SKIP {test}: unbound is {reason}"),
        };
        let mut upstreams =
            vec![StubOptions::default(), StubOptions { lame: 0.1, ..StubOptions::default() }];
        if cfg!(feature = "signed") {
            let signer = Some(Arc::new(Signer::new().unwrap()));
            upstreams.push(StubOptions { signer, lame: 0.1, ..StubOptions::default() });
        }
        for upstream in upstreams {
            let plan = Plan {
                rounds: 1,
                measured: Duration::from_millis(400),
                cores: 1,
                in_flight: 32,
                edns: true,
                upstream,
                hierarchy: true,
                latency: false,
            };
            let work = Work { name: "misses".to_owned(), hot: 1, hit_percent: 0 };
            let mut all = Vec::new();
            let result =
                run(std::slice::from_ref(&server), &[work], &plan, &Arc::default(), |event| {
                    match event {
                        Event::Measured(measured) => all.push(measured),
                        Event::Skipped(name, reason) => panic!("{name}: {reason}"),
                        _ => {}
                    }
                });
            match result {
                Ok(()) => {}
                Err(Error::NotPermitted(error)) => {
                    return eprintln!("SKIP {test}: no network of its own: {error}");
                }
                Err(Error::Failed(error)) => panic!("{error}"),
            }
            let figures = &all[0].entries[0].figures;
            assert!(figures.per_s[0] > 0.0 && figures.wrong == 0, "{figures:?}");
            assert!((0.5..10.0).contains(&figures.upstream[0]), "{figures:?}");
        }
    }

    /// Who begins at the root and asks the second server of every referral, whose address is the last thing in it,
    /// comes to the right answer in three steps; the servers' own names have their own addresses; a domain's first
    /// server may be lame, and a server of other domains refuses.
    #[test]
    fn referrals_lead_to_the_answer() {
        let lame = StubOptions { lame: 1.0, ..StubOptions::default() };
        let mut room = [0; 1500];
        let mut response = |query: &[u8], server: [u8; 4]| {
            let (length, _) = stub::answer(query, Some(server.into()), &lame, &mut room).unwrap();
            room[..length].to_vec()
        };
        let last = |message: &[u8]| *message.last_chunk::<4>().unwrap();
        for number in 0..1000 {
            let mut query = [0; 100];
            let Query { length, tag } = query::write(9, number, false, &mut query);
            let query = &query[..length];
            let referral = response(query, ROOT.octets());
            assert_eq!(last(&referral), [127, 53, 1, 2]);
            assert_eq!(referral[6..NAME_AT], [0, 0, 0, 2, 0, 2]);
            let [127, 53, 2, second] = last(&response(query, [127, 53, 1, 2])) else { panic!() };
            assert!(query::is_answer(tag, &response(query, [127, 53, 2, second])));
            assert!(query::is_answer(tag, &response(query, ANY.octets())));
            for stranger in [second - 1, second ^ 8] {
                let refusal = response(query, [127, 53, 2, stranger]);
                assert_eq!((refusal[3] & 15, refusal.len()), (REFUSED, query.len()));
            }
        }

        let own = |name: &[u8]| [b"\0\x01\0\0\0\x01\0\0\0\0\0\0", name, &TYPE_A_CLASS_IN].concat();
        assert_eq!(last(&response(&own(b"\x03ns2\x03com\0"), [127, 53, 1, 1])), [127, 53, 1, 2]);
        let [127, 53, 2, second] = last(&response(&own(b"\x01a\x03com\0"), [127, 53, 1, 1])) else {
            panic!()
        };
        let answer = response(&own(b"\x03ns1\x01a\x03com\0"), [127, 53, 2, second]);
        assert_eq!(last(&answer), [127, 53, 2, second - 1]);
    }

    /// Roles follow from addresses, and lame domains are about as many as asked for.
    #[test]
    fn roles_and_lameness() {
        assert_eq!(Role::of(ROOT.into()), Some(Role::Root));
        assert_eq!(Role::of([127, 53, 2, 9].into()), Some(Role::Domain(9)));
        assert_eq!(Role::of([127, 0, 0, 1].into()), None);
        assert_eq!(Role::of(std::net::Ipv6Addr::LOCALHOST.into()), None);
        let lame = (0..10_000u32).filter(|n| is_lame(&n.to_be_bytes(), 0.1)).count();
        assert!((800..1200).contains(&lame), "{lame}");
        assert!(!is_lame(b"x", 0.0) && is_lame(b"x", 1.0));
        assert_eq!((last_label(b"\x01a\x03com\0"), last_label(b"\0")), (2, 0));
    }
}
