//! The program that the kernel runs for each frame. It decides whether the frame is for one of our
//! sockets.
//!
//! ```text
//! to us by its Ethernet address, untagged, no longer than a socket takes
//!   IPv4 without options and no fragment   \  UDP to an address and port of ours  --> the socket of its queue
//!   IPv6 without extension headers         /
//! anything else                                                                   --> the kernel, as if we were not there
//! ```
//!
//! Or every frame that is no longer than a socket takes, for a capture on an interface with no
//! other use.
//!
//! A queue without a socket gives its frames to the kernel too. So the program never loses a frame:
//! the kernel gets those that the program does not handle, and delivers them to an ordinary socket
//! of the same port.
//!
//! The instructions are those of RFC 9669. Bounds: [`TARGETS_MAX`] addresses; a frame is compared
//! with each of its family.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

/// Most addresses of a program.
pub const TARGETS_MAX: usize = 256;

/// The action for a frame (`enum xdp_action`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// It is dropped.
    #[cfg(test)]
    Drop = 1,
    /// The kernel has it.
    Pass = 2,
}

/// One instruction, as the kernel reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Registers. 0 has the result of a call or of the program, 1 to 5 the arguments of a call; calls
/// preserve 6 to 9.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R5: u8 = 5;
const R6: u8 = 6;

/// `dst = *(size *)(src + offset)`.
const LOAD_U8: u8 = 0x71;
const LOAD_U16: u8 = 0x69;
const LOAD_U32: u8 = 0x61;
/// A constant of 64 bits in two instructions; with [`PSEUDO_MAP`] as its source a map's descriptor.
const LOAD_CONSTANT: u8 = 0x18;
const PSEUDO_MAP: u8 = 1;
/// 64-bit arithmetic.
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
/// Jumps; those with a constant compare 32 bits.
const JUMP: u8 = 0x05;
const JUMP_ABOVE_REGISTER: u8 = 0x2d;
const JUMP_BELOW_OR_SAME_REGISTER: u8 = 0xbd;
const JUMP_SAME: u8 = 0x16;
const JUMP_OTHER: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// `bpf_redirect_map`, by its number.
const REDIRECT_MAP: i32 = 51;

/// Offsets of the fields of `struct xdp_md` that we read.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_DATA_END: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;

const ETHERNET_BYTES: i16 = 14;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const UDP: i32 = 17;
/// Bytes up to the end of the UDP header.
const HEADERS_V4: i16 = ETHERNET_BYTES + 20 + 8;
const HEADERS_V6: i16 = ETHERNET_BYTES + 40 + 8;

/// The frames that the program matches.
#[derive(Debug, Clone)]
pub(super) struct Filter<'a> {
    /// The interface's own address.
    pub mac: [u8; 6],
    /// Addresses and ports, none a wildcard.
    pub targets: &'a [SocketAddr],
    /// Bytes of the longest frame that a socket gets.
    pub frame_bytes_max: u16,
    /// The action for a matching frame in a queue that has no socket.
    pub without_socket: Action,
}

/// A place to jump to.
#[derive(Clone, Copy)]
struct Label(usize);

/// Instructions, and jumps whose ends are not yet known.
#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    places: Vec<usize>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        // Two bit fields of four, the first of which lies where the machine puts first bits.
        let registers =
            if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from };
        self.code.push(Instruction { code, registers, offset, immediate });
    }

    fn label(&mut self) -> Label {
        self.places.push(usize::MAX);
        Label(self.places.len() - 1)
    }

    /// The label is here.
    fn place(&mut self, label: Label) {
        self.places[label.0] = self.code.len();
    }

    fn jump(&mut self, code: u8, left: u8, right: u8, constant: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(code, left, right, 0, constant);
    }

    /// The end of a program that has the context in register 6, and a frame from register 2 to 3:
    /// the socket of its queue gets it if it is not too long; `pass` is placed here.
    fn give_or_pass(
        &mut self,
        frame_bytes_max: u16,
        without_socket: Action,
        map: &impl AsRawFd,
        pass: Label,
    ) {
        self.push(MOVE_REGISTER, R4, R2, 0, 0);
        self.push(ADD, R4, 0, 0, i32::from(frame_bytes_max));
        let fits = self.label();
        self.jump(JUMP_BELOW_OR_SAME_REGISTER, R3, R4, 0, fits);
        self.jump(JUMP, 0, 0, 0, pass);
        self.place(fits);
        self.push(LOAD_U32, R2, R6, CONTEXT_QUEUE, 0);
        self.push(LOAD_CONSTANT, R1, PSEUDO_MAP, 0, map.as_raw_fd());
        self.push(0, 0, 0, 0, 0);
        self.push(MOVE, R3, 0, 0, without_socket as i32);
        self.push(CALL, 0, 0, 0, REDIRECT_MAP);
        self.push(EXIT, 0, 0, 0, 0);

        self.place(pass);
        self.push(MOVE, R0, 0, 0, Action::Pass as i32);
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// All instructions; `None` if a jump is too far for one instruction.
    fn finish(mut self) -> Option<Vec<Instruction>> {
        for (at, label) in self.jumps {
            let distance = self.places[label.0].checked_sub(at + 1)?;
            self.code[at].offset = i16::try_from(distance).ok()?;
        }
        Some(self.code)
    }
}

