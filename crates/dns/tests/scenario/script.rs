//! Reads a scenario into steps. A line that is not in this table is an error, with its number.
//!
//! ```text
//! # comment, to the end of the line; an indented line belongs to the line above
//! server KEY VALUE                             before everything else; keys and units: `setting`
//! zone NAME upstream N…                        upstreams of a zone; without such lines: zone . upstream 1
//! zone NAME backend N…                         queried only by streams; their AD is trusted; timeout 3 s
//! policy                                       applies from here on; without it, nothing is local
//!   access | view | local | exempt | version | id TEXT        as in the settings (`policy::Builder`)
//!   hosts | block | allow [VIEWS:]LINE         a line of such a file, for all views or some: kids+guests:
//!   rpz [VIEWS:]LINE                           a line of a zone file, for the zone rpz.
//!   answer nxdomain | zero | refused           the response for blocked names; reason blocked | filtered
//!
//! client N asks NAME TYPE [class C] [over tcp] [no-rd] [ad] [cd] [do] [edns OCTETS] [version V]
//!   option NUMBER HEX                          an EDNS option; options, `do` and `version` imply EDNS with 1232 bytes
//!   cookie back                                the last cookie that this client received
//! client N sends HEX                           a packet of these bytes; `over tcp` may stand before them
//! also client …                                in the same batch as the query above
//! client N gets RCODE [tc] [ad]                the next response to client N; it must match one of its queries
//!   answer | authority | additional RECORD     in ID, name, case, RD, CD, and OPT with DO if the query had it;
//!   ede CODE                                   exactly these records and extended errors
//!   cookie HEX                                 a cookie that begins with the client's part
//! client N is ignored                          one query of client N will get no response
//!
//! upstream N gets NAME TYPE [over tcp] [ad] [cd] [do] [no-edns]    the next packet to N, with RD, EDNS, larder's size
//! upstream N answers RCODE [MODIFIER…]         the response to the last packet that it received
//!   answer | authority | additional RECORD, ede CODE; `times COUNT` before a record, whose % is then 1, 2, …
//! upstream N breaks the stream                 the stream of its last query
//! upstream N is unreachable                    the kernel reports this after a send
//! upstream N is out of reach | within reach    sends to it fail or succeed; by default they succeed
//! upstream N takes no streams
//! upstream N is told to stop                   a backend: the core cancels its last query
//! the socket of upstream N is suspect          the socket of its last query
//! reload KEY VALUE                             another server on the same cache, with one setting changed
//!
//! after N s | N ms [asleep]                    asleep: the core is woken once, at the end
//! nothing is in flight
//!
//! MODIFIER
//!   to NAME TYPE, to packet COUNT              the last of these packets, or the COUNTth of all, instead of the last
//!   over tcp                                   the last query by a stream
//!   tc, ad, aa, no-edns, as a query            header bits and OPT of the response
//!   about NAME TYPE, class C, without question     the question that it repeats
//!   wrong id, wrong socket, short by OCTETS    faults that no upstream should have
//!   COUNT times                                repeated
//! ```

use std::net::SocketAddr;

use hickory_proto::rr::{DNSClass, Name, Record, RecordType};
use larder_dns::core::{NxdomainCut, Settings};
use larder_dns::zones::{Answers, Upstream};

use super::text;

/// An error in a scenario, or a failed check: the line and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Counted from 1.
    pub line: usize,
    /// Why.
    pub why: String,
}

/// A scenario.
#[derive(Debug)]
pub struct Script {
    pub settings: Settings,
    pub zones: Vec<Zone>,
    pub steps: Vec<(usize, Step)>,
}

/// A zone, and the numbers of its upstreams in the scenario.
#[derive(Debug)]
pub struct Zone {
    pub name: Name,
    pub upstreams: Vec<usize>,
    pub are_backends: bool,
}

