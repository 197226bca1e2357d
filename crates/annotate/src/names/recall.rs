//! Names of earlier runs: those of one, as they were, or those of several, joined.
//!
//! Runs at several sensors, or over parts of an archive, learn apart, and no order is right for their files. So several
//! files are joined, by an operation that is commutative, associative and idempotent:
//!
//! | what | the join |
//! |---|---|
//! | the candidates of a key | of each name the one of the greatest rank; of these the `--candidates` greatest |
//! | the alias of a name | the one of the greatest rank |
//!
//! The rank says first what supports a candidate, then when it was learned ([`Candidate::rank`], [`Alias::rank`]). It
//! compares all that a file says, so that no two have the same. The cut to the greatest is harmless: what it drops is
//! below as many others in every later join, too.
//!
//! Heads of chains, and the places behind names that were queried directly, need the aliases of all files. So
//! [`Names::settle`] finds them when all are there, as the last step. It changes nothing that a rank compares, but the
//! head, which it finds again.
//!
//! What a full budget evicts depends on the order of the files: those of the first.
//!
//! The names of one run also say of which clients queries were seen (rule 9): those with a pair that a query confirmed.
//! Names of several runs do not: another sensor may see the responses only, and all of them would count as forged.

use larder_wire::Addr;
use larder_wire::scope::Scope;

use super::candidate::{Candidate, Candidates, merge};
use super::{Alias, AliasObservation, Key, Names, Standing, is_address};
use crate::Error;

/// Entries between two commits to the engine: bounds the memory outside the budget.
pub(crate) const FACTS_A_COMMIT: u64 = 1 << 12;

/// How names of files are recalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recall {
    /// Those of one run, which continues: in the order of the file.
    AsSaved,
    /// Those of several runs. [`Names::settle`] follows.
    Joined,
}

impl Names {
    /// Learns an entry of a names file ([`crate::names_file`]), of a client, if it has one, and an address, unless it
    /// is an alias; `None` when it makes no sense.
    pub fn recall(
        &mut self,
        recall: Recall,
        kind: &str,
        scope: Scope,
        (client, addr): (Option<Addr>, Option<Addr>),
        candidate: &Candidate<'_>,
    ) -> Option<()> {
        if is_address(candidate.asked) || is_address(candidate.head) {
            self.refused += 1;
            return Some(());
        }
        let key = match kind {
            "alias" => {
                self.recall_alias(recall, scope, candidate);
                return Some(());
            }
            "address" => Key::address(scope, addr?),
            "pair" => Key::pair(scope, client?, addr?),
            "host" => Key::host(scope, addr?),
            _ => return None,
        };
        let merging = self.merging();
        self.change_key(0, &key, |old, out| match recall {
            Recall::AsSaved => merge(old, candidate, merging, out),
            Recall::Joined => join(old, candidate, merging.limit, out),
        });
        let learned = if kind == "host" { &self.learned.hosts } else { &self.learned.named };
        learned.set(self.address_hash(scope, addr?), 0);
        if let (Recall::AsSaved, Some(client), Standing::Confirmed) =
            (recall, client, candidate.standing)
        {
            self.note_querier(scope, client);
        }
        Some(())
    }

    fn recall_alias(&mut self, recall: Recall, scope: Scope, candidate: &Candidate<'_>) {
        let &Candidate { asked: target, head: owner, standing, time_ns, .. } = candidate;
        let client = Addr::UNSPECIFIED;
        let alias = AliasObservation { packet: 0, time_ns, scope, client, owner, target, standing };
        match recall {
            Recall::AsSaved => self.learn_alias(&alias),
            Recall::Joined => self.change_alias(&alias, |known, alias| {
                // Who was led there is not saved: at least one client.
                let alias = Alias { led: u8::from(standing == Standing::Confirmed), ..alias };
                known.filter(|known| known.rank() >= alias.rank()).unwrap_or(alias)
            }),
        }
    }

    /// Finds the heads and the order of the candidates of addresses, by the aliases of all files. To be called when all
    /// were recalled and committed. `make_way` syncs every other reader, if one of them is too far behind.
    ///
    /// Cost: a lookup for each candidate, and the keys of all addresses in memory.
    pub fn settle(&mut self, make_way: &mut dyn FnMut()) -> Result<(), Error> {
        let (mut keys, mut lens) = (Vec::new(), Vec::new());
        self.for_each(|key, _| {
            if let [b'a' | b'A', ..] = key {
                keys.extend_from_slice(key);
                lens.push(key.len());
            }
        });
        let mut rest = &keys[..];
        let mut settled = Vec::new();
        for (count, len) in (1..).zip(lens) {
            let (key, behind) = rest.split_at(len);
            rest = behind;
            let hash = self.cache.hash(key);
            let Some(entry) = self.view().entry(hash, key, u64::MAX).map(|entry| entry.to_vec())
            else {
                continue;
            };
            self.settle_entry(&entry, &mut settled);
            if settled != entry {
                self.change(0, hash, key, |_, out| out.clone_from(&settled));
            }
            if u64::is_multiple_of(count, FACTS_A_COMMIT) {
                self.commit_all(make_way)?;
            }
        }
        self.commit_all(make_way)
    }

    fn settle_entry(&mut self, entry: &[u8], out: &mut Vec<u8>) {
        let heads: Vec<Vec<u8>> = Candidates::new(entry)
            .map(|candidate| {
                let mut head = candidate.head.to_vec();
                let hash = self.put_alias_key(candidate.asked);
                if self.aliases.has(hash.get()) && self.alias_of(hash).is_some() {
                    self.head_of(candidate.asked, candidate.standing, &mut head);
                }
                head
            })
            .collect();
        let mut all: Vec<Candidate<'_>> = Candidates::new(entry)
            .zip(&heads)
            .map(|(candidate, head)| Candidate { head, ..candidate })
            .map(|candidate| Candidate { direct: candidate.is_direct(0), ..candidate })
            .collect();
        all.sort_by_key(Candidate::rank);
        let mut ordered: Vec<Candidate<'_>> = Vec::new();
        let view = self.view();
        for new in all {
            // The owner of a zone can point an alias at any name: it does not come before that, if clients queried
            // that themselves.
            let is_target = |known: &Candidate<'_>| {
                known.is_chosen_over(new.asked, 0)
                    && view.has_owner(known.asked, u64::MAX, |owner| owner == new.asked)
            };
            let place = ordered.iter().rposition(is_target).map_or(0, |at| at + 1);
            ordered.insert(place, new);
        }
        out.clear();
        ordered.iter().for_each(|candidate| candidate.write(out));
    }

    /// Commits all that was changed. `make_way` syncs every other reader, if one of them is too far behind.
    pub(crate) fn commit_all(&mut self, make_way: &mut dyn FnMut()) -> Result<(), Error> {
        while self.commit()?.is_none() {
            make_way();
        }
        Ok(())
    }
}

/// Writes to `out` the candidates `old` joined with `new`, at most `limit`, the greatest first.
fn join(old: &[u8], new: &Candidate<'_>, limit: usize, out: &mut Vec<u8>) {
    let mut all: Vec<Candidate<'_>> = Candidates::new(old).collect();
    match all.iter_mut().find(|known| known.asked == new.asked) {
        Some(known) if known.rank() >= new.rank() => {}
        Some(known) => *known = *new,
        None => all.push(*new),
    }
    all.sort_by_key(|candidate| std::cmp::Reverse(candidate.rank()));
    out.clear();
    all.iter().take(limit).for_each(|candidate| candidate.write(out));
}
