//! Words about names of addresses: where a name came from, and what makes it doubtful.
//!
//! Logs, queries and the packet store share them.

/// Where a name came from. The order is the order of preference among names for one address
/// (smaller is better).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum NameSource {
    /// The TLS or DTLS ClientHello of the flow itself.
    Sni = 0,
    /// The QUIC Initial of the flow itself.
    QuicSni = 1,
    /// The HTTP Host of the flow itself, `:authority` in HTTP/2.
    HttpHost = 2,
    /// This client queried this name and got this address.
    DnsPair = 3,
    /// Another client queried, and the name is the head of a chain of CNAMEs over several
    /// responses.
    DnsChain = 4,
    /// Another client queried this name and got this address.
    DnsAddress = 5,
    /// A host states its own name: multicast DNS (RFC 6762).
    Mdns = 6,
    /// A host states its own name: LLMNR (RFC 4795).
    Llmnr = 7,
    /// A host states its own name: NetBIOS name service (RFC 1002).
    Nbns = 8,
    /// A host states its own name: DHCP option 12 or 81, DHCPv6 option 39.
    Dhcp = 9,
    /// A reverse lookup (PTR) of this address.
    Ptr = 10,
    /// Clients that looked up another name here stated this one.
    Learned = 11,
}

impl NameSource {
    /// All sources, in order of preference.
    pub const ALL: [NameSource; 12] = [
        NameSource::Sni,
        NameSource::QuicSni,
        NameSource::HttpHost,
        NameSource::DnsPair,
        NameSource::DnsChain,
        NameSource::DnsAddress,
        NameSource::Mdns,
        NameSource::Llmnr,
        NameSource::Nbns,
        NameSource::Dhcp,
        NameSource::Ptr,
        NameSource::Learned,
    ];

    /// True for names that lookups gave: what other flows stated helps to choose among them.
    pub const fn is_lookup(self) -> bool {
        matches!(self, NameSource::DnsPair | NameSource::DnsChain | NameSource::DnsAddress)
    }

    /// The spelling in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            NameSource::Sni => "sni",
            NameSource::QuicSni => "quic_sni",
            NameSource::HttpHost => "http_host",
            NameSource::DnsPair => "dns_pair",
            NameSource::DnsChain => "dns_chain",
            NameSource::DnsAddress => "dns_address",
            NameSource::Mdns => "mdns",
            NameSource::Llmnr => "llmnr",
            NameSource::Nbns => "nbns",
            NameSource::Dhcp => "dhcp",
            NameSource::Ptr => "ptr",
            NameSource::Learned => "learned",
        }
    }
}

/// Doubts about a name: a set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NameFlags(u16);

impl NameFlags {
    /// No doubt.
    pub const NONE: NameFlags = NameFlags(0);
    /// The name was past its TTL at the flow's first packet.
    pub const STALE: NameFlags = NameFlags(1);
    /// The name was learned only after the flow's first packet.
    pub const LATE: NameFlags = NameFlags(1 << 1);
    /// The address had rival names.
    pub const AMBIGUOUS: NameFlags = NameFlags(1 << 2);
    /// Lookups gave the address a name of another registered domain than the flow states, or the
    /// flow states two names.
    pub const CONFLICT: NameFlags = NameFlags(1 << 3);
    /// The name comes from a response without a query, of a client whose queries are seen.
    pub const UNSOLICITED: NameFlags = NameFlags(1 << 4);
    /// The name comes from a response to a client whose queries are never seen.
    pub const ONE_SIDED: NameFlags = NameFlags(1 << 5);
    /// The flow states the name, and no lookup gave it for this address.
    pub const UNCONFIRMED: NameFlags = NameFlags(1 << 6);
    /// A host or a reverse zone claims the name, and nothing confirms it.
    pub const CLAIMED: NameFlags = NameFlags(1 << 7);

    /// Every flag with its spelling in logs, in the order of the columns.
    pub const ALL: [(NameFlags, &'static str); 8] = [
        (NameFlags::STALE, "stale"),
        (NameFlags::LATE, "late"),
        (NameFlags::AMBIGUOUS, "ambiguous"),
        (NameFlags::CONFLICT, "conflict"),
        (NameFlags::UNSOLICITED, "unsolicited"),
        (NameFlags::ONE_SIDED, "one_sided"),
        (NameFlags::UNCONFIRMED, "unconfirmed"),
        (NameFlags::CLAIMED, "claimed"),
    ];

    /// True when every flag of `flags` is set.
    #[inline]
    pub const fn has(self, flags: NameFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// True when some flag of `flags` is set.
    #[inline]
    pub const fn intersects(self, flags: NameFlags) -> bool {
        self.0 & flags.0 != 0
    }

    /// With the flags of `flags` as well.
    #[must_use]
    pub const fn with(self, flags: NameFlags) -> NameFlags {
        NameFlags(self.0 | flags.0)
    }

    /// Without the flags of `flags`.
    #[must_use]
    pub const fn without(self, flags: NameFlags) -> NameFlags {
        NameFlags(self.0 & !flags.0)
    }

    /// With the flags of `flags` as well, if `condition` holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, flags: NameFlags) -> NameFlags {
        if condition { self.with(flags) } else { self }
    }

    /// The flags as bits, for [`NameFlags::from_bits`].
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The flags of [`NameFlags::bits`]; bits that are no flag are ignored.
    pub const fn from_bits(bits: u16) -> NameFlags {
        NameFlags(bits & ((1 << NameFlags::ALL.len()) - 1))
    }
}
