//! `larder dns`: a caching DNS server that answers from finished responses.
//!
//! | module | duty |
//! |---|---|
//! | [`server`] | start: sockets, cache, threads |
//! | [`supervisor`] | what the calling thread does meanwhile |
//! | [`driver`] | one core's loop |
//! | [`clock`] | time that never steps, and the time of day |
//! | [`xdp`] | questions and answers as frames of a network interface |
//! | [`upstream_udp`] | sockets to an upstream |
//! | [`core`] | what a core does with messages: answers, asks, waits, gives up |
//! | [`key`] | what tells one answer from another |
//! | [`backend`] | upstreams that are no address, but threads of this process |
//! | [`zones`] | which upstreams a name is asked from |
//! | [`choice`] | which upstream is asked: the fastest that answers |
//! | [`pending`] | questions in flight, and who waits for them |
//! | [`cookie`] | DNS cookies: a client that shows one has been at its address before |
//! | [`limit`] | how many answers a client's network is given a second |
//! | [`client_tcp`] | TCP with clients: whole questions in, answers out in any order, limits |
//! | [`upstream_tcp`] | TCP with upstreams: many questions on few connections, kept and used again |
//! | [`shadow`] | a trial beside another resolver: its questions answered, and the answers compared |
//! | [`compare`] | answers of two servers, field by field |
//! | `tcp_framing` | messages on a stream of octets |
//! | [`policy`] | who may ask, and what is answered without asking anybody: local data, blocklists, views |
//! | [`reload`] | a policy that is replaced while the server runs, and the cache kept |
//! | [`mod@ctl`] | what operators ask of a running server, over a Unix socket |
//! | [`side_query`] | questions that others decrypt, on threads beside the cores |
//! | [`dnstap`] | questions and answers to a file or a collector |
//! | [`query_log`] | a line for an answer, or for one in so many |
//! | [`core_tap`] | what a core tells of its messages |
//! | [`metrics`] | counters, and one table of them |
//! | `name` | names from text |
//! | [`presentation`] | names, types and codes as operators write them |
//! | [`snapshot`] | the cache in a file, saved while it is used, loaded at the start |
//!
//! What operators are served by that is no matter of DNS is [`larder_serve`]: the endpoint for
//! Prometheus, threads that write logs, what a service manager is told.
//!
//! A core owns a UDP socket, a reader and a writer of the cache, sockets to the upstreams and its
//! timers, and shares nothing with the others but the cache. What it does with a message is decided
//! in a part that has no sockets and no clock, so that every rule is tested as a story of client,
//! upstream and time.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod backend;
pub mod choice;
pub mod client_tcp;
pub mod clock;
pub mod compare;
pub mod cookie;
pub mod core;
pub mod core_tap;
pub mod ctl;
pub mod dnstap;
pub mod driver;
pub mod key;
pub mod limit;
pub mod metrics;
mod name;
pub mod pending;
pub mod policy;
pub mod presentation;
pub mod query_log;
pub mod reload;
pub mod server;
pub mod shadow;
pub mod side_query;
pub mod snapshot;
pub mod supervisor;
mod tcp_framing;
pub mod upstream_tcp;
pub mod upstream_udp;
pub mod xdp;
pub mod zones;
