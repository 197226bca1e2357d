//! A core's event loop: sockets, clock, and the core that decides.
//!
//! ```text
//! turn    wait for ready sockets, unless a listener was busy a moment ago
//!         responses of upstreams, then queries of clients      in bounded batches, so that no message waits forever
//!         timers
//!         send queued messages; make stored responses visible
//! ```
//!
//! While queries arrive without a pause and none is in flight, the event loop does not ask the
//! kernel which sockets are ready. That would be a third system call in addition to receiving and
//! sending. After `BUSY_TURNS_MAX` such turns it asks once.
//!
//! Nothing in a turn waits. A message for which the kernel has no room is dropped and counted, as
//! UDP would.
//!
//! | module | duty |
//! |---|---|
//! | `parts` | the parts of a core |
//! | `sockets` | listening sockets and their outgoing batches |
//! | `upstream_sockets` | sockets to upstreams |
//! | `transport` | how the core sends: all of these |
//! | `observers` | counters, dnstap and query log of messages |

mod observers;
mod parts;
mod sockets;
mod transport;
mod upstream_sockets;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use larder_io::epoll::{Event, Events, Interest, Poller, Waker};
use larder_io::random::Random;
use larder_io::udp::{RecvBatch, SendBatch};

use self::observers::Observers;
pub use self::parts::Parts;
use self::sockets::{Listener, Sockets};
use self::transport::Transport;
use self::upstream_sockets::UpstreamSockets;
use crate::client_tcp::ClientTcp;
use crate::clock::Clock;
use crate::core::{Client, Core, Now};
use crate::core_tap::CoreTap;
use crate::metrics::{Counts, PUBLISH_MS, Shared};
use crate::query_log::QueryLog;
use crate::reload::Follower;
use crate::tcp_framing::CLIENT_QUERY_BYTES_MAX;
use crate::upstream_tcp::{Outcome, UpstreamTcp};
use crate::upstream_udp::UpstreamUdp;
use crate::xdp;
use larder_serve::counters::Counters;
use larder_serve::lifecycle::{Lifecycle, Stage};

/// Messages received or sent by one system call.
const BATCH: usize = 64;

/// Batches received from one socket in a turn.
const BATCHES_MAX: usize = 4;

/// Turns after which the event loop asks the kernel which sockets are ready, even if a listener is
/// busy.
const BUSY_TURNS_MAX: u32 = 8;

/// The longest wait, milliseconds.
const WAIT_MS_MAX: u64 = 1_000;

/// Events of one wait.
const EVENTS_MAX: usize = 256;

/// Upper bits of the poller's tokens; the lower bits are an index.
const LISTENERS: u8 = 0;
const UPSTREAMS: u8 = 1;
const WAKER: u8 = 2;
const STREAM_LISTENERS: u8 = 3;
const CLIENT_TCP: u8 = 4;
const UPSTREAM_TCP: u8 = 5;
const QUEUES: u8 = 6;
const SPACE_SHIFT: u32 = larder_io::table::ID_BITS;

fn token(space: u8, which: u64) -> u64 {
    u64::from(space) << SPACE_SHIFT | which
}

/// A core's event loop.
pub struct Driver {
    core: Core,
    sockets: Sockets,
    /// Each AF_XDP queue, and whether it had frames the last time.
    queues: Vec<(xdp::Incoming, bool)>,
    stream_listeners: Vec<TcpListener>,
    client_tcp: ClientTcp,
    upstream_tcp: UpstreamTcp,
    incoming: RecvBatch,
    answers: RecvBatch,
    /// Queries of other transports, while they are looked up.
    side_queries: Vec<(Client, Vec<u8>)>,
    policy: Follower,
    clock: Clock,
    number: usize,
    published: Arc<Shared>,
    /// When to publish the counters; `None`: nothing has changed since the last time.
    publish_ms: Option<u64>,
    lifecycle: Arc<Lifecycle>,
    is_draining: bool,
    waker: Arc<Waker>,
    busy_turns: u32,
}

