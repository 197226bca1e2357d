//! The options of a run, and its summary.

mod summary;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;

use larder_io::access::Access;
use larder_io::input::display_name;
use larder_io::over_tcp::Remote;
use larder_serve::log::Log;
use larder_wire::{Addr, note};

use crate::record::NameSource;

pub use summary::{Damage, Damages, Dropped, Summary, Times, add_damage};

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum OutputFormat {
    Text,
    Ecs,
    Zeek,
    Csv,
    Ipfix,
    Parquet,
    /// For the program that larder runs in: [`Options::rows_to`].
    Rows,
}

/// Where the [rows](crate::format::rows) of a run go: each chunk has whole rows, in the order of the log.
#[derive(Clone, Debug)]
pub struct RowsTo(pub SyncSender<Vec<u8>>);

/// Services for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Socket of `larder ctl` and `larder top`, and its mode.
    pub control: Option<(PathBuf, u32)>,
    /// The address of the metrics.
    pub metrics: Option<SocketAddr>,
}

/// The page of a run, for a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The address, the hosts and the token.
    pub serve: larder_store::serve::Options,
    /// The file that keeps the history over restarts; `None`: it is in memory only.
    pub history: Option<PathBuf>,
}

/// An input or output: a path, or `-` for a pipe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Standard input or output.
    Pipe,
    /// A file.
    Path(PathBuf),
    /// A capture inside the program (`larder demo`); an input only.
    Bytes(&'static [u8]),
    /// A program that listens at `HOST:PORT`, and sends or receives a capture.
    Tcp(String),
    /// Captures of the programs that connect to this address; an input only.
    Listen(SocketAddr),
}

impl fmt::Display for Endpoint {
    /// As on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Pipe => f.write_str("-"),
            Endpoint::Path(path) => f.write_str(&display_name(path)),
            Endpoint::Bytes(_) => f.write_str("the sample"),
            Endpoint::Tcp(place) => write!(f, "tcp://{}", place.escape_debug()),
            Endpoint::Listen(address) => write!(f, "tcp://{address}"),
        }
    }
}

impl Endpoint {
    /// Its name, for people.
    pub fn name(&self) -> String {
        match self {
            Endpoint::Pipe => "standard input".to_owned(),
            Endpoint::Path(path) => path.display().to_string(),
            Endpoint::Bytes(_) => "the sample".to_owned(),
            Endpoint::Tcp(_) | Endpoint::Listen(_) => self.to_string(),
        }
    }
}

impl From<PathBuf> for Endpoint {
    /// From the spelling of the command line: `-` is a pipe, and `tcp://HOST:PORT` a program that listens.
    fn from(path: PathBuf) -> Endpoint {
        match path.to_str().and_then(Remote::place_of) {
            Some(place) => Endpoint::Tcp(place.to_owned()),
            None if path.as_os_str() == "-" => Endpoint::Pipe,
            None => Endpoint::Path(path),
        }
    }
}

/// Order of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SortBy {
    /// By the packet that ended the flow, then its first packet; needs no memory.
    End,
    /// By first packet; spills to disk.
    Start,
}

/// When names are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookupPer {
    /// Once a flow, at its first packet.
    Flow,
    /// For both addresses of every packet, as the paper's system does. Same output; for measuring.
    Packet,
}

/// The flows to write, by the name of their destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unresolved {
    /// All flows.
    #[default]
    False,
    /// Flows whose destination no lookup supports, whatever name the flow states, although lookups
    /// would be seen ([`UnnamedReason::NoLookupSeen`](crate::record::UnnamedReason)).
    True,
    /// Flows without a name, for any reason.
    All,
}

/// Rotation of the log and `dns.log`, and the treatment of closed files. All zero: no rotation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of a file, at most; 0: no limit.
    pub bytes_max: u64,
    /// A file is closed at each multiple of this many seconds since 1970, by the packets' time; 0:
    /// never.
    pub every_s: u32,
    /// Closed files are compressed with gzip.
    pub compress: bool,
    /// Bytes of all files of a log; the oldest are deleted first; 0: no limit.
    pub budget_bytes: u64,
}

impl Rotation {
    /// True when any of it is set.
    pub fn is_wanted(&self) -> bool {
        *self != Rotation::default()
    }
}

/// The addresses whose names are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressQuery {
    /// The moment, ns since 1970 UTC.
    pub time_ns: i64,
    /// The client of the flows: what it looked up itself comes first.
    pub client: Option<Addr>,
    /// The addresses, in the order of the output.
    pub addrs: Vec<Addr>,
}

