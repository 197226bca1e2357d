use std::future::Future;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response};
use larder_http::message::{Chunked, Piece};
use larder_http_tls::{Limits, Trust};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use larder_testkit::wait::PATIENCE;

use super::world::{NAME, World, answer, head, name, origin, plain_origin};

/// Runs a client's scenario.
fn run<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, story).await.unwrap() })
}

async fn connect(world: &World) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(world.tls).await.unwrap();
    let connector = TlsConnector::from(world.config(&["h2", "http/1.1"]));
    let stream = connector.connect(name(), stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async { drop(connection.await) });
    client.ready().await.unwrap()
}

fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("https://{NAME}{path}"))
}

/// Sends a request without a body.
fn send(client: &mut SendRequest<Bytes>, request: http::request::Builder) -> ResponseFuture {
    client.send_request(request.body(()).unwrap(), true).unwrap().0
}

async fn read(mut body: RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut bytes = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        bytes.extend_from_slice(&part);
        let _ = body.flow_control().release_capacity(part.len());
    }
    Ok((bytes, body.trailers().await?))
}

async fn get(client: &mut SendRequest<Bytes>, path: &str) -> Result<Vec<u8>, h2::Error> {
    let response = send(client, request(Method::GET, path)).await?;
    Ok(read(response.into_body()).await?.0)
}

/// A hundred streams request one object during its fetch. All get the complete object, and the
/// origin receives one request. HEAD, conditions and ranges are served from the cached object.
#[test]
fn one_object() {
    let (say, received) = channel::<()>();
    let received = Mutex::new(received);
    let (address, requests) = origin(
        move |_, stream| {
            let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\nContent-Length: 100000\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&[b'a'; 50_000]).unwrap();
            received.lock().unwrap().recv().unwrap();
            stream.write_all(&[b'b'; 50_000]).is_ok()
        },
        None,
    );
    let world = World::start(address);
    run(async {
        let mut client = connect(&world).await;
        let responses: Vec<_> =
            (0..100).map(|_| send(&mut client, request(Method::GET, "/"))).collect();
        let mut bodies = Vec::new();
        for response in responses {
            bodies.push(tokio::spawn(read(response.await.unwrap().into_body())));
        }
        say.send(()).unwrap();
        for body in bodies {
            let body = body.await.unwrap().unwrap().0;
            assert_eq!((body.len(), body[0], body[99_999]), (100_000, b'a', b'b'));
        }
        let response = send(&mut client, request(Method::HEAD, "/")).await.unwrap();
        assert_eq!(response.headers()["content-length"], "100000");
        assert_eq!(read(response.into_body()).await.unwrap().0.len(), 0);
        let sent = request(Method::GET, "/").header("if-none-match", "\"a\"");
        let response = send(&mut client, sent).await.unwrap();
        assert_eq!(response.status(), 304);
        let sent = request(Method::GET, "/").header("range", "bytes=49999-50000");
        let response = send(&mut client, sent).await.unwrap();
        assert_eq!(response.status(), 206);
        assert_eq!(read(response.into_body()).await.unwrap().0, b"ab");
    });
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    assert_eq!(world.count("http2_streams"), 103);
}

/// A client that does not read a long body stops its origin: the bytes sent stay below the windows
/// on the path. The client gets the complete body once it reads. Invariant 2 of `http-tls`.
#[test]
fn slow_reader() {
    const BODY_BYTES: u64 = 64 << 20;
    let sent = Arc::new(AtomicU64::new(0));
    let its = sent.clone();
    let (address, _) = origin(
        move |_, stream| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            while its.load(Ordering::SeqCst) < BODY_BYTES {
                if stream.write_all(&[b'x'; 64 << 10]).is_err() {
                    return false;
                }
                its.fetch_add(64 << 10, Ordering::SeqCst);
            }
            true
        },
        None,
    );
    let world = World::start(address);
    run(async {
        let mut client = connect(&world).await;
        let response = send(&mut client, request(Method::GET, "/")).await.unwrap();
        let mut before = u64::MAX;
        loop {
            let now = sent.load(Ordering::SeqCst);
            if now == before && now > 0 {
                break;
            }
            before = now;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        // The event loop's window is 1 MiB; the loopback's kernel buffers take some more.
        assert!(before < 24 << 20, "{before}");
        let body = read(response.into_body()).await.unwrap().0;
        assert_eq!(body.len() as u64, BODY_BYTES);
    });
}

