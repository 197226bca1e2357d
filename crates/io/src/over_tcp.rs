//! Captures as byte streams over TCP (PCAP-over-IP), without encryption and authentication.
//!
//! A [`Remote`] is a program that listens: larder connects to it, and reads its stream as it reads a pipe, or
//! writes to it. [`Senders`] is the other side: larder listens, and each connection is a capture.
//!
//! ```text
//!  listening                 accepts the next sender, one at a time; others wait in the backlog
//!  connected                 gives the records of its capture; damage is counted
//!  its end, or an error      what it sent counts; larder listens again
//! ```
//!
//! [`merge`](crate::merge) makes one stream of the captures of all senders. A connection without a byte is no capture.
//!
//! A sender may be silent forever. The kernel probes a silent connection, so that one whose machine is gone ends
//! after two minutes, and the next sender has its turn. The listener is closed with its reader, which notices at the
//! next connection that it is not needed any more.
//!
//! Bound: a sender has the memory of a capture that is merged, and at most `WAITING_MAX` wait.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use crate::socket::set_option;
use crate::tcp::{self, ListenOptions};

/// How long to wait for an address of a remote.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;
/// Senders that wait while another one sends.
const WAITING_MAX: u32 = 8;
/// How long larder accepts no sender after the system had no descriptor for one.
const PAUSE: Duration = Duration::from_secs(1);

/// A program that listens for connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// A name or an address, and a port, as [`ToSocketAddrs`] takes them.
    place: String,
}

impl Remote {
    /// The place in `tcp://HOST:PORT` or, as Wireshark spells it, `TCP@HOST:PORT`; `None` for any other word.
    pub fn place_of(word: &str) -> Option<&str> {
        ["tcp://", "TCP@"].iter().find_map(|prefix| word.strip_prefix(prefix))
    }

    /// From `HOST:PORT`. The error says what is expected.
    pub fn parse(place: &str) -> Result<Remote, String> {
        // A slash at the end is how a URL may have it.
        let place = place.strip_suffix('/').unwrap_or(place);
        let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        let is_host = |host: &str| {
            let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let is_word = |host: &str| host.bytes().all(|byte| byte.is_ascii_graphic());
            match in_brackets {
                Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
                None => !host.is_empty() && is_word(host) && !host.contains([':', '/', '@']),
            }
        };
        match place.rsplit_once(':') {
            Some((host, port)) if is_host(host) && is_port(port) => Ok(Remote { place: place.to_owned() }),
            _ => Err("expected tcp://HOST:PORT, such as tcp://192.0.2.1:57012 or tcp://[2001:db8::1]:57012".to_owned()),
        }
    }

    /// Connects. The error says what to do next.
    pub fn connect(&self) -> io::Result<TcpStream> {
        let failed =
            |error: io::Error, next: &str| io::Error::new(error.kind(), format!("{error}; {next}"));
        let addresses = self.place.to_socket_addrs();
        let addresses = addresses
            .map_err(|error| failed(error, "check the host name, or write its address"))?;
        let mut last = io::Error::other("the name has no address");
        for address in addresses.take(ADDRESSES_MAX) {
            match TcpStream::connect_timeout(&address, CONNECT_WAIT) {
                Ok(stream) => {
                    keep_alive(&stream)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last, "start the program that listens there, or check host and port"))
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp://{}", self.place)
    }
}

/// Ends a silent connection whose other machine does not respond: after a minute, and six probes.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    set_option(stream, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1)?;
    #[cfg(target_os = "linux")]
    for (option, value) in
        [(libc::TCP_KEEPIDLE, 60), (libc::TCP_KEEPINTVL, 10), (libc::TCP_KEEPCNT, 6)]
    {
        set_option(stream, libc::IPPROTO_TCP, option, &value)?;
    }
    Ok(())
}

/// An event of a sender.
#[derive(Debug)]
pub enum SenderEvent {
    /// It has connected, and sent its first byte.
    Connected,
    /// It has ended; what it sent counts.
    Ended,
    /// It sent no capture. The text states the reason.
    Refused(String),
}

/// Takes the events of senders.
pub type Report = Box<dyn FnMut(SocketAddr, SenderEvent) + Send>;

/// A listener that programs connect to, one after the other, to send captures.
pub struct Senders {
    listener: TcpListener,
    address: SocketAddr,
    report: Report,
}

impl fmt::Debug for Senders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Senders").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Senders {
    /// Listens. The error says what to do next.
    pub fn listen(address: SocketAddr, report: Report) -> io::Result<Senders> {
        let options = ListenOptions { backlog: WAITING_MAX, ..ListenOptions::default() };
        let opened = tcp::listen(address, &options).and_then(|listener| {
            listener.set_nonblocking(false)?;
            let address = listener.local_addr()?;
            Ok(Senders { listener, address, report })
        });
        let next = "name a free port of this machine";
        opened.map_err(|error| io::Error::new(error.kind(), format!("{error}; {next}")))
    }

    /// The address that senders connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name for messages.
    pub fn name(&self) -> String {
        format!("tcp://{}", self.address)
    }

    /// Reports an event.
    pub(crate) fn report(&mut self, sender: SocketAddr, event: SenderEvent) {
        (self.report)(sender, event);
    }

    /// The next connection that sends a byte; waits for it.
    pub(crate) fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let (stream, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.raw_os_error() {
                    // An invalid listener never becomes valid.
                    Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK) => return Err(error),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        thread::sleep(PAUSE);
                        continue;
                    }
                    // The connection ended before it was accepted.
                    _ => continue,
                },
            };
            let is_capture = keep_alive(&stream).and_then(|()| stream.peek(&mut [0]));
            if is_capture.is_ok_and(|count| count > 0) {
                return Ok((stream, peer));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both spellings name a place; others are files.
    #[test]
    fn places_are_recognized() {
        for (word, place) in [
            ("tcp://192.0.2.1:57012", Some("192.0.2.1:57012")),
            ("TCP@tap.example:57012", Some("tap.example:57012")),
            ("tcp.pcap", None),
            ("-", None),
        ] {
            assert_eq!(Remote::place_of(word), place);
        }
        for sound in ["192.0.2.1:57012", "tap.example:1", "[2001:db8::1]:65535", "localhost:57012/"]
        {
            assert!(Remote::parse(sound).is_ok(), "{sound}");
        }
        for wrong in [
            "",
            ":1",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "2001:db8::1:1",
            "[host]:1",
            "a/b:1",
            "a@b:1",
            "a b:1",
        ] {
            assert!(Remote::parse(wrong).unwrap_err().contains("tcp://HOST:PORT"), "{wrong}");
        }
    }
}
