//! A small HTTP/1.1 client for other programs of this kind: one GET, whose body is read as it
//! arrives.
//!
//! ```text
//! get(place, ..)     connects, sends the request, reads the headers; an error says what to do next
//! Response: Read     the body, up to its end; a body that was cut is an error, never an end
//! ```
//!
//! Bounds: `HEAD_BYTES_MAX` of headers; every wait for the server is limited by the time that the
//! caller gives. Redirects are not followed. There is no TLS.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes of the headers of a response.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Header fields of a response.
const FIELDS_MAX: usize = 64;

/// Bytes of the text of a response that reports an error.
const TEXT_BYTES_MAX: u64 = 4 << 10;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `host:port`.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Place {
    /// Reads `host:port`, `http://host:port` or `unix:PATH`.
    pub fn parse(text: &str) -> Option<Place> {
        if let Some(path) = text.strip_prefix("unix:") {
            return (!path.is_empty()).then(|| Place::Unix(path.into()));
        }
        let text = text.strip_prefix("http://").unwrap_or(text);
        let text = text.strip_suffix('/').unwrap_or(text);
        let (host, port) = text.rsplit_once(':')?;
        let is_host = !host.is_empty()
            && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'))
            && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@\"".contains(&byte));
        (is_host && port.parse::<u16>().is_ok()).then(|| Place::Tcp(text.to_owned()))
    }
}

/// The bytes of the server.
trait Stream: Read + Write + Send {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// A response, of which the headers were read.
pub struct Response {
    /// The status code.
    pub status: u16,
    reader: BufReader<Box<dyn Stream>>,
    framing: Framing,
}

/// What ends the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// Bytes that are left.
    Length(u64),
    /// Bytes that are left of a chunk; another follows.
    Chunk(u64),
    /// The end of the connection.
    Close,
    End,
}

/// Sends `GET target`; every wait takes at most `wait`. The target is a path with its query, in
/// ASCII without spaces.
pub fn get(
    place: &Place,
    target: &str,
    token: Option<&[u8]>,
    wait: Duration,
) -> io::Result<Response> {
    let (mut stream, host) = connect(place, wait)?;
    let mut request =
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n").into_bytes();
    if let Some(token) = token {
        request.extend_from_slice(b"Authorization: Bearer ");
        request.extend_from_slice(token);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).map_err(timed_out)?;
    let mut reader = BufReader::with_capacity(64 << 10, stream);
    let (status, framing) = read_head(&mut reader)?;
    Ok(Response { status, reader, framing })
}

fn connect(place: &Place, wait: Duration) -> io::Result<(Box<dyn Stream>, String)> {
    match place {
        Place::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(wait))?;
            stream.set_write_timeout(Some(wait))?;
            Ok((Box::new(stream), "localhost".to_owned()))
        }
        Place::Tcp(host) => {
            let started = Instant::now();
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in host.to_socket_addrs()? {
                let left = wait.saturating_sub(started.elapsed()).max(Duration::from_millis(1));
                match TcpStream::connect_timeout(&address, left) {
                    Ok(stream) => {
                        stream.set_read_timeout(Some(wait))?;
                        stream.set_write_timeout(Some(wait))?;
                        return Ok((Box::new(stream), host.clone()));
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

/// A socket whose wait is over says that it would block.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "no response in time"),
        _ => error,
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn read_head(reader: &mut impl BufRead) -> io::Result<(u16, Framing)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let left = (HEAD_BYTES_MAX - head.len()) as u64;
        let read = reader.by_ref().take(left).read_until(b'\n', &mut head).map_err(timed_out)?;
        if read == 0 && left > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "no complete response"));
        }
        if read == 0 {
            return Err(invalid("headers of a response are too long"));
        }
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let is_whole = response.parse(&head).is_ok_and(|parsed| parsed.is_complete());
    let Some(status) = response.code.filter(|_| is_whole) else {
        return Err(invalid("no response of HTTP/1"));
    };
    let mut framing = Framing::Close;
    for field in response.headers.iter() {
        let value = str::from_utf8(field.value).unwrap_or_default().trim();
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(invalid("a transfer coding that is not chunked"));
            }
            framing = Framing::Chunk(0);
        } else if field.name.eq_ignore_ascii_case("content-length") && framing == Framing::Close {
            let length = value.parse().map_err(|_| invalid("no valid Content-Length"))?;
            framing = Framing::Length(length);
        }
    }
    if status == 204 || status == 304 {
        framing = Framing::End;
    }
    Ok((status, framing))
}

impl Response {
    /// The beginning of the body as text, for a message about an error.
    pub fn text(self) -> String {
        let mut bytes = Vec::new();
        // What was received before an error is better than nothing.
        let _ = self.take(TEXT_BYTES_MAX).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }

