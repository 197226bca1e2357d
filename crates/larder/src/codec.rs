//! Keys and values as bytes: the two small traits between a [`crate::Map`] and the engine.
//!
//! Both pass their bytes to a closure. So bytes that exist in memory (text, slices) are never
//! copied, and others (numbers, tuples) are put together on the stack.
//!
//! # Keys
//! The engine takes keys of 1 to 255 bytes. [`with_engine_key`] makes one of any key:
//!
//! ```text
//! bytes of the key     engine's key                                   in front of the value
//! 1 to 254              themselves                                     nothing
//! 0, or 255 and more    first 247 (zeroes beyond), digest of the rest  u32 length, the rest
//! ```
//!
//! All of a long key is stored, the rest of it as part of the value, and all of it is compared. Two
//! keys with the same digest never see each other's values; the later one replaces the earlier. So
//! the digest needs no secret, and a saved cache is good under any seed.
//!
//! A tuple is put together as `derived` has it, so different tuples have different bytes.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use crate::derived::{join, sum};
use crate::hash::Hasher;
use crate::shared::KEY_BYTES_MAX;

/// A type that can be a key of a [`crate::Map`].
///
/// Different keys of one type must have different bytes, and equal keys the same bytes. A type and
/// the type it borrows as (`String` and `str`) must agree. With the feature `derive`, a struct or an
/// enum of such types needs `#[derive(larder::Key)]`. Without it, use a tuple of the fields:
///
/// ```
/// struct Flow { host: std::net::IpAddr, port: u16 }
///
/// impl larder::Key for Flow {
///     fn with_key<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
///         (self.host, self.port).with_key(with)
///     }
/// }
/// ```
pub trait Key {
    /// The number of bytes of every key of this type, if it is fixed.
    const BYTES: Option<usize> = None;

    /// Calls `with` with the key's bytes.
    fn with_key<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R;
}

/// A type that can be a value of a [`crate::Map`]. With the feature `derive`, a struct or an enum of
/// such types needs `#[derive(larder::Value)]`; the order of its fields and variants is part of what
/// a saved cache has.
///
/// ```
/// #[derive(Debug, PartialEq)]
/// struct Score { wins: u32, losses: u32 }
///
/// impl larder::Value for Score {
///     fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
///         let mut bytes = [0; 8];
///         bytes[..4].copy_from_slice(&self.wins.to_le_bytes());
///         bytes[4..].copy_from_slice(&self.losses.to_le_bytes());
///         with(&bytes)
///     }
///
///     fn from_value(bytes: &[u8]) -> Option<Self> {
///         let (wins, losses) = bytes.split_first_chunk()?;
///         Some(Score {
///             wins: u32::from_le_bytes(*wins),
///             losses: u32::from_le_bytes(losses.try_into().ok()?),
///         })
///     }
/// }
/// ```
pub trait Value: Sized {
    /// The number of bytes of every value of this type, if it is fixed.
    const VALUE_BYTES: Option<usize> = None;

    /// Calls `with` with the value's bytes.
    fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R;

    /// Decodes a value. `None` if the bytes are not a value of this type; the lookup is then a
    /// miss.
    fn from_value(bytes: &[u8]) -> Option<Self>;
}

macro_rules! number_keys {
    ($($type:ty)*) => {$(
        impl Key for $type {
            const BYTES: Option<usize> = Some(size_of::<$type>());

            #[inline]
            fn with_key<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
                with(&self.to_le_bytes())
            }
        }
    )*};
}

number_keys!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

/// Numbers as values. Floats are values only: as keys, 0.0 and -0.0 would be equal with different
/// bytes.
macro_rules! number_values {
    ($($type:ty)*) => {$(
        impl Value for $type {
            const VALUE_BYTES: Option<usize> = Some(size_of::<$type>());

            #[inline]
            fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
                with(&self.to_le_bytes())
            }

            #[inline]
            fn from_value(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(<$type>::from_le_bytes)
            }
        }
    )*};
}

