//! The server name that a TLS client states itself: ClientHello (RFC 8446, section 4.1.2) with the
//! extensions server_name (RFC 6066, section 3), ALPN (RFC 7301) and ECH (RFC 9849).
//!
//! [`client_hello`] reads the first contiguous octets of a client's TCP stream. It answers in a few
//! instructions for anything that is no TLS, and reads record headers only (at most
//! [`RECORDS_MAX`]) until the whole hello is there, so that calling it again after each segment
//! costs little. [`hello_message`] reads the same message without records, as QUIC carries it.
//!
//! Borrowed throughout; only a hello that is spread over several records is copied once.
//!
//! Strict where it matters: a length that does not fit exactly makes the hello [`Hello::Malformed`],
//! and a malformed hello names nothing. What is in a name is not judged here: see
//! [`http::host_name`](crate::http::host_name).

use std::borrow::Cow;

/// Longest ClientHello that is read, octets with its header. Key shares of post-quantum groups
/// make 1.5 to 4 KiB; what is longer than this is no client's.
pub const HELLO_BYTES_MAX: usize = 16 << 10;

/// Most records that one ClientHello may be spread over.
pub const RECORDS_MAX: usize = 64;

const RECORD_HEADER_BYTES: usize = 5;
const RECORD_BYTES_MAX: usize = 1 << 14;
const RECORD_TYPE_HANDSHAKE: u8 = 22;

const MESSAGE_HEADER_BYTES: usize = 4;
const MESSAGE_TYPE_CLIENT_HELLO: u8 = 1;

const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_ALPN: u16 = 16;
const EXTENSION_ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
/// The draft before ECH, which hid the name only (draft-ietf-tls-esni-06).
const EXTENSION_ENCRYPTED_SERVER_NAME: u16 = 0xffce;

const NAME_TYPE_HOST_NAME: u8 = 0;

/// What the first octets of a stream are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello<'a> {
    /// No TLS client speaks here. SSLv2-compatible hellos count as such.
    NotTls,
    /// TLS as far as one can see; the hello continues in octets that are not here yet.
    NeedMore,
    /// The hello, complete.
    Found(ClientHello<'a>),
    /// A ClientHello that contradicts itself, or is longer than we read. It names nothing.
    Malformed,
}

/// What a ClientHello says that is of use here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello<'a> {
    /// The first host_name of server_name, as it came: any octets, any case, never empty.
    pub server_name: Option<Cow<'a, [u8]>>,
    /// The protocol that the client likes best (`h2`, `http/1.1`, `dot`, ...).
    pub alpn_first: Option<Cow<'a, [u8]>>,
    /// An encrypted hello is inside, or octets that look like one: browsers send some to every
    /// server (GREASE). If it is real, `server_name` is the name of the client-facing server.
    pub ech: bool,
}

impl Hello<'_> {
    fn into_owned(self) -> Hello<'static> {
        let own = |octets: Cow<'_, [u8]>| Cow::Owned(octets.into_owned());
        match self {
            Hello::NotTls => Hello::NotTls,
            Hello::NeedMore => Hello::NeedMore,
            Hello::Malformed => Hello::Malformed,
            Hello::Found(hello) => Hello::Found(ClientHello {
                server_name: hello.server_name.map(own),
                alpn_first: hello.alpn_first.map(own),
                ech: hello.ech,
            }),
        }
    }
}

/// Reads the ClientHello at the start of `bytes`, the first contiguous octets of a client's stream
/// (or of a later segment, where a protocol changes to TLS on the way).
#[inline]
pub fn client_hello(bytes: &[u8]) -> Hello<'_> {
    // Most streams are decided here.
    match bytes {
        [RECORD_TYPE_HANDSHAKE, 3, _, _, _, MESSAGE_TYPE_CLIENT_HELLO, ..] => {
            read_records(bytes, Cut::MayContinue)
        }
        [] | [RECORD_TYPE_HANDSHAKE] | [RECORD_TYPE_HANDSHAKE, 3] => Hello::NeedMore,
        [RECORD_TYPE_HANDSHAKE, 3, _, ..] if bytes.len() <= RECORD_HEADER_BYTES => Hello::NeedMore,
        _ => Hello::NotTls,
    }
}

