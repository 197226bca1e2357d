//! Random traffic, and the expected results of a search of it: each packet and each flow in a list,
//! examined one by one.

use std::path::{Path, PathBuf};

use larder_store::{
    FindOptions, Finder, FlowEvent, FlowKey, NameRole, Options, Query, Store, Summary,
};
pub use larder_testkit::random::Random;
use larder_wire::{Name, community_id};

use super::*;

pub struct Packet {
    pub run: u64,
    pub number: u64,
    pub ts_ns: i64,
    pub key: Option<FlowKey>,
    /// Addresses in it that are no end of a flow.
    pub others: Vec<[u8; 4]>,
    pub frame: Vec<u8>,
}

pub struct Flow {
    run: u64,
    key: FlowKey,
    first: u64,
    end: Option<u64>,
    names: Vec<(NameRole, Name)>,
}

pub const NAMES: [&str; 8] = [
    "www.example.com",
    "example.com",
    "a.b.example.com",
    "example.org",
    "wexample.com",
    r"odd\.label.example.com",
    "x\u{1}y.example.org",
    "com",
];

const ROLES: [NameRole; 4] =
    [NameRole::Destination, NameRole::Source, NameRole::Candidate, NameRole::Lookup];

pub struct World {
    pub chance: Random,
    pub directory: PathBuf,
    pub options: Options,
    pub store: Option<Store>,
    pub packets: Vec<Packet>,
    pub flows: Vec<Flow>,
    /// Names are learned with the first packet, or not at all.
    pub is_prompt: bool,
    /// For each kind of packet the open flow.
    live: [Option<usize>; 14],
    run: u64,
    next: u64,
    ts_ns: i64,
}

fn frame(kind: usize, length: usize) -> Vec<u8> {
    let payload = vec![kind as u8; length];
    let host = |number: usize| [10, 0, (number % 3) as u8, number as u8];
    match kind {
        0..6 => udp(host(kind), 1000 + kind as u16, [192, 0, 2, 1], 53, &payload),
        6..10 => tcp(host(kind % 5), 2000, [198, 51, 100, kind as u8], 443, &payload),
        10..12 => tcp([198, 51, 100, 6], 443, host(1), 3000 + kind as u16, &payload),
        12 => udp([10, 0, 0, 9], 5, [10, 0, 0, 9], 5, &payload),
        _ => ethernet(&payload, 0x0806),
    }
}

/// A frame without a flow, as long as that of [`frame`] for the kind that has none, and its
/// addresses: ARP, TCP with an inconsistent header, or neither.
fn frame_without_flow(length: usize) -> (Vec<u8>, Vec<[u8; 4]>) {
    let (one, other) = ([10, 0, (length % 3) as u8, 9], [192, 0, 2, (length % 5) as u8]);
    let mut frame = frame(13, length);
    match length {
        28.. if length.is_multiple_of(2) => {
            frame[14..28].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]);
            frame[28..32].copy_from_slice(&one);
            frame[38..42].copy_from_slice(&other);
        }
        20.. => {
            let payload = vec![13; length - 20];
            frame = ethernet(&ipv4(one, other, 6, 0, &payload), 0x0800);
        }
        _ => return (frame, Vec::new()),
    }
    (frame, vec![one, other])
}

impl World {
    pub fn new(seed: u64, directory: &Path, options: Options) -> World {
        World {
            chance: Random(seed),
            directory: directory.to_owned(),
            options,
            store: None,
            packets: Vec::new(),
            flows: Vec::new(),
            is_prompt: false,
            live: [None; 14],
            run: 0,
            next: 1,
            ts_ns: 1_000,
        }
    }

    pub fn open(&mut self) -> &mut Store {
        self.run += 1;
        (self.next, self.live) = (1, [None; 14]);
        self.store.insert(Store::open(self.options.clone(), &interfaces()).expect("a store"))
    }

    /// Appends some batches.
    pub fn go_on(&mut self, batches: usize) {
        for _ in 0..batches {
            let mut made = Made::default();
            let first = self.next;
            for number in first..first + self.chance.below(40) {
                self.packet(number, &mut made);
            }
            made.append(self.store.as_mut().expect("it is open"), &mut self.next);
        }
    }

