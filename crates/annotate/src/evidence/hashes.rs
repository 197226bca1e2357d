//! Hashes of names, and of addresses in their networks: the keys of what flows stated.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

/// Hashes with the seed of a run. Workers and the writer have the same.
#[derive(Clone, Debug)]
pub(crate) struct Hashes(FixedState);

impl Hashes {
    pub fn new(seed: u64) -> Hashes {
        Hashes(FixedState::with_seed(seed))
    }

    pub fn of_name(&self, name: &Name) -> u64 {
        self.0.hash_one(name.as_bytes())
    }

    /// The hash of two things by their hashes, which are well mixed: rotated, each gives its best bits.
    pub fn joined(one: u64, other: u64) -> u64 {
        one.rotate_left(32) ^ other
    }

    /// The hash of an address and a port, other for each `kind`.
    pub fn of_addr(&self, kind: u8, scope: Scope, addr: Addr, port: u16) -> u64 {
        let mut bytes = [0; 1 + 8 + 2 + 16];
        bytes[0] = kind;
        bytes[1..9].copy_from_slice(&scope.bits().to_le_bytes());
        bytes[9..11].copy_from_slice(&port.to_le_bytes());
        let addr = addr.octets();
        bytes[11..11 + addr.len()].copy_from_slice(addr);
        self.0.hash_one(&bytes[..11 + addr.len()])
    }
}
