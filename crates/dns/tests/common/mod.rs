//! What tests share.

pub mod unbound;