number_values!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

/// Types with the bytes of another type.
macro_rules! keys_as {
    ($($type:ty, $bytes:expr, |$key:ident| $as:expr;)*) => {$(
        impl Key for $type {
            const BYTES: Option<usize> = $bytes;

            #[inline]
            fn with_key<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
                let $key = self;
                $as.with_key(with)
            }
        }
    )*};
}

keys_as! {
    usize, u64::BYTES, |key| (*key as u64);
    isize, i64::BYTES, |key| (*key as i64);
    bool, u8::BYTES, |key| u8::from(*key);
    char, u32::BYTES, |key| u32::from(*key);
    str, None, |key| *key.as_bytes();
    String, None, |key| *key.as_bytes();
    Box<str>, None, |key| *key.as_bytes();
    Arc<str>, None, |key| *key.as_bytes();
    Vec<u8>, None, |key| *key.as_slice();
    Box<[u8]>, None, |key| **key;
    Arc<[u8]>, None, |key| **key;
    Ipv4Addr, Some(4), |key| key.octets();
    Ipv6Addr, Some(16), |key| key.octets();
    SocketAddr, None, |key| (key.ip(), key.port());
}

impl Key for [u8] {
    #[inline]
    fn with_key<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        with(self)
    }
}

impl<const N: usize> Key for [u8; N] {
    const BYTES: Option<usize> = Some(N);

    #[inline]
    fn with_key<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        with(self)
    }
}

impl Key for IpAddr {
    #[inline]
    fn with_key<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            IpAddr::V4(address) => with(&address.octets()),
            IpAddr::V6(address) => with(&address.octets()),
        }
    }
}

impl<K: Key + ?Sized> Key for &K {
    const BYTES: Option<usize> = K::BYTES;

    #[inline]
    fn with_key<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        (**self).with_key(with)
    }
}

impl<A: Key, B: Key> Key for (A, B) {
    const BYTES: Option<usize> = sum(&[A::BYTES, B::BYTES]);

    fn with_key<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_key(|a| self.1.with_key(|b| join(&[(a, A::BYTES.is_none()), (b, false)], with)))
    }
}

impl<A: Key, B: Key, C: Key> Key for (A, B, C) {
    const BYTES: Option<usize> = sum(&[A::BYTES, B::BYTES, C::BYTES]);

    fn with_key<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        let (a_open, b_open) = (A::BYTES.is_none(), B::BYTES.is_none());
        self.0.with_key(|a| {
            self.1.with_key(|b| {
                self.2.with_key(|c| join(&[(a, a_open), (b, b_open), (c, false)], with))
            })
        })
    }
}

impl Value for bool {
    const VALUE_BYTES: Option<usize> = Some(1);

    #[inline]
    fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        with(&[u8::from(*self)])
    }

    #[inline]
    fn from_value(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

/// For maps that only record whether a key is present.
impl Value for () {
    const VALUE_BYTES: Option<usize> = Some(0);

    #[inline]
    fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        with(&[])
    }

    #[inline]
    fn from_value(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(())
    }
}

/// Types that are bytes or text underneath.
macro_rules! values_as {
    ($($type:ty, |$value:ident| $as:expr, |$bytes:ident| $from:expr;)*) => {$(
        impl Value for $type {
            #[inline]
            fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
                let $value = self;
                with($as)
            }

            #[inline]
            fn from_value($bytes: &[u8]) -> Option<Self> {
                $from
            }
        }
    )*};
}

values_as! {
    String, |value| value.as_bytes(), |bytes| str::from_utf8(bytes).ok().map(String::from);
    Box<str>, |value| value.as_bytes(), |bytes| str::from_utf8(bytes).ok().map(Box::from);
    Arc<str>, |value| value.as_bytes(), |bytes| str::from_utf8(bytes).ok().map(Arc::from);
    Vec<u8>, |value| value, |bytes| Some(bytes.to_vec());
    Box<[u8]>, |value| value, |bytes| Some(Box::from(bytes));
    Arc<[u8]>, |value| value, |bytes| Some(Arc::from(bytes));
    // Stored without a copy of their own, and owned when they come out.
    Cow<'_, str>, |value| value.as_bytes(), |bytes| String::from_value(bytes).map(Cow::Owned);
    Cow<'_, [u8]>, |value| value, |bytes| Some(Cow::Owned(bytes.to_vec()));
}

