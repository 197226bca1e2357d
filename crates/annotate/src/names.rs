//! All that is known about names, and the name that an address gets.
//!
//! Names are entries of the engine (crate `larder`), under one byte budget, of five kinds:
//!
//! | key | value | used for |
//! |---|---|---|
//! | `a` address | up to eight [`Candidate`]s, best first | clients without a pair: the chain's head |
//! | `p` client, address | up to eight candidates, best first | the client that queried: as it queried |
//! | `h` address | up to eight candidates, best first | names that a host states of itself |
//! | `c` name | an alias: the name whose CNAME points here | heads of chains that span messages |
//! | `A`, `H`, `q`, `Q` | `a`, `h` and `p` of one network (VLAN, VNI), for addresses that other networks may use too | the same |
//!
//! **Learning is serial, lookups are parallel, and both agree to the packet.** The name learner
//! (one thread at a time, in packet order) learns the responses of batch *k* into an [`Overlay`].
//! [`Names::commit`] writes the last value of each changed key to the engine, which returns a log
//! position. Workers that process batch *k* bring their reader to exactly that position. A key that
//! the batch changed is read from the overlay instead, as it was just before the current packet;
//! any other key is read from the reader. So the name of a flow depends on the packets before its
//! first one, not on the number of cores or on how far the name learner ran ahead.
//!
//! Order among candidates (`merge`): by what supports them ([`Standing`]), then newest first. A
//! response without a query never displaces one with a query (rule 9). A newer one always displaces
//! an older one of its kind (rule 3), except that an alias stays behind the name that it points to
//! if a client queried that name directly. The TTL is stored with the name and deletes nothing
//! (rule 5).
//!
//! A full budget evicts the names that were learned first, to the packet (`lives`).
//!
//! Cost: two engine reads and two writes for each address learned (pair and address); one to three
//! reads for each flow named.

mod alias;
mod candidate;
mod commit;
mod followed;
mod key;
mod literal;
mod lives;
mod observation;
mod overlay;
mod recall;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder::{Cache, KeyHash, LogPosition, Policy, Reader, Seconds, Writer};
use larder_wire::Addr;
use larder_wire::scope::Scope;

pub use candidate::{Candidate, Candidates, NameProtocol, Standing};
pub use key::{Key, scope_of};
pub use literal::is_address;
pub use observation::{AddressObservation, AliasObservation};
pub use overlay::{LearnedMarks, Marks, Overlay, Sieve};
pub(crate) use recall::FACTS_A_COMMIT;
pub use recall::Recall;
pub(crate) use view::give_name;
pub use view::{Ends, Entry, Found, Rival, Support, View};

use crate::Error;
use crate::options::Rules;
pub(crate) use alias::Alias;
use alias::TIME_STEP_NS;
use candidate::{Merging, merge};
use followed::{Followed, followed_hash};
use lives::{BIRTH_BYTES, Leavers, Lives};

/// Longest alias name that is stored as a key; a longer one ends its chain.
const ALIAS_KEY_BYTES_MAX: usize = 250;
/// CNAME steps that are followed back over messages, at most.
const CHAIN_STEPS_MAX: usize = 8;
/// Bits of the sieve of aliases that were ever learned: 64 KiB.
const ALIASES_SIEVED: usize = 1 << 19;
/// Bits of the sieve of clients whose queries were seen: 512 KiB.
const QUERIERS_SIEVED: usize = 1 << 22;
/// Candidates of an address, at most. On 89 real clients the right name is among four for 96.7 % of
/// the flows, among six for 97.6 %, among eight for 97.8 %, and without a limit for 98.2 %.
pub const CANDIDATES_MAX: usize = 8;

