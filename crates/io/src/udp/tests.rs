//! Sockets and batches over loopback. Every wait is bounded.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket as StdSocket};
use std::os::fd::OwnedFd;

use super::*;
use crate::testing::{loopbacks, readable, skip, stays_silent};

fn server(address: SocketAddr) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(address, &UdpOptions::default()).unwrap();
    let at = socket.local_address().unwrap();
    (socket, at)
}

fn client(peer: SocketAddr) -> UdpSocket {
    let (ports, options) = (Ports::UNPRIVILEGED, UdpOptions::default());
    UdpSocket::connect(peer, None, ports, &mut Random::new(), &options).unwrap()
}

/// Receives until `count` messages have arrived; returns their bytes and routes.
fn receive(socket: &UdpSocket, batch: &mut RecvBatch, count: usize) -> Vec<(Vec<u8>, Route)> {
    let mut all = Vec::new();
    while all.len() < count {
        assert!(readable(socket), "{} of {count} came", all.len());
        batch.recv(socket).unwrap();
        all.extend(batch.messages().map(|message| (message.bytes.to_vec(), message.route)));
    }
    all
}

/// Responses carry the received bytes back, over both families, in batches of every size between
/// one and more than the waiting messages. An empty message is a message; without waiting messages
/// nothing is received.
#[test]
fn batches_go_there_and_back() {
    for address in loopbacks("udp::batches_go_there_and_back") {
        for capacity in [1, 3, 64] {
            let (server, at) = server(address);
            let client = client(at);
            let mut outgoing = SendBatch::new(10, 100);
            for n in 0..10u8 {
                assert!(outgoing.push(&vec![n; usize::from(n)], None));
            }
            assert!(outgoing.slot().is_none());
            assert!(!outgoing.push(b"no room", None));
            let sent = outgoing.send(&client);
            assert_eq!((sent.sent, sent.failed, outgoing.len()), (10, 0, 0));

            let mut incoming = RecvBatch::new(capacity, 100);
            let mut answers = SendBatch::new(capacity, 100);
            let mut answered = 0;
            while answered < 10 {
                assert!(readable(&server));
                answered += incoming.recv(&server).unwrap();
                for message in incoming.messages() {
                    assert_eq!(message.route.peer, client.local_address().unwrap());
                    assert_eq!(message.route.local, None);
                    assert!(answers.push(message.bytes, Some(&message.route)));
                }
                answers.send(&server);
                assert!(answers.is_empty());
            }
            assert_eq!(incoming.recv(&server).unwrap(), 0);
            assert_eq!(incoming.messages().count(), 0);
            let back = receive(&client, &mut incoming, 10);
            let lengths: Vec<usize> = back.iter().map(|(bytes, _)| bytes.len()).collect();
            assert_eq!(lengths, (0..10).collect::<Vec<_>>());
            assert!(
                back.iter().all(|(bytes, _)| bytes.iter().all(|n| usize::from(*n) == bytes.len()))
            );
        }
    }
}

/// A message longer than its buffer is reported as truncated, with its true length, and the ones
/// around it arrive whole. Invariant 2 of `udp::batch`.
#[test]
fn long_messages_are_reported() {
    for address in loopbacks("udp::long_messages_are_reported") {
        let (server, at) = server(address);
        let client = client(at);
        for length in [100, 101, 5000, 99] {
            client.as_std().send(&vec![7; length]).unwrap();
        }
        let mut batch = RecvBatch::new(4, 100);
        let mut seen = Vec::new();
        while seen.len() < 4 {
            assert!(readable(&server));
            batch.recv(&server).unwrap();
            seen.extend(batch.messages().map(|m| (m.bytes.len(), m.length, m.is_truncated())));
        }
        let is_portable = cfg!(any(feature = "portable", not(target_os = "linux")));
        let long = if is_portable { 101 } else { 5000 };
        let expected = [(100, 100, false), (100, 101, true), (100, long, true), (99, 99, false)];
        assert_eq!(seen, expected);
    }
}

/// A server bound to the wildcard address responds from the address of the query. A connected
/// client, which receives responses only from there, gets them. Over IPv4 on three addresses.
#[test]
fn answers_leave_from_the_queried_address() {
    for address in loopbacks("udp::answers_leave_from_the_queried_address") {
        let (wildcard, targets): (SocketAddr, &[&str]) = match address {
            SocketAddr::V4(_) => {
                ("0.0.0.0:0".parse().unwrap(), &["127.0.0.2", "127.9.8.7", "127.0.0.1"])
            }
            SocketAddr::V6(_) => ("[::]:0".parse().unwrap(), &["::1"]),
        };
        let (server, at) = server(wildcard);
        let clients: Vec<UdpSocket> = targets
            .iter()
            .map(|target| client(SocketAddr::new(target.parse().unwrap(), at.port())))
            .collect();
        for client in &clients {
            client.as_std().send(b"where?").unwrap();
        }
        let mut incoming = RecvBatch::new(8, 100);
        let mut answers = SendBatch::new(8, 100);
        for (bytes, route) in receive(&server, &mut incoming, targets.len()) {
            let local = route.local.unwrap();
            assert!(
                targets.iter().any(|target| local.address == target.parse::<IpAddr>().unwrap())
            );
            assert_ne!(local.interface, 0);
            assert!(answers.push(&bytes, Some(&route)));
        }
        let sent = answers.send(&server);
        assert_eq!((sent.sent, sent.failed), (targets.len(), 0), "{sent:?}");
        for client in &clients {
            assert_eq!(receive(client, &mut incoming, 1)[0].0, b"where?");
        }
    }
}

