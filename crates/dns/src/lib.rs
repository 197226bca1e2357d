//! `larder dns`: a caching DNS server that caches rendered responses.
//!
//! | module | duty |
//! |---|---|
//! | [`server`] | start: sockets, cache, threads |
//! | [`supervisor`] | the calling thread, while the cores run |
//! | [`driver`] | the event loop of a core |
//! | [`core`] | decides what to do with each message; has no sockets and no clock |
//! | [`clock`] | time that never steps, and the time of day |
//! | [`key`] | keys of the cache |
//! | [`pending`] | queries in flight, and the clients that wait for them |
//! | [`zones`] | forwarded zones and their upstreams |
//! | [`choice`] | the choice of upstream: the fastest one that responds |
//! | [`upstream_udp`] | UDP sockets to an upstream |
//! | [`upstream_tcp`] | TCP to upstreams: many queries on few connections, which are reused |
//! | [`backend`] | upstreams that are threads of this process |
//! | [`client_tcp`] | TCP from clients: pipelined queries, responses in any order, limits |
//! | `tcp_framing` | messages on a stream of bytes |
//! | [`side_query`] | queries of other transports, which other threads decrypt |
//! | [`xdp`] | queries and responses as frames of a network interface |
//! | [`cookie`] | DNS cookies: a client with a valid one is at its address |
//! | [`limit`] | rate limit of responses to a network |
//! | [`policy`] | access rules and local responses: local data, blocklists, views |
//! | [`reload`] | replaces the policy while the server runs, and keeps the cache |
//! | [`mod@ctl`] | operators' commands to a running server, over a Unix socket |
//! | [`dnstap`] | queries and responses to a file or a collector |
//! | [`core_tap`] | records a core's messages with dnstap |
//! | [`query_log`] | a line for each response, or for every Nth |
//! | [`metrics`] | counters |
//! | [`page`] | the page for a browser: notes of responses, history, texts |
//! | [`shadow`] | a trial next to another resolver: compares the responses of both |
//! | [`compare`] | compares two responses, field by field |
//! | `name` | domain names from text |
//! | [`presentation`] | names, types and codes as operators write them |
//! | [`snapshot`] | the cache in a file: saved while it is used, loaded at the start |
//!
//! [`larder_serve`] has what every server needs: the endpoint for Prometheus, threads that write
//! logs, messages to the service manager.
//!
//! A core owns a UDP socket, a reader and a writer of the cache, sockets to the upstreams and its
//! timers. It shares only the cache with other cores. The part that decides has no sockets and no
//! clock, so every rule is tested as a scenario of client, upstream and time.
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
pub mod page;
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
