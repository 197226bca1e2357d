//! Traffic of flows that state names, and of flows that go on for long.

use larder_testkit::hello::hello;

use super::*;

/// A client looks a name up, and then visits the address and states a name in HTTP.
pub fn state(maker: &mut Maker) {
    let client = [10, 0, 0, maker.random.below(6) as u8];
    let host = maker.random.below(12) as u32;
    let server = [198, 51, 100, (host / 4) as u8];
    let port = 2_000 + maker.random.below(300) as u16;
    if maker.random.below(2) == 0 {
        maker.push(question(client, port, 7, host));
        maker.push(answer(client, port, 7, host, &[server]));
    }
    let stated = match maker.random.below(4) {
        0 => host ^ 1,
        _ => host,
    };
    let request = format!("GET / HTTP/1.1\r\nHost: h{stated}.larder.example\r\n\r\n");
    let first = maker.random.below(1 << 30) as u32;
    let (there, back) = ((port, 80), (80, port));
    // A flow may begin in its middle, be reset, be left open, or say nothing.
    if maker.random.below(5) > 0 {
        maker.push(tcp((client, server), there, 0x02, first, &[]));
        maker.push(tcp((server, client), back, 0x12, 900, &[]));
    }
    for _ in 0..maker.random.below(3) {
        maker.push(tcp((server, client), back, 0x18, 901, b"220 welcome\r\n"));
    }
    let (head, tail) = request.as_bytes().split_at(maker.random.below(20) as usize);
    for (at, part) in [(0, head), (head.len(), tail)] {
        maker.push(tcp((client, server), there, 0x18, first + 1 + at as u32, part));
    }
    if maker.random.below(6) > 0 {
        maker.push(tcp((server, client), back, 0x18, 901, &[b'x'; 900]));
    }
    for _ in 0..maker.random.below(20) {
        maker.push(tcp((server, client), back, 0x18, 1_801, &[b'y'; 1_200]));
    }
    match maker.random.below(4) {
        0 => {}
        1 => maker.push(tcp((server, client), back, 0x04, 1_801, &[])),
        _ => {
            maker.push(tcp((client, server), there, 0x11, first + 1 + request.len() as u32, &[]));
            maker.push(tcp((server, client), back, 0x11, 1_801, &[]));
        }
    }
    if maker.random.below(4) == 0 {
        let seconds = maker.random.below(80) as i64;
        maker.pause(seconds * 1_000_000_000);
    }
}

/// A client looks a name up, and states it in a head of many tiny segments, with pauses.
pub fn state_slowly(maker: &mut Maker) {
    let client = [10, 0, 0, maker.random.below(6) as u8];
    let host = maker.random.below(12) as u32;
    let server = [198, 51, 100, (host / 4) as u8];
    let port = 2_300 + maker.random.below(300) as u16;
    maker.push(question(client, port, 7, host));
    maker.push(answer(client, port, 7, host, &[server]));
    let name = format!("h{host}.larder.example");
    let (to, head) = match maker.random.below(2) {
        0 => (443, hello(name.as_bytes(), false)),
        _ => (80, format!("GET / HTTP/1.1\r\nX: {0:300}\r\nHost: {name}\r\n\r\n", "").into_bytes()),
    };
    let first = maker.random.below(1 << 30) as u32;
    maker.push(tcp((client, server), (port, to), 0x02, first, &[]));
    maker.push(tcp((server, client), (to, port), 0x12, 900, &[]));
    let size = 5 + maker.random.below(15) as usize;
    for (at, part) in head.chunks(size).enumerate() {
        let seq = first + 1 + (at * size) as u32;
        maker.push(tcp((client, server), (port, to), 0x18, seq, part));
        let pause_ms = maker.random.below(2_000) as i64;
        maker.pause(pause_ms * 1_000_000);
    }
    maker.push(tcp((server, client), (to, port), 0x18, 901, &[b'x'; 900]));
}

/// Lookups and flows that state names, recordings, fragments, tunnels and damage.
pub fn traffic(seed: u64) -> Maker {
    let mut maker = mixture(seed, 60_000);
    for round in 0..6 {
        for _ in 0..40 {
            state(&mut maker);
        }
        maker.replay(&mutated(seed ^ round).frames, 0);
    }
    maker
}

/// Flows that go on: with pauses, some longer than flows may be idle; with handshakes, or not; some end and go on.
pub fn go_on(maker: &mut Maker) {
    let mut flows: Vec<(Ends, u16, u32)> = Vec::new();
    for number in 0..12 {
        let (client, server) =
            ([10, 0, 0, maker.random.below(6) as u8], [198, 51, 100, maker.random.below(4) as u8]);
        let (port, first) = (40_000 + number as u16, maker.random.below(1 << 30) as u32);
        if number % 3 == 0 {
            maker.push(tcp((client, server), (port, 443), 0x02, first, &[]));
            maker.push(tcp((server, client), (443, port), 0x12, 900, &[]));
        }
        flows.push(((client, server), port, first + 1));
    }
    for _ in 0..60 {
        let at = maker.random.below(flows.len() as u64) as usize;
        let ((client, server), port, next) = flows[at];
        let payload = vec![b'z'; maker.random.below(200) as usize];
        let is_back = maker.random.below(2) == 0;
        let (ends, ports) =
            if is_back { ((server, client), (443, port)) } else { ((client, server), (port, 443)) };
        if at % 4 == 1 {
            maker.push(udp(ends, ports, &payload));
        } else {
            let flags = match maker.random.below(25) {
                0 => 0x11,
                1 => 0x04,
                2 => 0x02,
                _ => 0x18,
            };
            maker.push(tcp(ends, ports, flags, if is_back { 901 } else { next }, &payload));
        }
        flows[at].2 = next.wrapping_add(if is_back { 0 } else { payload.len() as u32 });
        let pause_ms = match maker.random.below(12) {
            0 => maker.random.below(90_000),
            1 => maker.random.below(7_000),
            _ => maker.random.below(2_000),
        };
        maker.pause(pause_ms as i64 * 1_000_000);
    }
}

/// Short and long flows of about half an hour.
pub fn long_traffic(seed: u64) -> Maker {
    let mut maker = mixture(seed, 20_000);
    for round in 0..6 {
        go_on(&mut maker);
        (0..10).for_each(|_| state(&mut maker));
        (0..3).for_each(|_| state_slowly(&mut maker));
        maker.replay(&mutated(seed ^ round).frames, 0);
    }
    maker
}

/// No frame from `at` on is earlier than one before: files that overlap in time would be merged.
pub fn is_in_order(frames: &[Frame], at: usize) -> bool {
    let times = |frames: &'_ [Frame]| frames.iter().map(|frame| frame.at_ns).collect::<Vec<_>>();
    at == 0 || times(&frames[..at]).iter().max() <= times(&frames[at..]).iter().min()
}
