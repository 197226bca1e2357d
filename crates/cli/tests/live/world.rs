//! The environment of a test: two networks, a captured pair of interfaces between them, and a
//! second pair that is not captured.
//!
//! ```text
//! the test's thread, and what it starts    the network `name`, by `ip netns exec`
//! a0  10.77.0.1 and others: servers  ----  b0  10.77.0.2: larder captures here, clients query from here
//! m0  10.78.0.1: connects to larder  ----  m1  10.78.0.2: larder serves operators and readers
//! ```
//!
//! Programs in the network use the name server 10.77.0.53. The second network is deleted on drop;
//! the thread's own network is deleted with the thread.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use larder_testkit::dns::exchange;
use larder_testkit::network::{Network, must};
use larder_testkit::process::{Program, Run};
use larder_testkit::skip::skip;
use larder_testkit::wait::until;

use crate::common::Scratch;
use crate::common::server::{Server, query};

/// The address of the test's name server.
pub const DNS: &str = "10.77.0.53";

/// The ends of the captured pair.
const HERE: &str = "02:00:00:00:77:01";
const THERE: &str = "02:00:00:00:77:02";
/// Addresses of the outer end.
const ADDRESSES: [&str; 3] = ["10.77.0.1", "10.77.0.3", DNS];

/// See the module.
pub struct World {
    network: Network,
    /// The name of the second network.
    pub name: String,
    pub scratch: Scratch,
}

impl World {
    /// Creates it, and moves the calling thread there. Prints SKIP and returns `None` if that is
    /// not permitted.
    pub fn new(test: &str) -> Option<World> {
        let network = Network::new(test)?;
        let name = network.name.clone();
        let world = World { network, name, scratch: Scratch::new() };
        let resolver = world.resolver();
        let made = fs::create_dir_all(resolver.parent().expect("a folder"))
            .and_then(|()| fs::write(&resolver, format!("nameserver {DNS}\n")));
        if let Err(error) = made {
            skip(test, format_args!("{}: {error}", resolver.display()));
            return None;
        }
        let name = &world.name;
        // IPv6 neighbor discovery would send at times of its own.
        let quiet = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6";
        let here = Run::of(Command::new("sh").args(["-c", quiet]));
        if here.code != Some(0) {
            skip(test, format_args!("no second network: {}", here.err));
            return None;
        }
        Run::of(world.inside("sh").args(["-c", quiet])).good();
        world.link();
        for line in [
            format!("link add m0 type veth peer name m1 netns {name}"),
            "addr add 10.78.0.1/24 dev m0".to_owned(),
            "link set m0 up".to_owned(),
            format!("-n {name} addr add 10.78.0.2/24 dev m1"),
            format!("-n {name} link set m1 up"),
            format!("-n {name} link set lo up"),
        ] {
            must(&line);
        }
        Some(world)
    }

    /// Creates the captured pair. Both ends have permanent neighbor entries, so that no end sends
    /// ARP requests at times of its own.
    pub fn link(&self) {
        let name = &self.name;
        must(&format!(
            "link add a0 address {HERE} type veth peer name b0 address {THERE} netns {name}"
        ));
        for address in ADDRESSES {
            must(&format!("addr add {address}/24 dev a0"));
        }
        must("link set a0 up");
        must(&format!("-n {name} addr add 10.77.0.2/24 dev b0"));
        self.up();
    }

    /// Sets the inner end up, and restores the entries that a down removes.
    pub fn up(&self) {
        let name = &self.name;
        must(&format!("-n {name} link set b0 up"));
        must(&format!("neigh replace 10.77.0.2 lladdr {THERE} dev a0 nud permanent"));
        for address in ADDRESSES {
            let entry = format!("{address} lladdr {HERE} dev b0 nud permanent");
            must(&format!("-n {name} neigh replace {entry}"));
        }
        must("route replace 10.77.1.0/24 via 10.77.0.2 dev a0");
    }

    /// The file that [`World::new`] creates outside of the networks.
    fn resolver(&self) -> PathBuf {
        PathBuf::from(format!("/etc/netns/{}/resolv.conf", self.name))
    }

