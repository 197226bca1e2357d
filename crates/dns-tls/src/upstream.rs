//! Upstreams over TLS, HTTPS or QUIC.
//!
//! ```text
//! a core -> BackendQuery -> a task -> the line in use, or a new one -> the response, or the query is dropped
//! none -> connecting -> in use -> lost, idle, or silent -> none
//!               | fails: no other task tries again before the pause is over
//! ```
//!
//! A *line* is one connection, which all cores share: queries are written as they arrive, and
//! responses received in any order. If a line that was used before is lost, the query is repeated
//! on a new one. The reason is that servers close idle connections, perhaps at the moment of a
//! query (RFC 7766, section 6.2.4). A line on which several queries in a row time out is considered
//! dead.
//!
//! A server must prove its name, or else its address, by its certificate. One that does not gets no
//! queries, which is reported and counted. Sessions are resumed if the server can; 0-RTT is off,
//! since an attacker could replay it to learn the query. Queries are padded to multiples of 128
//! bytes (RFC 8467).
//!
//! Bounds: the cores' queries, `QUERIES_MAX` of them on a line. Cost: a thread for an upstream, a
//! task for a query.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use larder_dns::backend::{Backend, BackendQuery, Log};
use larder_dns::metrics::Metric;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Mutex as TurnMutex, oneshot};
use tokio::time::{Instant, timeout};

use crate::padding::{QUERY_BLOCK_BYTES, pad};

mod https;
mod quic;
mod target;
mod tls;

pub use larder_tls::Trust;
pub use target::{Target, TargetError, Transport};

/// Time for a connection and its handshakes.
const CONNECT: Duration = Duration::from_secs(4);

/// A connection that was not used for this long is closed.
const IDLE: Duration = Duration::from_secs(20);

/// The first and the longest pause after a failed connection.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Timeouts in a row after which a line is considered dead.
const SILENT_MAX: u32 = 3;

/// Queries on a line at once.
const QUERIES_MAX: usize = 4_096;

/// Bytes of the longest message.
const MESSAGE_BYTES_MAX: usize = 65_535;

/// Bytes of a message's header.
const HEADER_BYTES: usize = 12;

/// Why a query has no response.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fault {
    /// The connection failed.
    Unreachable(String),
    /// The server did not prove its name.
    Unproven(String),
    /// The connection was lost, or did not take the query: it may be repeated on another.
    Lost,
    /// The server's response is of no use.
    Useless,
}

impl Fault {
    /// Why a TLS handshake failed.
    fn of_handshake(error: &io::Error) -> Fault {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::InvalidCertificate(_)) => Fault::Unproven(error.to_string()),
            _ => Fault::Unreachable(error.to_string()),
        }
    }
}

/// A connection in use. Clones are the same one.
#[derive(Debug, Clone)]
enum Line {
    Tls(tls::Line),
    Https(https::Line),
    Quic(quic::Line),
}

impl Line {
    async fn query(&self, message: Vec<u8>) -> Result<Vec<u8>, Fault> {
        match self {
            Line::Tls(line) => line.query(message).await,
            Line::Https(line) => line.query(message).await,
            Line::Quic(line) => line.query(message).await,
        }
    }
}

/// Counters.
#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    unreachable: AtomicU64,
    unproven: AtomicU64,
    lost: AtomicU64,
    useless: AtomicU64,
    silent: AtomicU64,
}

impl Counters {
    fn note(&self, fault: &Fault) {
        let counter = match fault {
            Fault::Unreachable(_) => &self.unreachable,
            Fault::Unproven(_) => &self.unproven,
            Fault::Lost => &self.lost,
            Fault::Useless => &self.useless,
        };
        counter.fetch_add(1, Relaxed);
    }
}