impl Driver {
    /// Takes the parts and registers the sockets.
    pub fn new(parts: Parts) -> io::Result<Driver> {
        let poller = Arc::new(Poller::new()?);
        poller.add(&*parts.waker, token(WAKER, 0), Interest::READ)?;
        let udp_bytes_max = usize::from(parts.core.udp_bytes_max());
        let mut listeners = Vec::new();
        for (at, socket) in parts.listeners.into_iter().enumerate() {
            poller.add(&socket, token(LISTENERS, at as u64), Interest::READ)?;
            let outgoing = SendBatch::new(BATCH, udp_bytes_max);
            listeners.push(Listener { socket, outgoing, is_busy: false });
        }
        let (mut queues, mut outgoing) = (Vec::new(), Vec::new());
        for (at, queue) in parts.queues.into_iter().enumerate() {
            poller.add(&queue.incoming, token(QUEUES, at as u64), Interest::READ)?;
            queues.push((queue.incoming, false));
            outgoing.push(queue.outgoing);
        }
        for (at, listener) in parts.stream_listeners.iter().enumerate() {
            poller.add(listener, token(STREAM_LISTENERS, at as u64), Interest::READ)?;
        }
        let token_of = |upstream| token(UPSTREAMS, (upstream as u64) << 32);
        let upstream_sockets = UpstreamSockets::new(parts.core.upstreams(), token_of);
        let sockets = Sockets {
            poller,
            listeners,
            inbox: parts.inbox,
            outgoing,
            upstream_sockets,
            backends: parts.backends,
            origin: parts.origin,
            numbers: 0,
            random: Random::new(),
            now_ms: 0,
            observers: Observers {
                counts: Counts::default(),
                tap: parts.tap,
                log: parts.log,
                notes: parts.notes,
            },
        };
        Ok(Driver {
            core: parts.core,
            sockets,
            queues,
            stream_listeners: parts.stream_listeners,
            client_tcp: ClientTcp::new(parts.client_tcp_limits, CLIENT_TCP),
            upstream_tcp: UpstreamTcp::new(parts.upstream_tcp_limits, UPSTREAM_TCP),
            incoming: RecvBatch::new(BATCH, CLIENT_QUERY_BYTES_MAX),
            answers: RecvBatch::new(BATCH, udp_bytes_max),
            side_queries: Vec::new(),
            policy: parts.policy,
            clock: parts.clock,
            number: parts.number,
            published: parts.published,
            publish_ms: None,
            lifecycle: parts.lifecycle,
            is_draining: false,
            waker: parts.waker,
            busy_turns: 0,
        })
    }

    /// Serves until the lifecycle ends. An error of the poller is final.
    pub fn run(&mut self) -> io::Result<()> {
        let (mut result, mut events) = (Ok(()), Events::new(EVENTS_MAX));
        while result.is_ok() && self.goes_on() {
            result = self.turn(&mut events);
        }
        self.publish();
        result
    }

    fn goes_on(&mut self) -> bool {
        match self.lifecycle.get() {
            Stage::Serves => true,
            Stage::Drains => {
                if !self.is_draining {
                    self.drain();
                }
                self.core.in_flight() > 0 || !self.client_tcp.is_empty()
            }
            Stage::Ends => false,
        }
    }

    /// Receives the waiting queries, and no later ones. These queries still get their responses.
    fn drain(&mut self) {
        self.is_draining = true;
        let now = self.clock.now();
        self.begin(now);
        for at in 0..self.sockets.listeners.len() {
            self.serve(at);
            let listener = &mut self.sockets.listeners[at];
            listener.is_busy = false;
            // A socket that is not watched has no events; removal fails for no other reason.
            let _ = self.sockets.poller.remove(&listener.socket);
        }
        for at in 0..self.queues.len() {
            self.serve_queue(at);
        }
        for (queue, _) in self.queues.drain(..) {
            let _ = self.sockets.poller.remove(&queue);
        }
        for listener in self.stream_listeners.drain(..) {
            let _ = self.sockets.poller.remove(&listener);
        }
        self.client_tcp.drain();
        // Senders have stopped before.
        while self.serve_side_queries() {}
        self.finish();
    }

