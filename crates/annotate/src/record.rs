//! A finished flow: all data of a log line.
//!
//! The worker that owns a flow makes its record when the flow ends. Formats read only the record,
//! so all formats state the same.

use larder_wire::packet::Tunnel;
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

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

/// The name chosen for one end of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// The name.
    pub name: Name,
    /// Where it came from.
    pub source: NameSource,
    /// Time between learning the name and the flow's first packet, milliseconds; 0 for names that
    /// the flow states itself and for late names.
    pub age_ms: u64,
    /// Doubts about it.
    pub flags: NameFlags,
    /// How sure it is, percent: 1 to 99.
    pub confidence: u8,
    /// How far the stated name is from the names that lookups gave; `None` if they agree, and if
    /// there is nothing to compare.
    pub conflict_grade: Option<ConflictGrade>,
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

/// How far the name that a flow states is from the names that lookups gave for its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConflictGrade {
    /// Another name of the same registered domain.
    SameDomain = 0,
    /// Another registered domain, and an alias chain (CNAME) that was seen joins the names.
    Chain = 1,
    /// Another registered domain, and no such chain: [`NameFlags::CONFLICT`] is set.
    OtherDomain = 2,
}

impl ConflictGrade {
    /// All grades, the mildest first.
    pub const ALL: [ConflictGrade; 3] =
        [ConflictGrade::SameDomain, ConflictGrade::Chain, ConflictGrade::OtherDomain];

    /// The spelling in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            ConflictGrade::SameDomain => "same_domain",
            ConflictGrade::Chain => "chain",
            ConflictGrade::OtherDomain => "other_domain",
        }
    }
}

/// Why an end of a flow has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum UnnamedReason {
    /// Lookups by this client are seen, and none gave this address.
    NoLookupSeen,
    /// The flow was under way when the capture began, or began in its first seconds.
    BeforeCapture,
    /// The client uses DNS over TLS, HTTPS or QUIC.
    EncryptedDnsSuspected,
    /// The address had a name that was evicted.
    Evicted,
    /// The address is local, and its host never stated its name.
    Local,
    /// There is a name, with a confidence below `--min-confidence`.
    LowConfidence,
}

impl UnnamedReason {
    /// All reasons.
    pub const ALL: [UnnamedReason; 6] = [
        UnnamedReason::NoLookupSeen,
        UnnamedReason::BeforeCapture,
        UnnamedReason::EncryptedDnsSuspected,
        UnnamedReason::Evicted,
        UnnamedReason::Local,
        UnnamedReason::LowConfidence,
    ];

    /// The spelling in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            UnnamedReason::NoLookupSeen => "no_lookup_seen",
            UnnamedReason::BeforeCapture => "before_capture",
            UnnamedReason::EncryptedDnsSuspected => "encrypted_dns_suspected",
            UnnamedReason::Evicted => "evicted",
            UnnamedReason::Local => "local",
            UnnamedReason::LowConfidence => "low_confidence",
        }
    }
}

/// Where a name for an address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The kind of message.
    pub source: NameSource,
    /// When it was learned, ns since 1970 UTC.
    pub time_ns: i64,
    /// Doubts about it.
    pub flags: NameFlags,
}

/// One end of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Its address.
    pub addr: Addr,
    /// Its port; ICMP: see [`FlowRecord::protocol`].
    pub port: u16,
    /// Packets that it sent.
    pub packets: u64,
    /// Bytes that it sent, by the innermost IP headers.
    pub ip_bytes: u64,
    /// Bytes of payload that it sent: TCP by sequence numbers (as Zeek), others by the headers;
    /// `None` if the TCP sequence numbers were not consistent.
    pub payload_bytes: Option<u64>,
    /// TCP payload bytes that the capture lacks (gaps).
    pub missed_bytes: u64,
    /// The name chosen.
    pub naming: Option<Naming>,
    /// Every name known for it, best first; the chosen one is the first.
    pub candidates: Vec<Name>,
    /// Where each of several candidates comes from, in their order, as long as the choice among them is due.
    pub origins: Vec<Origin>,
    /// Why there is no name; `None` if there is one.
    pub unnamed_reason: Option<UnnamedReason>,
}

impl End {
    /// An end of which only the address is known.
    pub fn of(addr: Addr) -> End {
        End {
            addr,
            port: 0,
            packets: 0,
            ip_bytes: 0,
            payload_bytes: None,
            missed_bytes: 0,
            naming: None,
            candidates: Vec::new(),
            origins: Vec::new(),
            unnamed_reason: None,
        }
    }
}

/// TCP connection states with Zeek's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, clippy::upper_case_acronyms)]
pub enum ConnState {
    S0,
    S1,
    SF,
    REJ,
    S2,
    S3,
    RSTO,
    RSTR,
    RSTOS0,
    RSTRH,
    SH,
    SHR,
    OTH,
}