/// Like [`client_hello`], for octets that will get no continuation (a capture with a short snap
/// length, a lost segment): where the hello is cut, what it says before the cut is found.
/// `NeedMore` if that is nothing.
pub fn client_hello_cut(bytes: &[u8]) -> Hello<'_> {
    match client_hello(bytes) {
        Hello::NeedMore if bytes.len() > RECORD_HEADER_BYTES => read_records(bytes, Cut::IsFinal),
        other => other,
    }
}

/// Reads a handshake message without record layer, as in the CRYPTO frames of QUIC (RFC 9001,
/// section 4.1.3). Octets after the message are left alone.
pub fn hello_message(message: &[u8]) -> Hello<'_> {
    match message {
        [MESSAGE_TYPE_CLIENT_HELLO, ..] => read_message(message, Cut::MayContinue),
        [] => Hello::NeedMore,
        _ => Hello::NotTls,
    }
}

/// What it means that octets end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    MayContinue,
    IsFinal,
}

/// The start of a stream of records (RFC 8446, section 5.1).
enum Record<'a> {
    /// One record's fragment, and the octets behind the record.
    Whole(&'a [u8], &'a [u8]),
    /// The octets end inside this record; holds what is here of its fragment.
    Partial(&'a [u8]),
    /// No record, or none of a handshake.
    Foreign,
}

fn next_record(bytes: &[u8]) -> Record<'_> {
    match bytes {
        // Any minor version: 3.0 to 3.4 are all in use as the record's version.
        [RECORD_TYPE_HANDSHAKE, 3, _, high, low, behind @ ..] => {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if length == 0 || length > RECORD_BYTES_MAX {
                return Record::Foreign;
            }
            match behind.split_at_checked(length) {
                Some((fragment, behind)) => Record::Whole(fragment, behind),
                None => Record::Partial(behind),
            }
        }
        [] | [RECORD_TYPE_HANDSHAKE] => Record::Partial(&[]),
        [RECORD_TYPE_HANDSHAKE, 3, ..] if bytes.len() < RECORD_HEADER_BYTES => Record::Partial(&[]),
        _ => Record::Foreign,
    }
}

/// Walks the record headers until the whole message is here, then reads it.
fn read_records(bytes: &[u8], cut: Cut) -> Hello<'_> {
    let mut header = [0; MESSAGE_HEADER_BYTES];
    let mut have = 0;
    let mut rest = bytes;
    for _ in 0..RECORDS_MAX {
        match next_record(rest) {
            Record::Whole(fragment, behind) => {
                header.iter_mut().skip(have).zip(fragment).for_each(|(to, from)| *to = *from);
                have += fragment.len();
                rest = behind;
            }
            Record::Partial(_) if cut == Cut::MayContinue => return Hello::NeedMore,
            Record::Partial(_) => return read_gathered(bytes, HELLO_BYTES_MAX, cut),
            Record::Foreign if have == 0 => return Hello::NotTls,
            Record::Foreign => return Hello::Malformed,
        }
        if have >= MESSAGE_HEADER_BYTES {
            let wanted = message_bytes(header);
            if wanted > HELLO_BYTES_MAX {
                return Hello::Malformed;
            }
            if have >= wanted {
                return read_gathered(bytes, wanted, cut);
            }
        }
    }
    Hello::Malformed
}

/// Reads the first `wanted` octets of the fragments: borrowed if the first record has them all.
fn read_gathered(bytes: &[u8], wanted: usize, cut: Cut) -> Hello<'_> {
    let mut rest = match next_record(bytes) {
        Record::Whole(fragment, _) if fragment.len() >= wanted => {
            return read_message(fragment, cut);
        }
        Record::Partial(fragment) => return read_message(fragment, cut),
        _ => bytes,
    };
    let mut message = Vec::with_capacity(wanted.min(bytes.len()));
    while message.len() < wanted {
        let (fragment, behind) = match next_record(rest) {
            Record::Whole(fragment, behind) => (fragment, behind),
            Record::Partial(fragment) => (fragment, &[][..]),
            Record::Foreign => break,
        };
        message.extend_from_slice(fragment);
        if behind.is_empty() {
            break;
        }
        rest = behind;
    }
    read_message(&message, cut).into_owned()
}

