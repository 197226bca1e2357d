//! Recursion, for any responses of name servers: each client gets one response, in time, for a bounded number of
//! packets.

use std::net::IpAddr;
use std::sync::Arc;

use larder_dns::core::Now;
use larder_dns_recursor::Options;
use larder_dns_recursor::resolver::{Net, PACKETS_MAX, Resolver};
use larder_wire::dns::{HEADER_BYTES, Message};

use super::Cut;

/// Clients of an input, at most.
const CLIENTS_MAX: u8 = 8;

/// Query names: of one label, of zones below one another, with an upper case letter, and one of many
/// labels.
const NAMES: [&[u8]; 4] = [
    b"\x04test\0",
    b"\x03www\x04Good\x04test\0",
    b"\x01a\x05other\x04test\0",
    b"\x01a\x01b\x01c\x01d\x01e\x01f\x01g\x04good\x04test\0",
];

/// How long a client waits, milliseconds.
const WAIT_MS: u64 = 4_000;

#[derive(Default)]
struct Wire {
    /// Queries in flight: socket or tag, and the message.
    sent: Vec<(Result<u32, u64>, Vec<u8>)>,
    sockets: u32,
    packets: u32,
    responses: Vec<u8>,
}

impl Net<u8> for Wire {
    fn send(&mut self, _: IpAddr, write: impl FnOnce(u32, &mut [u8]) -> Option<usize>) -> bool {
        self.sockets += 1;
        let mut room = [0; 320];
        let Some(length) = write(self.sockets, &mut room) else { return false };
        self.packets += 1;
        self.sent.push((Ok(self.sockets), room[..length].to_vec()));
        true
    }

    fn send_tcp(&mut self, _: IpAddr, tag: u64, message: &[u8]) -> bool {
        self.packets += 1;
        self.sent.push((Err(tag), message.to_vec()));
        true
    }

    fn respond(&mut self, client: u8, message: Vec<u8>, _: &[u8]) {
        let whole = Message::parse(&message).expect("a header");
        assert!(whole.is_response() && whole.question_count() == 1);
        self.responses.push(client);
    }
}

/// First the clients: how many, and for each name and type. Then what happens: which query gets a response, how the
/// header of the response differs from a right one, and what follows the question in it.
pub fn dns_recursor(input: &[u8]) {
    let mut input = Cut(input);
    let options = Options {
        roots: vec![[9, 9, 9, 9].into()],
        case_random: false,
        passes_dnssec: true,
        ..Options::default()
    };
    let mut us = 0;
    let now = |us: u64| Now { us, wall_s: 1_000 + (us / 1_000_000) as u32 };
    let mut resolver = Resolver::new(Arc::new(options), now(us));
    let mut wire = Wire::default();
    let clients = 1 + input.u8() % CLIENTS_MAX;
    for client in 0..clients {
        let choice = input.u8();
        let mut message = vec![0; HEADER_BYTES];
        (message[2], message[5]) = (1, 1);
        message.extend_from_slice(NAMES[usize::from(choice) % NAMES.len()]);
        message.extend_from_slice(&[0, [1, 43, 28, 5][usize::from(choice >> 2) % 4], 0, 1]);
        if choice & 0x80 != 0 {
            message[11] = 1;
            message.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0x80, 0, 0, 0]);
        }
        resolver.begin(now(us), client, &message, WAIT_MS, &mut wire);
    }
    while !input.is_empty() && !wire.sent.is_empty() {
        let which = usize::from(input.u8()) % wire.sent.len();
        let (key, query) = wire.sent.swap_remove(which);
        us += 1_000;
        let body_bytes = usize::from(input.u16()) % 1_024;
        let mut answer = query;
        // The query, without OPT.
        answer.truncate(answer.len() - 11 * usize::from(answer[11] == 1));
        answer[2] = 0x84;
        let counts = input.bytes(7);
        counts.iter().zip([2, 3, 7, 9, 11, 5, 12]).for_each(|(by, at)| {
            // Rarely the flags, the count of questions, and the name; mostly the counts of records.
            let mask = if matches!(at, 2 | 3 | 5 | 12) && by & 0xc0 != 0xc0 { 0 } else { 7 };
            answer[at] ^= by & mask;
        });
        answer.extend_from_slice(input.bytes(body_bytes));
        match key {
            Ok(socket) => drop(resolver.receive(now(us), socket, &answer, &mut wire)),
            Err(tag) => resolver.receive_tcp(now(us), tag, Some(&answer), &mut wire),
        }
    }
    while let Some(wait_ms) = resolver.wait_ms(now(us)) {
        us += wait_ms.max(1) * 1_000;
        assert!(us <= (WAIT_MS + 1_000) * 1_000 + 1_000 * 70_000, "it ends");
        resolver.tick(now(us), &mut wire);
    }
    wire.responses.sort_unstable();
    assert_eq!(wire.responses, (0..clients).collect::<Vec<_>>(), "each gets one response");
    assert!(resolver.in_flight() == 0 && wire.packets <= u32::from(clients) * PACKETS_MAX);
}
