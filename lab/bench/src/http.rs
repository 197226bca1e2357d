//! HTTP caches beside one another, and beside what a sender without HTTP does.
//!
//! ```text
//! body      what resources consist of: octets from a path
//! serve     a server on one thread, for the origin and the limits
//! origin    the origin of all contestants: fast or slow, and counts
//! ceiling   the limits: one buffer sent, a file sent by the kernel, a body copied
//! exchange  responses read, checked and not kept
//! load      connections that ask again and again
//! busy      many clients who ask for one thing at once while it is still coming
//! server    how larder, nginx, HAProxy and Varnish are set up
//! calls     system calls a request, as strace counts them
//! ground    the network, cores and origin of a run, and the asking
//! plan      what is asked and how much, and what comes of it
//! field     works and rounds: everybody is asked once a round, in rotated order
//! report    tables and lines of JSON
//! ```
//!
//! Servers are processes of their own in the run's network namespace, on cores of their own; those who ask and the
//! origin share the cores that are left. Over loopback a body that is not kept still costs whoever asks, so that he is
//! often the limit by the clock: processor time a request and a gigabyte are the figures to compare. They count what all
//! of a server's threads ran, in all its processes, the kernel's work for its sockets with it.

pub mod body;
pub mod busy;
mod calls;
mod ceiling;
pub mod exchange;
pub mod field;
mod ground;
pub mod load;
pub mod origin;
pub mod plan;
pub mod report;
pub mod serve;
pub mod server;
