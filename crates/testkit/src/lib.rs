//! Builders and slow-but-obvious models for larder's tests. Never part of a build for users.
//!
//! | module | gives |
//! |---|---|
//! | [`golden`] | what `tests/captures/expected.tsv` says of every recording |
//! | [`fuzz`] | what must hold of each parser, of the engine and of a run, for any octets |
#![forbid(unsafe_code)]

pub mod fuzz;
pub mod golden;
