//! Responses of name servers: reads them, and applies to a task what they say.

use larder_dns::core::Now;

use super::task::{Attempt, NO_ZONE, Purpose, QueryKey, Task};
use super::{ALIASES_MAX, End, Net, Resolver, STEPS_MAX};
use crate::reading::{Aliases, Reading, Referral, SentQuery, has_alias, own_servers, read};

impl<C> Resolver<C> {
    /// Processes a response to a query of a task, or its failure (`None`). Returns false if the
    /// message is no response to that query.
    pub(super) fn process_response(
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
        let Some(bytes) = bytes else {
            // This does not make a server lame: spoofing may have caused it, and some servers have no TCP.
            self.cancel_attempt(&mut task, attempt);
            task.wake_followers(&mut self.minimized, &mut self.ready);
            self.tasks.insert(number, task);
            self.ready.push(number);
            self.run(now, net);
            return true;
        };
        let Some(reading) = self.read_response(&task, attempt, bytes) else {
            self.tasks.insert(number, task);
            return false;
        };
        self.cancel_attempt(&mut task, attempt);
        if !attempt.is_stream() {
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
            // This late response is useless, and the task waits for another server.
            self.apply(now, &mut task, reading, attempt, &[], net);
            self.tasks.insert(number, task);
            return true;
        }
        task.wake_followers(&mut self.minimized, &mut self.ready);
        if !matches!(reading, Reading::Lame | Reading::NoEdns | Reading::Truncated) {
            self.cancel_all_attempts(&mut task);
        }
        let end = self.apply(now, &mut task, reading, attempt, bytes, net);
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

    /// What a message says as the response to a query of a task; `None` if it is no response to it.
    fn read_response(&mut self, task: &Task<C>, attempt: Attempt, bytes: &[u8]) -> Option<Reading> {
        let is_stream = attempt.is_stream();
        let sent = SentQuery {
            question: &task.question,
            name: task.qname(),
            rtype: task.qtype(),
            zone: task.zone(),
            is_case_random: self.options.case_random && !is_stream,
            has_edns: attempt.has_edns,
            // A lame server is tried after all others, so no other had a response.
            accepts_recursed: task.rounds > 0
                && self.cuts.get_or_root(task.zone()).lame.contains(&attempt.server),
        };
        match read(bytes, &sent, |server| self.options.may_query(server)) {
            // Others cannot write into a TCP connection, so a mismatch is the fault of the server.
            Reading::Misfit | Reading::Truncated if is_stream => Some(Reading::Lame),
            Reading::Misfit => None,
            reading => Some(reading),
        }
    }

    /// Applies a response to a task. Returns the result if the task ends.
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
            // The server responds without EDNS, so EDNS was the cause of its error.
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
            // Some servers return NXDOMAIN for a name with names below it. Root servers do not, and
            // most names that they deny do not exist (RFC 8020). With DNSSEC the proof for this
            // name may not cover a name below it, so the full name is sent.
            Reading::NxDomain if task.zone() == [0] && !task.dnssec_ok => {
                return Some(End::Denied(bytes));
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
            // Only one retry without EDNS: a second such error makes the server lame.
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
            // Some servers fail only for shortened names, so the task sends the full name.
            Reading::NxDomain | Reading::Lame | Reading::Truncated | Reading::Misfit => {
                task.steps = STEPS_MAX;
                task.tried.retain(|tried| *tried != server);
            }
        }
        None
    }

    /// Continues with the target of aliases. Ends the task at a loop, at too many aliases, or in an
    /// address task.
    fn follow_aliases<'o>(&mut self, task: &mut Task<C>, aliases: Aliases) -> Option<End<'o>> {
        // The name of a server must not be an alias (RFC 2181, section 10.3).
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

    /// Records the servers that the zone itself names, for use when all servers of the delegation
    /// have failed.
    fn note_own_servers(&mut self, zone: &[u8], bytes: &[u8]) {
        // Root entries never expire, so a root server's own list would stay forever.
        let cut = if zone == [0] { None } else { self.cuts.get(zone) };
        if let Some(cut) = cut.filter(|cut| cut.own_servers.is_empty()) {
            cut.own_servers = own_servers(bytes, zone, |server| self.options.may_query(server));
        }
    }
}