/// If the peer closes, a connected socket reports it once per message, and its later messages
/// arrive when the peer is back.
#[test]
fn refusals_are_reported_and_survived() {
    for address in loopbacks("udp::refusals_are_reported_and_survived") {
        // At an address that no other test uses: no other test may get the closed port.
        let address = match address {
            SocketAddr::V4(_) => SocketAddr::from(([127, 0, 0, 77], 0)),
            v6 => v6,
        };
        let (gone, at) = server(address);
        drop(gone);
        let client = client(at);
        client.as_std().send(b"anybody?").unwrap();
        assert!(readable(&client));
        let mut batch = RecvBatch::new(4, 100);
        let error = batch.recv(&client).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(batch.recv(&client).unwrap(), 0);

        // The refusal is reported with the next batch, and drops none of it.
        client.as_std().send(b"anybody?").unwrap();
        assert!(readable(&client));
        let back = UdpSocket::bind(at, &UdpOptions::default()).unwrap();
        let mut outgoing = SendBatch::new(4, 100);
        for n in 0..4 {
            assert!(outgoing.push(&[n], None));
        }
        let sent = outgoing.send(&client);
        assert_eq!((sent.sent, sent.failed), (4, 0), "{sent:?}");
        assert_eq!(receive(&back, &mut batch, 4).len(), 4);
    }
}

/// Messages that the kernel refuses are counted, and those queued around them arrive: for a port
/// that cannot be sent to, and a message longer than any packet.
#[test]
fn one_bad_message_stops_no_other() {
    for address in loopbacks("udp::one_bad_message_stops_no_other") {
        let (server, at) = server(address);
        let (sender, _) = self::server(address);
        let route = |peer| Route { peer, local: None };
        let (good, bad) = (route(at), route(SocketAddr::new(at.ip(), 0)));
        let mut outgoing = SendBatch::new(8, 65535);
        assert!(outgoing.push(b"1", Some(&bad)));
        assert!(outgoing.push(b"2", Some(&good)));
        assert!(outgoing.push(&[0; 65535], Some(&good)));
        assert!(outgoing.push(b"3", Some(&bad)));
        assert!(outgoing.push(b"4", Some(&good)));
        let sent = outgoing.send(&sender);
        assert_eq!((sent.sent, sent.failed), (2, 3));
        assert!(sent.error.is_some());
        assert!(outgoing.is_empty());
        let mut batch = RecvBatch::new(8, 100);
        let came: Vec<Vec<u8>> =
            receive(&server, &mut batch, 2).into_iter().map(|(bytes, _)| bytes).collect();
        assert_eq!(came, [b"2", b"4"]);
    }
}

/// The kernel counts dropped messages, and reports them on request.
#[test]
#[cfg_attr(any(feature = "portable", not(target_os = "linux")), ignore = "needs Linux")]
fn drops_are_counted() {
    let options = UdpOptions { receive_buffer_bytes: Some(1), ..UdpOptions::default() };
    let receiver = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    assert_eq!(receiver.drops().unwrap(), 0);
    let sender = client(receiver.local_address().unwrap());
    for _ in 0..64 {
        sender.as_std().send(&[0; 1000]).unwrap();
    }
    assert!(readable(&receiver));
    let mut batch = RecvBatch::new(64, 1000);
    let mut came = 0;
    while !stays_silent(&receiver) {
        came += batch.recv(&receiver).unwrap();
    }
    assert_eq!(came + receiver.drops().unwrap() as usize, 64);
    assert!(came < 64);
}

/// A socket that takes an address first is refused if another has the address, also one that
/// shares. Later ones that join are not.
#[test]
fn an_address_is_taken_once() {
    let of = |sharing| UdpOptions { sharing, ..UdpOptions::default() };
    for address in loopbacks("udp::an_address_is_taken_once") {
        for first in [Sharing::Alone, Sharing::First, Sharing::Join] {
            let one = UdpSocket::bind(address, &of(first)).unwrap();
            let at = one.local_address().unwrap();
            for second in [Sharing::Alone, Sharing::First] {
                let error = UdpSocket::bind(at, &of(second)).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{first:?} {second:?}");
            }
            let joined = UdpSocket::bind(at, &of(Sharing::Join));
            assert_eq!(joined.is_ok(), first != Sharing::Alone, "{first:?}");
        }
    }
}

