//! Measurements of name servers, by address, for all zones.
//!
//! Round trips are smoothed as for a forwarder ([`RoundTrip`]). A zone's fastest server gets the query.
//! One query in [`EXPLORE_EVERY`] is sent to a random server, so that a server that was slow once is measured
//! again. A server without a measurement ranks as slower than most, and IPv6 as slower than IPv4, since
//! some machines have no IPv6.

use std::net::IpAddr;

use larder_dns::choice::{PLAIN_MS, RoundTrip};

use crate::recent::Recent;

/// One choice in this many is random.
pub const EXPLORE_EVERY: u32 = 32;

/// Added to the rank of an IPv6 server without a measurement, microseconds.
const IPV6_US: u64 = 50_000;

#[derive(Debug, Default)]
struct Server {
    round_trip: RoundTrip,
    is_measured: bool,
    /// Queries have no EDNS until this time, milliseconds.
    plain_until_ms: u64,
}

/// The servers with recent queries.
#[derive(Debug)]
pub struct Servers {
    all: Recent<IpAddr, Server>,
}

impl Servers {
    /// No servers.
    pub fn new(servers_max: usize) -> Servers {
        Servers { all: Recent::new(servers_max) }
    }

    fn entry(&mut self, server: IpAddr) -> &mut Server {
        if self.all.get(&server).is_none() {
            self.all.insert(server, Server::default());
        }
        self.all.get(&server).expect("it was put in")
    }

    /// The rank of a server. A lower rank means a faster response.
    pub fn rank(&mut self, server: IpAddr) -> u64 {
        let known = self.all.get(&server);
        let is_measured = known.as_ref().is_some_and(|server| server.is_measured);
        let rank = known.map_or(RoundTrip::default().rank(), |server| server.round_trip.rank());
        if is_measured || server.is_ipv4() { rank } else { rank + IPV6_US }
    }

    /// The timeout of a server, milliseconds, and whether queries to it have EDNS.
    pub fn wait_and_edns(&mut self, server: IpAddr, now_ms: u64) -> (u32, bool) {
        let server = self.entry(server);
        (server.round_trip.wait_ms(), now_ms >= server.plain_until_ms)
    }

    /// Records a response and its round trip.
    pub fn responded(&mut self, server: IpAddr, after_us: u32) {
        let server = self.entry(server);
        if server.is_measured {
            server.round_trip.answered(after_us);
        } else {
            server.round_trip = RoundTrip::first(after_us);
        }
        server.is_measured = true;
    }

    /// Records a timeout, or that the server is unreachable.
    pub fn timed_out(&mut self, server: IpAddr) {
        self.entry(server).round_trip.silent();
    }

    /// Records that the server does not support EDNS.
    pub fn lacks_edns(&mut self, server: IpAddr, now_ms: u64) {
        self.entry(server).plain_until_ms = now_ms + PLAIN_MS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fast servers rank before unknown ones, unknown ones before silent ones, and IPv4 before
    /// IPv6. EDNS is tried again after a time.
    #[test]
    fn ranks_of_servers() {
        let mut servers = Servers::new(100);
        let at = |last| IpAddr::from([192, 0, 2, last]);
        servers.responded(at(1), 3_000);
        for _ in 0..3 {
            servers.timed_out(at(2));
        }
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        let ranks = [at(1), at(3), v6, at(2)].map(|server| servers.rank(server));
        assert!(ranks.is_sorted() && ranks[0] < ranks[1] && ranks[1] < ranks[2], "{ranks:?}");
        servers.responded(v6, 1_000);
        assert!(servers.rank(v6) < servers.rank(at(1)));
        servers.lacks_edns(at(1), 5);
        assert!(!servers.wait_and_edns(at(1), 5).1 && servers.wait_and_edns(at(1), 5 + PLAIN_MS).1);
        let (calm, _) = servers.wait_and_edns(at(1), 0);
        servers.timed_out(at(1));
        assert_eq!(servers.wait_and_edns(at(1), 0).0, 2 * calm);
    }
}
