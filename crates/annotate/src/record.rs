//! A finished flow: all data of a log line.
//!
//! The worker that owns a flow makes its record when the flow ends. Formats read only the record,
//! so all formats state the same.

pub use larder_wire::naming::{NameFlags, NameSource};
use larder_wire::packet::Tunnel;
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

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