/// Length of a handshake message with its header, by that header.
fn message_bytes(header: [u8; MESSAGE_HEADER_BYTES]) -> usize {
    MESSAGE_HEADER_BYTES + (u32::from_be_bytes(header) & 0x00ff_ffff) as usize
}

fn read_message(message: &[u8], cut: Cut) -> Hello<'_> {
    let Some((header, behind)) = message.split_first_chunk() else { return Hello::NeedMore };
    let wanted = message_bytes(*header);
    if wanted > HELLO_BYTES_MAX {
        return Hello::Malformed;
    }
    let body_bytes = wanted - MESSAGE_HEADER_BYTES;
    let body = &behind[..behind.len().min(body_bytes)];
    if body.len() < body_bytes && cut == Cut::MayContinue {
        return Hello::NeedMore;
    }
    let mut hello = ClientHello::default();
    match read_body(body, body_bytes, &mut hello) {
        Ok(()) => Hello::Found(hello),
        Err(Flaw::Ends) if body.len() < body_bytes => match hello.server_name {
            Some(_) => Hello::Found(hello),
            None => Hello::NeedMore,
        },
        Err(_) => Hello::Malformed,
    }
}

/// Why reading stopped.
enum Flaw {
    /// A field reaches past the octets at hand.
    Ends,
    /// Two lengths contradict each other, or a value is one that no client may send.
    Contradicts,
}

/// Takes fields from the front of octets.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn octets(&mut self, count: usize) -> Result<&'a [u8], Flaw> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Flaw::Ends)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, Flaw> {
        let (&value, rest) = self.0.split_first().ok_or(Flaw::Ends)?;
        self.0 = rest;
        Ok(value)
    }

    fn u16(&mut self) -> Result<u16, Flaw> {
        let (&value, rest) = self.0.split_first_chunk().ok_or(Flaw::Ends)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(value))
    }

    /// A vector whose length takes one octet.
    fn vector8(&mut self) -> Result<&'a [u8], Flaw> {
        let length = self.u8()?;
        self.octets(usize::from(length))
    }

    /// A vector whose length takes two octets.
    fn vector16(&mut self) -> Result<&'a [u8], Flaw> {
        let length = self.u16()?;
        self.octets(usize::from(length))
    }
}

/// Reads a ClientHello of `body_bytes`, of which `body` is here.
fn read_body<'a>(
    body: &'a [u8],
    body_bytes: usize,
    hello: &mut ClientHello<'a>,
) -> Result<(), Flaw> {
    let mut fields = Fields(body);
    let version = fields.u16()?;
    let _random = fields.octets(32)?;
    let session_id = fields.vector8()?;
    let cipher_suites = fields.vector16()?;
    let compression = fields.vector8()?;
    if version >> 8 != 3
        || session_id.len() > 32
        || cipher_suites.is_empty()
        || cipher_suites.len() % 2 != 0
        || compression.is_empty()
    {
        return Err(Flaw::Contradicts);
    }
    // Before TLS 1.3 a hello may end here, without extensions (RFC 5246, section 7.4.1.2).
    let offset = body.len() - fields.0.len();
    if offset == body_bytes {
        return Ok(());
    }
    let length = usize::from(fields.u16()?);
    if offset + 2 + length != body_bytes {
        return Err(Flaw::Contradicts);
    }
    let mut has_server_name = false;
    while body.len() - fields.0.len() < body_bytes {
        let kind = fields.u16()?;
        let data = fields.vector16()?;
        match kind {
            EXTENSION_SERVER_NAME if has_server_name => return Err(Flaw::Contradicts),
            EXTENSION_SERVER_NAME => {
                has_server_name = true;
                hello.server_name = inside(server_name(data))?.map(Cow::Borrowed);
            }
            EXTENSION_ALPN => hello.alpn_first = Some(Cow::Borrowed(inside(alpn_first(data))?)),
            EXTENSION_ENCRYPTED_CLIENT_HELLO | EXTENSION_ENCRYPTED_SERVER_NAME => hello.ech = true,
            _ => {}
        }
    }
    Ok(())
}

