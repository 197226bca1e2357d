//! Validation (DNSSEC): every response is checked before a client gets it.
//!
//! The resolver finds responses as without validation, but for one name at a time: the validator follows
//! aliases itself. The library hickory checks each signature and each proof of absence; larder has no
//! DNSSEC checks of its own. For them the library looks up keys and delegations. Those come from a cache,
//! which referrals and earlier look-ups fill, or from the resolver.
//!
//! ```text
//! BackendQuery -> Job, a step for each name: Resolver -> response::part -> DnssecDnsHandle <- KeyCache, or Resolver
//!                   ^--------------- an alias -----------------------------'   |
//!                                       BackendQuery::answer <- reply <--------'
//! ```
//!
//! | module | duty |
//! |---|---|
//! | [`anchors`] | the trusted keys of the root |
//! | `response` | extracts the records of one name, and the delegation of a referral |
//! | `key_cache` | cached keys and delegations |
//! | `handle` | the look-up interface of the library |
//! | [`reply`] | composes the response message |
//!
//! Invariants
//! 1. A cached key expires no later than the delegation to its zone, and that no later than the one
//!    above it.
//! 2. Validation costs a query no more packets than [`PACKETS_MAX`], and at most `LOOKUPS_MAX` look-ups.
//!    The query ends at its deadline.
//! 3. A job waits for another job's look-up only if that ends before the job's own deadline. If the
//!    look-up fails, the job starts its own.
//!
//! Cost: the first query for a zone takes one more query, for DNSKEY, and one signature check for each
//! record set and for the DS set; see `docs/results/dns-recursion.md`.

pub mod anchors;
mod handle;
mod key_cache;
pub mod reply;
mod response;

use std::cell::Cell;
use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use hickory_net::dnssec::DnssecDnsHandle;
use hickory_net::xfer::{DnsHandle, FirstAnswer};
use hickory_proto::op::{DnsRequestOptions, DnsResponse, Message, Query};
use hickory_proto::rr::{Name, RecordType};
use hickory_proto::serialize::binary::BinDecodable;
use larder_dns::backend::BackendQuery;
use larder_dns::core::{Flags, Now, QUERY_BYTES_MAX, write_query};
use larder_wire::dns::class;

use self::anchors::Anchors;
use self::handle::{Handle, LookupRequest, Outcome, Slot};
use self::key_cache::{CACHED_S, Key, KeyCache, key_of, wire};
use self::reply::{Found, NO_REACHABLE_AUTHORITY};
use crate::client::{Client, ValidatorQuery};
use crate::resolver::{ALIASES_MAX, Net, PACKETS_MAX, Resolver, SubQuery};

/// The most look-ups of keys and delegations for one client query, cached or not.
const LOOKUPS_MAX: u32 = 200;

/// The most proofs that the library caches.
const PROOFS_MAX: usize = 20_000;

/// An event of the resolver.
pub enum ResolverEvent {
    /// The response to a sub-query.
    Response {
        /// The sub-query.
        part: ValidatorQuery,
        /// The whole message.
        bytes: Vec<u8>,
        /// The zone of the server; empty if no server had a response.
        zone: Box<[u8]>,
    },
    /// A referral to a zone.
    Referral {
        /// The name of the zone.
        zone: Box<[u8]>,
        /// The whole message.
        bytes: Vec<u8>,
        /// When the referral expires.
        until_ms: u64,
    },
}

/// The rest of the budget of a client query.
#[derive(Clone)]
struct Budget {
    until_ms: u64,
    packets_left: Rc<Cell<u32>>,
}

type Check = Pin<Box<dyn Future<Output = Outcome>>>;

/// The state of a job.
enum State {
    /// The last name has to be resolved.
    Start,
    /// The resolver resolves it.
    Resolving,
    /// A response from a server of `zone`, for the name with this index in the job, and possibly
    /// for the names after it.
    Received { bytes: Vec<u8>, zone: Name, name_at: usize },
}

