//! The network in which a packet's addresses are valid: its VLAN tags, and the identifier of its
//! overlay network.
//!
//! Two networks may use the same private addresses. On a wire that carries both, they differ by a
//! VLAN ID, a VNI of VXLAN or Geneve, or a key of GRE. A [`Scope`] is all of them in one number,
//! exactly, so that it compares as fast as a port.
//!
//! ```text
//! bits  0 .. 12   outermost VLAN ID        0: no tag, or a tag that carries a priority only
//! bits 12 .. 24   innermost VLAN ID        0: fewer than two
//! bits 24 .. 56   VNI or GRE key
//! bits 56 .. 58   what that is             0: there is none
//! bit  63         a mark of the caller's: see [`Scope::for_names`]
//! ```
//!
//! Limits: of more than two tags those between are omitted, and of nested tunnels the innermost
//! identifier counts. Tags count at any place, around a tunnel or in it.

/// The network in which a packet's addresses are valid. The default is a packet without tags and
/// identifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(u64);

const VLAN_BITS: u32 = 12;
const VLAN_MASK: u64 = (1 << VLAN_BITS) - 1;
const ID_SHIFT: u32 = 2 * VLAN_BITS;
const KIND_SHIFT: u32 = ID_SHIFT + 32;
const VNI: u64 = 1;
const GRE_KEY: u64 = 2;
const FOR_NAMES: u64 = 1 << 63;

impl Scope {
    /// No tag and no identifier.
    pub const NONE: Scope = Scope(0);

    /// From a number of [`Scope::bits`]; `None` for any other number.
    pub fn from_bits(bits: u64) -> Option<Scope> {
        let scope = Scope(bits);
        let [outer, inner] = [scope.vlan_bits(0), scope.vlan_bits(VLAN_BITS)];
        let is_made = (outer != 0 || inner == 0)
            && match bits >> KIND_SHIFT {
                0 => scope.id() == 0,
                VNI => scope.id() < 1 << 24,
                GRE_KEY => true,
                _ => false,
            };
        is_made.then_some(scope)
    }

    /// As one number; 0 is [`Scope::NONE`] only.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// True without tag and identifier.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The same network, seen where packets are read for names only: it keeps their flows apart from
    /// those of the log.
    #[inline]
    pub const fn for_names(self) -> Scope {
        Scope(self.0 | FOR_NAMES)
    }

    /// True if its packets are read for names only.
    #[inline]
    pub const fn is_for_names(self) -> bool {
        self.0 & FOR_NAMES != 0
    }

    /// The network alone, without the mark.
    #[inline]
    pub const fn network(self) -> Scope {
        Scope(self.0 & !FOR_NAMES)
    }

    /// The scope in a VLAN tag with this tag control information (IEEE 802.1Q). ID 0 is no VLAN:
    /// such a tag carries a priority.
    #[inline]
    pub const fn tagged(self, control: u16) -> Scope {
        let id = control as u64 & VLAN_MASK;
        if self.0 & VLAN_MASK == 0 {
            Scope(self.0 | id)
        } else if id == 0 {
            self
        } else {
            Scope(self.0 & !(VLAN_MASK << VLAN_BITS) | id << VLAN_BITS)
        }
    }

    /// The scope in the overlay network `vni` (24 bits) of VXLAN or Geneve.
    pub const fn with_vni(self, vni: u32) -> Scope {
        self.with(VNI, vni & 0xff_ffff)
    }

    /// The scope in a GRE tunnel with this key (RFC 2890).
    pub const fn with_gre_key(self, key: u32) -> Scope {
        self.with(GRE_KEY, key)
    }

    const fn with(self, kind: u64, id: u32) -> Scope {
        let tags = self.0 & ((1 << ID_SHIFT) - 1);
        Scope(tags | (id as u64) << ID_SHIFT | kind << KIND_SHIFT)
    }

    /// The outermost VLAN ID.
    pub fn vlan(self) -> Option<u16> {
        Some(self.vlan_bits(0)).filter(|id| *id != 0)
    }

    /// The innermost VLAN ID, where there is more than one tag.
    pub fn inner_vlan(self) -> Option<u16> {
        Some(self.vlan_bits(VLAN_BITS)).filter(|id| *id != 0)
    }

    /// The identifier of the overlay network.
    pub fn vni(self) -> Option<u32> {
        (self.0 >> KIND_SHIFT == VNI).then(|| self.id())
    }

    /// The key of the GRE tunnel.
    pub fn gre_key(self) -> Option<u32> {
        (self.0 >> KIND_SHIFT == GRE_KEY).then(|| self.id())
    }

    fn vlan_bits(self, shift: u32) -> u16 {
        (self.0 >> shift & VLAN_MASK) as u16
    }

    fn id(self) -> u32 {
        (self.0 >> ID_SHIFT) as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A scope returns its parts, and two are equal only if all parts are: the number is exact.
        #[test]
        fn scopes_are_exact(tags in prop::collection::vec(0u16..5, 0..4), id in prop::option::of((any::<bool>(), 0u32..3))) {
            let scope = tags.iter().fold(Scope::NONE, |scope, tag| scope.tagged(0xe000 | tag));
            let scope = match id {
                Some((true, id)) => scope.with_vni(id),
                Some((false, id)) => scope.with_gre_key(id),
                None => scope,
            };
            let ids: Vec<u16> = tags.into_iter().filter(|tag| *tag != 0).collect();
            prop_assert_eq!(scope.vlan(), ids.first().copied());
            let last = ids.last().copied().filter(|_| ids.len() > 1);
            prop_assert_eq!(scope.inner_vlan(), last);
            prop_assert_eq!(scope.vni(), id.filter(|id| id.0).map(|id| id.1));
            prop_assert_eq!(scope.gre_key(), id.filter(|id| !id.0).map(|id| id.1));
            prop_assert_eq!(scope.is_none(), ids.is_empty() && id.is_none());
            prop_assert_eq!(Scope::from_bits(scope.bits()), Some(scope));
            let marked = scope.for_names();
            prop_assert!(marked.is_for_names() && !scope.is_for_names());
            prop_assert_eq!((marked.network(), Scope::from_bits(marked.bits())), (scope, None));
        }

        /// Of any number, a scope is made only where one has that number.
        #[test]
        fn other_numbers_are_refused(bits in any::<u64>(), shift in 0u32..64) {
            let bits = bits >> shift;
            if let Some(scope) = Scope::from_bits(bits) {
                let tags = [scope.vlan(), scope.inner_vlan()].into_iter().flatten();
                let again = tags.fold(Scope::NONE, Scope::tagged);
                let again = scope.vni().map_or(again, |vni| again.with_vni(vni));
                let again = scope.gre_key().map_or(again, |key| again.with_gre_key(key));
                prop_assert_eq!(again.bits(), bits);
            }
        }
    }
}
