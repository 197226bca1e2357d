//! The seam between the real primitives and the model checker's, for `flight`.
//!
//! `tests/flight_model.rs` compiles `flight.rs` a second time with loom's primitives under these names.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use std::thread;

pub(crate) use parking_lot::Mutex;
