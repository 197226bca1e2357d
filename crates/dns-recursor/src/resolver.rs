//! What is asked of whom, until there is an answer: no sockets, no clock, no threads.
//!
//! ```text
//! begin(question) -> a task
//! task   the deepest zone known that its name is in -> the server of it that answers soonest -> Net::ask
//!   | a referral                the zone below is known from now on: from the beginning
//!   | no data, below the name   no zone begins there: the next label is asked for
//!   | no name, below the name   the whole name is asked for, but of the root's servers
//!   | aliases out of the zone   kept, and their target is sought; for a validator the end
//!   | silent, lame, refusing    the next server; after all of them, all once more with those that the zone itself names, and who
//!                               answered before until time is up
//!   | no address of a server    tasks of their own seek them, IPv4 before IPv6, and this one waits
//!   | another asks already      for the same label above its own name: this one waits for what is said
//!   | TC                        the same server by a stream
//! over   an answer, or that there is none to be had -> Net::tell
//! ```
//!
//! A name is asked for label by label while it is not known where zones begin (RFC 9156), as A and at most
//! [`STEPS_MAX`] times in a row; where the whole name is one label below what is known it is asked for as it is, so that costs
//! nothing where each label is a zone of its own.
//!
//! Invariants
//! 1. A response is read for a task only if it came by the socket that a question of the task left by, with its ID, from
//!    the server asked, and repeats the question. A server that is not waited for any longer may still answer, as long as the
//!    task asks the same: `LATE_MAX` of those are remembered.
//! 2. Each task has a timer, and at its end it is over. So who waits for another task waits for no longer than that.
//! 3. A task waits only for tasks that are deeper than itself, or that wait for a server; so none waits for itself.
//! 4. What one client's question may cost is counted in one place, whatever tasks it has: [`PACKETS_MAX`].
//! 5. When half of all questions that may be in flight are, no zone below a top level has more than an `ZONE_SHARE`th of
//!    them, and no server of such zones is asked more than a `SERVER_SHARE`th: the rest is for other zones.
//!
//! Bounds: [`Options`], and the constants below. Cost of a step: a look-up a label of the name, another a
//! server of the zone; one allocation a task.

mod compose;
mod counts;
mod limits;
mod queries;
mod task;

use std::borrow::Borrow;
use std::cell::Cell;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use larder_dns::core::Now;
use larder_io::random::Random;
use larder_io::timer::Timers;
use larder_wire::dns::query::Query;
use larder_wire::dns::rendered::Renderer;
use larder_wire::dns::{class, rtype};

use self::compose::failure;
pub use self::counts::Counts;
use self::task::{Attempt, NO_ZONE, Purpose, QueryKey, Task};

use crate::Options;
use crate::cuts::Cuts;
use crate::reading::{Aliases, Reading, Referral, SentQuery, has_alias, own_servers, read};
use crate::recent::Recent;
use crate::servers::Servers;

/// Packets and streams for one question of a client, and all that has to be found out for it.
pub const PACKETS_MAX: u32 = 100;

/// Names on the way down that are asked for without finding a zone, before the whole name is (RFC 9156, section 2.3).
pub const STEPS_MAX: u8 = 4;

/// Questions of a task that are not waited for any longer and may still be answered: as many as doubled waits of two servers take in
/// a second and a half. Each is one more chance for who guesses.
const LATE_MAX: usize = 8;

/// After so many rounds only servers are asked once more that are not known to be silent for long.
const ROUNDS: u8 = 2;

/// Aliases that are followed.
pub const ALIASES_MAX: u16 = 16;

/// Tasks for each question that may be in flight: most questions have one, some wait for addresses of servers.
const TASKS_PER_QUESTION: usize = 4;

/// How long addresses of a zone's servers are waited for before their other addresses are sought, or the servers that are
/// known are asked once more, milliseconds.
const ADDRESS_WAIT_MS: u64 = 500;

/// So long a server's address is remembered, at least and at most, seconds; that it has none, the least.
const ADDRESS_S: (u32, u32) = (30, 86_400);

