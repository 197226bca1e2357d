//! Other people's caches and queues, made to do what larder does.
//!
//! | module | duty |
//! |---|---|
//! | [`peers`] | each cache as a contestant of `larder_bench` |
//! | [`alone`] | figures that need a process of their own: memory, hits at a size |
//! | [`args`] | the few flags of the programs here |
//!
//! The programs: `larder-peers` (caches).

pub mod alone;
pub mod args;
pub mod peers;
