//! `larder annotate`: the domain name beside every IP address in captured traffic.
//!
//! | module | duty |
//! |---|---|
//! | [`record`] | what is known of a flow when it ends; the one schema of all formats |
//! | [`format`] | the schema as text, ECS, Zeek, CSV, Parquet |
#![forbid(unsafe_code)]

pub mod format;
pub mod record;
