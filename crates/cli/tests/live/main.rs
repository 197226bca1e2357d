//! `larder annotate -i` as its users see it: real interfaces, packets kept, logs written, faults on the way.
//!
//! Each test has a world of its own ([`world`]). Nothing is timed: tests wait for what is to be, and fail after a minute
//! without.
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;
mod disk;
mod interfaces;
mod overload;
mod programs;
mod readers;
mod world;
