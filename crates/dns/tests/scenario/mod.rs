//! Runs a scenario with a core, and checks what the core does.
//!
//! A scenario is a file of lines (`script`): queries of clients, queries to upstreams and their
//! responses, responses to clients, and the time that passes. Each packet of the core needs a line,
//! before time passes and at the end. At the end no client may wait.
//!
//! hickory writes and reads the messages, so the core is not checked against itself.

pub mod policy;
pub mod script;
pub mod text;
pub mod world;

use std::collections::HashMap;
use std::sync::Arc;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::opt::EdnsOption;
use larder::{Cache, Seconds};
use larder_dns::core::{Core, Now, Settings};
use larder_dns::zones::{Forward, Zones};

use self::script::{
    Answer, ClientQuery, Content, ExpectedResponse, Fault, Script, Sent, Step, To, UpstreamQuery,
    Zone,
};
use self::world::{Packet, Way, World, describe};

/// Turns of the event loop at one time, after which the test assumes an endless loop of the core.
const TURNS_MAX: usize = 1_000;

/// The time at which a scenario begins.
const BEGIN: Now = Now { us: 5_000_000_000, wall_s: 1_800_000_000 };

/// Runs a scenario.
pub fn run(scenario: &str) -> Result<(), Fault> {
    let script = script::read(scenario)?;
    let mut stage = Stage::new(&script).map_err(|why| Fault { line: 1, why })?;
    let mut last = 1;
    for (line, step) in &script.steps {
        last = *line;
        stage.play(step).map_err(|why| Fault { line: *line, why })?;
    }
    stage.end().map_err(|why| Fault { line: last, why })
}

/// The extended errors of a message; an error if it has other options.
pub fn extended_errors(message: &Message) -> Result<Vec<u16>, String> {
    let options = message.edns.iter().flat_map(|edns| &edns.options().options);
    options
        .map(|(_, option)| match option {
            EdnsOption::Unknown(15, content) if content.len() >= 2 => {
                Ok(Some(u16::from_be_bytes([content[0], content[1]])))
            }
            EdnsOption::Unknown(10, _) => Ok(None),
            other => Err(format!("there is an option that nobody asked for: {other:?}")),
        })
        .filter_map(Result::transpose)
        .collect()
}

/// The cookie of a message.
fn cookie(message: &Message) -> Option<Vec<u8>> {
    let mut options = message.edns.iter().flat_map(|edns| &edns.options().options);
    options.find_map(|(_, option)| match option {
        EdnsOption::Unknown(10, content) => Some(content.clone()),
        _ => None,
    })
}

/// A client's query without a response yet.
struct Waiting<'s> {
    client: u16,
    id: u16,
    query: &'s ClientQuery,
}

/// Core, surroundings, time, and the state of the scenario.
struct Stage<'s> {
    core: Core,
    cache: Cache,
    zones: &'s [Zone],
    world: World,
    settings: Settings,
    now: Now,
    waiting: Vec<Waiting<'s>>,
    /// Packets that upstreams received, in the scenario's order.
    got: Vec<Packet>,
    queries: u16,
    /// The last cookie of each client.
    cookies: HashMap<u16, Vec<u8>>,
    policies: u32,
}