/// An event, or a check of what happened.
#[derive(Debug)]
pub enum Step {
    Queries(Vec<ClientQuery>),
    ClientGets { client: u16, expected: ExpectedResponse },
    ClientIsIgnored { client: u16 },
    UpstreamGets { upstream: usize, expected: UpstreamQuery },
    UpstreamAnswers { upstream: usize, answer: Box<Answer> },
    StreamBreaks { upstream: usize },
    Unreachable { upstream: usize },
    Reach { upstream: usize, can_be_sent_to: bool },
    NoStreams { upstream: usize },
    Forgotten { upstream: usize },
    Suspect { upstream: usize },
    Policy(Box<Rules>),
    Reload(Box<Settings>),
    After { ms: u64, is_asleep: bool },
    NothingInFlight,
}

/// Lines of a policy: the keyword and the text of each.
#[derive(Debug, Default)]
pub struct Rules(pub Vec<(String, String)>);

/// A client's query.
#[derive(Debug)]
pub struct ClientQuery {
    pub client: u16,
    pub over_tcp: bool,
    pub message: Sent,
}

#[derive(Debug)]
pub enum Sent {
    Bytes(Vec<u8>),
    Fields(Box<QueryFields>),
}

#[derive(Debug)]
pub struct QueryFields {
    pub name: Name,
    pub rtype: RecordType,
    pub class: DNSClass,
    pub recursion_desired: bool,
    pub authentic_data: bool,
    pub checking_disabled: bool,
    pub edns: Option<Edns>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edns {
    pub udp_bytes: u16,
    pub version: u8,
    pub dnssec_ok: bool,
    pub options: Vec<(u16, Vec<u8>)>,
    pub cookie_back: bool,
}

/// The response that a client must get.
#[derive(Debug)]
pub struct ExpectedResponse {
    pub rcode: u16,
    pub truncated: bool,
    pub authentic_data: bool,
    pub content: Content,
}

/// The query that an upstream must get.
#[derive(Debug, PartialEq, Eq)]
pub struct UpstreamQuery {
    pub name: String,
    pub rtype: RecordType,
    pub over_tcp: bool,
    pub authentic_data: bool,
    pub checking_disabled: bool,
    pub dnssec_ok: bool,
    pub has_edns: bool,
}

/// Records and extended errors.
#[derive(Debug, Default)]
pub struct Content {
    /// Answer, authority, additional.
    pub records: [Vec<Record>; 3],
    pub errors: Vec<u16>,
    pub cookie: Option<Vec<u8>>,
}

/// An upstream's response.
#[derive(Debug, Default)]
pub struct Answer {
    pub rcode: u16,
    pub to: To,
    pub over_tcp: bool,
    pub truncated: bool,
    pub authentic_data: bool,
    pub authoritative: bool,
    pub no_edns: bool,
    pub as_query: bool,
    pub about: Option<(Name, RecordType)>,
    pub class: Option<DNSClass>,
    pub without_question: bool,
    pub wrong_id: bool,
    pub wrong_socket: bool,
    pub short_by: usize,
    /// 0 means once.
    pub times: usize,
    pub content: Content,
}

/// The packet that a response is for.
#[derive(Debug, Default)]
pub enum To {
    #[default]
    Last,
    Query(String, RecordType),
    /// Counted from 1.
    Packet(usize),
}

/// A line and the indented lines below it.
struct Line<'a> {
    number: usize,
    words: Vec<&'a str>,
    below: Vec<(usize, Vec<&'a str>)>,
}

/// A list of words, read one by one.
struct Words<'a, 'w>(&'w [&'a str]);

impl<'a> Words<'a, '_> {
    fn next(&mut self) -> Result<&'a str, String> {
        let (first, rest) = self.0.split_first().ok_or("something is missing at the end")?;
        self.0 = rest;
        Ok(first)
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        let word = self.next()?;
        word.parse().map_err(|_| format!("{word} is no number that fits here"))
    }

    /// Skips these words if they come next.
    fn take(&mut self, words: &str) -> bool {
        let count = words.split(' ').count();
        let is_next = self.0.len() >= count && words.split(' ').eq(self.0[..count].iter().copied());
        if is_next {
            self.0 = &self.0[count..];
        }
        is_next
    }

    fn must(&mut self, words: &str) -> Result<(), String> {
        if self.take(words) { Ok(()) } else { Err(format!("here {words} is missing")) }
    }

    fn end(&self) -> Result<(), String> {
        match self.0 {
            [] => Ok(()),
            [word, ..] => Err(format!("what is {word}?")),
        }
    }
}

