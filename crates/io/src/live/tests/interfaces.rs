//! Interfaces that go down, are removed and created again, or cannot be opened.

use super::*;
use crate::live::interfaces::SPARES;

/// Waits for something to become true while the source is read, which must bring nothing.
fn until(source: &mut Source, what: &str, mut is_true: impl FnMut() -> bool) {
    let (never, start) = (AtomicBool::new(false), Instant::now());
    while !is_true() {
        assert!(start.elapsed() < WAIT, "{what}");
        if let Polled::Batch(batch) = source.poll_batch(&never) {
            // In silence batches carry the time.
            assert!(batch.silent_at_ns.is_some() && records(&batch).is_empty());
        }
    }
}

/// An interface that is set down, is removed, is created again: each is reported and counted, ends
/// nothing, and afterwards frames arrive again, with one ring and with several, and without any
/// capability.
#[test]
fn interfaces_come_and_go() {
    with_network("live::interfaces_come_and_go", PAIR, || {
        for rings in [1, 2] {
            // Another thread, which keeps its rights, runs the commands.
            let (command, commands) = std::sync::mpsc::channel::<Vec<&'static str>>();
            let (done, answers) = std::sync::mpsc::channel();
            let reader = std::thread::spawn(move || {
                let run = |lines: &[&'static str]| {
                    command.send(lines.to_vec()).unwrap();
                    let (is_done, generator): (bool, Generator) = answers.recv().unwrap();
                    assert!(is_done, "{lines:?}");
                    generator
                };
                let (mut source, counts) = source(&LiveOptions { rings, ..options("c0") });
                crate::privileges::drop_capabilities().unwrap();
                let counts = &counts.interfaces()[0];
                let get = |what: &std::sync::atomic::AtomicU64| what.load(Relaxed);
                run(&[]).send(&frame((1, 2), 1, 0));
                assert_eq!(receive(&mut source, 1)[0].number(), 1);

                run(&["link set c0 down"]);
                until(&mut source, "down", || !counts.is_up.load(Relaxed));
                let generator = run(&["link set c0 up"]);
                until(&mut source, "up", || counts.is_up.load(Relaxed));
                generator.send(&frame((1, 2), 2, 0));
                assert_eq!(receive(&mut source, 1)[0].number(), 2);
                assert_eq!((get(&counts.downs), get(&counts.reopened)), (1, 0));

                run(&["link del c0", PAIR[0]]);
                until(&mut source, "gone", || !counts.is_up.load(Relaxed));
                let generator = run(&PAIR[1..]);
                until(&mut source, "again", || counts.is_up.load(Relaxed));
                for n in 3..9 {
                    generator.send(&frame((n, 2), u32::from(n), 0));
                }
                assert_eq!(receive(&mut source, 6)[0].number(), 3);
                assert_eq!((get(&counts.downs), get(&counts.reopened)), (2, 1));

                // So fast that the capture does not see it removed.
                let again = [&["link del c0"], PAIR].concat();
                let generator = run(&again);
                until(&mut source, "at once", || get(&counts.reopened) == 2);
                generator.send(&frame((1, 2), 9, 0));
                assert_eq!(receive(&mut source, 1)[0].number(), 9);
                assert!(drain(&mut source).is_empty());
                assert_eq!((get(&counts.received), get(&counts.dropped)), (9, 0));
            });
            for lines in commands {
                let is_done = lines.iter().all(|line| ip(line));
                if done.send((is_done, Generator::new("c1"))).is_err() {
                    break;
                }
            }
            reader.join().unwrap();
        }
    });
}

/// An interface that is down when it is opened brings frames when it is up.
#[test]
fn what_is_down_may_come_up() {
    with_network("live::what_is_down_may_come_up", PAIR, || {
        assert!(ip("link set c0 down"));
        let (mut source, counts) = source(&options("c0"));
        let is_up = || counts.interfaces()[0].is_up.load(Relaxed);
        assert!(!is_up());
        assert!(ip("link set c0 up"));
        until(&mut source, "up", is_up);
        Generator::new("c1").send(&frame((1, 2), 3, 0));
        assert_eq!(receive(&mut source, 1)[0].number(), 3);
    });
}

