//! DNS over HTTPS.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Request, Response};
use larder_dns::dnstap::Protocol;
use larder_dns_tls::Limits;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use larder_testkit::wait::PATIENCE;

use crate::world::{HUGE_BYTES, PADDING, World, answers, impatient, query, server_name};

const MEDIA_TYPE: &str = "application/dns-message";

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

struct Client {
    requests: SendRequest<Bytes>,
    /// The task ends with the connection.
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    async fn connect(world: &World, alpn: &[&str], window_bytes: u32) -> io::Result<Client> {
        let socket = TcpStream::connect(world.https()).await?;
        let connector = TlsConnector::from(world.client(alpn));
        let stream = connector.connect(server_name(), socket).await?;
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window_bytes);
        let (requests, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        Ok(Client { requests, connection: tokio::spawn(connection) })
    }

    async fn begin(
        &mut self,
        request: Request<()>,
        is_over: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let mut ready = self.requests.clone().ready().await.unwrap();
        ready.send_request(request, is_over).unwrap()
    }

    async fn post(&mut self, body: Vec<u8>) -> Result<(Response<()>, Vec<u8>), h2::Error> {
        let (response, mut stream) = self.begin(request(Method::POST, "/dns-query"), false).await;
        // The server may have responded, and closed, before the client sent all.
        let _ = stream.send_data(body.into(), true);
        read(response).await
    }
}

fn request(method: Method, target: &str) -> Request<()> {
    let uri = format!("https://dns.example{target}");
    Request::builder().method(method).uri(uri).header(CONTENT_TYPE, MEDIA_TYPE).body(()).unwrap()
}

async fn read(response: ResponseFuture) -> Result<(Response<()>, Vec<u8>), h2::Error> {
    let whole = async {
        let (head, mut body) = response.await?.into_parts();
        let mut bytes = Vec::new();
        while let Some(part) = body.data().await {
            let part = part?;
            bytes.extend_from_slice(&part);
            body.flow_control().release_capacity(part.len())?;
        }
        Ok((Response::from_parts(head, ()), bytes))
    };
    timeout(PATIENCE, whole).await.expect("it is answered")
}

/// Queries by POST and GET get responses with content type, length and age, padded if the query
/// was. The core receives their transport.
#[test]
fn post_and_get() {
    let world = World::start(Limits::default());
    runtime().block_on(async {
        let mut client = Client::connect(&world, &["h2"], 65_535).await.unwrap();
        for options in [b"", PADDING] {
            let query = query(0, "some", options);
            let target = format!("/dns-query?dns={}", URL_SAFE_NO_PAD.encode(&query));
            let (by_get, _) = client.begin(request(Method::GET, &target), true).await;
            for response in [client.post(query.clone()).await, read(by_get).await] {
                let (head, body) = response.unwrap();
                assert_eq!(head.status(), 200);
                assert!(answers(&query, &body));
                assert_eq!(body.len() % 468 == 0, !options.is_empty());
                assert_eq!(head.headers()[CONTENT_TYPE], MEDIA_TYPE);
                assert_eq!(head.headers()[CONTENT_LENGTH], body.len().to_string());
                assert_eq!(head.headers()[CACHE_CONTROL], "max-age=60");
            }
        }
    });
    assert_eq!(*world.last.lock().unwrap(), Some(([127, 0, 0, 1].into(), Protocol::Https)));
}

/// An invalid request gets its status, and the connection stays open.
#[test]
fn statuses() {
    let world = World::start(Limits::default());
    runtime().block_on(async {
        let mut client = Client::connect(&world, &["h2"], 65_535).await.unwrap();
        let good = query(0, "some", b"");
        let get = |target: &str| request(Method::GET, target);
        let mut wrong_type = request(Method::POST, "/dns-query");
        wrong_type.headers_mut().insert(CONTENT_TYPE, "application/dns-json".parse().unwrap());
        for (request, status) in [
            (get("/"), 404),
            (get("/dns-query/"), 404),
            (get("/dns-query"), 400),
            (get("/dns-query?dns=!"), 400),
            (get("/dns-query?dns=AAAA"), 400),
            (request(Method::PUT, "/dns-query"), 405),
            (request(Method::HEAD, "/dns-query"), 405),
            (wrong_type, 415),
        ] {
            let (response, _) = client.begin(request, true).await;
            let (head, body) = read(response).await.unwrap();
            assert_eq!((head.status().as_u16(), body.len()), (status, 0));
            assert_eq!(head.headers().contains_key(ALLOW), status == 405);
        }
        assert_eq!(client.post(vec![0; 65_536]).await.unwrap().0.status(), 413);
        assert_eq!(client.post(vec![]).await.unwrap().0.status(), 400);
        let mut answer = good.clone();
        answer[2] |= 0x80;
        assert_eq!(client.post(answer).await.unwrap().0.status(), 400);
        let none = client.post(query(0, "none", b"")).await.unwrap_err();
        assert_eq!(none.reason(), Some(Reason::REFUSED_STREAM));
        let (head, body) = client.post(good.clone()).await.unwrap();
        assert!(head.status() == 200 && answers(&good, &body));
    });
    assert_eq!(world.count("encrypted_violations", "https"), 11);
}

