//! The seam between the real primitives and the model checker's, for `mailbox`.
//!
//! `tests/mailbox_model.rs` compiles `mailbox.rs` a second time with loom's primitives under these
//! names.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use parking_lot::Mutex;
