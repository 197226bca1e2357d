//! The two servers: larder on a thread of this process, unbound as a child of it. Both end when dropped.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket as PlainSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
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
use larder_dns::stage::{Stage, Stages};
use larder_dns::zones::{Forward, Zones};
use larder_io::event::Waker;
use larder_io::tcp::{self, ListenOptions};
use larder_io::udp::{UdpOptions, UdpSocket};
use tempfile::TempDir;

use super::client;
use super::questions::{Edns, Question};
use super::shape::{Flag, Name, Shape};

/// How long unbound may take until it answers.
const START: Duration = Duration::from_secs(20);

/// Ports tried: unbound binds its own, and larder needs one of both protocols.
const PORTS: usize = 8;

/// Where a server is asked.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    pub packets: SocketAddr,
    /// None: it is not asked by streams.
    pub streams: Option<SocketAddr>,
}

/// A core of larder with everything as the command has it, but that what is about to end is not fetched again:
/// unbound is told not to as well.
pub struct Larder {
    pub addresses: Addresses,
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
        let (socket, stream_listener, packets) = bind(&options);
        let forward = Forward { zone: vec![0], upstreams: vec![upstream.into()] };
        let zones = Zones::new(&[forward]).expect("one zone");
        let (stages, waker) = (Arc::new(Stages::new()), Arc::new(Waker::new().unwrap()));
        let published = Arc::new(Shared::new(1));
        // Names of special use are the upstream's here as they are for unbound.
        let policy = PolicyOptions { exempt: vec![".".into()], ..PolicyOptions::default() };
        let (reload, _) = Reload::new(policy, &[7; 16]).expect("a policy");
        let (policy, clock) = (reload.follower(), Clock::start());
        let core = Core::new(Arc::new(settings), &cache, zones, clock.now()).expect("a core");
        let parts = Parts {
            listeners: vec![socket],
            stream_listeners: vec![stream_listener],
            ..Parts::bare(core, policy, clock, published.clone(), stages.clone(), waker.clone())
        };
        let mut driver = Driver::new(parts).expect("a driver");
        let thread = std::thread::spawn(move || driver.run().expect("a loop that goes on"));
        let addresses = Addresses { packets, streams: Some(packets) };
        Larder { addresses, stages, published, waker, thread: Some(thread) }
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

/// unbound, which asks the upstream for everything.
pub struct Unbound {
    pub addresses: Addresses,
    /// The first line of what it says of itself: its version.
    pub version: String,
    child: Child,
    /// Its configuration, and its log.
    folder: TempDir,
}

/// Larger caches than it needs, no checks of DNSSEC, errors told, and otherwise what it does by default.
const CONFIGURATION: &str = "
server:
  use-syslog: no
  do-daemonize: no
  username: \"\"
  chroot: \"\"
  pidfile: \"\"
  module-config: \"iterator\"
  num-threads: 1
  do-ip6: no
  do-not-query-localhost: no
  access-control: 127.0.0.0/8 allow
  hide-identity: yes
  hide-version: yes
  minimal-responses: yes
  qname-minimisation: no
  prefetch: no
  rrset-roundrobin: no
  msg-cache-size: 64m
  rrset-cache-size: 128m
  ede: yes
  max-udp-size: 1232
";

impl Unbound {
    /// Starts it and waits until it answers. `None` where it is not installed.
    pub fn start(upstream: SocketAddr) -> Option<Unbound> {
        let version = Command::new("unbound").arg("-V").output().ok()?;
        let version = String::from_utf8_lossy(&version.stdout).lines().next()?.to_owned();
        for _ in 0..PORTS {
            if let Some(unbound) = Unbound::try_start(upstream, &version) {
                return Some(unbound);
            }
        }
        panic!("unbound does not start");
    }

    fn try_start(upstream: SocketAddr, version: &str) -> Option<Unbound> {
        let folder = TempDir::new().expect("a folder");
        let free = PlainSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback");
        let address = free.local_addr().expect("a bound socket has an address");
        drop(free);
        let path = folder.path();
        let (log, configuration) = (path.join("log"), path.join("unbound.conf"));
        let (port, to_port) = (address.port(), upstream.port());
        let mut file = fs::File::create(&configuration).expect("a file");
        write!(
            file,
            "{CONFIGURATION}  directory: \"{}\"\n  logfile: \"{}\"\n  interface: 127.0.0.1@{port}\n\
             forward-zone:\n  name: \".\"\n  forward-addr: 127.0.0.1@{to_port}\n\
             remote-control:\n  control-enable: no\n",
            path.display(),
            log.display(),
        )
        .expect("a written file");
        let child = Command::new("unbound")
            .arg("-d")
            .arg("-c")
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("unbound, which told its version");
        let addresses = Addresses { packets: address, streams: Some(address) };
        let mut unbound = Unbound { addresses, version: version.to_owned(), child, folder };
        unbound.answers_soon().then_some(unbound)
    }

    /// Asks by a stream, for what the upstream tells by streams alone: all four ways work.
    fn answers_soon(&mut self) -> bool {
        let mut shape = Shape { records: 3, ..Shape::default() };
        shape.set(Flag::Truncated);
        let question = Question {
            name: Name::of("ready.zone").child(&shape.label()),
            edns: Some(Edns { udp_bytes: 1_232, ..Edns::default() }),
            ..Question::default()
        };
        let begun = Instant::now();
        while begun.elapsed() < START {
            if let Ok(Some(_)) = self.child.try_wait() {
                return false;
            }
            let address = self.addresses.streams.expect("it listens");
            let answers = client::ask_by_stream(address, &[&question.message(1)]);
            if answers.is_ok_and(|answers| answers[0][3] & 15 == 0 && answers[0][7] == 3) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("unbound does not answer: {}", read(&self.folder.path().join("log")));
    }
}

fn read(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default()
}

impl Drop for Unbound {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
