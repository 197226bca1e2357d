//! The two servers: larder on a thread of this process, which ends when dropped, and unbound as a child of it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larder::{Cache, Seconds};
use larder_dns::clock::Clock;
use larder_dns::core::{Core, Settings};
use larder_dns::driver::{Driver, Parts};
use larder_dns::metrics::{Counts, Shared};
use larder_dns::policy::PolicyOptions;
use larder_dns::reload::Reload;
use larder_dns::zones::{Forward, Zones};
use larder_io::event::Waker;
use larder_io::stage::{Stage, Stages};
use larder_io::tcp::{self, ListenOptions};
use larder_io::udp::{UdpOptions, UdpSocket};

use larder_testkit::unbound::{self, Unbound};

use super::client;
use super::questions::{Edns, Question};
use super::shape::{Flag, Name, Shape};

/// How long unbound may take until it answers.
const START: Duration = Duration::from_secs(20);

/// Ports tried: larder needs one of both protocols.
const PORTS: usize = 8;

/// A core of larder with everything as the command has it, but that what is about to end is not fetched again:
/// unbound is told not to as well.
pub struct Larder {
    pub address: SocketAddr,
    stages: Arc<Stages>,
    published: Arc<Shared>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Larder {
    pub fn start(upstream: SocketAddr) -> Larder {
        let settings = Settings { prefetch_percent: 0, ..Settings::default() };
        let cache = Cache::builder()
            .budget(64 << 20)
            .proxies_max(1)
            .stale(Seconds(settings.stale_s))
            .build()
            .expect("a cache");
        let options = UdpOptions { receive_buffer_bytes: Some(4 << 20), ..UdpOptions::default() };
        let (socket, stream_listener, address) = bind(&options);
        let forward = Forward { zone: vec![0], upstreams: vec![upstream.into()] };
        let zones = Zones::new(&[forward]).expect("one zone");
        let (stages, waker) = (Arc::new(Stages::new()), Arc::new(Waker::new().unwrap()));
        let published = Arc::new(Shared::new(1));
        // Names of special use are the upstream's here as they are for unbound.
        let policy = PolicyOptions { exempt: vec![".".into()], ..PolicyOptions::default() };
        let (reload, _) = Reload::new(policy, None, &[7; 16]).expect("a policy");
        let (policy, clock) = (reload.follower(), Clock::start());
        let core = Core::new(Arc::new(settings), &cache, zones, clock.now()).expect("a core");
        let parts = Parts {
            listeners: vec![socket],
            stream_listeners: vec![stream_listener],
            ..Parts::bare(core, policy, clock, published.clone(), stages.clone(), waker.clone())
        };
        let mut driver = Driver::new(parts).expect("a driver");
        let thread = std::thread::spawn(move || driver.run().expect("a loop that goes on"));
        Larder { address, stages, published, waker, thread: Some(thread) }
    }

    /// Ends it; what it did.
    pub fn end(mut self) -> Counts {
        self.finish().expect("it ran")
    }

    fn finish(&mut self) -> Option<Counts> {
        self.stages.go_on(Stage::Ends);
        // Who cannot be woken looks around within a second.
        drop(self.waker.wake());
        self.thread.take()?.join().ok()?;
        Some(self.published.sum())
    }
}

impl Drop for Larder {
    fn drop(&mut self) {
        self.finish();
    }
}

/// One port of the loopback for packets and streams.
fn bind(options: &UdpOptions) -> (UdpSocket, TcpListener, SocketAddr) {
    for _ in 0..PORTS {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), options).expect("a socket");
        let address = socket.local_address().expect("a bound socket has an address");
        if let Ok(listener) = tcp::listen(address, &ListenOptions::default()) {
            return (socket, listener, address);
        }
    }
    panic!("no port is free for both UDP and TCP");
}

/// Larger caches than it needs, errors told, and otherwise what it does by default.
const CONFIGURATION: &str = "
server:
  access-control: 127.0.0.0/8 allow
  hide-identity: yes
  hide-version: yes
  minimal-responses: yes
  qname-minimisation: no
  prefetch: no
  msg-cache-size: 64m
  rrset-cache-size: 128m
  ede: yes
  max-udp-size: 1232
";

/// Starts unbound and waits until it answers.
pub fn start_unbound(upstream: SocketAddr) -> Unbound {
    unbound::at_a_free_port(|address| {
        let mut unbound = Unbound::start(address, upstream, CONFIGURATION);
        answers_soon(&mut unbound).then_some(unbound)
    })
}

/// Asks by a stream, for what the upstream tells by streams alone: all four ways work.
fn answers_soon(unbound: &mut Unbound) -> bool {
    let mut shape = Shape { records: 3, ..Shape::default() };
    shape.set(Flag::Truncated);
    let question = Question {
        name: Name::of("ready.zone").child(&shape.label()),
        edns: Some(Edns { udp_bytes: 1_232, ..Edns::default() }),
        ..Question::default()
    };
    let begun = Instant::now();
    while begun.elapsed() < START {
        if unbound.has_ended() {
            return false;
        }
        let answers = client::ask_by_stream(unbound.address, &[&question.message(1)], 1);
        if answers.is_ok_and(|answers| answers[0][3] & 15 == 0 && answers[0][7] == 3) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("unbound does not answer: {}", unbound.log());
}
