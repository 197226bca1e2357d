//! Chooses the server for a query, sends the query, and starts tasks for the addresses of servers.

use std::net::IpAddr;

use larder_dns::core::{Flags, Now, QUERY_BYTES_MAX, random_case, write_query};
use larder_wire::dns::{class, rtype};

use super::limits::SERVER_SHARE;
use super::task::{Attempt, Purpose, QueryKey, Task};
use super::{ADDRESS_S, Addresses, End, Net, ROUNDS, Resolver, family};
use crate::names::is_within;
use crate::reading::{addresses, is_denial};
use crate::servers::EXPLORE_EVERY;

/// Address tasks for the servers of a zone, for one task: at a time, and in all. With [`DEPTH_MAX`]
/// they bound what an attacker can make of one query (NXNS, Afek et al., USENIX Security 2020).
const ADDRESS_LOOKUPS_AT_ONCE: usize = 2;
const ADDRESS_LOOKUPS_MAX: usize = 5;

/// The most levels of address tasks below a client task.
const DEPTH_MAX: u8 = 4;

/// Timeout of a TCP query, milliseconds.
const TCP_WAIT_MS: u64 = 2_000;

/// Random IDs to try before a socket counts as full.
const ID_DRAWS: usize = 8;

impl<C> Resolver<C> {
    /// The next server: not tried in this round, not lame if another is left, and the fastest.
    pub(super) fn choose_server(&mut self, now_ms: u64, task: &Task<C>) -> Option<IpAddr> {
        let share = self.share(SERVER_SHARE);
        let is_limited = self.is_half_full() && Self::is_limited(task);
        let Resolver { cuts, servers, addresses, candidates, random, at_server, options, .. } =
            self;
        let is_crowded = |address: &IpAddr| {
            is_limited && at_server.get(address).is_some_and(|count| *count >= share)
        };
        let cut = cuts.get_or_root(&task.name[task.zone_at..]);
        candidates.clear();
        for nameserver in cut.servers(task.rounds > 0) {
            let found = match nameserver.addresses.as_slice() {
                [] => addresses.get(&nameserver.name),
                _ => None,
            };
            let found = found.into_iter().flatten();
            let found = found.filter(|known| known.until_ms > now_ms).flat_map(|it| &it.all);
            for &address in nameserver.addresses.iter().chain(found) {
                let is_lame = cut.lame.contains(&address);
                // In late rounds only a server that is likely to respond is worth a packet.
                let is_of_use = task.rounds < ROUNDS
                    || !is_lame
                        && servers.wait_and_edns(address, now_ms).0 < options.server_wait_ms;
                if is_of_use && !task.tried.contains(&address) && !is_crowded(&address) {
                    candidates.push((is_lame, servers.rank(address), address));
                }
            }
        }
        let count = candidates.len() as u32;
        let by_chance = match count {
            0 | 1 => None,
            _ if random.below(EXPLORE_EVERY).ok()? == 0 => random.below(count).ok(),
            _ => None,
        };
        let chosen = match by_chance {
            Some(at) => candidates.get(at as usize),
            None => candidates.iter().min_by_key(|(is_lame, rank, _)| (*is_lame, *rank)),
        };
        chosen.map(|(_, _, address)| *address)
    }

    /// Starts tasks for the addresses of servers that have none. Returns true if the task waits for
    /// one.
    pub(super) fn find_addresses(&mut self, now_ms: u64, number: u64, task: &mut Task<C>) -> bool {
        if task.depth == DEPTH_MAX
            || self.tasks.len() + ADDRESS_LOOKUPS_AT_ONCE >= self.timers.capacity()
        {
            return false;
        }
        let mut rtype = rtype::A;
        let mut names = self.names_without_addresses(now_ms, task, rtype);
        if names.is_empty() && (task.has_waited || !self.awaits_addresses(task)) {
            rtype = rtype::AAAA;
            names = self.names_without_addresses(now_ms, task, rtype);
        }
        for name in &names {
            task.address_lookups.push((name.clone(), rtype));
            let key = (name.clone(), rtype, task.depth + 1);
            if let Some(other) = self.address_tasks.get(&key).and_then(|it| self.tasks.get_mut(it))
            {
                if let Purpose::Address { waiting } = &mut other.purpose {
                    waiting.push(number);
                }
                continue;
            }
            let address_task = Task {
                purpose: Purpose::Address { waiting: vec![number] },
                name: name.to_vec(),
                rtype,
                dnssec_ok: self.options.validates(),
                depth: task.depth + 1,
                packets_left: task.packets_left.clone(),
                until_ms: task.until_ms,
                ..Task::new()
            };
            let address_task = self.insert_task(address_task);
            self.address_tasks.insert(key, address_task);
            self.ready.push(address_task);
        }
        !names.is_empty()
    }

    /// Servers of the zone whose addresses of a type are neither cached nor requested by this task:
    /// as many as it may start now.
    fn names_without_addresses(
        &mut self,
        now_ms: u64,
        task: &Task<C>,
        rtype: u16,
    ) -> Vec<Box<[u8]>> {
        let Resolver { cuts, addresses, .. } = self;
        let zone = task.zone();
        let lookups = || task.address_lookups.iter().filter(|(_, of)| *of == rtype);
        let room =
            ADDRESS_LOOKUPS_MAX.saturating_sub(lookups().count()).min(ADDRESS_LOOKUPS_AT_ONCE);
        let mut names: Vec<Box<[u8]>> = Vec::new();
        for server in cuts.get_or_root(zone).servers(task.rounds > 0) {
            let is_known = !server.addresses.is_empty()
                || addresses
                    .get(&server.name)
                    .is_some_and(|known| known[family(rtype)].until_ms > now_ms);
            // Only the referral can give the address of a server inside the zone.
            let is_of_use = !is_known && !is_within(&server.name, zone);
            let is_started = lookups().any(|(name, _)| *name == server.name);
            if is_of_use && !is_started && names.len() < room && !names.contains(&server.name) {
                names.push(server.name.clone());
            }
        }
        names
    }