/// An interface that cannot be opened gives an error that states what to do next.
#[test]
fn errors_help() {
    with_network("live::errors_help", PAIR, || {
        let said = |options: &LiveOptions| Live::open(options).unwrap_err().to_string();
        let text = said(&options("c9"));
        assert!(
            text.contains("there are: ") && text.contains("c0") && text.contains("lo"),
            "{text}"
        );
        assert!(said(&LiveOptions::default()).contains("name an interface"));
        let twice = vec!["c0".to_owned(), "c0".to_owned()];
        assert!(said(&LiveOptions { interfaces: twice, ..options("") }).contains("twice"));
        let beside = vec!["c0".to_owned(), ANY.to_owned()];
        assert!(said(&LiveOptions { interfaces: beside, ..options("") }).contains("twice"));
        assert!(ip("link set c0 down"));
        assert!(said(&LiveOptions { rings: 2, ..options("c0") }).contains("link set c0 up"));
        let unprivileged = std::thread::spawn(|| {
            crate::privileges::drop_capabilities().unwrap();
            Live::open(&options("c0")).unwrap_err().to_string()
        });
        let text = unprivileged.join().unwrap();
        assert!(text.contains("setcap cap_net_raw+ep"), "{text}");
        // A card without stamps is no reason to fail.
        let live = Live::open(&LiveOptions { hardware_time: true, ..options("c0") }).unwrap();
        assert!(live.notes()[0].contains("but the system's"), "{:?}", live.notes());
    });
}

/// Each change of an interface is reported. An interface that cannot be bound again ends the
/// capture with a reason, after the frames received before. With several rings this happens if no
/// socket is left, and with any number if the frames of the new interface are of another kind.
#[test]
fn a_capture_that_would_be_blind_ends() {
    with_network("live::a_capture_that_would_be_blind_ends", PAIR, || {
        let (command, commands) = std::sync::mpsc::channel::<Vec<&'static str>>();
        let (done, answers) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let run = |lines: &[&'static str]| -> bool {
                command.send(lines.to_vec()).unwrap();
                answers.recv().unwrap()
            };
            let open = |rings| {
                let mut live = Live::open(&LiveOptions { rings, ..options("c0") }).unwrap();
                let (say, said) = std::sync::mpsc::channel();
                live.report_to(move |event, name| say.send(format!("{event} {name}")).unwrap());
                let counts = live.counts();
                (Source::live(live, SourceOptions::default()), said, counts)
            };
            // Both are open before the right to open more is given up.
            let (mut one, mut several) = (open(1), open(2));
            crate::privileges::drop_capabilities().unwrap();
            let again = [&["link del c0"], PAIR].concat();
            for turn in 0..SPARES as u64 {
                assert!(run(&again));
                for (source, said, counts) in [&mut one, &mut several] {
                    let reopened = &counts.interfaces()[0].reopened;
                    until(source, "again", || reopened.load(Relaxed) == turn + 1);
                    assert_eq!(said.recv().unwrap(), "interface removed c0");
                    assert_eq!(said.recv().unwrap(), "interface recreated c0");
                    assert_eq!(source.failure(), None);
                }
            }
            let ends = |source: &mut Source| {
                let (never, start) = (AtomicBool::new(false), Instant::now());
                while !matches!(source.poll_batch(&never), Polled::End) {
                    assert!(start.elapsed() < WAIT, "it ends");
                }
                source.failure().unwrap().to_owned()
            };
            assert!(run(&again));
            let why = ends(&mut several.0);
            assert!(why.contains("c0 was recreated") && why.contains("may not see"), "{why}");
            if !run(&["link del c0", "tuntap add c0 mode tun", "link set c0 up"]) {
                return skip(
                    "live::a_capture_that_would_be_blind_ends",
                    "no TUN device can be made",
                );
            }
            let why = ends(&mut one.0);
            assert!(why.contains("of another kind"), "{why}");
        });
        for lines in commands {
            if done.send(lines.iter().all(|line| ip(line))).is_err() {
                break;
            }
        }
        reader.join().unwrap();
    });
}