/// The serial side: learns names, and commits those of a batch to the engine.
pub struct Names {
    cache: Cache,
    writer: Writer,
    reader: Reader,
    overlay: Overlay,
    /// Keys changed in this batch, in order of first change, each with its hash and the overlay's
    /// entry for its value before the batch: the work list of the commit.
    changed: Vec<(KeyHash, u32)>,
    committed: usize,
    candidates_max: usize,
    rules: Rules,
    scratch: Vec<u8>,
    /// Which entries a full budget has evicted, and a value as it is stored.
    lives: Lives,
    leavers: Arc<Leavers>,
    stored: Vec<u8>,
    /// The head that was found last, and its name, packet and client.
    head: Vec<u8>,
    head_of_packet: u64,
    head_of_name: Vec<u8>,
    head_of_client: Addr,
    /// Hash of that client, if no alias had led it to the name.
    asker: Option<u16>,
    /// Clients that aliases led to the name, and to each target of the message's aliases.
    led_here: u8,
    led: Vec<u8>,
    followed: Followed,
    /// Names that were not learned because they are addresses.
    refused: u64,
    /// Clients whose queries were seen.
    queriers: Sieve,
    /// Keys of aliases that were ever learned. For most queried names there is none, and the engine
    /// need not be read.
    aliases: Sieve,
    /// The key of an alias, while it is looked up.
    alias_key: Vec<u8>,
    learned: Arc<LearnedMarks>,
}

/// The result of a commit, for the workers.
#[derive(Clone)]
pub struct Committed {
    /// The position that readers must reach.
    pub position: LogPosition,
    /// The changes of the batch.
    pub overlay: Arc<Overlay>,
}

impl Names {
    /// Builds the engine for `budget_bytes`, and readers for `workers`.
    pub fn new(
        budget_bytes: u64,
        workers: usize,
        seed: u64,
        candidates_max: usize,
        rules: Rules,
    ) -> Result<(Names, Vec<Reader>), Error> {
        let explain = |error: larder::Error| {
            Error::Options(format!("--names-budget: {error}; give it more room"))
        };
        let leavers = Arc::<Leavers>::default();
        let ours = Arc::clone(&leavers);
        let cache = Cache::builder()
            .budget(budget_bytes)
            // One writer needs no more.
            .shards(1)
            .readers_max(workers + 1)
            // Evictions must not depend on the number of cores: the budget pays for one index copy,
            // and those of the workers are extra (8 bytes an entry each).
            .readers_counted(1)
            // Nor on the order of reads: first in, first out needs no reports of reads.
            .policy(Policy::Fifo)
            .on_evicted(move |evicted| ours.take(evicted.key, evicted.value))
            .seed(seed)
            .build()
            .map_err(explain)?;
        let readers =
            (0..workers).map(|_| cache.reader()).collect::<Result<Vec<_>, _>>().map_err(explain)?;
        let reader = cache.reader().map_err(explain)?;
        let names = Names {
            writer: cache.writer(),
            reader,
            overlay: Overlay::default(),
            changed: Vec::new(),
            committed: 0,
            candidates_max: match rules.has(4) {
                true => candidates_max.clamp(1, CANDIDATES_MAX),
                false => 1,
            },
            rules,
            scratch: Vec::new(),
            lives: Lives::new(&cache.stats().map_err(explain)?),
            leavers,
            stored: Vec::new(),
            head: Vec::new(),
            head_of_packet: u64::MAX,
            head_of_name: Vec::new(),
            head_of_client: Addr::UNSPECIFIED,
            asker: None,
            led_here: 0,
            led: Vec::new(),
            followed: Followed::new(),
            refused: 0,
            queriers: Sieve::new(QUERIERS_SIEVED),
            aliases: Sieve::new(ALIASES_SIEVED),
            alias_key: Vec::new(),
            learned: Arc::new(LearnedMarks {
                named: Marks::new((budget_bytes / 256).clamp(1 << 10, 1 << 20) as usize),
                hosts: Marks::new(1 << 13),
                encrypted: Marks::new(1 << 13),
                of_all_networks: AtomicBool::new(false),
            }),
            cache,
        };
        Ok((names, readers))
    }

    /// Marks of all that was ever learned, for the workers.
    pub fn learned(&self) -> Arc<LearnedMarks> {
        Arc::clone(&self.learned)
    }

    /// Marks that `client` uses encrypted DNS.
    pub fn note_encrypted(&self, scope: Scope, client: Addr, packet: u64) {
        self.learned.encrypted.set(self.address_hash(scope, client), packet);
    }

    /// Notes that a query of `client` was seen: from now on, responses to it have one, or may be forged.
    pub(crate) fn note_querier(&self, scope: Scope, client: Addr) {
        self.queriers.add(self.address_hash(scope, client));
    }

