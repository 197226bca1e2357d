//! Names that a message gives to addresses and to other names.

use larder_wire::Addr;
use larder_wire::scope::Scope;

use super::{NameProtocol, Standing};

/// An address that a message names.
#[derive(Clone, Copy, Debug)]
pub struct AddressObservation<'a> {
    /// Number of the packet that ended the message.
    pub packet: u64,
    /// Time of that packet, ns since 1970 UTC.
    pub time_ns: i64,
    /// The network in which the addresses are valid.
    pub scope: Scope,
    /// The client that queried; unspecified without a query or if it is unknown.
    pub client: Addr,
    /// The name as queried.
    pub asked: &'a [u8],
    /// The address.
    pub addr: Addr,
    /// TTL, seconds: the least along the chain.
    pub ttl_s: u32,
    /// The protocol of the message.
    pub learned_from: NameProtocol,
    /// What supports it.
    pub standing: Standing,
    /// The targets of the aliases between the name as queried and the address.
    pub targets: &'a [&'a [u8]],
}

/// An alias that a response holds.
#[derive(Clone, Copy, Debug)]
pub struct AliasObservation<'a> {
    /// Number of the packet that ended the message.
    pub packet: u64,
    /// Time of that packet, ns since 1970 UTC.
    pub time_ns: i64,
    /// The network of the client.
    pub scope: Scope,
    /// The client that queried; unspecified if it is unknown.
    pub client: Addr,
    /// The name that is an alias.
    pub owner: &'a [u8],
    /// The name that it points to.
    pub target: &'a [u8],
    /// What supports it.
    pub standing: Standing,
}
