//! The least that a forwarder can do: a query is sent to the upstream under another ID, the response is sent back
//! under its own. The first two bytes of every message are its ID, as in DNS.
//!
//! Bound: as many queries in flight as there are IDs; the oldest is forgotten for the next.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_io::epoll::{Events, Interest, Poller};
use larder_io::random::Random;
use larder_io::udp::{Ports, RecvBatch, Route, SendBatch, UdpOptions, UdpSocket};

use super::{MESSAGE_BYTES_MAX, SOCKET_BUFFER_BYTES, STOP_CHECK_MS, Served};
use crate::clock::ThreadTime;

/// Who waits for the answer under an ID.
#[derive(Clone, Copy)]
struct Waiting {
    id: [u8; 2],
    route: Route,
}

/// Relays between clients of `socket` and `upstream` until it is stopped.
pub fn relay(
    socket: &UdpSocket,
    upstream: SocketAddr,
    batch: usize,
    stop: &AtomicBool,
) -> io::Result<Served> {
    let options = UdpOptions {
        receive_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
        send_buffer_bytes: Some(SOCKET_BUFFER_BYTES),
        ..UdpOptions::default()
    };
    let (ports, mut random) = (Ports::UNPRIVILEGED, Random::new());
    let upstream = UdpSocket::connect(upstream, None, ports, &mut random, &options)?;
    let mut incoming = RecvBatch::new(batch, MESSAGE_BYTES_MAX);
    let mut outgoing = SendBatch::new(batch, MESSAGE_BYTES_MAX);
    let mut waiting: Vec<Option<Waiting>> = vec![None; 1 << 16];
    let mut next = 0u16;
    let (poller, mut events) = (Poller::new()?, Events::new(2));
    poller.add(socket, 0, Interest::READ)?;
    poller.add(&upstream, 1, Interest::READ)?;
    let time = ThreadTime::start();
    let mut served = Served::default();
    while !stop.load(Ordering::Relaxed) {
        let queries = incoming.recv(socket)?;
        for message in incoming.messages() {
            let Some((&id, rest)) = message.bytes.split_first_chunk() else { continue };
            let Some(slot) = outgoing.slot() else { break };
            next = next.wrapping_add(1);
            waiting[usize::from(next)] = Some(Waiting { id, route: message.route });
            slot[..2].copy_from_slice(&next.to_be_bytes());
            slot[2..message.bytes.len()].copy_from_slice(rest);
            outgoing.commit(message.bytes.len(), None);
        }
        if queries > 0 {
            outgoing.send(&upstream);
            outgoing.clear();
        }

        // An upstream that is not there yet has refused: its clients ask again.
        let answers = incoming.recv(&upstream).unwrap_or(0);
        for message in incoming.messages() {
            let Some((&id, rest)) = message.bytes.split_first_chunk() else { continue };
            let Some(client) = waiting[usize::from(u16::from_be_bytes(id))].take() else {
                continue;
            };
            let Some(slot) = outgoing.slot() else { break };
            slot[..2].copy_from_slice(&client.id);
            slot[2..message.bytes.len()].copy_from_slice(rest);
            outgoing.commit(message.bytes.len(), Some(&client.route));
        }
        if answers > 0 {
            served.answers += outgoing.send(socket).sent as u64;
            outgoing.clear();
            served.rounds += 1;
        }
        if queries + answers == 0 {
            poller.wait(&mut events, Some(STOP_CHECK_MS))?;
        }
    }
    served.ran_ns = time.elapsed_ns();
    Ok(served)
}