    fn packet(&mut self, number: u64, made: &mut Made) {
        let kind = self.chance.below(14) as usize;
        let length = self.chance.below(200) as usize;
        let (frame, others) = match kind {
            13 => frame_without_flow(length),
            _ => (frame(kind, length), Vec::new()),
        };
        self.ts_ns += 10;
        made.packet(0, self.ts_ns, &frame);
        let key = (kind < 13).then(|| key(&frame));
        if let Some(key) = key {
            self.flow(kind, key, number, made);
        }
        let (run, ts_ns) = (self.run, self.ts_ns);
        self.packets.push(Packet { run, number, ts_ns, key, others, frame });
    }

    /// Flows begin, end, and are named, now or later.
    fn flow(&mut self, kind: usize, key: FlowKey, number: u64, made: &mut Made) {
        if let Some(flow) = self.live[kind]
            && self.chance.one_in(20)
        {
            self.flows[flow].end = Some(number);
            self.live[kind] = None;
            if !self.flows[flow].names.is_empty() {
                made.events.push(self.event(flow, Vec::new()));
            }
        }
        let flow = *self.live[kind].get_or_insert_with(|| {
            self.flows.push(Flow {
                run: self.run,
                key,
                first: number,
                end: None,
                names: Vec::new(),
            });
            self.flows.len() - 1
        });
        let names = self.flows[flow].names.len() as u64;
        let may_have = !self.is_prompt || self.flows[flow].first == number;
        if may_have && names < 4 && self.chance.one_in(3 + 20 * names) {
            let name = NAMES[self.chance.below(NAMES.len() as u64) as usize];
            let role = ROLES[[0, 0, 0, 1, 2, 3][self.chance.below(6) as usize]];
            let name = (role, Name::from_text(name.as_bytes()).expect("a name"));
            self.flows[flow].names.push(name.clone());
            made.events.push(self.event(flow, vec![name]));
        }
    }

    fn event(&self, flow: usize, names: Vec<(NameRole, Name)>) -> FlowEvent {
        let Flow { key, first, end, .. } = self.flows[flow];
        FlowEvent {
            key,
            first_packet: first,
            start_ns: 0,
            end_packet: end,
            last_ns: self.ts_ns,
            source_is_low: true,
            names,
        }
    }

    /// A search term.
    pub fn word(&mut self) -> String {
        let pick = |chance: &mut Random, words: &[&str]| {
            words[chance.below(words.len() as u64) as usize].to_owned()
        };
        match self.chance.below(6) {
            0 => pick(&mut self.chance, &NAMES).to_uppercase().replace('\u{1}', r"\x01"),
            1 => {
                pick(&mut self.chance, &["*.example.com", "*", "*.com", "*.EXAMPLE.org.", "nobody"])
            }
            2 => pick(&mut self.chance, &["10.0.0.9", "192.0.2.1", "198.51.100.6", "10.9.9.9"]),
            3 => pick(&mut self.chance, &["10.0.0.0/16", "10.0.1.0/24", "0.0.0.0/0", "::/1"]),
            4 => {
                let words = ["192.0.2.1:53-10.0.1.1:1001/udp", "198.51.100.6:443-*/tcp", "*:5"];
                pick(&mut self.chance, &words)
            }
            _ => {
                let FlowKey { low, high, low_port, high_port, protocol, .. } =
                    key(&frame(self.chance.below(13) as usize, 0));
                community_id::v1(high, low, high_port, low_port, protocol, 0)
            }
        }
    }