impl<'s> Stage<'s> {
    fn new(script: &'s Script) -> Result<Stage<'s>, String> {
        let settings = script.settings.clone();
        let now = BEGIN;
        let cache = Cache::builder()
            .budget(32 << 20)
            .readers_max(2)
            .stale(Seconds(settings.stale_s))
            .build()
            .map_err(|error| error.to_string())?;
        let zones = &script.zones;
        let upstreams = zones.iter().flat_map(|zone| zone.upstreams.clone()).collect();
        let core = core(&settings, &cache, zones, now)?;
        let world = World { upstreams, ..World::default() };
        let (waiting, got) = (Vec::new(), Vec::new());
        let cookies = HashMap::new();
        Ok(Stage {
            core,
            cache,
            zones,
            world,
            settings,
            now,
            waiting,
            got,
            queries: 0,
            cookies,
            policies: 0,
        })
    }

    /// Runs one step, within a turn of the event loop.
    fn play(&mut self, step: &'s Step) -> Result<(), String> {
        match step {
            Step::Queries(batch) => self.send_queries(batch),
            Step::ClientGets { client, expected } => self.client_gets(*client, expected),
            Step::ClientIsIgnored { client } => self.client_is_ignored(*client),
            Step::UpstreamGets { upstream, expected } => self.upstream_gets(*upstream, expected),
            Step::UpstreamAnswers { upstream, answer } => self.upstream_answers(*upstream, answer),
            Step::StreamBreaks { upstream } => {
                let tag = self.last_stream(*upstream)?;
                self.turn(|core, world| core.stream_response(tag, None, world));
                Ok(())
            }
            Step::Unreachable { upstream } => {
                for number in 0..self.world.upstreams.len() {
                    if self.world.upstreams[number] == *upstream {
                        self.turn(|core, world| core.unreachable(number, world));
                    }
                }
                Ok(())
            }
            Step::Reach { upstream, can_be_sent_to } => {
                if *can_be_sent_to {
                    self.world.out_of_reach.remove(upstream);
                } else {
                    self.world.out_of_reach.insert(*upstream);
                }
                Ok(())
            }
            Step::NoStreams { upstream } => {
                self.world.without_streams.insert(*upstream);
                Ok(())
            }
            Step::Forgotten { upstream } => {
                let tag = self.last_stream(*upstream)?;
                let at = self.world.forgotten.iter().position(|each| *each == tag);
                self.world.forgotten.swap_remove(at.ok_or("it is not")?);
                Ok(())
            }
            Step::Suspect { upstream } => {
                let is_by_socket = |packet: &&Packet| {
                    packet.upstream == *upstream && matches!(packet.way, Way::Socket(_))
                };
                let last = self.got.iter().rfind(is_by_socket);
                let Some(Way::Socket(socket)) = last.map(|packet| packet.way) else {
                    return Err("it was asked nothing by a socket".into());
                };
                self.turn(|core, world| core.suspect_socket(socket, world));
                Ok(())
            }
            Step::Policy(rules) => {
                self.policies += 1;
                let policy = policy::make(rules, self.policies)?;
                self.core.set_policy(self.now, Arc::new(policy));
                Ok(())
            }
            Step::Reload(settings) => {
                self.settings = (**settings).clone();
                self.core = core(&self.settings, &self.cache, self.zones, self.now)?;
                Ok(())
            }
            Step::After { ms, is_asleep } => self.pass(*ms, *is_asleep),
            Step::NothingInFlight => match self.core.in_flight() {
                0 => Ok(()),
                count => Err(format!("{count} questions are in flight")),
            },
        }
    }

    /// Checks that no packet and no client is left at the end.
    fn end(&self) -> Result<(), String> {
        if let Some(what) = self.world.unclaimed() {
            return Err(format!("and then, unsaid by the scenario: {what}"));
        }
        match self.waiting.first() {
            Some(first) => Err(format!("at the end client {} waits for an answer", first.client)),
            None => Ok(()),
        }
    }

    fn turn<T>(&mut self, what: impl FnOnce(&mut Core, &mut World) -> T) -> T {
        self.core.begin(self.now);
        let did = what(&mut self.core, &mut self.world);
        self.core.finish();
        did
    }

    /// Lets time pass, and wakes the core as often as it requires; once if asleep.
    fn pass(&mut self, ms: u64, is_asleep: bool) -> Result<(), String> {
        if let Some(what) = self.world.unclaimed() {
            return Err(format!("before this, unsaid by the scenario: {what}"));
        }
        let end_us = self.now.us + ms * 1_000;
        let mut turns = 0;
        if is_asleep {
            self.set_time(end_us);
        }
        loop {
            self.turn(|core, world| core.tick(world));
            let wait_ms = self.core.wait_ms(self.now).unwrap_or(u64::MAX);
            let left_us = end_us - self.now.us;
            if left_us == 0 && wait_ms > 0 {
                return Ok(());
            }
            turns = if wait_ms == 0 { turns + 1 } else { 0 };
            if turns == TURNS_MAX {
                return Err("the core's timer is due and stays so".into());
            }
            let step_us = wait_ms.saturating_mul(1_000).min(left_us);
            self.set_time(self.now.us + step_us);
        }
    }

    fn set_time(&mut self, us: u64) {
        let since_s = (us - BEGIN.us) / 1_000_000;
        self.now = Now { us, wall_s: BEGIN.wall_s + since_s as u32 };
    }

    fn send_queries(&mut self, batch: &'s [ClientQuery]) -> Result<(), String> {
        let mut messages = Vec::new();
        for query in batch {
            self.queries += 1;
            let bytes = match &query.message {
                Sent::Bytes(bytes) => bytes.clone(),
                Sent::Fields(fields) => {
                    let cookie = self.cookies.get(&query.client);
                    query_bytes(fields, 0x4000 + self.queries, cookie)?
                }
            };
            let id = bytes.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
            self.waiting.push(Waiting { client: query.client, id, query });
            messages.push((world::client(query.client, query.over_tcp), bytes));
        }
        self.turn(|core, world| {
            let batch = messages.iter().map(|(client, bytes)| (*client, bytes.as_slice()));
            core.queries(batch, world);
        });
        Ok(())
    }

    fn client_is_ignored(&mut self, client: u16) -> Result<(), String> {
        let at = self.world.ignored.iter().position(|&each| each == client);
        let at = at.ok_or("it is not")?;
        self.world.ignored.remove(at);
        let at = self.waiting.iter().position(|waiting| waiting.client == client);
        self.waiting.remove(at.ok_or("it did not ask")?);
        Ok(())
    }

    fn client_gets(&mut self, client: u16, expected: &ExpectedResponse) -> Result<(), String> {
        let mut response = self.world.responses.iter();
        let Some(at) = response.position(|response| response.client == client) else {
            let instead = self.world.unclaimed().map(|what| format!("; but {what}"));
            return Err(format!("it gets nothing{}", instead.unwrap_or_default()));
        };
        let response = self.world.responses.remove(at).ok_or("it was there")?;
        let instead = |why: String| format!("{why}; it got {}", describe(&response.bytes));
        let id = response.bytes.first_chunk().map(|id| u16::from_be_bytes(*id));
        let is_meant = |waiting: &Waiting<'_>| waiting.client == client && Some(waiting.id) == id;
        let at = self.waiting.iter().position(is_meant);
        let at = at.ok_or_else(|| instead("it asked nothing with this ID".into()))?;
        let waiting = self.waiting.remove(at);
        let message =
            Message::from_vec(&response.bytes).map_err(|error| instead(error.to_string()))?;
        is_answer_to(&response, &message, waiting.query, &self.settings).map_err(instead)?;
        self.cookies.extend(cookie(&message).map(|cookie| (client, cookie)));
        is_expected(&message, expected).map_err(instead)
    }

    /// Checks that one of the packets to this upstream, in any order, is as expected.
    fn upstream_gets(&mut self, upstream: usize, expected: &UpstreamQuery) -> Result<(), String> {
        let mut instead = Vec::new();
        for at in 0..self.world.queries.len() {
            let packet = &self.world.queries[at];
            if packet.upstream != upstream {
                continue;
            }
            match self.is_as_expected(packet, expected) {
                Ok(()) => {
                    self.got.extend(self.world.queries.remove(at));
                    return Ok(());
                }
                Err(why) => instead.push(format!("{why}: it got {}", describe(&packet.bytes))),
            }
        }
        if instead.is_empty() {
            instead.push("it gets nothing".to_owned());
            instead.extend(self.world.unclaimed().map(|what| format!("but {what}")));
        }
        Err(instead.join("; "))
    }

    fn is_as_expected(&self, packet: &Packet, expected: &UpstreamQuery) -> Result<(), String> {
        let read = upstream_query(packet, &self.settings)?;
        let is_same_name = if self.settings.case_random {
            read.name.eq_ignore_ascii_case(&expected.name)
        } else {
            read.name == expected.name
        };
        if is_same_name && (UpstreamQuery { name: expected.name.clone(), ..read }) == *expected {
            Ok(())
        } else {
            Err("this is not what it got".into())
        }
    }

    fn last_stream(&self, upstream: usize) -> Result<u64, String> {
        let tag = |packet: &Packet| match packet.way {
            Way::Stream(tag) if packet.upstream == upstream => Some(tag),
            _ => None,
        };
        self.got.iter().rev().find_map(tag).ok_or_else(|| "it was asked by no stream".into())
    }

    /// The packet that a response is for.
    fn packet_of(&self, upstream: usize, answer: &Answer) -> Result<Packet, String> {
        let mut of_upstream = self.got.iter().filter(|packet| packet.upstream == upstream);
        let is_way = |packet: &&Packet| matches!(packet.way, Way::Stream(_)) == answer.over_tcp;
        let found = match &answer.to {
            To::Packet(count) => of_upstream.nth(count.wrapping_sub(1)).filter(is_way),
            To::Last => of_upstream.rfind(is_way),
            To::Query(name, rtype) => of_upstream.rfind(|packet| {
                let message = Message::from_vec(&packet.bytes);
                is_way(packet)
                    && message.is_ok_and(|message| {
                        let query = &message.queries[0];
                        query.name.to_ascii().to_lowercase() == *name && query.query_type == *rtype
                    })
            }),
        };
        found.cloned().ok_or_else(|| "it got no such packet".into())
    }

    fn upstream_answers(&mut self, upstream: usize, answer: &Answer) -> Result<(), String> {
        let packet = self.packet_of(upstream, answer)?;
        let bytes = answer_bytes(&packet, answer)?;
        for _ in 0..answer.times.max(1) {
            match packet.way {
                Way::Socket(socket) => {
                    let socket = if answer.wrong_socket { socket + 1_000_000 } else { socket };
                    self.turn(|core, world| core.response(socket, &bytes, world));
                }
                Way::Stream(tag) => self.turn(|core, world| {
                    core.stream_response(tag, Some(&bytes), world);
                }),
            }
        }
        Ok(())
    }
}

/// A core that has just started.
fn core(settings: &Settings, cache: &Cache, zones: &[Zone], now: Now) -> Result<Core, String> {
    let forwards: Vec<Forward> = zones.iter().map(forward).collect();
    let zones = Zones::new(&forwards).map_err(|error| format!("{error:?}"))?;
    Core::new(Arc::new(settings.clone()), cache, zones, now).map_err(|error| error.to_string())
}

fn forward(Zone { name, upstreams, are_backends }: &Zone) -> Forward {
    let labels = name.iter().flat_map(|label| [&[label.len() as u8], label].concat());
    Forward {
        zone: labels.chain([0]).collect(),
        upstreams: upstreams
            .iter()
            .map(|&upstream| script::upstream(upstream, *are_backends))
            .collect(),
    }
}

/// A client's query, encoded by hickory.
fn query_bytes(
    fields: &script::QueryFields,
    id: u16,
    cookie: Option<&Vec<u8>>,
) -> Result<Vec<u8>, String> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = fields.recursion_desired;
    message.metadata.authentic_data = fields.authentic_data;
    message.metadata.checking_disabled = fields.checking_disabled;
    let mut query = Query::query(fields.name.clone(), fields.rtype);
    query.set_query_class(fields.class);
    message.add_query(query);
    if let Some(edns) = &fields.edns {
        let mut theirs = Edns::new();
        theirs.set_max_payload(edns.udp_bytes);
        theirs.set_version(edns.version);
        theirs.set_dnssec_ok(edns.dnssec_ok);
        for (number, content) in &edns.options {
            theirs.options_mut().insert(EdnsOption::Unknown(*number, content.clone()));
        }
        if edns.cookie_back {
            let cookie = cookie.ok_or("this client got no cookie")?;
            theirs.options_mut().insert(EdnsOption::Unknown(10, cookie.clone()));
        }
        message.set_edns(theirs);
    }
    let mut bytes = message.to_vec().map_err(|error| error.to_string())?;
    // hickory writes at least 512: the size is after the type of OPT, which is the last record.
    if let Some(edns) = &fields.edns {
        let options: usize = edns.options.iter().map(|(_, content)| 4 + content.len()).sum();
        let back = cookie.filter(|_| edns.cookie_back).map_or(0, |cookie| 4 + cookie.len());
        let options = options + back;
        let at = bytes.len() - options - 8;
        bytes[at..at + 2].copy_from_slice(&edns.udp_bytes.to_be_bytes());
    }
    Ok(bytes)
}

