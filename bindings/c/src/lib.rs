//! The cache larder for C, and for what calls C: `larder::Map` over bytes.
//!
//! ```text
//! larder_settings_init -> larder_new -> larder_put, larder_get, ... from any thread -> larder_free
//! ```
//!
//! `include/larder.h` is made from this crate (`tests/header.rs`), so comments here address who
//! reads the header.
//!
//! Invariants
//! * Memory that a caller passes is read during the call only, and is neither kept nor freed.
//!   Memory that a callback gets is valid until it returns.
//! * No call unwinds into C: a panic becomes `LARDER_ERROR_PANIC`. A result is written through a
//!   pointer only where the comment says so.
//! * NULL, and lengths without bytes, are errors, not crashes. A pointer to freed or other memory
//!   can't be recognized.
//!
//! Cost over the engine's: a function call, and a copy of the value where a comment says so.
//!
//! `unsafe` is here because C passes pointers. Each function states what it expects of them, and
//! [`arguments`] is the one place where they become references.
#![allow(non_camel_case_types, reason = "names are those of the header")]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod arguments;
mod change;
mod file;
mod handle;
mod life;
mod many;
mod settings;
mod single;
mod stats;
mod status;
mod walk;
