//! The operator's settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use larder_io::reactor::Choice;
use larder_serve::console::Places;
use larder_serve::page_server::PageOptions;

use crate::Rules;
use crate::access_log;
use crate::connection::ClientLimits;
use crate::message::Limits;
use crate::store::Memory;
use crate::tls_bridge::TlsBridge;
use larder_wire::prefix::Prefix;

pub use crate::connection::{OriginAddress, Patience};

/// Health checks of origins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChecks {
    /// The path of the request.
    pub path: String,
    /// The interval, milliseconds.
    pub every_ms: u64,
}

/// What larder does with a storable body when no client reads it any more, or with a fetch when no
/// client waits for it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    /// It is read to its end, and stored.
    Finish,
    /// It is aborted at once.
    Drop,
    /// It is read to its end where at most this many bytes are left, or the length is not known.
    /// Fetches for which no client waits hold at most half of an origin's connections.
    FinishUpTo(u64),
}

impl Abandoned {
    /// True for a body of which this many bytes are left, if that is known.
    pub fn finishes(self, left_bytes: Option<u64>) -> bool {
        match self {
            Abandoned::Finish => true,
            Abandoned::Drop => false,
            Abandoned::FinishUpTo(bytes_max) => left_bytes.is_none_or(|left| left <= bytes_max),
        }
    }
}

/// How a server is operated.
#[derive(Debug, Clone, Default)]
pub struct Operation {
    /// The socket of `larder ctl`, and its file mode.
    pub control: Option<(PathBuf, u32)>,
    /// The address of metrics.
    pub metrics: Option<SocketAddr>,
    /// The file in which cached responses are saved over a restart.
    pub snapshot: Option<PathBuf>,
    /// The access log.
    pub access_log: Option<access_log::Options>,
    /// The page for a browser.
    pub page: Option<PageOptions>,
}

impl Operation {
    /// The sockets of operators.
    pub(crate) fn places(&self) -> Places {
        let (control, metrics) = (self.control.clone(), self.metrics);
        Places { control, metrics, ..Places::default() }
    }
}

/// All settings.
#[derive(Debug, Clone)]
pub struct Options {
    /// Addresses to listen at.
    pub listen: Vec<SocketAddr>,
    /// Other processes of this user may listen there too.
    pub reuse_port: bool,
    /// The origins, used in rotation.
    pub origins: Vec<OriginAddress>,
    /// Health checks, if there are any.
    pub health_checks: Option<HealthChecks>,
    /// Event loops, one for each core.
    pub loops: usize,
    /// The I/O interface to the kernel.
    pub io: Choice,
    /// Memory for responses, cached and in flight.
    pub memory: Memory,
    /// The operator's rules for caching.
    pub rules: Rules,
    /// Limits of headers.
    pub limits: Limits,
    /// Connections of clients, all event loops together.
    pub clients_max: usize,
    /// At most this many of them from one address; 0: any number.
    pub clients_per_address: u32,
    /// Bytes of the body of a request.
    pub body_bytes_max: u64,
    /// Each connection begins with the PROXY protocol.
    pub expects_proxy: bool,
    /// Connections to one origin, all event loops together.
    pub origin_connections_max: usize,
    /// Requests that wait for a connection to an origin, for each event loop.
    pub queue_max: usize,
    /// How many bytes a response for one client may be ahead of that client.
    pub window_bytes: u64,
    /// Bytes of one body that one client may hold.
    pub lease_bytes_max: u64,
    /// A body up to this length is stored in its record, bytes.
    pub inline_bytes_max: usize,
    /// How long requests are not coalesced after a response that could not be shared, seconds.
    pub unshared_s: u32,
    /// What larder does with a storable body that no client reads any more. A response for one
    /// client is aborted when that client disconnects, and one for no client is finished.
    pub abandoned: Abandoned,
    /// How long a stale response is stored for its validators, seconds.
    pub keep_s: u32,
    /// Responses have a `Cache-Status` field.
    pub says_status: bool,
    /// Addresses that may `PURGE`.
    pub purge_from: Vec<Prefix>,
    /// Timeouts.
    pub patience: Patience,
    /// How it is operated.
    pub operation: Operation,
    /// Makes connections over TLS.
    pub tls_bridge: Option<Arc<dyn TlsBridge>>,
}

impl Options {
    /// The other settings are the defaults of `larder http`.
    pub fn new(listen: Vec<SocketAddr>, origins: Vec<OriginAddress>) -> Options {
        Options {
            listen,
            origins,
            health_checks: None,
            reuse_port: false,
            loops: 1,
            io: Choice::Auto,
            memory: Memory { records_bytes: 64 << 20, bodies_bytes: 192 << 20 },
            rules: Rules::default(),
            limits: Limits::default(),
            clients_max: 10_000,
            clients_per_address: 0,
            body_bytes_max: u64::MAX,
            expects_proxy: false,
            origin_connections_max: 1_000,
            queue_max: 1_024,
            window_bytes: 1 << 20,
            lease_bytes_max: 8 << 20,
            inline_bytes_max: 16 << 10,
            unshared_s: 120,
            abandoned: Abandoned::FinishUpTo(64 << 20),
            keep_s: 604_800,
            says_status: true,
            purge_from: Vec::new(),
            patience: Patience::default(),
            operation: Operation::default(),
            tls_bridge: None,
        }
    }
    /// Those that apply to encrypted connections of clients as to the others.
    pub fn client_limits(&self) -> ClientLimits {
        ClientLimits {
            patience: self.patience,
            per_address: self.clients_per_address,
            head_bytes_max: self.limits.head_bytes_max,
        }
    }
}
