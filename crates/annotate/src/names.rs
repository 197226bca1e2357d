//! What is known of names, and which name an address gets.
//!
//! Names live in the engine (crate `larder`), under one byte budget, as five kinds of entry:
//!
//! | key | value | feeds |
//! |---|---|---|
//! | `a` address | up to eight [`Candidate`]s, best first | who has no pair: the chain's head |
//! | `p` client, address | up to eight candidates, best first | the client that asked: as it asked |
//! | `h` address | up to eight candidates, best first | what a host says of itself |
//! | `c` name | the name whose CNAME points here | heads of chains that span messages |
//!
//! **Learning is serial, looking up is parallel, and both agree to the packet.** The edge (one
//! thread at a time, in packet order) learns the answers of batch *k* into an [`Overlay`], and
//! [`Names::commit`] writes the last value of each changed key to the engine, which gives a log
//! position. Workers that process batch *k* bring their proxy to exactly that position. A key that
//! the batch changed is read from the overlay instead, as it was just before the packet at hand;
//! any other key is read from the proxy. So what a flow is called depends on the packets before
//! its first one, not on the number of cores or on how far the edge ran ahead.
//!
//! Order among candidates (`merge`): solicited before unsolicited, then newest first. An
//! unsolicited answer never displaces a solicited one (rule 9); a newer one always displaces an
//! older one of its kind (rule 3). TTL is kept with the name and deletes nothing (rule 5).
//!
//! Cost: two engine reads and two writes an address learned (pair and address); one to three
//! reads a flow named.

mod candidate;
mod overlay;
mod view;

use std::sync::Arc;

use larder::{Cache, LogPosition, Policy, Proxy, Seconds, Ttl, Writer};
use larder_wire::Addr;

pub use candidate::{Candidate, Candidates, Teacher};
pub use overlay::{Facts, Marks, Overlay};
pub use view::{Entry, Found, View};

use crate::Error;
use crate::options::Rules;
use candidate::{Merging, merge};

/// Longest alias name that is kept as a key; longer ones end their chain.
const ALIAS_KEY_BYTES_MAX: usize = 250;
/// Most CNAME steps that are followed back over messages.
const CHAIN_STEPS_MAX: usize = 8;
/// Most candidates an address has room for. On 89 real clients the right name is among four for
/// 96.7 % of the flows, among six for 97.6 %, among eight for 97.8 %, and without a limit for 98.2 %.
pub const CANDIDATES_MAX: usize = 8;

/// Keys of the engine's entries, built without allocation.
#[derive(Clone, Copy)]
pub struct Key {
    bytes: [u8; 1 + 16 + 16],
    len: u8,
}

impl Key {
    fn of(kind: u8, addrs: &[Addr]) -> Key {
        let mut key = Key { bytes: [0; 33], len: 1 };
        key.bytes[0] = kind;
        for addr in addrs {
            let octets = addr.octets();
            let end = usize::from(key.len) + octets.len();
            key.bytes[usize::from(key.len)..end].copy_from_slice(octets);
            key.len = end as u8;
        }
        key
    }

    /// Names of an address.
    pub fn address(addr: Addr) -> Key {
        Key::of(b'a', &[addr])
    }

    /// Names that one client asked for, of an address. IPv4 pairs are 9 octets, IPv6 pairs 33;
    /// a mixed pair is 21, so the lengths tell the kinds apart.
    pub fn pair(client: Addr, addr: Addr) -> Key {
        Key::of(if client.is_v4() { b'p' } else { b'P' }, &[client, addr])
    }

    /// Names that a host gives itself.
    pub fn host(addr: Addr) -> Key {
        Key::of(b'h', &[addr])
    }

    /// The octets.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// An address that a message names.
#[derive(Clone, Copy, Debug)]
pub struct Lesson<'a> {
    /// Number of the packet that ended the message.
    pub packet: u64,
    /// Time of that packet, ns since 1970 UTC.
    pub time_ns: i64,
    /// Who asked; unspecified when nobody did or nobody knows.
    pub client: Addr,
    /// The name as asked.
    pub asked: &'a [u8],
    /// The address.
    pub addr: Addr,
    /// TTL, seconds: the least along the chain.
    pub ttl_s: u32,
    /// Who taught it.
    pub teacher: Teacher,
    /// The question was seen, or questions are not visible.
    pub solicited: bool,
}

