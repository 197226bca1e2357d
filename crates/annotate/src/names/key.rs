//! Keys of the engine's entries.

use larder::{Cache, KeyHash};
use larder_wire::Addr;
use larder_wire::scope::Scope;

/// Keys of the engine's entries, built without allocation.
#[derive(Clone, Copy)]
pub struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
}

/// Kind, network, two addresses.
const KEY_BYTES_MAX: usize = 1 + 8 + 16 + 16;

impl Key {
    #[inline(always)]
    pub(super) fn of(kind: u8, addr: Addr) -> Key {
        match v4_number(addr) {
            Some(number) => Key::short(u128::from(kind) | number << 8, 5),
            None => Key::long(kind, &[addr]),
        }
    }

    #[inline(always)]
    pub(super) fn of_two(kind: u8, first: Addr, second: Addr) -> Key {
        match (v4_number(first), v4_number(second)) {
            (Some(first), Some(second)) => {
                Key::short(u128::from(kind) | first << 8 | second << 40, 9)
            }
            _ => Key::long(kind, &[first, second]),
        }
    }

    /// The bytes of a number, the low ones first. A key is hashed word by word at once, and words
    /// that were stored byte by byte could not be read back without a stall.
    #[inline(always)]
    pub(super) fn short(number: u128, len: u8) -> Key {
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes[..16].copy_from_slice(&number.to_le_bytes());
        Key { bytes, len }
    }

    pub(super) fn long(kind: u8, addrs: &[Addr]) -> Key {
        let mut key = Key { bytes: [0; KEY_BYTES_MAX], len: 0 };
        key.push(&[kind]);
        addrs.iter().for_each(|addr| key.push(addr.octets()));
        key
    }

    /// A key of addresses that are valid in one network only.
    #[cold]
    pub(super) fn scoped(kind: u8, scope: Scope, addrs: &[Addr]) -> Key {
        let mut key = Key { bytes: [0; KEY_BYTES_MAX], len: 0 };
        key.push(&[kind]);
        key.push(&scope.bits().to_be_bytes());
        addrs.iter().for_each(|addr| key.push(addr.octets()));
        key
    }

    fn push(&mut self, part: &[u8]) {
        let end = usize::from(self.len) + part.len();
        self.bytes[usize::from(self.len)..end].copy_from_slice(part);
        self.len = end as u8;
    }

    /// Names of an address.
    #[inline(always)]
    pub fn address(scope: Scope, addr: Addr) -> Key {
        match scope_of(scope, addr) {
            Scope::NONE => Key::of(b'a', addr),
            scope => Key::scoped(b'A', scope, &[addr]),
        }
    }

    /// Names that one client queried, of an address. IPv4 pairs are 9 bytes, IPv6 pairs 33, mixed
    /// pairs 21, so the lengths distinguish the kinds. The client is one of its network, whatever
    /// address it queries.
    #[inline(always)]
    pub fn pair(scope: Scope, client: Addr, addr: Addr) -> Key {
        match scope {
            Scope::NONE => Key::of_two(if client.is_v4() { b'p' } else { b'P' }, client, addr),
            scope => Key::scoped(if client.is_v4() { b'q' } else { b'Q' }, scope, &[client, addr]),
        }
    }

    /// Names that a host gives itself.
    #[inline(always)]
    pub fn host(scope: Scope, addr: Addr) -> Key {
        match scope_of(scope, addr) {
            Scope::NONE => Key::of(b'h', addr),
            scope => Key::scoped(b'H', scope, &[addr]),
        }
    }

    /// The hash of [`Key::address`]; of most addresses without the key, which need not be in memory then.
    #[inline(always)]
    pub fn hash_of_address(cache: &Cache, scope: Scope, addr: Addr) -> KeyHash {
        match v4_number(addr) {
            Some(number) if scope.is_none() => {
                let key = u64::from(b'a') | (number as u64) << 8;
                cache.hash(&key.to_le_bytes()[..5])
            }
            _ => Key::hash_of_other(cache, scope, addr),
        }
    }

    #[inline(never)]
    fn hash_of_other(cache: &Cache, scope: Scope, addr: Addr) -> KeyHash {
        cache.hash(Key::address(scope, addr).as_bytes())
    }

    /// The bytes.
    #[inline(always)]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The network in which an address belongs to one host. A globally routed address is the same
/// everywhere: its names may be learned in another network than its flows are seen in.
#[inline(always)]
pub fn scope_of(scope: Scope, addr: Addr) -> Scope {
    if scope.is_none() || !addr.is_local() { Scope::NONE } else { scope }
}

/// The four bytes of an IPv4 address in memory order, the first the lowest.
#[inline(always)]
fn v4_number(addr: Addr) -> Option<u128> {
    let bytes = u128::from_be_bytes(addr.0);
    addr.is_v4().then_some(u128::from((bytes as u32).swap_bytes()))
}
