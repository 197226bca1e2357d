//! The program as the kernel runs it, and sockets at the ends of a cable.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use super::program::{Action, Filter, assemble};
use super::{BATCH, Interface, Options, Queue, TARGETS_MAX, bpf};
use crate::testing::{readable, skip, with_network};

const MAC: [u8; 6] = [2, 0, 0, 0xaa, 0xbb, 0xcc];
/// `XDP_REDIRECT` never comes here, as queues have no sockets: redirected frames are dropped.
const TAKEN: u32 = Action::Drop as u32;
const PASSED: u32 = Action::Pass as u32;

fn targets() -> Vec<SocketAddr> {
    ["192.0.2.1:53", "192.0.2.2:5353", "[2001:db8::1]:53", "[2001:db8::2]:5353"]
        .map(|text| text.parse().unwrap())
        .to_vec()
}

/// The program for these, if the kernel takes programs from us.
fn loaded(test: &str, targets: &[SocketAddr]) -> Option<OwnedFd> {
    let map = match bpf::create_map(2) {
        Ok(map) => map,
        Err(error) => {
            skip(test, format_args!("no BPF: {error}"));
            return None;
        }
    };
    let filter = Filter { mac: MAC, targets, frame_bytes_max: 300, without_socket: Action::Drop };
    let program = assemble(&filter, &map).unwrap();
    Some(bpf::load(&program).map_err(|error| format!("{error:?}")).unwrap())
}

/// A frame with a message of this length to an address.
fn frame(to: &str, message_bytes: usize) -> Vec<u8> {
    let to: SocketAddr = to.parse().unwrap();
    let mut frame = MAC.to_vec();
    frame.extend([2, 0, 0, 1, 2, 3]);
    match to {
        SocketAddr::V4(to) => {
            frame.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 9]);
            frame.extend(to.ip().octets());
        }
        SocketAddr::V6(to) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64]);
            frame.extend([9; 16]);
            frame.extend(to.ip().octets());
        }
    }
    frame.extend([0x30, 0x39]);
    frame.extend(to.port().to_be_bytes());
    frame.extend([0; 4]);
    frame.resize(frame.len() + message_bytes, 7);
    frame
}

/// The kernel accepts the program, and gives a socket exactly its own frames: each target by its
/// own port, and none that differs in one relevant byte.
#[test]
fn only_what_is_ours_is_taken() {
    let targets = targets();
    let Some(program) = loaded("only_what_is_ours_is_taken", &targets) else { return };
    let outcome = |frame: &[u8]| bpf::run(&program, frame).unwrap();
    for target in &targets {
        assert_eq!(outcome(&frame(&target.to_string(), 30)), TAKEN, "{target}");
    }
    for other in [
        "192.0.2.1:5353",
        "192.0.2.2:53",
        "192.0.2.3:53",
        "[2001:db8::1]:5353",
        "[2001:db8::3]:53",
        "[2001:db9::1]:53",
    ] {
        assert_eq!(outcome(&frame(other, 30)), PASSED, "{other}");
    }
    // Of IPv4: our Ethernet address, the type, version and length of the header, fragments, the
    // protocol.
    let v4 = frame("192.0.2.1:53", 30);
    let counts = (0..6).chain([12, 13, 14, 21, 23]).chain(30..34).chain(36..38);
    for at in counts {
        let mut other = v4.clone();
        other[at] ^= 4;
        assert_eq!(outcome(&other), PASSED, "byte {at}");
    }
    // The first fragment of several is no message; a packet that must not be one is.
    let mut fragment = v4.clone();
    fragment[20] = 0x20;
    assert_eq!(outcome(&fragment), PASSED);
    fragment[20] = 0;
    assert_eq!(outcome(&fragment), TAKEN);
    let v6 = frame("[2001:db8::2]:5353", 30);
    for at in (0..6).chain([12, 13, 20]).chain(38..54).chain(56..58) {
        let mut other = v6.clone();
        other[at] ^= 1;
        assert_eq!(outcome(&other), PASSED, "byte {at}");
    }
    // A tag before the type, as of a VLAN.
    let mut tagged = v4.clone();
    tagged.splice(12..12, [0x81, 0, 0, 7]);
    assert_eq!(outcome(&tagged), PASSED);
}

/// Frames are taken from the shortest with all headers to the longest that a socket is given, and
/// others passed.
#[test]
fn lengths_have_limits() {
    let Some(program) = loaded("lengths_have_limits", &targets()) else { return };
    for (to, headers) in [("192.0.2.1:53", 42), ("[2001:db8::1]:53", 62)] {
        let outcome = |bytes: usize| {
            let mut frame = frame(to, 300);
            frame.truncate(bytes);
            bpf::run(&program, &frame).unwrap()
        };
        assert_eq!((outcome(headers), outcome(headers - 1)), (TAKEN, PASSED));
        assert_eq!((outcome(300), outcome(301)), (TAKEN, PASSED));
    }
}

/// The largest number of targets makes a program that the kernel accepts and that finds the last;
/// one more makes none.
#[test]
fn targets_have_a_limit() {
    let mut targets: Vec<SocketAddr> = (0..TARGETS_MAX as u16)
        .map(|at| format!("[2001:db8::{at:x}]:53").parse().unwrap())
        .collect();
    if let Some(program) = loaded("targets_have_a_limit", &targets) {
        let last = targets.last().unwrap().to_string();
        assert_eq!(bpf::run(&program, &frame(&last, 30)).unwrap(), TAKEN);
    }
    targets.push("192.0.2.1:53".parse().unwrap());
    let filter =
        Filter { mac: MAC, targets: &targets, frame_bytes_max: 300, without_socket: Action::Drop };
    assert!(assemble(&filter, &std::io::stderr()).is_none());
}

