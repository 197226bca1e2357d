//! Values that are put together of others, or have the bytes of keys: addresses, characters, pairs.

use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::codec::{Key, Value};
use crate::decode_key::DecodeKey;
use crate::derived::{join, split, sum};

/// Values that have the bytes of the key of the same type.
macro_rules! values_as_keys {
    ($($type:ty)*) => {$(
        impl Value for $type {
            const VALUE_BYTES: Option<usize> = <$type as Key>::BYTES;

            #[inline]
            fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
                self.with_key(with)
            }

            #[inline]
            fn from_value(bytes: &[u8]) -> Option<Self> {
                <$type>::from_key(bytes)
            }
        }
    )*};
}

values_as_keys!(usize isize char Ipv4Addr Ipv6Addr IpAddr);

/// Of IPv6 with the flow label and the scope, which a key has not.
impl Value for SocketAddr {
    fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            SocketAddr::V4(v4) => (*v4.ip(), v4.port()).with_key(with),
            SocketAddr::V6(v6) => {
                ((*v6.ip(), v6.port()), (v6.flowinfo(), v6.scope_id())).with_key(with)
            }
        }
    }

    fn from_value(bytes: &[u8]) -> Option<Self> {
        if let Some((ip, port)) = <(Ipv4Addr, u16)>::from_key(bytes) {
            return Some(SocketAddr::from((ip, port)));
        }
        let ((ip, port), (label, scope)) = <((Ipv6Addr, u16), (u32, u32))>::from_key(bytes)?;
        Some(SocketAddrV6::new(ip, port, label, scope).into())
    }
}

impl<A: Value, B: Value> Value for (A, B) {
    const VALUE_BYTES: Option<usize> = sum(&[A::VALUE_BYTES, B::VALUE_BYTES]);

    fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        let a_open = A::VALUE_BYTES.is_none();
        self.0.with_value(|a| self.1.with_value(|b| join(&[(a, a_open), (b, false)], with)))
    }

    fn from_value(bytes: &[u8]) -> Option<Self> {
        let [a, b] = split(bytes, [A::VALUE_BYTES, B::VALUE_BYTES])?;
        Some((A::from_value(a)?, B::from_value(b)?))
    }
}

impl<A: Value, B: Value, C: Value> Value for (A, B, C) {
    const VALUE_BYTES: Option<usize> = sum(&[A::VALUE_BYTES, B::VALUE_BYTES, C::VALUE_BYTES]);

    fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        let (a_open, b_open) = (A::VALUE_BYTES.is_none(), B::VALUE_BYTES.is_none());
        self.0.with_value(|a| {
            self.1.with_value(|b| {
                self.2.with_value(|c| join(&[(a, a_open), (b, b_open), (c, false)], with))
            })
        })
    }

    fn from_value(bytes: &[u8]) -> Option<Self> {
        let [a, b, c] = split(bytes, [A::VALUE_BYTES, B::VALUE_BYTES, C::VALUE_BYTES])?;
        Some((A::from_value(a)?, B::from_value(b)?, C::from_value(c)?))
    }
}

/// Nothing is stored of it, so a derived type may have one.
impl<T> Value for PhantomData<T> {
    const VALUE_BYTES: Option<usize> = Some(0);

    fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        with(&[])
    }

    fn from_value(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(PhantomData)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn same<V: Value + PartialEq + Debug>(value: V) -> Vec<u8> {
        let bytes = value.with_value(<[u8]>::to_vec);
        assert_eq!(V::from_value(&bytes).as_ref(), Some(&value));
        assert!(V::VALUE_BYTES.is_none_or(|len| len == bytes.len()));
        bytes
    }

    /// They come out as they went in, an address with its flow label and scope; other bytes are refused.
    #[test]
    fn they_come_out_as_they_went_in() {
        let (v4, v6) = (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::from_bits(0x2001_0db8 << 96 | 1));
        for address in [IpAddr::from(v4), IpAddr::from(v6)] {
            same(SocketAddr::new(address, 53));
            same((address, 'é', usize::MAX));
        }
        same(SocketAddr::from(SocketAddrV6::new(v6, 53, 9, 7)));
        assert_eq!(same(("a".to_owned(), v4)), b"a\xc0\0\x02\x01\x01");
        assert_eq!(same((vec![1u8; 300], "b".to_owned())).len(), 300 + 1 + 5);
        assert_eq!((same(PhantomData::<u8>), same((-1isize, v6)).len()), (vec![], 24));
        assert_eq!(SocketAddr::from_value(&[0; 7]), None);
        assert_eq!(<(String, u8)>::from_value(&[9, 9]), None, "a length beyond the end");
        assert_eq!(char::from_value(&[0, 0xd8, 0, 0]), None);
    }
}
