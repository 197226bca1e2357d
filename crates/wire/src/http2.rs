//! The host that a client of HTTP/2 in the clear requests: `:authority` of the first HEADERS frame,
//! if the client begins with HTTP/2 ("prior knowledge", RFC 9113, section 3.3), as gRPC does. After
//! `Upgrade: h2c` the host is in the HTTP/1 request.
//!
//! [`first_request`] reads the first contiguous bytes of a client's stream: the preface, frames up
//! to the first HEADERS, and the fields of its header block (RFC 7541). It has no dynamic table: in
//! a first block that could only repeat fields of the block.
//!
//! Bounds: [`HEAD_BYTES_MAX`] bytes, `FRAMES_MAX` frames; work is linear in the bytes. Only a value
//! in several CONTINUATION frames or in Huffman code is copied.

use std::borrow::Cow;

/// Longest start of a stream that is read.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// Most frames up to the end of the first header block.
const FRAMES_MAX: usize = 32;

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_BYTES: usize = 9;

const TYPE_HEADERS: u8 = 1;
const TYPE_CONTINUATION: u8 = 9;
const FLAG_END_HEADERS: u8 = 0x04;
const FLAG_PADDED: u8 = 0x08;
const FLAG_PRIORITY: u8 = 0x20;

/// Entries of the static table that matter here (RFC 7541, appendix A).
const STATIC_AUTHORITY: usize = 1;
const STATIC_HOST: usize = 38;

/// The kind of a stream, by its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// The stream is not of an HTTP/2 client.
    NotHttp2,
    /// HTTP/2 so far; the first request may still come.
    NeedMore,
    /// The first request.
    Found(Request<'a>),
    /// The preface, and then frames or fields that contradict themselves, or more than we read.
    Malformed,
}

/// The used fields of the first request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// The first `:authority`, or else the first `host`; never empty. May have a port: see
    /// [`http::host_name`](crate::http::host_name).
    pub authority: Option<Cow<'a, [u8]>>,
    /// Another value of one of the two fields.
    pub other: Option<Cow<'a, [u8]>>,
}

/// Reads the start of a client's stream.
#[inline]
pub fn first_request(bytes: &[u8]) -> Start<'_> {
    // Most streams are decided here.
    if bytes.first() == Some(&b'P') { read(bytes) } else { Start::NotHttp2 }
}

fn read(bytes: &[u8]) -> Start<'_> {
    let bytes = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let Some(frames) = bytes.strip_prefix(PREFACE) else {
        let is_start = PREFACE.starts_with(bytes);
        return if is_start { Start::NeedMore } else { Start::NotHttp2 };
    };
    let more = if bytes.len() < HEAD_BYTES_MAX { Start::NeedMore } else { Start::Malformed };
    match header_block(frames) {
        Ok(Some(Cow::Borrowed(block))) => fields(block).map_or(Start::Malformed, Start::Found),
        Ok(Some(Cow::Owned(block))) => match fields(&block) {
            Some(Request { authority, other }) => {
                let own = |value: Cow<'_, [u8]>| Cow::Owned(value.into_owned());
                Start::Found(Request { authority: authority.map(own), other: other.map(own) })
            }
            None => Start::Malformed,
        },
        Ok(None) => more,
        Err(Contradiction) => Start::Malformed,
    }
}

struct Contradiction;

