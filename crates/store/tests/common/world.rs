//! Random traffic, and the expected results of a search of it: each packet and each flow in a list,
//! examined one by one.

use std::path::{Path, PathBuf};

use larder_store::{
    Choice, FindOptions, Finder, FlowEvent, FlowKey, NameRole, Options, Query, Store, Summary,
};
pub use larder_testkit::random::Random;
use larder_testkit::wait::until_so_or;
use larder_wire::naming::{NameFlags, NameSource};
use larder_wire::{Name, community_id};

use super::*;

pub struct Packet {
    pub run: u64,
    pub number: u64,
    pub ts_ns: i64,
    pub key: Option<FlowKey>,
    /// Its flow, by its place in [`World::flows`].
    flow: Option<usize>,
    /// Addresses in it that are no end of a flow.
    pub others: Vec<[u8; 4]>,
    pub frame: Vec<u8>,
}

pub struct Flow {
    key: FlowKey,
    first: u64,
    end: Option<u64>,
    names: Vec<(NameRole, Name)>,
    /// What its record says.
    choices: [Option<Choice>; 2],
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

const ENDS: [NameRole; 2] = [NameRole::Destination, NameRole::Source];

/// A random query, as a tree.
#[derive(Clone, Debug)]
pub enum Question {
    All(Vec<Question>),
    Any(Vec<Question>),
    Not(Box<Question>),
    /// A word of [`World::word`], in a form with or without its field.
    Word(String, String),
    Port(u16, u16),
    Protocol(u8),
    Vlan(Option<u16>),
    After(i64),
    Before(i64),
    Confidence(u8),
    /// A flag of [`NameFlags::ALL`].
    Flag(usize),
    Source(NameSource),
}

impl Question {
    /// The text of the query, which has parentheses around each part.
    pub fn text(&self) -> String {
        let joined = |parts: &[Question], by: &str| {
            let texts: Vec<String> = parts.iter().map(Question::text).collect();
            format!("({})", texts.join(by))
        };
        let seconds = |ns: i64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        match self {
            Question::All(parts) => joined(parts, " and "),
            Question::Any(parts) => joined(parts, " || "),
            Question::Not(inner) => format!("not {}", inner.text()),
            Question::Word(field, word) => format!("{field}{word}"),
            Question::Port(first, last) => format!("port {first}-{last}"),
            Question::Protocol(number) => format!("proto == {number}"),
            Question::Vlan(Some(id)) => format!("vlan {id}"),
            Question::Vlan(None) => "vlan".to_owned(),
            Question::After(ns) => format!("after {}", seconds(*ns)),
            Question::Before(ns) => format!("before {}", seconds(*ns)),
            Question::Confidence(percent) => format!("confidence >= {percent}"),
            Question::Flag(at) => format!("flag {}", NameFlags::ALL[*at].1),
            Question::Source(source) => format!("name_source == {}", source.as_str()),
        }
    }
}

pub struct World {
    pub chance: Random,
    pub directory: PathBuf,
    pub options: Options,
    pub store: Option<Store>,
    pub packets: Vec<Packet>,
    pub flows: Vec<Flow>,
    /// Names are learned with the first packet, or not at all, and what the record says of them.
    pub is_prompt: bool,
    /// For each kind of packet the open flow.
    live: [Option<usize>; 14],
    run: u64,
    next: u64,
    /// Time of the last packet, and from each to the next.
    pub ts_ns: i64,
    pub step_ns: i64,
}

fn frame(kind: usize, length: usize) -> Vec<u8> {
    let payload = vec![kind as u8; length];
    let host = |number: usize| [10, 0, (number % 3) as u8, number as u8];
    match kind {
        0..4 => udp(host(kind), 1000 + kind as u16, [192, 0, 2, 1], 53, &payload),
        4..6 => tagged(
            &[7, 8][..kind - 3],
            &udp(host(kind), 1000 + kind as u16, [192, 0, 2, 1], 53, &payload),
        ),
        8 => tcp6((8, 2000), (1, 443), &payload),
        6..10 => tcp(host(kind % 5), 2000, [198, 51, 100, kind as u8], 443, &payload),
        10..12 => tcp([198, 51, 100, 6], 443, host(1), 3000 + kind as u16, &payload),
        12 => udp([10, 0, 0, 9], 5, [10, 0, 0, 9], 5, &payload),
        _ => ethernet(&payload, 0x0806),
    }
}

/// The frame with VLAN tags, the outermost first.
fn tagged(ids: &[u16], frame: &[u8]) -> Vec<u8> {
    let tags = ids.iter().flat_map(|id| [0x81, 0, (id >> 8) as u8, *id as u8]);
    [&frame[..12], &tags.collect::<Vec<u8>>(), &frame[12..]].concat()
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
            step_ns: 10,
        }
    }

    pub fn open(&mut self) -> &mut Store {
        self.open_as(|options| Store::open(options, &interfaces()).expect("a store"))
    }

    pub fn open_as(&mut self, open: impl FnOnce(Options) -> Store) -> &mut Store {
        self.run += 1;
        (self.next, self.live) = (1, [None; 14]);
        self.store.insert(open(self.options.clone()))
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
        self.ts_ns += self.step_ns;
        made.packet(0, self.ts_ns, &frame);
        let key = (kind < 13).then(|| key(&frame));
        let flow = key.map(|key| self.flow(kind, key, number, made));
        let (run, ts_ns) = (self.run, self.ts_ns);
        self.packets.push(Packet { run, number, ts_ns, key, flow, others, frame });
    }

    /// Flows begin, end, and are named, now or later. Returns that of the packet.
    fn flow(&mut self, kind: usize, key: FlowKey, number: u64, made: &mut Made) -> usize {
        if let Some(flow) = self.live[kind]
            && self.chance.one_in(20)
        {
            self.flows[flow].end = Some(number);
            self.live[kind] = None;
            if !self.flows[flow].names.is_empty() {
                if !self.is_prompt {
                    self.flows[flow].choices = self.choices(flow);
                }
                // The last name of each end is the one that the record has.
                let names = &self.flows[flow].names;
                let of_end = |end| names.iter().rfind(|(role, _)| *role == end).cloned();
                let chosen = ENDS.into_iter().filter_map(of_end).collect();
                made.events.push(self.event(flow, chosen));
            }
        }
        let flow = *self.live[kind].get_or_insert_with(|| {
            self.flows.push(Flow {
                key,
                first: number,
                end: None,
                names: Vec::new(),
                choices: [None; 2],
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
            if self.is_prompt {
                self.flows[flow].choices = self.choices(flow);
            }
            made.events.push(self.event(flow, vec![name]));
        }
        flow
    }

    fn event(&self, flow: usize, names: Vec<(NameRole, Name)>) -> FlowEvent {
        let Flow { key, first, end, choices, .. } = self.flows[flow];
        FlowEvent {
            key,
            first_packet: first,
            start_ns: 0,
            end_packet: end,
            last_ns: self.ts_ns,
            source_is_low: true,
            names,
            choices,
        }
    }

    /// Random choices for the ends that have names.
    fn choices(&mut self, flow: usize) -> [Option<Choice>; 2] {
        ENDS.map(|end| {
            let has_name = self.flows[flow].names.iter().any(|(role, _)| *role == end);
            has_name.then(|| Choice {
                source: NameSource::ALL[self.chance.below(3) as usize],
                flags: NameFlags::from_bits(self.chance.below(8) as u16),
                confidence: 1 + self.chance.below(99) as u8,
            })
        })
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
            3 => {
                pick(&mut self.chance, &["10.0.0.0/16", "10.0.1.0/24", "0.0.0.0/0", "::/1", "::/0"])
            }
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

    /// A query of at most this depth.
    pub fn question(&mut self, depth: usize) -> Question {
        let some = |world: &mut World| {
            let count = 1 + world.chance.below(3);
            (0..count).map(|_| world.question(depth - 1)).collect()
        };
        match self.chance.below(if depth == 0 { 9 } else { 15 }) {
            0..4 => {
                let word = self.word();
                let is_address = word.parse::<std::net::IpAddr>().is_ok();
                let field = match &word {
                    word if word.starts_with("1:") => ["", "community_id "],
                    word if is_address => [["host ", "ip.addr == "][word.len() % 2], "net "],
                    word if word.ends_with("/0") || word.contains("/1") || word.contains("/24") => {
                        ["", "net "]
                    }
                    word if word.contains(':') => ["", "flow "],
                    _ => ["name ~ ", "name="],
                };
                let field = field[self.chance.below(2) as usize];
                Question::Word(field.to_owned(), word)
            }
            4 => {
                let first = [0, 5, 53, 443, 1001, 2000][self.chance.below(6) as usize];
                Question::Port(first, first + self.chance.below(3) as u16 * 400)
            }
            5 => Question::Protocol([6, 17][self.chance.below(2) as usize]),
            6 => Question::Vlan([None, Some(7), Some(8)][self.chance.below(3) as usize]),
            7 => {
                let ns = self.chance.below(self.ts_ns as u64 + 100) as i64;
                [Question::After(ns), Question::Before(ns)][self.chance.below(2) as usize].clone()
            }
            8 => match self.chance.below(3) {
                0 => Question::Confidence(self.chance.below(101) as u8),
                1 => Question::Flag(self.chance.below(4) as usize),
                _ => Question::Source(NameSource::ALL[self.chance.below(4) as usize]),
            },
            9..11 => Question::Any(some(self)),
            11..14 => Question::All(some(self)),
            _ => Question::Not(Box::new(self.question(depth - 1))),
        }
    }

    /// The expected result of a query.
    pub fn answer(&self, question: &Question, options: FindOptions) -> Vec<(i64, Vec<u8>)> {
        let all = self.packets.iter().filter(|packet| is_in_time(packet, options));
        all.filter(|packet| self.fits(packet, question, options))
            .map(|packet| (packet.ts_ns, packet.frame.clone()))
            .collect()
    }

    fn fits(&self, packet: &Packet, question: &Question, options: FindOptions) -> bool {
        let of_key = |test: &dyn Fn(&FlowKey) -> bool| packet.key.as_ref().is_some_and(test);
        match question {
            Question::All(parts) => parts.iter().all(|part| self.fits(packet, part, options)),
            Question::Any(parts) => parts.iter().any(|part| self.fits(packet, part, options)),
            Question::Not(inner) => !self.fits(packet, inner, options),
            Question::Word(_, word) => self.is_meant(packet, word, options),
            Question::Port(first, last) => of_key(&|key| {
                [key.low_port, key.high_port].iter().any(|port| port >= first && port <= last)
            }),
            Question::Protocol(number) => of_key(&|key| key.protocol == *number),
            Question::Vlan(id) => {
                // The tags are in the frame.
                let is_tag = |at: usize| packet.frame[at..at + 2] == [0x81, 0];
                let tags = [12, 16].into_iter().take_while(|at| is_tag(*at));
                let ids: Vec<u16> = tags.map(|at| u16::from(packet.frame[at + 3])).collect();
                id.map_or(!ids.is_empty(), |id| ids.contains(&id))
            }
            Question::After(ns) => packet.ts_ns >= *ns,
            Question::Before(ns) => packet.ts_ns < *ns,
            Question::Confidence(percent) => {
                self.has_choice(packet, &|choice| choice.confidence >= *percent)
            }
            Question::Flag(at) => {
                self.has_choice(packet, &|choice| choice.flags.has(NameFlags::ALL[*at].0))
            }
            Question::Source(source) => self.has_choice(packet, &|choice| choice.source == *source),
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
            .filter(|packet| is_in_time(packet, options))
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
                "0.0.0.0/0" => !packet.others.is_empty(),
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
            "0.0.0.0/0" => !ends[0].0.contains(':'),
            "::/1" | "::/0" => ends[0].0.contains(':'),
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
                self.flow_of(packet).is_some_and(|flow| {
                    flow.names.iter().any(|(role, name)| {
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

    /// The flow that a packet belongs to.
    fn flow_of(&self, packet: &Packet) -> Option<&Flow> {
        packet.flow.map(|flow| &self.flows[flow])
    }

    fn has_choice(&self, packet: &Packet, is_it: &dyn Fn(&Choice) -> bool) -> bool {
        self.flow_of(packet).is_some_and(|flow| flow.choices.iter().flatten().any(is_it))
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

fn is_in_time(packet: &Packet, options: FindOptions) -> bool {
    options.from_ns.is_none_or(|from| packet.ts_ns >= from)
        && options.to_ns.is_none_or(|to| packet.ts_ns < to)
}

/// The result of a search or a scan for words, whose positions ascend.
pub fn find(
    directory: &Path,
    words: &[String],
    options: FindOptions,
    is_scan: bool,
) -> (Vec<(i64, Vec<u8>)>, Summary) {
    find_query(directory, &Query::parse(words).expect("a query"), options, is_scan)
}

/// The result of a query, whose positions ascend.
pub fn find_query(
    directory: &Path,
    query: &Query,
    options: FindOptions,
    is_scan: bool,
) -> (Vec<(i64, Vec<u8>)>, Summary) {
    let mut finder = Finder::open(directory).expect("a folder");
    let (mut found, mut last) = (Vec::new(), None);
    let mut visit = |packet: larder_store::FoundPacket<'_>| {
        assert!(last < Some(packet.position), "positions ascend");
        last = Some(packet.position);
        found.push((packet.ts_ns, packet.frame.to_vec()));
        std::ops::ControlFlow::Continue(())
    };
    let summary = match is_scan {
        true => finder.scan(query, options, &mut visit),
        false => finder.find(query, options, &mut visit),
    };
    (found, summary.expect("a search"))
}

/// Waits until all packets of `world` that have an address can be found.
pub fn settle(world: &World) {
    let words = ["0.0.0.0/0".to_owned(), "::/0".to_owned()];
    let wanted = world.expected(&world.packets, &words, FindOptions::default()).len();
    let found = || find(&world.directory, &words, FindOptions::default(), false).0.len();
    until_so_or(|| format!("{} of {wanted}", found()), || found() == wanted);
}

/// A copy of a folder as a kill would leave it: the files that grow are cut.
pub fn kill(from: &Path, to: &Path, world: &mut World, is_journal_cut: bool) -> bool {
    let mut was_growing = false;
    for name in files(from) {
        let Ok(mut bytes) = std::fs::read(from.join(&name)) else {
            if name.ends_with(".pcapng") {
                // It was compressed meanwhile.
                let compressed = format!("{name}.zst");
                std::fs::copy(from.join(&compressed), to.join(compressed)).unwrap();
            }
            continue;
        };
        if name.ends_with(".part") || name.ends_with(".journal") && is_journal_cut {
            was_growing = true;
            bytes.truncate(world.chance.below(bytes.len() as u64 + 1) as usize);
        }
        std::fs::write(to.join(&name), bytes).unwrap();
    }
    was_growing
}