    /// True if a query of `client` was seen.
    pub(crate) fn has_queried(&self, scope: Scope, client: Addr) -> bool {
        self.queriers.has(self.address_hash(scope, client))
    }

    /// The hash of an address in [`LearnedMarks`].
    pub fn address_hash(&self, scope: Scope, addr: Addr) -> u64 {
        Key::hash_of_address(&self.cache, scope, addr).get()
    }

    /// The engine, for its statistics and entries.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Learns an alias: a client that queries its owner gets the addresses of its target. An alias
    /// without a query never replaces one with a query.
    pub fn learn_alias(&mut self, alias: &AliasObservation<'_>) {
        self.change_alias(alias, |known, new| {
            let Some(known) = known else { return new };
            if known.standing == Standing::Confirmed && new.standing != Standing::Confirmed {
                return known;
            }
            // A time that changed with each response would have each alias written again and again.
            let is_same = (known.standing, known.owner) == (new.standing, new.owner)
                && new.time_ns < known.time_ns.saturating_add(TIME_STEP_NS);
            Alias { time_ns: if is_same { known.time_ns } else { new.time_ns }, ..new }
        });
    }

    /// Lets `choose` make the alias of a target from the one that is known and the new one.
    fn change_alias(
        &mut self,
        alias: &AliasObservation<'_>,
        choose: impl for<'a> FnOnce(Option<Alias<'a>>, Alias<'a>) -> Alias<'a>,
    ) {
        let AliasObservation { packet, time_ns, scope, client, owner, target, standing } = *alias;
        if target.len() > ALIAS_KEY_BYTES_MAX || owner == target {
            return;
        }
        if is_address(owner) || is_address(target) {
            self.refused += 1;
            return;
        }
        self.head_of_packet = u64::MAX;
        let hash = self.put_alias_key(target);
        let followed = followed_hash(self.address_hash(scope, client), hash);
        let is_new_client = self.followed.add(followed) && standing == Standing::Confirmed;
        self.aliases.add(hash.get());
        let key = std::mem::take(&mut self.alias_key);
        self.change(packet, hash, &key, |old, out| {
            out.clear();
            let known = Alias::read(old);
            let led = known.map_or(0, |known| known.led).saturating_add(is_new_client.into());
            choose(known, Alias { standing, led, time_ns, owner }).write(out);
        });
        self.alias_key = key;
    }

    /// Makes `alias_key` the key of the aliases of `target`, and returns its hash.
    fn put_alias_key(&mut self, target: &[u8]) -> KeyHash {
        self.alias_key.clear();
        self.alias_key.push(b'c');
        self.alias_key.extend_from_slice(target);
        self.cache.hash(&self.alias_key)
    }

    /// Learns one address of one response.
    pub fn learn(&mut self, observation: &AddressObservation<'_>) {
        // All addresses of a message share the queried name, its check and its head.
        let is_same =
            self.head_of_packet == observation.packet && self.head_of_name == observation.asked;
        if !is_same && is_address(observation.asked) {
            self.refused += 1;
            return;
        }
        let merging = self.merging();
        let own = Candidate {
            asked: observation.asked,
            head: &[],
            time_ns: observation.time_ns,
            ttl_s: observation.ttl_s,
            learned_from: observation.learned_from,
            standing: observation.standing,
            askers: 0,
            asker: 0,
            direct: false,
        };
        if observation.learned_from != NameProtocol::Dns {
            let key = Key::host(observation.scope, observation.addr);
            self.learned
                .hosts
                .set(self.address_hash(observation.scope, observation.addr), observation.packet);
            self.change_key(observation.packet, &key, |old, out| merge(old, &own, merging, out));
            return;
        }
        if observation.client != Addr::UNSPECIFIED {
            let key = Key::pair(observation.scope, observation.client, observation.addr);
            self.change_key(observation.packet, &key, |old, out| merge(old, &own, merging, out));
        }
        let mut head = std::mem::take(&mut self.head);
        if !is_same || self.head_of_client != observation.client {
            self.head_of(observation.asked, observation.standing, &mut head);
            self.head_of_packet = observation.packet;
            self.head_of_name.clear();
            self.head_of_name.extend_from_slice(observation.asked);
            self.head_of_client = observation.client;
            self.weigh(observation);
        }
        let key = Key::address(observation.scope, observation.addr);
        let chained = Candidate { head: &head, ..own };
        // A client chose the name that it queried; for other clients the names are weighed.
        let led = std::mem::take(&mut self.led);
        let merging = Merging {
            targets: observation.targets,
            led: &led,
            led_here: self.led_here,
            asker: self.asker,
            ..merging
        };
        let hash = self
            .change_key(observation.packet, &key, |old, out| merge(old, &chained, merging, out));
        self.head = head;
        self.led = led;
        self.learned.named.set(hash.get(), observation.packet);
    }