/// The header block of the first HEADERS frame; `None` while it is not complete.
fn header_block(mut rest: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Contradiction> {
    let mut block: Option<Cow<'_, [u8]>> = None;
    for _ in 0..FRAMES_MAX {
        let Some((header, behind)) = rest.split_first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let (kind, flags) = (header[3], header[4]);
        if length > HEAD_BYTES_MAX {
            return Err(Contradiction);
        }
        let Some((payload, behind)) = behind.split_at_checked(length) else { return Ok(None) };
        rest = behind;
        match (&mut block, kind) {
            (None, TYPE_HEADERS) => block = Some(Cow::Borrowed(unpadded(payload, flags)?)),
            (None, TYPE_CONTINUATION) => return Err(Contradiction),
            // SETTINGS, WINDOW_UPDATE, PRIORITY and others come first.
            (None, _) => continue,
            (Some(block), TYPE_CONTINUATION) => block.to_mut().extend_from_slice(payload),
            (Some(_), _) => return Err(Contradiction),
        }
        if flags & FLAG_END_HEADERS != 0 {
            return Ok(block);
        }
    }
    Err(Contradiction)
}

/// The fragment in a HEADERS frame, without padding and priority (RFC 9113, section 6.2).
fn unpadded(payload: &[u8], flags: u8) -> Result<&[u8], Contradiction> {
    let (padding, payload) = match payload.split_first() {
        Some((&padding, behind)) if flags & FLAG_PADDED != 0 => (usize::from(padding), behind),
        None if flags & FLAG_PADDED != 0 => return Err(Contradiction),
        _ => (0, payload),
    };
    let skipped = if flags & FLAG_PRIORITY != 0 { 5 } else { 0 };
    let end = payload.len().checked_sub(padding).ok_or(Contradiction)?;
    payload.get(skipped..end).ok_or(Contradiction)
}

/// Walks the fields of a block (RFC 7541, section 6). `None` if it contradicts itself.
fn fields(mut block: &[u8]) -> Option<Request<'_>> {
    let mut authority: Option<Cow<'_, [u8]>> = None;
    let mut host: Option<Cow<'_, [u8]>> = None;
    let mut other = None;
    while let Some(&first) = block.first() {
        // A field of a table, with its value: none of them names a host.
        if first & 0x80 != 0 {
            (_, block) = integer(block, 7)?;
            continue;
        }
        // A new size of the dynamic table.
        if first & 0xe0 == 0x20 {
            (_, block) = integer(block, 5)?;
            continue;
        }
        let (index, behind) = integer(block, if first & 0x40 != 0 { 6 } else { 4 })?;
        let (name, behind) = if index == 0 { string(behind)? } else { (Text::default(), behind) };
        let (value, behind) = string(behind)?;
        block = behind;
        let place = match index {
            STATIC_AUTHORITY => &mut authority,
            STATIC_HOST => &mut host,
            0 => match name.decode().as_deref() {
                Some(b":authority") => &mut authority,
                Some(b"host") => &mut host,
                _ => continue,
            },
            _ => continue,
        };
        let Some(value) = value.decode().filter(|value| !value.is_empty()) else { continue };
        match place {
            None => *place = Some(value),
            Some(known) if !known.eq_ignore_ascii_case(&value) => other = Some(value),
            Some(_) => {}
        }
    }
    if let (Some(authority), Some(host)) = (&authority, &host)
        && !authority.eq_ignore_ascii_case(host)
    {
        other = Some(host.clone());
    }
    Some(Request { authority: authority.or(host), other })
}

/// An integer with a prefix of `bits` (RFC 7541, section 5.1), and the bytes after it.
fn integer(bytes: &[u8], bits: u32) -> Option<(usize, &[u8])> {
    let (&first, mut rest) = bytes.split_first()?;
    let limit = (1usize << bits) - 1;
    let mut value = usize::from(first) & limit;
    if value < limit {
        return Some((value, rest));
    }
    // More than three bytes make an index or a length that no block of ours has.
    for shift in [0, 7, 14] {
        let (&next, behind) = rest.split_first()?;
        rest = behind;
        value += usize::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// A string as encoded in the block.
#[derive(Clone, Copy, Default)]
struct Text<'a> {
    bytes: &'a [u8],
    is_huffman: bool,
}

/// A string (RFC 7541, section 5.2), and the bytes after it.
fn string(bytes: &[u8]) -> Option<(Text<'_>, &[u8])> {
    let is_huffman = bytes.first()? & 0x80 != 0;
    let (length, rest) = integer(bytes, 7)?;
    let (bytes, behind) = rest.split_at_checked(length)?;
    Some((Text { bytes, is_huffman }, behind))
}

impl<'a> Text<'a> {
    /// `None` for characters that are in no name and no host.
    fn decode(self) -> Option<Cow<'a, [u8]>> {
        if self.is_huffman {
            unpack(self.bytes).map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(self.bytes))
        }
    }
}