/// The serial side: learns, and commits a batch's lessons to the engine.
pub struct Names {
    cache: Cache,
    writer: Writer,
    proxy: Proxy,
    overlay: Overlay,
    /// Keys changed in this batch, in order of first change, each by its hash and by the overlay's
    /// entry for its value before the batch; the commit's work list.
    changed: Vec<(u64, u32)>,
    committed: usize,
    candidates_max: usize,
    rules: Rules,
    scratch: Vec<u8>,
    /// The head found last, and for what.
    head: Vec<u8>,
    head_of_packet: u64,
    head_of_name: Vec<u8>,
    facts: Arc<Facts>,
    batch: u64,
}

/// What a commit hands to the workers.
#[derive(Clone)]
pub struct Committed {
    /// Where proxies must be.
    pub position: LogPosition,
    /// What the batch changed.
    pub overlay: Arc<Overlay>,
    /// Number of the commit, as [`Facts`] have it.
    pub batch: u64,
}

impl Names {
    /// Builds the engine for `budget_bytes`, and proxies for `workers`.
    pub fn new(
        budget_bytes: u64,
        workers: usize,
        seed: u64,
        candidates_max: usize,
        rules: Rules,
    ) -> Result<(Names, Vec<Proxy>), Error> {
        let explain = |error: larder::Error| {
            Error::Options(format!("--names-budget: {error}; give it more room"))
        };
        let cache = Cache::builder()
            .budget(budget_bytes)
            .proxies_max(workers + 1)
            // What is evicted must not depend on the number of cores: the budget pays for one
            // index copy, the workers' own come on top (8 octets an entry each).
            .proxies_counted(1)
            // Nor on who reads when: first in, first out needs no reports of reads.
            .policy(Policy::Fifo)
            .seed(seed)
            .build()
            .map_err(explain)?;
        let proxies =
            (0..workers).map(|_| cache.proxy()).collect::<Result<Vec<_>, _>>().map_err(explain)?;
        let proxy = cache.proxy().map_err(explain)?;
        let names = Names {
            writer: cache.writer(),
            proxy,
            overlay: Overlay::default(),
            changed: Vec::new(),
            committed: 0,
            candidates_max: match rules.has(4) {
                true => candidates_max.clamp(1, CANDIDATES_MAX),
                false => 1,
            },
            rules,
            scratch: Vec::new(),
            head: Vec::new(),
            head_of_packet: u64::MAX,
            head_of_name: Vec::new(),
            facts: Arc::new(Facts {
                named: Marks::new((budget_bytes / 256).clamp(1 << 10, 1 << 20) as usize),
                hosts: Marks::new(1 << 13),
                encrypted: Marks::new(1 << 13),
            }),
            batch: 0,
            cache,
        };
        Ok((names, proxies))
    }

    /// What was ever learned, for the workers.
    pub fn facts(&self) -> Arc<Facts> {
        Arc::clone(&self.facts)
    }

    /// Notes that `client` uses encrypted DNS.
    pub fn note_encrypted(&self, client: Addr) {
        self.facts.encrypted.set(self.address_hash(client), self.batch);
    }

    fn address_hash(&self, addr: Addr) -> u64 {
        self.cache.hash(Key::address(addr).as_bytes()).get()
    }

    /// The engine, for its statistics and entries.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Learns that `target` is an alias: who asked for `owner` gets what `target` has.
    pub fn learn_alias(&mut self, packet: u64, owner: &[u8], target: &[u8]) {
        if target.len() > ALIAS_KEY_BYTES_MAX || owner == target {
            return;
        }
        self.head_of_packet = u64::MAX;
        let mut key = Vec::with_capacity(1 + target.len());
        key.push(b'c');
        key.extend_from_slice(target);
        self.change(packet, &key, |_, out| {
            out.clear();
            out.extend_from_slice(owner);
        });
    }

