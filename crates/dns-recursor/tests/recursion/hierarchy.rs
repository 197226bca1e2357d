//! A root, a top level and domains on loopback addresses: signed, forged, expired, lame, silent, slow.
//!
//! Each server is a thread with its own socket. hickory-proto makes the signatures for each query.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hickory_proto::dnssec::crypto::Ed25519SigningKey;
use hickory_proto::dnssec::rdata::{DNSKEY, DNSSECRData, DS, NSEC, RRSIG};
use hickory_proto::dnssec::{Algorithm, DigestType, DnssecSigner, SigningKey, TrustAnchors};
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, NS, SOA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordSet, RecordType};
use larder_testkit::dns::{framed, read_framed};
use time::OffsetDateTime;

/// The behavior of a server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Behavior {
    Honest,
    /// It responds REFUSED.
    Refuses,
    Silent,
    Slow(Duration),
    /// Its signatures expired yesterday.
    Expired,
    /// Its addresses differ from the signed ones.
    Forged,
    /// It has no signatures, although the zone above has a DS record for it.
    Bare,
    /// It adds records of names outside its zone.
    OutOfBailiwick,
    /// Over UDP it sends a hundred packets with wrong IDs and no response, like an attacker; over
    /// TCP it is honest.
    Spoofed,
}

/// The forged address, also used for records outside the zone of a server.
pub const FORGED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 66);

pub fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

/// A zone, its servers and its key.
struct Zone {
    apex: Name,
    sets: BTreeMap<(Name, RecordType), Vec<RData>>,
    /// Names with records in this zone.
    names: BTreeSet<Name>,
    signer: Option<DnssecSigner>,
}

impl Zone {
    fn new(apex: &str, is_signed: bool) -> Zone {
        let apex = name(apex);
        let signer = is_signed.then(|| {
            let pkcs8 = Ed25519SigningKey::generate_pkcs8().unwrap();
            let key = Ed25519SigningKey::from_pkcs8(&pkcs8).unwrap();
            let dnskey = DNSKEY::new(true, true, false, key.to_public_key().unwrap());
            let day = Duration::from_secs(86_400);
            DnssecSigner::new(dnskey, Box::new(key), apex.clone(), day)
        });
        let mut zone = Zone { apex, sets: BTreeMap::new(), names: BTreeSet::new(), signer };
        let soa = SOA::new(name("ns."), name("admin."), 1, 3_600, 600, 86_400, 60);
        let apex = zone.apex.clone();
        zone.add(&apex, RData::SOA(soa));
        if let Some(dnskey) = zone.signer.as_ref().map(|signer| signer.dnskey().clone()) {
            zone.add(&apex, RData::DNSSEC(DNSSECRData::DNSKEY(dnskey)));
        }
        zone
    }

    fn add(&mut self, name: &Name, data: RData) {
        self.names.insert(name.clone());
        self.sets.entry((name.clone(), data.record_type())).or_default().push(data);
    }

    /// Delegates a zone to servers with addresses, or to names without addresses.
    fn delegate(&mut self, child: &Zone, servers: &[Ipv4Addr], names: &[&str]) {
        for (at, address) in servers.iter().enumerate() {
            let server = child.apex.prepend_label(format!("ns{at}")).unwrap();
            self.add(&child.apex, RData::NS(NS(server.clone())));
            // Glue names are not names of this zone.
            self.sets.entry((server, RecordType::A)).or_default().push(RData::A(A(*address)));
        }
        for server in names {
            self.add(&child.apex, RData::NS(NS(name(server))));
        }
        if let Some(signer) = &child.signer {
            let key = signer.dnskey();
            let digest = key.to_digest(&child.apex, DigestType::SHA256).unwrap();
            let tag = key.calculate_key_tag().unwrap();
            let ds = DS::new(tag, Algorithm::ED25519, DigestType::SHA256, digest.as_ref().to_vec());
            self.add(&child.apex, RData::DNSSEC(DNSSECRData::DS(ds)));
        }
    }

    /// A set of records, and its signature.
    fn set(
        &self,
        name: &Name,
        rtype: RecordType,
        data: &[RData],
        behavior: Behavior,
    ) -> Vec<Record> {
        let mut set = RecordSet::with_ttl(name.clone(), rtype, 300);
        for data in data {
            set.add_rdata(data.clone());
        }
        let mut records: Vec<Record> = set.records_without_rrsigs().cloned().collect();
        if let Some(signer) = self.signer.as_ref().filter(|_| behavior != Behavior::Bare) {
            let ago = if behavior == Behavior::Expired { 48 } else { 1 };
            let inception = OffsetDateTime::now_utc() - Duration::from_secs(ago * 3_600);
            let signature = RRSIG::from_rrset(&set, DNSClass::IN, inception, signer).unwrap();
            let data = RData::DNSSEC(DNSSECRData::RRSIG(signature));
            records.push(Record::from_rdata(name.clone(), 300, data));
        }
        if behavior == Behavior::Forged {
            for record in &mut records {
                if let RData::A(address) = &mut record.data {
                    *address = A(FORGED);
                }
            }
        }
        records
    }