    /// Publishes the counters.
    fn publish(&mut self) {
        self.publish_ms = None;
        let Driver { sockets, client_tcp, upstream_tcp, .. } = self;
        let Observers { counts, tap, log, notes } = &mut sockets.observers;
        let (clients, upstreams) = (client_tcp.counters(), upstream_tcp.counters());
        let is_limit = clients.refused_full + clients.refused_client;
        counts.tcp_streams_opened = clients.opened;
        counts.tcp_streams_refused = is_limit + clients.refused_unwatched;
        counts.tcp_streams_closed = clients.closed.iter().sum();
        counts.limit_tcp_clients = is_limit;
        counts.limit_tcp_upstream = upstreams.refused_full;
        let queries = sockets.backends.counters();
        counts.limit_backends = queries.refused_full;
        counts.upstream_queries_backend = queries.queries;
        counts.upstream_queries_tcp = upstreams.queries + upstreams.retried;
        counts.trace_records_dropped = tap.as_ref().map_or(0, CoreTap::dropped);
        counts.query_log_lines_dropped = log.as_ref().map_or(0, QueryLog::dropped);
        if let Some(notes) = notes {
            notes.flush();
            counts.page_notes_dropped = notes.dropped();
        }
        let mut sum = counts.clone();
        sum.unsent_queries +=
            sockets.upstream_sockets.pools().map(UpstreamUdp::refused).sum::<u64>();
        sum.add(self.core.counts());
        self.published.counts.publish(self.number, &sum);
        self.published.upstreams.publish(self.number, self.core.upstream_health());
    }

    /// How long the loop may wait if nothing arrives, milliseconds.
    fn wait_ms(&self, now: Now) -> u64 {
        let now_ms = now.us / 1_000;
        let waits = [
            self.core.wait_ms(now),
            self.client_tcp.wait_ms(now_ms),
            self.upstream_tcp.wait_ms(now_ms),
        ];
        let publish = self.publish_ms.map(|due_ms| due_ms.saturating_sub(now_ms));
        waits.into_iter().chain([publish]).flatten().fold(WAIT_MS_MAX, u64::min)
    }

    fn turn(&mut self, events: &mut Events) -> io::Result<()> {
        let is_busy = self.sockets.listeners.iter().any(|listener| listener.is_busy)
            || self.queues.iter().any(|(_, is_busy)| *is_busy);
        let polls_kernel =
            !is_busy || self.core.in_flight() > 0 || self.busy_turns == BUSY_TURNS_MAX;
        let mut ready = 0;
        if polls_kernel {
            self.busy_turns = 0;
            let wait_ms = if is_busy { 0 } else { self.wait_ms(self.clock.now()) };
            ready = self.sockets.poller.wait(events, Some(wait_ms))?;
        } else {
            self.busy_turns += 1;
        }
        let now = self.clock.now();
        if let Some(policy) = self.policy.take_next() {
            self.core.set_policy(now, policy);
        }
        self.begin(now);
        if ready > 0 {
            events.iter().filter(is_answer).for_each(|event| self.handle(event));
            self.show();
            let others = events.iter().filter(|event| !is_answer(event));
            others.for_each(|event| self.handle(event));
        }
        if self.sockets.backends.has_news() {
            self.take_backend_responses();
            self.show();
        }
        for at in 0..self.sockets.listeners.len() {
            if self.sockets.listeners[at].is_busy {
                self.serve(at);
            }
        }
        for at in 0..self.queues.len() {
            if self.queues[at].1 {
                self.serve_queue(at);
            }
        }
        self.finish();
        let now_ms = self.sockets.now_ms;
        match self.publish_ms {
            Some(due_ms) if now_ms >= due_ms => self.publish(),
            None if ready > 0 || is_busy => self.publish_ms = Some(now_ms + PUBLISH_MS),
            _ => {}
        }
        Ok(())
    }

    /// Makes stored responses visible. Otherwise a query for one of them in the same turn would be
    /// sent upstream again.
    fn show(&mut self) {
        self.core.finish();
        self.core.sync();
    }

    /// The beginning of a turn.
    fn begin(&mut self, now: Now) {
        self.sockets.begin(now);
        self.core.begin(now);
    }