    /// Learns one address of one answer.
    pub fn learn(&mut self, lesson: &Lesson<'_>) {
        let merging = self.merging();
        let own = Candidate {
            asked: lesson.asked,
            head: &[],
            time_ns: lesson.time_ns,
            ttl_s: lesson.ttl_s,
            teacher: lesson.teacher,
            solicited: lesson.solicited,
        };
        if lesson.teacher != Teacher::Dns {
            let key = Key::host(lesson.addr);
            self.facts.hosts.set(self.address_hash(lesson.addr), self.batch);
            self.change(lesson.packet, key.as_bytes(), |old, out| merge(old, &own, merging, out));
            return;
        }
        if lesson.client != Addr::UNSPECIFIED {
            let key = Key::pair(lesson.client, lesson.addr);
            self.change(lesson.packet, key.as_bytes(), |old, out| merge(old, &own, merging, out));
        }
        let mut head = std::mem::take(&mut self.head);
        // All addresses of a message share the name asked, and so its head.
        if self.head_of_packet != lesson.packet || self.head_of_name != lesson.asked {
            self.head_of(lesson.asked, &mut head);
            self.head_of_packet = lesson.packet;
            self.head_of_name.clear();
            self.head_of_name.extend_from_slice(lesson.asked);
        }
        let key = Key::address(lesson.addr);
        let chained = Candidate { head: &head, ..own };
        self.change(lesson.packet, key.as_bytes(), |old, out| merge(old, &chained, merging, out));
        self.head = head;
        self.facts.named.set(self.address_hash(lesson.addr), self.batch);
    }

    /// Asks for the index lines that a lesson about `addr` will want.
    #[inline]
    pub fn prefetch(&self, client: Addr, addr: Addr) {
        self.proxy.prefetch(self.cache.hash(Key::address(addr).as_bytes()));
        self.proxy.prefetch(self.cache.hash(Key::pair(client, addr).as_bytes()));
    }

    fn merging(&self) -> Merging {
        Merging { limit: self.candidates_max, newer_first: self.rules.has(3) }
    }

    /// Learns a fact that was known once ([`crate::names_file`]); `None` when it makes no sense.
    pub fn recall(
        &mut self,
        kind: &str,
        client: Option<Addr>,
        addr: Option<Addr>,
        candidate: &Candidate<'_>,
    ) -> Option<()> {
        let merging = self.merging();
        let key = match kind {
            "alias" => {
                self.learn_alias(0, candidate.head, candidate.asked);
                return Some(());
            }
            "address" => Key::address(addr?),
            "pair" => Key::pair(client?, addr?),
            "host" => Key::host(addr?),
            _ => return None,
        };
        self.change(0, key.as_bytes(), |old, out| merge(old, candidate, merging, out));
        let facts = if kind == "host" { &self.facts.hosts } else { &self.facts.named };
        facts.set(self.address_hash(addr?), self.batch);
        Some(())
    }

    /// Hands out every entry committed, oldest first.
    pub fn for_each(&self, mut take: impl FnMut(&[u8], &[u8])) {
        for entry in self.cache.iter(NOW) {
            take(entry.key(), entry.value());
        }
    }

    /// The name at the head of the chains that lead to `name`; empty when that is `name` itself.
    fn head_of(&mut self, name: &[u8], head: &mut Vec<u8>) {
        head.clear();
        let mut key = Vec::with_capacity(1 + ALIAS_KEY_BYTES_MAX);
        let mut at = name.to_vec();
        for _ in 0..CHAIN_STEPS_MAX {
            if at.len() > ALIAS_KEY_BYTES_MAX {
                return;
            }
            key.clear();
            key.push(b'c');
            key.extend_from_slice(&at);
            let hash = self.cache.hash(&key).get();
            let found = match self.overlay.get(hash, &key, u64::MAX) {
                Some(value) => value.map(<[u8]>::to_vec),
                None => self.proxy.get(&key, NOW).map(|entry| entry.to_vec()),
            };
            match found {
                // A loop of aliases has no head; the name as asked stands.
                Some(owner) if owner == name => return head.clear(),
                Some(owner) => {
                    head.clear();
                    head.extend_from_slice(&owner);
                    at = owner;
                }
                None => return,
            }
        }
    }