/// All options of `larder annotate`. `Default` is the documented default.
#[derive(Clone, Debug)]
pub struct Options {
    /// Captures, read as one in time order.
    pub read: Vec<Endpoint>,
    /// Packets to read, in the language of tcpdump; empty: all.
    pub filter: String,
    /// Log format.
    pub format: OutputFormat,
    /// Destination of the log.
    pub output: Endpoint,
    /// Folder of a dataset, which takes the place of `output`: a file for each time between two cuts.
    pub dataset: Option<PathBuf>,
    /// Begin with the last whole file of the dataset.
    pub resume: bool,
    /// The collector that gets the records of [`OutputFormat::Ipfix`] over UDP; then `output` gets none.
    pub ipfix_to: Option<SocketAddr>,
    /// The program that gets the records of [`OutputFormat::Rows`]; then `output` gets none.
    pub rows_to: Option<RowsTo>,
    /// Destination of the packets, with Name Resolution Blocks (`-w`).
    pub write_packets: Option<Endpoint>,
    /// Directory for `dns.log`, `names.log`, `stats.json` (`-d`).
    pub directory: Option<PathBuf>,
    /// File for the counters, as `stats.json` has them.
    pub stats: Option<PathBuf>,
    /// Sources of names that count.
    pub names: NameSources,
    /// Worker threads, at least 1.
    pub cores: usize,
    /// Cores that the worker threads are bound to, one each; further threads are not bound.
    pub pins: Vec<usize>,
    /// Bytes for all names.
    pub names_budget_bytes: u64,
    /// A name with a confidence below this is left out, percent.
    pub min_confidence: u8,
    /// Flows at one time, at most.
    pub flows_max: usize,
    /// Bytes for TCP reassembly and fragments together.
    pub reassembly_budget_bytes: u64,
    /// Names stored for an address, 1 to 8.
    pub candidates_max: usize,
    /// Hash seed.
    pub seed: u64,
    /// Stop after this many packets.
    pub packets_max: Option<u64>,
    /// VLAN IDs, VNIs and GRE keys do not distinguish flows and names (`--ignore-vlan`).
    pub ignore_vlan: bool,
    /// Bytes of input in a batch. For tests: idle flows end at the ends of batches.
    pub batch_bytes: usize,
    /// Order of the records.
    pub sort_by: SortBy,
    /// When names are looked up.
    pub lookup_per: LookupPer,
    /// With [`LookupPer::Packet`]: time some of the lookups. For measuring.
    pub time_lookups: bool,
    /// Write only flows without a lookup, or without a name.
    pub unresolved: Unresolved,
    /// Text prints ports as numbers, not as service names (`-n`).
    pub ports_numeric: bool,
    /// Captures that are read for their names only, in order of time with [`Options::read`] (`--names-read`). Not
    /// with a store.
    pub names_read: Vec<Endpoint>,
    /// Packets of captures before this time are read for their names only, ns since 1970 UTC. Not with a store.
    pub from_ns: Option<i64>,
    /// Packets of captures at this time or later are not read, ns since 1970 UTC.
    pub to_ns: Option<i64>,
    /// When the capture began, of which the first file may be a later part, ns since 1970 UTC. Without
    /// it, the time of the first packet.
    pub capture_began_ns: Option<i64>,
    /// Names known before the first packet, of one run or joined of several (`--names-load`).
    pub names_load: Vec<PathBuf>,
    /// File for the names at the end (`--names-save`).
    pub names_save: Option<PathBuf>,
    /// A Suricata EVE log to annotate.
    pub eve: Option<Endpoint>,
    /// A Zeek log to annotate.
    pub zeek_log: Option<Endpoint>,
    /// Zeek dns.log files to learn from.
    pub zeek_dns: Vec<Endpoint>,
    /// A dnstap file or socket to learn from.
    pub dnstap: Option<Endpoint>,
    /// Captures with export packets of routers.
    pub flows_read: Vec<Endpoint>,
    /// Addresses at which routers' exports are received; then the run goes on until it is stopped.
    pub flows_listen: Vec<SocketAddr>,
    /// How long after its start an exported flow without a name waits for one, seconds.
    pub flows_delay_s: u32,
    /// Write the names of these addresses, and no flows.
    pub names_at: Option<AddressQuery>,
    /// TCP flows end after this long without a packet, seconds.
    pub tcp_idle_s: u32,
    /// UDP and other flows end after this long without a packet, seconds.
    pub udp_idle_s: u32,
    /// A closed TCP flow still takes packets for this long, seconds.
    pub linger_s: u32,
    /// Active timeout: a flow that goes on gives a record after this many seconds, and its counts
    /// begin again; 0: never.
    pub active_s: u32,
    /// The records of all flows are cut at multiples of this time since 1970 UTC, by the packets' clock, seconds;
    /// 0: never.
    pub cut_every_s: u32,
    /// Rotation of logs, and how long their files stay.
    pub rotation: Rotation,
    /// Access to logs, captures and all other files.
    pub access: Access,
    /// The packet store.
    pub store: Option<larder_store::Options>,
    /// The HTTP server of the packet store.
    pub serve: Option<larder_store::serve::Options>,
    /// The page.
    pub page: Option<Page>,
    /// Control socket and metrics.
    pub operation: Operation,
    /// Where a run logs what happens while it goes on.
    pub log: Log,
    /// Naming rules in force; switching one off is for tests and measurements.
    pub rules: Rules,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read: Vec::new(),
            filter: String::new(),
            format: OutputFormat::Text,
            output: Endpoint::Pipe,
            dataset: None,
            resume: false,
            ipfix_to: None,
            rows_to: None,
            write_packets: None,
            directory: None,
            stats: None,
            names: NameSources::all(),
            cores: 1,
            pins: Vec::new(),
            names_budget_bytes: 256 << 20,
            min_confidence: 0,
            flows_max: 1_000_000,
            reassembly_budget_bytes: 64 << 20,
            candidates_max: 8,
            seed: 0x1a2d_e2c0_ffee_5eed,
            packets_max: None,
            ignore_vlan: false,
            batch_bytes: 1 << 20,
            sort_by: SortBy::End,
            lookup_per: LookupPer::Flow,
            time_lookups: false,
            unresolved: Unresolved::False,
            ports_numeric: false,
            names_read: Vec::new(),
            from_ns: None,
            to_ns: None,
            capture_began_ns: None,
            names_load: Vec::new(),
            names_save: None,
            eve: None,
            zeek_log: None,
            zeek_dns: Vec::new(),
            dnstap: None,
            flows_read: Vec::new(),
            flows_listen: Vec::new(),
            flows_delay_s: 600,
            names_at: None,
            tcp_idle_s: 300,
            udp_idle_s: 60,
            linger_s: 5,
            active_s: 0,
            cut_every_s: 0,
            rotation: Rotation::default(),
            access: Access::PRIVATE,
            store: None,
            serve: None,
            page: None,
            operation: Operation::default(),
            log: Log::default(),
            rules: Rules::all(),
        }
    }
}

