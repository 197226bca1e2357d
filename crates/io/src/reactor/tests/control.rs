//! Pausing, watching, waking, closing, and the end of a reactor.

use std::net::Shutdown;

use super::*;

/// Writes until the socket is full.
fn fill(stream: &TcpStream) -> usize {
    let mut count = 0;
    while let Ok(more) = tcp::write(stream, &[7; 1 << 16]) {
        count += more;
    }
    count
}

/// A paused socket gives only bytes that had been received; after it is resumed the rest comes, and
/// nothing is lost or out of order.
#[test]
fn pausing_holds_back() {
    by_each_way(|options| {
        let (mut theirs, ours) = pair();
        let mut one = Loop::new(&options);
        let all = bytes(2 << 20, 3);
        let said = all.clone();
        one.reactor.receive(&ours, 1).unwrap();
        let peer = std::thread::spawn(move || {
            theirs.write_all(&said).unwrap();
            theirs
        });
        let (mut received, mut count) = (Vec::new(), 0);
        while received.len() < all.len() {
            one.until(|reactor, seen| match seen {
                Seen::Received(1, bytes) => {
                    received.extend(bytes);
                    count += 1;
                    // Within one batch both calls cancel out.
                    reactor.pause(&ours, 1);
                    reactor.receive(&ours, 1).unwrap();
                    true
                }
                seen => panic!("{seen:?}"),
            });
            if count % 16 == 0 {
                one.reactor.pause(&ours, 1);
                while let seen @ [_, ..] = &one.turn(Duration::from_millis(2))[..] {
                    for seen in seen {
                        let Seen::Received(1, bytes) = seen else { panic!("{seen:?}") };
                        received.extend(bytes);
                    }
                }
                one.stays_silent();
                one.reactor.receive(&ours, 1).unwrap();
            }
        }
        assert!(received == all);
        drop(peer.join().unwrap());
        one.until(|_, seen| matches!(seen, Seen::Finished(1)));
        one.stays_silent();
        one.reactor.close(ours, 1);
    });
}

/// A paused socket does not report its peer's end; resumed, it does, once.
#[test]
fn ends_wait_too() {
    by_each_way(|options| {
        let (theirs, ours) = pair();
        let mut one = Loop::new(&options);
        one.reactor.receive(&ours, 1).unwrap();
        one.stays_silent();
        one.reactor.pause(&ours, 1);
        theirs.shutdown(Shutdown::Write).unwrap();
        one.stays_silent();
        one.stays_silent();
        one.reactor.receive(&ours, 1).unwrap();
        one.until(|_, seen| matches!(seen, Seen::Finished(1)));
        one.stays_silent();
        one.reactor.close(ours, 1);
    });
}

/// Readiness is reported once, for the last interest; a peer that finishes sending does not make
/// its full socket ready for writing.
#[test]
fn readiness_is_reported_once() {
    by_each_way(|options| {
        let (mut theirs, ours) = pair();
        let mut one = Loop::new(&options);
        one.reactor.watch(&ours, 4, Interest::READ).unwrap();
        one.stays_silent();
        one.reactor.watch(&ours, 4, Interest::BOTH).unwrap();
        one.until(|_, seen| matches!(seen, Seen::Ready(4, false, true)));
        one.stays_silent();
        one.reactor.watch(&ours, 4, Interest::READ).unwrap();
        theirs.write_all(b"x").unwrap();
        one.until(|_, seen| matches!(seen, Seen::Ready(4, true, _)));
        one.stays_silent();
        one.reactor.watch(&ours, 4, Interest::READ).unwrap();
        one.reactor.unwatch(&ours, 4);
        one.stays_silent();

        let ours = TcpStream::from(ours);
        let filled = fill(&ours);
        one.reactor.receive(&ours, 4).unwrap();
        one.reactor.watch(&ours, 4, Interest::WRITE).unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        let mut seen = Vec::new();
        one.until(|_, event| {
            seen.push(event);
            matches!(seen.last(), Some(Seen::Finished(4)))
        });
        assert!(matches!(&seen[..], [Seen::Received(4, _), Seen::Finished(4)]), "{seen:?}");
        one.stays_silent();
        theirs.read_exact(&mut vec![0; filled]).unwrap();
        one.until(|_, seen| matches!(seen, Seen::Ready(4, _, true)));
        one.reactor.close(ours.into(), 4);
    });
}