impl<const N: usize> Value for [u8; N] {
    const VALUE_BYTES: Option<usize> = Some(N);

    #[inline]
    fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        with(self)
    }

    #[inline]
    fn from_value(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
    }
}

/// Bytes of a long key that the engine's key contains unchanged; the digest fills the rest.
const HEAD_BYTES: usize = KEY_BYTES_MAX - size_of::<u64>();

/// The seed of the digest of long keys. Fixed, because a saved cache must find them again.
const DIGEST_SEED: u64 = 0x10_96_6b_e7;

/// True for a key that the engine takes as it is.
#[inline]
pub(crate) fn is_engine_key(bytes: &[u8]) -> bool {
    (1..KEY_BYTES_MAX).contains(&bytes.len())
}

/// Converts a key to the engine's key and to the bytes in front of its value. There are such bytes
/// only if the key is empty or longer than 254 bytes.
#[inline]
pub(crate) fn with_engine_key<R>(bytes: &[u8], with: impl FnOnce(&[u8], Rest<'_>) -> R) -> R {
    if is_engine_key(bytes) { with(bytes, Rest(None)) } else { with_key_of_digest(bytes, with) }
}

#[cold]
fn with_key_of_digest<R>(bytes: &[u8], with: impl FnOnce(&[u8], Rest<'_>) -> R) -> R {
    let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES));
    let mut key = [0; KEY_BYTES_MAX];
    key[..head.len()].copy_from_slice(head);
    let digest = Hasher::new(DIGEST_SEED).hash(rest).get();
    key[HEAD_BYTES..].copy_from_slice(&digest.to_le_bytes());
    with(&key, Rest(Some((bytes.len() as u32, rest))))
}

/// The other way: the key and the value of an entry of the engine; `None` if it was not stored by
/// [`with_engine_key`].
pub(crate) fn with_key_of<R>(
    engine_key: &[u8],
    stored: &[u8],
    with: impl FnOnce(&[u8], &[u8]) -> Option<R>,
) -> Option<R> {
    if is_engine_key(engine_key) {
        return with(engine_key, stored);
    }
    let (len, stored) = stored.split_first_chunk()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let head = engine_key.get(..len.min(HEAD_BYTES))?;
    let (rest, value) = stored.split_at_checked(len - head.len())?;
    let key = [head, rest].concat();
    let is_its = with_engine_key(&key, |of_key, _| of_key == engine_key);
    if is_its { with(&key, value) } else { None }
}

/// What is stored in front of the value of a key of `len` bytes, in bytes: its length and what follows the head.
pub(crate) fn rest_len(len: usize) -> usize {
    let is_whole = (1..KEY_BYTES_MAX).contains(&len);
    if is_whole { 0 } else { size_of::<u32>() + len.saturating_sub(HEAD_BYTES) }
}

/// The bytes in front of a value that distinguish its key from others of the same digest.
#[derive(Clone, Copy)]
pub(crate) struct Rest<'a>(Option<(u32, &'a [u8])>);

impl<'a> Rest<'a> {
    /// The bytes that the engine stores for `value`.
    #[inline]
    pub fn with_stored<R>(self, value: &[u8], with: impl FnOnce(&[u8]) -> R) -> R {
        match self.0 {
            None => with(value),
            Some((len, rest)) => with(&[&len.to_le_bytes(), rest, value].concat()),
        }
    }