    /// Prefetches the lines that an observation about `addr` needs first, and returns the hashes of
    /// its keys for [`Names::prefetch_entry`].
    #[inline]
    pub fn prefetch(&self, scope: Scope, client: Addr, addr: Addr) -> [KeyHash; 2] {
        let hash = Key::hash_of_address(&self.cache, scope, addr);
        self.learned.named.prefetch(hash.get());
        let pair = self.cache.hash(Key::pair(scope, client, addr).as_bytes());
        self.reader.prefetch(hash);
        self.reader.prefetch(pair);
        [hash, pair]
    }

    /// Prefetches the marks that tell whether `asked` has a head, and whether the client with the
    /// hash `client` was led to it.
    pub fn prefetch_head(&mut self, client: u64, asked: &[u8]) -> KeyHash {
        let hash = self.put_alias_key(asked);
        self.aliases.prefetch(hash.get());
        self.followed.prefetch(followed_hash(client, hash));
        hash
    }

    /// The same for an alias of `target`, and its index line.
    pub fn prefetch_alias(&mut self, client: u64, target: &[u8]) -> KeyHash {
        let hash = self.prefetch_head(client, target);
        self.reader.prefetch(hash);
        hash
    }

    /// Prefetches the entry of a key whose index line has arrived.
    #[inline]
    pub fn prefetch_entry(&self, hash: KeyHash) {
        self.reader.prefetch_entry(hash);
    }

    /// Finds whether the client queried the name of a message directly, and how many clients
    /// aliases have led to that name and to the targets of the message's aliases.
    fn weigh(&mut self, observation: &AddressObservation<'_>) {
        let client = self.address_hash(observation.scope, observation.client);
        let hash = self.put_alias_key(observation.asked);
        let is_direct = observation.standing == Standing::Confirmed
            && observation.client != Addr::UNSPECIFIED
            && !self.followed.has(followed_hash(client, hash));
        self.asker = is_direct.then_some(client as u16);
        self.led_here = self.led_by(hash);
        self.led.clear();
        for target in observation.targets {
            let led = self.led_to(target);
            self.led.push(led);
        }
    }

    /// How many clients aliases have led to `name`.
    fn led_to(&mut self, name: &[u8]) -> u8 {
        let hash = self.put_alias_key(name);
        self.led_by(hash)
    }

    /// The same for the name whose alias key is in `alias_key`.
    fn led_by(&self, hash: KeyHash) -> u8 {
        // The key is the name after one byte.
        if self.alias_key.len() > 1 + ALIAS_KEY_BYTES_MAX || !self.aliases.has(hash.get()) {
            return 0;
        }
        self.alias_of(hash).map_or(0, |alias| alias.led)
    }

