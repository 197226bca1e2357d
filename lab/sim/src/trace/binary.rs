//! Traces of fixed records: keys of 4 or 8 bytes, and libCacheSim's `oracleGeneral`.
//!
//! | format | record |
//! |---|---|
//! | `be32` `le32` | a key of 32 bits, as cache2k's benchmark has them |
//! | `be64` | a key of 64 bits, as Caffeine's simulator has them of Scarab and Corda |
//! | `oracle-general` | little endian: time (s) u32, key u64, bytes u32, i64 when the key is asked for next |
//!
//! Nothing in such a file can be wrong but its end. What an oracle knows of the future is not read: the bound
//! that needs it finds it out itself.
//! Cost: a nanosecond a record, as long as the bytes are near.

use std::io;

use super::digits::{Clock, bytes};
use super::reader::TraceReader;
use super::{BATCH_REQUESTS, Damage, Source};
use crate::request::Request;

/// How a record of `N` bytes is read.
pub trait Record<const N: usize>: Send {
    /// The request that it is.
    fn read(&mut self, record: &[u8; N]) -> Request;
}

/// `be32`.
pub struct Be32;

impl Record<4> for Be32 {
    #[inline(always)]
    fn read(&mut self, record: &[u8; 4]) -> Request {
        Request::get(u64::from(u32::from_be_bytes(*record)))
    }
}

/// `le32`.
pub struct Le32;

impl Record<4> for Le32 {
    #[inline(always)]
    fn read(&mut self, record: &[u8; 4]) -> Request {
        Request::get(u64::from(u32::from_le_bytes(*record)))
    }
}

/// `be64`.
pub struct Be64;

impl Record<8> for Be64 {
    #[inline(always)]
    fn read(&mut self, record: &[u8; 8]) -> Request {
        Request::get(u64::from_be_bytes(*record))
    }
}

/// `oracle-general`.
#[derive(Default)]
pub struct OracleGeneral(Clock);

/// Bytes of its record.
pub const ORACLE_BYTES: usize = 24;

/// The fields of a record of `oracle-general`: time, key, bytes, next.
pub fn oracle_fields(record: &[u8; ORACLE_BYTES]) -> (u32, u64, u32, i64) {
    fn field<const N: usize>(record: &[u8; ORACLE_BYTES], at: usize) -> [u8; N] {
        std::array::from_fn(|index| record[at + index])
    }
    (
        u32::from_le_bytes(field(record, 0)),
        u64::from_le_bytes(field(record, 4)),
        u32::from_le_bytes(field(record, 12)),
        i64::from_le_bytes(field(record, 16)),
    )
}

impl Record<ORACLE_BYTES> for OracleGeneral {
    #[inline(always)]
    fn read(&mut self, record: &[u8; ORACLE_BYTES]) -> Request {
        let (time_s, key, size, _) = oracle_fields(record);
        let time_s = self.0.since_first_s(u64::from(time_s));
        Request { time_s, bytes: bytes(u64::from(size)), ..Request::get(key) }
    }
}

/// A trace of records of `N` bytes.
pub struct Records<R, const N: usize> {
    reader: TraceReader,
    record: R,
    damage: Damage,
}

impl<R, const N: usize> Records<R, N> {
    /// Reads `reader` from where it is.
    pub fn new(reader: TraceReader, record: R) -> Self {
        Records { reader, record, damage: Damage::default() }
    }
}

impl<R: Record<N>, const N: usize> Source for Records<R, N> {
    fn next(&mut self, batch: &mut Vec<Request>) -> io::Result<()> {
        batch.clear();
        while batch.len() < BATCH_REQUESTS && self.reader.want(N) {
            let (records, _) = self.reader.peek().as_chunks::<N>();
            let count = records.len().min(BATCH_REQUESTS - batch.len());
            batch.extend(records[..count].iter().map(|record| self.record.read(record)));
            self.reader.take(count * N);
        }
        let rest = self.reader.peek().len();
        if batch.is_empty() && rest > 0 {
            let offset = self.reader.offset();
            self.damage.add(|| format!("byte {offset}: cut short, {rest} of {N} bytes"));
            self.reader.take(rest);
        }
        self.reader.count_failure(&mut self.damage);
        Ok(())
    }

    fn damage(&self) -> Damage {
        self.damage.clone()
    }
}
