//! Test helpers for larder's crates. Never part of a build for users.
//!
//! | module | gives |
//! |---|---|
//! | [`captures`] | paths of recordings and public captures |
//! | [`dns`] | queries and responses, clients, stand-in servers |
//! | [`frames`] | packets layer by layer, capture files |
//! | [`golden`] | the expected results of every recording (`tests/captures/expected.tsv`) |
//! | [`hello`] | the first messages of TLS clients |
//! | [`http`] | headers and bodies over a connection, clients, stand-in origins |
//! | `network` | by the feature: a private network for a test |
//! | [`nfcapd`] | nfdump's collector as a child process |
//! | [`process`] | programs: run to their end, or running with their standard error read |
//! | [`random`] | random numbers from a seed |
//! | [`scratch`] | a temporary folder |
//! | [`skip`] | messages of tests that cannot run |
//! | `tls` | by the feature: certificates, and stores that trust them |
//! | [`unbound`] | unbound as a child process |
//! | [`wait`] | waiting with one time limit for all tests |
//!
//! Code that needs a type of a larder crate belongs to the tests of that crate: `testkit` depends
//! on none of them, except for networks.
#![forbid(unsafe_code)]

pub mod captures;
pub mod dns;
pub mod frames;
pub mod golden;
pub mod hello;
pub mod http;
#[cfg(feature = "network")]
pub mod network;
pub mod nfcapd;
pub mod process;
pub mod random;
pub mod scratch;
pub mod skip;
#[cfg(feature = "tls")]
pub mod tls;
pub mod unbound;
pub mod wait;
