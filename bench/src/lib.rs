//! Other people's caches and queues, made to do what larder does.
//!
//! | module | duty |
//! |---|---|
//! | [`peers`] | each cache as a contestant of `larder_bench` |
//! | [`alone`] | figures that need a process of their own: memory, hits at a size |
//! | [`ablations`] | single decisions of the engine, each compared with the other way |
//! | [`rings`] | queues between cores |
//! | [`remote`] | leaving the process once: memcached over loopback |
//! | [`args`] | the few flags of the programs here |
//!
//! The programs: `larder-peers`, `larder-ablate`, `larder-rings`, `larder-remote`. What each
//! prints, and the order to run them in, is in `run.sh`.

pub mod ablations;
pub mod alone;
pub mod args;
pub mod peers;
pub mod remote;
pub mod rings;
