//! DNS servers next to one another, and compared with the bare limits of a network.
//!
//! ```text
//! query     names, queries and the check of answers, all from a number
//! stub      the upstream of all contestants: answers at once, and counts
//! hierarchy the same as root, top level and domains, for resolvers that find their way
//! signed    what makes its zones signed ones
//! key       what signs them
//! server    how larder, unbound, dnsdist and BIND are set up for one upstream
//! plan      what is asked and how much, and what comes of it
//! testbed   the network, cores and upstream of a run, and the asking
//! contest   works and rounds: each contestant gets queries once a round, in rotated order
//! report    tables and lines of JSON
//! ```
//!
//! Servers are processes of their own in the run's network namespace, on cores of their own; the generator
//! and the upstream share the cores that are left. The limits are threads of ours in the same place: an echo
//! (what a hit costs at least) and a relay (a miss). Where the generator costs as much as the server, as it does on
//! loopback, answers by the clock say what the pair does; answers a second of the server's processor time say
//! what the server does. Both are given, and how busy the server was.

pub mod contest;
pub mod hierarchy;
mod key;
pub mod plan;
pub mod query;
pub mod report;
pub mod server;
pub mod signed;
pub mod stub;
mod testbed;
