//! The resolver: the state machine that resolves a query with name servers. No sockets, no clock, no
//! threads.
//!
//! ```text
//! begin(query) -> a task
//! task   deepest known zone of its name -> that zone's fastest server -> Net::send
//!   | referral                  learn the zone cut; start again at the child zone
//!   | NODATA, name shortened    no zone cut at that name; add the next label
//!   | NXDOMAIN, name shortened  send the full name next; from a root server the task ends
//!   | alias out of the zone     keep the records, resolve the target; for the validator the task ends
//!   | timeout, lame, refused    the next server. After all servers another round, also with the servers
//!                               that the zone itself names; late responses count until the deadline
//!   | no server address         address tasks resolve it, IPv4 before IPv6; this task waits
//!   | same query in flight      for a shortened name: this task waits for the other's response
//!   | truncated (TC)            retry with the same server over TCP
//! end    a response, or a failure -> Net::respond
//! ```
//!
//! QNAME minimization (RFC 9156): while zone cuts are unknown, a task adds one label per query, with type
//! A, at most [`STEPS_MAX`] times in a row. If the full name is one label below the known part, the task
//! sends it at once. So minimization costs no query where each label is a zone.
//!
//! Invariants
//! 1. A task accepts a UDP response only on the socket of one of its queries, with that query's ID and
//!    question, from that query's server. Queries that timed out still accept a response while the task
//!    has the same question; a task keeps at most `LATE_MAX` of them.
//! 2. Each task has a timer and ends at its deadline. So a task waits for another no longer than that.
//! 3. A task waits only for deeper tasks, or for a task with a query in flight. So no task waits for
//!    itself.
//! 4. All tasks for one client query share one count of packets: at most [`PACKETS_MAX`].
//! 5. Limits start when half of [`Options::queries_max`] is in flight. Then a zone below the top levels
//!    has at most a `ZONE_SHARE`th of that maximum, and a server of such zones a `SERVER_SHARE`th.
//!
//! Bounds: [`Options`] and the constants below. Cost of a step: one look-up for each label of the name and
//! for each server of the zone. Each task is one allocation.

mod compose;
mod counts;
mod limits;
mod queries;
mod responses;
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
use self::task::{Attempt, Purpose, QueryKey, Task};

use crate::Options;
use crate::cuts::Cuts;
use crate::recent::Recent;
use crate::servers::Servers;

/// The most queries, over UDP and TCP, that one client query may cause.
pub const PACKETS_MAX: u32 = 100;

/// Shortened names that find no zone cut before the task sends the full name (RFC 9156, section
/// 2.3).
pub const STEPS_MAX: u8 = 4;

/// Timed-out queries of a task that still accept a response. With doubled timeouts, two servers get
/// this many in 1.5 s. Each one is another chance for a spoofed response.
const LATE_MAX: usize = 8;

/// After this many rounds a task retries only servers that are not lame and have a short timeout.
const ROUNDS: u8 = 2;

/// The most aliases that a task follows.
pub const ALIASES_MAX: u16 = 16;

/// Tasks for each query that may be in flight: most queries have one task, some also have address
/// tasks.
const TASKS_PER_QUERY: usize = 4;

/// How long a task waits for server addresses before it starts more address tasks or retries known
/// servers, milliseconds.
const ADDRESS_WAIT_MS: u64 = 500;

/// How long a server address is cached, minimum and maximum, seconds. A missing address is cached
/// for the minimum.
const ADDRESS_S: (u32, u32) = (30, 86_400);

/// The network, as the resolver uses it. No method blocks.
pub trait Net<C> {
    /// Sends a query over UDP. `write` gets the number of a socket and the buffer, and returns the
    /// length of the query. Returns false if no query was sent.
    fn send(&mut self, to: IpAddr, write: impl FnOnce(u32, &mut [u8]) -> Option<usize>) -> bool;

    /// Sends a query over TCP; the caller passes its response to [`Resolver::receive_tcp`] with the same tag.
    /// Returns false if the query cannot be sent.
    fn send_tcp(&mut self, server: IpAddr, tag: u64, message: &[u8]) -> bool;

    /// Responds to a client with a whole message from a server of `zone`. The zone is empty if no
    /// server had a response.
    fn respond(&mut self, client: C, message: Vec<u8>, zone: &[u8]);

    /// Reports a referral to `zone`: the whole message, with signatures if the query asked for
    /// them. The referral expires at the given time.
    fn note_referral(&mut self, _zone: &[u8], _bytes: &[u8], _until_ms: u64) {}
}

/// A query for the resolver.
#[derive(Debug)]
pub struct SubQuery<'a> {
    /// The query as a whole message.
    pub message: &'a [u8],
    /// Time until the deadline.
    pub wait_ms: u64,
    /// Packets that the query may still send, shared by all sub-queries of one client query.
    pub packets_left: Rc<Cell<u32>>,
    /// If false, an alias out of the zone is the response.
    pub follows_aliases: bool,
}

/// The cached addresses of a server, of one family. An array has IPv4 first.
#[derive(Debug, Default)]
struct Addresses {
    until_ms: u64,
    all: Vec<IpAddr>,
}

/// The index of an address type in that array.
fn family(rtype: u16) -> usize {
    usize::from(rtype == rtype::AAAA)
}