/// An upstream's response, encoded by hickory, and then the faults that the scenario states.
fn answer_bytes(packet: &Packet, answer: &Answer) -> Result<Vec<u8>, String> {
    let received = Message::from_vec(&packet.bytes).map_err(|error| error.to_string())?;
    let mut message = Message::new(received.metadata.id, MessageType::Response, OpCode::Query);
    message.metadata.recursion_desired = received.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.checking_disabled = received.metadata.checking_disabled;
    message.metadata.authentic_data = answer.authentic_data;
    message.metadata.authoritative = answer.authoritative;
    message.metadata.truncation = answer.truncated;
    message.metadata.response_code = answer.rcode.into();
    let mut query = received.queries[0].clone();
    if let Some((name, rtype)) = &answer.about {
        query.set_name(name.clone());
        query.set_query_type(*rtype);
    }
    if let Some(class) = answer.class {
        query.set_query_class(class);
    }
    if !answer.without_question {
        message.add_query(query);
    }
    let [answers, authorities, additionals] = answer.content.records.clone();
    message.add_answers(answers).add_authorities(authorities).add_additionals(additionals);
    if let Some(edns) = received.edns.filter(|_| !answer.no_edns) {
        let mut theirs = Edns::new();
        theirs.set_max_payload(1_400);
        theirs.set_dnssec_ok(edns.flags().dnssec_ok);
        theirs.set_rcode_high((answer.rcode >> 4) as u8);
        for code in &answer.content.errors {
            let content = code.to_be_bytes().to_vec();
            theirs.options_mut().insert(EdnsOption::Unknown(15, content));
        }
        message.set_edns(theirs);
    }
    let mut bytes = message.to_vec().map_err(|error| error.to_string())?;
    if answer.wrong_id {
        bytes[0] ^= 0x55;
    }
    if answer.as_query {
        bytes[2] &= 0x7f;
    }
    bytes.truncate(bytes.len().saturating_sub(answer.short_by));
    Ok(bytes)
}

