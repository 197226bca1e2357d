//! `larder dns --xdp` in its own network, over a pair of interfaces with two queues; and on systems
//! without XDP.
#![cfg(target_os = "linux")]

mod common;

use common::Scratch;
use common::server::Server;
use larder_testkit::dns::exchange;

/// A query for the A record of `www.example`.
const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\0\0\x01\0\x01";
/// The server's data for it.
const LOCAL_DATA: &str = "www.example 300 A 192.0.2.7\n";
const ADDRESS: [u8; 4] = [192, 0, 2, 7];

fn is_right(answer: &[u8]) -> bool {
    answer.starts_with(&QUERY[..2]) && answer[7] == 1 && answer.ends_with(&ADDRESS)
}

/// Without XDP, larder logs one line that names what is missing, and serves. If XDP is required, it
/// fails with the same reason.
#[test]
fn falls_back_to_sockets() {
    let scratch = Scratch::new();
    scratch.write("local", LOCAL_DATA);
    let line = "dns --listen 127.0.0.1:0 --cache-only --local-data local --xdp lo";
    let server = Server::spawn(scratch.larder().args(line.split(' ')));
    let reason = if cfg!(feature = "xdp") {
        "warn dns: XDP not available, sockets serve error=\"lo: the interface cannot be used"
    } else {
        "warn dns: XDP not available, sockets serve error=\"lo: this larder was built without"
    };
    assert!(server.has_said(reason), "{:?}", server.lines_read);
    assert!(is_right(&exchange(server.address, QUERY)));
    drop(server);

    let must = "dns --listen 127.0.0.1:0 --cache-only --xdp lo --xdp-fallback=false";
    let run = scratch.run(must);
    run.refused(&["no XDP: lo: "]);
    if cfg!(feature = "xdp") {
        let run = scratch.run(&must.replace("xdp lo", "xdp nothing-there"));
        run.refused(&["no XDP: nothing-there: ", "there is no such interface"]);
    }
}

/// Over interfaces, with the feature.
#[cfg(feature = "xdp")]
mod by_frames {
    use std::net::{SocketAddr, UdpSocket};
    use std::process::Command;

    use larder_testkit::dns::exchange_tcp;
    use larder_testkit::http::fetch;
    use larder_testkit::network::{Network, ip};
    use larder_testkit::skip::skip;
    use larder_testkit::wait::{PATIENCE, until_so, until_so_or};

    use super::common::Run;
    use super::*;

    const PORT: u16 = 5300;

    /// A network of the server, and a pair of interfaces between it and the calling thread's own.
    /// Both have two queues. The server's end is 10.99.0.1 and fd99::1, the test's end .2.
    struct Pair(Network);

    impl Pair {
        fn new(test: &str) -> Option<Pair> {
            let network = Network::new(test)?;
            let name = &network.name;
            for line in [
                format!(
                    "link add c0 numrxqueues 2 numtxqueues 2 type veth peer name s0 numrxqueues 2 numtxqueues 2 netns {name}"
                ),
                "addr add 10.99.0.2/24 dev c0".to_owned(),
                "addr add fd99::2/64 dev c0 nodad".to_owned(),
                "link set c0 up".to_owned(),
                format!("-n {name} addr add 10.99.0.1/24 dev s0"),
                format!("-n {name} addr add fd99::1/64 dev s0 nodad"),
                format!("-n {name} link set s0 up"),
            ] {
                let run = ip(&line);
                if run.code != Some(0) {
                    skip(test, format_args!("ip {line}: {}", run.err));
                    return None;
                }
            }
            Some(Pair(network))
        }

        /// The program in the server's network.
        fn larder(&self, scratch: &Scratch, line: &str) -> Command {
            let mut command = self.0.inside(env!("CARGO_BIN_EXE_larder"));
            command.current_dir(scratch.path("")).args(line.split_whitespace());
            command
        }

        /// True if the server's interface has an XDP program.
        fn has_program(&self) -> bool {
            ip(&format!("-n {} -d link show s0", self.0.name)).out.contains("prog/xdp")
        }

        fn wait_until_free(&self) {
            until_so("the end of the program", || !self.has_program());
        }
    }

    /// The number of queries by transport, from the server's metrics.
    fn counted(transport: &str) -> u64 {
        let response = fetch("10.99.0.1:9953".parse().expect("an address"), "/metrics");
        let text = response.text();
        let begin = format!("larder_dns_queries_total{{transport=\"{transport}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&begin)).expect("a count");
        line.parse().expect("a number")
    }

    /// Cores publish their counters several times a second.
    fn wait_until_counted(transport: &str, least: u64) {
        let has = || format!("{transport} has {}", counted(transport));
        until_so_or(has, || counted(transport) >= least);
    }

    /// Over two queues the server takes all IPv4 and IPv6 queries from frames and responds. TCP,
    /// other ports and other traffic still pass through the kernel. The error of a second server
    /// names the conflict. The XDP program is removed with the process, even after a kill, and the
    /// next server can use the interface.
    #[test]
    fn queries_arrive_in_frames() {
        let scratch = Scratch::new();
        let Some(pair) = Pair::new("queries_arrive_in_frames") else { return };
        scratch.write("local", LOCAL_DATA);
        let line = "dns --listen 0.0.0.0:5300,[::]:5300 --cache-only --local-data local --cores 2 \
                    --metrics 10.99.0.1:9953 --xdp s0 --xdp-fallback=false";
        let start = || {
            let server = Server::spawn(&mut pair.larder(&scratch, line));
            assert!(
                server.has_said("info dns: XDP open interface=s0 queues=2 "),
                "{:?}",
                server.lines_read
            );
            assert!(pair.has_program());
            server
        };
        let mut server = start();
        let addresses = ["10.99.0.1", "fd99::1"]
            .map(|text| SocketAddr::new(text.parse().expect("an address"), PORT));
        for address in addresses {
            // From a hundred ports, and so through both queues: the kernel distributes them by a
            // hash.
            for _ in 0..100 {
                assert!(is_right(&exchange(address, QUERY)));
            }
        }
        wait_until_counted("xdp", 200);
        assert_eq!(counted("udp"), 0);

        for address in addresses {
            assert!(is_right(&exchange_tcp(address, QUERY)));
        }
        // The kernel reports that no socket is at another port.
        let other = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        other.connect("10.99.0.1:5301").expect("connected");
        other.set_read_timeout(Some(PATIENCE)).expect("set");
        other.send(QUERY).expect("sent");
        let refused = other.recv(&mut [0; 512]).expect_err("nobody is there");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        // An address that the server's machine gets later is served through the kernel.
        assert_eq!(ip(&format!("-n {} addr add 10.99.0.3/24 dev s0", pair.0.name)).code, Some(0));
        assert!(is_right(&exchange(SocketAddr::from(([10, 99, 0, 3], PORT)), QUERY)));
        wait_until_counted("udp", 1);
        wait_until_counted("tcp", 2);

        let second = "dns --listen 10.99.0.1:5302 --cache-only --xdp s0 --xdp-fallback=false";
        Run::of(&mut pair.larder(&scratch, second)).refused(&["no XDP: s0: queue 0 cannot be had"]);

        // `ip` became the server, so this kills it.
        server.child.kill().expect("killed");
        pair.wait_until_free();
        drop(server);
        let mut server = start();
        assert!(is_right(&exchange(addresses[0], QUERY)));
        server.signal("-TERM");
        server.wait_for("info dns: stopped queries=");
        assert!(server.child.wait().expect("ended").success());
        pair.wait_until_free();
    }
}