/// The result of a task.
enum End<'a> {
    /// A server responded for the full name.
    Answer(&'a [u8]),
    /// A server responded that a name above the full one does not exist.
    Denied(&'a [u8]),
    Failed,
}

/// The tasks and caches of one thread. `C` identifies a client.
#[derive(Debug)]
pub struct Resolver<C> {
    options: Arc<Options>,
    tasks: HashMap<u64, Box<Task<C>>>,
    last_number: u64,
    /// The number of client tasks.
    clients: usize,
    by_udp_key: HashMap<(u32, u16), u64>,
    by_tcp_tag: HashMap<u64, u64>,
    /// Address tasks by name, type and depth.
    address_tasks: HashMap<(Box<[u8]>, u16, u8), u64>,
    /// Tasks in each zone, and queries in flight to each server. Entries with zero are removed.
    in_zone: HashMap<Box<[u8]>, usize>,
    at_server: HashMap<IpAddr, usize>,
    /// Shortened names with a query in flight, and the tasks that wait for the response.
    minimized: HashMap<Box<[u8]>, Vec<u64>>,
    /// Tasks with a step to do.
    ready: Vec<u64>,
    timers: Timers<u64>,
    cuts: Cuts,
    servers: Servers,
    /// Server addresses that came without a referral, from address tasks.
    addresses: Recent<Box<[u8]>, [Addresses; 2]>,
    candidates: Vec<(bool, u64, IpAddr)>,
    random: Random,
    renderer: Renderer,
    composer: Renderer,
    counts: Counts,
}

impl<C> Resolver<C> {
    /// A resolver with only the root servers.
    pub fn new(options: Arc<Options>, now: Now) -> Resolver<C> {
        let tasks_max = options.queries_max.max(1).saturating_mul(TASKS_PER_QUERY);
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

    /// The counts since the start.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Client queries in flight.
    pub fn in_flight(&self) -> usize {
        self.clients
    }

    /// Known zone cuts, and names known to have none.
    pub fn zones(&self) -> usize {
        self.cuts.count()
    }

    /// Starts a client query: a whole message, with a response due within `wait_ms`. An invalid
    /// message is dropped with its client. So is a query when there is no room for another task.
    pub fn begin(
        &mut self,
        now: Now,
        client: C,
        message: &[u8],
        wait_ms: u64,
        net: &mut impl Net<C>,
    ) {
        let packets_left = Rc::new(Cell::new(PACKETS_MAX));
        let subquery = SubQuery { message, wait_ms, packets_left, follows_aliases: true };
        // The drop of the client reports the failure.
        let _ = self.begin_subquery(now, client, subquery, net);
    }

    /// Starts one of several sub-queries of a client query. On failure it returns the client.
    pub fn begin_subquery(
        &mut self,
        now: Now,
        client: C,
        subquery: SubQuery<'_>,
        net: &mut impl Net<C>,
    ) -> Result<(), C> {
        let SubQuery { message, wait_ms, packets_left, follows_aliases } = subquery;
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

    /// Handles a UDP response. Returns false if it matches no query sent on this socket.
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

    /// Handles a response over TCP, or `None` if the connection failed.
    pub fn receive_tcp(&mut self, now: Now, tag: u64, bytes: Option<&[u8]>, net: &mut impl Net<C>) {
        if let Some(&number) = self.by_tcp_tag.get(&tag) {
            self.process_response(now, number, QueryKey::Tcp(tag), bytes, net);
        }
    }

    /// Handles suspected spoofing at a socket, which the caller has closed. Each query in flight on
    /// it moves to TCP, with the same server.
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

    /// Handles an ICMP error: the server is unreachable.
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

    /// Handles expired timers.
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

    /// Time until the next timer expires, milliseconds.
    pub fn wait_ms(&self, now: Now) -> Option<u64> {
        self.timers.wait_ms(now.us / 1_000)
    }

    /// Records the query that a task waits for.
    fn set_attempt(&mut self, task: &mut Task<C>, attempt: Attempt) {
        *self.at_server.entry(attempt.server).or_default() += 1;
        task.attempt = Some(attempt);
    }

    /// Stops waiting for the current query. A UDP query still accepts a late response; a TCP query
    /// is forgotten.
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

    /// Cancels one query of a task: it accepts no response from now on.
    fn cancel_attempt(&mut self, task: &mut Task<C>, attempt: Attempt) {
        if task.attempt == Some(attempt) {
            task.attempt = None;
            decrease(&mut self.at_server, &attempt.server);
        }
        task.late.retain(|late| *late != attempt);
        self.forget(attempt.key);
    }

    /// Cancels all queries of a task.
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

    /// Runs all tasks with a step to do.
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

    /// Runs one step: sends the next query, or starts to wait. Returns false if nothing is left to
    /// try.
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
        // All servers were tried. A late response or an address may still arrive.
        let is_awaited = !task.late.is_empty() && !self.is_half_full();
        let waits = is_awaited || self.awaits_addresses(task);
        if waits {
            self.set_timer(number, task, task.until_ms);
        }
        waits
    }

    /// True if the zone itself has named servers.
    fn has_own_servers(&mut self, task: &Task<C>) -> bool {
        !self.cuts.get_or_root(task.zone()).own_servers.is_empty()
    }

    /// Sets the timer of a task, at its deadline at the latest.
    fn set_timer(&mut self, number: u64, task: &mut Task<C>, due_ms: u64) {
        task.due_ms = due_ms.min(task.until_ms);
        if let Some(timer) = task.timer.take() {
            self.timers.cancel(timer);
        }
        // There is room: tasks are never more than timers.
        task.timer = self.timers.set(task.due_ms, number).ok();
    }

    /// Ends a task: responds to the client, or wakes the tasks that wait for its addresses.
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

    /// Stops the wait for a retried server, because a new server address is known now.
    fn interrupt(&mut self, number: u64) {
        let Some(mut task) = self.tasks.remove(&number) else { return };
        if task.rounds > 0 {
            task.wake_followers(&mut self.minimized, &mut self.ready);
            self.mark_late(&mut task);
        }
        self.tasks.insert(number, task);
    }
}

/// Decrements a count and removes it at zero.
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

/// The offset of the name one label longer than the one at `known_at`; 0 for the full name.
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