    fn get(&self, name: &Name, rtype: RecordType, behavior: Behavior) -> Option<Vec<Record>> {
        let data = self.sets.get(&(name.clone(), rtype))?;
        Some(self.set(name, rtype, data, behavior))
    }

    /// The NSEC record between two names, or for the types at one.
    fn nsec(&self, at: &Name, behavior: Behavior) -> Vec<Record> {
        if self.signer.is_none() || behavior == Behavior::Bare {
            return Vec::new();
        }
        let owner = self.names.range(..=at.clone()).next_back().unwrap_or(&self.apex);
        let next = self.names.range(owner.clone()..).nth(1).unwrap_or(&self.apex);
        let types = self.sets.keys().filter(|(name, _)| name == owner).map(|(_, rtype)| *rtype);
        let nsec = NSEC::new_cover_self(next.clone(), types.collect::<Vec<_>>());
        self.set(owner, RecordType::NSEC, &[RData::DNSSEC(DNSSECRData::NSEC(nsec))], behavior)
    }

    /// The response of the zone's server; signatures and proofs only if the query asks for them.
    fn respond(&self, query_message: &Message, behavior: Behavior) -> Message {
        let mut reply = self.full_response(query_message, behavior);
        if !query_message.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok) {
            let qtype = query_message.queries[0].query_type();
            let is_plain = |record: &Record| {
                record.record_type() == qtype || !matches!(record.data, RData::DNSSEC(_))
            };
            reply.answers.retain(is_plain);
            reply.authorities.retain(is_plain);
        }
        reply
    }

    fn full_response(&self, query_message: &Message, behavior: Behavior) -> Message {
        let query = query_message.queries[0].clone();
        let (qname, qtype) = (query.name().clone(), query.query_type());
        let mut reply = Message::new(
            query_message.metadata.id,
            MessageType::Response,
            query_message.metadata.op_code,
        );
        reply.add_query(query);
        reply.edns = query_message.edns.clone();
        if behavior == Behavior::Refuses {
            reply.metadata.response_code = ResponseCode::Refused;
            return reply;
        }
        let is_cut = |at: &Name| {
            *at != self.apex
                && self.sets.contains_key(&(at.clone(), RecordType::NS))
                && !(qtype == RecordType::DS && *at == qname)
        };
        let above = (1..=qname.num_labels()).map(|labels| qname.trim_to(labels.into()));
        if let Some(cut) = above.into_iter().find(is_cut) {
            let servers = &self.sets[&(cut.clone(), RecordType::NS)];
            reply.add_authorities(
                servers.iter().map(|data| Record::from_rdata(cut.clone(), 300, data.clone())),
            );
            let ds = self.get(&cut, RecordType::DS, behavior);
            reply.add_authorities(ds.unwrap_or_else(|| self.nsec(&cut, behavior)));
            for server in servers {
                let RData::NS(server) = server else { continue };
                for data in self.sets.get(&(server.0.clone(), RecordType::A)).into_iter().flatten()
                {
                    reply.add_additional(Record::from_rdata(server.0.clone(), 300, data.clone()));
                }
            }
            return reply;
        }
        reply.metadata.authoritative = true;
        let found = self
            .get(&qname, qtype, behavior)
            .or_else(|| self.get(&qname, RecordType::CNAME, behavior));
        if let Some(records) = found {
            reply.add_answers(records);
        } else {
            reply.add_authorities(self.get(&self.apex, RecordType::SOA, behavior).unwrap());
            reply.add_authorities(self.nsec(&qname, behavior));
            if !self.names.contains(&qname) {
                reply.metadata.response_code = ResponseCode::NXDomain;
                reply.add_authorities(self.nsec(&self.apex.prepend_label("*").unwrap(), behavior));
            }
        }
        if behavior == Behavior::OutOfBailiwick && qtype == RecordType::A {
            let record = Record::from_rdata(name("www.good.test."), 300, RData::A(A(FORGED)));
            reply.add_answer(record.clone());
            reply.add_additional(record);
        }
        reply
    }
}

/// All servers. They stop with the process.
pub struct Hierarchy {
    pub port: u16,
    pub root: Ipv4Addr,
    pub anchors: TrustAnchors,
}

/// A domain: name, whether it is signed, its servers, and names of servers without addresses.
type Domain = (&'static str, bool, &'static [Behavior], &'static [&'static str]);

const DOMAINS: &[Domain] = &[
    ("good.test.", true, &[Behavior::Honest], &[]),
    ("plain.test.", false, &[Behavior::Honest], &[]),
    ("expired.test.", true, &[Behavior::Expired], &[]),
    ("forged.test.", true, &[Behavior::Forged], &[]),
    ("bare.test.", true, &[Behavior::Bare], &[]),
    ("slow.test.", true, &[Behavior::Slow(Duration::from_millis(250))], &[]),
    ("half.test.", false, &[Behavior::Silent, Behavior::Honest], &[]),
    ("dead.test.", false, &[Behavior::Silent], &[]),
    ("lame.test.", false, &[Behavior::Refuses], &[]),
    ("halflame.test.", false, &[Behavior::Refuses, Behavior::Honest], &[]),
    ("evil.test.", false, &[Behavior::OutOfBailiwick], &[]),
    ("circle-a.test.", false, &[], &["ns.circle-b.test."]),
    ("circle-b.test.", false, &[], &["ns.circle-a.test."]),
    ("guessed.test.", false, &[Behavior::Spoofed], &[]),
];

