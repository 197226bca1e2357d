//! Networks that use the same private addresses, in VLANs and overlays, have flows and names of their own.

mod support;

use std::path::PathBuf;

use larder_annotate::options::{Options, OutputFormat};
use larder_store::{FindOptions, Finder, Query};
use larder_wire::Addr;
use larder_wire::packet;
use larder_wire::scope::Scope;
use support::*;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
/// Private, and so another host in each network.
const SERVER: [u8; 4] = [10, 0, 0, 9];
/// The same host in every network.
const PUBLIC: [u8; 4] = [198, 51, 100, 7];

/// Puts a frame in a network.
type Put = fn(&[u8], u16) -> Vec<u8>;

const PUTS: [(&str, Put); 5] = [
    ("VLAN", |frame, number| tagged(frame, &[10 * (number + 1)])),
    ("QinQ", |frame, number| tagged(frame, &[7, 10 * (number + 1)])),
    ("VXLAN", |frame, number| in_vxlan(([192, 0, 2, 1], [192, 0, 2, 2]), number.into(), frame)),
    ("Geneve", |frame, number| in_geneve(([192, 0, 2, 1], [192, 0, 2, 2]), number.into(), frame)),
    ("GRE", |frame, number| in_gre(([192, 0, 2, 1], [192, 0, 2, 2]), number.into(), frame)),
];

/// A client in each of two networks queries a name of its own, gets the same address, and both send
/// to it from the same port.
fn two_networks(put: Put, server: [u8; 4]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for number in 0..2 {
        let host = 1 + u32::from(number);
        frames.push(put(&question(CLIENT, 5000, host as u16, host), number));
        frames.push(put(&answer(CLIENT, 5000, host as u16, host, &[server]), number));
    }
    for turn in 0..4 {
        let number = turn % 2;
        frames.push(put(&udp((CLIENT, server), (6000, 9999), b"request"), number));
        frames.push(put(&udp((server, CLIENT), (9999, 6000), b"response"), number));
    }
    frames
}

struct Run {
    folder: Folder,
    options: Options,
}

