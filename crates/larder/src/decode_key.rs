//! Keys from their bytes: what a walk over a [`crate::Map`] needs besides [`Key`].
//!
//! Invariant: what [`Key::with_key`] passes decodes to a key with the same bytes. That is an equal
//! one, but for a `SocketAddr` of IPv6, whose bytes have no flow label and no scope.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use crate::codec::Key;
use crate::derived::split;

/// A key that can be decoded from its bytes, for [`crate::Map::iter`] and [`crate::Map::retain`].
///
/// ```
/// #[derive(Debug, PartialEq)]
/// struct Flow { host: std::net::IpAddr, port: u16 }
///
/// impl larder::Key for Flow {
///     fn with_key<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
///         (self.host, self.port).with_key(with)
///     }
/// }
///
/// impl larder::DecodeKey for Flow {
///     type Owned = Flow;
///
///     fn from_key(bytes: &[u8]) -> Option<Flow> {
///         <(std::net::IpAddr, u16)>::from_key(bytes).map(|(host, port)| Flow { host, port })
///     }
/// }
/// # use larder::{DecodeKey, Key};
/// # let flow = Flow { host: [192, 0, 2, 1].into(), port: 443 };
/// # assert_eq!(flow.with_key(Flow::from_key), Some(flow));
/// ```
pub trait DecodeKey: Key {
    /// The key as a value: `Self`, or `String` for `str` and `Vec<u8>` for `[u8]`.
    type Owned;

    /// Decodes a key. `None` if the bytes are not those of a key of this type.
    fn from_key(bytes: &[u8]) -> Option<Self::Owned>;
}

macro_rules! decoded_as_numbers {
    ($($type:ty)*) => {$(
        impl DecodeKey for $type {
            type Owned = $type;

            fn from_key(bytes: &[u8]) -> Option<$type> {
                bytes.try_into().ok().map(<$type>::from_le_bytes)
            }
        }
    )*};
}

decoded_as_numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

/// Types with the bytes of another type.
macro_rules! decoded_as {
    ($($type:ty => $owned:ty, $as:ty, |$key:ident| $from:expr;)*) => {$(
        impl DecodeKey for $type {
            type Owned = $owned;

            fn from_key(bytes: &[u8]) -> Option<$owned> {
                let $key = <$as>::from_key(bytes)?;
                $from
            }
        }
    )*};
}

decoded_as! {
    usize => usize, u64, |key| key.try_into().ok();
    isize => isize, i64, |key| key.try_into().ok();
    bool => bool, u8, |key| (key < 2).then_some(key == 1);
    char => char, u32, |key| char::from_u32(key);
    str => String, [u8], |key| String::from_utf8(key).ok();
    String => String, str, |key| Some(key);
    Box<str> => Box<str>, str, |key| Some(key.into());
    Arc<str> => Arc<str>, str, |key| Some(key.into());
    Vec<u8> => Vec<u8>, [u8], |key| Some(key);
    Box<[u8]> => Box<[u8]>, [u8], |key| Some(key.into());
    Arc<[u8]> => Arc<[u8]>, [u8], |key| Some(key.into());
    Ipv4Addr => Ipv4Addr, [u8; 4], |key| Some(key.into());
    Ipv6Addr => Ipv6Addr, [u8; 16], |key| Some(key.into());
    SocketAddr => SocketAddr, (IpAddr, u16), |key| Some(key.into());
}

impl DecodeKey for [u8] {
    type Owned = Vec<u8>;

    fn from_key(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

impl<const N: usize> DecodeKey for [u8; N] {
    type Owned = [u8; N];

    fn from_key(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
}

impl DecodeKey for IpAddr {
    type Owned = IpAddr;

    fn from_key(bytes: &[u8]) -> Option<IpAddr> {
        let v4 = || <[u8; 4]>::from_key(bytes).map(IpAddr::from);
        v4().or_else(|| <[u8; 16]>::from_key(bytes).map(IpAddr::from))
    }
}

impl<K: DecodeKey + ?Sized> DecodeKey for &K {
    type Owned = K::Owned;

    fn from_key(bytes: &[u8]) -> Option<K::Owned> {
        K::from_key(bytes)
    }
}

impl<A: DecodeKey, B: DecodeKey> DecodeKey for (A, B) {
    type Owned = (A::Owned, B::Owned);

    fn from_key(bytes: &[u8]) -> Option<Self::Owned> {
        let [a, b] = split(bytes, [A::BYTES, B::BYTES])?;
        Some((A::from_key(a)?, B::from_key(b)?))
    }
}

impl<A: DecodeKey, B: DecodeKey, C: DecodeKey> DecodeKey for (A, B, C) {
    type Owned = (A::Owned, B::Owned, C::Owned);

    fn from_key(bytes: &[u8]) -> Option<Self::Owned> {
        let [a, b, c] = split(bytes, [A::BYTES, B::BYTES, C::BYTES])?;
        Some((A::from_key(a)?, B::from_key(b)?, C::from_key(c)?))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use proptest::prelude::*;

    use super::*;

    fn same<K: DecodeKey<Owned = K> + PartialEq + Debug>(key: K) {
        assert_eq!(key.with_key(K::from_key), Some(key));
    }

    proptest! {
        /// A key decodes to itself, and any bytes to no key or to one with these bytes.
        #[test]
        fn keys_round_trip(
            text in any::<String>(), bytes in prop::collection::vec(any::<u8>(), 0..600),
            v4 in any::<[u8; 4]>(), v6 in any::<[u8; 16]>(), port in any::<u16>(),
        ) {
            same(text.clone());
            same((text.clone(), bytes.clone()));
            same((bytes.clone(), port, text.clone()));
            same((port, bytes.clone(), bytes.clone()));
            same((bytes.clone(), text.clone(), port));
            same(((text.clone(), bytes.clone()), (port, text.clone())));
            for addr in [IpAddr::from(v4), IpAddr::from(v6)] {
                same(addr);
                same(SocketAddr::new(addr, port));
            }
            type Mixed = (Vec<u8>, u16, Vec<u8>);
            if let Some(key) = Mixed::from_key(&bytes) {
                // A length below 255 in five bytes is read too, and written in one.
                prop_assert_eq!(key.with_key(Mixed::from_key), Some(key));
            }
            if let Some(key) = SocketAddr::from_key(&bytes) {
                key.with_key(|again| assert_eq!(again, bytes));
            }
        }
    }

    /// Numbers and the shorter types; bytes that are no key of the type give `None`.
    #[test]
    fn other_bytes_are_no_keys() {
        same(7u8);
        same(-7i128);
        same(usize::MAX);
        same(isize::MIN);
        same(true);
        same('é');
        same([1u8, 2, 3]);
        same(Arc::<str>::from("x"));
        same(Box::<[u8]>::from([3u8]));
        assert_eq!(u32::from_key(&[1, 2, 3]), None);
        assert_eq!(bool::from_key(&[2]), None);
        assert_eq!(char::from_key(&0xd800_u32.to_le_bytes()), None);
        assert_eq!(str::from_key(&[0xff]), None);
        assert_eq!(IpAddr::from_key(&[1; 5]), None);
        assert_eq!(<(String, u8)>::from_key(&[]), None);
        assert_eq!(<(String, u8)>::from_key(&[9, 9]), None, "a length beyond the end");
        assert_eq!(<(String, u8)>::from_key(&[1, 0, 255]), None, "a length cut");
    }
}
