//! Values of any type that serde knows, by the feature `serde`.
//!
//! The bytes are those of postcard: no names of fields, short numbers. They do not describe
//! themselves, so bytes of one type may decode as another without an error. In memory that can't
//! happen, as a map has one type of values. A saved cache must be loaded by a program with the same
//! type.

use std::fmt;
use std::ops::Deref;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::Value;

/// A value of a [`crate::Map`] that serde encodes. By the feature `serde`. It reads as the value
/// itself:
///
/// ```
/// use larder::{Encoded, Map};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Host { name: String, ports: Vec<u16> }
///
/// let map: Map<str, Encoded<Host>> = Map::new(1 << 20)?;
/// let host = Host { name: "www.example.org".into(), ports: vec![80, 443] };
/// map.insert("192.0.2.1", Encoded::new(host)?)?;
/// assert_eq!(map.get("192.0.2.1").unwrap().ports, [80, 443]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A saved cache must be loaded with the same type: bytes of another version of it may decode as
/// other values.
#[derive(Clone)]
pub struct Encoded<T> {
    value: T,
    /// What the map stores. Made once, since storing a value has no error to return.
    bytes: Vec<u8>,
}

/// A value that serde could not encode: its own implementation refused, or it has a sequence whose
/// length is not known.
#[derive(Debug)]
pub struct EncodeError(postcard::Error);

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value could not be encoded ({}); see its implementation of Serialize", self.0)
    }
}

impl std::error::Error for EncodeError {}

impl<T: Serialize> Encoded<T> {
    /// Encodes a value, once, so that storing it can't fail for that reason.
    pub fn new(value: T) -> Result<Encoded<T>, EncodeError> {
        let bytes = postcard::to_allocvec(&value).map_err(EncodeError)?;
        Ok(Encoded { value, bytes })
    }
}

impl<T> Encoded<T> {
    /// The value.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> Deref for Encoded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Encoded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Encoded<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Serialize + DeserializeOwned> Value for Encoded<T> {
    fn with_value<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        with(&self.bytes)
    }

    fn from_value(bytes: &[u8]) -> Option<Self> {
        let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then(|| Encoded { value, bytes: bytes.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::{Change, Clock, Map, Seconds};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Plain,
        Named { names: BTreeMap<String, u64>, mark: Option<char> },
    }

    /// What is stored is what comes back, also after a change of a value that came from the map;
    /// other bytes are a miss.
    #[test]
    fn values_round_trip() {
        let map: Map<str, Encoded<Kind>> =
            Map::build(Map::<str, ()>::builder(), Clock::manual(Seconds(1))).unwrap();
        let named = Kind::Named { names: [("a".into(), 300)].into(), mark: Some('é') };
        map.insert("named", Encoded::new(named.clone()).unwrap()).unwrap();
        map.insert("plain", Encoded::new(Kind::Plain).unwrap()).unwrap();
        assert_eq!(map.get("plain").map(Encoded::into_inner), Some(Kind::Plain));
        // A value that was read is stored again.
        let stored = map.get("named").unwrap();
        map.compute("plain", |_| Change::Update(stored.clone())).unwrap();
        assert_eq!(map.get("plain").map(Encoded::into_inner), Some(named.clone()));
        assert_eq!((format!("{stored:?}"), &*stored), (format!("{named:?}"), &named));
        assert_eq!(Encoded::<Kind>::from_value(&[7]), None);
        assert_eq!(Encoded::<Kind>::from_value(&[0, 0]), None, "bytes behind the value");
    }

    /// A value that can't be encoded is an error, before anything is stored.
    #[test]
    fn an_error_is_returned() {
        struct Refuses;
        impl Serialize for Refuses {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_seq((0..3u8).filter(|number| *number > 0))
            }
        }
        let error = Encoded::new(Refuses).err().unwrap();
        assert!(error.to_string().contains("could not be encoded"), "{error}");
    }
}
