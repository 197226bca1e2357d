//! Options of a capture, and the filter program that each ring gets for them.

use larder_wire::filter::Instruction;

use super::ring::{Frames, LONG_FROM_BYTES};

/// `ret #k`, `ld #len`, `jgt #k`.
const RETURN: u16 = 0x06;
const LOAD_LENGTH: u16 = 0x80;
const JUMP_IF_GREATER: u16 = 0x25;

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

/// A filter that passes nothing.
pub(super) fn nothing() -> Vec<Instruction> {
    vec![Instruction { code: RETURN, jt: 0, jf: 0, k: 0 }]
}

/// Whether frames may be longer than the blocks of most rings.
pub(super) fn has_long_frames(options: &LiveOptions) -> bool {
    options.snap_bytes as usize > LONG_FROM_BYTES
}

/// The filter program for frames of such a length, which cuts frames so that no ring has more bytes
/// of them than are stored.
pub(super) fn program(options: &LiveOptions, frames: Frames) -> Vec<Instruction> {
    let snap = options.snap_bytes;
    let instruction = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let mut program = Vec::with_capacity(options.filter.len() + 4);
    if has_long_frames(options) {
        // Over the `ret #0` for those that are wanted.
        let (jt, jf) = match frames {
            Frames::Usual => (0, 1),
            Frames::Long => (1, 0),
        };
        program.push(instruction(LOAD_LENGTH, 0, 0, 0));
        program.push(instruction(JUMP_IF_GREATER, jt, jf, LONG_FROM_BYTES as u32));
        program.push(instruction(RETURN, 0, 0, 0));
    }
    if options.filter.is_empty() {
        program.push(instruction(RETURN, 0, 0, snap));
    }
    program.extend(options.filter.iter().map(|i| match i.code {
        RETURN => Instruction { k: i.k.min(snap), ..*i },
        _ => *i,
    }));
    program
}