/// What a walker asks of the world. Nothing in here waits.
pub trait Net<C> {
    /// Gives `write` the number of a socket to a server and room for a question, and sends as many bytes as it says it
    /// wrote. False where nothing was sent.
    fn send(&mut self, to: IpAddr, write: impl FnOnce(u32, &mut [u8]) -> Option<usize>) -> bool;

    /// Sends a question over a stream; [`Resolver::receive_tcp`] is told its tag. False where it could not be.
    fn send_tcp(&mut self, server: IpAddr, tag: u64, message: &[u8]) -> bool;

    /// The end of a client's question: a whole message, by a server of `zone`. The zone is empty
    /// where no server had an answer.
    fn respond(&mut self, client: C, message: Vec<u8>, zone: &[u8]);

    /// A server referred to those of a zone by this message, with signatures where they were asked
    /// for. It holds until this time.
    fn note_referral(&mut self, _zone: &[u8], _octets: &[u8], _until_ms: u64) {}
}

/// What a walker is asked.
#[derive(Debug)]
pub struct SubQuery<'a> {
    /// A whole message.
    pub message: &'a [u8],
    /// It is over in this time.
    pub wait_ms: u64,
    /// Packets and streams that it may cost, shared with other parts of the same question of a client.
    pub packets_left: Rc<Cell<u32>>,
    /// Aliases that lead out of a zone are followed. Otherwise they are the answer.
    pub follows_aliases: bool,
}

/// Addresses of a server of one family, IPv4 first, as they were found.
#[derive(Debug, Default)]
struct Addresses {
    until_ms: u64,
    all: Vec<IpAddr>,
}

/// The place of a type among the addresses of a server.
fn family(rtype: u16) -> usize {
    usize::from(rtype == rtype::AAAA)
}