impl Options {
    /// Programs connect to send captures: the run ends when it is stopped.
    pub fn listens(&self) -> bool {
        self.read.iter().any(|input| matches!(input, Endpoint::Listen(_)))
    }

    /// Time between cuts of records, ns; 0: there are none.
    pub(crate) fn cut_every_ns(&self) -> i64 {
        i64::from(self.cut_every_s) * 1_000_000_000
    }

    /// What `larder extract` reduces captures for.
    pub(crate) fn note_rules(&self) -> note::Rules {
        let Options { tcp_idle_s, udp_idle_s, linger_s, .. } = *self;
        note::Rules { tcp_idle_s, udp_idle_s, linger_s, ignores_vlan: self.ignore_vlan }
    }
}

/// A set of name sources, in the spelling of `--names`: `all`, or a list of `dns`, `sni`, `quic`,
/// `http`, `mdns`, `llmnr`, `nbns`, `dhcp`, `ptr`, `learned`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameSources(u16);

impl NameSources {
    /// Every source.
    pub const fn all() -> NameSources {
        NameSources((1 << NameSource::ALL.len()) - 1)
    }

    /// No source.
    pub const fn none() -> NameSources {
        NameSources(0)
    }

    /// Adds one source.
    pub const fn with(self, source: NameSource) -> NameSources {
        NameSources(self.0 | 1 << source as u16)
    }

    /// True when `source` counts.
    pub const fn has(self, source: NameSource) -> bool {
        self.0 & (1 << source as u16) != 0
    }

    /// Reads the list form. The error is the first unknown word.
    pub fn parse(list: &str) -> Result<NameSources, String> {
        use NameSource::*;
        let mut set = NameSources::none();
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            set = match word {
                "all" => NameSources::all(),
                "dns" => set.with(DnsPair).with(DnsChain).with(DnsAddress),
                "sni" => set.with(Sni),
                "quic" => set.with(QuicSni),
                "http" => set.with(HttpHost),
                "mdns" => set.with(Mdns),
                "llmnr" => set.with(Llmnr),
                "nbns" => set.with(Nbns),
                "dhcp" => set.with(Dhcp),
                "ptr" => set.with(Ptr),
                "learned" => set.with(Learned),
                other => return Err(other.to_owned()),
            };
        }
        Ok(set)
    }
}

/// The nine rules by which a name is chosen (docs/guide/naming.md). Each can be switched off to
/// measure its effect. All are on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules(u16);

impl Rules {
    /// All nine.
    pub const fn all() -> Rules {
        Rules(0x3fe)
    }

    /// Without rule `number`, 1 to 9.
    pub const fn without(self, number: u8) -> Rules {
        Rules(self.0 & !(1 << number))
    }

    /// True when rule `number` is on.
    #[inline]
    pub const fn has(self, number: u8) -> bool {
        self.0 & (1 << number) != 0
    }
}
