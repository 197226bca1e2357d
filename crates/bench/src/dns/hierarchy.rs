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
//! A name is a domain's, with labels in front or without; see [`super::question`]. Referrals bring addresses
//! with them, so a name of a domain that a resolver has not met costs two questions, and another one of it one.

use std::net::{IpAddr, Ipv4Addr};

use super::question::{TYPE_A_CLASS_IN, address, domain_start, name_hash};
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
const NS: u8 = 2;
const REFUSED: u8 = 5;
const AUTHORITATIVE: u8 = 4;
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

/// Writes what the server of a role says of a folded name.
pub(super) fn answer(
    reply: &mut Reply<'_>,
    role: Role,
    name: &[u8],
    kind: &[u8],
    options: &StubOptions,
) {
    let top_start = last_label(name);
    match role {
        Role::Root if name == [0] => {
            reply.room[2] |= AUTHORITATIVE;
            if kind == TYPE_NS_CLASS_IN {
                let owner = b"\x03ns1\x04root\0";
                reply.record(Section::Answer, &[0], NS, REFERRAL_TTL_S, owner);
                reply.address(Section::Additional, owner, REFERRAL_TTL_S, ROOT.octets());
            }
        }
        Role::Root if &name[top_start..] == b"\x04root\0" => {
            reply.room[2] |= AUTHORITATIVE;
            if kind == TYPE_A_CLASS_IN {
                reply.address(Section::Answer, &pointer(0), REFERRAL_TTL_S, ROOT.octets());
            }
        }
        Role::Root => refer(reply, top_start, [1, 2].map(|server| [127, 53, 1, server])),
        Role::Top => match (own_server(name, top_start), domain_start(name)) {
            (None, Some(start)) => {
                let servers = pair(&name[start..]).map(|server| [127, 53, 2, server]);
                refer(reply, start, servers);
            }
            // A name of the top level itself: one of its servers', or its own.
            (own, _) => {
                reply.room[2] |= AUTHORITATIVE;
                if let (Some(server), true) = (own, kind == TYPE_A_CLASS_IN) {
                    let address = [127, 53, 1, server as u8 + 1];
                    reply.address(Section::Answer, &pointer(0), REFERRAL_TTL_S, address);
                }
            }
        },
        Role::Domain(server) => {
            let domain = domain_start(name).map(|start| &name[start..]);
            let is_own = domain.is_some_and(|domain| {
                let [first, second] = pair(domain);
                server == second || (server == first && !is_lame(domain, options.lame))
            });
            match domain.filter(|_| is_own) {
                Some(domain) => leaf(reply, name, domain, kind, options.ttl_s),
                None => reply.room[3] |= REFUSED,
            }
        }
        Role::Any => leaf(reply, name, &[], kind, options.ttl_s),
    }
}

/// The answer of a server that knows the name.
fn leaf(reply: &mut Reply<'_>, name: &[u8], domain: &[u8], kind: &[u8], ttl_s: u32) {
    reply.room[2] |= AUTHORITATIVE;
    if kind != TYPE_A_CLASS_IN {
        return;
    }
    let address = match own_server(name, name.len() - domain.len()) {
        Some(server) => [127, 53, 2, pair(domain)[server]],
        None => address(name_hash(name)),
    };
    reply.address(Section::Answer, &pointer(0), ttl_s, address);
}

/// Which of the servers of the zone that begins at `zone_start` a name is, if it is one.
fn own_server(name: &[u8], zone_start: usize) -> Option<usize> {
    SERVERS.iter().position(|server| name[..zone_start] == **server)
}

/// Refers to the two servers of the zone whose name begins at `start` of the question's.
fn refer(reply: &mut Reply<'_>, start: usize, addresses: [[u8; 4]; 2]) {
    let zone = pointer(start);
    let names = SERVERS.map(|server| [server, &zone].concat());
    for name in &names {
        reply.record(Section::Authority, &zone, NS, REFERRAL_TTL_S, name);
    }
    for (name, address) in names.iter().zip(addresses) {
        reply.address(Section::Additional, name, REFERRAL_TTL_S, address);
    }
}

/// A pointer to a place in the question's name (RFC 1035, section 4.1.4); names are below 256 octets.
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
    use crate::dns::field::run;
    use crate::dns::plan::{Error, Event, Plan, Work};
    use crate::dns::question;
    use crate::dns::server::Server;
    use crate::dns::stub;
    use crate::net::load::Question;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    /// A resolver that knows the root only finds every address, with a few questions a miss, also where
    /// every tenth domain's first server is lame.
    #[test]
    fn a_resolver_finds_its_way() {
        let test = "a_resolver_finds_its_way";
        let server = match Server::find("unbound", Path::new("larder")) {
            Ok(server) => server,
            Err(reason) => return eprintln!("SKIP {test}: unbound is {reason}"),
        };
        for lame in [0.0, 0.1] {
            let plan = Plan {
                rounds: 1,
                measured: Duration::from_millis(400),
                cores: 1,
                in_flight: 32,
                edns: true,
                upstream: StubOptions { lame, ..StubOptions::default() },
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
        let mut ask = |question: &[u8], server: [u8; 4]| {
            let (length, _) =
                stub::answer(question, Some(server.into()), &lame, &mut room).unwrap();
            room[..length].to_vec()
        };
        let last = |message: &[u8]| *message.last_chunk::<4>().unwrap();
        for number in 0..1000 {
            let mut question = [0; 100];
            let Question { length, tag } = question::write(9, number, false, &mut question);
            let question = &question[..length];
            let referral = ask(question, ROOT.octets());
            assert_eq!(last(&referral), [127, 53, 1, 2]);
            assert_eq!(referral[6..NAME_AT], [0, 0, 0, 2, 0, 2]);
            let [127, 53, 2, second] = last(&ask(question, [127, 53, 1, 2])) else { panic!() };
            assert!(question::is_answer(tag, &ask(question, [127, 53, 2, second])));
            assert!(question::is_answer(tag, &ask(question, ANY.octets())));
            for stranger in [second - 1, second ^ 8] {
                let refusal = ask(question, [127, 53, 2, stranger]);
                assert_eq!((refusal[3] & 15, refusal.len()), (REFUSED, question.len()));
            }
        }

        let own = |name: &[u8]| [b"\0\x01\0\0\0\x01\0\0\0\0\0\0", name, &TYPE_A_CLASS_IN].concat();
        assert_eq!(last(&ask(&own(b"\x03ns2\x03com\0"), [127, 53, 1, 1])), [127, 53, 1, 2]);
        let [127, 53, 2, second] = last(&ask(&own(b"\x01a\x03com\0"), [127, 53, 1, 1])) else {
            panic!()
        };
        let answer = ask(&own(b"\x03ns1\x01a\x03com\0"), [127, 53, 2, second]);
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