/// A word of a frame as a load of it gives it.
fn word(bytes: [u8; 4]) -> i32 {
    i32::from_ne_bytes(bytes)
}

/// Like [`word`], for 16 bits.
fn half(bytes: [u8; 2]) -> i32 {
    i32::from(u16::from_ne_bytes(bytes))
}

/// The program for a filter, which gives frames to the sockets of a map. `None` if there are more
/// targets than [`TARGETS_MAX`].
pub(super) fn assemble(filter: &Filter<'_>, map: &impl AsRawFd) -> Option<Vec<Instruction>> {
    if filter.targets.len() > TARGETS_MAX {
        return None;
    }
    let mut it = Assembler::default();
    let (ipv4, ipv6, pass, redirect) = (it.label(), it.label(), it.label(), it.label());
    it.push(MOVE_REGISTER, R6, R1, 0, 0);
    it.push(LOAD_U32, R2, R1, CONTEXT_DATA, 0);
    it.push(LOAD_U32, R3, R1, CONTEXT_DATA_END, 0);
    // Not shorter than the headers, nor longer than a socket takes.
    it.push(MOVE_REGISTER, R4, R2, 0, 0);
    it.push(ADD, R4, 0, 0, i32::from(HEADERS_V4));
    it.jump(JUMP_ABOVE_REGISTER, R4, R3, 0, pass);
    let [a, b, c, d, e, f] = filter.mac;
    it.push(LOAD_U32, R5, R2, 0, 0);
    it.jump(JUMP_OTHER, R5, 0, word([a, b, c, d]), pass);
    it.push(LOAD_U16, R5, R2, 4, 0);
    it.jump(JUMP_OTHER, R5, 0, half([e, f]), pass);
    it.push(LOAD_U16, R5, R2, 12, 0);
    it.jump(JUMP_SAME, R5, 0, half(TYPE_IPV4.to_be_bytes()), ipv4);
    it.jump(JUMP_SAME, R5, 0, half(TYPE_IPV6.to_be_bytes()), ipv6);
    it.jump(JUMP, 0, 0, 0, pass);

    it.place(ipv4);
    it.push(LOAD_U8, R5, R2, ETHERNET_BYTES, 0);
    it.jump(JUMP_OTHER, R5, 0, 0x45, pass);
    // No fragment: neither more to come, nor an offset.
    it.push(LOAD_U16, R5, R2, ETHERNET_BYTES + 6, 0);
    it.push(AND, R5, 0, 0, half([0x3f, 0xff]));
    it.jump(JUMP_OTHER, R5, 0, 0, pass);
    it.push(LOAD_U8, R5, R2, ETHERNET_BYTES + 9, 0);
    it.jump(JUMP_OTHER, R5, 0, UDP, pass);
    it.push(LOAD_U16, R5, R2, HEADERS_V4 - 6, 0);
    it.push(LOAD_U32, R0, R2, ETHERNET_BYTES + 16, 0);
    for target in filter.targets {
        let IpAddr::V4(address) = target.ip() else { continue };
        let next = it.label();
        it.jump(JUMP_OTHER, R5, 0, half(target.port().to_be_bytes()), next);
        it.jump(JUMP_SAME, R0, 0, word(address.octets()), redirect);
        it.place(next);
    }
    it.jump(JUMP, 0, 0, 0, pass);

    it.place(ipv6);
    it.push(MOVE_REGISTER, R4, R2, 0, 0);
    it.push(ADD, R4, 0, 0, i32::from(HEADERS_V6));
    it.jump(JUMP_ABOVE_REGISTER, R4, R3, 0, pass);
    it.push(LOAD_U8, R5, R2, ETHERNET_BYTES + 6, 0);
    it.jump(JUMP_OTHER, R5, 0, UDP, pass);
    it.push(LOAD_U16, R5, R2, HEADERS_V6 - 6, 0);
    for target in filter.targets {
        let IpAddr::V6(address) = target.ip() else { continue };
        let next = it.label();
        it.jump(JUMP_OTHER, R5, 0, half(target.port().to_be_bytes()), next);
        for (at, bytes) in (0..).step_by(4).zip(address.octets().as_chunks().0) {
            it.push(LOAD_U32, R0, R2, ETHERNET_BYTES + 24 + at, 0);
            it.jump(JUMP_OTHER, R0, 0, word(*bytes), next);
        }
        it.jump(JUMP, 0, 0, 0, redirect);
        it.place(next);
    }
    it.jump(JUMP, 0, 0, 0, pass);

    it.place(redirect);
    it.give_or_pass(filter.frame_bytes_max, filter.without_socket, map, pass);
    it.finish()
}

/// The program that gives every frame which is not too long to the sockets of a map.
pub(super) fn assemble_all(
    frame_bytes_max: u16,
    without_socket: Action,
    map: &impl AsRawFd,
) -> Option<Vec<Instruction>> {
    let mut it = Assembler::default();
    let pass = it.label();
    it.push(MOVE_REGISTER, R6, R1, 0, 0);
    it.push(LOAD_U32, R2, R1, CONTEXT_DATA, 0);
    it.push(LOAD_U32, R3, R1, CONTEXT_DATA_END, 0);
    it.give_or_pass(frame_bytes_max, without_socket, map, pass);
    it.finish()
}
