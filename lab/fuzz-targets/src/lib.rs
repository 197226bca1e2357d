//! What must hold for any bytes: the bodies of the fuzz targets.
//!
//! Each is a plain function over the bytes of one input, which panics where a property fails. Two
//! programs call them: the fuzzer (`fuzz/`, with a nightly compiler), and `tests/regressions.rs` of
//! this crate, which replays `fuzz/regressions/<target>/*` in every `cargo test`.
//!
//! An input has no hidden state: the same bytes always do the same. Where a target wants choices
//! next to the bytes of a message (a link type, where to cut), they are the first bytes of the
//! input, as the target's comment states; `examples/seeds.rs` writes inputs of that shape.
#![forbid(unsafe_code)]

mod capture;
mod dns;
mod engine;
mod exports;
mod feeds;
mod filter;
mod fragment;
mod frame;
mod hosts;
mod http_message;
mod names_file;
mod own_name;
mod packet;
mod pipeline;
mod proxy_protocol;
mod quic;
mod recursor;
mod rendered;
mod stream;
mod traces;

pub use capture::capture;
pub use dns::{dns, dns_stream};
pub use engine::engine;
pub use exports::exports;
pub use feeds::{dnstap, eve, zeek};
pub use filter::filter;
pub use fragment::fragment;
pub use frame::frame;
pub use hosts::{dhcp, nbns};
pub use http_message::http_message;
pub use names_file::names_file;
pub use own_name::{dtls, http, http2, tls};
pub use packet::{LINK_TYPES, packet};
pub use pipeline::pipeline;
pub use proxy_protocol::proxy_protocol;
pub use quic::quic;
pub use recursor::dns_recursor;
pub use rendered::{dns_query, dns_rendered};
pub use stream::stream;
pub use traces::traces;

/// A target: panics where one of its properties does not hold of the input.
pub type Target = fn(&[u8]);

/// Every target by name, the most exposed first.
pub const TARGETS: [(&str, Target); 28] = [
    ("packet", packet),
    ("dns", dns),
    ("dns_query", dns_query),
    ("dns_rendered", dns_rendered),
    ("dns_recursor", dns_recursor),
    ("frame", frame),
    ("capture", capture),
    ("tls", tls),
    ("dtls", dtls),
    ("http", http),
    ("http2", http2),
    ("http_message", http_message),
    ("proxy_protocol", proxy_protocol),
    ("quic", quic),
    ("stream", stream),
    ("dns_stream", dns_stream),
    ("fragment", fragment),
    ("dhcp", dhcp),
    ("nbns", nbns),
    ("pipeline", pipeline),
    ("engine", engine),
    ("names_file", names_file),
    ("eve", eve),
    ("zeek", zeek),
    ("dnstap", dnstap),
    ("exports", exports),
    ("traces", traces),
    ("filter", filter),
];

/// Takes an input apart from its front; past its end everything is zero, or empty.
struct Cut<'a>(&'a [u8]);

impl<'a> Cut<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    /// The next `len` bytes, or as many as there are.
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(len.min(self.0.len()));
        self.0 = tail;
        head
    }
}

/// Asserts that a borrowed part is a part of `whole` in memory, not a copy and not outside it.
#[track_caller]
fn assert_inside(part: &[u8], whole: &[u8]) {
    if !part.is_empty() {
        let (part, whole) = (part.as_ptr_range(), whole.as_ptr_range());
        assert!(whole.start <= part.start && part.end <= whole.end, "a view outside of the input");
    }
}

/// True when `part` stands somewhere in `whole`.
fn occurs(part: &[u8], whole: &[u8]) -> bool {
    part.is_empty() || whole.windows(part.len()).any(|window| window == part)
}

/// Bytes that state their own position, so that a reassembler cannot mix them up.
fn byte_of(stream: u32, place: u32) -> u8 {
    let mixed = (place ^ stream.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
    (mixed >> 24) as u8 ^ (mixed >> 11) as u8
}
