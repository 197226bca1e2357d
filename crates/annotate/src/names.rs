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

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use larder::{Cache, KeyHash, LogPosition, Proxy, Seconds, Ttl, Writer};
use larder_wire::{Addr, Name};

use crate::Error;
use crate::options::Rules;
use crate::record::NameSource;

/// Longest alias name that is kept as a key; longer ones end their chain.
const ALIAS_KEY_BYTES_MAX: usize = 250;
/// Most CNAME steps that are followed back over messages.
const CHAIN_STEPS_MAX: usize = 8;
/// Most candidates an address has room for. On 89 real clients the right name is among four for
/// 96.7 % of the flows, among six for 97.6 %, among eight for 97.8 %, and without a limit for 98.2 %.
pub const CANDIDATES_MAX: usize = 8;

/// Who taught a name. Stored in entries, so the numbers are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Teacher {
    /// A unicast DNS answer.
    Dns = 0,
    /// Multicast DNS.
    Mdns = 1,
    /// LLMNR.
    Llmnr = 2,
    /// NetBIOS name service.
    Nbns = 3,
    /// DHCP.
    Dhcp = 4,
    /// A reverse lookup.
    Ptr = 5,
}

impl Teacher {
    fn from_bits(bits: u8) -> Teacher {
        match bits & 7 {
            1 => Teacher::Mdns,
            2 => Teacher::Llmnr,
            3 => Teacher::Nbns,
            4 => Teacher::Dhcp,
            5 => Teacher::Ptr,
            _ => Teacher::Dns,
        }
    }

    /// The source that a log line names for an address-wide name of this teacher.
    fn source(self) -> NameSource {
        match self {
            Teacher::Dns => NameSource::DnsAddress,
            Teacher::Mdns => NameSource::Mdns,
            Teacher::Llmnr => NameSource::Llmnr,
            Teacher::Nbns => NameSource::Nbns,
            Teacher::Dhcp => NameSource::Dhcp,
            Teacher::Ptr => NameSource::Ptr,
        }
    }
}

/// One name that an address may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The name as asked.
    pub asked: &'a [u8],
    /// The head of the CNAME chain over several messages; empty when it is `asked`.
    pub head: &'a [u8],
    /// Time learned, ns since 1970 UTC.
    pub time_ns: i64,
    /// TTL of the answer, seconds.
    pub ttl_s: u32,
    /// Who taught it.
    pub teacher: Teacher,
    /// The question was seen, or questions are not visible.
    pub solicited: bool,
}

const SOLICITED_BIT: u8 = 0x80;
/// flags u8, ttl u32, time i64, two lengths u16.
const CANDIDATE_HEADER_BYTES: usize = 1 + 4 + 8 + 2 + 2;

impl<'a> Candidate<'a> {
    fn write(&self, out: &mut Vec<u8>) {
        let flags = self.teacher as u8 | if self.solicited { SOLICITED_BIT } else { 0 };
        out.push(flags);
        out.extend_from_slice(&self.ttl_s.to_le_bytes());
        out.extend_from_slice(&self.time_ns.to_le_bytes());
        out.extend_from_slice(&(self.asked.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.head.len() as u16).to_le_bytes());
        out.extend_from_slice(self.asked);
        out.extend_from_slice(self.head);
    }

    fn read(bytes: &'a [u8]) -> Option<(Candidate<'a>, &'a [u8])> {
        let (header, rest) = bytes.split_at_checked(CANDIDATE_HEADER_BYTES)?;
        let asked_len = usize::from(u16::from_le_bytes([header[13], header[14]]));
        let head_len = usize::from(u16::from_le_bytes([header[15], header[16]]));
        let (asked, rest) = rest.split_at_checked(asked_len)?;
        let (head, rest) = rest.split_at_checked(head_len)?;
        let candidate = Candidate {
            asked,
            head,
            ttl_s: u32::from_le_bytes(*header[1..].first_chunk()?),
            time_ns: i64::from_le_bytes(*header[5..].first_chunk()?),
            teacher: Teacher::from_bits(header[0]),
            solicited: header[0] & SOLICITED_BIT != 0,
        };
        Some((candidate, rest))
    }

    /// True when the answer's TTL had run out at `now_ns`.
    pub fn is_stale_at(&self, now_ns: i64) -> bool {
        let life_ns = i64::from(self.ttl_s) * 1_000_000_000;
        now_ns.saturating_sub(self.time_ns) > life_ns
    }
}