    /// The expected result of a search of `packets`.
    pub fn expected<'a>(
        &self,
        packets: impl IntoIterator<Item = &'a Packet>,
        words: &[String],
        options: FindOptions,
    ) -> Vec<(i64, Vec<u8>)> {
        packets
            .into_iter()
            .filter(|packet| options.from_ns.is_none_or(|from| packet.ts_ns >= from))
            .filter(|packet| options.to_ns.is_none_or(|to| packet.ts_ns < to))
            .filter(|packet| words.iter().any(|word| self.is_meant(packet, word, options)))
            .map(|packet| (packet.ts_ns, packet.frame.clone()))
            .collect()
    }

    fn is_meant(&self, packet: &Packet, word: &str, options: FindOptions) -> bool {
        let Some(key) = packet.key else {
            let of_others = |is_it: &dyn Fn(&str) -> bool| {
                packet.others.iter().any(|addr| is_it(&Addr::v4(*addr).to_string()))
            };
            return match word {
                "10.0.0.9" | "192.0.2.1" | "198.51.100.6" | "10.9.9.9" => {
                    of_others(&|addr| addr == word)
                }
                "10.0.0.0/16" => of_others(&|addr| addr.starts_with("10.0.")),
                "10.0.1.0/24" => of_others(&|addr| addr.starts_with("10.0.1.")),
                "0.0.0.0/0" | "::/1" => !packet.others.is_empty(),
                _ => false,
            };
        };
        let ends = [(key.low.to_string(), key.low_port), (key.high.to_string(), key.high_port)];
        let has = |addr: &str| ends.iter().any(|(end, _)| end == addr);
        let starts = |start: &str| ends.iter().any(|(end, _)| end.starts_with(start));
        let is_end = |addr: &str, port| ends.contains(&(addr.to_owned(), port));
        match word {
            "10.0.0.9" | "192.0.2.1" | "198.51.100.6" | "10.9.9.9" => has(word),
            "10.0.0.0/16" => starts("10.0."),
            "10.0.1.0/24" => starts("10.0.1."),
            "0.0.0.0/0" | "::/1" => true,
            "192.0.2.1:53-10.0.1.1:1001/udp" => is_end("192.0.2.1", 53) && is_end("10.0.1.1", 1001),
            "198.51.100.6:443-*/tcp" => is_end("198.51.100.6", 443),
            "*:5" => key.low_port == 5 || key.high_port == 5,
            word if word.starts_with("1:") => {
                let FlowKey { low, high, low_port, high_port, protocol, .. } = key;
                community_id::v1(low, high, low_port, high_port, protocol, 0) == *word
            }
            word => {
                let word = word.to_lowercase().replace(r"\x01", "\u{1}");
                let word = word.trim_end_matches('.');
                let is_named = |name: &Name| {
                    let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
                    match word.strip_prefix('*') {
                        // The one name whose first label has a dot: `odd.label` is below
                        // example.com.
                        Some(end) => name.ends_with(end),
                        None => name == word,
                    }
                };
                self.flows.iter().any(|flow| {
                    flow.run == packet.run
                        && flow.key == key
                        && flow.first <= packet.number
                        && flow.end.is_none_or(|end| packet.number < end)
                        && flow.names.iter().any(|(role, name)| {
                            let is_wanted = match role {
                                NameRole::Candidate => options.candidates,
                                NameRole::Lookup => options.lookups,
                                _ => true,
                            };
                            is_wanted && is_named(name)
                        })
                })
            }
        }
    }

    /// Random options.
    pub fn find_options(&mut self) -> FindOptions {
        let half = self.ts_ns / 2;
        FindOptions {
            from_ns: self.chance.one_in(4).then_some(half / 2),
            to_ns: self.chance.one_in(4).then_some(half),
            candidates: self.chance.one_in(2),
            lookups: self.chance.one_in(2),
        }
    }
}

/// The result of a search or a scan, whose positions ascend.
pub fn find(
    directory: &Path,
    words: &[String],
    options: FindOptions,
    is_scan: bool,
) -> (Vec<(i64, Vec<u8>)>, Summary) {
    let mut finder = Finder::open(directory).expect("a folder");
    let query = Query::parse(words).expect("a query");
    let (mut found, mut last) = (Vec::new(), None);
    let mut visit = |packet: larder_store::FoundPacket<'_>| {
        assert!(last < Some(packet.position), "positions ascend");
        last = Some(packet.position);
        found.push((packet.ts_ns, packet.frame.to_vec()));
        std::ops::ControlFlow::Continue(())
    };
    let summary = match is_scan {
        true => finder.scan(&query, options, &mut visit),
        false => finder.find(&query, options, &mut visit),
    };
    (found, summary.expect("a search"))
}
