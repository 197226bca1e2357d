//! HTTP caches next to one another, and compared with a sender without HTTP.
//!
//! ```text
//! body      what resources consist of: bytes from a path
//! serve     a server on one thread, for the origin and the limits
//! origin    the origin of all contestants: fast or slow, and counts
//! ceiling   the limits: one buffer sent, a file sent by the kernel, a body copied
//! exchange  responses read, checked and not kept
//! load      connections that ask again and again
//! busy      many clients that request one thing at once while it still arrives
//! server    how larder, nginx, HAProxy and Varnish are set up
//! calls     system calls a request, as strace counts them
//! testbed   the network, cores and origin of a run, and the asking
//! plan      what is asked and how much, and what comes of it
//! contest   works and rounds: each contestant gets requests once a round, in rotated order
//! report    tables and lines of JSON
//! ```
//!
//! Servers are processes of their own in the run's network namespace, on cores of their own; the clients and the
//! origin share the cores that are left. Over loopback a body that is not stored still costs its client, so that it is
//! often the limit by the clock: processor time a request and a gigabyte are the figures to compare. They count what
//! all of a server's threads ran, in all its processes, the kernel's work for its sockets with it.

pub mod body;
pub mod busy;
mod calls;
mod ceiling;
pub mod contest;
pub mod exchange;
pub mod load;
pub mod origin;
pub mod plan;
pub mod report;
pub mod serve;
pub mod server;
mod testbed;
