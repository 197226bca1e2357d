//! The server name that a TLS client states itself: ClientHello (RFC 8446, section 4.1.2) with the
//! extensions server_name (RFC 6066, section 3), ALPN (RFC 7301) and ECH (RFC 9849).
//!
//! [`client_hello`] reads the first contiguous bytes of a client's TCP stream. It returns after a
//! few instructions for anything that is no TLS, and reads only record headers (at most
//! [`RECORDS_MAX`]) until the whole hello is there. So calling it again after each segment costs
//! little. [`hello_message`] reads the same message without records, as QUIC carries it.
//!
//! Borrowed throughout; only a hello that is spread over several records is copied once.
//!
//! Strict where it matters: a length that does not fit exactly makes the hello
//! [`Hello::Malformed`], and a malformed hello names nothing. The bytes of a name are not checked
//! here: see [`http::host_name`](crate::http::host_name).

#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;

/// Longest ClientHello that is read, bytes with its header. Key shares of post-quantum groups make
/// 1.5 to 4 KiB; no client sends a longer one than this.
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

/// The kind of a stream, by its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello<'a> {
    /// The stream is not of a TLS client. SSLv2-compatible hellos count as such.
    NotTls,
    /// TLS as far as one can see; the hello continues in bytes that are not here yet.
    NeedMore,
    /// The hello, complete.
    Found(ClientHello<'a>),
    /// A ClientHello that contradicts itself, or is longer than we read. It names nothing.
    Malformed,
}

/// The used fields of a ClientHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello<'a> {
    /// The first host_name of server_name, as received: any bytes, any case, never empty.
    pub server_name: Option<Cow<'a, [u8]>>,
    /// The protocol that the client likes best (`h2`, `http/1.1`, `dot`, ...), never empty.
    pub alpn_first: Option<Cow<'a, [u8]>>,
    /// An encrypted hello is inside, or bytes that look like one: browsers send some to every
    /// server (GREASE). If it is real, `server_name` is the name of the client-facing server.
    pub ech: bool,
}

impl Hello<'_> {
    pub(crate) fn into_owned(self) -> Hello<'static> {
        let own = |bytes: Cow<'_, [u8]>| Cow::Owned(bytes.into_owned());
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

/// Reads the ClientHello at the start of `bytes`, the first contiguous bytes of a client's stream
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

/// Like [`client_hello`], for bytes that get no continuation (a capture with a short snap length, a
/// lost segment): fields before the cut are found. `NeedMore` if there are none.
pub fn client_hello_cut(bytes: &[u8]) -> Hello<'_> {
    match client_hello(bytes) {
        Hello::NeedMore if bytes.len() > RECORD_HEADER_BYTES => read_records(bytes, Cut::IsFinal),
        other => other,
    }
}

/// Reads a handshake message without record layer, as in the CRYPTO frames of QUIC (RFC 9001,
/// section 4.1.3). Bytes after the message are ignored.
pub fn hello_message(message: &[u8]) -> Hello<'_> {
    match message {
        [MESSAGE_TYPE_CLIENT_HELLO, ..] => read_message(message, Cut::MayContinue),
        [] => Hello::NeedMore,
        _ => Hello::NotTls,
    }
}

/// The meaning of the end of the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    MayContinue,
    IsFinal,
}

/// The start of a stream of records (RFC 8446, section 5.1).
enum Record<'a> {
    /// One record's fragment, and the bytes behind the record.
    Whole(&'a [u8], &'a [u8]),
    /// The bytes end inside this record; holds the received part of its fragment.
    Partial(&'a [u8]),
    /// No record, or no handshake record.
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

/// Reads the first `wanted` bytes of the fragments: borrowed if the first record has them all.
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
    hello_body(body, body_bytes, Form::Tls)
}

/// TLS or DTLS, whose ClientHello has one field more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Tls,
    Dtls,
}

/// Reads the body of a ClientHello, which has `body_bytes` by its header.
pub(crate) fn hello_body(body: &[u8], body_bytes: usize, form: Form) -> Hello<'_> {
    let mut hello = ClientHello::default();
    match read_body(body, body_bytes, form, &mut hello) {
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
    /// A field reaches past the bytes at hand.
    Ends,
    /// Two lengths contradict each other, or a value is one that no client may send.
    Contradicts,
}

/// Takes fields from the front of bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Flaw> {
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

    /// A vector whose length takes one byte.
    fn vector8(&mut self) -> Result<&'a [u8], Flaw> {
        let length = self.u8()?;
        self.bytes(usize::from(length))
    }

    /// A vector whose length takes two bytes.
    fn vector16(&mut self) -> Result<&'a [u8], Flaw> {
        let length = self.u16()?;
        self.bytes(usize::from(length))
    }
}

/// Reads a ClientHello of `body_bytes`, of which `body` is here.
fn read_body<'a>(
    body: &'a [u8],
    body_bytes: usize,
    form: Form,
    hello: &mut ClientHello<'a>,
) -> Result<(), Flaw> {
    let mut fields = Fields(body);
    let version = fields.u16()?;
    let _random = fields.bytes(32)?;
    let session_id = fields.vector8()?;
    if form == Form::Dtls {
        let _cookie = fields.vector8()?;
    }
    let cipher_suites = fields.vector16()?;
    let compression = fields.vector8()?;
    let major = version >> 8;
    // OpenSSL before 0.9.8f had its own DTLS version, 1.0.
    let is_version = match form {
        Form::Tls => major == 3,
        Form::Dtls => major == 0xfe || version == 0x0100,
    };
    if !is_version
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

/// Inside an extension that is all here, bytes that end too soon are a contradiction.
fn inside<T>(result: Result<T, Flaw>) -> Result<T, Flaw> {
    result.map_err(|_| Flaw::Contradicts)
}

/// The first host_name of a ServerNameList. Some clients send an empty extension, which only
/// servers may send; it has no meaning.
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

/// The first protocol of a ProtocolNameList. Neither the list nor its protocols may be empty
/// (RFC 7301, section 3.1).
fn alpn_first(data: &[u8]) -> Result<&[u8], Flaw> {
    let mut outer = Fields(data);
    let mut list = Fields(outer.vector16()?);
    if !outer.0.is_empty() {
        return Err(Flaw::Contradicts);
    }
    match list.vector8()? {
        [] => Err(Flaw::Contradicts),
        first => Ok(first),
    }
}