    /// The alias whose key is in `alias_key`.
    fn alias_of(&self, hash: KeyHash) -> Option<Alias<'_>> {
        let stored = match self.overlay.get(hash.get(), &self.alias_key, u64::MAX) {
            Some(stored) => stored,
            None => self.reader.get_hashed(hash, &self.alias_key, NOW).map(|entry| entry.value()),
        };
        Alias::read(self.lives.living(stored?))
    }

    fn merging(&self) -> Merging<'static> {
        let (limit, newer_first) = (self.candidates_max, self.rules.has(3));
        Merging { limit, newer_first, targets: &[], led: &[], led_here: 0, asker: None }
    }

    /// Names that were not learned because they are addresses.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Makes names without a network count in all networks ([`LearnedMarks::of_all_networks`]).
    pub fn count_in_all_networks(&self) {
        self.learned.of_all_networks.store(true, Ordering::Relaxed);
    }

    /// Visits each committed entry, oldest first.
    pub fn for_each(&self, mut take: impl FnMut(&[u8], &[u8])) {
        for entry in self.cache.iter(NOW) {
            let value = self.lives.living(entry.value());
            if !value.is_empty() {
                take(entry.key(), value);
            }
        }
    }

    /// The name at the head of the chains that lead to `name`; empty when that is `name` itself. A
    /// name with a query has a head only through aliases with a query.
    fn head_of(&mut self, name: &[u8], standing: Standing, head: &mut Vec<u8>) {
        head.clear();
        for _ in 0..CHAIN_STEPS_MAX {
            let at: &[u8] = if head.is_empty() { name } else { head };
            if at.len() > ALIAS_KEY_BYTES_MAX {
                return;
            }
            let hash = self.put_alias_key(at);
            if !self.aliases.has(hash.get()) {
                return;
            }
            let Some(alias) = self.alias_of(hash) else { return };
            if standing == Standing::Confirmed && alias.standing != Standing::Confirmed {
                return;
            }
            let owner = alias.owner;
            head.clear();
            // A loop of aliases has no head, and the root is none: the name as queried stays.
            if owner == name || owner.is_empty() {
                return;
            }
            head.extend_from_slice(owner);
        }
    }

    fn change_key(
        &mut self,
        packet: u64,
        key: &Key,
        write: impl FnOnce(&[u8], &mut Vec<u8>),
    ) -> KeyHash {
        let hash = self.cache.hash(key.as_bytes());
        self.change(packet, hash, key.as_bytes(), write);
        hash
    }

    /// Lets `write` make the new value of a key from the old one. An unchanged value costs nothing
    /// further: an alias that is learned again is the usual case.
    fn change(
        &mut self,
        packet: u64,
        hash: KeyHash,
        key: &[u8],
        write: impl FnOnce(&[u8], &mut Vec<u8>),
    ) {
        let Names { overlay, reader, scratch, changed, lives, stored, cache, .. } = self;
        let value_bytes_max = cache.value_bytes_max(key.len()).saturating_sub(BIRTH_BYTES);
        let store = |old: &[u8]| {
            let living = lives.living(old);
            write(living, scratch);
            if scratch.len() > value_bytes_max {
                keep_best(scratch, value_bytes_max);
            }
            let is_new = !scratch.is_empty() && *scratch != living;
            if is_new {
                lives.store(key.len(), old, scratch, stored);
            }
            is_new.then(|| lives.horizon())
        };
        let before;
        let horizon = match overlay.find(hash.get(), key, u64::MAX).copied() {
            Some(latest) => {
                let horizon = store(latest.value.map_or(&[][..], |range| overlay.slice(range)));
                if horizon.is_some() {
                    overlay.add(hash.get(), &latest, packet, stored);
                }
                horizon
            }
            None => {
                before = reader.get_hashed(hash, key, NOW);
                let horizon = store(before.as_deref().unwrap_or_default());
                if horizon.is_some() {
                    let first = overlay.begin(hash.get(), key, before.as_deref(), packet, stored);
                    changed.push((hash, first));
                }
                horizon
            }
        };
        if let Some(horizon) = horizon {
            overlay.move_horizon(packet, horizon);
        }
    }

    /// A view for the serial side, of everything learned so far.
    pub fn view(&self) -> View<'_> {
        View {
            reader: &self.reader,
            overlay: &self.overlay,
            cache: &self.cache,
            rules: self.rules,
            learned: &self.learned,
            scope: Scope::NONE,
        }
    }
}

/// A small budget has small slots: the best candidate alone may fit.
fn keep_best(value: &mut Vec<u8>, bytes_max: usize) {
    let mut best = Vec::new();
    if let Some(candidate) = Candidates::new(value).next() {
        candidate.write(&mut best);
    }
    best.truncate(if best.len() > bytes_max { 0 } else { best.len() });
    *value = best;
}

/// Entries never expire by the engine's clock: TTL marks a name stale, it does not delete it.
const NOW: Seconds = Seconds(1);

impl Names {
    /// Entries (addresses, pairs, hosts, aliases), and evicted entries.
    pub fn counts(&self) -> (u64, u64) {
        self.lives.counts()
    }
}

#[cfg(test)]
mod tests;
