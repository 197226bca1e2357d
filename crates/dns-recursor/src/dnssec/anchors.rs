//! The trusted keys of the root: built in, or from a file of DNSKEY records as other resolvers have it.
//!
//! The built-in keys are those of IANA (`data/`, with their source). larder does not follow key changes
//! (RFC 5011). KSK-2024 is included before its first use, so the next change is years away.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hickory_proto::dnssec::TrustAnchors;

/// The keys of the root.
const BUILT_IN: &str = include_str!("../../data/root.anchors");

/// Keys that are trusted without a proof.
#[derive(Clone)]
pub struct Anchors(pub Arc<TrustAnchors>);

impl Anchors {
    /// The built-in keys.
    pub fn built_in() -> Anchors {
        Anchors::parse(BUILT_IN).expect("a test reads it")
    }

    /// The keys in a file. The error says what is wrong.
    pub fn parse(text: &str) -> Result<Anchors, String> {
        let anchors = TrustAnchors::from_str(text)
            .map_err(|error| format!("not a file of DNSKEY records: {error}"))?;
        match anchors.is_empty() {
            true => Err("no key of the root: expected '. IN DNSKEY 257 3 …'".into()),
            false => Ok(Anchors(Arc::new(anchors))),
        }
    }
}

impl fmt::Debug for Anchors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Anchors({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The built-in keys are the two that the library has too.
    #[test]
    fn built_in() {
        let (ours, theirs) = (Anchors::built_in().0, TrustAnchors::default());
        assert_eq!((ours.len(), theirs.len()), (2, 2));
        for at in 0..2 {
            assert!(theirs.contains(ours.get(at).unwrap()), "key {at}");
        }
    }

    /// An invalid file, and one without keys of the root, are errors.
    #[test]
    fn unusable_files() {
        assert!(Anchors::parse("; nothing\n").unwrap_err().contains("no key"));
        assert!(Anchors::parse(". IN A 192.0.2.1\n").unwrap_err().contains("DNSKEY"));
    }
}