/// The candidates of an entry's value, best first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Candidates<'a>(&'a [u8]);

impl<'a> Candidates<'a> {
    /// Over an entry's value.
    pub fn new(value: &'a [u8]) -> Candidates<'a> {
        Candidates(value)
    }
}

impl<'a> Iterator for Candidates<'a> {
    type Item = Candidate<'a>;

    fn next(&mut self) -> Option<Candidate<'a>> {
        let (candidate, rest) = Candidate::read(self.0)?;
        self.0 = rest;
        Some(candidate)
    }
}

/// How candidates of one entry are joined.
#[derive(Clone, Copy)]
struct Merging {
    /// Most that are kept.
    limit: usize,
    /// Rule 3.
    newer_first: bool,
}

/// Writes to `out` the entry `old` with `new` learned on top.
fn merge(old: &[u8], new: &Candidate<'_>, merging: Merging, out: &mut Vec<u8>) {
    out.clear();
    let mut left = merging.limit;
    let mut placed = false;
    for candidate in Candidates::new(old) {
        if left == 0 {
            return;
        }
        // Rule 9: what was asked for stays before what was not, and is not renewed by it.
        if !placed && merging.newer_first && (new.solicited || !candidate.solicited) {
            new.write(out);
            placed = true;
            left -= 1;
        }
        if candidate.asked == new.asked {
            if placed {
                continue;
            }
            placed = true;
        }
        if left == 0 {
            return;
        }
        candidate.write(out);
        left -= 1;
    }
    if !placed && left > 0 {
        new.write(out);
    }
}

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

/// A hasher for keys that are hashes already.
#[derive(Default)]
pub struct Prehashed(u64);

impl Hasher for Prehashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only u64 keys are hashed");
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// What one batch changed: for each key its value before the batch and after each change.
///
/// Changes lie in one list, keys and values in one arena; a key's changes are chained from the
/// newest to the value before the batch, so that a lookup ends at the first that is old enough.
#[derive(Default)]
pub struct Overlay {
    /// Hash of a key -> its newest change. Keys of one hash share a chain.
    newest: HashMap<u64, u32, BuildHasherDefault<Prehashed>>,
    changes: Vec<Change>,
    bytes: Vec<u8>,
}

const NO_CHANGE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Change {
    key: (u32, u32),
    value: Option<(u32, u32)>,
    /// The change acts on packets after this one; 0 = the value before the batch.
    packet: u64,
    /// The change before, of the same hash.
    older: u32,
}

impl Overlay {
    /// Room for about as much as the batch before needed.
    fn like(other: &Overlay) -> Overlay {
        Overlay {
            newest: HashMap::with_capacity_and_hasher(other.newest.len(), Default::default()),
            changes: Vec::with_capacity(other.changes.len()),
            bytes: Vec::with_capacity(other.bytes.len()),
        }
    }

    fn slice(&self, range: (u32, u32)) -> &[u8] {
        &self.bytes[range.0 as usize..range.1 as usize]
    }

    fn keep(&mut self, bytes: &[u8]) -> (u32, u32) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        (start, self.bytes.len() as u32)
    }

    /// The latest change of a key that acts on packet `packet`.
    fn find(&self, hash: u64, key: &[u8], packet: u64) -> Option<&Change> {
        let mut at = *self.newest.get(&hash)?;
        while let Some(change) = self.changes.get(at as usize) {
            if change.packet < packet && self.slice(change.key) == key {
                return Some(change);
            }
            at = change.older;
        }
        None
    }

    /// The value of a key just before packet `packet`; outer `None` when the batch leaves the key
    /// as it is in the engine.
    fn get(&self, hash: u64, key: &[u8], packet: u64) -> Option<Option<&[u8]>> {
        let change = self.find(hash, key, packet)?;
        Some(change.value.map(|range| self.slice(range)))
    }

    fn add(&mut self, hash: u64, key: (u32, u32), packet: u64, value: Option<&[u8]>) -> u32 {
        let value = value.map(|value| self.keep(value));
        let at = self.changes.len() as u32;
        let older = self.newest.insert(hash, at).unwrap_or(NO_CHANGE);
        self.changes.push(Change { key, value, packet, older });
        at
    }

    /// True when the batch taught nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Facts that only grow, kept a hash slot each, with the batch that taught them. They answer
