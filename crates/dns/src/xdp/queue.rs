//! A queue: reads queries from frames, and writes responses into frames.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use larder_io::xdp::{self, RECEIVED_BYTES_MAX, Receiver, SENT_BYTES_MAX, Sender};
use larder_serve::log::Log;
use larder_wire::udp_frame::{self, FrameAddresses, HEADERS_V6};

use super::{Interface, Queue};
use crate::tcp_framing::CLIENT_QUERY_BYTES_MAX;

/// Bytes of the Ethernet header, which the MTU does not count.
const ETHERNET_BYTES: usize = 14;

/// The receiving side.
pub struct Incoming {
    receiver: Receiver,
}

/// The sending side.
pub struct Outgoing {
    sender: Sender,
}

/// Opens an interface for queries to these addresses, to which sockets are bound.
pub(super) fn open_interface(
    name: &str,
    bound: &[SocketAddr],
    log: &Log,
) -> Result<Interface, String> {
    let words = |error: xdp::XdpError| error.to_string();
    let interface = xdp::find(name).map_err(words)?;
    let local = xdp::local_addresses()
        .map_err(|error| format!("{name}: cannot read the addresses of this machine: {error}"))?;
    let targets = targets(bound, &local);
    if targets.is_empty() {
        return Err(format!(
            "{name}: all that is listened at is the loopback, which no interface leads to; give an address with --listen"
        ));
    }
    let options = xdp::Options {
        interface: &interface,
        targets: &targets,
        frame_bytes_max: (HEADERS_V6 + CLIENT_QUERY_BYTES_MAX).min(RECEIVED_BYTES_MAX),
    };
    let queues = xdp::open(&options).map_err(words)?;
    let is_zero_copy = queues.iter().all(|queue| queue.is_zero_copy);
    let line = log.info("XDP open").text("interface", name).number("queues", queues.len());
    line.text("mode", if is_zero_copy { "zero-copy" } else { "copy" });
    let frame_bytes_max = SENT_BYTES_MAX.min(ETHERNET_BYTES + interface.mtu as usize);
    let answer_bytes_max = frame_bytes_max.saturating_sub(HEADERS_V6) as u16;
    let pair = |queue: xdp::Queue| Queue {
        incoming: Incoming { receiver: queue.receiver },
        outgoing: Outgoing { sender: queue.sender },
    };
    let queues = queues.into_iter().map(pair).collect();
    Ok(Interface { queues, answer_bytes_max })
}

/// Destinations of the frames to receive: the addresses of the sockets. A wildcard address becomes
/// all addresses of its family on this machine. The result has no loopback addresses and no
/// duplicates.
fn targets(bound: &[SocketAddr], local: &[IpAddr]) -> Vec<SocketAddr> {
    let mut targets = Vec::new();
    for address in bound {
        if !address.ip().is_unspecified() {
            targets.push(SocketAddr::new(address.ip(), address.port()));
            continue;
        }
        let family = local.iter().filter(|own| own.is_ipv4() == address.is_ipv4());
        targets.extend(family.map(|own| SocketAddr::new(*own, address.port())));
    }
    targets.retain(|target| !target.ip().is_loopback());
    targets.sort_unstable();
    targets.dedup();
    targets
}

impl Incoming {
    /// Receives waiting frames, some dozen at most, and returns their number. Drops the frames of
    /// the previous call.
    #[inline]
    pub fn recv(&mut self) -> usize {
        self.receiver.recv()
    }

    /// Messages of the last call, with their addresses. Invalid frames are skipped.
    #[inline]
    pub fn letters(&self) -> impl Iterator<Item = (FrameAddresses, &[u8])> {
        self.receiver.frames().filter_map(|frame| udp_frame::read(frame).ok())
    }
}

impl AsFd for Incoming {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

impl Outgoing {
    /// Calls `write` with room for a response, and queues as many bytes as it returns. False if it
    /// returned `None`. The result is `None` if there is no room.
    #[inline]
    pub fn answer(
        &mut self,
        letter: &FrameAddresses,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<bool> {
        let frame = self.sender.slot()?;
        let room = frame.get_mut(letter.headers_bytes()..)?;
        let bytes_max = bytes_max.min(room.len());
        let Some(written) = write(&mut room[..bytes_max]) else { return Some(false) };
        let length = letter.seal(written, frame)?;
        self.sender.commit(length);
        Some(true)
    }

    /// Sends the queued responses.
    #[inline]
    pub fn flush(&mut self) {
        self.sender.send();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wildcard becomes all addresses of its family. Loopback addresses and duplicates are
    /// removed.
    #[test]
    fn wildcards_are_addresses() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let local: Vec<IpAddr> = ["127.0.0.1", "192.0.2.1", "192.0.2.2", "::1", "2001:db8::1"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let of = |bound: &[&str]| targets(&addresses(bound), &local);
        assert_eq!(of(&["0.0.0.0:53"]), addresses(&["192.0.2.1:53", "192.0.2.2:53"]));
        assert_eq!(
            of(&["[::]:53", "192.0.2.9:5"]),
            addresses(&["192.0.2.9:5", "[2001:db8::1]:53"])
        );
        let twice = of(&["0.0.0.0:53", "192.0.2.1:53", "192.0.2.1:54"]);
        assert_eq!(twice, addresses(&["192.0.2.1:53", "192.0.2.1:54", "192.0.2.2:53"]));
        assert_eq!(of(&["127.0.0.1:53", "[::1]:53"]), []);
    }
}