/// A stream beyond the client limit is refused by a reset that permits a retry. Once the limit has
/// room, the same connection gets its response.
#[test]
fn no_place_for_a_stream() {
    let (address, requests) =
        origin(|_, stream| stream.write_all(answer("", "x").as_bytes()).is_ok(), None);
    let limits = Limits::default();
    let world = World::with(vec![(address, None)], limits, Trust::System, |it| it.clients_max = 1);
    let mut first = world.clear();
    first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(head(&mut first).unwrap().starts_with("HTTP/1.1 200 "));
    run(async {
        let mut client = connect(&world).await;
        let error = get(&mut client, "/").await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::REFUSED_STREAM), "{error}");
        assert_eq!(requests.load(Ordering::SeqCst), 1);
        drop(first);
        // The event loop may not yet have seen the end of the first stream.
        let body = loop {
            match get(&mut client, "/").await {
                Ok(body) => break body,
                Err(error) => assert_eq!(error.reason(), Some(Reason::REFUSED_STREAM), "{error}"),
            }
        };
        assert_eq!(body, b"x");
    });
}

/// An origin that fails in the middle of a body resets the streams that read it, and no others.
/// Nothing of that body is cached. Invariant 1 of `http-tls`.
#[test]
fn cut_bodies() {
    let (address, requests) = origin(
        |head, stream| {
            if head.contains("/whole") {
                return stream.write_all(answer("", "whole").as_bytes()).is_ok();
            }
            let framing = match head.contains("/chunks") {
                true => "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
                false => "Content-Length: 5\r\n\r\nab",
            };
            let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{framing}");
            stream.write_all(head.as_bytes()).unwrap();
            false
        },
        None,
    );
    let world = World::start(address);
    run(async {
        let mut client = connect(&world).await;
        for path in ["/length", "/chunks", "/length"] {
            let error = get(&mut client, path).await.unwrap_err();
            assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{path} {error}");
            assert_eq!(get(&mut client, "/whole").await.unwrap(), b"whole");
        }
    });
    assert_eq!(requests.load(Ordering::SeqCst), 6);
    assert_eq!(world.count("tls_resets"), 3);
    assert_eq!(world.count("http2_connections"), 1);
}

async fn upload(stream: &mut SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
        let part = bytes.split_to(room.unwrap().unwrap().min(bytes.len()));
        stream.send_data(part, false).unwrap();
    }
}

/// Reads a body as its headers frame it: its length, its trailers, and whether it was complete.
fn take_body(head: &str, stream: &mut dyn super::world::Stream) -> (usize, String, bool) {
    if let Some(length) = head.lines().find_map(|it| it.strip_prefix("Content-Length: ")) {
        let length: usize = length.parse().unwrap();
        let mut body = vec![0; length];
        let is_whole = stream.read_exact(&mut body).is_ok();
        return (length, String::new(), is_whole);
    }
    let (mut chunked, mut length, mut room) = (Chunked::new(), 0, vec![0; 64 << 10]);
    loop {
        let Ok(count @ 1..) = stream.read(&mut room) else { return (length, String::new(), false) };
        let mut at = 0;
        loop {
            match chunked.next(&room[at..count]).unwrap() {
                Piece::Data { bytes, consumed } => {
                    length += bytes.len();
                    at += consumed;
                }
                Piece::More { .. } => break,
                Piece::End { .. } => {
                    let trailers = String::from_utf8(chunked.trailers().to_vec()).unwrap();
                    return (length, trailers.replace("\r\n", ","), true);
                }
            }
        }
    }
}

