//! Clients that followed an alias.

use larder::KeyHash;

use super::Sieve;

/// Which clients received an alias to which target. A client that then queries the target follows
/// the alias and did not choose that name. Two sieves take turns, so the oldest entries are
/// forgotten.
pub(super) struct Followed {
    newer: Sieve,
    older: Sieve,
    added: usize,
}

/// Bits of each sieve of [`Followed`]: 512 KiB.
const FOLLOWED_SIEVED: usize = 1 << 22;
/// Entries after which the sieves of [`Followed`] take turns; one entry in 32 collides with
/// another.
pub(super) const FOLLOWED_MAX: usize = 1 << 17;

impl Followed {
    pub fn new() -> Followed {
        Followed {
            newer: Sieve::new(FOLLOWED_SIEVED),
            older: Sieve::new(FOLLOWED_SIEVED),
            added: 0,
        }
    }

    /// Adds a client and target by their hash. True when it is new.
    pub fn add(&mut self, hash: u64) -> bool {
        let is_new = !self.has(hash);
        if self.newer.has(hash) {
            return is_new;
        }
        if self.added == FOLLOWED_MAX {
            std::mem::swap(&mut self.newer, &mut self.older);
            self.newer.clear();
            self.added = 0;
        }
        self.newer.add(hash);
        self.added += 1;
        is_new
    }

    /// Prefetches what [`Followed::add`] and [`Followed::has`] read.
    pub fn prefetch(&self, hash: u64) {
        self.newer.prefetch(hash);
        self.older.prefetch(hash);
    }

    pub fn has(&self, hash: u64) -> bool {
        self.newer.has(hash) || self.older.has(hash)
    }
}

/// The hash for "the client was led to the target": of the client's address hash and the hash of the
/// target's alias key. Both are seeded and well mixed; rotated, each gives its best bits to the sieve.
pub(super) fn followed_hash(client: u64, target: KeyHash) -> u64 {
    client.rotate_left(32) ^ target.get()
}
