//! From one table of settings to a program: flags, layers, help, manual, how it talks and how it
//! ends.
//!
//! A program writes its commands and settings as rows ([`table`]), calls [`table::Program::main`],
//! and gets for each command the values of its rows ([`layers::Resolved`]), each from the first
//! layer that speaks: flag, environment, file, default. Whatever is told of a setting is made from
//! its row, so that flags, file, help, manual, template and guide cannot differ.
//!
//! | module | duty |
//! |---|---|
//! | [`table`] | rows, commands, programs |
//! | [`row`] | typed rows: a row declares the field that it fills |
//! | [`value`] | text forms of values, parsed once |
//! | [`args`] | the table as flags |
//! | [`layers`] | flag, environment, file, default: which one wins |
//! | [`program`] | a program from its command line to its end |
//! | [`show`], [`manual`] | the table as `show-config`, template, guide; as man pages and completions |
//! | [`exit`] | exit codes, and failures that say what to do next |
//! | [`terminal`], [`amounts`] | what is printed; numbers as people read them |
//! | [`signals`] | Ctrl-C asks a run to stop |
//! | [`nearest`] | the nearest name to a wrong one |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod amounts;
pub mod args;
pub mod exit;
pub mod layers;
pub mod manual;
pub mod nearest;
pub mod program;
pub mod row;
#[cfg(test)]
mod sample;
mod scale;
pub mod show;
pub mod signals;
pub mod table;
pub mod terminal;
pub mod value;
