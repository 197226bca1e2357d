//! unbound as a child process, configured to respond as larder does.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use larder_testkit::unbound::{self, Unbound};

use super::client;
use super::queries::{ClientQuery, Edns};
use super::shape::{Flag, Name, Shape};

/// The time limit for unbound's first response.
const START: Duration = Duration::from_secs(20);

/// Larger caches than it needs, extended errors, and otherwise the defaults.
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

/// Starts unbound and waits until it responds.
pub fn start_unbound(upstream: SocketAddr) -> Unbound {
    unbound::at_a_free_port(|address| {
        let mut unbound = Unbound::start(address, upstream, CONFIGURATION);
        answers_soon(&mut unbound).then_some(unbound)
    })
}

/// Queries over TCP for a name that the upstream serves only over TCP. A response shows that all
/// four transports work.
fn answers_soon(unbound: &mut Unbound) -> bool {
    let mut shape = Shape { records: 3, ..Shape::default() };
    shape.set(Flag::Truncated);
    let query = ClientQuery {
        name: Name::of("ready.zone").child(&shape.label()),
        edns: Some(Edns { udp_bytes: 1_232, ..Edns::default() }),
        ..ClientQuery::default()
    };
    let begun = Instant::now();
    while begun.elapsed() < START {
        if unbound.has_ended() {
            return false;
        }
        let answers = client::exchange_tcp(unbound.address, &[&query.message(1)], 1);
        if answers.is_ok_and(|answers| answers[0][3] & 15 == 0 && answers[0][7] == 3) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("unbound does not answer: {}", unbound.log());
}
