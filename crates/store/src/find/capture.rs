//! Found packets as one capture.

use larder_wire::capture::write;

use super::FoundPacket;

/// Makes one capture of the packets: header, interfaces when they occur, packets.
#[derive(Debug, Default)]
pub struct Writer {
    is_begun: bool,
    interfaces: usize,
}

impl Writer {
    /// Appends the header to `out`, once. `packet` calls it; call it for captures without packets.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.is_begun, true) {
            write::section(out, concat!("larder ", env!("CARGO_PKG_VERSION")));
        }
    }

    /// Appends a packet, and before it the new interfaces.
    pub fn packet(&mut self, found: &FoundPacket<'_>, out: &mut Vec<u8>) {
        self.begin(out);
        for interface in found.interfaces.get(self.interfaces..).unwrap_or_default() {
            write::interface_named(out, interface.link_type, interface.snap_bytes, &interface.name);
            self.interfaces += 1;
        }
        write::packet(out, found.interface, found.ts_ns, found.frame, found.original_len);
    }
}