    /// The value within the bytes that the engine stores; `None` if it belongs to another key.
    #[inline]
    pub fn value_in(self, stored: &'a [u8]) -> Option<&'a [u8]> {
        match self.0 {
            None => Some(stored),
            Some((len, rest)) => stored.strip_prefix(&len.to_le_bytes())?.strip_prefix(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn bytes(key: &(impl Key + ?Sized)) -> Vec<u8> {
        key.with_key(<[u8]>::to_vec)
    }

    proptest! {
        /// Different tuples have different bytes, nested ones too, wherever the parts are split.
        #[test]
        fn tuples_are_distinguished(
            a in prop::collection::vec(0u8..2, 0..4), b in prop::collection::vec(0u8..2, 0..4),
            c in prop::collection::vec(0u8..2, 0..4), d in prop::collection::vec(0u8..2, 0..4),
        ) {
            let same = (&a, &b) == (&c, &d);
            prop_assert_eq!(bytes(&(a.clone(), b.clone())) == bytes(&(c.clone(), d.clone())), same);
            let (left, right) = ((a.clone(), (b.clone(), c.clone())), (a.clone(), (c.clone(), b.clone())));
            prop_assert_eq!(bytes(&left) == bytes(&right), b == c);
            let (left, right) = ((a.clone(), b.clone(), c.clone()), (b.clone(), a.clone(), c));
            prop_assert_eq!(bytes(&left) == bytes(&right), a == b);
        }

        /// Every key becomes one that the engine accepts. The value stored under it is returned for
        /// that key, and for no other key even if the digests are equal.
        #[test]
        fn engine_keys_are_checked(
            key in prop::collection::vec(any::<u8>(), 0..600), flip in any::<prop::sample::Index>(),
            value in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            with_engine_key(&key, |engine_key, rest| {
                assert!((1..=KEY_BYTES_MAX).contains(&engine_key.len()));
                rest.with_stored(&value, |stored| {
                    assert_eq!(rest.value_in(stored), Some(&value[..]));
                    let back = |key: &[u8], value: &[u8]| Some((key.to_vec(), value.to_vec()));
                    let both = Some((key.clone(), value.clone()));
                    assert_eq!(with_key_of(engine_key, stored, back), both);
                    if key.len() > HEAD_BYTES + 8 {
                        let mut other = key.clone();
                        other[HEAD_BYTES + flip.index(key.len() - HEAD_BYTES)] ^= 1;
                        with_engine_key(&other, |_, rest| assert_eq!(rest.value_in(stored), None));
                    }
                });
            });
        }
    }

    /// Keys with lengths around the limits of each form have different engine keys.
    #[test]
    fn lengths_are_distinguished() {
        let mut seen = HashMap::new();
        for len in (0..700).chain([5_000, 70_000]) {
            let key = vec![0; len];
            let engine_key = with_engine_key(&key, |engine_key, _| engine_key.to_vec());
            assert_eq!(seen.insert(engine_key, len), None, "{len} bytes");
        }
        assert_eq!(bytes(&("a".repeat(300), 7u8)).len(), 300 + 1 + 5, "a long part in a tuple");
    }

    /// Values decode to the encoded ones, and bytes that are no value of the type give `None`.
    #[test]
    fn values_round_trip() {
        fn same<V: Value + PartialEq + std::fmt::Debug>(value: V) {
            assert_eq!(value.with_value(V::from_value), Some(value));
        }
        same(7u8);
        same(-7i128);
        same(0.5f64);
        same(true);
        same(());
        same(String::from("é"));
        same(Arc::<str>::from("x"));
        same(vec![1u8, 2]);
        same(Cow::<str>::Borrowed("é"));
        same(Cow::<[u8]>::Borrowed(&[4]));
        same(Arc::<[u8]>::from([3u8]));
        same([1u8, 2, 3]);
        assert_eq!(u32::from_value(&[1, 2, 3]), None);
        assert_eq!(bool::from_value(&[2]), None);
        assert_eq!((String::from_value(&[0xff]), Cow::<str>::from_value(&[0xff])), (None, None));
    }
}
