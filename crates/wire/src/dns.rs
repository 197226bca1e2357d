//! DNS messages (RFC 1035, 2181, 6672, 9460), multicast DNS (RFC 6762) and LLMNR (RFC 4795).
//!
//! | part | does |
//! |---|---|
//! | [`Message`] | header, question, and a lazy walk over the records |
//! | [`read_name`] | one name, through compression pointers, in larder's canonical spelling |
//! | [`rdata`] | the data of a record: addresses, names, service bindings |
//! | [`answers`] | names learned from a response: alias chain, addresses, reverse names |
//! | [`tcp`] | the two-byte length before a message on a stream |
//! | [`query`] | a client's query, read in one pass into the key of a cache |
//! | [`rendered`] | a response rendered once, stored, and patched for each client |
//! | [`edns`] | OPT records, which are hop by hop |
//!
//! Invariants
//! 1. A compression pointer leads strictly before the place where the reader came from, and at most
//!    [`POINTERS_MAX`] are followed for one name. So no input makes a reader loop, and a message
//!    costs time linear in its length.
//! 2. The data read before damage stays valid: readers stop at the damage and state its kind.
//!
//! A message borrows the bytes it was parsed from; nothing is copied but names, and those go into
//! buffers of the caller.
//!
//! Bounds: a name has at most 255 bytes on the wire and 127 labels; bytes past 65,535 are not
//! part of a message.

pub mod answers;
pub mod edns;
mod error;
mod message;
mod name;
pub mod query;
pub mod rdata;
pub mod rendered;
mod reverse;
pub mod tcp;

pub use error::DnsError;
pub use message::{
    HEADER_BYTES, MESSAGE_BYTES_MAX, Message, Question, Record, Records, Section, class, rtype,
};
pub use name::{
    LABELS_MAX, NAME_WIRE_BYTES_MAX, NameBuf, POINTERS_MAX, read_name, read_wire_name, skip_name,
};
pub use reverse::reverse_addr;