/// "why is there no name", may err on the side of a collision, and never name anything.
pub struct Marks {
    slots: Box<[AtomicU32]>,
}

impl Marks {
    /// Room for about `count` facts.
    pub fn new(count: usize) -> Marks {
        Marks { slots: (0..count.next_power_of_two()).map(|_| AtomicU32::new(0)).collect() }
    }

    fn slot(&self, hash: u64) -> &AtomicU32 {
        &self.slots[hash as usize & (self.slots.len() - 1)]
    }

    /// Notes a fact learned in batch `batch`. One writer; first come stays.
    pub fn set(&self, hash: u64, batch: u64) {
        let slot = self.slot(hash);
        // Relaxed: whoever may act on batch `batch` has synchronised with the edge through the
        // scheduler's lock, and later batches' marks are told apart by their number.
        if slot.load(Ordering::Relaxed) == 0 {
            slot.store((batch as u32).saturating_add(1), Ordering::Relaxed);
        }
    }

    /// True when the fact was noted in batch `batch` or before.
    pub fn has(&self, hash: u64, batch: u64) -> bool {
        let noted = self.slot(hash).load(Ordering::Relaxed);
        noted != 0 && u64::from(noted) <= batch + 1
    }
}

/// What was ever learned, at a glance: most addresses have no name, and are not looked up in vain.
pub struct Facts {
    /// Addresses that were named by DNS: no name in the cache then means that it was evicted.
    pub named: Marks,
    /// Addresses whose hosts said their own name. Few, so that these marks stay near.
    pub hosts: Marks,
    /// Clients that use encrypted DNS.
    pub encrypted: Marks,
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

/// A worker's view of names at one batch.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Its proxy, synced to the batch's position.
    pub proxy: &'a Proxy,
    /// What the batch changed.
    pub overlay: &'a Overlay,
    /// For hashing.
    pub cache: &'a Cache,
    /// Naming rules in force.
    pub rules: Rules,
    /// What was ever learned.
    pub facts: &'a Facts,
    /// The batch.
    pub batch: u64,
}

/// A name for one end of a flow, before it is weighed against what the flow says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The name.
    pub name: Name,
    /// Where it came from.
    pub source: NameSource,
    /// When it was learned, ns since 1970 UTC.
    pub time_ns: i64,
    /// It was past its TTL at the time asked for.
    pub stale: bool,
    /// Other names for the address, best first.
    pub rivals: Vec<Name>,
}

impl<'a> View<'a> {
    /// The candidates of a key just before packet `packet`.
    #[inline]
    pub fn candidates(&self, key: &Key, packet: u64) -> Option<Entry<'a>> {
        self.candidates_hashed(self.cache.hash(key.as_bytes()), key, packet)
    }

    /// The same, for who has the hash already.
    #[inline]
    pub fn candidates_hashed(&self, hash: KeyHash, key: &Key, packet: u64) -> Option<Entry<'a>> {
        let bytes = key.as_bytes();
        if !self.overlay.is_empty()
            && let Some(changed) = self.overlay.get(hash.get(), bytes, packet)
        {
            return changed.map(Entry::Overlay);
        }
        self.proxy.get_hashed(hash, bytes, NOW).map(Entry::Proxy)
    }

    /// The hash of an address as [`Facts`] knows it.
    #[inline]
    pub fn address_hash(&self, addr: Addr) -> u64 {
        self.cache.hash(Key::address(addr).as_bytes()).get()
    }

    /// The name of a flow's responder (rules 1 to 5).
    pub fn destination(&self, client: Addr, addr: Addr, packet: u64, now_ns: i64) -> Option<Found> {
        let key = Key::address(addr);
        let hash = self.cache.hash(key.as_bytes());
        if !self.facts.named.has(hash.get(), self.batch) {
            return self.host(addr, packet, now_ns);
        }
        let mut weighed = Weighed::new(now_ns, self.rules);
        let pair = self.rules.has(2).then(|| self.candidates(&Key::pair(client, addr), packet));
        if let Some(entry) = pair.flatten() {
            for candidate in Candidates::new(&entry) {
                weighed.add(&candidate, candidate.asked, NameSource::DnsPair);
            }
        }
        if let Some(entry) = self.candidates_hashed(hash, &key, packet) {
            for candidate in Candidates::new(&entry) {
                if candidate.head.is_empty() || !self.rules.has(2) {
                    weighed.add(&candidate, candidate.asked, NameSource::DnsAddress);
                } else {
                    weighed.add(&candidate, candidate.head, NameSource::DnsChain);
                }
            }
        }
        if weighed.found.is_none() {
            return self.host(addr, packet, now_ns);
        }
        weighed.found
    }

    /// The name that a host gives itself (rule 8: all that a flow's initiator may have).
    pub fn host(&self, addr: Addr, packet: u64, now_ns: i64) -> Option<Found> {
        let mut weighed = Weighed::new(now_ns, self.rules);
        let has_said = self.facts.hosts.has(self.address_hash(addr), self.batch);
        if !has_said || !self.rules.has(8) {
            return None;
        }
        let entry = self.candidates(&Key::host(addr), packet)?;
        for candidate in Candidates::new(&entry) {
            weighed.add(&candidate, candidate.asked, candidate.teacher.source());
        }
        weighed.found
    }
}

