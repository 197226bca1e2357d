//! `larder annotate -i` as its users run it: real interfaces, stored packets, logs, and failures.
//!
//! Each test has its own environment ([`world`]). Nothing is timed: tests wait for a state, and
//! fail after one minute.
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;
mod disk;
mod flows;
mod interfaces;
mod overload;
mod programs;
mod readers;
mod world;
