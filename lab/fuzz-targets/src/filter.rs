//! Filters: no text and no program panics, and what compiles is what a kernel takes.

use larder_wire::filter::{
    INSTRUCTIONS_MAX, Instruction, LinkType, Origin, compile, run, run_live,
};

use super::Cut;

/// The first byte states what a text is compiled for, the second how many bytes of text follow; the rest is a frame.
/// The whole input is also run as a program.
pub fn filter(input: &[u8]) {
    let mut rest = Cut(input);
    let (kind, len) = (rest.u8(), usize::from(rest.u8()));
    let text = String::from_utf8_lossy(rest.bytes(len)).into_owned();
    let frame = rest.0;
    let link = match kind & 0x19 {
        0x08 => LinkType::Cooked,
        0x10 => LinkType::Cooked2,
        0x18 => LinkType::Loopback,
        even if even & 1 == 0 => LinkType::Ethernet,
        _ => LinkType::RawIp,
    };
    let origin = if kind & 2 == 0 { Origin::File } else { Origin::Live };
    match compile(&text, link, origin, 77) {
        Ok(program) => {
            assert!((1..=INSTRUCTIONS_MAX).contains(&program.len()));
            assert!(program.iter().enumerate().all(|(at, step)| stays_inside(&program, at, step)));
            let tag = (kind & 4 != 0).then_some(3);
            assert!(matches!(run_live(&program, frame, frame.len() as u32, tag), 0 | 77));
        }
        Err(error) => assert!(error.at_bytes <= text.len()),
    }
    let step = |bytes: &[u8]| Instruction {
        code: u16::from(bytes[0]),
        jt: bytes[1] & 7,
        jf: bytes[2] & 7,
        k: u32::from(bytes[3]),
    };
    let program: Vec<Instruction> = input.chunks_exact(4).map(step).collect();
    run(&program, input, input.len() as u32);
}

/// True where every way from this instruction leads to another one, or returns.
fn stays_inside(program: &[Instruction], at: usize, step: &Instruction) -> bool {
    let far = match step.code {
        0x06 => return true,
        0x05 => step.k as usize,
        code if code & 7 == 5 => usize::from(step.jt.max(step.jf)),
        _ => 0,
    };
    at + 1 + far < program.len()
}
