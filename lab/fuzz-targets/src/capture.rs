//! Capture files: the invariants of [`larder_wire::capture`], and that a pipe which trickles gives
//! the same steps as a file.

use larder_wire::capture::{Capture, FRAME_BYTES_MAX, HEADER_BYTES, Step};

use super::assert_inside;

/// In how many portions a pipe brings the file.
const PORTIONS: usize = 12;

/// The input is a capture file.
pub fn capture(file: &[u8]) {
    let Ok((mut capture, mut offset)) = Capture::open(file) else { return };
    if capture.can_split()
        && let Some(at) = capture.find_record(file, offset)
    {
        assert!((offset..file.len()).contains(&at));
    }
    let mut pipe =
        Pipe { capture: capture.clone(), arrived: offset.max(HEADER_BYTES.min(file.len())) };
    loop {
        let step = capture.next(file, offset, true);
        assert_eq!(pipe.next(file, offset), step, "a pipe and a file differ at {offset}");
        let next_offset = match step {
            Step::Record(record) => {
                let end = record.frame_offset + record.frame.len();
                assert!(offset < record.frame_offset && end <= record.next_offset);
                assert!(record.frame.len() <= FRAME_BYTES_MAX as usize);
                assert_eq!(record.frame, &file[record.frame_offset..end]);
                assert_inside(record.frame, file);
                record.next_offset
            }
            Step::Meta { next_offset } => {
                for (_, name) in capture.names_at(file, offset) {
                    assert_inside(name, &file[offset..next_offset]);
                }
                next_offset
            }
            Step::Damaged { next_offset, .. } => next_offset,
            Step::NeedMore => panic!("more is wanted than there is"),
            Step::End => break,
        };
        assert!(
            offset < next_offset && next_offset <= file.len(),
            "invariant 1 of `wire::capture`"
        );
        offset = next_offset;
    }
    assert_eq!(offset, file.len(), "bytes were left");
}

/// A second reader, which sees the file grow.
struct Pipe {
    capture: Capture,
    arrived: usize,
}

impl Pipe {
    fn next<'a>(&mut self, file: &'a [u8], offset: usize) -> Step<'a> {
        loop {
            let step = self.capture.next(&file[..self.arrived], offset, false);
            if step != Step::NeedMore {
                return step;
            }
            if self.arrived == file.len() {
                return self.capture.next(file, offset, true);
            }
            self.arrived = file.len().min(self.arrived + 1 + file.len() / PORTIONS);
        }
    }
}