    /// Ends an address task: caches the addresses and wakes the tasks that wait for them.
    pub(super) fn finish_address_task(
        &mut self,
        now: Now,
        task: Task<C>,
        waiting: Vec<u64>,
        end: &End<'_>,
    ) {
        let (all, ttl_s) = match end {
            End::Answer(bytes) => {
                addresses(bytes, &task.name, |server| self.options.may_query(server))
            }
            _ => (Vec::new(), 0),
        };
        let has_found = !all.is_empty();
        let (least_s, most_s) = ADDRESS_S;
        let held_s = if all.is_empty() { least_s } else { ttl_s.clamp(least_s, most_s) };
        let until_ms = now.us / 1_000 + u64::from(held_s) * 1_000;
        let name: Box<[u8]> = task.name.into();
        let key = (name, task.rtype, task.depth);
        self.address_tasks.remove(&key);
        let (name, rtype, _) = key;
        if self.addresses.get(&name).is_none() {
            self.addresses.insert(name.clone(), Default::default());
        }
        if let Some(known) = self.addresses.get(&name) {
            let has_no_name = match end {
                End::Answer(bytes) => is_denial(bytes),
                End::Denied(_) => true,
                End::Failed => false,
            };
            if has_no_name {
                known.fill_with(|| Addresses { until_ms, all: Vec::new() });
            }
            known[family(rtype)] = Addresses { until_ms, all };
        }
        for number in waiting {
            if has_found {
                self.interrupt(number);
            }
            self.ready.push(number);
        }
    }

    /// True if an address task for this task is running.
    pub(super) fn awaits_addresses(&self, task: &Task<C>) -> bool {
        task.address_lookups.iter().any(|(name, rtype)| {
            self.address_tasks.contains_key(&(name.clone(), *rtype, task.depth + 1))
        })
    }

    /// Sends the query of a task to a server. Returns false if it cannot be sent.
    pub(super) fn send_query(
        &mut self,
        now: Now,
        number: u64,
        task: &mut Task<C>,
        server: IpAddr,
        net: &mut impl Net<C>,
    ) -> bool {
        let now_ms = now.us / 1_000;
        let (wait_ms, has_edns) = self.servers.wait_and_edns(server, now_ms);
        let has_edns = has_edns && !task.without_edns.contains(&server);
        // A retry keeps the random case while a late response to the same question is possible.
        if task.late.is_empty() {
            task.question.clear();
            task.question.extend_from_slice(&task.name[task.qname_at..]);
            if self.options.case_random {
                random_case(&mut task.question, &mut self.random);
            }
            task.question.extend_from_slice(&task.qtype().to_be_bytes());
            task.question.extend_from_slice(&class::IN.to_be_bytes());
        }
        let flags = self.flags(task, has_edns);
        let Resolver { by_udp_key, random, .. } = self;
        let mut udp_key = None;
        let is_sent = net.send(server, |socket, out| {
            let mut ids = (0..ID_DRAWS).map_while(|_| random.u16().ok());
            let id = ids.find(|id| !by_udp_key.contains_key(&(socket, *id)))?;
            let length = write_query(out.first_chunk_mut()?, id, &task.question, flags);
            udp_key = Some((socket, id));
            Some(length)
        });
        let Some((socket, id)) = udp_key.filter(|_| is_sent) else { return false };
        by_udp_key.insert((socket, id), number);
        self.counts.packets += 1;
        if task.qname_at > 0 {
            self.minimized.insert(task.qname().into(), Vec::new());
            task.leads_minimized = true;
        }
        task.packets_left.update(|left| left - 1);
        let key = QueryKey::Udp(socket, id);
        self.set_attempt(task, Attempt { key, server, sent_us: now.us, has_edns });
        let wait_ms = wait_ms.min(self.options.server_wait_ms);
        self.set_timer(number, task, now_ms + u64::from(wait_ms));
        true
    }

    fn flags(&self, task: &Task<C>, has_edns: bool) -> Flags {
        Flags {
            recursion_desired: false,
            dnssec_ok: task.dnssec_ok,
            checking_disabled: task.checking_disabled,
            believes_ad: false,
            udp_bytes: has_edns.then_some(self.options.udp_bytes_max),
        }
    }

    /// Sends the query again to the same server, over TCP. Returns false if that is impossible.
    pub(super) fn send_query_tcp(
        &mut self,
        now: Now,
        number: u64,
        task: &mut Task<C>,
        attempt: Attempt,
        net: &mut impl Net<C>,
    ) -> bool {
        if task.packets_left.get() == 0 {
            return false;
        }
        let mut message = [0; QUERY_BYTES_MAX];
        let flags = self.flags(task, attempt.has_edns);
        let length = write_query(&mut message, 0, &task.question, flags);
        // Task numbers and tags come from one counter. A task has one TCP query at a time.
        self.last_number += 1;
        let tag = self.last_number;
        if !net.send_tcp(attempt.server, tag, &message[..length]) {
            return false;
        }
        self.by_tcp_tag.insert(tag, number);
        self.counts.streams += 1;
        task.packets_left.update(|left| left - 1);
        self.set_attempt(task, Attempt { key: QueryKey::Tcp(tag), sent_us: now.us, ..attempt });
        self.set_timer(number, task, now.us / 1_000 + TCP_WAIT_MS);
        true
    }
}