/// An entry's value, wherever it lies.
pub enum Entry<'a> {
    /// In the engine.
    Proxy(larder::Entry<'a>),
    /// In the batch's overlay.
    Overlay(&'a [u8]),
}

impl std::ops::Deref for Entry<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Entry::Proxy(entry) => entry,
            Entry::Overlay(bytes) => bytes,
        }
    }
}

/// Candidates come in best first; the first is the name, the others are rivals.
struct Weighed {
    now_ns: i64,
    rules: Rules,
    found: Option<Found>,
}

impl Weighed {
    fn new(now_ns: i64, rules: Rules) -> Weighed {
        Weighed { now_ns, rules, found: None }
    }

    fn add(&mut self, candidate: &Candidate<'_>, name: &[u8], source: NameSource) {
        if !self.rules.has(5) && candidate.is_stale_at(self.now_ns) {
            return;
        }
        match &mut self.found {
            None => {
                self.found = Some(Found {
                    name: Name::from_canonical(name),
                    source,
                    time_ns: candidate.time_ns,
                    stale: candidate.is_stale_at(self.now_ns),
                    rivals: Vec::new(),
                });
            }
            Some(found) => {
                let known = found.name.as_bytes() == name
                    || found.rivals.iter().any(|rival| rival.as_bytes() == name);
                if !known {
                    found.rivals.push(Name::from_canonical(name));
                }
            }
        }
    }
}

