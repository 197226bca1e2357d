//! The filter program that each ring gets for the options of a capture.

use larder_wire::filter::Instruction;

use super::LiveOptions;
use super::ring::{Frames, LONG_FROM_BYTES};

/// `ret #k`, `ld #len`, `jgt #k`.
const RETURN: u16 = 0x06;
const LOAD_LENGTH: u16 = 0x80;
const JUMP_IF_GREATER: u16 = 0x25;

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
