//! The first messages of TLS clients, byte by byte.

/// Bytes after their 16-bit length.
pub fn vector16(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

/// An extension.
pub fn extension(kind: u16, bytes: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector16(bytes)].concat()
}

/// The server_name extension, with the type of each name (0: a host).
pub fn server_names(names: &[(u8, &[u8])]) -> Vec<u8> {
    let entry = |(kind, name): &(u8, &[u8])| [&[*kind][..], &vector16(name)].concat();
    extension(0, &vector16(&names.iter().flat_map(entry).collect::<Vec<_>>()))
}

/// The body of a ClientHello. `middle` is what stands between the random bytes and the extensions:
/// the session ID, the cipher suites, the compression methods.
pub fn hello_body(version: [u8; 2], middle: &[u8], extensions: &[Vec<u8>]) -> Vec<u8> {
    [&version[..], &[9; 32], middle, &vector16(&extensions.concat())].concat()
}

/// A handshake message of this type (1: ClientHello).
pub fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 0][..], &vector16(body)].concat()
}

/// A record of handshake messages, or part of one.
pub fn record(bytes: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &vector16(bytes)].concat()
}

/// A record with a ClientHello of TLS 1.3 that names a server. It has the extension of an encrypted
/// ClientHello if `has_encrypted`.
pub fn hello(name: &[u8], has_encrypted: bool) -> Vec<u8> {
    let mut extensions = vec![server_names(&[(0, name)])];
    if has_encrypted {
        extensions.push(extension(0xfe0d, &vector16(&[7; 50])));
    }
    record(&handshake(1, &hello_body([3, 3], &[0, 0, 2, 0x13, 1, 1, 0], &extensions)))
}
