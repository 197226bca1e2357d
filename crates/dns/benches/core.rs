//! The cost of a query in a core, without the kernel: `cargo bench -p larder-dns --bench core`.
//! Under `cargo test` it runs a few rounds to stay sound.
//!
//! A batch of queries for new names goes in, is sent to an upstream, gets its responses, and these
//! are stored and sent. Then the same batch is a hit. The surroundings of the core do little: they
//! copy messages, and make a response from a query by setting a few bytes and appending an address.
//! Their own cost is measured too, without a core.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use larder::Cache;
use larder_dns::core::{Client, Core, Net, Now, QUERY_BYTES_MAX, Settings};
use larder_dns::zones::{Forward, Zones};
use larder_io::udp::Route;

/// Queries of a batch, as an event loop takes them from a socket.
const BATCH: usize = 64;

/// OPT of a client that accepts 1,232 bytes.
const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";

/// What an upstream appends to a query to make a response: an address of its name.
const ADDRESS: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\x0e\x10\0\x04\xc0\0\x02\x01";

/// The queries that were sent, in buffers of equal size.
struct World {
    upstream_queries: Vec<[u8; QUERY_BYTES_MAX]>,
    lengths: Vec<usize>,
    responses: u64,
    room: Vec<u8>,
}

impl Net for World {
    fn respond(
        &mut self,
        _: &Client,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let length = write(&mut self.room[..bytes_max]);
        self.responses += u64::from(length.is_some());
        length.is_some()
    }

    fn drop_query(&mut self, _: &Client) {}

    fn query_udp(&mut self, _: usize, write: impl FnOnce(u32, &mut [u8]) -> Option<usize>) -> bool {
        let at = self.lengths.len();
        let Some(length) = self.upstream_queries.get_mut(at).and_then(|room| write(1, room)) else {
            return false;
        };
        self.lengths.push(length);
        true
    }

    fn query_stream(&mut self, _: usize, _: u64, _: &[u8]) -> bool {
        false
    }

    fn cancel(&mut self, _: u64) {}
}

/// Writes the query for a name that the number makes.
fn put_query(out: &mut Vec<u8>, number: u64) {
    out.clear();
    out.extend([number as u8, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    out.push(12);
    out.extend((0..12).map(|digit| b'a' + (number >> (4 * digit) & 15) as u8));
    out.extend(b"\x07example\x03com\0\0\x01\0\x01");
    out.extend(OPT);
}

/// Writes the response to a query of the core.
fn put_answer(out: &mut Vec<u8>, query: &[u8]) {
    let opt = query.len() - OPT.len();
    out.clear();
    out.extend(&query[..opt]);
    out.extend(ADDRESS);
    out.extend(&query[opt..]);
    out[2] = 0x81;
    out[3] = 0x80;
    out[7] = 1;
}

fn main() {
    let is_real = std::env::args().any(|arg| arg == "--bench");
    let (passes, batches): (u32, u32) = if is_real { (41, 500) } else { (2, 3) };

    let cache = Cache::builder().budget(64 << 20).build().expect("memory");
    let upstream: SocketAddr = "192.0.2.1:53".parse().expect("an address");
    let forward = Forward { zone: vec![0], upstreams: vec![upstream.into()] };
    let zones = Zones::new(&[forward]).expect("a root");
    let mut now = Now { us: 1_000_000, wall_s: 1_000_000 };
    let mut core = Core::new(Arc::new(Settings::default()), &cache, zones, now).expect("a core");
    let mut world = World {
        upstream_queries: vec![[0; QUERY_BYTES_MAX]; BATCH],
        lengths: Vec::new(),
        responses: 0,
        room: vec![0; 65_535],
    };
    let route = Route { peer: "192.0.2.7:4000".parse().expect("an address"), local: None };
    let client = Client::Udp { socket: 0, route };
    let mut queries = vec![Vec::new(); BATCH];
    let mut answer = Vec::new();
    let mut number = 0u64;
    let mut costs_ns = [const { Vec::new() }; 3];
    for _ in 0..passes {
        let mut spent_ns = [0.0; 3];
        for _ in 0..batches {
            now.us += 1_000;
            for query in &mut queries {
                number += 1;
                put_query(query, number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16);
            }
            let began = Instant::now();
            core.begin(now);
            let batch = queries.iter().map(|query| (client, query.as_slice()));
            core.queries(batch, &mut world);
            core.tick(&mut world);
            core.finish();
            for at in 0..world.lengths.len() {
                put_answer(&mut answer, &world.upstream_queries[at][..world.lengths[at]]);
                core.response(1, &answer, &mut world);
            }
            core.tick(&mut world);
            core.finish();
            spent_ns[0] += began.elapsed().as_nanos() as f64;

            let began = Instant::now();
            core.begin(now);
            let batch = queries.iter().map(|query| (client, query.as_slice()));
            core.queries(batch, &mut world);
            core.finish();
            spent_ns[1] += began.elapsed().as_nanos() as f64;

            let began = Instant::now();
            for at in 0..world.lengths.len() {
                let length = world.lengths[at];
                put_answer(&mut answer, black_box(&world.upstream_queries[at][..length]));
                black_box(&answer);
            }
            spent_ns[2] += began.elapsed().as_nanos() as f64;
            world.lengths.clear();
        }
        let queries = f64::from(batches) * BATCH as f64;
        for (costs, spent) in costs_ns.iter_mut().zip(spent_ns) {
            costs.push(spent / queries);
        }
    }
    let counts = core.counts();
    let expected = u64::from(passes * batches) * BATCH as u64;
    assert_eq!((counts.misses, counts.hits, world.responses), (expected, expected, 2 * expected));
    println!("{:<24} {:>8} {:>8}", "ns a question", "best", "middle");
    for (name, costs) in ["miss", "hit", "the world of a miss"].iter().zip(&mut costs_ns) {
        costs.sort_by(f64::total_cmp);
        println!("{name:<24} {:>8.0} {:>8.0}", costs[0], costs[costs.len() / 2]);
    }
}
