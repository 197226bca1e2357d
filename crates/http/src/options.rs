//! What an operator decides.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use larder_io::reactor::Choice;
use larder_serve::console::Places;

use crate::Rules;
use crate::access_log;
use crate::message::Limits;
use crate::store::Memory;
use crate::tls_bridge::TlsBridge;
use larder_wire::prefix::Prefix;

/// An origin: a server that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginAddress {
    /// Where it is.
    pub address: SocketAddr,
    /// As it is called in messages: host and port.
    pub name: String,
    /// It is asked over TLS: connections to it are made by who is [`Options::beside`].
    pub is_secure: bool,
}

/// How long is waited, milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the next request on a connection.
    pub idle_ms: u64,
    /// The same at most, once the server ends.
    pub drain_idle_ms: u64,
    /// For the rest of a request's head, from its first octet on.
    pub head_ms: u64,
    /// For a client to take something, or to send more of its body.
    pub client_ms: u64,
    /// For an origin's connection.
    pub connect_ms: u64,
    /// For the head of its response.
    pub first_byte_ms: u64,
    /// For more of its body.
    pub between_bytes_ms: u64,
    /// For memory to keep a body in, once what can leave has left.
    pub memory_ms: u64,
    /// That a connection to an origin stays unused.
    pub origin_idle_ms: u64,
}

impl Default for Patience {
    /// As Varnish has it, mostly.
    fn default() -> Patience {
        Patience {
            idle_ms: 60_000,
            drain_idle_ms: 2_000,
            head_ms: 10_000,
            client_ms: 60_000,
            connect_ms: 3_500,
            first_byte_ms: 60_000,
            between_bytes_ms: 60_000,
            memory_ms: 1_000,
            origin_idle_ms: 30_000,
        }
    }
}

/// How it is found out whether origins live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChecks {
    /// What is asked for.
    pub path: String,
    /// How often, milliseconds.
    pub every_ms: u64,
}

/// What becomes of a body that may be kept, when nobody reads it any more while it comes, or of what was asked when nobody waits
/// for it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    /// It is read to its end, and kept.
    Finish,
    /// It is broken off at once.
    Drop,
    /// It is read to its end where no more than so many octets are left, or nobody knows how many. What nobody waits for holds half
    /// of an origin's connections at most.
    FinishUpTo(u64),
}

impl Abandoned {
    /// True for a body of which so many octets are left, if that is known.
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
    /// Where metrics are told.
    pub metrics: Option<SocketAddr>,
    /// Where what is kept is saved over a restart.
    pub snapshot: Option<PathBuf>,
    /// The access log.
    pub access_log: Option<access_log::Options>,
}

impl Operation {
    /// Where it is operated.
    pub(crate) fn places(&self) -> Places {
        let (control, metrics) = (self.control.clone(), self.metrics);
        Places { control, metrics, ..Places::default() }
    }
}

/// All of it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen.
    pub listen: Vec<SocketAddr>,
    /// Other processes of this user may listen there too.
    pub reuse_port: bool,
    /// Who is asked; in turn.
    pub origins: Vec<OriginAddress>,
    /// Whether they are checked.
    pub health_checks: Option<HealthChecks>,
    /// Loops, each on a core.
    pub loops: usize,
    /// How to wait for the kernel.
    pub io: Choice,
    /// Memory of what is kept and what is on its way.
    pub memory: Memory,
    /// Matters of taste in caching.
    pub rules: Rules,
    /// Lengths of heads.
    pub limits: Limits,
    /// Connections of clients, all loops together.
    pub clients_max: usize,
    /// Of them one address may have so many; 0: any number.
    pub clients_per_address: u32,
    /// Octets of the body of a request.
    pub body_bytes_max: u64,
    /// Each connection begins with the PROXY protocol.
    pub expects_proxy: bool,
    /// Connections to one origin, all loops together.
    pub origin_connections_max: usize,
    /// Requests that wait for a connection to an origin, a loop.
    pub queue_max: usize,
    /// How far an answer for one client may be ahead of that client, octets.
    pub window_bytes: u64,
    /// Octets of one body that one client holds in its own pace.
    pub lease_bytes_max: u64,
    /// A body up to so long is kept in its record, octets.
    pub inline_bytes_max: usize,
    /// That what cannot be shared is not waited for by others, seconds.
    pub unshared_s: u32,
    /// What becomes of a body that could be kept and that nobody reads any more. What is one client's own is broken off when that one
    /// leaves, and what was asked for without a client is finished.
    pub abandoned: Abandoned,
    /// How long what is stale is kept for its validators, seconds.
    pub keep_s: u32,
    /// Says `Cache-Status`.
    pub says_status: bool,
    /// Who may `PURGE`.
    pub purge_from: Vec<Prefix>,
    /// Waits.
    pub patience: Patience,
    /// What its operator has of it.
    pub operation: Operation,
    /// Who makes connections that are encrypted.
    pub tls_bridge: Option<Arc<dyn TlsBridge>>,
}

impl Options {
    /// With the rest as `larder http` has it by default.
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
}