/// The line in use, and the pause before another one.
#[derive(Debug, Default)]
struct Current {
    line: Option<Line>,
    /// Counts the lines, so that a task closes only the line that it used.
    number: u64,
    /// The pause since the last failed connection.
    pause: Option<(Instant, Duration)>,
    /// The event and the error that were logged last: why there is no connection.
    trouble: Option<(&'static str, String)>,
}

/// One upstream over an encrypted transport.
pub struct Encrypted {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

/// The state that its tasks share.
#[derive(Debug)]
struct Shared {
    target: Target,
    tls: Arc<ClientConfig>,
    /// The address to send from.
    source: Option<IpAddr>,
    current: Mutex<Current>,
    /// The task that has this lock connects; others wait for the result.
    turn: TurnMutex<()>,
    /// Queries in a row that timed out.
    silent: AtomicU32,
    counters: Counters,
    /// Of the server that was started.
    log: OnceLock<Log>,
}

struct Running {
    runtime: Handle,
    /// Its drop ends the thread.
    _ends: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encrypted({})", self.shared.target)
    }
}

impl Encrypted {
    /// An upstream that proves itself by `trust`, queried from `source` if given. The error says
    /// what to do.
    pub fn new(target: Target, trust: &Trust, source: Option<IpAddr>) -> Result<Encrypted, String> {
        let tls = Arc::new(trust.config(target.transport.alpn(), "upstream-ca")?);
        let shared = Shared {
            target,
            tls,
            source,
            current: Mutex::default(),
            turn: TurnMutex::default(),
            silent: AtomicU32::new(0),
            counters: Counters::default(),
            log: OnceLock::new(),
        };
        Ok(Encrypted { shared: Arc::new(shared), running: Mutex::new(None) })
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for Encrypted {
    fn start(&self, log: &Log) -> io::Result<()> {
        // After a second start the log is that of the first.
        let _ = self.shared.log.set(log.clone());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel();
        let name = "dns-upstream".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || {
            // An error means that the sender is gone.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        *self.running() = Some(Running { runtime: handle, _ends: ends, thread });
        Ok(())
    }

    fn query(&self, query: BackendQuery) {
        if let Some(running) = &*self.running() {
            running.runtime.spawn(run(self.shared.clone(), query));
        }
    }

    fn stop(&self) {
        let Some(Running { thread, runtime, _ends }) = self.running().take() else { return };
        drop((_ends, runtime));
        // The thread only ends; a panic reports itself.
        let _ = thread.join();
    }

    fn metrics(&self) -> Vec<Metric> {
        let counters = &self.shared.counters;
        let upstream = self.shared.target.to_string();
        let metric = |(name, help, value): (&'static str, &'static str, &AtomicU64)| {
            Metric::new(name, help, value.load(Relaxed) as f64).of("upstream", &upstream)
        };
        [
            (
                "upstream_connections_total",
                "Encrypted connections to upstreams made",
                &counters.connections,
            ),
            (
                "upstream_connections_failed_total",
                "Encrypted connections to upstreams that could not be made",
                &counters.unreachable,
            ),
            (
                "upstream_unproven_total",
                "Upstreams that did not prove to be who they should be",
                &counters.unproven,
            ),
            (
                "upstream_connections_lost_total",
                "Queries whose encrypted connection ended before the response",
                &counters.lost,
            ),
            (
                "upstream_responses_useless_total",
                "Invalid responses of encrypted upstreams",
                &counters.useless,
            ),
            (
                "upstream_silent_total",
                "Queries that timed out at an encrypted upstream",
                &counters.silent,
            ),
        ]
        .map(metric)
        .into()
    }
}

/// Responds to a query, or drops it.
async fn run(shared: Arc<Shared>, query: BackendQuery) {
    let mut message = query.message().to_vec();
    pad(&mut message, QUERY_BLOCK_BYTES);
    let wait = Duration::from_millis(u64::from(query.wait_ms()));
    let mut number = None;
    match timeout(wait, shared.query(message, &mut number)).await {
        Ok(Some(answer)) => {
            shared.silent.store(0, Relaxed);
            query.answer(answer);
        }
        Ok(None) => {}
        Err(_) => {
            shared.counters.silent.fetch_add(1, Relaxed);
            if let Some(number) = number
                && shared.silent.fetch_add(1, Relaxed) + 1 >= SILENT_MAX
            {
                shared.silent.store(0, Relaxed);
                shared.hang_up(number);
            }
        }
    }
}

impl Shared {
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a query, and repeats it on a second line if the first had been used before and is
    /// lost. `number` is that of the last line.
    async fn query(
        self: &Arc<Shared>,
        message: Vec<u8>,
        number: &mut Option<u64>,
    ) -> Option<Vec<u8>> {
        for is_last in [false, true] {
            let (line, at, is_new) = self.line().await?;
            *number = Some(at);
            match line.query(message.clone()).await {
                Ok(answer) => return Some(answer),
                Err(fault) => {
                    self.counters.note(&fault);
                    if fault != Fault::Lost {
                        return None;
                    }
                    self.hang_up(at);
                    if is_new || is_last {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Closes a line; queries that still use it are lost when the last of them has ended.
    fn hang_up(&self, number: u64) {
        let mut current = self.current();
        if current.number == number {
            current.line = None;
        }
    }

    /// The line in use with its number; the flag is true if it is new.
    async fn line(self: &Arc<Shared>) -> Option<(Line, u64, bool)> {
        if let Some((line, number)) = self.in_use() {
            return Some((line, number, false));
        }
        // In a task of its own: a query that waits for it may time out, and others need it all the
        // same.
        let shared = self.clone();
        tokio::spawn(async move { shared.connect().await }).await.ok()?
    }

    fn in_use(&self) -> Option<(Line, u64)> {
        let current = self.current();
        current.line.clone().map(|line| (line, current.number))
    }

    fn log(&self) -> &Log {
        self.log.get_or_init(Log::default)
    }

    /// Connects, unless another task has meanwhile, or failed a moment ago.
    async fn connect(&self) -> Option<(Line, u64, bool)> {
        let _turn = self.turn.lock().await;
        if let Some((line, number)) = self.in_use() {
            return Some((line, number, true));
        }
        if self.current().pause.is_some_and(|(until, _)| Instant::now() < until) {
            return None;
        }
        let late = || Fault::Unreachable("it took too long".to_owned());
        let made = timeout(CONNECT, self.make()).await.unwrap_or_else(|_| Err(late()));
        let mut current = self.current();
        match made {
            Ok(line) => {
                self.counters.connections.fetch_add(1, Relaxed);
                current.line = Some(line.clone());
                current.number += 1;
                current.pause = None;
                if current.trouble.take().is_some() {
                    self.log().info("upstream up").text("upstream", &self.target);
                }
                Some((line, current.number, true))
            }
            Err(fault) => {
                self.counters.note(&fault);
                let pause = current.pause.map_or(PAUSE_MIN, |(_, last)| (2 * last).min(PAUSE_MAX));
                current.pause = Some((Instant::now() + pause, pause));
                let trouble = match fault {
                    Fault::Unproven(text) => ("upstream not authenticated", text),
                    Fault::Unreachable(text) => ("upstream down", text),
                    Fault::Lost | Fault::Useless => {
                        ("upstream down", "it closed the connection".to_owned())
                    }
                };
                // Log the same failure only once in a row.
                if current.trouble.as_ref() != Some(&trouble) {
                    let line = self.log().warn(trouble.0).text("upstream", &self.target);
                    line.text("name", self.target.name_text()).text("error", &trouble.1);
                    current.trouble = Some(trouble);
                }
                None
            }
        }
    }

    async fn make(&self) -> Result<Line, Fault> {
        match &self.target.transport {
            Transport::Tls => tls::Line::connect(self).await.map(Line::Tls),
            Transport::Https(path) => https::Line::connect(self, path).await.map(Line::Https),
            Transport::Quic => quic::Line::connect(self).await.map(Line::Quic),
        }
    }

    /// TCP and TLS to the upstream.
    async fn connect_tls(
        &self,
    ) -> Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>, Fault> {
        let unreachable = |error: io::Error| Fault::Unreachable(error.to_string());
        let address = self.target.address;
        let socket = match address {
            SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
            SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
        };
        let socket = socket.map_err(unreachable)?;
        if let Some(source) = self.source {
            socket.bind(SocketAddr::new(source, 0)).map_err(unreachable)?;
        }
        let stream = socket.connect(address).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let connector = tokio_rustls::TlsConnector::from(self.tls.clone());
        let name: ServerName<'static> = self.target.name.clone();
        connector.connect(name, stream).await.map_err(|error| Fault::of_handshake(&error))
    }
}

/// True if a message may be a response to a query.
fn is_message(bytes: &[u8]) -> bool {
    (HEADER_BYTES..=MESSAGE_BYTES_MAX).contains(&bytes.len())
}