/// Reads a packet to an upstream, and checks what must be the same in all of them.
fn upstream_query(packet: &Packet, settings: &Settings) -> Result<UpstreamQuery, String> {
    let message = Message::from_vec(&packet.bytes).map_err(|error| error.to_string())?;
    let header = &message.metadata;
    let [query] = &message.queries[..] else { return Err("it has not one question".into()) };
    let is_plain = header.message_type == MessageType::Query
        && header.op_code == OpCode::Query
        && header.recursion_desired
        && !header.truncation
        && !header.authoritative
        && packet.bytes[3] & 0x40 == 0
        && message.answers.is_empty()
        && message.authorities.is_empty()
        && message.additionals.is_empty();
    if !is_plain {
        return Err("this is no question to a resolver".into());
    }
    if let Some(edns) = &message.edns
        && (edns.version(), edns.max_payload()) != (0, settings.udp_bytes_max)
    {
        return Err("OPT says other than our size and version 0".into());
    }
    if !extended_errors(&message)?.is_empty() {
        return Err("a question has no errors".into());
    }
    Ok(UpstreamQuery {
        name: query.name.to_ascii(),
        rtype: query.query_type,
        over_tcp: matches!(packet.way, Way::Stream(_)),
        authentic_data: header.authentic_data,
        checking_disabled: header.checking_disabled,
        dnssec_ok: message.edns.as_ref().is_some_and(|edns| edns.flags().dnssec_ok),
        has_edns: message.edns.is_some(),
    })
}