/// A client query.
struct Job {
    client: BackendQuery,
    query_message: Message,
    rtype: RecordType,
    /// The query name, and the targets of aliases.
    names: Vec<Name>,
    budget: Budget,
    lookups_left: u32,
    state: State,
    /// The check, by the library, of the response for the last name.
    check: Option<Check>,
    found: Found,
}

impl Job {
    /// The query for the last name.
    fn query(&self) -> Query {
        Query::query(self.names.last().cloned().unwrap_or_default(), self.rtype)
    }

    /// Adds a checked response. Returns the result, unless an alias leads to another name.
    fn take_outcome(&mut self, outcome: Outcome) -> Option<Result<(), u16>> {
        let name = self.query().name;
        if let Err(error) = self.found.add(&name, outcome) {
            return Some(Err(error));
        }
        let Some(target) = self.found.alias(&name, self.rtype) else { return Some(Ok(())) };
        if self.names.contains(&target) || self.names.len() > usize::from(ALIASES_MAX) {
            return Some(Err(NO_REACHABLE_AUTHORITY));
        }
        self.names.push(target);
        None
    }
}

/// The resolver and the network, for one turn of the event loop.
pub struct Context<'a, N> {
    /// The time of the turn.
    pub now: Now,
    /// The resolver.
    pub resolver: &'a mut Resolver<Client>,
    /// The network of the resolver.
    pub net: &'a mut N,
    /// The most bytes of a response over UDP.
    pub udp_bytes: u16,
}

impl<N: Net<Client>> Context<'_, N> {
    fn now_ms(&self) -> u64 {
        self.now.us / 1_000
    }

    /// Starts a sub-query. Returns false if the resolver has no room, or at the deadline.
    fn start_subquery(&mut self, part: ValidatorQuery, query: &Query, budget: &Budget) -> bool {
        let mut question = wire(query.name());
        question.extend_from_slice(&u16::from(query.query_type()).to_be_bytes());
        question.extend_from_slice(&class::IN.to_be_bytes());
        let flags = Flags {
            recursion_desired: true,
            dnssec_ok: true,
            checking_disabled: false,
            believes_ad: false,
            udp_bytes: Some(self.udp_bytes),
        };
        let mut message = [0; QUERY_BYTES_MAX];
        let length = write_query(&mut message, 0, &question, flags);
        let question = SubQuery {
            message: &message[..length],
            wait_ms: budget.until_ms.saturating_sub(self.now_ms()),
            packets_left: budget.packets_left.clone(),
            follows_aliases: false,
        };
        let client = Client::Validator(part);
        question.wait_ms > 0
            && self.resolver.begin_subquery(self.now, client, question, self.net).is_ok()
    }
}

/// A look-up of keys or of a delegation, and the jobs that wait for it.
struct Lookup {
    query: Query,
    key: Key,
    until_ms: u64,
    waiting: Vec<(u64, Slot)>,
}

/// The validator of one thread.
pub struct Validator {
    handle: Handle,
    library: DnssecDnsHandle<Handle>,
    key_cache: KeyCache,
    jobs: HashMap<u64, Job>,
    lookups: HashMap<u64, Lookup>,
    /// Look-ups that other jobs may join.
    shared: HashMap<Key, u64>,
    last_number: u64,
    /// Jobs with a step to do.
    ready: Vec<u64>,
}

impl Validator {
    /// A validator with only the keys of the root.
    pub fn new(anchors: &Anchors) -> Validator {
        let handle = Handle::default();
        let library = DnssecDnsHandle::with_trust_anchor(handle.clone(), anchors.0.clone())
            .validation_cache_size(PROOFS_MAX)
            .positive_validation_ttl(Duration::ZERO..=Duration::from_secs(CACHED_S.1.into()));
        Validator {
            handle,
            library,
            key_cache: KeyCache::new(),
            jobs: HashMap::new(),
            lookups: HashMap::new(),
            shared: HashMap::new(),
            last_number: 0,
            ready: Vec::new(),
        }
    }

    /// Client queries in flight.
    pub fn in_flight(&self) -> usize {
        self.jobs.len()
    }