/// Request bodies of any length reach the origin, with and without a Content-Length; trailers pass
/// both ways. A body that its client aborts is also aborted for the origin.
#[test]
fn uploads() {
    const BODY_BYTES: usize = 8 << 20;
    let cuts = Arc::new(AtomicUsize::new(0));
    let its = cuts.clone();
    let (address, requests) = origin(
        move |head, stream| {
            let (bytes, trailers, is_whole) = take_body(head, stream);
            if !is_whole {
                its.fetch_add(1, Ordering::SeqCst);
                return false;
            }
            let text = format!("{bytes} {}", trailers.to_lowercase());
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            let answer = format!("{head}{:x}\r\n{text}\r\n0\r\nX-Sum: 7\r\n\r\n", text.len());
            stream.write_all(answer.as_bytes()).is_ok()
        },
        None,
    );
    let world = World::start(address);
    let bytes = Bytes::from(vec![b'u'; BODY_BYTES]);
    run(async {
        let mut client = connect(&world).await;
        for has_length in [true, false] {
            let mut sent = request(Method::POST, "/").header("te", "trailers");
            if has_length {
                sent = sent.header("content-length", BODY_BYTES);
            }
            let (response, mut stream) =
                client.send_request(sent.body(()).unwrap(), false).unwrap();
            upload(&mut stream, bytes.clone()).await;
            let mut trailers = HeaderMap::new();
            trailers.insert("x-check", "1".parse().unwrap());
            stream.send_trailers(trailers).unwrap();
            let (body, trailers) = read(response.await.unwrap().into_body()).await.unwrap();
            let expected = match has_length {
                true => format!("{BODY_BYTES} "),
                false => format!("{BODY_BYTES} x-check: 1,"),
            };
            assert_eq!(String::from_utf8(body).unwrap(), expected);
            assert_eq!(trailers.unwrap()["x-sum"], "7");
        }
        let sent = request(Method::POST, "/").body(()).unwrap();
        let (response, mut stream) = client.send_request(sent, false).unwrap();
        upload(&mut stream, bytes.slice(..100_000)).await;
        while requests.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stream.send_reset(Reason::CANCEL);
        assert!(response.await.is_err());
    });
    world.until("a cut", |_| cuts.load(Ordering::SeqCst) == 1);
}

/// The response to a GET with a body is for that request alone. A later request for the plain URL
/// gets another response, which is cached.
#[test]
fn content_of_a_get() {
    const FIELDS: &str = "Cache-Control: max-age=600\r\n";
    let (address, requests) = origin(
        |head, stream| {
            let has_content = head.to_ascii_lowercase().contains("\r\ntransfer-encoding: ");
            let text =
                if has_content { take_body(head, stream).0.to_string() } else { "plain".into() };
            stream.write_all(answer(FIELDS, &text).as_bytes()).is_ok()
        },
        None,
    );
    let world = World::start(address);
    run(async {
        let mut client = connect(&world).await;
        for (expected, has_content, text) in
            [(1, true, "4"), (2, false, "plain"), (3, true, "4"), (3, false, "plain")]
        {
            let request = request(Method::GET, "/page").body(()).unwrap();
            let (response, mut stream) = client.send_request(request, !has_content).unwrap();
            if has_content {
                stream.send_data(Bytes::from_static(b"evil"), true).unwrap();
            }
            let (body, _) = read(response.await.unwrap().into_body()).await.unwrap();
            assert_eq!(
                (body.as_slice(), requests.load(Ordering::SeqCst)),
                (text.as_bytes(), expected)
            );
        }
    });
}

/// A client that sends `Expect` gets 100 before its body arrives; the client also receives early
/// hints.
#[test]
fn on_the_way() {
    let (address, _) = origin(
        |head, stream| {
            let (bytes, ..) = take_body(head, stream);
            let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
            let answer = [hints, &answer("", &bytes.to_string())].concat();
            stream.write_all(answer.as_bytes()).is_ok()
        },
        None,
    );
    let world = World::start(address);
    run(async {
        let mut client = connect(&world).await;
        let sent = request(Method::PUT, "/").header("expect", "100-continue");
        let (mut response, mut stream) =
            client.send_request(sent.body(()).unwrap(), false).unwrap();
        let on_the_way = std::future::poll_fn(|context| response.poll_informational(context)).await;
        assert_eq!(on_the_way.unwrap().unwrap().status(), 100);
        upload(&mut stream, Bytes::from_static(b"abc")).await;
        stream.send_data(Bytes::new(), true).unwrap();
        let on_the_way = std::future::poll_fn(|context| response.poll_informational(context)).await;
        let hints: Response<()> = on_the_way.unwrap().unwrap();
        assert_eq!(
            (hints.status().as_u16(), &hints.headers()["link"]),
            (103, &"</a>".parse().unwrap())
        );
        assert_eq!(read(response.await.unwrap().into_body()).await.unwrap().0, b"3");
    });
}