/// Runs `body` on a thread with two interfaces that are the ends of one cable, with two queues
/// each, in its own network.
fn with_pair(test: &'static str, body: fn(Interface, Interface)) {
    const PAIR: &[&str] = &[
        "link add x0 numrxqueues 2 numtxqueues 2 type veth peer name x1 numrxqueues 2 numtxqueues 2",
        "link set x0 up",
        "link set x1 up",
    ];
    with_network(test, PAIR, move || {
        body(super::find("x0").unwrap(), super::find("x1").unwrap());
    });
}

/// A frame to this interface, with the address of another.
fn addressed(to: &Interface, target: &str, message: u32) -> Vec<u8> {
    let mut frame = frame(target, 20);
    frame[..6].copy_from_slice(&to.mac);
    let at = frame.len() - 4;
    frame[at..].copy_from_slice(&message.to_be_bytes());
    frame
}

fn opened(interface: &Interface, targets: &[SocketAddr]) -> Vec<Queue> {
    let options = Options { interface, targets, frame_bytes_max: 1500 };
    super::open(&options).map_err(|error| error.to_string()).unwrap()
}

/// Receives a batch, waiting until there is one.
fn receive(queue: &mut Queue) -> Vec<Vec<u8>> {
    assert!(readable(&queue.receiver));
    queue.receiver.recv();
    queue.receiver.frames().map(<[u8]>::to_vec).collect()
}

/// Every queue of an interface carries frames in both directions, whole and in order, several times
/// as many as fit into memory; none arrives by another queue. Invariant 2 of `xdp::socket`.
#[test]
fn every_queue_carries() {
    with_pair("every_queue_carries", |left, right| {
        assert_eq!((left.queues, right.queues), (2, 2));
        let targets = targets();
        let (mut left_queues, mut right_queues) =
            (opened(&left, &targets), opened(&right, &targets));
        for (number, (from, to)) in left_queues.iter_mut().zip(&mut right_queues).enumerate() {
            for round in 0..200u32 {
                let sent: Vec<Vec<u8>> = (0..BATCH as u32)
                    .map(|at| addressed(&right, "192.0.2.1:53", round << 16 | at))
                    .collect();
                for frame in &sent {
                    from.sender.slot().unwrap()[..frame.len()].copy_from_slice(frame);
                    from.sender.commit(frame.len());
                }
                from.sender.send();
                let mut came = Vec::new();
                while came.len() < sent.len() {
                    came.extend(receive(to));
                }
                assert!(came == sent, "queue {number}, round {round}");
                // One frame is sent back.
                let back = addressed(&left, "[2001:db8::1]:53", round);
                to.sender.slot().unwrap()[..back.len()].copy_from_slice(&back);
                to.sender.commit(back.len());
                to.sender.send();
                assert_eq!(receive(from), [back]);
            }
            assert_eq!(to.receiver.drops().unwrap(), 0);
        }
        for queue in left_queues.iter_mut().chain(&mut right_queues) {
            assert_eq!(queue.receiver.recv(), 0);
        }
    });
}

/// If frames are not taken, the kernel drops those without room and counts them; the sender does
/// not wait, and the others are whole.
#[test]
fn floods_are_bounded() {
    with_pair("floods_are_bounded", |left, right| {
        let targets = targets();
        let (mut left_queues, mut right_queues) =
            (opened(&left, &targets), opened(&right, &targets));
        let (from, to) = (&mut left_queues[0], &mut right_queues[0]);
        let mut sent = 0;
        for round in 0..100 {
            while let Some(slot) = from.sender.slot() {
                let frame = addressed(&right, "192.0.2.1:53", sent);
                slot[..frame.len()].copy_from_slice(&frame);
                from.sender.commit(frame.len());
                sent += 1;
                if sent % 100 == 0 {
                    break;
                }
            }
            from.sender.send();
            assert!(sent as usize <= (round + 1) * 100);
        }
        assert_eq!(sent, 10_000, "a peer that does not take holds nobody up");
        let mut came = 0;
        loop {
            let count = to.receiver.recv();
            if count == 0 {
                break;
            }
            for bytes in to.receiver.frames() {
                assert_eq!(bytes, addressed(&right, "192.0.2.1:53", came));
                came += 1;
            }
        }
        assert!((2_000..10_000).contains(&came), "{came}");
        assert_eq!(to.receiver.drops().unwrap(), u64::from(10_000 - came));
    });
}

/// A program is attached to its interface while a receiver exists. A second one is refused with a
/// helpful error, and can be attached afterwards.
#[test]
fn the_place_is_given_back() {
    with_pair("the_place_is_given_back", |left, _| {
        let targets = targets();
        let first = opened(&left, &targets);
        let options = Options { interface: &left, targets: &targets, frame_bytes_max: 1500 };
        let error = super::open(&options).unwrap_err().to_string();
        assert!(error.starts_with("x0: queue 0 cannot be had"), "{error}");
        assert!(error.contains("another program has a socket"), "{error}");
        drop(first);
        let mut queues = opened(&left, &targets);
        // One half of one queue is enough.
        let last = queues.pop().unwrap().receiver;
        drop(queues);
        assert!(super::open(&options).is_err());
        drop(last);
        opened(&left, &targets);
    });
}
