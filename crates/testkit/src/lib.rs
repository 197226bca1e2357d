//! What larder's tests share. Never part of a build for users.
//!
//! | module | gives |
//! |---|---|
//! | [`golden`] | what `tests/captures/expected.tsv` says of every recording |
#![forbid(unsafe_code)]

pub mod golden;