/// A hundred queries wait at the same time and get responses in any order. A huge response is
/// streamed through a small window.
#[test]
fn streams_at_once() {
    let world = World::start(Limits::default());
    runtime().block_on(async {
        let mut client = Client::connect(&world, &["h2"], 1_000).await.unwrap();
        let mut waiting = Vec::new();
        for id in 0..99 {
            let (response, mut stream) =
                client.begin(request(Method::POST, "/dns-query"), false).await;
            stream.send_data(query(id, "hold", b"").into(), true).unwrap();
            waiting.push((id, tokio::spawn(read(response))));
        }
        world.held(99).await;
        let (head, body) = client.post(query(0, "huge", b"")).await.unwrap();
        assert_eq!((head.status().as_u16(), body.len()), (200, HUGE_BYTES));
        for (id, response) in waiting {
            let (_, body) = response.await.unwrap().unwrap();
            assert!(answers(&query(id, "hold", b""), &body));
        }
    });
}

/// A body that does not arrive gets 408. A response that the client does not receive resets its
/// stream. A connection without requests gets GOAWAY, and is closed. The server frees the memory of
/// each.
#[test]
fn slow_clients() {
    let world = World::start(impatient());
    runtime().block_on(async {
        let mut client = Client::connect(&world, &["h2"], 1_000).await.unwrap();
        let (response, _open) = client.begin(request(Method::POST, "/dns-query"), false).await;
        assert_eq!(read(response).await.unwrap().0.status(), 408);
        let (response, mut stream) = client.begin(request(Method::POST, "/dns-query"), false).await;
        stream.send_data(query(0, "huge", b"").into(), true).unwrap();
        let mut body = timeout(PATIENCE, response).await.unwrap().unwrap().into_body();
        let mut read = 0;
        let reset = loop {
            // The client never opens its window again.
            match timeout(PATIENCE, body.data()).await.unwrap().unwrap() {
                Ok(part) => read += part.len(),
                Err(error) => break error,
            }
        };
        assert!(read < HUGE_BYTES && reset.reason() == Some(Reason::CANCEL), "{reset}");
        drop((body, client.requests));
        // The client's result depends on timing.
        let _ = timeout(PATIENCE, client.connection).await.unwrap().unwrap();
    });
    assert_eq!(world.count("encrypted_timeouts", "https"), 2);
    world.await_count("encrypted_connections", "", 0);
    world.await_count("encrypted_unsent_bytes", "", 0);
}

/// Streams that a client opens and resets at once do not accumulate, and the server serves other
/// connections.
#[test]
fn resets_in_a_flood() {
    let world = World::start(Limits::default());
    runtime().block_on(async {
        let rude = Client::connect(&world, &["h2"], 65_535).await.unwrap();
        for _ in 0..2_000 {
            let Ok(mut ready) = rude.requests.clone().ready().await else { break };
            let request = request(Method::POST, "/dns-query");
            let Ok((_, mut stream)) = ready.send_request(request, false) else { break };
            let _ = stream.send_data(query(0, "hold", b"").into(), true);
            stream.send_reset(Reason::CANCEL);
            tokio::task::yield_now().await;
        }
        let mut polite = Client::connect(&world, &["h2"], 65_535).await.unwrap();
        let some = query(0, "some", b"");
        let (_, body) = polite.post(some.clone()).await.unwrap();
        assert!(answers(&some, &body));
    });
    world.await_count("encrypted_connections", "", 0);
}

/// The handshake refuses a client that offers only HTTP/1.1. Bytes that are not HTTP end the
/// connection. The server closes a client that sends nothing after its handshake.
#[test]
fn other_protocols() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = World::start(Limits { handshake: impatient().handshake, ..Limits::default() });
    runtime().block_on(async {
        assert!(Client::connect(&world, &["http/1.1"], 65_535).await.is_err());
        for first in [&b"GET /dns-query HTTP/1.1\r\nHost: dns.example\r\n\r\n"[..], b""] {
            let socket = TcpStream::connect(world.https()).await.unwrap();
            let connector = TlsConnector::from(world.client(&[]));
            let mut stream = connector.connect(server_name(), socket).await.unwrap();
            stream.write_all(first).await.unwrap();
            let mut rest = Vec::new();
            let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it ends");
            assert!(!rest.starts_with(b"HTTP"));
        }
    });
    world.await_count("encrypted_handshakes_failed", "https", 3);
}

/// When the server ends, a waiting request gets its response, and the connection then ends without
/// an error.
#[test]
fn drains() {
    let mut world = World::start(Limits::default());
    runtime().block_on(async {
        let mut client = Client::connect(&world, &["h2"], 65_535).await.unwrap();
        let held = query(0, "hold", b"");
        let (response, mut stream) = client.begin(request(Method::POST, "/dns-query"), false).await;
        stream.send_data(held.clone().into(), true).unwrap();
        let response = tokio::spawn(read(response));
        world.held(1).await;
        world.drain();
        world.release();
        assert!(answers(&held, &response.await.unwrap().unwrap().1));
        timeout(PATIENCE, client.connection).await.unwrap().unwrap().unwrap();
    });
    world.finish();
}