impl Names {
    /// Entries in the engine (addresses, pairs, hosts, aliases), and how many left for want of room.
    pub fn counts(&self) -> (u64, u64) {
        self.cache.stats().map_or((0, 0), |stats| (stats.entries, stats.evicted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MERGING: Merging = Merging { limit: 3, newer_first: true };

    fn candidate(asked: &str, time_ns: i64, solicited: bool) -> Candidate<'_> {
        Candidate {
            asked: asked.as_bytes(),
            head: b"",
            time_ns,
            ttl_s: 60,
            teacher: Teacher::Dns,
            solicited,
        }
    }

    fn merged(steps: &[Candidate<'_>], merging: Merging) -> Vec<(String, i64)> {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for step in steps {
            merge(&old, step, merging, &mut new);
            std::mem::swap(&mut old, &mut new);
        }
        Candidates::new(&old)
            .map(|c| (String::from_utf8_lossy(c.asked).into_owned(), c.time_ns))
            .collect()
    }

    fn names(merged: &[(String, i64)]) -> String {
        merged.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Newest first, each name once, no more than the limit; a name asked again comes to the front.
    #[test]
    fn newer_names_come_first() {
        let step = |name, time| candidate(name, time, true);
        let all = [step("a", 1), step("b", 2), step("c", 3), step("a", 4), step("d", 5)];
        let result = merged(&all, MERGING);
        assert_eq!(names(&result), "dac");
        assert_eq!(result[1].1, 4);
        let first_writer = Merging { newer_first: false, ..MERGING };
        assert_eq!(names(&merged(&all, first_writer)), "abc");
    }

    /// An unsolicited name stands behind every solicited one, pushes none out, and does not renew
    /// one that it repeats.
    #[test]
    fn unsolicited_names_displace_nothing() {
        let (asked, forged) = (|n, t| candidate(n, t, true), |n, t| candidate(n, t, false));
        assert_eq!(names(&merged(&[asked("a", 1), forged("x", 2)], MERGING)), "ax");
        let full = [asked("a", 1), asked("b", 2), asked("c", 3), forged("x", 4)];
        assert_eq!(names(&merged(&full, MERGING)), "cba");
        let repeated = merged(&[asked("a", 1), forged("a", 9)], MERGING);
        assert_eq!(repeated, [("a".to_owned(), 1)]);
        let promoted = merged(&[forged("x", 1), asked("a", 2), asked("x", 3)], MERGING);
        assert_eq!(names(&promoted), "xa");
    }

    /// A key changed in a batch reads as it was before each packet, and as the engine has it where
    /// the batch left it alone; keys of one hash are told apart.
    #[test]
    fn an_overlay_is_exact_to_the_packet() {
        let mut overlay = Overlay::default();
        let (k, other) = (overlay.keep(b"k"), overlay.keep(b"o"));
        overlay.add(5, k, 0, Some(b"old"));
        overlay.add(5, other, 0, None);
        overlay.add(5, k, 10, Some(b"new"));
        overlay.add(5, other, 12, Some(b"first"));
        assert_eq!(overlay.get(5, b"k", 10), Some(Some(&b"old"[..])));
        assert_eq!(overlay.get(5, b"k", 11), Some(Some(&b"new"[..])));
        assert_eq!(overlay.get(5, b"o", 12), Some(None));
        assert_eq!(overlay.get(5, b"o", 13), Some(Some(&b"first"[..])));
        assert_eq!(overlay.get(5, b"absent", 99), None);
        assert_eq!(overlay.get(6, b"k", 99), None);
    }

    /// A mark counts from its batch on, and the first batch stays.
    #[test]
    fn marks_count_from_their_batch_on() {
        let marks = Marks::new(16);
        marks.set(3, 7);
        marks.set(3, 9);
        assert!(!marks.has(3, 6) && marks.has(3, 7) && marks.has(3, 8));
        assert!(!marks.has(4, 100));
    }

    fn lesson<'a>(packet: u64, client: u8, asked: &'a [u8], addr: u8) -> Lesson<'a> {
        Lesson {
            packet,
            time_ns: packet as i64 * 1_000_000_000,
            client: Addr::v4([10, 0, 0, client]),
            asked,
            addr: Addr::v4([192, 0, 2, addr]),
            ttl_s: 5,
            teacher: Teacher::Dns,
            solicited: true,
        }
    }

    /// Names survive commits; a chain learned in one batch gives the head of a name learned in the
    /// next; a loop of aliases has no head.
    #[test]
    fn names_over_batches() {
        let (mut names, proxies) = Names::new(4 << 20, 1, 1, 4, Rules::all()).expect("room");
        names.learn_alias(1, b"www.shop.example", b"edge.cdn.example");
        names.learn_alias(1, b"a.example", b"b.example");
        names.learn_alias(1, b"b.example", b"a.example");
        let mut proxy = proxies.into_iter().next().expect("one proxy");
        let commit = |names: &mut Names, proxy: &mut Proxy| {
            let committed = names.commit().expect("no failure").expect("no stall");
            proxy.sync_to(committed.position);
        };
        commit(&mut names, &mut proxy);
        names.learn(&lesson(5, 7, b"edge.cdn.example", 1));
        names.learn(&lesson(6, 7, b"a.example", 2));
        commit(&mut names, &mut proxy);
        let (client, other) = (Addr::v4([10, 0, 0, 7]), Addr::v4([10, 0, 0, 8]));
        let named = |client, addr, now_s: i64| {
            let addr = Addr::v4([192, 0, 2, addr]);
            names.view().destination(client, addr, u64::MAX, now_s * 1_000_000_000)
        };
        let own = named(client, 1, 6).expect("a name");
        assert_eq!(
            (own.name.as_bytes(), own.source),
            (&b"edge.cdn.example"[..], NameSource::DnsPair)
        );
        assert_eq!(own.rivals, [Name::from_canonical(b"www.shop.example")]);
        assert!(!own.stale);
        let shared = named(other, 1, 11).expect("a name");
        let chain = (&b"www.shop.example"[..], NameSource::DnsChain);
        assert_eq!((shared.name.as_bytes(), shared.source), chain);
        assert!(shared.stale, "six seconds old, five to live");
        let looped = named(other, 2, 6).expect("a name");
        assert_eq!(looped.name.as_bytes(), b"a.example");
        assert_eq!(named(other, 3, 6), None);
    }
}
