//! Questions taken from a network interface before the kernel has made anything of them (AF_XDP),
//! by feature `xdp`.
//!
//! ```text
//!            UDP to an address and port of ours               the rest: TCP, fragments, VLANs, long questions,
//! frame ---> to the queue's core, by a frame -------.         addresses that came later
//!            answered by a frame, the way it came    \            |
//!                                                     core        v
//!                                            ordinary sockets, as without XDP
//! ```
//!
//! Sockets stay bound beside it, so whatever is not taken is served all the same, and without XDP
//! everything is. A core has a queue of each interface, several where there are more queues than
//! cores, none where there are fewer.
//!
//! What the kernel does for other packets it does not do for these: no firewall, no check of routes
//! by source, no capture by `tcpdump` at this interface. Who may ask is the policy's to say
//! ([`crate::policy`]), as for all questions. An answer goes out by the interface and to the
//! Ethernet address that its question came from.

use std::net::SocketAddr;

#[cfg(feature = "xdp")]
mod queue;
#[cfg(feature = "xdp")]
use self::queue::open_interface;
#[cfg(feature = "xdp")]
pub use self::queue::{Incoming, Outgoing};

#[cfg(not(feature = "xdp"))]
mod absent;
#[cfg(not(feature = "xdp"))]
use self::absent::open_interface;
#[cfg(not(feature = "xdp"))]
pub use self::absent::{Incoming, Outgoing};

/// What is taken by XDP.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Interfaces, by name.
    pub interfaces: Vec<String>,
    /// Where an interface cannot be had it is served by sockets; else that is an error.
    pub falls_back: bool,
}

/// A queue of an interface: what comes by it, and what goes.
pub struct Queue {
    /// What comes.
    pub incoming: Incoming,
    /// What goes.
    pub outgoing: Outgoing,
}

/// What was opened.
#[derive(Default)]
pub struct Opened {
    /// Queues, by core.
    pub queues: Vec<Vec<Queue>>,
    /// Octets of the longest answer that fits a frame of each interface; `None`: none is open.
    pub answer_bytes_max: Option<u16>,
    /// What an operator wants to know.
    pub lines: Vec<String>,
}

/// What an interface gave.
struct Interface {
    queues: Vec<Queue>,
    answer_bytes_max: u16,
    line: String,
}

/// Opens all interfaces for questions to `bound`, where sockets are, and deals their queues to the
/// cores. The error says what is missing.
pub fn open(options: &Options, bound: &[SocketAddr], cores: usize) -> Result<Opened, String> {
    let mut opened =
        Opened { queues: (0..cores).map(|_| Vec::new()).collect(), ..Opened::default() };
    for name in &options.interfaces {
        match open_interface(name, bound) {
            Ok(interface) => {
                let own_max = interface.answer_bytes_max;
                let max = opened.answer_bytes_max.map_or(own_max, |max| max.min(own_max));
                opened.answer_bytes_max = Some(max);
                opened.lines.push(interface.line);
                for (at, queue) in interface.queues.into_iter().enumerate() {
                    opened.queues[at % cores].push(queue);
                }
            }
            Err(reason) if options.falls_back => {
                opened.lines.push(format!("no XDP, sockets serve instead: {reason}"));
            }
            Err(reason) => return Err(format!("no XDP: {reason}")),
        }
    }
    Ok(opened)
}
