//! Frame Streams, the format of dnstap: frames of bytes from a file or over a socket.
//!
//! Each frame follows its length in four bytes. A length of 0 announces a control frame, which has
//! its own length. [`larder_wire::dnstap`] reads the content of frames.
//!
//! ```text
//! phase      file              socket (they write, we read)      ends by
//! opening    START             READY -> our ACCEPT, then START   `Frames::open`, `Frames::accept`
//! flowing    data frames       data frames                       STOP, or the end of input
//! done       nothing more      our FINISH                        `Frames::finish`
//! ```
//!
//! Bounds: [`FRAME_BYTES_MAX`] for a frame, [`CONTROL_BYTES_MAX`] for a control frame; a stream
//! that exceeds them is refused. Cost: a copy of each frame into one buffer.

use std::fmt;
use std::io::{self, Read, Write};

/// Most bytes of a data frame: two DNS messages of 64 KiB, and the fields around them.
pub const FRAME_BYTES_MAX: usize = 256 << 10;

/// Most bytes of a control frame, as the Frame Streams library has it.
pub const CONTROL_BYTES_MAX: usize = 512;

/// The content type that dnstap streams state.
pub const CONTENT_TYPE: &[u8] = b"protobuf:dnstap.Dnstap";

/// Why a stream cannot be read on.
#[derive(Debug)]
#[non_exhaustive]
pub enum FrameError {
    /// The system failed. The caller should report it, with the file or socket.
    Io(io::Error),
    /// The stream ends inside a frame. The frames before it are valid.
    CutShort,
    /// This is no Frame Streams input, or it carries something else than dnstap. The caller should
    /// name another file, or configure the sender.
    NotDnstap,
    /// A frame is longer than the bound: the stream is out of step. The frames before it are valid.
    TooLong,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Io(error) => error.fmt(f),
            FrameError::CutShort => f.write_str("the stream ends inside a frame"),
            FrameError::NotDnstap => {
                f.write_str("not a dnstap stream (Frame Streams of protobuf:dnstap.Dnstap)")
            }
            FrameError::TooLong => f.write_str("a frame is too long: the stream is out of step"),
        }
    }
}

impl std::error::Error for FrameError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FrameError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> FrameError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => FrameError::CutShort,
            _ => FrameError::Io(error),
        }
    }
}

/// Types of control frames.
#[allow(missing_docs)]
pub mod control {
    pub const ACCEPT: u32 = 1;
    pub const START: u32 = 2;
    pub const STOP: u32 = 3;
    pub const READY: u32 = 4;
    pub const FINISH: u32 = 5;
}

/// Frames of a stream, one at a time.
#[derive(Debug)]
pub struct Frames<S> {
    stream: S,
    frame: Vec<u8>,
    stopped: bool,
}

impl<S: Read> Frames<S> {
    /// Opens a file, or any one-way stream: it begins with START.
    pub fn open(stream: S) -> Result<Frames<S>, FrameError> {
        let mut frames = Frames { stream, frame: Vec::new(), stopped: false };
        frames.expect_control(control::START)?;
        Ok(frames)
    }