impl ConnState {
    /// Zeek's spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            ConnState::S0 => "S0",
            ConnState::S1 => "S1",
            ConnState::SF => "SF",
            ConnState::REJ => "REJ",
            ConnState::S2 => "S2",
            ConnState::S3 => "S3",
            ConnState::RSTO => "RSTO",
            ConnState::RSTR => "RSTR",
            ConnState::RSTOS0 => "RSTOS0",
            ConnState::RSTRH => "RSTRH",
            ConnState::SH => "SH",
            ConnState::SHR => "SHR",
            ConnState::OTH => "OTH",
        }
    }
}

/// Application protocol, as far as larder reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum App {
    Dns,
    Mdns,
    Llmnr,
    Nbns,
    Dhcp,
    Tls,
    Dtls,
    Quic,
    Http,
}

impl App {
    /// The spelling in ECS `network.protocol` and Zeek `service`.
    pub const fn as_str(self) -> &'static str {
        match self {
            App::Dns => "dns",
            App::Mdns => "mdns",
            App::Llmnr => "llmnr",
            App::Nbns => "netbios-ns",
            App::Dhcp => "dhcp",
            App::Tls => "tls",
            App::Dtls => "dtls",
            App::Quic => "quic",
            App::Http => "http",
        }
    }
}

/// Why a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum EndReason {
    /// FIN or RST, then the linger time.
    Closed,
    /// Idle too long (packet time).
    Idle,
    /// Active timeout (live capture).
    Active,
    /// The flow table was full, and this flow was the longest idle.
    Evicted,
    /// The input ended.
    InputEnd,
}

/// A finished flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// Number of the flow's first packet; packets of the whole input count from 1.
    pub first_packet: u64,
    /// Number of the packet that ended the flow; `u64::MAX` for the end of input.
    pub end_packet: u64,
    /// Time of the first packet, ns since 1970 UTC.
    pub start_ns: i64,
    /// Time of the last packet, ns since 1970 UTC.
    pub end_ns: i64,
    /// Time of the flow's first packet, if earlier records count the packets before `start_ns`; ns since 1970 UTC.
    pub continued_since_ns: Option<i64>,
    /// IP protocol number. For ICMP (1) and ICMPv6 (58) the ports are as in Zeek: the
    /// initiator's is the type, the responder's the code (or the counterpart's type).
    pub protocol: u8,
    /// The innermost tunnel the flow came through.
    pub tunnel: Option<Tunnel>,
    /// The network in which the addresses are valid: VLAN IDs, VNI, GRE key.
    pub scope: Scope,
    /// The initiator.
    pub source: End,
    /// The responder.
    pub destination: End,
    /// Application protocol.
    pub app: Option<App>,
    /// SNI of the flow (TLS, DTLS or QUIC).
    pub tls_server_name: Option<Name>,
    /// Whether the ClientHello has the encrypted_client_hello extension; `None` without one.
    pub tls_ech: Option<bool>,
    /// Host of the flow's first HTTP request.
    pub http_host: Option<Name>,
    /// The two if they are no host names: an IP address, a name that is too long. They are logged
    /// unchanged, and name nothing.
    pub no_names: NoNames,
    /// TCP state with Zeek's meaning; UDP and ICMP: `SF` when both ends sent, else `S0`/`SHR`.
    pub conn_state: ConnState,
    /// Zeek's history letters.
    pub history: String,
    /// Why the flow ended.
    pub end_reason: EndReason,
    /// The router that counted the flow; `None` for flows of packets.
    pub exporter: Option<Exporter>,
}

/// A router that exports flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exporter {
    /// Its address.
    pub addr: Addr,
    /// The observation domain (IPFIX), source ID (v9), or type and number of the engine (v5).
    pub domain: u32,
    /// It saw one of this many packets; `None` if it does not say. Counts are not multiplied by it.
    pub sampling_rate: Option<u64>,
}

/// Text in place of a host name that is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoNames {
    /// As the SNI.
    pub tls_server_name: Option<Name>,
    /// As the Host.
    pub http_host: Option<Name>,
}

impl FlowRecord {
    /// Time of the flow's first packet, ns since 1970 UTC: an earlier record may count it.
    pub fn began_ns(&self) -> i64 {
        self.continued_since_ns.unwrap_or(self.start_ns)
    }

    /// A record without content. A worker fills in the same one again and again: it is large, and parts
    /// of it need memory of their own.
    pub fn blank() -> FlowRecord {
        FlowRecord {
            first_packet: 0,
            end_packet: 0,
            start_ns: 0,
            end_ns: 0,
            continued_since_ns: None,
            protocol: 0,
            tunnel: None,
            scope: Scope::NONE,
            source: End::of(Addr::UNSPECIFIED),
            destination: End::of(Addr::UNSPECIFIED),
            app: None,
            tls_server_name: None,
            tls_ech: None,
            http_host: None,
            no_names: NoNames::default(),
            conn_state: ConnState::OTH,
            history: String::new(),
            end_reason: EndReason::InputEnd,
            exporter: None,
        }
    }
}
