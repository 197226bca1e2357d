//! The least that a UDP server can do: receive a batch, answer it, send the batch.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_io::epoll::{Events, Interest, Poller};
use larder_io::udp::{RecvBatch, SendBatch, UdpSocket};

use super::{MESSAGE_BYTES_MAX, STOP_CHECK_MS, Served};
use crate::clock::ThreadTime;

/// Answers every message with its own bytes, lengthened with whatever is there to what `answer_bytes`
/// makes of its length, until it is stopped. Responses without room in the socket are dropped, as by a server.
pub fn echo(
    socket: &UdpSocket,
    batch: usize,
    answer_bytes: impl Fn(usize) -> usize,
    stop: &AtomicBool,
) -> io::Result<Served> {
    let mut incoming = RecvBatch::new(batch, MESSAGE_BYTES_MAX);
    let mut outgoing = SendBatch::new(batch, MESSAGE_BYTES_MAX);
    let (poller, mut events) = (Poller::new()?, Events::new(1));
    poller.add(socket, 0, Interest::READ)?;
    let time = ThreadTime::start();
    let mut served = Served::default();
    while !stop.load(Ordering::Relaxed) {
        if incoming.recv(socket)? == 0 {
            poller.wait(&mut events, Some(STOP_CHECK_MS))?;
            continue;
        }
        for message in incoming.messages() {
            let Some(slot) = outgoing.slot() else { break };
            let length = message.bytes.len();
            slot[..length].copy_from_slice(message.bytes);
            let longer = answer_bytes(length).clamp(length, MESSAGE_BYTES_MAX);
            outgoing.commit(longer, Some(&message.route));
        }
        served.answers += outgoing.send(socket).sent as u64;
        outgoing.clear();
        served.rounds += 1;
    }
    served.ran_ns = time.elapsed_ns();
    Ok(served)
}
