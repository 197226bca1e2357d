//! Parsers: bytes in, borrowed views out.
//!
//! Every parser here is a pure function over borrowed bytes: no I/O, no clock, no global state, no
//! panic on any input, and work linear in the bytes given. For bytes that it cannot read, it
//! returns an error kind that callers count; it never guesses.
//!
//! | module | reads |
//! |---|---|
//! | [`capture`] | pcap and pcapng records, both byte orders, any time resolution |
//! | [`packet`] | link layer, encapsulations, IP, TCP/UDP/ICMP: down to the innermost packet |
//! | [`udp_frame`] | UDP messages in Ethernet frames, strictly validated; writes the headers of responses |
//! | [`fragment`] | IP fragments put together again, in bounded memory |
//! | [`stream`] | TCP bytes put in order again, in bounded memory |
//! | [`dns`] | DNS messages: mDNS and LLMNR are the same format |
//! | [`dnstap`] | DNS messages as another server recorded them |
//! | [`nbns`], [`dhcp`] | NetBIOS name service and DHCP host names |
//! | [`tls`], [`dtls`], [`quic`], [`http`], [`http2`] | the server name a client states itself |
//! | [`proxy_prefix`] | the PROXY header that may stand before it |
//! | [`filter`] | no packet: tcpdump's filter language, and classic BPF, which it becomes |
//! | [`flow_key`] | which flow a packet belongs to |
//! | [`scope`] | the network in which its addresses are valid: VLANs, VNI |
//! | [`note`] | no packet: what `larder extract` says of those that it left out |
//! | [`community_id`] | the Community ID v1 flow hash |
//! | [`civil`], [`digits`], [`json`] | no packet: times, numbers, addresses and strings as logs write them |
//! | [`times`], [`zeek`] | no packet: times in logs, headers of Zeek's logs |
//! | [`prefix`] | no packet: networks as operators write them |
//! | [`naming`] | no packet: where the name of an address came from, and doubts about it |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::disallowed_methods))]

pub mod addr;
pub mod capture;
pub mod civil;
pub mod community_id;
pub mod dhcp;
pub mod digits;
pub mod dns;
pub mod dnstap;
pub mod dtls;
pub mod filter;
pub mod flow_key;
pub mod fragment;

pub mod http;
pub mod http2;
pub mod json;
pub mod name;
pub mod naming;
pub mod nbns;
pub mod note;
pub mod packet;
pub mod prefix;
pub mod proxy_prefix;
pub mod quic;
pub mod read;
pub mod scope;
pub mod stream;
pub mod times;
pub mod tls;
pub mod udp_frame;
pub mod zeek;

pub use addr::Addr;
pub use name::Name;
