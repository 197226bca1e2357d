//! Runs classic BPF over a frame.
//!
//! Any program is safe to run. A load beyond the end of the frame, an unknown instruction, a jump
//! out of the program, an invalid scratch word, or a division by zero ends the program and rejects
//! the frame. Jumps only go forward, so a run has at most as many steps as instructions.

use super::Instruction;

/// Loads at offsets from here on read the kernel's metadata of the frame.
pub(super) const ASIDE: u32 = 0xffff_f000;
pub(super) const ASIDE_VLAN_TAG: u32 = ASIDE + 44;
pub(super) const ASIDE_VLAN_PRESENT: u32 = ASIDE + 48;

const SCRATCH_WORDS: usize = 16;

/// The program's result for a frame of a file: how many of its bytes to capture, 0 to reject it.
/// `original_len` is its length on the wire.
pub fn run(program: &[Instruction], frame: &[u8], original_len: u32) -> u32 {
    run_live(program, frame, original_len, None)
}

/// Like [`run`], for a frame whose outer VLAN tag (priority and ID) the kernel has removed.
pub fn run_live(
    program: &[Instruction],
    frame: &[u8],
    original_len: u32,
    vlan_tag: Option<u16>,
) -> u32 {
    let mut machine = Machine { frame, original_len, vlan_tag, a: 0, x: 0, scratch: [0; 16] };
    machine.run(program).unwrap_or(0)
}

struct Machine<'a> {
    frame: &'a [u8],
    original_len: u32,
    vlan_tag: Option<u16>,
    a: u32,
    x: u32,
    scratch: [u32; SCRATCH_WORDS],
}

impl Machine<'_> {
    fn run(&mut self, program: &[Instruction]) -> Option<u32> {
        let mut at = 0usize;
        loop {
            let step = *program.get(at)?;
            at += 1;
            match step.code & 0x07 {
                0x00 => self.a = self.load(step)?,
                0x01 => self.x = self.load_x(step)?,
                0x02 if step.code == 0x02 => *self.scratch.get_mut(step.k as usize)? = self.a,
                0x03 if step.code == 0x03 => *self.scratch.get_mut(step.k as usize)? = self.x,
                0x04 => self.a = self.compute(step)?,
                0x05 => at = at.checked_add(self.skip(step)?)?,
                0x06 => {
                    return match step.code {
                        0x06 => Some(step.k),
                        0x16 => Some(self.a),
                        _ => None,
                    };
                }
                0x07 if step.code == 0x07 => self.x = self.a,
                0x07 if step.code == 0x87 => self.a = self.x,
                _ => return None,
            }
        }
    }

    fn load(&self, step: Instruction) -> Option<u32> {
        let bytes = match step.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => return None,
        };
        match step.code & !0x18 {
            0x00 if bytes == 4 => Some(step.k),
            0x20 if step.k >= ASIDE => self.aside(step.k),
            0x20 => self.number(step.k, bytes),
            0x40 => self.number(self.x.checked_add(step.k)?, bytes),
            0x60 if bytes == 4 => self.scratch.get(step.k as usize).copied(),
            0x80 if bytes == 4 => Some(self.original_len),
            _ => None,
        }
    }

    fn load_x(&self, step: Instruction) -> Option<u32> {
        match step.code {
            0x01 => Some(step.k),
            0x61 => self.scratch.get(step.k as usize).copied(),
            0x81 => Some(self.original_len),
            0xb1 => Some((self.number(step.k, 1)? & 0xf) << 2),
            _ => None,
        }
    }

    /// Loads a big-endian number from the frame.
    fn number(&self, at: u32, bytes: usize) -> Option<u32> {
        let at = at as usize;
        let found = self.frame.get(at..at.checked_add(bytes)?)?;
        Some(found.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    fn aside(&self, what: u32) -> Option<u32> {
        match what {
            ASIDE_VLAN_TAG => Some(self.vlan_tag.map_or(0, u32::from)),
            ASIDE_VLAN_PRESENT => Some(u32::from(self.vlan_tag.is_some())),
            _ => None,
        }
    }

    fn compute(&self, step: Instruction) -> Option<u32> {
        let (a, by) = (self.a, if step.code & 0x08 == 0 { step.k } else { self.x });
        Some(match step.code & !0x08 {
            0x04 => a.wrapping_add(by),
            0x14 => a.wrapping_sub(by),
            0x24 => a.wrapping_mul(by),
            0x34 => a.checked_div(by)?,
            0x44 => a | by,
            0x54 => a & by,
            0x64 => a.checked_shl(by).unwrap_or(0),
            0x74 => a.checked_shr(by).unwrap_or(0),
            0x84 if step.code == 0x84 => a.wrapping_neg(),
            0x94 => a.checked_rem(by)?,
            0xa4 => a ^ by,
            _ => return None,
        })
    }

    /// Instructions to skip.
    fn skip(&self, step: Instruction) -> Option<usize> {
        let with = if step.code & 0x08 == 0 { step.k } else { self.x };
        let holds = match step.code & !0x08 {
            0x05 if step.code == 0x05 => return Some(step.k as usize),
            0x15 => self.a == with,
            0x25 => self.a > with,
            0x35 => self.a >= with,
            0x45 => self.a & with != 0,
            _ => return None,
        };
        Some(usize::from(if holds { step.jt } else { step.jf }))
    }
}