    /// The content of the next data frame; `None` after STOP, and where a file ends without one
    /// (its writer was killed between two frames).
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        while !self.stopped {
            match self.read_length()? {
                None => self.stopped = true,
                Some(0) => match self.read_control()? {
                    (control::STOP, _) => self.stopped = true,
                    // Nothing else has a meaning here; a later version may give it one.
                    _ => continue,
                },
                Some(length) => {
                    self.read_body(length, FRAME_BYTES_MAX)?;
                    return Ok(Some(&self.frame));
                }
            }
        }
        Ok(None)
    }

    /// Four bytes of length; `None` at the end of the input, if a frame may end it.
    fn read_length(&mut self) -> Result<Option<u32>, FrameError> {
        let mut raw = [0; 4];
        let mut filled = 0;
        while filled < raw.len() {
            match self.stream.read(&mut raw[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(FrameError::CutShort),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(u32::from_be_bytes(raw)))
    }

    fn read_body(&mut self, length: u32, limit: usize) -> Result<(), FrameError> {
        let length = length as usize;
        if length > limit {
            return Err(FrameError::TooLong);
        }
        self.frame.resize(length, 0);
        self.stream.read_exact(&mut self.frame)?;
        Ok(())
    }

    /// Reads a control frame after its zero length: its type, and whether it carries dnstap (also
    /// true if the frame has no content types).
    fn read_control(&mut self) -> Result<(u32, bool), FrameError> {
        let length = self.read_length()?.ok_or(FrameError::CutShort)?;
        self.read_body(length, CONTROL_BYTES_MAX)?;
        let (kind, mut fields) = split_u32(&self.frame).ok_or(FrameError::NotDnstap)?;
        let (mut stated, mut ours) = (false, false);
        while !fields.is_empty() {
            let (field, rest) = split_u32(fields).ok_or(FrameError::NotDnstap)?;
            let (length, rest) = split_u32(rest).ok_or(FrameError::NotDnstap)?;
            let content = rest.get(..length as usize).ok_or(FrameError::NotDnstap)?;
            fields = &rest[content.len()..];
            // Field 1 is a content type, the only field there is.
            if field == 1 {
                stated = true;
                ours |= content == CONTENT_TYPE;
            }
        }
        Ok((kind, ours || !stated))
    }

    fn expect_control(&mut self, expected: u32) -> Result<(), FrameError> {
        // Input that is something else will rarely begin with a zero: not ours, rather than cut.
        match self.read_length()? {
            Some(0) => {}
            _ => return Err(FrameError::NotDnstap),
        }
        match self.read_control() {
            Ok((kind, true)) if kind == expected => Ok(()),
            Ok(_) | Err(FrameError::TooLong) => Err(FrameError::NotDnstap),
            Err(error) => Err(error),
        }
    }
}

impl<S: Read + Write> Frames<S> {
    /// Opens a two-way stream that a server has connected: the server states its content types, we
    /// accept dnstap, the server starts. Blocks as the stream does: give the stream a read timeout.
    pub fn accept(stream: S) -> Result<Frames<S>, FrameError> {
        let mut frames = Frames { stream, frame: Vec::new(), stopped: false };
        frames.expect_control(control::READY)?;
        frames.write_control(control::ACCEPT, Some(CONTENT_TYPE))?;
        frames.expect_control(control::START)?;
        Ok(frames)
    }

    /// Confirms the sender's STOP; without it a sender waits for its timeout. Senders that end may
    /// not wait for it: an error here loses nothing.
    pub fn finish(&mut self) -> Result<(), FrameError> {
        self.write_control(control::FINISH, None)
    }

    fn write_control(&mut self, kind: u32, content_type: Option<&[u8]>) -> Result<(), FrameError> {
        self.stream.write_all(&control_frame(kind, content_type))?;
        self.stream.flush()?;
        Ok(())
    }
}

/// The bytes of a control frame, with the zero length that announces it.
pub fn control_frame(kind: u32, content_type: Option<&[u8]>) -> Vec<u8> {
    let mut frame = kind.to_be_bytes().to_vec();
    if let Some(content_type) = content_type {
        frame.extend_from_slice(&1u32.to_be_bytes());
        frame.extend_from_slice(&(content_type.len() as u32).to_be_bytes());
        frame.extend_from_slice(content_type);
    }
    [&0u32.to_be_bytes()[..], &(frame.len() as u32).to_be_bytes(), &frame].concat()
}

fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (raw, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*raw), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::Addr;
    use larder_wire::dnstap::Message;
    use proptest::prelude::*;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// A dnstap file that unbound's own writer made, as recorded by tests/captures/record.sh.
    const RECORDED: &[u8] = include_bytes!("../../../tests/captures/dnstap-unbound.fstrm");

    fn frames(input: &[u8]) -> Result<Vec<Vec<u8>>, FrameError> {
        let mut frames = Frames::open(input)?;
        let mut all = Vec::new();
        while let Some(frame) = frames.next_frame()? {
            all.push(frame.to_vec());
        }
        Ok(all)
    }

    fn control(kind: u32, content_type: &[u8]) -> Vec<u8> {
        control_frame(kind, (!content_type.is_empty()).then_some(content_type))
    }

    fn data(content: &[u8]) -> Vec<u8> {
        [&(content.len() as u32).to_be_bytes(), content].concat()
    }

    /// A real server's stream is read to its end, and states client, server, time, query and
    /// response.
    #[test]
    fn recorded_stream() {
        let frames = frames(RECORDED).expect("a dnstap file");
        let messages: Vec<Message<'_>> =
            frames.iter().map(|frame| Message::parse(frame).expect("a message")).collect();
        let answer = messages.iter().find(|message| message.kind == 6).expect("a client response");
        assert_eq!(answer.client, Some(Addr::v4([192, 0, 2, 10])));
        assert_eq!(answer.server, Some(Addr::v4([192, 0, 2, 54])));
        assert_eq!(answer.server_port, Some(53));
        assert!(answer.response_time_ns > Some(1_500_000_000_000_000_000));
        // The wire form of the queried name, after the header of twelve bytes.
        let response = answer.response.expect("an answer");
        assert!(response[12..].starts_with(b"\x03www\x05green\x07example\0"));
        let upstream = messages.iter().filter(|message| message.kind == 4);
        assert!(upstream.clone().count() >= 2, "the resolver asked two servers");
        assert!(upstream.clone().all(|message| message.client.is_none()));
    }

    /// Over a socket both sides take part in the handshake, and FINISH responds to STOP.
    #[test]
    fn socket_handshake() {
        let (theirs, ours) = UnixStream::pair().expect("a socket pair");
        for socket in [&theirs, &ours] {
            socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        }
        let sender = std::thread::spawn(move || {
            let mut theirs = theirs;
            let hello = [control(control::READY, b"other"), control(control::READY, CONTENT_TYPE)];
            // One READY lists several types: join the second's field to the first frame.
            let mut ready = hello[0].clone();
            ready.extend_from_slice(&hello[1][12..]);
            let length = (ready.len() - 8) as u32;
            ready[4..8].copy_from_slice(&length.to_be_bytes());
            theirs.write_all(&ready)?;
            let mut accept = vec![0; control(control::ACCEPT, CONTENT_TYPE).len()];
            theirs.read_exact(&mut accept)?;
            theirs.write_all(&control(control::START, CONTENT_TYPE))?;
            theirs.write_all(&data(b"one"))?;
            theirs.write_all(&control(control::STOP, b""))?;
            let mut finish = vec![0; control(control::FINISH, b"").len()];
            theirs.read_exact(&mut finish)?;
            io::Result::Ok((accept, finish))
        });
        let mut frames = Frames::accept(ours).expect("a handshake");
        assert_eq!(frames.next_frame().expect("a frame"), Some(&b"one"[..]));
        assert_eq!(frames.next_frame().expect("the end"), None);
        frames.finish().expect("a confirmation");
        let (accept, finish) = sender.join().expect("no panic").expect("no error");
        assert_eq!(accept, control(control::ACCEPT, CONTENT_TYPE));
        assert_eq!(finish, control(control::FINISH, b""));
    }

    /// Streams that are no dnstap, are cut short or out of step have different errors, and no large
    /// length is believed.
    #[test]
    fn bad_streams() {
        let start = control(control::START, CONTENT_TYPE);
        let with = |tail: &[u8]| [start.as_slice(), tail].concat();
        assert!(matches!(frames(b""), Err(FrameError::NotDnstap)));
        assert!(matches!(frames(b"\xd4\xc3\xb2\xa1"), Err(FrameError::NotDnstap)));
        assert!(matches!(frames(&control(control::START, b"else")), Err(FrameError::NotDnstap)));
        assert!(matches!(frames(&control(control::STOP, b"")), Err(FrameError::NotDnstap)));
        assert!(matches!(frames(&with(b"\0\0")), Err(FrameError::CutShort)));
        assert!(matches!(frames(&with(b"\0\0\0\x09abc")), Err(FrameError::CutShort)));
        assert!(matches!(frames(&with(b"\x7f\xff\xff\xff")), Err(FrameError::TooLong)));
        assert_eq!(frames(&start).expect("an empty stream"), Vec::<Vec<u8>>::new());
        let stopped = with(&[data(b"x"), control(control::STOP, b""), data(b"y")].concat());
        assert_eq!(frames(&stopped).expect("a stream"), [b"x"]);
    }

    proptest! {
        /// No bytes, and no damage to a real stream, make the reader panic.
        #[test]
        fn damage_never_panics(
            at in 0..RECORDED.len(),
            noise in proptest::collection::vec(any::<u8>(), 0..30),
            cut in 0..RECORDED.len(),
        ) {
            let mut input = RECORDED.to_vec();
            let end = (at + noise.len()).min(input.len());
            input.splice(at..end, noise.iter().copied());
            input.truncate(cut);
            if let Ok(all) = frames(&input) {
                for frame in &all {
                    let _ = Message::parse(frame);
                }
            }
            let _ = (frames(&noise), Message::parse(&noise));
        }
    }
}