/// Nothing waits for a client that resets its streams or disconnects: the event loops free its
/// entries at once, though the origin never responds. The same holds over HTTP/1.1.
#[test]
fn who_is_gone_is_gone() {
    let (address, _) = origin(
        |head, stream| {
            if head.contains("/never") {
                std::thread::sleep(PATIENCE);
            }
            stream.write_all(answer("", "x").as_bytes()).is_ok()
        },
        None,
    );
    let world = World::start(address);
    let open = |world: &World| world.running().counts().clients_open;
    run(async {
        let mut client = connect(&world).await;
        let never = |client: &mut _, path: &str| send(client, request(Method::GET, path));
        let held: Vec<_> =
            (0..9).map(|it| never(&mut client, &format!("/never{}", it % 3))).collect();
        while open(&world) < 9 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(held);
        while open(&world) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(get(&mut client, "/").await.unwrap(), b"x", "the connection stands");
    });
    let mut other = world.http1(&["http/1.1"]);
    other.write_all(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    other.flush().unwrap();
    world.until("a request", |world| open(world) > 0);
    drop(other);
    world.until("nobody", |world| open(world) == 0);
}

/// An invalid request is refused on its stream alone. A server that ends sends GOAWAY to its
/// clients, after their responses.
#[test]
fn refused_and_sent_away() {
    let (say, received) = channel::<()>();
    let received = Mutex::new(received);
    let (address, held_requests) = origin(
        move |head, stream| {
            if head.contains("/held") {
                received.lock().unwrap().recv().unwrap();
            }
            stream.write_all(answer("", "x").as_bytes()).is_ok()
        },
        None,
    );
    let world = World::start(address);
    run(async {
        let mut client = connect(&world).await;
        let tunnel = Request::builder().method(Method::CONNECT).uri("a.example:443");
        assert_eq!(send(&mut client, tunnel).await.unwrap().status(), 501);
        let other = request(Method::GET, "/").header("host", "other.example");
        let error = send(&mut client, other).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::PROTOCOL_ERROR));
        assert_eq!(get(&mut client, "/").await.unwrap(), b"x");
        let held = send(&mut client, request(Method::GET, "/held"));
        while held_requests.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        world.running().drain();
        say.send(()).unwrap();
        assert_eq!(read(held.await.unwrap().into_body()).await.unwrap().0, b"x");
        // GOAWAY forbids further requests.
        let error = client.ready().await.map(drop).unwrap_err();
        assert_eq!(error.reason(), Some(Reason::NO_ERROR), "{error}");
    });
    world.until("an end", |world| world.count("tls_connections") == 0);
}

/// The server disconnects a client that sends frames that cost work and request nothing, whether it
/// reads or not. A client that pings now and then stays connected.
#[test]
fn floods() {
    let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let ping: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let priority: &[u8] = &[0, 0, 5, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 16];
    let address = plain_origin();
    let world = World::start(address);
    run(async {
        for frame in [settings, ping, priority] {
            for (frames, ends) in [(50, false), (20_000, true)] {
                let stream = TcpStream::connect(world.tls).await.unwrap();
                let connector = TlsConnector::from(world.config(&["h2"]));
                let mut stream = connector.connect(name(), stream).await.unwrap();
                let begin = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", settings].concat();
                let (mut from, mut to) = tokio::io::split(&mut stream);
                let sends = async {
                    let bytes = [begin, frame.repeat(frames)].concat();
                    // The server may close before all is sent.
                    let _ = to.write_all(&bytes).await;
                    // A client that is still served gets a reply to this ping.
                    let _ = to.write_all(&[&ping[..9], b"answered"].concat()).await;
                };
                let reads = async {
                    let (mut all, mut room) = (Vec::new(), [0; 4096]);
                    while !all.windows(8).any(|it| it == b"answered") {
                        match from.read(&mut room).await {
                            Ok(0) | Err(_) => return true,
                            Ok(bytes) => all.extend_from_slice(&room[..bytes]),
                        }
                    }
                    false
                };
                let (has_ended, ()) = tokio::join!(reads, sends);
                assert_eq!(has_ended, ends, "{frames} of {frame:?}");
            }
        }
    });
}
