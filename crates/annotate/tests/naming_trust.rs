//! Attempts to get a wrong name into the log, each with the name and the flags that the flow must
//! get. Packets are made here; every capture gives the same log on one core and on four.

mod support;

use larder_annotate::options::{NameSources, Options, Unresolved};
use larder_testkit::dns::{head, wire_name};
use serde_json::Value;
use support::{Folder, Maker, ecs, made, tcp, udp};

type V4 = [u8; 4];

const CLIENT: V4 = [10, 1, 0, 10];
const OTHER: V4 = [10, 1, 0, 11];
const RESOLVER: V4 = [10, 1, 0, 53];
const ATTACKER: V4 = [10, 1, 0, 66];
const NAS: V4 = [10, 1, 0, 5];
const SITE: V4 = [203, 0, 113, 7];
const EVIL: V4 = [198, 51, 100, 66];
const MDNS_GROUP: V4 = [224, 0, 0, 251];

/// A record of a response.
enum Data<'a> {
    A(V4),
    Cname(&'a str),
    Ptr(&'a str),
}

/// A DNS message with one question (none for multicast) and records, each with its owner.
fn message(id: u16, flags: u16, asked: Option<&str>, records: &[(&str, Data<'_>)]) -> Vec<u8> {
    let mut out = head(id, flags, [u16::from(asked.is_some()), records.len() as u16, 0, 0]);
    if let Some(asked) = asked {
        out.extend(wire_name(asked));
        let is_reverse = asked.ends_with(".arpa");
        out.extend_from_slice(&[0, if is_reverse { 12 } else { 1 }, 0, 1]);
    }
    for (owner, data) in records {
        let (kind, data) = match data {
            Data::A(addr) => (1, addr.to_vec()),
            Data::Cname(target) => (5, wire_name(target)),
            Data::Ptr(target) => (12, wire_name(target)),
        };
        out.extend(wire_name(owner));
        out.extend_from_slice(&[0, kind, 0, 1, 0, 0, 1, 44]);
        out.extend_from_slice(&(data.len() as u16).to_be_bytes());
        out.extend(data);
    }
    out
}

/// The packets of a capture, and the flows that a test reads from the log.
struct Scene {
    maker: Maker,
    id: u16,
}

impl Scene {
    fn new() -> Scene {
        Scene { maker: Maker::new(1), id: 0 }
    }

    fn datagram(&mut self, ends: (V4, V4), ports: (u16, u16), hops: u8, payload: &[u8]) {
        let mut frame = udp(ends, ports, payload);
        frame[14 + 8] = hops;
        self.maker.push(frame);
    }

    fn query(&mut self, client: V4, port: u16, asked: &str) {
        self.id = self.id.wrapping_add(1);
        let query = message(self.id, 0x0100, Some(asked), &[]);
        self.datagram((client, RESOLVER), (port, 53), 64, &query);
    }

    /// The response to the last query, from `server_port` to `port`.
    fn response(
        &mut self,
        client: V4,
        ports: (u16, u16),
        asked: &str,
        records: &[(&str, Data<'_>)],
    ) {
        let response = message(self.id, 0x8180, Some(asked), records);
        self.datagram((RESOLVER, client), ports, 64, &response);
    }

    fn lookup(&mut self, client: V4, asked: &str, addr: V4) {
        self.query(client, 4000, asked);
        self.response(client, (53, 4000), asked, &[(asked, Data::A(addr))]);
    }

    /// A response without a query.
    fn forged(&mut self, client: V4, asked: &str, addr: V4) {
        let response = message(999, 0x8180, Some(asked), &[(asked, Data::A(addr))]);
        self.datagram((RESOLVER, client), (53, 999), 64, &response);
    }

    /// `source` says over multicast DNS that `name` has `addr`.
    fn mdns(&mut self, source: V4, hops: u8, name: &str, addr: V4) {
        let announcement = message(0, 0x8400, None, &[(name, Data::A(addr))]);
        self.datagram((source, MDNS_GROUP), (5353, 5353), hops, &announcement);
    }

    fn dhcp(&mut self, ends: (V4, V4), is_reply: bool, mac: u8, addrs: [V4; 2], name: &str) {
        let mut out = vec![if is_reply { 2 } else { 1 }, 1, 6, 0, 0, 0, 0, 0x55, 0, 0, 0, 0];
        out.extend(addrs.concat());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&[2, 0, 0, 0, 0, mac]);
        out.resize(236, 0);
        out.extend_from_slice(&[99, 130, 83, 99, 53, 1, if is_reply { 5 } else { 3 }]);
        if !name.is_empty() {
            out.extend_from_slice(&[12, name.len() as u8]);
            out.extend_from_slice(name.as_bytes());
        }
        out.push(255);
        let ports = if is_reply { (67, 68) } else { (68, 67) };
        self.datagram(ends, ports, 64, &out);
    }

    /// A DHCP client without an address asks for one, gives its name, and gets `addr`.
    fn lease(&mut self, mac: u8, addr: V4, name: &str) {
        let none = [0; 4];
        self.dhcp((none, [255; 4]), false, mac, [none, none], name);
        self.dhcp((RESOLVER, addr), true, mac, [none, addr], "");
    }

    /// A NetBIOS registration of `name` for `addr`.
    fn netbios(&mut self, source: V4, name: &str, addr: V4) {
        let padded = format!("{:<15}\0", name.to_uppercase());
        let mut owner = vec![32];
        owner.extend(padded.bytes().flat_map(|byte| [b'A' + (byte >> 4), b'A' + (byte & 15)]));
        owner.push(0);
        let mut out = vec![0, 1, 0x29, 0x10, 0, 1, 0, 0, 0, 0, 0, 1];
        out.extend_from_slice(&owner);
        out.extend_from_slice(&[0, 0x20, 0, 1]);
        out.extend_from_slice(&[0xc0, 12, 0, 0x20, 0, 1, 0, 0, 1, 44, 0, 6, 0, 0]);
        out.extend_from_slice(&addr);
        self.datagram((source, [10, 1, 0, 255]), (137, 137), 64, &out);
    }

    fn flow(&mut self, client: V4, server: V4) {
        self.flow_saying(client, server, "");
    }

    /// A flow whose request has a Host, if any.
    fn flow_saying(&mut self, client: V4, server: V4, host: &str) {
        self.id = self.id.wrapping_add(1);
        let ports = (20_000 + self.id % 20_000, 8080);
        let back = (ports.1, ports.0);
        self.maker.pause(100_000_000);
        self.maker.push(tcp((client, server), ports, 0x02, 1, &[]));
        self.maker.push(tcp((server, client), back, 0x12, 1, &[]));
        if !host.is_empty() {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            self.maker.push(tcp((client, server), ports, 0x18, 2, request.as_bytes()));
        }
    }

    fn pause_s(&mut self, seconds: i64) {
        self.maker.pause(seconds * 1_000_000_000);
    }

    /// A run over the capture, which lies in a folder.
    fn options(&self) -> (Folder, Options) {
        let folder = Folder::new();
        let path = folder.keep("scene.pcap", self.maker.pcap());
        (folder, Options { names: NameSources::all(), ..ecs(&path) })
    }

    /// The records of the log.
    fn records(&self, unresolved: Unresolved) -> Vec<Value> {
        let (_folder, options) = self.options();
        let options = Options { unresolved, ..options };
        let [one, four] = [1, 4].map(|cores| made(&options, cores));
        assert!(one.log() == four.log(), "the log depends on the number of cores");
        one.records()
    }

    /// The TCP flows of the log: name, source and flags of the destination.
    fn names(&self) -> Vec<String> {
        let records = self.records(Unresolved::False);
        let flows = records.iter().filter(|record| record["network.transport"] == "tcp");
        flows.map(|record| described(record, "destination")).collect()
    }
}

fn described(record: &Value, end: &str) -> String {
    let text = |key: &str| record[key].as_str().unwrap_or("-").to_owned();
    let mut words = vec![text(&format!("{end}.domain"))];
    words.push(text(&format!("larder.{end}.name_source")));
    for (_, flag) in larder_annotate::record::NameFlags::ALL {
        if record[format!("larder.{end}.name_{flag}")] == Value::Bool(true) {
            words.push(flag.to_owned());
        }
    }
    words.join(" ")
}

/// Only a response with its own query counts in full; one from another port, a second one, and one
/// without a query are flagged, and remove no name that was queried, neither for the client nor for
/// others.
#[test]
fn responses_without_a_query_are_flagged() {
    let mut scene = Scene::new();
    scene.lookup(CLIENT, "good.example", SITE);
    scene.forged(CLIENT, "evil.example", SITE);
    scene.flow(CLIENT, SITE);
    scene.flow(OTHER, SITE);
    scene.forged(CLIENT, "alone.example", [203, 0, 113, 8]);
    scene.flow(CLIENT, [203, 0, 113, 8]);
    // From another server port, to another client port, and once more after the right one.
    for (ports, addr) in [((5353, 4000), 1), ((53, 4001), 2), ((53, 4000), 3)] {
        scene.query(CLIENT, 4000, "asked.example");
        let records = |addr| [("asked.example", Data::A([198, 51, 100, addr]))];
        scene.response(CLIENT, ports, "asked.example", &records(addr));
        if addr == 3 {
            scene.response(CLIENT, ports, "asked.example", &records(4));
        }
        scene.flow(CLIENT, [198, 51, 100, addr]);
    }
    scene.flow(CLIENT, [198, 51, 100, 4]);
    // The client's port is the one of DNS, the server's is another than the one that was queried.
    scene.query(CLIENT, 53, "asked.example");
    let records = [("asked.example", Data::A([198, 51, 100, 5]))];
    scene.response(CLIENT, (999, 53), "asked.example", &records);
    scene.flow(CLIENT, [198, 51, 100, 5]);
    let names = scene.names();
    assert_eq!(names[7], "asked.example dns_pair unsolicited", "from another server port");
    assert_eq!(names[0], "good.example dns_pair ambiguous");
    assert_eq!(names[1], "good.example dns_address ambiguous");
    assert_eq!(names[2], "alone.example dns_pair unsolicited");
    assert_ne!(names[3], "asked.example dns_pair", "from another server port");
    assert_eq!(names[4], "asked.example dns_pair unsolicited", "to another client port");
    assert_eq!(names[5], "asked.example dns_pair");
    assert_eq!(names[6], "asked.example dns_pair unsolicited", "the query was answered already");
}

/// However many names are forged for an address, the one that was queried stays, for its client and
/// for others.
#[test]
fn forged_names_do_not_crowd_out_what_was_asked_for() {
    let mut scene = Scene::new();
    scene.lookup(CLIENT, "good.example", SITE);
    for number in 0..100 {
        scene.forged(CLIENT, &format!("evil{number}.example"), SITE);
        scene.forged([10, 1, 0, 250], &format!("other{number}.example"), SITE);
    }
    scene.flow(CLIENT, SITE);
    scene.flow(OTHER, SITE);
    let names = scene.names();
    assert_eq!(names[0], "good.example dns_pair ambiguous");
    assert_eq!(names[1], "good.example dns_address ambiguous");
}

/// No response makes a host that never queries rename an address, for itself or for others; where
/// no queries are seen at all, names come with a flag.
#[test]
fn responses_to_dark_hosts_are_one_sided() {
    let dark = [10, 1, 0, 250];
    let mut scene = Scene::new();
    scene.lookup(CLIENT, "good.example", SITE);
    scene.forged(dark, "evil.example", SITE);
    scene.flow(OTHER, SITE);
    scene.flow(dark, SITE);
    scene.forged(dark, "tapped.example", EVIL);
    scene.flow(dark, EVIL);
    // An alias that no client queried gives no name to an address that was queried by another head.
    let records = [("evil.example", Data::Cname("good.example")), ("good.example", Data::A(EVIL))];
    scene.response(dark, (53, 77), "evil.example", &records);
    scene.lookup(CLIENT, "good.example", SITE);
    scene.flow(OTHER, SITE);
    // Nor when the host itself sends a query later.
    let addr = [203, 0, 113, 9];
    let alias = ("evil.example", Data::Cname("late.example"));
    scene.response(dark, (53, 77), "evil.example", &[alias, ("late.example", Data::A(EVIL))]);
    scene.lookup(dark, "late.example", addr);
    scene.flow(OTHER, addr);
    let names = scene.names();
    assert_eq!(names[0], "good.example dns_address ambiguous");
    assert_eq!(names[1], "good.example dns_address ambiguous");
    assert_eq!(names[2], "tapped.example dns_pair one_sided");
    assert_eq!(names[3], "good.example dns_address ambiguous");
    assert_eq!(names[4], "late.example dns_address");
}

/// No number of other clients makes larder forget that a client's queries are seen.
#[test]
fn a_flood_of_queries_does_not_make_forged_responses_count() {
    let mut scene = Scene::new();
    scene.lookup(CLIENT, "good.example", SITE);
    for number in 0..70_000_u32 {
        let [_, b, c, d] = number.to_be_bytes();
        scene.query([11, b, c, d], 4000, "x.example");
    }
    scene.forged(CLIENT, "evil.example", SITE);
    scene.forged(CLIENT, "alone.example", EVIL);
    scene.flow(CLIENT, SITE);
    scene.flow(CLIENT, EVIL);
    let names = scene.names();
    assert_eq!(names[0], "good.example dns_pair ambiguous");
    assert_eq!(names[1], "alone.example dns_pair unsolicited");
}

/// The owner of a zone points an alias at another site. In any order of lookups, the site keeps its
/// name for every client that did not query the alias; both names stay candidates.
#[test]
fn an_alias_does_not_rename_the_site_that_it_points_to() {
    let resolver = [198, 51, 100, 53];
    let evil = |scene: &mut Scene| {
        scene.query(CLIENT, 4000, "evil.example");
        let target = Data::Cname("www.bank.example");
        let records = [("evil.example", target), ("www.bank.example", Data::A(SITE))];
        scene.response(CLIENT, (53, 4000), "evil.example", &records);
    };
    let bank = |scene: &mut Scene| scene.lookup(resolver, "www.bank.example", SITE);
    for order in ["be", "eb", "beb", "bee", "ebe"] {
        let mut scene = Scene::new();
        for step in order.chars() {
            if step == 'b' { bank(&mut scene) } else { evil(&mut scene) }
        }
        scene.flow(OTHER, SITE);
        scene.flow(CLIENT, SITE);
        let records = scene.records(Unresolved::False);
        let flows: Vec<&Value> =
            records.iter().filter(|record| record["network.transport"] == "tcp").collect();
        let both = [described(flows[0], "destination"), described(flows[1], "destination")];
        assert_eq!(both[0], "www.bank.example dns_address ambiguous", "{order}");
        assert_eq!(both[1], "evil.example dns_pair ambiguous", "{order}");
        let candidates = flows[0]["larder.destination.candidates"].as_array().expect("a list");
        assert_eq!(candidates.len(), 2, "{order}: {candidates:?}");
    }
}

/// The head of a chain still names the address where the resolver between followed the alias.
#[test]
fn the_head_of_a_chain_that_a_resolver_followed_wins() {
    let resolver = [198, 51, 100, 53];
    let mut scene = Scene::new();
    scene.query(resolver, 4000, "www.shop.example");
    let records = [("www.shop.example", Data::Cname("edge.cdn.test"))];
    scene.response(resolver, (53, 4000), "www.shop.example", &records);
    // An alias without a query does not take its place.
    let forged = [("evil.example", Data::Cname("edge.cdn.test"))];
    scene.response([10, 1, 0, 250], (53, 77), "evil.example", &forged);
    scene.lookup(resolver, "edge.cdn.test", SITE);
    scene.flow(OTHER, SITE);
    assert_eq!(scene.names(), ["www.shop.example dns_chain ambiguous"]);
}

/// A host names its own address, on its own link. A name that others give it is a claim that
/// displaces nothing, by any protocol.
#[test]
fn hosts_name_only_themselves() {
    let mut scene = Scene::new();
    scene.mdns(NAS, 255, "nas.local", NAS);
    scene.mdns(ATTACKER, 255, "evil.local", NAS);
    scene.netbios(ATTACKER, "evil", NAS);
    let llmnr = message(7, 0x8000, Some("evil"), &[("evil", Data::A(NAS))]);
    scene.datagram((ATTACKER, CLIENT), (5355, 6000), 255, &llmnr);
    scene.lease(1, NAS, "evil");
    scene.flow(CLIENT, NAS);

    let unnamed: V4 = [10, 1, 0, 6];
    scene.mdns(ATTACKER, 255, "evil.local", unnamed);
    scene.flow(CLIENT, unnamed);
    // It was forwarded, so it is from another link.
    let far: V4 = [10, 1, 0, 7];
    scene.mdns(far, 63, "far.local", far);
    scene.flow(CLIENT, far);
    scene.mdns(ATTACKER, 255, "bank.local", SITE);
    scene.flow(CLIENT, SITE);
    let desk: V4 = [10, 1, 0, 8];
    scene.netbios(desk, "desk", desk);
    scene.flow(CLIENT, desk);
    // A program of a user, on a port of its own; a host outside.
    let user: V4 = [10, 1, 0, 9];
    let said = message(0, 0x8400, None, &[("user.local", Data::A(user))]);
    scene.datagram((user, MDNS_GROUP), (9999, 5353), 255, &said);
    scene.flow(CLIENT, user);
    scene.netbios(EVIL, "outside", EVIL);
    scene.flow(CLIENT, EVIL);
    let names = scene.names();
    assert_eq!(names[5], "user.local mdns claimed");
    assert_eq!(names[6], "outside nbns claimed");
    assert_eq!(names[0], "nas.local mdns ambiguous");
    assert_eq!(names[1], "evil.local mdns claimed");
    assert_eq!(names[2], "far.local mdns claimed");
    assert_eq!(names[3], "bank.local mdns claimed");
    assert_eq!(names[4], "desk nbns");
}

/// A DHCP client may state any name: a host name counts; a name of the public DNS is a claim until
/// a lookup confirms it; so is the name of a second lease of an address, and a name that only a
/// reply has.
#[test]
fn leases_are_claims_where_nothing_confirms_them() {
    let at = |last: u8| -> V4 { [10, 1, 0, last] };
    let mut scene = Scene::new();
    scene.lease(1, at(71), "laptop");
    scene.lease(2, at(72), "www.google.com");
    scene.lease(3, at(73), "box.corp.example");
    scene.lookup(CLIENT, "box.corp.example", at(73));
    scene.lease(4, at(71), "thief");
    scene.dhcp((ATTACKER, at(74)), true, 5, [[0; 4], at(74)], "given");
    scene.dhcp((ATTACKER, RESOLVER), false, 6, [at(75), [0; 4]], "other");
    scene.dhcp((at(76), RESOLVER), false, 7, [at(76), [0; 4]], "renews");
    scene.lease(8, at(77), "phone");
    // The server is not in this network.
    scene.dhcp(([0; 4], [255; 4]), false, 9, [[0; 4]; 2], "outside");
    scene.dhcp((EVIL, at(78)), true, 9, [[0; 4], at(78)], "");
    for last in 71..=78 {
        scene.flow(CLIENT, at(last));
    }
    let names = scene.names();
    assert_eq!(names[0], "thief dhcp ambiguous claimed");
    assert_eq!(names[1], "www.google.com dhcp claimed");
    assert_eq!(names[2], "box.corp.example dns_pair");
    assert_eq!(names[3], "given dhcp claimed");
    assert_eq!(names[4], "other dhcp claimed");
    assert_eq!(names[5], "renews dhcp");
    assert_eq!(names[6], "phone dhcp");
    assert_eq!(names[7], "outside dhcp claimed");
}

/// A name that a host stated counts before a lease only while it is valid: the address may have
/// another owner now.
#[test]
fn an_address_gets_another_owner() {
    let mut scene = Scene::new();
    scene.mdns(NAS, 255, "nas.local", NAS);
    scene.lease(1, NAS, "laptop");
    scene.flow(CLIENT, NAS);
    scene.pause_s(400);
    scene.lease(2, NAS, "laptop");
    scene.flow(CLIENT, NAS);
    let names = scene.names();
    assert!(names[0].starts_with("nas.local mdns"), "{names:?}");
    assert!(names[1].starts_with("laptop dhcp"), "{names:?}");
}

/// The owner of an address can write any name into its reverse zone: it is a claim, but where a
/// lookup of that name gave the address.
#[test]
fn reverse_names_need_a_forward_match() {
    let mut scene = Scene::new();
    let reverse = "66.100.51.198.in-addr.arpa";
    scene.query(CLIENT, 4000, reverse);
    scene.response(CLIENT, (53, 4000), reverse, &[(reverse, Data::Ptr("www.google.com"))]);
    scene.lookup(OTHER, "good.example", SITE);
    scene.flow(CLIENT, EVIL);
    scene.flow(EVIL, SITE);
    // Neither another name's lookup nor a forged response is that match.
    scene.lookup(OTHER, "other.example", EVIL);
    scene.flow(EVIL, SITE);
    scene.forged(OTHER, "www.google.com", EVIL);
    scene.flow(EVIL, SITE);
    scene.lookup(OTHER, "www.google.com", EVIL);
    scene.flow(EVIL, SITE);
    let records = scene.records(Unresolved::False);
    let flows: Vec<&Value> =
        records.iter().filter(|record| record["network.transport"] == "tcp").collect();
    assert_eq!(described(flows[0], "destination"), "www.google.com ptr claimed");
    assert_eq!(described(flows[1], "source"), "www.google.com ptr claimed");
    assert_eq!(described(flows[2], "source"), "www.google.com ptr claimed");
    assert_eq!(described(flows[3], "source"), "www.google.com ptr claimed");
    assert_eq!(described(flows[4], "source"), "www.google.com ptr");
}

/// One client's answer from a hostile zone (DNS rebinding) names a local host for that client only:
/// for all others the name that the host states stays.
#[test]
fn a_local_host_keeps_its_own_name() {
    let mut scene = Scene::new();
    scene.mdns(NAS, 255, "nas.local", NAS);
    scene.lookup(CLIENT, "evil.example", NAS);
    scene.flow(OTHER, NAS);
    scene.flow(CLIENT, NAS);
    let names = scene.names();
    assert_eq!(names[0], "nas.local mdns ambiguous");
    assert_eq!(names[1], "evil.example dns_pair ambiguous");
}

/// A stated name that no lookup gave for this address is unconfirmed, also where the lookup gave
/// another address, or was forged; and its distance from what lookups gave is graded.
#[test]
fn stated_names_are_held_against_lookups() {
    let at = |last: u8| -> V4 { [198, 51, 100, last] };
    let mut scene = Scene::new();
    scene.lookup(CLIENT, "www.google.com", SITE);
    scene.flow_saying(CLIENT, SITE, "www.google.com");
    scene.flow_saying(OTHER, SITE, "www.google.com");
    scene.flow_saying(CLIENT, at(1), "www.google.com");
    scene.forged(CLIENT, "www.google.com", at(2));
    scene.flow_saying(CLIENT, at(2), "www.google.com");
    scene.flow_saying(CLIENT, SITE, "mail.google.com");
    scene.flow_saying(CLIENT, SITE, "www.example.org");
    scene.query(CLIENT, 4000, "www.shop.example");
    let alias = ("www.shop.example", Data::Cname("edge.cdn.test"));
    let records = [alias, ("edge.cdn.test", Data::A(at(3)))];
    scene.response(CLIENT, (53, 4000), "www.shop.example", &records);
    scene.flow_saying(CLIENT, at(3), "edge.cdn.test");
    let records = scene.records(Unresolved::False);
    let flows = records.iter().filter(|record| record["network.transport"] == "tcp");
    let found: Vec<String> = flows
        .map(|record| {
            let grade = record["larder.destination.name_conflict_grade"].as_str();
            format!("{} {}", described(record, "destination"), grade.unwrap_or("-"))
        })
        .collect();
    let expected = [
        "www.google.com http_host -",
        "www.google.com http_host -",
        "www.google.com http_host unconfirmed -",
        "www.google.com http_host unconfirmed -",
        "mail.google.com http_host unconfirmed same_domain",
        "www.example.org http_host conflict unconfirmed other_domain",
        "edge.cdn.test http_host unconfirmed chain",
    ];
    assert_eq!(found, expected);
}

/// `--unresolved` lists the flows that no lookup supports, whether they state a name or not, and no
/// lookups; `--unresolved=all` lists those without a name.
#[test]
fn unresolved_lists_what_no_lookup_supports() {
    let at = |last: u8| -> V4 { [198, 51, 100, last] };
    let mut scene = Scene::new();
    scene.flow(CLIENT, at(9));
    scene.lookup(CLIENT, "good.example", SITE);
    scene.pause_s(60);
    scene.flow(CLIENT, SITE);
    scene.flow_saying(CLIENT, at(1), "www.google.com");
    scene.flow(CLIENT, at(2));
    scene.forged(CLIENT, "www.google.com", at(3));
    scene.flow_saying(CLIENT, at(3), "www.google.com");
    scene.flow(CLIENT, NAS);
    scene.query(CLIENT, 4000, "unanswered.example");
    scene.mdns(NAS, 255, "x.local", [10, 1, 0, 99]);
    // Source port 53 makes no lookup of it.
    scene.maker.push(tcp((CLIENT, at(4)), (53, 443), 0x02, 1, &[]));
    let listed = |unresolved| -> Vec<String> {
        let records = scene.records(unresolved);
        let addrs = records.iter().map(|record| record["destination.ip"].as_str().expect("an IP"));
        addrs.map(str::to_owned).collect()
    };
    let true_list = listed(Unresolved::True);
    assert_eq!(true_list, ["198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4"]);
    let all = listed(Unresolved::All);
    // The forged response is a flow of its own, from port 53 to the client.
    assert_eq!(all, ["198.51.100.9", "198.51.100.2", "10.1.0.10", "10.1.0.5", "198.51.100.4"]);
}

/// An alias with an owner that reads as an address names no address.
#[test]
fn addresses_are_no_aliases() {
    let resolver = [198, 51, 100, 53];
    let mut scene = Scene::new();
    scene.query(resolver, 4000, "10.0.0.99");
    let records = [("10.0.0.99", Data::Cname("edge.cdn.test"))];
    scene.response(resolver, (53, 4000), "10.0.0.99", &records);
    scene.lookup(resolver, "edge.cdn.test", SITE);
    scene.flow(OTHER, SITE);
    assert_eq!(scene.names(), ["edge.cdn.test dns_address"]);
}

/// A saved name that reads as an address is not loaded.
#[test]
fn saved_addresses_are_no_names() {
    let mut scene = Scene::new();
    scene.lookup(CLIENT, "good.example", SITE);
    let (folder, options) = scene.options();
    let saved = made(&options, 1).files.remove("names").expect("names");
    let saved = String::from_utf8(saved).expect("ASCII");
    let mut later = Scene::new();
    later.flow(CLIENT, SITE);
    let (_later, options) = later.options();
    for name in ["good.example", "10.0.0.99"] {
        let names = folder.path(name);
        std::fs::write(&names, saved.replace("good.example", name)).expect("room for names");
        let options = Options { names_load: vec![names], ..options.clone() };
        let log = made(&options, 1).files.remove("log").expect("a log");
        let is_named = String::from_utf8_lossy(&log).contains(name);
        assert_eq!(is_named, name == "good.example", "{name}");
    }
}

/// A name that reads as an address is no name in any protocol; it is counted.
#[test]
fn addresses_are_no_names() {
    let at = |last: u8| -> V4 { [10, 1, 0, last] };
    let mut scene = Scene::new();
    scene.lookup(CLIENT, "10.0.0.99", SITE);
    scene.lease(1, at(71), "10.0.0.99");
    scene.netbios(at(72), "12345", at(72));
    scene.flow(CLIENT, SITE);
    scene.flow(CLIENT, at(71));
    scene.flow(CLIENT, at(72));
    scene.flow_saying(CLIENT, EVIL, "10.0.0.99");
    scene.flow_saying(CLIENT, EVIL, "127.1");
    assert_eq!(scene.names(), ["- -"; 5]);
}
