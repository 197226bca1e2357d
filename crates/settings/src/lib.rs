//! Makes a program from one table of settings: flags, layers, help, manual, messages and exit
//! codes.
//!
//! A program writes its commands and settings as rows ([`table`], [`row`]), calls
//! [`table::Program::main`], and gets the values of a command ([`layers::Resolved`]), each from the
//! first layer that has one: flag, environment, file, default. All texts about a setting are made
//! from its row, so that flags, file, help, manual, template and reference cannot differ.
//!
//! | module | duty |
//! |---|---|
//! | [`table`] | rows, commands, programs |
//! | [`row`] | typed rows: a row declares the field that it fills |
//! | [`value`] | text forms of values, parsed once |
//! | [`args`] | the table as flags |
//! | [`layers`] | precedence: flag, environment, file, default |
//! | `needs` | settings that have no effect without others are refused |
//! | [`program`] | a program from its command line to its end |
//! | [`show`], [`manual`] | the table as `show-config`, template, reference; as man pages and completions |
//! | [`exit`] | exit codes, and failures that state what to do next |
//! | [`terminal`], [`amounts`] | what is printed; numbers as people read them |
//! | [`signals`] | Ctrl-C and SIGTERM stop a run |
//! | [`nearest`] | the nearest name to a wrong one |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod amounts;
pub mod args;
pub mod exit;
mod field;
pub mod layers;
pub mod manual;
pub mod nearest;
mod needs;
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
