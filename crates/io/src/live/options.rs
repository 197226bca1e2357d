//! Options of a capture.

use larder_wire::filter::Instruction;

/// Which frames to capture, and how.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Names of interfaces, or [`super::ANY`] alone.
    pub interfaces: Vec<String>,
    /// Rings of each interface; flows are spread over them.
    pub rings: usize,
    /// Bytes of one ring, at least 64 KiB. An interface has one ring of half as many bytes, at
    /// least 256 KiB, for long frames.
    pub ring_bytes: u64,
    /// The longest that a frame waits in a ring for others, milliseconds.
    pub batch_ms: u32,
    /// Bytes of a frame that are stored; 0: all.
    pub snap_bytes: u32,
    /// The frames that the kernel passes; empty: all. The filter gets frames of the type that
    /// [`super::link_type`] returns (of 276, IP without the header), and without the outermost VLAN
    /// tag, which it must load by `SKF_AD_VLAN_TAG`.
    pub filter: Vec<Instruction>,
    /// Capture frames with other destinations too (promiscuous mode).
    pub is_promiscuous: bool,
    /// Use hardware timestamps if the card has them: its own clock, which may differ from the
    /// system's.
    pub hardware_time: bool,
    /// Take frames by AF_XDP, with `ring_bytes` for each queue of the card. The kernel's network
    /// does not get frames of the interfaces, so these must carry only captured traffic. The time
    /// of a frame is that at which larder takes it. Frames too long for AF_XDP, and sent ones, come
    /// by the rings. If AF_XDP is not available ([`super::Live::notes`]), or with a filter, all
    /// come by the rings. Needs more capabilities at the start.
    pub xdp: bool,
}

impl Default for LiveOptions {
    fn default() -> LiveOptions {
        LiveOptions {
            interfaces: Vec::new(),
            rings: 1,
            ring_bytes: 64 << 20,
            batch_ms: 5,
            snap_bytes: 256 << 10,
            filter: Vec::new(),
            is_promiscuous: true,
            hardware_time: false,
            xdp: false,
        }
    }
}