/// Checks that a client can match the response to its query.
fn is_answer_to(
    response: &world::Response,
    message: &Message,
    client_query: &ClientQuery,
    settings: &Settings,
) -> Result<(), String> {
    let header = &message.metadata;
    let ensure = |is_so: bool, what: &str| if is_so { Ok(()) } else { Err(what.to_owned()) };
    ensure(header.message_type == MessageType::Response, "it is no response")?;
    ensure(header.recursion_available, "RA is not set")?;
    ensure(!header.authoritative, "AA is set")?;
    ensure(response.bytes[3] & 0x40 == 0, "a bit that has no meaning is set")?;
    ensure(response.over_tcp == client_query.over_tcp, "it came another way than it was asked")?;
    let Sent::Fields(fields) = &client_query.message else {
        return ensure(response.bytes.len() <= 512, "it is longer than 512 octets");
    };
    let [query] = &message.queries[..] else { return Err("it has not one question".into()) };
    let is_repeated = query.name.to_ascii() == fields.name.to_ascii()
        && (query.query_type, query.query_class) == (fields.rtype, fields.class);
    ensure(is_repeated, "the question is another, or in another case")?;
    ensure(header.recursion_desired == fields.recursion_desired, "RD is not the client's")?;
    ensure(header.checking_disabled == fields.checking_disabled, "CD is not the client's")?;
    let udp_bytes = fields.edns.as_ref().map_or(512, |edns| edns.udp_bytes.max(512));
    let bytes_max = if response.over_tcp { 65_535 } else { udp_bytes.min(settings.udp_bytes_max) };
    ensure(response.bytes.len() <= bytes_max.into(), "it is longer than the client takes")?;
    match (&message.edns, &fields.edns) {
        (None, None) => Ok(()),
        (Some(_), None) => Err("it has OPT, which the client does not know".into()),
        (None, Some(_)) => Err("it has no OPT".into()),
        (Some(edns), Some(theirs)) => {
            ensure(edns.version() == 0, "its version of EDNS is not 0")?;
            ensure(edns.max_payload() == settings.udp_bytes_max, "OPT does not say our size")?;
            ensure(edns.flags().dnssec_ok == theirs.dnssec_ok, "DO is not the client's")
        }
    }
}