    /// A program in the network `name`. `ip` replaces itself with it.
    pub fn inside(&self, program: &str) -> Command {
        let mut command = self.network.inside(program);
        command.current_dir(self.scratch.path(""));
        command
    }

    /// The built program in that network.
    pub fn larder(&self, line: &str) -> Command {
        let mut command = self.inside(env!("CARGO_BIN_EXE_larder"));
        command.args(line.split_whitespace());
        command
    }

    /// Starts a capture, and waits until it receives packets; `line` is appended to `annotate -i b0
    /// -o log`.
    pub fn capture(&self, line: &str) -> Program {
        let line = format!("annotate -i b0 --ctl ctl --format ecs -o log {line}");
        let program = Program::start(&mut self.larder(&line));
        self.wait_for_answers();
        program
    }

    /// Waits until a capture is running: it serves the control socket once all else is open.
    pub fn wait_for_answers(&self) {
        until("a capture", || {
            (self.scratch.run("ctl --socket ctl stats --json").code == Some(0)).then_some(())
        });
    }

    /// The current counters.
    pub fn stats(&self) -> serde_json::Value {
        let output = self.scratch.run("ctl --socket ctl stats --json").good();
        serde_json::from_str(&output).expect("JSON")
    }

    /// A counter of the packet store, or another figure.
    pub fn count(&self, name: &str) -> u64 {
        let stats = self.stats();
        let value = &stats[name];
        value.as_f64().or_else(|| value["b0"].as_f64()).unwrap_or_else(|| panic!("{stats}")) as u64
    }

    /// The log so far.
    pub fn log_text(&self) -> String {
        self.scratch.read("log")
    }

    /// The log's complete lines so far. A reader may see part of a line that is being written: file
    /// systems show a write page by page.
    pub fn log(&self) -> Vec<serde_json::Value> {
        let text = self.log_text();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Paths of closed segments in a folder of the scratch directory.
    pub fn segments(&self, folder: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.scratch.path(folder)).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let mut paths: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "pcapng")).collect();
        paths.sort();
        paths
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let resolver = self.resolver();
        let _ = fs::remove_file(&resolver);
        let _ = fs::remove_dir(resolver.parent().expect("a folder"));
    }
}

/// The address through which the test itself reaches names and services of the inner side.
const NAMES: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)), 53);

/// The inner side for a client outside: `n<k>.example` has the address 10.77.1.`k`, which receives
/// the test's datagrams.
pub struct Names {
    _server: Server,
    socket: UdpSocket,
}

impl World {
    pub fn names(&self) -> Names {
        let all: String = (0..=255).map(|k| format!("n{k}.example 300 A 10.77.1.{k}\n")).collect();
        self.scratch.write("names", all);
        must(&format!("-n {} route add local 10.77.1.0/24 dev lo", self.name));
        let line = format!("dns --listen {NAMES} --cache-only --local-data names --cores 1");
        let server = Server::spawn(&mut self.larder(&line));
        let socket = UdpSocket::bind("10.77.0.1:0").expect("a socket");
        Names { _server: server, socket }
    }
}

impl Names {
    /// Queries `n<k>.example`.
    pub fn query(&self, k: u8) {
        let answer = exchange(NAMES, &query(&format!("n{k}")));
        assert_eq!(answer.last(), Some(&k), "{answer:?}");
    }

    /// Sends a datagram to 10.77.1.`k`; the port distinguishes flows.
    pub fn send(&self, k: u8, port: u16, payload: &[u8]) {
        // No socket receives it there, and the kernel may report that here.
        let _ = self.socket.send_to(payload, (Ipv4Addr::new(10, 77, 1, k), port));
    }
}

/// The names of the log's flows to `port`, by the last byte of their destination.
pub fn named(log: &[serde_json::Value], port: u16) -> BTreeMap<u8, Option<String>> {
    let flows = log.iter().filter(|flow| flow["destination.port"] == port);
    let named = flows.filter_map(|flow| {
        let address: Ipv4Addr = flow["destination.ip"].as_str()?.parse().ok()?;
        let name = flow["destination.domain"].as_str().map(str::to_owned);
        Some((address.octets()[3], name))
    });
    named.collect()
}