/// Starts all servers, at 127.77.x.y and one port.
pub fn start() -> Hierarchy {
    let root_at = Ipv4Addr::new(127, 77, 0, 1);
    let top_at = Ipv4Addr::new(127, 77, 1, 1);
    let first = UdpSocket::bind((root_at, 0)).unwrap();
    let port = first.local_addr().unwrap().port();
    let (mut root, mut top) = (Zone::new(".", true), Zone::new("test.", true));
    let mut servers: Vec<(UdpSocket, Arc<Zone>, Behavior)> = Vec::new();
    for (number, (domain, is_signed, behaviors, others)) in DOMAINS.iter().enumerate() {
        let mut zone = Zone::new(domain, *is_signed);
        let number = number as u8;
        let address = |server: usize| Ipv4Addr::new(127, 77, 2 + number, 1 + server as u8);
        let addresses: Vec<Ipv4Addr> = (0..behaviors.len()).map(address).collect();
        for (at, server) in addresses.iter().enumerate() {
            let own = zone.apex.prepend_label(format!("ns{at}")).unwrap();
            let apex = zone.apex.clone();
            zone.add(&apex, RData::NS(NS(own.clone())));
            zone.add(&own, RData::A(A(*server)));
        }
        let of = |label: &str| name(&format!("{label}.{domain}"));
        zone.add(&of("www"), RData::A(A(Ipv4Addr::new(192, 0, 2, 10 + number))));
        zone.add(&of("alias"), RData::CNAME(CNAME(of("www"))));
        zone.add(&of("away"), RData::CNAME(CNAME(name("www.plain.test."))));
        zone.add(&of("lost"), RData::CNAME(CNAME(name("nx.good.test."))));
        zone.add(&of("loop-a"), RData::CNAME(CNAME(of("loop-b"))));
        zone.add(&of("loop-b"), RData::CNAME(CNAME(of("loop-a"))));
        top.delegate(&zone, &addresses, others);
        let zone = Arc::new(zone);
        for (server, behavior) in addresses.iter().zip(*behaviors) {
            servers.push((UdpSocket::bind((*server, port)).unwrap(), zone.clone(), *behavior));
        }
    }

    root.delegate(&top, &[top_at], &[]);
    let apex = root.apex.clone();
    root.add(&apex, RData::NS(NS(name("ns0.root-servers.test."))));
    let mut anchors = TrustAnchors::empty();
    let signer = root.signer.as_ref().unwrap();
    anchors.insert(&signer.key().to_public_key().unwrap());
    servers.push((first, Arc::new(root), Behavior::Honest));
    servers.push((UdpSocket::bind((top_at, port)).unwrap(), Arc::new(top), Behavior::Honest));
    for (socket, zone, behavior) in servers {
        if behavior == Behavior::Spoofed {
            let (listener, zone) =
                (TcpListener::bind(socket.local_addr().unwrap()).unwrap(), zone.clone());
            thread::spawn(move || serve_tcp(&listener, &zone));
        }
        thread::spawn(move || serve(&socket, &zone, behavior));
    }
    Hierarchy { port, root: root_at, anchors }
}

fn serve(socket: &UdpSocket, zone: &Zone, behavior: Behavior) {
    let mut room = [0; 2_048];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut room) else { continue };
        let Ok(query_message) = Message::from_vec(&room[..length]) else { continue };
        let respond = |from: SocketAddr| {
            socket.send_to(&zone.respond(&query_message, behavior).to_vec().unwrap(), from)
        };
        match behavior {
            Behavior::Silent => continue,
            Behavior::Slow(delay) => thread::sleep(delay),
            Behavior::Spoofed => {
                let mut guess = zone.respond(&query_message, behavior).to_vec().unwrap();
                for number in 1..=100_u16 {
                    let id = query_message.metadata.id.wrapping_add(number);
                    guess[..2].copy_from_slice(&id.to_be_bytes());
                    // The recursor may have closed the socket before the last one.
                    let _ = socket.send_to(&guess, from);
                }
                continue;
            }
            _ => {}
        }
        respond(from).unwrap();
    }
}

/// Serves one query for each connection.
fn serve_tcp(listener: &TcpListener, zone: &Zone) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let Ok(message) = read_framed(&mut stream) else { continue };
        let Ok(query_message) = Message::from_vec(&message) else { continue };
        let answer = zone.respond(&query_message, Behavior::Honest).to_vec().unwrap();
        let _ = stream.write_all(&framed(&answer));
    }
}