/// Connections that are being made are watched: one succeeds, one is refused.
#[test]
fn connecting_is_watched() {
    by_each_way(|options| {
        let mut one = Loop::new(&options);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (token, address, is_open) in [(1, open, true), (2, closed, false)] {
            let stream = tcp::connect(address, &tcp::ConnectOptions::default()).unwrap();
            one.reactor.watch(&stream, token, Interest::WRITE).unwrap();
            one.until(|_, seen| match seen {
                Seen::Ready(of, _, true) => of == token,
                seen => panic!("{seen:?}"),
            });
            assert_eq!(tcp::take_error(&stream).unwrap().is_none(), is_open);
            one.reactor.close(stream.into(), token);
        }
        one.stays_silent();
    });
}

/// Any number of calls before the reactor handles them are one event and cost one system call; a
/// call from another thread ends a wait without a timeout.
#[test]
fn wakers_are_received_once() {
    by_each_way(|options| {
        let mut one = Loop::new(&options);
        let waker = one.reactor.waker();
        for _ in 0..3 {
            (0..1000).for_each(|_| waker.wake());
            let seen = one.turn(LONG);
            assert!(matches!(seen[..], [Seen::Woken]), "{seen:?}");
            one.stays_silent();
        }
        // An eventfd counts the system calls.
        if crate::epoll::NAME == "epoll" {
            let mut calls = [0; 8];
            let counter = waker.0.event.as_fd().try_clone_to_owned().unwrap();
            std::fs::File::from(counter).read_exact(&mut calls).unwrap();
            assert_eq!(u64::from_ne_bytes(calls), 3);
        }

        let caller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        assert_eq!(one.reactor.wait(&mut one.batch, None).unwrap(), 1);
        assert!(matches!(one.batch.next(), Some(Event::Woken)));
        caller.join().unwrap();
    });
}

