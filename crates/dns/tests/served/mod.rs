//! A larder core on a thread of the test, at a port of the loopback for UDP and TCP.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use larder::{Cache, Seconds};
use larder_dns::backend::{Backend, Backends};
use larder_dns::clock::Clock;
use larder_dns::core::{Core, Settings};
use larder_dns::driver::{Driver, Parts};
use larder_dns::metrics::{Counts, Shared};
use larder_dns::policy::PolicyOptions;
use larder_dns::reload::Policies;
use larder_dns::zones::{Forward, Upstream, Zones};
use larder_io::epoll::Waker;
use larder_io::tcp::{self, ListenOptions};
use larder_io::udp::{UdpOptions, UdpSocket};
use larder_serve::lifecycle::{Lifecycle, Stage};

/// Attempts to find a port that is free for both protocols.
const PORTS: usize = 8;

/// A running core; drop stops it.
pub struct Served {
    pub address: SocketAddr,
    lifecycle: Arc<Lifecycle>,
    published: Arc<Shared>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Served {
    /// Starts it with default settings, except that it does not prefetch, and queries the upstream
    /// for special-use names.
    pub fn start(upstream: Upstream, backends: &[Arc<dyn Backend>]) -> Served {
        let settings = Settings { prefetch_percent: 0, ..Settings::default() };
        let cache = Cache::builder().budget(64 << 20).readers_max(1);
        let cache = cache.stale(Seconds(settings.stale_s)).build().unwrap();
        let (socket, listener) = (0..PORTS).find_map(|_| bind()).expect("a free port");
        let address = socket.local_address().unwrap();
        let zones = Zones::new(&[Forward { zone: vec![0], upstreams: vec![upstream] }]).unwrap();
        let (lifecycle, waker) = (Arc::new(Lifecycle::new()), Arc::new(Waker::new().unwrap()));
        let published = Arc::new(Shared::new(1, std::iter::empty()));
        let policy = PolicyOptions { exempt: vec![".".into()], ..PolicyOptions::default() };
        let (policies, _) = Policies::new(policy, None, &[7; 16]).unwrap();
        let (policy, clock) = (policies.follower(), Clock::start());
        let core = Core::new(Arc::new(settings), &cache, zones, clock.now()).unwrap();
        let parts = Parts {
            listeners: vec![socket],
            stream_listeners: vec![listener],
            backends: Backends::new(backends, 0, 100, waker.clone()),
            ..Parts::bare(core, policy, clock, published.clone(), lifecycle.clone(), waker.clone())
        };
        let mut driver = Driver::new(parts).unwrap();
        let thread = Some(std::thread::spawn(move || driver.run()));
        Served { address, lifecycle, published, waker, thread }
    }

    /// Stops it, and returns its counters.
    pub fn end(mut self, stage: Stage) -> Counts {
        self.finish(stage).expect("it ran")
    }

    fn finish(&mut self, stage: Stage) -> Option<Counts> {
        self.lifecycle.advance(stage);
        // A core that is not woken checks within a second.
        drop(self.waker.wake());
        self.thread.take()?.join().ok()?.ok()?;
        Some(self.published.counts.sum())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.finish(Stage::Ends);
    }
}

/// One port for UDP and TCP.
fn bind() -> Option<(UdpSocket, std::net::TcpListener)> {
    let options = UdpOptions { receive_buffer_bytes: Some(4 << 20), ..UdpOptions::default() };
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), &options).expect("a socket");
    let address = socket.local_address().expect("it is bound");
    Some((socket, tcp::listen(address, &ListenOptions::default()).ok()?))
}
