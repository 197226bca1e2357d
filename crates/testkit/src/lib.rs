//! What larder's tests share. Never part of a build for users.
//!
//! | module | gives |
//! |---|---|
//! | [`captures`] | where recordings and public captures are |
//! | [`dns`] | questions and answers, clients, stand-in servers |
//! | [`frames`] | packets layer by layer, capture files |
//! | [`golden`] | what `tests/captures/expected.tsv` says of every recording |
//! | [`hello`] | the first messages of TLS clients |
//! | [`http`] | heads and bodies over a connection, clients, stand-in origins |
//! | `network` | by the feature: a network of a test's own |
//! | [`process`] | programs: run to their end, or at work and heard |
//! | [`random`] | numbers from a seed |
//! | [`scratch`] | a folder of a test's own |
//! | [`skip`] | how a test says that it did not run |
//! | `tls` | by the feature: certificates, and who believes them |
//! | [`unbound`] | unbound as a child |
//! | [`wait`] | the one patience |
//!
//! What needs a type of one of larder's packages stays in that package's tests: `testkit` depends
//! on none of them, but for networks.
#![forbid(unsafe_code)]

pub mod captures;
pub mod dns;
pub mod frames;
pub mod golden;
pub mod hello;
pub mod http;
#[cfg(feature = "network")]
pub mod network;
pub mod process;
pub mod random;
pub mod scratch;
pub mod skip;
#[cfg(feature = "tls")]
pub mod tls;
pub mod unbound;
pub mod wait;