/// Reads a scenario.
pub fn read(scenario: &str) -> Result<Script, Fault> {
    let mut script = Script { settings: Settings::default(), zones: Vec::new(), steps: Vec::new() };
    let mut running = Settings::default();
    for line in lines(scenario)? {
        let fault = |why| Fault { line: line.number, why };
        let mut words = Words(&line.words);
        let is_also = words.take("also");
        match words.next().map_err(fault)? {
            "server" | "zone" if is_also || !script.steps.is_empty() || !line.below.is_empty() => {
                return Err(fault("this stands alone, before the first thing that happens".into()));
            }
            "server" => {
                setting(&mut words, &mut script.settings).map_err(fault)?;
                running = script.settings.clone();
            }
            "zone" => script.zones.push(zone(&mut words).map_err(fault)?),
            "reload" if !is_also && line.below.is_empty() => {
                setting(&mut words, &mut running).map_err(fault)?;
                script.steps.push((line.number, Step::Reload(Box::new(running.clone()))));
            }
            _ => {
                let step = step(&line, is_also)?;
                match (step, script.steps.last_mut()) {
                    (Step::Queries(more), Some((_, Step::Queries(batch)))) if is_also => {
                        batch.extend(more);
                    }
                    (_, _) if is_also => return Err(fault("also what?".into())),
                    (step, _) => script.steps.push((line.number, step)),
                }
                continue;
            }
        }
        words.end().map_err(fault)?;
    }
    if script.zones.is_empty() {
        let root = Zone { name: Name::root(), upstreams: vec![1], are_backends: false };
        script.zones.push(root);
    }
    Ok(script)
}

/// Lines with the indented lines below them; comments and empty lines are skipped.
fn lines(scenario: &str) -> Result<Vec<Line<'_>>, Fault> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (at, text) in scenario.lines().enumerate() {
        let number = at + 1;
        let text = text.split_once('#').map_or(text, |(text, _)| text);
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        match (text.starts_with([' ', '\t']), lines.last_mut()) {
            (false, _) => lines.push(Line { number, words, below: Vec::new() }),
            (true, Some(above)) => above.below.push((number, words)),
            (true, None) => {
                return Err(Fault { line: number, why: "nothing stands above this".into() });
            }
        }
    }
    Ok(lines)
}

/// `server KEY VALUE`; the unit follows a time.
fn setting(words: &mut Words<'_, '_>, settings: &mut Settings) -> Result<(), String> {
    let key = words.next()?;
    let (rules, limits) = (&mut settings.rules, &mut settings.limits);
    match key {
        "ttl-min" => rules.ttl_min_s = seconds(words)?,
        "ttl-max" => rules.ttl_max_s = seconds(words)?,
        "negative-ttl-max" => rules.negative_ttl_max_s = seconds(words)?,
        "failure-ttl" => rules.failure_ttl_s = seconds(words)?,
        "believes-ad" => rules.believes_ad = yes(words)?,
        "minimal" => rules.is_minimal = yes(words)?,
        "udp-octets" => settings.udp_bytes_max = words.number()?,
        "cache-only" => settings.cache_only = yes(words)?,
        "stale-wait" => settings.stale_wait_ms = milliseconds(words)?,
        "stale-ttl" => settings.stale_ttl_s = seconds(words)?,
        "stale" => settings.stale_s = seconds(words)?,
        "prefetch-percent" => settings.prefetch_percent = words.number()?,
        "question-max" => settings.query_ms_max = milliseconds(words)?,
        "stream-wait" => settings.stream_wait_ms = milliseconds(words)?,
        "attempts" => settings.attempts_max = words.number()?,
        "questions" => limits.queries_max = words.number()?,
        "waiters" => limits.waiters_max = words.number()?,
        "waiters-each" => limits.waiters_each_max = words.number()?,
        "case-random" => settings.case_random = yes(words)?,
        "hedges" => settings.hedges = yes(words)?,
        "nxdomain-cut" => {
            settings.nxdomain_cut = match words.next()? {
                "never" => NxdomainCut::Never,
                "validated" => NxdomainCut::Validated,
                "always" => NxdomainCut::Always,
                word => return Err(format!("never, validated or always, not {word}")),
            }
        }
        "cookie-secret" => {
            let secret = text::hex(std::iter::once(words.next()?))?;
            settings.cookie_secret = Some(secret.try_into().map_err(|_| "16 octets")?);
        }
        "rate" => settings.rate.per_s = words.number()?,
        "rate-burst" => settings.rate.burst = words.number()?,
        "rate-slip" => settings.rate.slip = words.number()?,
        _ => return Err(format!("{key} is no setting")),
    }
    Ok(())
}