/// The characters whose Huffman code has 5, 6, 7 and 8 bits (RFC 7541, appendix B): all that field
/// names and hosts are made of. Codes of one length follow each other, in the order of the
/// characters.
const BY_BITS: [&[u8]; 4] =
    [b"012aceiost", b" %-./3456789=A_bdfghlmnpru", b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz", b"&*,;XZ"];

/// For the next eight bits: the character whose code they begin with, and the bits of that code; 0
/// bits if the code is not in [`BY_BITS`].
const CODES: [(u8, u8); 256] = {
    let mut codes = [(0, 0); 256];
    let mut next = 0;
    let mut row = 0;
    while row < BY_BITS.len() {
        let bits = 5 + row;
        let mut at = 0;
        while at < BY_BITS[row].len() {
            let mut left = 1 << (8 - bits);
            while left > 0 {
                codes[next] = (BY_BITS[row][at], bits as u8);
                next += 1;
                left -= 1;
            }
            at += 1;
        }
        row += 1;
    }
    codes
};

/// Undoes the Huffman code. `None` for other characters, and for padding that is not the longest
/// code's start (all ones, fewer than eight).
fn unpack(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() * 8 / 5);
    let mut bits = 0u32;
    let mut count = 0;
    let mut rest = bytes.iter();
    loop {
        while count < 8
            && let Some(&next) = rest.next()
        {
            bits = bits << 8 | u32::from(next);
            count += 8;
        }
        // Behind the end there are ones, as in the padding.
        let ahead = if count >= 8 { bits >> (count - 8) } else { !(!bits << (8 - count)) };
        let (byte, length) = CODES[ahead as usize & 0xff];
        let length = u32::from(length);
        if length == 0 || length > count {
            let ones = (1 << count) - 1;
            return (count < 8 && bits & ones == ones).then_some(out);
        }
        out.push(byte);
        count -= length;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn stream(frames: &[Vec<u8>]) -> Vec<u8> {
        [&PREFACE[..], &frames.concat()].concat()
    }

    /// A literal that is not indexed, with a name from the static table or its own.
    fn literal(index: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut field = if index < 15 { vec![index] } else { vec![15, index - 15] };
        if index == 0 {
            field.push(name.len() as u8);
            field.extend_from_slice(name);
        }
        field.push(value.len() as u8);
        field.extend_from_slice(value);
        field
    }

    fn authority(bytes: &[u8]) -> Option<Vec<u8>> {
        match first_request(bytes) {
            Start::Found(request) => request.authority.map(Cow::into_owned),
            other => panic!("{other:?}"),
        }
    }

    /// The example of RFC 7541, C.4.1: a request with a Huffman-coded authority.
    #[test]
    fn block_of_the_rfc() {
        let block = [
            0x82, 0x86, 0x84, 0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab,
            0x90, 0xf4, 0xff,
        ];
        let bytes = stream(&[frame(4, 0, &[]), frame(TYPE_HEADERS, FLAG_END_HEADERS, &block)]);
        assert_eq!(authority(&bytes).as_deref(), Some(&b"www.example.com"[..]));
        for len in 1..bytes.len() {
            assert_eq!(first_request(&bytes[..len]), Start::NeedMore, "{len}");
        }
    }

    /// The authority is found in each form of a field and of a frame, and in several frames.
    #[test]
    fn forms() {
        let value = b"grpc.example:50051";
        let mut indexed = literal(1, b"", value);
        indexed[0] = 0x41;
        let mut never = literal(0, b":authority", value);
        never[0] = 0x10;
        let before = [
            &[0x3f, 0xe1, 0x1f, 0x82, 0x87][..],
            &literal(4, b"", b"/x"),
            &literal(0, b"te", b"t"),
        ]
        .concat();
        for field in [
            literal(1, b"", value),
            indexed,
            never,
            literal(38, b"", value),
            literal(0, b"host", value),
        ] {
            let block = [&before[..], &field].concat();
            let padded = [&[3][..], &block, &[0; 3]].concat();
            let with_priority = [&[0, 0, 0, 0, 9][..], &block].concat();
            for frames in [
                vec![frame(1, 4, &block)],
                vec![frame(4, 0, &[0; 12]), frame(8, 0, &[0; 4]), frame(1, 5, &block)],
                vec![frame(1, 0x0c, &padded)],
                vec![frame(1, 0x24, &with_priority)],
                vec![
                    frame(1, 0, &block[..9]),
                    frame(9, 0, &block[9..20]),
                    frame(9, 4, &block[20..]),
                ],
            ] {
                assert_eq!(authority(&stream(&frames)).as_deref(), Some(&value[..]));
            }
        }
    }

    /// Two different authorities, or one and another host, are reported; the same twice is not.
    #[test]
    fn others() {
        let (a, b) = (literal(1, b"", b"a.example"), literal(38, b"", b"b.example"));
        let twice = [&a[..], &literal(1, b"", b"c.example")].concat();
        let same = [&a[..], &literal(0, b"host", b"A.example")].concat();
        for (block, other) in [
            ([&b[..], &a].concat(), Some(&b"b.example"[..])),
            (twice, Some(b"c.example")),
            (same, None),
        ] {
            let bytes = stream(&[frame(1, 4, &block)]);
            let Start::Found(request) = first_request(&bytes) else { panic!("a request") };
            assert_eq!(request.authority.as_deref(), Some(&b"a.example"[..]));
            assert_eq!(request.other.as_deref(), other);
        }
    }

    /// Bytes that are no HTTP/2, or contradict themselves, give no name.
    #[test]
    fn contradictions() {
        assert_eq!(first_request(b"POST / HTTP/1.1\r\n"), Start::NotHttp2);
        assert_eq!(first_request(b"PRI * HTTP/2.0\r\n\r\nXX"), Start::NotHttp2);
        assert_eq!(first_request(b""), Start::NotHttp2);
        for frames in [
            vec![frame(9, 4, b"")],
            vec![frame(1, 0, b""), frame(1, 4, b"")],
            vec![frame(1, 0x0c, &[9, 1, 1])],
            vec![frame(1, 0x0c, &[])],
            vec![frame(1, 0x24, &[0; 4])],
            vec![frame(1, 4, &[0x41, 5, b'a'])],
            vec![frame(1, 4, &[0xff, 0xff, 0xff, 0xff, 0xff, 1])],
            vec![frame(4, 0, &[]); FRAMES_MAX + 1],
        ] {
            assert_eq!(first_request(&stream(&frames)), Start::Malformed);
        }
        let long = stream(&[
            frame(4, 0, &[]),
            [&[0, 0x3f, 0xff, 4, 0, 0, 0, 0, 0][..], &[0; HEAD_BYTES_MAX]].concat(),
        ]);
        assert_eq!(first_request(&long), Start::Malformed);
        // Characters that no host has, and a padding of zeros: the field is passed over.
        for value in [&[0xff, 0xff, 0xff, 0xff][..], &[0x00], &[0xfe, 0x3f]] {
            let mut field = literal(1, b"", value);
            field[1] |= 0x80;
            let bytes = stream(&[frame(1, 4, &field)]);
            assert_eq!(first_request(&bytes), Start::Found(Request::default()));
        }
    }

    /// The table has each code once, and its free entries are those of longer codes.
    #[test]
    fn codes() {
        let known = CODES.iter().filter(|(_, bits)| *bits > 0).count();
        assert_eq!(known, 254, "two prefixes are of codes longer than eight bits");
        assert_eq!(
            unpack(&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff])
                .as_deref(),
            Some(&b"www.example.com"[..])
        );
        assert_eq!(unpack(&[]).as_deref(), Some(&b""[..]));
        assert_eq!(unpack(&[0x07]).as_deref(), Some(&b"0"[..]));
        assert_eq!(unpack(&[0x00, 0x00]), None);
        assert_eq!(unpack(&[0xff]), None);
    }

    proptest! {
        /// Any frames and any fields end in a result; a final result does not change when more
        /// bytes come.
        #[test]
        fn any_bytes(
            frames in prop::collection::vec(
                (prop_oneof![Just(1u8), Just(4), Just(9), any::<u8>()], any::<u8>(), prop::collection::vec(any::<u8>(), 0..60)),
                0..5,
            ),
            tail in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let frames: Vec<Vec<u8>> = frames.iter().map(|(kind, flags, payload)| frame(*kind, *flags, payload)).collect();
            let bytes = [stream(&frames), tail].concat();
            let whole = first_request(&bytes);
            for len in 1..bytes.len() {
                let early = first_request(&bytes[..len]);
                prop_assert!(early == whole || early == Start::NeedMore);
            }
        }

        /// Any string of the known characters is decoded unchanged.
        #[test]
        fn huffman(text in "[a-z0-9:._ A-Z-]{0,60}") {
            let mut bits = String::new();
            for byte in text.bytes() {
                let at = CODES.iter().position(|(known, length)| *known == byte && *length > 0).expect("known");
                bits += &format!("{at:08b}")[..usize::from(CODES[at].1)];
            }
            while !bits.len().is_multiple_of(8) {
                bits.push('1');
            }
            let packed: Vec<u8> = bits
                .as_bytes()
                .chunks(8)
                .map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | (bit - b'0')))
                .collect();
            prop_assert_eq!(unpack(&packed), Some(text.into_bytes()));
        }
    }
}