/// A connection is closed while it sends, receives and is watched: the peer gets a part and the
/// end, no more events are reported, and the next connection with that number is another one.
#[test]
fn closing_ends_what_is_under_way() {
    by_each_way(|options| {
        let mut one = Loop::new(&options);
        let all = bytes(12 << 20, 5);
        let mut numbers = Vec::new();
        for token in 1..=20 {
            let (mut theirs, ours) = pair();
            numbers.push(ours.as_raw_fd());
            one.reactor.receive(&ours, token).unwrap();
            one.reactor.watch(&ours, token, Interest::READ).unwrap();
            assert!(matches!(one.reactor.send(&ours, token, all.clone()), Sending::Later));
            if token % 2 == 0 {
                one.stays_silent();
                theirs.write_all(b"too late").unwrap();
            }
            one.reactor.close(ours, token);
            one.stays_silent();
            let mut received = Vec::new();
            // With bytes unread at our end, theirs is a reset.
            let end = theirs.read_to_end(&mut received);
            assert!(token % 2 == 0 || end.is_ok(), "{end:?}");
            assert!(received.len() < all.len() && all.starts_with(&received));
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert!(numbers.len() < 20, "numbers are used again");
    });
}

/// A hundred connections send at once, more than there are buffers, and one never stops: bytes of
/// each arrive long before that one ends.
#[test]
fn many_share_few_buffers() {
    by_each_way(|options| {
        let mut many = Loop::new(&Options { receive_bytes: 256, buffers: 2, ..options });
        let (mut loud, loud_ours) = pair();
        const LOUD_BYTES: usize = 8 << 20;
        let said = fill(&loud);
        let speaker = std::thread::spawn(move || drop(loud.write_all(&vec![7; LOUD_BYTES - said])));
        many.reactor.receive(&loud_ours, 0).unwrap();
        let mut others = Vec::new();
        for token in 1..=100 {
            let (mut theirs, ours) = pair();
            theirs.write_all(&bytes(1000, token)).unwrap();
            many.reactor.receive(&ours, token).unwrap();
            others.push((theirs, ours));
        }
        let mut received = vec![Vec::new(); 101];
        let mut left = 100;
        many.until(|_, seen| {
            let Seen::Received(token, bytes) = seen else { panic!("{seen:?}") };
            let received = &mut received[token as usize];
            received.extend(bytes);
            left -= usize::from(token > 0 && received.len() == 1000);
            left == 0
        });
        assert!(received[0].len() < LOUD_BYTES / 8, "{} of it", received[0].len());
        for (token, received) in (0..).zip(&received).skip(1) {
            assert!(*received == bytes(1000, token));
        }
        many.reactor.close(loud_ours, 0);
        for (token, (_, ours)) in (1..).zip(others) {
            many.reactor.close(ours, token);
        }
        many.stays_silent();
        speaker.join().unwrap();
    });
}

/// A listener that is unlistened accepts no connection; closed, it refuses, and its address is
/// free. Listening can resume.
#[test]
fn unlistening_ends() {
    by_each_way(|options| {
        let mut one = Loop::new(&options);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for _ in 0..2 {
            one.reactor.listen(&listener, 8).unwrap();
            let _theirs = TcpStream::connect(address).unwrap();
            one.until(|_, seen| matches!(seen, Seen::Accepted(8, _)));
            one.reactor.unlisten(&listener, 8);
            one.stays_silent();
        }
        // Neither listened to nor used: it may be closed before any operation.
        one.reactor.listen(&listener, 9).unwrap();
        one.reactor.unlisten(&listener, 9);
        let _waiting = TcpStream::connect(address).unwrap();
        one.stays_silent();
        drop(listener);
        one.stays_silent();
        TcpStream::connect(address).unwrap_err();
        TcpListener::bind(address).unwrap();
    });
}

/// Events that were not walked are returned again, before anything else is done, and outlive the
/// reactor with their bytes. Invariant 1.
#[test]
fn events_are_the_batchs() {
    by_each_way(|options| {
        let (mut theirs, ours) = pair();
        let mut one = Loop::new(&options);
        let said = bytes(3000, 1);
        theirs.write_all(&said).unwrap();
        one.reactor.receive(&ours, 1).unwrap();
        let _ = one.reactor.send(&ours, 1, bytes(12 << 20, 2));
        while one.batch.is_empty() {
            one.reactor.wait(&mut one.batch, Some(LONG)).unwrap();
        }
        let count = one.batch.len();
        theirs.write_all(&said).unwrap();
        assert_eq!(one.reactor.wait(&mut one.batch, None).unwrap(), count);
        let Loop { reactor, mut batch } = one;
        drop(reactor);
        let mut other = Loop::new(&options);
        other.stays_silent();
        let Some(Event::Received { token: 1, bytes }) = batch.next() else { panic!() };
        assert!(said.starts_with(bytes));
    });
}

/// A batch belongs to one reactor: with another's, a wait is refused before any memory is shared
/// twice.
#[test]
fn batches_are_not_mixed() {
    by_each_way(|options| {
        if options.choice == Choice::Epoll {
            return;
        }
        let (mut one, mut two) = (Loop::new(&options), Loop::new(&options));
        let wait = || one.reactor.wait(&mut two.batch, Some(Duration::ZERO)).is_ok();
        let wait = std::panic::AssertUnwindSafe(wait);
        assert!(std::panic::catch_unwind(wait).is_err());
    });
}

/// Made in one thread with a listener, a reactor serves in another.
#[test]
fn reactors_move_before_they_wait() {
    by_each_way(|options| {
        let mut one = Loop::new(&options);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        one.reactor.listen(&listener, 8).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            one.until(|_, seen| matches!(seen, Seen::Accepted(8, _)));
        });
        TcpStream::connect(address).unwrap();
        server.join().unwrap();
    });
}