fn seconds(words: &mut Words<'_, '_>) -> Result<u32, String> {
    let number = words.number()?;
    words.must("s").map(|()| number)
}

fn milliseconds(words: &mut Words<'_, '_>) -> Result<u32, String> {
    let number = words.number()?;
    words.must("ms").map(|()| number)
}

fn yes(words: &mut Words<'_, '_>) -> Result<bool, String> {
    match words.next()? {
        "yes" => Ok(true),
        "no" => Ok(false),
        word => Err(format!("yes or no, not {word}")),
    }
}

fn zone(words: &mut Words<'_, '_>) -> Result<Zone, String> {
    let name = text::name(words.next()?)?;
    let are_backends = words.take("backend");
    if !are_backends {
        words.must("upstream")?;
    }
    let mut upstreams = vec![words.number()?];
    while !words.0.is_empty() {
        upstreams.push(words.number()?);
    }
    Ok(Zone { name, upstreams, are_backends })
}

fn step(line: &Line<'_>, is_also: bool) -> Result<Step, Fault> {
    let fault = |why| Fault { line: line.number, why };
    let mut words = Words(&line.words[usize::from(is_also)..]);
    let read = |words: &mut Words<'_, '_>| -> Result<(Step, bool), String> {
        Ok(match words.next()? {
            "client" => {
                let client = words.number()?;
                match words.next()? {
                    "asks" => (Step::Queries(vec![client_query(client, words)?]), true),
                    "sends" => {
                        let over_tcp = words.take("over tcp");
                        let bytes = text::hex(std::mem::take(&mut words.0).iter().copied())?;
                        let message = Sent::Bytes(bytes);
                        (Step::Queries(vec![ClientQuery { client, over_tcp, message }]), false)
                    }
                    "gets" => (Step::ClientGets { client, expected: response(words)? }, true),
                    "is" => {
                        words.must("ignored")?;
                        (Step::ClientIsIgnored { client }, false)
                    }
                    word => return Err(format!("what is {word}?")),
                }
            }
            "upstream" => {
                let upstream = words.number()?;
                upstream_step(upstream, words)?
            }
            "the" => {
                words.must("socket of upstream")?;
                let upstream = words.number()?;
                words.must("is suspect")?;
                (Step::Suspect { upstream }, false)
            }
            "after" => {
                let number: u64 = words.number()?;
                let unit_ms = if words.take("ms") { 1 } else { words.must("s").map(|()| 1_000)? };
                let is_asleep = words.take("asleep");
                (Step::After { ms: number * unit_ms, is_asleep }, false)
            }
            "policy" => (Step::Policy(Box::default()), true),
            "nothing" => {
                words.must("is in flight")?;
                (Step::NothingInFlight, false)
            }
            word => return Err(format!("what is {word}?")),
        })
    };
    let (mut step, may_have_more) = read(&mut words).map_err(fault)?;
    words.end().map_err(fault)?;
    match line.below.first() {
        Some(&(number, _)) if !may_have_more => {
            return Err(Fault { line: number, why: "nothing belongs to the line above".into() });
        }
        _ => {}
    }
    for (number, words) in &line.below {
        let more = below(&mut step, &mut Words(words));
        more.map_err(|why| Fault { line: *number, why })?;
    }
    Ok(step)
}