    /// The end of a turn: timers, and all queued messages are sent.
    fn finish(&mut self) {
        let Driver { core, sockets, client_tcp, upstream_tcp, .. } = self;
        let (poller, now_ms) = (sockets.poller.clone(), sockets.now_ms);
        core.tick(&mut Transport { sockets, client_tcp, upstream_tcp });
        if !upstream_tcp.is_empty() {
            let mut take = |upstream_tcp: &mut UpstreamTcp, tag: u64, outcome: Outcome<'_>| {
                let transport = &mut Transport { sockets, client_tcp, upstream_tcp };
                transport.upstream_outcome(core, tag, outcome);
            };
            upstream_tcp.expire(&poller, now_ms, &mut take);
            upstream_tcp.flush(&poller, now_ms, &mut take);
        }
        // Before any response is sent: a client that receives one, and queries again, may reach
        // another core.
        core.finish();
        if !client_tcp.is_empty() {
            client_tcp.expire(now_ms);
            client_tcp.flush(&poller, now_ms, |client_tcp, id, peer, query| {
                Transport { sockets, client_tcp, upstream_tcp }.client_query(core, id, peer, query);
            });
            // Queries that were read only now may need a stream.
            upstream_tcp.flush(&poller, now_ms, |upstream_tcp, tag, outcome| {
                let transport = &mut Transport { sockets, client_tcp, upstream_tcp };
                transport.upstream_outcome(core, tag, outcome);
            });
        }
        core.finish();
        sockets.flush();
    }

    fn handle(&mut self, event: Event) {
        let which = event.token & ((1 << SPACE_SHIFT) - 1);
        match (event.token >> SPACE_SHIFT) as u8 {
            LISTENERS => {
                if let Some(listener) = self.sockets.listeners.get_mut(which as usize) {
                    listener.is_busy = true;
                }
            }
            QUEUES => {
                if let Some((_, is_busy)) = self.queues.get_mut(which as usize) {
                    *is_busy = true;
                }
            }
            UPSTREAMS => self.receive((which >> 32) as usize, which as u32),
            WAKER => {
                // An eventfd that cannot be read would wake again; each turn looks at the lifecycle
                // anyway.
                let _ = self.waker.clear();
                self.serve_side_queries();
            }
            STREAM_LISTENERS => self.accept(which as usize),
            CLIENT_TCP => self.serve_stream(event),
            UPSTREAM_TCP => self.serve_upstream_tcp(event),
            _ => {}
        }
    }

    /// Accepts TCP connections. If the machine has no descriptors left they wait, and the poller
    /// reports them again.
    fn accept(&mut self, at: usize) {
        let Some(listener) = self.stream_listeners.get(at) else { return };
        let now_ms = self.sockets.now_ms;
        if self.client_tcp.accept(listener, &self.sockets.poller, now_ms).is_err() {
            self.sockets.observers.counts.tcp_streams_unaccepted += 1;
        }
    }

    /// Processes queries on a TCP connection.
    fn serve_stream(&mut self, event: Event) {
        let Driver { core, sockets, client_tcp, upstream_tcp, .. } = self;
        client_tcp.ready(event, |client_tcp, id, peer, query| {
            Transport { sockets, client_tcp, upstream_tcp }.client_query(core, id, peer, query);
        });
    }

    /// Passes queries of other transports to the core; true if there may be more.
    fn serve_side_queries(&mut self) -> bool {
        let Driver { core, sockets, client_tcp, upstream_tcp, side_queries, .. } = self;
        let Some(inbox) = &mut sockets.inbox else { return false };
        let is_more = inbox.take(side_queries);
        for (client, message) in &*side_queries {
            sockets.observers.query(client, message);
        }
        let batch = side_queries.iter().map(|(client, message)| (*client, message.as_slice()));
        core.queries(batch, &mut Transport { sockets, client_tcp, upstream_tcp });
        is_more
    }

    /// Processes a TCP connection to an upstream.
    fn serve_upstream_tcp(&mut self, event: Event) {
        let Driver { core, sockets, client_tcp, upstream_tcp, .. } = self;
        let (poller, now_ms) = (sockets.poller.clone(), sockets.now_ms);
        upstream_tcp.ready(event, &poller, now_ms, |upstream_tcp, tag, outcome| {
            let transport = &mut Transport { sockets, client_tcp, upstream_tcp };
            transport.upstream_outcome(core, tag, outcome);
        });
    }

    /// Passes responses of backends to the core.
    fn take_backend_responses(&mut self) {
        let Driver { core, sockets, client_tcp, upstream_tcp, .. } = self;
        while let Some((tag, bytes)) = sockets.backends.take() {
            let transport = &mut Transport { sockets, client_tcp, upstream_tcp };
            core.stream_response(tag, bytes.as_deref(), transport);
        }
    }

    /// Passes queries at a listening socket to the core.
    fn serve(&mut self, at: usize) {
        for _ in 0..BATCHES_MAX {
            let received = self.incoming.recv(&self.sockets.listeners[at].socket).unwrap_or(0);
            self.sockets.listeners[at].is_busy = received > 0;
            if received == 0 {
                return;
            }
            let Driver { core, sockets, client_tcp, upstream_tcp, incoming, .. } = self;
            let client_of = |route| Client::Udp { socket: at as u16, route };
            if sockets.observers.tap.is_some() {
                for message in incoming.messages() {
                    sockets.observers.query(&client_of(message.route), message.bytes);
                }
            }
            let batch =
                incoming.messages().map(|message| (client_of(message.route), message.bytes));
            core.queries(batch, &mut Transport { sockets, client_tcp, upstream_tcp });
            if received < BATCH {
                return;
            }
            self.sockets.observers.counts.unsent_answers += self.sockets.listeners[at].flush();
        }
    }

    /// Passes queries of an AF_XDP queue to the core.
    fn serve_queue(&mut self, at: usize) {
        for _ in 0..BATCHES_MAX {
            let Driver { core, sockets, client_tcp, upstream_tcp, queues, .. } = self;
            let Some((incoming, is_busy)) = queues.get_mut(at) else { return };
            let received = incoming.recv();
            *is_busy = received > 0;
            if received == 0 {
                return;
            }
            let mut read = 0;
            let client_of = |letter| Client::Frame { queue: at as u16, letter };
            if sockets.observers.tap.is_some() {
                for (letter, bytes) in incoming.letters() {
                    sockets.observers.query(&client_of(letter), bytes);
                }
            }
            let batch = incoming.letters().map(|(letter, bytes)| (client_of(letter), bytes));
            let batch = batch.inspect(|_| read += 1);
            core.queries(batch, &mut Transport { sockets, client_tcp, upstream_tcp });
            self.sockets.observers.counts.dropped_queries += (received - read) as u64;
            self.sockets.outgoing[at].flush();
        }
    }

    /// Passes packets at a socket to an upstream to the core.
    fn receive(&mut self, upstream: usize, number: u32) {
        let Driver { core, sockets, client_tcp, upstream_tcp, answers, .. } = self;
        for _ in 0..BATCHES_MAX {
            let pool = sockets.upstream_sockets.pool(upstream);
            let Some(socket) = pool.and_then(|pool| pool.socket(number)) else { return };
            let received = answers.recv(socket);
            let transport = &mut Transport { sockets, client_tcp, upstream_tcp };
            // The error is an ICMP message about an earlier query.
            let Ok(received) = received else { return core.unreachable(upstream, transport) };
            for message in answers.messages() {
                let Sockets { upstream_sockets, observers, .. } = &mut *transport.sockets;
                if let (Some(tap), Some(pool)) =
                    (&mut observers.tap, upstream_sockets.pool(upstream))
                {
                    tap.upstream_response(&pool.message(number, message.bytes));
                }
                let matches = if message.is_truncated() {
                    core.truncated_response(number, message.bytes, transport)
                } else {
                    core.response(number, message.bytes, transport)
                };
                let pool = transport.sockets.upstream_sockets.pool_mut(upstream);
                if !matches && pool.is_some_and(|pool| pool.stray(number)) {
                    core.suspect_socket(number, transport);
                }
            }
            if received < BATCH {
                return;
            }
        }
    }
}

/// True for events of upstreams, which are processed before those of clients.
fn is_answer(event: &Event) -> bool {
    matches!((event.token >> SPACE_SHIFT) as u8, UPSTREAMS | UPSTREAM_TCP)
}