/// Checks the response against the scenario's line.
fn is_expected(message: &Message, expected: &ExpectedResponse) -> Result<(), String> {
    let header = &message.metadata;
    let code = u16::from(header.response_code);
    if code != expected.rcode {
        return Err(format!("the code is not {}", text::rcode_name(expected.rcode)));
    }
    if header.truncation != expected.truncated {
        return Err("TC is not as told".into());
    }
    if header.authentic_data != expected.authentic_data {
        return Err("AD is not as told".into());
    }
    let Content { records, errors, cookie: expected_cookie } = &expected.content;
    let cookie = cookie(message);
    let is_meant = match (&cookie, expected_cookie) {
        (Some(cookie), Some(client)) => cookie.len() == 24 && cookie.starts_with(client),
        (cookie, expected) => cookie.is_none() && expected.is_none(),
    };
    if !is_meant {
        return Err("the cookie is not as told".into());
    }
    let came = [&message.answers, &message.authorities, &message.additionals];
    for (section, (expected, came)) in
        ["answer", "authority", "additional"].iter().zip(records.iter().zip(came))
    {
        let expected = text::lines_as_read(expected)?;
        let came: Vec<String> = came.iter().map(text::line).collect();
        if expected != came {
            return Err(format!("the {section} section is not as told"));
        }
    }
    if extended_errors(message)? != *errors {
        return Err("the extended errors are not as told".into());
    }
    Ok(())
}