/// Two sends of a socket at once are an error of the caller, which panics.
#[test]
#[should_panic(expected = "one send of a socket at a time")]
fn sends_do_not_overlap() {
    let (_theirs, ours) = pair();
    let (mut reactor, _batch) = Reactor::new(&Options::default()).unwrap();
    assert!(matches!(reactor.send(&ours, 1, bytes(12 << 20, 5)), Sending::Later));
    let _ = reactor.send(&ours, 1, b"more".to_vec());
}

/// Without io_uring, a caller that requires it gets the reason, and any other gets epoll.
#[test]
fn fallbacks_have_reasons() {
    let (reactor, _) = Reactor::new(&Options::default()).unwrap();
    let insisted = Reactor::new(&Options { choice: Choice::Uring, ..Options::default() });
    match (reactor.backend(), reactor.fallback(), insisted) {
        (Backend::Uring, None, Ok(_)) => {}
        (Backend::Epoll, Some(reason), Err(error)) => assert_eq!(reason, error.to_string()),
        other => panic!("{other:?}"),
    }
    let (epoll, _) =
        Reactor::new(&Options { choice: Choice::Epoll, ..Options::default() }).unwrap();
    assert_eq!((epoll.backend(), epoll.fallback()), (Backend::Epoll, None));
    let names = [Backend::Uring, Backend::Epoll].map(|by| by.to_string());
    assert_eq!(names, ["io_uring", crate::epoll::NAME]);
}

/// Without free descriptors a listener fails once, not repeatedly. When there are some, it listens
/// again and the connection still waits. The test runs in its own process, whose limit it lowers.
#[test]
fn a_lack_of_descriptors_is_reported() {
    const CHILD: &str = "LARDER_TEST_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let test = "reactor::tests::control::a_lack_of_descriptors_is_reported";
        let output = child.args(["--exact", test]).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: the kernel reads a limit that lives here.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    by_each_way(|options| {
        let mut one = Loop::new(&options);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        one.reactor.listen(&listener, 8).unwrap();
        one.stays_silent();
        let _theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut taken = Vec::new();
        while let Ok(copy) = listener.try_clone() {
            taken.push(copy);
        }
        one.until(|_, seen| match seen {
            Seen::Failed(8, error) => error.raw_os_error() == Some(libc::EMFILE),
            seen => panic!("{seen:?}"),
        });
        one.stays_silent();
        taken.clear();
        one.reactor.listen(&listener, 8).unwrap();
        one.until(|_, seen| matches!(seen, Seen::Accepted(8, _)));
        one.reactor.unlisten(&listener, 8);
    });
}

/// A reactor that has waited in one thread refuses to in another, by io_uring at least; nothing
/// that the kernel may still use is freed there.
#[test]
fn reactors_stay_where_they_waited() {
    by_each_way(|options| {
        let mut one = Loop::new(&options);
        let (_theirs, ours) = pair();
        one.reactor.receive(&ours, 1).unwrap();
        assert!(matches!(one.reactor.send(&ours, 1, bytes(12 << 20, 5)), Sending::Later));
        one.stays_silent();
        let is_epoll = one.reactor.backend() == Backend::Epoll;
        let elsewhere = std::thread::spawn(move || {
            let waited = one.reactor.wait(&mut one.batch, Some(Duration::ZERO));
            assert!(is_epoll || waited.is_err(), "{waited:?}");
        });
        elsewhere.join().unwrap();
    });
}
