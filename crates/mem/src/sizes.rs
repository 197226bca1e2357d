//! The memory of a shard, and its valid configurations.

use crate::arena::Arena;
use crate::class::PAGE_BYTES_MAX;
use crate::config::{Config, IndexMode};
use crate::error::Error;
use crate::log::{BUCKETS_MAX, RECORD_BYTES, Record};
use crate::region::Memory;
use crate::table::Bucket;
use crate::{leases, pages};

impl Config {
    /// Bytes of a shard with all its readers; the largest number if it is more than that.
    pub fn bytes(&self) -> u64 {
        let of = |count: usize, each: usize| (count as u64).saturating_mul(each as u64);
        let copies = if self.index_mode == IndexMode::Replicated { self.readers_max } else { 0 };
        let leases = if self.lease_bytes_max > 0 { self.lease_counts() } else { 0 };
        [
            of(self.pages, self.page_bytes),
            of(self.pages, pages::books_bytes(self.page_bytes)),
            of(self.buckets, size_of::<Bucket>()).saturating_mul((copies as u64).saturating_add(1)),
            of(self.log_records, RECORD_BYTES),
            of(self.readers_max, 256),
            of(leases, leases::COUNT_BYTES),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }

    /// Bytes of a mapping for everything but the readers' replicas.
    pub fn main_bytes(&self) -> usize {
        let leases = if self.lease_bytes_max > 0 { self.lease_counts() } else { 0 };
        [
            Arena::mapped_bytes(self.pages.saturating_mul(self.page_bytes)),
            Memory::bytes_for::<Bucket>(self.buckets),
            Memory::bytes_for::<Record>(self.log_records),
            pages::mapped_bytes(self.page_bytes, self.pages),
            Memory::bytes_for::<u32>(leases),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    /// Refuses an invalid configuration, before anything is mapped for it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.check_on(usize::BITS)
    }

    /// The same on a machine whose addresses have `address_bits`.
    fn check_on(&self, address_bits: u32) -> Result<(), Error> {
        if !(1..=BUCKETS_MAX).contains(&self.buckets) {
            return Err(Error::Config("a shard has 1 to 2^28 buckets"));
        }
        if !self.page_bytes.is_power_of_two() || !(64..=PAGE_BYTES_MAX).contains(&self.page_bytes) {
            return Err(Error::Config("page_bytes must be a power of two from 64 to 65536"));
        }
        if self.copy_buckets == 0 {
            return Err(Error::Config("copy_buckets must not be 0"));
        }
        let counts_of_slot = self.lease_slot_bytes.clamp(1, self.page_bytes) as u64;
        if self.lease_bytes_max / counts_of_slot >= u64::from(u32::MAX) {
            // Each lease of a slot counts at least this many bytes, so no count of leases reaches
            // 32 bits.
            return Err(Error::Config(
                "lease_bytes_max must be below 2^32 - 1 times lease_slot_bytes",
            ));
        }
        // The limit for every offset, length and product of lengths below: no object is larger than
        // half of all addresses.
        if self.bytes() >= 1 << (address_bits - 1) {
            return Err(Error::Config("the shard is larger than this machine's addresses reach"));
        }
        Ok(())
    }

    /// Bytes of a mapping for a reader's replica.
    pub fn copy_bytes(&self) -> usize {
        match self.index_mode {
            IndexMode::Replicated => Memory::bytes_for::<Bucket>(self.buckets),
            IndexMode::Shared => 0,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shard::Shard;

    fn config() -> Config {
        Config {
            page_bytes: 64 << 10,
            pages: 4,
            buckets: 2,
            log_records: 16,
            readers_max: 1,
            index_mode: IndexMode::Replicated,
            copy_buckets: 16,
            lease_bytes_max: 0,
            lease_slot_bytes: 16,
        }
    }

    /// A shard whose bytes would overflow the machine's numbers is refused, on 32-bit machines and
    /// on this one.
    #[test]
    fn sizes_do_not_wrap() {
        config().check_on(32).unwrap();
        let largest = Config { pages: 30_000, ..config() };
        largest.check_on(32).unwrap();
        assert!(largest.bytes() < 1 << 31);
        let refused = |config: Config, bits| matches!(config.check_on(bits), Err(Error::Config(_)));
        // 2^16 pages of 2^16 bytes are 0 pages in 32 bits; one page more is one.
        for pages in [33_000, 1 << 16, (1 << 16) + 1, 1 << 17] {
            assert!(refused(Config { pages, ..config() }, 32), "{pages}");
        }
        let many = Config { buckets: BUCKETS_MAX, readers_max: 16, ..config() };
        assert!(refused(many, 32) && !refused(many, 64));
        assert!(refused(Config { pages: usize::MAX, ..config() }, usize::BITS));
        assert!(refused(Config { readers_max: usize::MAX, ..config() }, usize::BITS));
        assert!(refused(Config { log_records: 1 << (usize::BITS - 1), ..config() }, usize::BITS));
        assert!(Shard::new(Config { pages: usize::MAX, ..config() }, ()).is_err());
    }

    /// No slot can have 2^32 leases: together they may not hold as many bytes as that many would.
    #[test]
    fn leases_fit_their_counts() {
        let with = |lease_bytes_max, lease_slot_bytes| {
            Shard::new(Config { lease_bytes_max, lease_slot_bytes, ..config() }, ()).map(drop)
        };
        let most = u64::from(u32::MAX) * 16;
        with(most - 1, 16).unwrap();
        for (bytes, slot_bytes) in [(most, 16), (u64::MAX / 2, 16), (u64::MAX, usize::MAX)] {
            assert!(matches!(with(bytes, slot_bytes), Err(Error::Config(_))), "{bytes}");
        }
        // Slots larger than any page: all values are copied, and copies are counted.
        with(1 << 40, usize::MAX).unwrap();
    }
}