    /// True if no job has a step to do.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Adds a client query, with a response due within `wait_ms`; [`Validator::advance_jobs`]
    /// starts it. An invalid message is dropped.
    pub fn begin(&mut self, now: Now, client: BackendQuery, wait_ms: u64) {
        let Ok(query_message) = Message::from_vec(client.message()) else { return };
        let [query] = query_message.queries.as_slice() else { return };
        let job = Job {
            rtype: query.query_type(),
            names: vec![query.name().clone()],
            budget: Budget {
                until_ms: now.us / 1_000 + wait_ms,
                packets_left: Rc::new(Cell::new(PACKETS_MAX)),
            },
            lookups_left: LOOKUPS_MAX,
            state: State::Start,
            check: None,
            found: Found::default(),
            query_message,
            client,
        };
        let number = self.next_number();
        self.jobs.insert(number, job);
        self.ready.push(number);
    }

    /// Handles events of the resolver, and runs all jobs with a step to do.
    pub fn advance_jobs(
        &mut self,
        events: Vec<ResolverEvent>,
        context: &mut Context<'_, impl Net<Client>>,
    ) {
        for event in events {
            match event {
                ResolverEvent::Referral { zone, bytes, until_ms } => {
                    self.key_cache.learn_referral(&zone, &bytes, until_ms);
                }
                ResolverEvent::Response { part: ValidatorQuery::Step(number), bytes, zone } => {
                    if let Some(job) = self.jobs.get_mut(&number) {
                        // The zone is empty if no server had a response.
                        let zone = Name::from_bytes(&zone).unwrap_or_default();
                        job.state = State::Received { bytes, zone, name_at: job.names.len() - 1 };
                        self.ready.push(number);
                    }
                }
                ResolverEvent::Response { part: ValidatorQuery::Lookup(number), bytes, zone } => {
                    self.end_lookup(number, (&bytes, &zone), context);
                }
            }
        }
        while let Some(number) = self.ready.pop() {
            let Some(mut job) = self.jobs.remove(&number) else { continue };
            match self.advance(number, &mut job, context) {
                Some(end) => self.end(context.now_ms(), job, end),
                None => _ = self.jobs.insert(number, job),
            }
        }
    }

    /// Runs a job until it waits. Returns the result if the job ends.
    fn advance(
        &mut self,
        number: u64,
        job: &mut Job,
        context: &mut Context<'_, impl Net<Client>>,
    ) -> Option<Result<(), u16>> {
        loop {
            let Some(check) = job.check.as_mut() else {
                match &job.state {
                    State::Resolving => return None,
                    State::Start => {}
                    State::Received { bytes, zone, name_at } => {
                        let is_whole = *name_at == job.names.len() - 1;
                        match response::part(bytes, zone, &job.query(), is_whole) {
                            Some(part) => {
                                job.check = Some(self.check(&job.query(), part));
                                continue;
                            }
                            None if is_whole => return Some(Err(NO_REACHABLE_AUTHORITY)),
                            None => {}
                        }
                    }
                }
                job.state = State::Resolving;
                let is_begun =
                    context.start_subquery(ValidatorQuery::Step(number), &job.query(), &job.budget);
                return if is_begun { None } else { Some(Err(NO_REACHABLE_AUTHORITY)) };
            };
            let mut task_context = task::Context::from_waker(Waker::noop());
            // The library may panic in states that it considers impossible. That ends one query,
            // not the thread.
            let polled = catch_unwind(AssertUnwindSafe(|| check.as_mut().poll(&mut task_context)));
            let Ok(polled) = polled else { return Some(Err(reply::OTHER)) };
            if let Poll::Ready(outcome) = polled {
                job.check = None;
                if let Some(end) = job.take_outcome(outcome) {
                    return Some(end);
                }
                continue;
            }
            let mut is_filled = false;
            for request in self.handle.take_requests() {
                // Invariant 2.
                job.lookups_left = job.lookups_left.saturating_sub(1);
                if job.lookups_left == 0 {
                    return Some(Err(reply::OTHER));
                }
                is_filled |= self.look_up(number, &job.budget, request, context);
            }
            if !is_filled {
                return None;
            }
        }
    }

