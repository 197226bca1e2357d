//! Queries taken from a network interface before the kernel processes them (AF_XDP), by feature
//! `xdp`.
//!
//! ```text
//!            UDP to an address and port of the server         the rest: TCP, fragments, VLANs, long queries,
//! frame ---> to the queue's core, in a frame --------.         addresses that were added later
//!            response in a frame, the same way back   \            |
//!                                                      core        v
//!                                            ordinary sockets, as without XDP
//! ```
//!
//! The sockets stay bound too, so they receive all other packets; without XDP they receive all
//! packets. A core has a queue of each interface. It has several if there are more queues than
//! cores, and none if there are fewer.
//!
//! The kernel does less for these packets than for others: no firewall, no check of routes by
//! source, no capture by `tcpdump` at this interface. The policy ([`crate::policy`]) decides which
//! clients are served, as for all queries. A response is sent by the interface of its query, to the
//! Ethernet address that sent the query.

use std::net::SocketAddr;

use larder_serve::log::Log;

#[cfg_attr(not(all(feature = "xdp", target_os = "linux")), path = "xdp/absent.rs")]
mod queue;

use self::queue::open_interface;
pub use self::queue::{Incoming, Outgoing};

/// Settings of AF_XDP.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Interfaces, by name.
    pub interfaces: Vec<String>,
    /// If an interface cannot be opened, use its sockets only; otherwise that is an error.
    pub falls_back: bool,
}

/// Both sides of an interface's queue.
pub struct Queue {
    /// The receiving side.
    pub incoming: Incoming,
    /// The sending side.
    pub outgoing: Outgoing,
}

/// The opened interfaces.
#[derive(Default)]
pub struct Opened {
    /// Queues, by core.
    pub queues: Vec<Vec<Queue>>,
    /// Bytes of the longest response that fits a frame of each interface; `None`: no interface is
    /// open.
    pub answer_bytes_max: Option<u16>,
}

/// An opened interface.
struct Interface {
    queues: Vec<Queue>,
    answer_bytes_max: u16,
}

/// Opens all interfaces for queries to `bound`, the addresses of sockets, and distributes their
/// queues over the cores. The error says what is missing.
pub fn open(
    options: &Options,
    bound: &[SocketAddr],
    cores: usize,
    log: &Log,
) -> Result<Opened, String> {
    let mut opened =
        Opened { queues: (0..cores).map(|_| Vec::new()).collect(), ..Opened::default() };
    for name in &options.interfaces {
        match open_interface(name, bound, log) {
            Ok(interface) => {
                let own_max = interface.answer_bytes_max;
                let max = opened.answer_bytes_max.map_or(own_max, |max| max.min(own_max));
                opened.answer_bytes_max = Some(max);
                for (at, queue) in interface.queues.into_iter().enumerate() {
                    opened.queues[at % cores].push(queue);
                }
            }
            Err(reason) if options.falls_back => {
                log.warn("XDP not available, sockets serve").text("error", reason);
            }
            Err(reason) => return Err(format!("no XDP: {reason}")),
        }
    }
    Ok(opened)
}