impl Run {
    fn of(frames: Vec<Vec<u8>>) -> Run {
        let folder = Folder::new();
        let options = ecs(&folder.capture(frames));
        Run { folder, options }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// The flows to port 9999, by their first packets.
    fn flows(&self, options: &Options) -> Vec<serde_json::Value> {
        let records = same_on_all_cores("networks", options).records();
        records.into_iter().filter(|record| record["destination.port"] == 9999).collect()
    }
}

/// The same 5-tuple in two networks is two flows, each with the name that its own client queried,
/// for each way to separate networks; with `ignore_vlan` it is one.
#[test]
fn networks_do_not_meet() {
    for (what, put) in PUTS {
        for server in [SERVER, PUBLIC] {
            let run = Run::of(two_networks(put, server));
            let flows = run.flows(&run.options);
            let names: Vec<&serde_json::Value> =
                flows.iter().map(|flow| &flow["destination.domain"]).collect();
            assert_eq!(names, ["h1.larder.example", "h2.larder.example"], "{what}");
            for flow in &flows {
                assert_eq!(flow["network.packets"], 4, "{what}: {flow}");
                assert_eq!(flow["larder.destination.name_source"], "dns_pair", "{what}");
                // A name of a private address in another network is no candidate.
                let is_alone = server == SERVER;
                assert_eq!(flow["larder.destination.name_ambiguous"], !is_alone, "{what}: {flow}");
            }
            let merged = Options { ignore_vlan: true, ..run.options.clone() };
            let flows = run.flows(&merged);
            assert_eq!(flows.len(), 1, "{what}");
            assert_eq!(flows[0]["network.packets"], 8, "{what}");
            assert!(flows[0].get("network.vlan.id").is_none(), "{what}");
        }
    }
}

/// Records have the network: both VLANs of QinQ, and the identifier of the overlay.
#[test]
fn records_say_the_network() {
    let ids = |put: Put| {
        let run = Run::of(two_networks(put, SERVER));
        let flow = run.flows(&run.options).pop().expect("two flows");
        let names = ["network.vlan.id", "network.inner.vlan.id", "larder.tunnel.id"];
        names.map(|name| flow.get(name).map(|id| id.as_str().expect("a keyword").to_owned()))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(ids(PUTS[0].1), [some("20"), None, None]);
    assert_eq!(ids(PUTS[1].1), [some("7"), some("20"), None]);
    for (what, put) in &PUTS[2..] {
        assert_eq!(ids(*put), [None, None, some("1")], "{what}");
    }
    let run = Run::of(two_networks(PUTS[1].1, SERVER));
    for (format, wanted) in [
        (OutputFormat::Text, " vlan=7,20\n"),
        (OutputFormat::Zeek, "\t7\t20\t-"),
        (OutputFormat::Csv, ",7,20,,"),
    ] {
        let made = made(&Options { format, ..run.options.clone() }, 1);
        let log = String::from_utf8_lossy(&made.files["log"]).into_owned();
        assert!(log.contains(wanted), "{format:?}\n{log}");
    }
}

/// The name of a public address is known in every network, that of a private one only in its own: DNS and flow may pass in
/// different VLANs, but a private address is another host in each.
#[test]
fn public_addresses_are_the_same_everywhere() {
    for (server, name) in [(PUBLIC, Some("h1.larder.example")), (SERVER, None)] {
        let frames = vec![
            tagged(&question(CLIENT, 5000, 1, 1), &[10]),
            tagged(&answer(CLIENT, 5000, 1, 1, &[server]), &[10]),
            tagged(&udp((CLIENT, server), (6000, 9999), b"request"), &[20]),
        ];
        let run = Run::of(frames);
        let flows = run.flows(&run.options);
        let found = flows[0].get("destination.domain").and_then(|name| name.as_str());
        assert_eq!(found, name);
        let merged = run.flows(&Options { ignore_vlan: true, ..run.options.clone() });
        assert_eq!(merged[0]["destination.domain"], "h1.larder.example");
    }
}

/// A response in another network than its query's is a response without a query.
#[test]
fn responses_are_of_the_network_of_their_query() {
    for (vlan, is_one_sided) in [(10, false), (20, true)] {
        let frames = vec![
            tagged(&question(CLIENT, 5000, 1, 1), &[10]),
            tagged(&answer(CLIENT, 5000, 1, 1, &[PUBLIC]), &[vlan]),
            tagged(&udp((CLIENT, PUBLIC), (6000, 9999), b"request"), &[vlan]),
        ];
        let run = Run::of(frames);
        let flows = run.flows(&run.options);
        assert_eq!(flows[0]["destination.domain"], "h1.larder.example");
        assert_eq!(flows[0]["larder.destination.name_one_sided"], is_one_sided, "{vlan}");
    }
}

/// Saved names keep their networks; those of a file without networks, as an earlier version wrote
/// it, name flows in all of them.
#[test]
fn saved_names_keep_their_networks() {
    for (what, put) in PUTS {
        let frames = two_networks(put, SERVER);
        let run = Run::of(frames[..4].to_vec());
        let names = run.path("names");
        let saved = made(&run.options, 1).files["names"].clone();
        std::fs::write(&names, &saved).expect("room for names");
        let later = Run::of(frames[4..].to_vec());
        let options = Options { names_load: vec![names.clone()], ..later.options.clone() };
        let flows = later.flows(&options);
        let found: Vec<_> = flows.iter().map(|flow| &flow["destination.domain"]).collect();
        assert_eq!(found, ["h1.larder.example", "h2.larder.example"], "{what}");
        let merged = later.flows(&Options { ignore_vlan: true, ..options.clone() });
        assert_eq!(merged[0]["destination.domain"], "h2.larder.example", "{what}: newest first");
        // The tenth field is left out where there is no network.
        let text = String::from_utf8(saved).expect("ASCII");
        let bare: Vec<String> = text
            .lines()
            .map(|line| {
                line.split('\t')
                    .take(if line.starts_with('#') { 99 } else { 9 })
                    .collect::<Vec<_>>()
                    .join("\t")
            })
            .collect();
        assert!(text.lines().any(|line| line.split('\t').count() == 10), "{what}\n{text}");
        std::fs::write(&names, bare.join("\n") + "\n").expect("room for names");
        let flows = later.flows(&options);
        assert!(
            flows.iter().all(|flow| flow["destination.domain"] == "h2.larder.example"),
            "{what}"
        );
    }
}

/// A search by name in the stored packets finds those of the flows with this name in the log, and
/// not the packets of the same 5-tuple in another network; a search by 5-tuple finds all. With
/// `ignore_vlan` both networks are one flow there too.
#[test]
fn found_packets_are_of_their_network() {
    for (what, put) in PUTS {
        for ignore_vlan in [false, true] {
            let run = Run::of(two_networks(put, SERVER));
            let kept = run.path("kept");
            let options = Options {
                store: Some(larder_store::Options::new(&kept, 64 << 20)),
                write_packets: None,
                ignore_vlan,
                ..run.options.clone()
            };
            let _ = made(&options, 2);
            let scopes = |word: &str| -> Vec<u64> {
                let query = Query::parse(&[word]).expect("a query");
                let mut scopes = Vec::new();
                let mut visit = |found: larder_store::FoundPacket<'_>| {
                    let packet = packet::decode(1, found.frame).expect("a packet");
                    if packet.dst_port == 9999 || packet.src_port == 9999 {
                        scopes.push(packet.scope.bits());
                    }
                    std::ops::ControlFlow::Continue(())
                };
                let mut finder = Finder::open(&kept).expect("a store");
                let summary = finder.find(&query, FindOptions::default(), &mut visit);
                assert!(summary.expect("a search").segments > 0);
                scopes
            };
            let both = scopes("10.0.0.1:6000-10.0.0.9:9999/udp");
            assert_eq!(both.len(), 8, "{what}");
            let named = scopes(if ignore_vlan { "h2.larder.example" } else { "h1.larder.example" });
            let wanted: Vec<u64> = match ignore_vlan {
                true => both,
                false => both.iter().copied().filter(|scope| *scope == both[0]).collect(),
            };
            assert_eq!(named, wanted, "{what}, ignore_vlan {ignore_vlan}");
        }
    }
}

/// Fragments of the same ID between the same addresses in two VLANs are of two datagrams.
#[test]
fn fragments_do_not_meet() {
    let frame = |payload: u8| udp((CLIENT, SERVER), (6000, 9999), &[payload; 64]);
    let mut frames = Vec::new();
    let parts = [fragments(&frame(1), 48, 5), fragments(&frame(2), 48, 5)];
    for at in 0..2 {
        for (number, parts) in parts.iter().enumerate() {
            frames.push(tagged(&parts[at], &[10 + number as u16]));
        }
    }
    let run = Run::of(frames);
    let flows = run.flows(&run.options);
    let packets: Vec<_> = flows.iter().map(|flow| &flow["network.packets"]).collect();
    assert_eq!(packets, [2, 2]);
    assert!(made(&run.options, 1).summary.damaged.is_empty());
}

/// Any frame that is put in a network is decoded with that network, on the short way and on the long one; a tag that carries a
/// priority only is none.
#[test]
fn frames_have_their_networks() {
    let frame = udp((CLIENT, SERVER), (1, 2), b"x");
    let scope = |frame: &[u8]| packet::decode(1, frame).expect("a packet").scope;
    assert_eq!(scope(&frame), Scope::NONE);
    assert_eq!(scope(&tagged(&frame, &[0xe000])), Scope::NONE);
    assert_eq!(scope(&tagged(&frame, &[0xe00a])), Scope::NONE.tagged(10));
    assert_eq!(scope(&tagged(&frame, &[0, 10])), Scope::NONE.tagged(10));
    let deep = in_vxlan((CLIENT, SERVER), 77, &tagged(&frame, &[20]));
    assert_eq!(scope(&tagged(&deep, &[10])), Scope::NONE.tagged(10).tagged(20).with_vni(77));
    assert_eq!(packet::decode(1, &deep).expect("a packet").src, Addr::v4(CLIENT));
}
