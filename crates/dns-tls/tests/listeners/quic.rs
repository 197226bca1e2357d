//! DNS over QUIC.

use std::net::SocketAddr;
use std::sync::Arc;

use larder_dns::dnstap::Protocol;
use larder_dns_tls::Limits;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ApplicationClose, ClientConfig, Connection, ConnectionError, Endpoint, ReadToEndError,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use larder_testkit::dns::framed;
use larder_testkit::wait::PATIENCE;

use crate::world::{HUGE_BYTES, NAME, PADDING, World, answers, impatient, query};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A connection, with its endpoint.
async fn connect(world: &World, alpn: &[&str]) -> Result<(Endpoint, Connection), ConnectionError> {
    let endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let tls = (*world.client(alpn)).clone();
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let connecting = endpoint.connect_with(config, world.quic(), NAME).unwrap();
    let connection = timeout(PATIENCE, connecting).await.expect("it ends")?;
    Ok((endpoint, connection))
}

/// Sends bytes on a new stream, and reads the response.
async fn query_stream(connection: &Connection, bytes: &[u8]) -> Result<Vec<u8>, ReadToEndError> {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    // The server may have reset the stream before all was sent.
    let _ = send.write_all(bytes).await;
    let _ = send.finish();
    timeout(PATIENCE, receive.read_to_end(1 << 20)).await.expect("it ends")
}

/// Sends a query that the core holds until the test releases it. Returns the query, and the task
/// that waits for its response.
async fn query_held(world: &World, connection: &Connection) -> (Vec<u8>, JoinHandle<Vec<u8>>) {
    let held = query(0, "hold", b"");
    let (connection, bytes) = (connection.clone(), framed(&held));
    let waiting = tokio::spawn(async move { query_stream(&connection, &bytes).await.unwrap() });
    world.held(1).await;
    (held, waiting)
}

async fn closed_with(connection: &Connection) -> u64 {
    match timeout(PATIENCE, connection.closed()).await.expect("it ends") {
        ConnectionError::ApplicationClosed(ApplicationClose { error_code, .. }) => {
            error_code.into_inner()
        }
        other => panic!("{other}"),
    }
}

/// Queries on separate streams get responses in any order, also huge and padded ones. The core
/// receives their transport.
#[test]
fn queries() {
    let world = World::start(Limits::default());
    runtime().block_on(async {
        let (_endpoint, connection) = connect(&world, &["doq"]).await.unwrap();
        let (held, waiting) = query_held(&world, &connection).await;
        for (label, options, bytes) in
            [("huge", &b""[..], HUGE_BYTES), ("some", PADDING, 468), ("some", b"", 57)]
        {
            let query = query(0, label, options);
            let response = query_stream(&connection, &framed(&query)).await.unwrap();
            assert_eq!(
                usize::from(u16::from_be_bytes([response[0], response[1]])),
                response.len() - 2
            );
            assert!(answers(&query, &response[2..]));
            assert_eq!(response.len() - 2, bytes);
        }
        assert!(answers(&held, &waiting.await.unwrap()[2..]));
    });
    assert_eq!(*world.last.lock().unwrap(), Some(([127, 0, 0, 1].into(), Protocol::Quic)));
}

/// Each fatal error of RFC 9250 closes the connection with its code, and the server keeps running.
#[test]
fn fatal_errors() {
    let world = World::start(Limits::default());
    let good = framed(&query(0, "some", b""));
    let mut short = good.clone();
    short[1] -= 1;
    let wrong = [
        framed(&query(1, "some", b"")),
        [good.clone(), good.clone()].concat(),
        short,
        good[..good.len() - 1].to_vec(),
        framed(&query(0, "some", b"\0\x0b\0\0")),
        vec![],
        vec![0],
        vec![0, 0],
        vec![0xff; 70_000],
    ];
    runtime().block_on(async {
        for bytes in &wrong {
            let (_endpoint, connection) = connect(&world, &["doq"]).await.unwrap();
            assert!(query_stream(&connection, bytes).await.is_err());
            assert_eq!(closed_with(&connection).await, 2, "DOQ_PROTOCOL_ERROR");
        }
        let (_endpoint, connection) = connect(&world, &["doq"]).await.unwrap();
        assert!(query_stream(&connection, &good).await.is_ok());
        // The client may not open any unidirectional stream.
        let one_way = connection.open_uni();
        assert!(timeout(std::time::Duration::from_millis(50), one_way).await.is_err());
    });
    world.await_count("encrypted_violations", "quic", wrong.len() as u64);
}

/// An incomplete query, and a query without a response, end only their streams.
#[test]
fn streams_that_fail() {
    let world = World::start(Limits { stall: impatient().stall, ..Limits::default() });
    runtime().block_on(async {
        let (_endpoint, connection) = connect(&world, &["doq"]).await.unwrap();
        let code = |ended: Result<Vec<u8>, ReadToEndError>| match ended {
            Err(ReadToEndError::Read(quinn::ReadError::Reset(code))) => code.into_inner(),
            other => panic!("{other:?}"),
        };
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&framed(&query(0, "some", b""))).await.unwrap();
        assert_eq!(code(timeout(PATIENCE, receive.read_to_end(100)).await.unwrap()), 3);
        assert_eq!(code(query_stream(&connection, &framed(&query(0, "none", b""))).await), 1);
        let some = query(0, "some", b"");
        assert!(answers(&some, &query_stream(&connection, &framed(&some)).await.unwrap()[2..]));
    });
    assert_eq!(world.count("encrypted_timeouts", "quic"), 1);
}

/// The server refuses a client with another protocol, and one with too many connections. With half
/// of the limit in use, a client proves its address first and is served. Invalid packets have no
/// effect.
#[test]
fn connections_are_limited() {
    let limits = Limits { connections_max: 4, per_client_max: 3, ..Limits::default() };
    let world = World::start(limits);
    runtime().block_on(async {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for packet in [&b""[..], b"\xc0\0\0\0\x01", &[0xff; 1_200], &query(0, "some", b"")] {
            socket.send_to(packet, world.quic()).unwrap();
        }
        assert!(connect(&world, &["h3"]).await.is_err());
        world.await_count("encrypted_connections", "", 0);
        let mut open = Vec::new();
        for _ in 0..3 {
            let (endpoint, connection) = connect(&world, &["doq"]).await.unwrap();
            assert!(query_stream(&connection, &framed(&query(0, "some", b""))).await.is_ok());
            open.push((endpoint, connection));
        }
        let refused = connect(&world, &["doq"]).await.map(drop).unwrap_err();
        assert!(matches!(refused, ConnectionError::ConnectionClosed(_)), "{refused}");
        assert_eq!(world.count("encrypted_connections_refused", "quic"), 1);
        for (_, connection) in &open {
            connection.close(0u32.into(), b"");
        }
        for (endpoint, _) in &open {
            endpoint.wait_idle().await;
        }
    });
    world.await_count("encrypted_connections", "", 0);
}

/// When the server ends, a waiting query gets its response, and the connection is closed without an
/// error.
#[test]
fn drains() {
    let mut world = World::start(Limits::default());
    runtime().block_on(async {
        let (_endpoint, connection) = connect(&world, &["doq"]).await.unwrap();
        let (held, waiting) = query_held(&world, &connection).await;
        world.drain();
        world.release();
        assert!(answers(&held, &waiting.await.unwrap()[2..]));
        assert_eq!(closed_with(&connection).await, 0, "DOQ_NO_ERROR");
    });
    world.finish();
}