    /// The length of the next chunk; 0: the last one.
    fn next_chunk(&mut self) -> io::Result<u64> {
        let mut line = Vec::new();
        self.reader.by_ref().take(32).read_until(b'\n', &mut line)?;
        let text = str::from_utf8(&line).unwrap_or_default().trim_end();
        let text = text.split(';').next().unwrap_or_default();
        match u64::from_str_radix(text, 16) {
            Ok(bytes) if line.ends_with(b"\n") => Ok(bytes),
            _ => Err(cut()),
        }
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the response was cut")
}

impl Read for Response {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.framing == Framing::Chunk(0) {
            let bytes = self.next_chunk().map_err(timed_out)?;
            self.framing = if bytes == 0 { Framing::End } else { Framing::Chunk(bytes) };
        }
        let left = match self.framing {
            Framing::End | Framing::Length(0) => return Ok(0),
            Framing::Length(left) | Framing::Chunk(left) => left,
            Framing::Close => u64::MAX,
        };
        let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.reader.read(&mut buffer[..room]).map_err(timed_out)?;
        let left = left - read as u64;
        match &mut self.framing {
            Framing::Length(of) => *of = left,
            Framing::Chunk(of) => *of = left,
            _ => return Ok(read),
        }
        if read == 0 {
            return Err(cut());
        }
        if self.framing == Framing::Chunk(0) {
            // The end of the line behind the chunk.
            let mut end = [0; 2];
            self.reader.read_exact(&mut end).map_err(timed_out)?;
            if end != *b"\r\n" {
                return Err(invalid("a chunk without its end"));
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// The body of a response that a server sends in these pieces, or the error.
    fn received(pieces: &[&[u8]]) -> io::Result<(u16, Vec<u8>)> {
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let server = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let mut read = 0;
            while !request[..read].ends_with(b"\r\n\r\n") {
                read += socket.read(&mut request[read..]).unwrap();
            }
            for piece in pieces {
                // The client may have seen enough.
                let _ = socket.write_all(&piece);
            }
            String::from_utf8(request[..read].to_vec()).unwrap()
        });
        let result = get(&place, "/x?y=1", Some(b"secret"), Duration::from_secs(20));
        let result = result.and_then(|mut response| {
            let mut body = Vec::new();
            response.read_to_end(&mut body).map(|_| (response.status, body))
        });
        let request = server.join().unwrap();
        assert!(request.starts_with("GET /x?y=1 HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
        assert!(request.contains("\r\nAuthorization: Bearer secret\r\n"), "{request}");
        result
    }

    /// Bodies with a length, in chunks, and up to the end of the connection are read whole.
    #[test]
    fn bodies_are_read_to_their_end() {
        for pieces in [
            &[&b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world, and more"[..]][..],
            &[
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: ch",
                b"unked\r\n\r\n6\r\nhello ",
                b"\r\n5;x=1\r\nworld\r\n0\r\n\r\n",
            ],
            &[b"HTTP/1.0 200 OK\r\n\r\nhello", b" world"],
        ] {
            let (status, body) = received(pieces).unwrap();
            assert_eq!((status, &body[..]), (200, &b"hello world"[..]));
        }
        assert_eq!(received(&[b"HTTP/1.1 204 No Content\r\n\r\n"]).unwrap(), (204, Vec::new()));
    }

    /// A body that is cut is an error, and so is what is no response.
    #[test]
    fn cut_bodies_are_errors() {
        for pieces in [
            &[&b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello world"[..]][..],
            &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello \r\n"],
            &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello world\r\n0\r\n"],
            &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"],
            &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"],
            &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"],
            &[b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"],
            &[b"HTTP/1.1 200 OK\r\nContent-Le"],
            &[b"220 mail.example ESMTP\r\n\r\n"],
            &[],
        ] {
            assert!(received(pieces).is_err(), "{pieces:?}");
        }
        let long = vec![b'a'; 100 << 10];
        assert!(received(&[b"HTTP/1.1 200 OK\r\nA: ", &long, b"\r\n\r\n"]).is_err());
    }

    /// A server that does not respond costs the time that the caller gives, and no more.
    #[test]
    fn a_silent_server_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let error = get(&place, "/", None, Duration::from_millis(50)).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }

    /// The forms of an address.
    #[test]
    fn places() {
        let tcp = |text: &str| Some(Place::Tcp(text.to_owned()));
        assert_eq!(Place::parse("sensor1:8053"), tcp("sensor1:8053"));
        assert_eq!(Place::parse("http://192.0.2.1:80/"), tcp("192.0.2.1:80"));
        assert_eq!(Place::parse("[2001:db8::1]:80"), tcp("[2001:db8::1]:80"));
        assert_eq!(Place::parse("unix:/run/x"), Some(Place::Unix("/run/x".into())));
        for text in ["", "sensor1", "a:99999", ":80", "unix:", "https://a:1", "a b:1", "::1:80"] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }
}