/// How a task ends.
enum End<'a> {
    /// With what a server said of the whole name.
    Answer(&'a [u8]),
    /// With what a server said of a name above it, which does not exist.
    Denied(&'a [u8]),
    Failed,
}

/// Tasks of one thread. `C` is whom an answer is for.
#[derive(Debug)]
pub struct Resolver<C> {
    options: Arc<Options>,
    tasks: HashMap<u64, Box<Task<C>>>,
    last_number: u64,
    /// Tasks of clients.
    clients: usize,
    by_udp_key: HashMap<(u32, u16), u64>,
    by_tcp_tag: HashMap<u64, u64>,
    /// Tasks for addresses, by name, type and depth.
    address_tasks: HashMap<(Box<[u8]>, u16, u8), u64>,
    /// How many tasks are in a zone, and how many wait for a server; where there are any.
    in_zone: HashMap<Box<[u8]>, usize>,
    at_server: HashMap<IpAddr, usize>,
    /// Names above whole ones that somebody asks for at the moment, and the tasks that wait for what is said of them.
    minimized: HashMap<Box<[u8]>, Vec<u64>>,
    /// Tasks that have something to do.
    ready: Vec<u64>,
    timers: Timers<u64>,
    cuts: Cuts,
    servers: Servers,
    /// Addresses of servers that came with no referral, and until when.
    addresses: Recent<Box<[u8]>, [Addresses; 2]>,
    candidates: Vec<(bool, u64, IpAddr)>,
    random: Random,
    renderer: Renderer,
    composer: Renderer,
    counts: Counts,
}

impl<C> Resolver<C> {
    /// Knows nothing but the root's servers.
    pub fn new(options: Arc<Options>, now: Now) -> Resolver<C> {
        let tasks_max = options.queries_max.max(1).saturating_mul(TASKS_PER_QUESTION);
        Resolver {
            tasks: HashMap::new(),
            last_number: 0,
            clients: 0,
            by_udp_key: HashMap::new(),
            by_tcp_tag: HashMap::new(),
            address_tasks: HashMap::new(),
            in_zone: HashMap::new(),
            at_server: HashMap::new(),
            minimized: HashMap::new(),
            ready: Vec::new(),
            timers: Timers::new(tasks_max, now.us / 1_000),
            cuts: Cuts::new(&options.roots, options.zones_max),
            servers: Servers::new(options.zones_max),
            addresses: Recent::new(options.zones_max),
            candidates: Vec::new(),
            random: Random::new(),
            renderer: Renderer::new(),
            composer: Renderer::new(),
            counts: Counts::default(),
            options,
        }
    }

    /// What it did.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Questions of clients that are on their way.
    pub fn in_flight(&self) -> usize {
        self.clients
    }

    /// Zones, and names at which none begins, that are known.
    pub fn zones(&self) -> usize {
        self.cuts.count()
    }

    /// Takes a client's question: a whole message, to be answered within `wait_ms`. What is none is dropped, and so is its
    /// client; so is a question beyond [`Options::queries_max`] and what those wait for.
    pub fn begin(
        &mut self,
        now: Now,
        client: C,
        message: &[u8],
        wait_ms: u64,
        net: &mut impl Net<C>,
    ) {
        let packets_left = Rc::new(Cell::new(PACKETS_MAX));
        let question = SubQuery { message, wait_ms, packets_left, follows_aliases: true };
        // Whoever waits for what is dropped is told by that.
        let _ = self.begin_subquery(now, client, question, net);
    }

    /// As [`Resolver::begin`], for a question that is one of several; gives the client back instead of dropping it.
    pub fn begin_subquery(
        &mut self,
        now: Now,
        client: C,
        question: SubQuery<'_>,
        net: &mut impl Net<C>,
    ) -> Result<(), C> {
        let SubQuery { message, wait_ms, packets_left, follows_aliases } = question;
        let Ok(query) = Query::parse(message) else { return Err(client) };
        if query.qclass != class::IN || self.tasks.len() >= self.timers.capacity() {
            return Err(client);
        }
        let task = Task {
            name: query.name().to_ascii_lowercase(),
            rtype: query.qtype,
            dnssec_ok: query.dnssec_ok() && self.options.passes_dnssec,
            checking_disabled: query.checking_disabled,
            purpose: Purpose::Client { client, message: message.into() },
            depth: 0,
            packets_left,
            follows_aliases,
            until_ms: now.us / 1_000 + wait_ms,
            ..Task::new()
        };
        self.clients += 1;
        let number = self.insert_task(task);
        self.ready.push(number);
        self.run(now, net);
        Ok(())
    }

    fn insert_task(&mut self, task: Task<C>) -> u64 {
        self.last_number += 1;
        self.tasks.insert(self.last_number, Box::new(task));
        self.last_number
    }

    /// A packet came from a server. False where it answers nothing that was sent by this socket.
    pub fn receive(&mut self, now: Now, socket: u32, bytes: &[u8], net: &mut impl Net<C>) -> bool {
        let id = bytes.first_chunk().map(|id| u16::from_be_bytes(*id));
        let udp_key = id.map(|id| (socket, id));
        let found = udp_key.and_then(|udp_key| Some((udp_key, *self.by_udp_key.get(&udp_key)?)));
        let is_taken = found.is_some_and(|((socket, id), number)| {
            self.process_response(now, number, QueryKey::Udp(socket, id), Some(bytes), net)
        });
        self.counts.misfits += u64::from(!is_taken);
        is_taken
    }

    /// An answer came by a stream, or there will be none.
    pub fn receive_tcp(&mut self, now: Now, tag: u64, bytes: Option<&[u8]>, net: &mut impl Net<C>) {
        if let Some(&number) = self.by_tcp_tag.get(&tag) {
            self.process_response(now, number, QueryKey::Tcp(tag), bytes, net);
        }
    }

    /// Somebody guesses at a socket, which was closed: what was asked by it is asked of the same servers by streams.
    pub fn on_spoofing(&mut self, now: Now, socket: u32, net: &mut impl Net<C>) {
        let affected = self.by_udp_key.iter().filter(|((it, _), _)| *it == socket);
        let affected: Vec<(QueryKey, u64)> =
            affected.map(|(&(socket, id), &number)| (QueryKey::Udp(socket, id), number)).collect();
        for (key, number) in affected {
            let Some(attempt) = self.tasks.get(&number).and_then(|task| task.attempt_of(key))
            else {
                continue;
            };
            let Some(mut task) = self.tasks.remove(&number) else { continue };
            let is_last = task.attempt.is_none_or(|last| last == attempt);
            self.cancel_attempt(&mut task, attempt);
            if is_last && !self.send_query_tcp(now, number, &mut task, attempt, net) {
                task.wake_followers(&mut self.minimized, &mut self.ready);
                self.ready.push(number);
            }
            self.tasks.insert(number, task);
        }
        self.run(now, net);
    }

    /// A server cannot be reached, says the kernel.
    pub fn unreachable(&mut self, now: Now, server: IpAddr, net: &mut impl Net<C>) {
        self.servers.timed_out(server);
        let is_affected = |task: &Task<C>| {
            let is_sent_to =
                |it: &Attempt| it.server == server && matches!(it.key, QueryKey::Udp(..));
            task.attempt.as_ref().is_some_and(is_sent_to)
        };
        let affected = self.tasks.iter().filter(|(_, task)| is_affected(task));
        let affected: Vec<u64> = affected.map(|(&number, _)| number).collect();
        for number in affected {
            let Some(mut task) = self.tasks.remove(&number) else { continue };
            if let Some(attempt) = task.attempt {
                self.cancel_attempt(&mut task, attempt);
            }
            task.wake_followers(&mut self.minimized, &mut self.ready);
            self.tasks.insert(number, task);
            self.ready.push(number);
        }
        self.run(now, net);
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Now, net: &mut impl Net<C>) {
        let now_ms = now.us / 1_000;
        while let Some(number) = self.timers.expire(now_ms) {
            let Some(mut task) = self.tasks.remove(&number) else { continue };
            task.timer = None;
            match task.attempt {
                Some(attempt) => {
                    self.counts.timeouts += 1;
                    self.servers.timed_out(attempt.server);
                    task.wake_followers(&mut self.minimized, &mut self.ready);
                    self.mark_late(&mut task);
                }
                None => task.has_waited = true,
            }
            self.tasks.insert(number, task);
            self.ready.push(number);
            self.run(now, net);
        }
    }

    /// How long nothing is to be done if nothing comes, milliseconds.
    pub fn wait_ms(&self, now: Now) -> Option<u64> {
        self.timers.wait_ms(now.us / 1_000)
    }

    /// A task waits for the answer to a question.
    fn set_attempt(&mut self, task: &mut Task<C>, attempt: Attempt) {
        *self.at_server.entry(attempt.server).or_default() += 1;
        task.attempt = Some(attempt);
    }

    /// A task's question is waited for no longer, but may be answered yet, unless it was asked by a stream.
    fn mark_late(&mut self, task: &mut Task<C>) {
        let Some(attempt) = task.attempt.take() else { return };
        decrease(&mut self.at_server, &attempt.server);
        if let QueryKey::Tcp(_) = attempt.key {
            return self.forget(attempt.key);
        }
        if task.late.len() == LATE_MAX {
            let oldest = task.late.remove(0);
            self.forget(oldest.key);
        }
        task.late.push(attempt);
    }

    /// Nothing more is awaited of one of a task's questions.
    fn cancel_attempt(&mut self, task: &mut Task<C>, attempt: Attempt) {
        if task.attempt == Some(attempt) {
            task.attempt = None;
            decrease(&mut self.at_server, &attempt.server);
        }
        task.late.retain(|late| *late != attempt);
        self.forget(attempt.key);
    }

    /// Nothing more is awaited of all of them.
    fn cancel_all_attempts(&mut self, task: &mut Task<C>) {
        self.mark_late(task);
        for late in task.late.drain(..) {
            self.forget(late.key);
        }
    }

    fn forget(&mut self, key: QueryKey) {
        match key {
            QueryKey::Udp(socket, id) => self.by_udp_key.remove(&(socket, id)),
            QueryKey::Tcp(tag) => self.by_tcp_tag.remove(&tag),
        };
    }

    /// Takes what came for a task's question, or that nothing will; false where it is no answer to it.
    fn process_response(
        &mut self,
        now: Now,
        number: u64,
        key: QueryKey,
        bytes: Option<&[u8]>,
        net: &mut impl Net<C>,
    ) -> bool {
        let Some(mut task) = self.tasks.remove(&number) else { return false };
        let Some(attempt) = task.attempt_of(key) else {
            self.tasks.insert(number, task);
            return false;
        };
        if bytes.is_none() {
            // A stream that failed says nothing of the zone: a guess may have led to it, and some servers have no streams.
            self.cancel_attempt(&mut task, attempt);
            task.wake_followers(&mut self.minimized, &mut self.ready);
            self.tasks.insert(number, task);
            self.ready.push(number);
            self.run(now, net);
            return true;
        }
        let options = self.options.clone();
        let is_stream = matches!(attempt.key, QueryKey::Tcp(_));
        let sent = SentQuery {
            question: &task.question,
            name: task.qname(),
            rtype: task.qtype(),
            zone: task.zone(),
            is_case_random: options.case_random && !is_stream,
            has_edns: attempt.has_edns,
            // All others were asked before it, and again after that.
            accepts_recursed: task.rounds > 0
                && self.cuts.get_or_root(task.zone()).lame.contains(&attempt.server),
        };
        let reading = bytes.map(|bytes| read(bytes, &sent, |server| options.may_query(server)));
        // Nobody else can write into a stream: what does not fit is the server's own fault.
        let reading = match reading {
            None | Some(Reading::Misfit | Reading::Truncated) if is_stream => Reading::Lame,
            Some(Reading::Misfit) | None => {
                self.tasks.insert(number, task);
                return false;
            }
            Some(reading) => reading,
        };
        self.cancel_attempt(&mut task, attempt);
        if !is_stream {
            let after_us = now.us.saturating_sub(attempt.sent_us).min(u32::MAX.into());
            self.servers.responded(attempt.server, after_us as u32);
        }
        if reading == Reading::Truncated {
            self.mark_late(&mut task);
            if self.send_query_tcp(now, number, &mut task, attempt, net) {
                self.tasks.insert(number, task);
                return true;
            }
        }
        if matches!(reading, Reading::Lame | Reading::NoEdns) && task.attempt.is_some() {
            // It is late, and of no use: another is waited for.
            self.apply(now, &mut task, reading, attempt, &[], net);
            self.tasks.insert(number, task);
            return true;
        }
        task.wake_followers(&mut self.minimized, &mut self.ready);
        if !matches!(reading, Reading::Lame | Reading::NoEdns | Reading::Truncated) {
            self.cancel_all_attempts(&mut task);
        }
        let end = self.apply(now, &mut task, reading, attempt, bytes.unwrap_or_default(), net);
        match end {
            Some(end) => self.finish(now, *task, &end, net),
            None => {
                self.tasks.insert(number, task);
                self.ready.push(number);
            }
        }
        self.run(now, net);
        true
    }

    /// What follows from what a server said: the end, or another step.
    fn apply<'o>(
        &mut self,
        now: Now,
        task: &mut Task<C>,
        reading: Reading,
        attempt: Attempt,
        bytes: &'o [u8],
        net: &mut impl Net<C>,
    ) -> Option<End<'o>> {
        let now_ms = now.us / 1_000;
        let server = attempt.server;
        let is_plain = !attempt.has_edns && task.without_edns.contains(&server);
        if is_plain && !matches!(reading, Reading::Lame | Reading::NoEdns) {
            // Without EDNS it answers: it was not the question that it did not understand.
            self.servers.lacks_edns(server, now_ms);
        }
        if matches!(
            reading,
            Reading::Answer | Reading::NoData | Reading::NxDomain | Reading::Alias(_)
        ) {
            self.note_own_servers(task.zone(), bytes);
        }
        match reading {
            Reading::Answer | Reading::NoData | Reading::NxDomain if task.is_full_name() => {
                return Some(End::Answer(bytes));
            }
            Reading::Alias(_) if task.is_full_name() && !task.follows_aliases => {
                return Some(End::Answer(bytes));
            }
            // There are servers that deny names with others below them. The root's are not among them, and most names that are
            // asked of those in vain are none of anybody's (RFC 8020). What proves it for this name need not prove it
            // for a name below.
            Reading::NxDomain if task.zone() == [0] && !task.dnssec_ok => {
                return Some(End::Denied(bytes));
            }
            Reading::NxDomain => {
                task.steps = STEPS_MAX;
                task.tried.retain(|tried| *tried != server);
            }
            Reading::Alias(aliases) if task.is_full_name() => {
                return self.follow_aliases(task, aliases);
            }
            Reading::Answer | Reading::NoData | Reading::Alias(_) => {
                self.cuts.learn_no_cut(task.qname(), now_ms);
                task.steps += 1;
                task.tried.clear();
            }
            Reading::Referral(referral) => {
                self.counts.referrals += 1;
                let zone = &task.name[task.name.len() - referral.zone_bytes..];
                let Referral { servers, ttl_s, .. } = referral;
                let until_ms = self.cuts.learn(zone, servers, ttl_s, task.zone_until_ms, now_ms);
                net.note_referral(zone, bytes, until_ms);
            }
            // Once: who says so of a question without EDNS is lame.
            Reading::NoEdns => {
                task.without_edns.push(server);
                task.tried.retain(|tried| *tried != server);
            }
            Reading::Lame | Reading::Truncated | Reading::Misfit if task.is_full_name() => {
                self.counts.lame += 1;
                if let Some(cut) = self.cuts.get(task.zone()) {
                    cut.mark_lame(server);
                }
            }
            // Some know what to say of whole names only.
            Reading::Lame | Reading::Truncated | Reading::Misfit => {
                task.steps = STEPS_MAX;
                task.tried.retain(|tried| *tried != server);
            }
        }
        None
    }

    /// Turns to where aliases lead; the end where they lead nowhere.
    fn follow_aliases<'o>(&mut self, task: &mut Task<C>, aliases: Aliases) -> Option<End<'o>> {
        // A server has no alias for its name (RFC 2181, section 10.3).
        let is_server = matches!(task.purpose, Purpose::Address { .. });
        task.alias_count += aliases.count;
        task.aliases.extend_from_slice(&aliases.records);
        let is_circle = has_alias(&task.aliases, &aliases.target);
        if is_server || is_circle || task.alias_count > ALIASES_MAX {
            return Some(End::Failed);
        }
        task.record_count += aliases.record_count;
        self.leave_zone(task);
        task.name = aliases.target;
        task.enter(NO_ZONE, 0);
        None
    }

    /// A zone's server spoke: whom it says the zone is served by is kept, for when all that the parent named have failed.
    fn note_own_servers(&mut self, zone: &[u8], bytes: &[u8]) {
        // The root's are never forgotten, so what one of them said would never end.
        let cut = if zone == [0] { None } else { self.cuts.get(zone) };
        if let Some(cut) = cut.filter(|cut| cut.own_servers.is_empty()) {
            cut.own_servers = own_servers(bytes, zone, |server| self.options.may_query(server));
        }
    }

    /// Lets tasks go on that have something to do.
    fn run(&mut self, now: Now, net: &mut impl Net<C>) {
        while let Some(number) = self.ready.pop() {
            let Some(mut task) = self.tasks.remove(&number) else { continue };
            if task.attempt.is_none() && !self.step(now, number, &mut task, net) {
                self.finish(now, *task, &End::Failed, net);
            } else {
                self.tasks.insert(number, task);
            }
        }
    }

    /// Asks the next server, or sees to it that there is one. False where nothing is left to be done.
    fn step(&mut self, now: Now, number: u64, task: &mut Task<C>, net: &mut impl Net<C>) -> bool {
        let now_ms = now.us / 1_000;
        if now_ms >= task.until_ms {
            return false;
        }
        let closest = self.cuts.find(&task.name, task.rtype == rtype::DS, now_ms);
        if (closest.zone_at, closest.until_ms) != (task.zone_at, task.zone_until_ms) {
            self.cancel_all_attempts(task);
            self.leave_zone(task);
            task.enter(closest.zone_at, closest.until_ms);
            if !self.enter_zone(task) {
                return false;
            }
        }
        let qname_at = task.qname_at;
        task.qname_at =
            if task.steps >= STEPS_MAX { 0 } else { minimized_at(&task.name, closest.known_at) };
        if task.qname_at != qname_at {
            self.cancel_all_attempts(task);
        }
        if let Some(waiting) = self.minimized.get_mut(task.qname()).filter(|_| task.qname_at > 0) {
            waiting.push(number);
            self.set_timer(number, task, task.until_ms);
            return true;
        }
        while task.packets_left.get() > 0 {
            if let Some(server) = self.choose_server(now_ms, task) {
                task.tried.push(server);
                if self.send_query(now, number, task, server, net) {
                    return true;
                }
                self.servers.timed_out(server);
            } else if self.find_addresses(now_ms, number, task)
                || !task.has_waited && self.awaits_addresses(task)
            {
                let wait_ms = if task.has_waited { u64::MAX } else { ADDRESS_WAIT_MS };
                self.set_timer(number, task, now_ms.saturating_add(wait_ms));
                return true;
            } else if task.tried.is_empty() && (task.rounds > 0 || !self.has_own_servers(task)) {
                break;
            } else {
                task.rounds += 1;
                task.tried.clear();
            }
        }
        // Nobody is left to be asked. Somebody may answer yet.
        let is_awaited = !task.late.is_empty() && !self.is_half_full();
        let waits = is_awaited || self.awaits_addresses(task);
        if waits {
            self.set_timer(number, task, task.until_ms);
        }
        waits
    }

    /// True where the task's zone itself has named servers.
    fn has_own_servers(&mut self, task: &Task<C>) -> bool {
        !self.cuts.get_or_root(task.zone()).own_servers.is_empty()
    }

    /// Sets a task's timer, which is never beyond its end.
    fn set_timer(&mut self, number: u64, task: &mut Task<C>, due_ms: u64) {
        task.due_ms = due_ms.min(task.until_ms);
        if let Some(timer) = task.timer.take() {
            self.timers.cancel(timer);
        }
        // There is room: no more tasks are begun than there may be timers.
        task.timer = self.timers.set(task.due_ms, number).ok();
    }

    /// A task is over: who waited for it hears of it.
    fn finish(&mut self, now: Now, mut task: Task<C>, end: &End<'_>, net: &mut impl Net<C>) {
        if let Some(timer) = task.timer {
            self.timers.cancel(timer);
        }
        self.cancel_all_attempts(&mut task);
        self.leave_zone(&mut task);
        match std::mem::replace(&mut task.purpose, Purpose::Address { waiting: Vec::new() }) {
            Purpose::Client { client, message } => {
                self.clients -= 1;
                let composed = self.compose(now, &task, &message, end);
                let zone = if composed.is_some() { task.zone() } else { &[] };
                let composed = composed.or_else(|| {
                    self.counts.failures += 1;
                    failure(&message, self.options.udp_bytes_max)
                });
                if let Some(composed) = composed {
                    net.respond(client, composed, zone);
                }
            }
            Purpose::Address { waiting } => self.finish_address_task(now, task, waiting, end),
        }
    }

    /// A server that was not known before can be asked: a task waits no longer for one that it asks once more.
    fn interrupt(&mut self, number: u64) {
        let Some(mut task) = self.tasks.remove(&number) else { return };
        if task.rounds > 0 {
            task.wake_followers(&mut self.minimized, &mut self.ready);
            self.mark_late(&mut task);
        }
        self.tasks.insert(number, task);
    }
}

/// One less of what is counted by a key.
fn decrease<K, Q>(counts: &mut HashMap<K, usize>, key: &Q)
where
    K: Eq + Hash + Borrow<Q>,
    Q: Eq + Hash + ?Sized,
{
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// Where the name begins that is one label longer than the one at `known_at`; 0 where that is the whole name.
fn minimized_at(name: &[u8], known_at: usize) -> usize {
    let mut at = 0;
    loop {
        let next = at + 1 + usize::from(name.get(at).copied().unwrap_or(0));
        if next >= known_at || next >= name.len() {
            return at;
        }
        at = next;
    }
}

#[cfg(test)]
mod tests;