/// Sockets that share an address share the messages: every one arrives, at one of them.
#[test]
fn sockets_share_an_address() {
    for address in loopbacks("udp::sockets_share_an_address") {
        let options = UdpOptions { sharing: Sharing::First, ..UdpOptions::default() };
        let one = UdpSocket::bind(address, &options).unwrap();
        let at = one.local_address().unwrap();
        let alone = UdpSocket::bind(at, &UdpOptions::default()).unwrap_err();
        assert_eq!(alone.kind(), io::ErrorKind::AddrInUse);
        let options = UdpOptions { sharing: Sharing::Join, ..UdpOptions::default() };
        let two = UdpSocket::bind(at, &options).unwrap();
        let clients: Vec<UdpSocket> = (0..64).map(|_| client(at)).collect();
        for client in &clients {
            client.as_std().send(b"?").unwrap();
        }
        let mut batch = RecvBatch::new(64, 100);
        let (mut counts, mut peers) = ([0, 0], HashSet::new());
        for _ in 0..1000 {
            for (socket, count) in [&one, &two].into_iter().zip(&mut counts) {
                *count += batch.recv(socket).unwrap();
                peers.extend(batch.messages().map(|message| message.route.peer));
            }
            if peers.len() == 64 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!((counts[0] + counts[1], peers.len()), (64, 64));
        // Each of 64 falls on one side with even odds: one side empty is 2^-63.
        assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
    }
}

/// With steering a message sent on a core reaches that core's socket.
#[test]
fn messages_stay_on_their_core() {
    let cores = crate::cores::available_cores().unwrap();
    if cores.len() < 2 {
        return skip("udp::messages_stay_on_their_core", "one core only");
    }
    let options = UdpOptions { sharing: Sharing::Join, ..UdpOptions::default() };
    let first = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let at = first.local_address().unwrap();
    let mut sockets = vec![first];
    // Sockets in an order that is not that of the cores.
    let cores: Vec<usize> = cores.into_iter().rev().collect();
    sockets.extend((1..cores.len()).map(|_| UdpSocket::bind(at, &options).unwrap()));
    if let Err(error) = sockets[0].steer_by_core(&cores) {
        return skip("udp::messages_stay_on_their_core", error);
    }
    let mut batch = RecvBatch::new(64, 100);
    for (core, socket) in cores.iter().zip(&sockets) {
        let core = *core;
        let sent = std::thread::spawn(move || {
            crate::cores::pin_to_core(core).unwrap();
            let clients: Vec<UdpSocket> = (0..16).map(|_| client(at)).collect();
            clients.iter().for_each(|client| assert_eq!(client.as_std().send(b"?").unwrap(), 1));
        });
        sent.join().unwrap();
        receive(socket, &mut batch, 16);
    }
    assert!(sockets.iter().all(stays_silent));
    assert!(sockets[0].steer_by_core(&[]).is_err());
    assert!(sockets[0].steer_by_core(&vec![0; 5000]).unwrap_err().to_string().contains("instead"));
}

/// Source ports are random: connected sockets have different ones, in range, none twice. A range
/// without free ports is an error.
#[test]
fn source_ports_are_drawn() {
    let (_server, at) = server("127.0.0.1:0".parse().unwrap());
    let sockets: Vec<UdpSocket> = (0..50).map(|_| client(at)).collect();
    let ports: HashSet<u16> =
        sockets.iter().map(|socket| socket.local_address().unwrap().port()).collect();
    assert_eq!(ports.len(), 50);
    let increasing = sockets.windows(2).all(|pair| {
        pair[0].local_address().unwrap().port() < pair[1].local_address().unwrap().port()
    });
    assert!(!increasing, "50 draws in order: 1 in 50!");
    let taken = Ports::new(at.port(), at.port()).unwrap();
    let local = Some(at.ip());
    let error = UdpSocket::connect(at, local, taken, &mut Random::new(), &UdpOptions::default())
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

/// A socket that was handed over works like one of ours: non-blocking, with the local address if it
/// is bound to the wildcard address. A socket that is not UDP is refused with a reason.
#[test]
fn handed_over() {
    let fd = OwnedFd::from(StdSocket::bind("0.0.0.0:0").unwrap());
    let server = UdpSocket::from_fd(fd, &UdpOptions::default()).unwrap();
    let mut batch = RecvBatch::new(4, 100);
    assert_eq!(batch.recv(&server).unwrap(), 0);
    let port = server.local_address().unwrap().port();
    client(SocketAddr::from(([127, 0, 0, 2], port))).as_std().send(b"?").unwrap();
    let (_, route) = receive(&server, &mut batch, 1)[0];
    assert_eq!(route.local.unwrap().address, IpAddr::from([127, 0, 0, 2]));
    let tcp = OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let error = UdpSocket::from_fd(tcp, &UdpOptions::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

/// Buffers are as large as requested, or as the system's limit; each handling of fragments can be
/// set on each family.
#[test]
fn options_are_set() {
    for address in loopbacks("udp::options_are_set") {
        for fragments in [Fragments::System, Fragments::Omit, Fragments::Never] {
            let options = UdpOptions {
                receive_buffer_bytes: Some(100_000),
                send_buffer_bytes: Some(60_000),
                fragments,
                ..UdpOptions::default()
            };
            let socket = UdpSocket::bind(address, &options).unwrap();
            assert_eq!(socket.buffer_bytes().unwrap(), (200_000, 120_000));
        }
    }
}