fn upstream_step(upstream: usize, words: &mut Words<'_, '_>) -> Result<(Step, bool), String> {
    Ok(match words.next()? {
        "gets" => (Step::UpstreamGets { upstream, expected: upstream_query(words)? }, false),
        "answers" => {
            let answer = Box::new(answer(words)?);
            (Step::UpstreamAnswers { upstream, answer }, true)
        }
        "breaks" => {
            words.must("the stream")?;
            (Step::StreamBreaks { upstream }, false)
        }
        "takes" => {
            words.must("no streams")?;
            (Step::NoStreams { upstream }, false)
        }
        "is" if words.take("told to stop") => (Step::Forgotten { upstream }, false),
        "is" if words.take("unreachable") => (Step::Unreachable { upstream }, false),
        "is" => {
            let can_be_sent_to = words.take("within reach");
            if !can_be_sent_to {
                words.must("out of reach")?;
            }
            (Step::Reach { upstream, can_be_sent_to }, false)
        }
        word => return Err(format!("what is {word}?")),
    })
}

fn client_query(client: u16, words: &mut Words<'_, '_>) -> Result<ClientQuery, String> {
    let mut fields = QueryFields {
        name: text::name(words.next()?)?,
        rtype: text::record_type(words.next()?)?,
        class: DNSClass::IN,
        recursion_desired: true,
        authentic_data: false,
        checking_disabled: false,
        edns: None,
    };
    let mut over_tcp = false;
    while !words.0.is_empty() {
        if words.take("over tcp") {
            over_tcp = true;
            continue;
        }
        match words.next()? {
            "class" => fields.class = text::class(words.next()?)?,
            "no-rd" => fields.recursion_desired = false,
            "ad" => fields.authentic_data = true,
            "cd" => fields.checking_disabled = true,
            "do" => edns(&mut fields).dnssec_ok = true,
            "edns" => edns(&mut fields).udp_bytes = words.number()?,
            "version" => edns(&mut fields).version = words.number()?,
            word => return Err(format!("what is {word}?")),
        }
    }
    Ok(ClientQuery { client, over_tcp, message: Sent::Fields(Box::new(fields)) })
}

fn edns(fields: &mut QueryFields) -> &mut Edns {
    fields.edns.get_or_insert(Edns {
        udp_bytes: 1_232,
        version: 0,
        dnssec_ok: false,
        options: Vec::new(),
        cookie_back: false,
    })
}

fn response(words: &mut Words<'_, '_>) -> Result<ExpectedResponse, String> {
    let mut response = ExpectedResponse {
        rcode: text::rcode(words.next()?)?,
        truncated: false,
        authentic_data: false,
        content: Content::default(),
    };
    while !words.0.is_empty() {
        match words.next()? {
            "tc" => response.truncated = true,
            "ad" => response.authentic_data = true,
            word => return Err(format!("what is {word}?")),
        }
    }
    Ok(response)
}

fn upstream_query(words: &mut Words<'_, '_>) -> Result<UpstreamQuery, String> {
    let mut query = UpstreamQuery {
        name: text::name(words.next()?)?.to_ascii(),
        rtype: text::record_type(words.next()?)?,
        over_tcp: false,
        authentic_data: false,
        checking_disabled: false,
        dnssec_ok: false,
        has_edns: true,
    };
    while !words.0.is_empty() {
        if words.take("over tcp") {
            query.over_tcp = true;
            continue;
        }
        match words.next()? {
            "ad" => query.authentic_data = true,
            "cd" => query.checking_disabled = true,
            "do" => query.dnssec_ok = true,
            "no-edns" => query.has_edns = false,
            word => return Err(format!("what is {word}?")),
        }
    }
    Ok(query)
}