    fn change(&mut self, packet: u64, key: &[u8], write: impl FnOnce(&[u8], &mut Vec<u8>)) {
        let hash = self.cache.hash(key);
        let known = self.overlay.find(hash.get(), key, u64::MAX).copied();
        let latest = known.unwrap_or_else(|| {
            let before = self.proxy.get_hashed(hash, key, NOW);
            let range = self.overlay.keep(key);
            let at = self.overlay.add(hash.get(), range, 0, before.as_deref());
            self.changed.push((hash.get(), at));
            self.overlay.changes[at as usize]
        });
        let old = latest.value.map_or(&[][..], |range| self.overlay.slice(range));
        write(old, &mut self.scratch);
        if self.scratch != old {
            self.overlay.add(hash.get(), latest.key, packet, Some(&self.scratch));
        }
    }

    /// Writes the batch's changes to the engine. `Ok(None)`: a proxy stands in the way; let every
    /// worker finish the batches before this one and sync its proxy, then call again.
    pub fn commit(&mut self) -> Result<Option<Committed>, Error> {
        while let Some(&(hash, first)) = self.changed.get(self.committed) {
            let key = self.overlay.slice(self.overlay.changes[first as usize].key);
            if let Some(Some(value)) = self.overlay.get(hash, key, u64::MAX) {
                match self.writer.insert(key, value, Ttl::FOREVER, NOW) {
                    Ok(_) => {}
                    Err(larder::Error::Stalled { .. }) => {
                        self.proxy.sync();
                        return Ok(None);
                    }
                    // A small budget has small slots: the best candidate alone may fit.
                    Err(larder::Error::ValueTooLarge { bytes_max, .. }) => {
                        let best = Candidates::new(value).next();
                        self.scratch.clear();
                        if let Some(best) = best {
                            best.write(&mut self.scratch);
                        }
                        if (1..=bytes_max).contains(&self.scratch.len()) {
                            match self.writer.insert(key, &self.scratch, Ttl::FOREVER, NOW) {
                                Err(larder::Error::Stalled { .. }) => {
                                    self.proxy.sync();
                                    return Ok(None);
                                }
                                other => other.map_err(engine_failed)?,
                            }
                        }
                    }
                    Err(error) => return Err(engine_failed(error)),
                }
            }
            self.committed += 1;
        }
        let position = match self.writer.flush() {
            Ok(position) => position,
            Err(larder::Error::Stalled { .. }) => {
                self.proxy.sync();
                return Ok(None);
            }
            Err(error) => return Err(engine_failed(error)),
        };
        self.proxy.sync();
        self.changed.clear();
        self.committed = 0;
        let batch = self.batch;
        self.batch += 1;
        let next = Overlay::like(&self.overlay);
        let overlay = Arc::new(std::mem::replace(&mut self.overlay, next));
        Ok(Some(Committed { position, overlay, batch }))
    }

    /// A view for the serial side itself: sees everything learned so far.
    pub fn view(&self) -> View<'_> {
        View {
            proxy: &self.proxy,
            overlay: &self.overlay,
            cache: &self.cache,
            rules: self.rules,
            facts: &self.facts,
            batch: self.batch,
        }
    }
}

fn engine_failed(error: larder::Error) -> Error {
    Error::Options(format!("the names' cache failed: {error}"))
}

/// Entries never expire by the engine's clock: TTL marks a name stale, it does not delete it.
const NOW: Seconds = Seconds(1);

impl Names {
    /// Entries in the engine (addresses, pairs, hosts, aliases), and how many left for want of room.
    pub fn counts(&self) -> (u64, u64) {
        self.cache.stats().map_or((0, 0), |stats| (stats.entries, stats.evicted))
    }
}

#[cfg(test)]
mod tests;