    /// Starts the check of a response.
    fn check(&self, query: &Query, part: DnsResponse) -> Check {
        // Remove the requests of a check that ended early.
        self.handle.take_requests();
        self.handle.prepare(part);
        let options = DnsRequestOptions::default();
        Box::pin(self.library.lookup(query.clone(), options).first_answer())
    }

    /// Starts a look-up for a job. Returns true if its slot is already filled.
    fn look_up(
        &mut self,
        job: u64,
        budget: &Budget,
        request: LookupRequest,
        context: &mut Context<'_, impl Net<Client>>,
    ) -> bool {
        let LookupRequest { query, slot } = request;
        if let Some(response) = self.key_cache.response(&query, context.now_ms()) {
            slot.fill(Ok(response));
            return true;
        }
        let key = key_of(&query);
        let shared = self.shared.get(&key).and_then(|number| self.lookups.get_mut(number));
        // Invariant 3.
        if let Some(lookup) = shared.filter(|lookup| lookup.until_ms <= budget.until_ms) {
            lookup.waiting.push((job, slot));
            return false;
        }
        let number = self.next_number();
        if !context.start_subquery(ValidatorQuery::Lookup(number), &query, budget) {
            slot.fill(Err("there is no time or no room".into()));
            return true;
        }
        self.shared.entry(key.clone()).or_insert(number);
        let lookup = Lookup { query, key, until_ms: budget.until_ms, waiting: vec![(job, slot)] };
        self.lookups.insert(number, lookup);
        false
    }

    /// Ends a look-up, with or without a response.
    fn end_lookup(
        &mut self,
        number: u64,
        (bytes, zone): (&[u8], &[u8]),
        context: &mut Context<'_, impl Net<Client>>,
    ) {
        let Some(lookup) = self.lookups.remove(&number) else { return };
        let Lookup { query, key, waiting, .. } = lookup;
        if self.shared.get(&key) == Some(&number) {
            self.shared.remove(&key);
        }
        let zone = Name::from_bytes(zone).unwrap_or_default();
        let found = response::part(bytes, &zone, &query, true);
        let found = found.map(|response| self.key_cache.learn(&query, response, context.now_ms()));
        self.ready.extend(waiting.iter().map(|(job, _)| *job));
        for (at, (job, slot)) in waiting.into_iter().enumerate() {
            match (&found, self.jobs.get(&job)) {
                (Some(response), _) => slot.fill(Ok(response.clone())),
                // Each other job retries within its own budget.
                (None, Some(waits)) if at > 0 => {
                    let (budget, request) =
                        (waits.budget.clone(), LookupRequest { query: query.clone(), slot });
                    self.look_up(job, &budget, request, context);
                }
                (None, _) => slot.fill(Err("no server had an answer".into())),
            }
        }
    }

    /// Responds to a client.
    fn end(&mut self, now_ms: u64, job: Job, end: Result<(), u16>) {
        let Job { client, query_message, names, found, .. } = job;
        if found.is_bogus() {
            names.iter().for_each(|name| self.key_cache.distrust(name, now_ms));
        }
        let message = reply::compose(&query_message, end.map(|()| found));
        if let Ok(bytes) = message.to_vec() {
            client.answer(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::dnssec::Algorithm;
    use hickory_proto::dnssec::rdata::{DNSSECRData, RRSIG, SigInput};
    use hickory_proto::rr::{RData, Record, SerialNumber};

    pub fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    pub fn of_data(owner: &str, data: RData) -> Record {
        Record::from_rdata(name(owner), 86_400, data)
    }

    /// An invalid signature with this number of labels.
    pub fn signature(owner: &str, type_covered: RecordType, num_labels: u8) -> Record {
        let input = SigInput {
            type_covered,
            algorithm: Algorithm::ED25519,
            num_labels,
            original_ttl: 60,
            sig_expiration: SerialNumber::new(0),
            sig_inception: SerialNumber::new(0),
            key_tag: 1,
            signer_name: name("test."),
        };
        of_data(owner, RData::DNSSEC(DNSSECRData::RRSIG(RRSIG::from_sig(input, vec![1; 64]))))
    }
}
