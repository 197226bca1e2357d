//! How caches are measured next to each other, and the engine compared with the bare limits of memory.
//!
//! ```text
//! data      the entries: 16 bytes of key, 22.6 of value on average; Zipf and uniform orders
//! peer      what a cache must offer to take part: get, get_many, put, settle
//! runner    runs a contestant: fills it, churns it, and makes it do a work; checks every value
//! contest   contestants and rounds: each runs once a round, in rotated order
//! sample    medians, their 95 % intervals, ratios of rounds
//! row       one line of JSON for each comparison    result_table  rows of results, in every form
//! pair      one thing done in several ways
//! engine    larder as a contestant      limit   what memory alone would take
//! net       a load generator, and what a network alone would take (feature `net`)
//! process   a server that runs: its time, its memory, its end (feature `net`)
//! servers   what comparisons of servers share (feature `net`)
//! dns       DNS servers next to one another and those limits (feature `net`)
//! http      HTTP caches next to one another and their limits (feature `net`)
//! live      live capture compared with the bare limit of a ring (feature `net`)
//! ```
//!
//! `larder-lab bench engine` uses it as it is; the workspace `bench/` adds other people's caches, which so
//! never come near the dependencies of the program.
//!
//! Invariants
//! 1. Every value read is checked against its key, through a checksum that costs an addition; a contestant
//!    that answers wrongly is an error, not a row.
//!
//! A figure is never given without its rounds and interval. All contestants see the same keys and
//! values; each reads keys that it holds, found out by asking it.
//!
//! Time is the running time of the thread where there is one thread (a busy machine then disturbs less),
//! and time on the wall where there are several.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod clock;
pub mod contest;
pub mod data;
#[cfg(feature = "net")]
pub mod dns;
pub mod engine;
#[cfg(feature = "net")]
pub mod http;
pub mod limit;
#[cfg(feature = "net")]
pub mod live;
#[cfg(feature = "net")]
pub mod net;
pub mod pair;
pub mod peer;
#[cfg(feature = "net")]
pub mod process;
pub mod result_table;
pub mod row;
pub mod runner;
pub mod sample;
#[cfg(feature = "net")]
pub mod servers;