fn answer(words: &mut Words<'_, '_>) -> Result<Answer, String> {
    let mut answer = Answer { rcode: text::rcode(words.next()?)?, ..Answer::default() };
    while !words.0.is_empty() {
        match words.next()? {
            "to" if words.take("packet") => answer.to = To::Packet(words.number()?),
            "to" => {
                let name = text::name(words.next()?)?.to_ascii().to_lowercase();
                answer.to = To::Query(name, text::record_type(words.next()?)?);
            }
            "over" => words.must("tcp").map(|()| answer.over_tcp = true)?,
            "tc" => answer.truncated = true,
            "ad" => answer.authentic_data = true,
            "aa" => answer.authoritative = true,
            "no-edns" => answer.no_edns = true,
            "as" => words.must("a query").map(|()| answer.as_query = true)?,
            "about" => {
                let name = text::name(words.next()?)?;
                answer.about = Some((name, text::record_type(words.next()?)?));
            }
            "class" => answer.class = Some(text::class(words.next()?)?),
            "without" => words.must("question").map(|()| answer.without_question = true)?,
            "wrong" if words.take("id") => answer.wrong_id = true,
            "wrong" => words.must("socket").map(|()| answer.wrong_socket = true)?,
            "short" => {
                words.must("by")?;
                answer.short_by = words.number()?;
            }
            count if words.take("times") => {
                answer.times = count.parse().map_err(|_| format!("{count} is no count"))?;
            }
            word => return Err(format!("what is {word}?")),
        }
    }
    Ok(answer)
}

/// Reads an indented line.
fn below(step: &mut Step, words: &mut Words<'_, '_>) -> Result<(), String> {
    let content = match step {
        Step::Queries(queries) => {
            let Some(ClientQuery { message: Sent::Fields(fields), .. }) = queries.last_mut() else {
                return Err("octets have all that they have".into());
            };
            if words.take("cookie back") {
                edns(fields).cookie_back = true;
                return words.end();
            }
            words.must("option")?;
            let number = words.number()?;
            let content = text::hex(std::mem::take(&mut words.0).iter().copied())?;
            edns(fields).options.push((number, content));
            return Ok(());
        }
        Step::Policy(rules) => {
            let what = words.next()?.to_owned();
            rules.0.push((what, words.0.join(" ")));
            return Ok(());
        }
        Step::ClientGets { expected, .. } => &mut expected.content,
        Step::UpstreamAnswers { answer, .. } => &mut answer.content,
        _ => return Err("nothing belongs to the line above".into()),
    };
    let section = match words.next()? {
        "answer" => 0,
        "authority" => 1,
        "additional" => 2,
        "ede" => {
            content.errors.push(words.number()?);
            return words.end();
        }
        "cookie" => {
            content.cookie = Some(text::hex(std::mem::take(&mut words.0).iter().copied())?);
            return Ok(());
        }
        word => return Err(format!("what is {word}?")),
    };
    let times = if words.take("times") { words.number()? } else { 0 };
    if times == 0 {
        content.records[section].push(text::record(words.0)?);
    }
    for each in 1..=times {
        let numbered: Vec<_> =
            words.0.iter().map(|word| word.replace('%', &each.to_string())).collect();
        let numbered: Vec<_> = numbered.iter().map(String::as_str).collect();
        content.records[section].push(text::record(&numbered)?);
    }
    Ok(())
}

/// An upstream of a scenario; a backend has no address, and its number is irrelevant here.
pub fn upstream(upstream: usize, is_backend: bool) -> Upstream {
    if is_backend {
        let answers = Answers { number: 0, wait_ms: 3_000, is_believed: true };
        return Upstream::Backend(answers);
    }
    Upstream::Server(SocketAddr::from(([192, 0, 2, upstream as u8], 53)))
}