/// Inside an extension that is all here, octets that end too soon are a contradiction.
fn inside<T>(result: Result<T, Flaw>) -> Result<T, Flaw> {
    result.map_err(|_| Flaw::Contradicts)
}

/// The first host_name of a ServerNameList. An empty extension, which only servers may send, is
/// sent by some clients as well, and says nothing.
fn server_name(data: &[u8]) -> Result<Option<&[u8]>, Flaw> {
    if data.is_empty() {
        return Ok(None);
    }
    let mut outer = Fields(data);
    let mut list = Fields(outer.vector16()?);
    if !outer.0.is_empty() {
        return Err(Flaw::Contradicts);
    }
    let mut found = None;
    while !list.0.is_empty() {
        let name_type = list.u8()?;
        let name = list.vector16()?;
        if name_type == NAME_TYPE_HOST_NAME && found.is_none() && !name.is_empty() {
            found = Some(name);
        }
    }
    Ok(found)
}

/// The first protocol of a ProtocolNameList.
fn alpn_first(data: &[u8]) -> Result<&[u8], Flaw> {
    let mut outer = Fields(data);
    let mut list = Fields(outer.vector16()?);
    if !outer.0.is_empty() {
        return Err(Flaw::Contradicts);
    }
    list.vector8()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector16(data: &[u8]) -> Vec<u8> {
        [&(data.len() as u16).to_be_bytes(), data].concat()
    }

    fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &vector16(data)].concat()
    }

    fn sni(names: &[(u8, &[u8])]) -> Vec<u8> {
        let list: Vec<u8> = names
            .iter()
            .flat_map(|(kind, name)| [&[*kind][..], &vector16(name)].concat())
            .collect();
        extension(EXTENSION_SERVER_NAME, &vector16(&list))
    }

    fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend_from_slice(&[7; 32]);
        body.extend_from_slice(&[0, 0, 4, 0x0a, 0x0a, 0x13, 0x01, 1, 0]);
        body.extend_from_slice(&vector16(&extensions.concat()));
        [&[1, 0, (body.len() >> 8) as u8, body.len() as u8], &body[..]].concat()
    }

    fn record(fragment: &[u8]) -> Vec<u8> {
        [&[22, 3, 1], &vector16(fragment)[..]].concat()
    }

    fn found(bytes: &[u8]) -> ClientHello<'_> {
        match client_hello(bytes) {
            Hello::Found(hello) => hello,
            other => panic!("{other:?}"),
        }
    }

    fn usual() -> Vec<u8> {
        message(&[
            extension(0x2a2a, &[]),
            extension(EXTENSION_ALPN, b"\0\x0c\x02h2\x08http/1.1"),
            sni(&[(0, b"www.Example.com")]),
            extension(EXTENSION_ENCRYPTED_CLIENT_HELLO, &[0; 100]),
        ])
    }

    /// All that we ask of a hello is found, borrowed, and every prefix of it asks for more.
    #[test]
    fn usual_hello() {
        let bytes = record(&usual());
        let hello = found(&bytes);
        assert!(matches!(hello.server_name, Some(Cow::Borrowed(b"www.Example.com"))));
        assert_eq!(hello.alpn_first.as_deref(), Some(&b"h2"[..]));
        assert!(hello.ech);
        for len in 0..bytes.len() {
            assert_eq!(client_hello(&bytes[..len]), Hello::NeedMore, "{len} octets");
        }
    }

    /// However the message is spread over records, also one octet each, the answer is the same;
    /// too many records are refused.
    #[test]
    fn spread_over_records() {
        let whole = usual();
        for step in [1, 2, 3, 5, 40, 100] {
            let bytes: Vec<u8> = whole.chunks(step).flat_map(record).collect();
            if whole.len().div_ceil(step) > RECORDS_MAX {
                assert_eq!(client_hello(&bytes), Hello::Malformed);
                continue;
            }
            let hello = found(&bytes);
            assert_eq!(hello.server_name.as_deref(), Some(&b"www.Example.com"[..]), "step {step}");
            for len in 0..bytes.len() {
                assert_eq!(client_hello(&bytes[..len]), Hello::NeedMore, "{len} octets");
            }
        }
        let mut mixed = record(&whole[..50]);
        mixed.extend_from_slice(&[23, 3, 3, 0, 1, 0]);
        assert_eq!(client_hello(&mixed), Hello::Malformed);
    }

    /// Where a capture cuts the hello, a name before the cut is found, and none after it.
    #[test]
    fn cut_hello() {
        let name = b"www.Example.com";
        for bytes in [record(&usual()), usual().chunks(70).flat_map(record).collect()] {
            let mut names = 0;
            for len in 0..bytes.len() {
                match client_hello_cut(&bytes[..len]) {
                    Hello::NeedMore => assert_eq!(names, 0),
                    Hello::Found(hello) => {
                        assert_eq!(hello.server_name.as_deref(), Some(&name[..]));
                        names += 1;
                    }
                    other => panic!("{other:?} at {len}"),
                }
            }
            assert!(names >= 100, "the ECH extension follows the name");
        }
    }

    /// What is no client of TLS is told by its first octets.
    #[test]
    fn not_tls() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\x17\x03\x03\x00\x10",
            b"\x16\x03\x01\x00\x40\x02\x00\x00\x3c",
            b"\x16\x02\x01",
            b"\x16\x03\x01\x00\x00\x01",
            b"\x16\x03\x01\xff\xff\x01",
            b"\x80\x2e\x01\x03\x01",
        ] {
            assert_eq!(client_hello(bytes), Hello::NotTls, "{bytes:x?}");
        }
    }

    /// Only host_name names; the first of several counts; an empty extension is no name.
    #[test]
    fn server_names() {
        let first =
            record(&message(&[sni(&[(9, b"other"), (0, b"a.example"), (0, b"b.example")])]));
        assert_eq!(found(&first).server_name.as_deref(), Some(&b"a.example"[..]));
        for none in [message(&[]), message(&[extension(0, &[])]), message(&[sni(&[(1, b"x")])])] {
            assert_eq!(found(&record(&none)).server_name, None);
        }
    }

    /// Lengths that contradict each other, and two names that do, name nothing.
    #[test]
    fn contradictions() {
        let mut long_list = sni(&[(0, b"a.example")]);
        long_list[5] += 1;
        let mut long_name = sni(&[(0, b"a.example")]);
        long_name[8] += 1;
        let mut odd_suites = message(&[sni(&[(0, b"a.example")])]);
        odd_suites[40] = 3;
        let mut trailing = message(&[sni(&[(0, b"a.example")])]);
        trailing.push(0);
        trailing[3] += 1;
        for bytes in [
            message(&[long_list]),
            message(&[long_name]),
            message(&[sni(&[(0, b"a.example")]), sni(&[(0, b"b.example")])]),
            message(&[extension(EXTENSION_ALPN, &[])]),
            odd_suites,
            trailing,
            vec![1, 0, 0x40, 0, 3, 3],
        ] {
            assert_eq!(client_hello(&record(&bytes)), Hello::Malformed, "{bytes:x?}");
        }
    }

    /// A hello of old, without extensions, is one without a name.
    #[test]
    fn no_extensions() {
        let whole = message(&[]);
        let mut bytes = whole[..whole.len() - 2].to_vec();
        bytes[3] -= 2;
        assert_eq!(found(&record(&bytes)), ClientHello::default());
        assert_eq!(hello_message(&bytes), Hello::Found(ClientHello::default()));
        assert_eq!(hello_message(&bytes[..9]), Hello::NeedMore);
        assert_eq!(hello_message(&[2, 0, 0, 0]), Hello::NotTls);
    }
}
