//! Validation (DNSSEC): no client gets what the walker found before it was checked.
//!
//! The walker finds responses as it does without validation, but one for each name: aliases are
//! followed here. The library hickory checks them, every signature and every proof that something
//! is not there; there is no home-made DNSSEC. For that it looks up keys and delegations, which are
//! known from referrals and earlier lookups, or found by the walker.
//!
//! ```text
//! BackendQuery -> Job, a step for each name: Walker -> response::part -> DnssecDnsHandle <- Known, or Walker
//!                   ^--------------- an alias ---------------------------'   |
//!                                       BackendQuery::answer <- reply <-'
//! ```
//!
//! | module | duty |
//! |---|---|
//! | [`anchors`] | which keys the root is trusted by |
//! | `response` | what a response says of one name, and a referral of keys |
//! | `known` | keys and delegations |
//! | `handle` | what the library looks up with |
//! | [`reply`] | what was found, as a message |
//!
//! Invariants
//! 1. What is known of keys holds no longer than the delegation to their zone, and that no longer
//!    than the one above it.
//! 2. A question costs at most as many packets as one that is not validated, whatever is looked up
//!    for it, and at most `LOOKUPS_MAX` lookups. It ends in its time.
//! 3. A job waits for what another looks up only if that ends before the job does. Where that
//!    fails, it tries itself.
//!
//! Cost: a question for a name of a new zone takes the walker's queries and one for DNSKEY, and as
//! many verified signatures as it has sets of records, with that of DS; see
//! `docs/results/dns-recursion.md`.

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

/// Keys and delegations that are looked up for one question, known or not.
const LOOKUPS_MAX: u32 = 200;

/// Proofs that the library remembers.
const PROOFS_MAX: usize = 20_000;

/// What the walker told.
pub enum ResolverEvent {
    /// What a server of a zone said.
    Response {
        /// Of what.
        part: ValidatorQuery,
        /// A whole message.
        bytes: Vec<u8>,
        /// Its name; empty where no server had an answer.
        zone: Box<[u8]>,
    },
    /// Servers of a zone were referred to.
    Referral {
        /// Its name.
        zone: Box<[u8]>,
        /// A whole message.
        bytes: Vec<u8>,
        /// How long that holds.
        until_ms: u64,
    },
}

/// What a question may still cost.
#[derive(Clone)]
struct Budget {
    until_ms: u64,
    packets_left: Rc<Cell<u32>>,
}

type Check = Pin<Box<dyn Future<Output = Outcome>>>;

/// What a job does.
enum State {
    /// Its last name has to be found.
    Start,
    /// The walker seeks it.
    Resolving,
    /// A server of a zone said this of the name that has this place among the job's names, and
    /// maybe of those behind it.
    Received { bytes: Vec<u8>, zone: Name, name_at: usize },
}

/// A question of a client.
struct Job {
    client: BackendQuery,
    query_message: Message,
    rtype: RecordType,
    /// The name asked for, and those that aliases led to.
    names: Vec<Name>,
    budget: Budget,
    lookups_left: u32,
    state: State,
    /// The library's, of what was said of the last name.
    check: Option<Check>,
    found: Found,
}

impl Job {
    /// For its last name.
    fn query(&self) -> Query {
        Query::query(self.names.last().cloned().unwrap_or_default(), self.rtype)
    }

    /// Takes what was checked. The end, unless there is another name to be found.
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

/// Who finds what has to be found.
pub struct Context<'a, N> {
    /// The time of the turn.
    pub now: Now,
    /// Who seeks it.
    pub resolver: &'a mut Resolver<Client>,
    /// Where the walker speaks.
    pub net: &'a mut N,
    /// Bytes that a server may answer in over UDP.
    pub udp_bytes: u16,
}

impl<N: Net<Client>> Context<'_, N> {
    fn now_ms(&self) -> u64 {
        self.now.us / 1_000
    }

    /// Has the walker find something. False where it cannot, or there is no time.
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

/// Keys or a delegation on their way, and the jobs that wait for them.
struct Lookup {
    query: Query,
    key: Key,
    until_ms: u64,
    waiting: Vec<(u64, Slot)>,
}

/// One thread's.
pub struct Validator {
    handle: Handle,
    library: DnssecDnsHandle<Handle>,
    key_cache: KeyCache,
    jobs: HashMap<u64, Job>,
    lookups: HashMap<u64, Lookup>,
    /// Lookups that others may wait for.
    shared: HashMap<Key, u64>,
    last_number: u64,
    /// Jobs that have something to do.
    ready: Vec<u64>,
}

impl Validator {
    /// Knows nothing but the root's keys.
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

    /// Questions of clients that are on their way.
    pub fn in_flight(&self) -> usize {
        self.jobs.len()
    }

    /// True where no job has something to do.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Takes a client's question, to be answered within `wait_ms`; [`Validator::advance_jobs`] begins with
    /// it. What is none is dropped.
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

    /// Takes what the walker told, and lets jobs go on that have something to do.
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
                        // An empty one is none: no server had an answer.
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

    /// Does what a job has to do. Its end, if that has come.
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
            // The library may panic for what it holds to be impossible: that is one question's end
            // and not the thread's.
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

    /// Begins to check a response.
    fn check(&self, query: &Query, part: DnsResponse) -> Check {
        // Of a check that ended early.
        self.handle.take_requests();
        self.handle.prepare(part);
        let options = DnsRequestOptions::default();
        Box::pin(self.library.lookup(query.clone(), options).first_answer())
    }

    /// Looks something up for a job. True where its slot is filled already.
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

    /// The walker has found what was looked up, or has not.
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
                // The others have means of their own.
                (None, Some(waits)) if at > 0 => {
                    let (budget, request) =
                        (waits.budget.clone(), LookupRequest { query: query.clone(), slot });
                    self.look_up(job, &budget, request, context);
                }
                (None, _) => slot.fill(Err("no server had an answer".into())),
            }
        }
    }

    /// Answers a client.
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

    /// A signature of so many labels that is none.
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
