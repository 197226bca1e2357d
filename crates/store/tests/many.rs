//! Searches of several stores at once, over HTTP and in folders, merged by time.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::world::*;
use common::*;
use larder_serve::http_client;
use larder_store::many::{self, Limits, Outcome, Place};
use larder_store::serve::{Listen, Options, Server};
use larder_store::{FindOptions, FoundPacket, Query};
use larder_testkit::wait::until_so;
use larder_wire::capture::write;

type Packets = Vec<(i64, usize, Vec<u8>)>;

fn limits(packets: u64, deadline: Duration) -> Limits {
    Limits { packets, deadline, stop: Arc::new(AtomicBool::new(false)) }
}

fn asked(text: &str, options: FindOptions) -> many::Question {
    let query = Query::read(text, 0).unwrap_or_else(|error| panic!("{text}: {error}"));
    many::Question { query, text: text.to_owned(), now_ns: 0, options, is_scan: false }
}

/// The merged packets, with the times as they came, and the outcomes.
fn search(
    places: &[Place],
    question: &many::Question,
    limits: &Limits,
) -> (Vec<(i64, Vec<u8>)>, Vec<Outcome>) {
    let mut found = Vec::new();
    let mut visit = |packet: FoundPacket<'_>| {
        assert_eq!(packet.link_type(), 1);
        found.push((packet.ts_ns, packet.frame.to_vec()));
        ControlFlow::Continue(())
    };
    let outcomes = many::find(places, question, limits, &mut visit);
    (found, outcomes)
}

fn serve(world: &World) -> (Server, Place) {
    let options = Options::new(Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))));
    let catalog = world.store.as_ref().unwrap().catalog().clone();
    let server = Server::start(&options, catalog).unwrap();
    let place = http_client::Place::Tcp(server.address().unwrap().to_string());
    (server, Place::Machine(place, None))
}

fn merged(worlds: &[World], question: &Question, options: FindOptions) -> Packets {
    let of_world = |(at, world): (usize, &World)| {
        let answer = world.answer(question, options).into_iter();
        answer.map(|(ts_ns, frame)| (ts_ns, at, frame)).collect::<Vec<_>>()
    };
    let mut all: Packets = worlds.iter().enumerate().flat_map(of_world).collect();
    all.sort_by_key(|(ts_ns, at, _)| (*ts_ns, *at));
    all
}

/// 500 random queries to three machines at once return what a look at each packet returns, merged
/// by time: while nothing changes, while all three write, and while they also delete.
#[test]
fn three_machines_are_one_store() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let world = |seed: u64, folder: &Path, budget_bytes: u64| {
        let options = larder_store::Options { budget_bytes, ..options(folder) };
        let mut world = World::new(seed, folder, options);
        world.is_prompt = true;
        // A packet that was just written is never taken for that of another machine.
        world.ts_ns += seed as i64 % 10;
        world.open();
        world.go_on(60);
        world
    };
    // The third deletes from early on.
    let mut worlds: Vec<World> = folders
        .iter()
        .zip([(300, 1 << 30), (301, 1 << 30), (302, 96 << 10)])
        .map(|(folder, (seed, budget))| world(seed, folder.path(), budget))
        .collect();
    worlds.iter().for_each(settle_all);
    let (_servers, places): (Vec<Server>, Vec<Place>) = worlds.iter().map(serve).unzip();
    let limits = limits(u64::MAX, Duration::from_secs(60));
    let mut deleted = 0;
    for round in 0..500 {
        let (question, options) = (worlds[0].question(3), worlds[0].find_options());
        let asked = asked(&question.text(), options);
        let before = merged(&worlds, &question, options);
        let writes = round % 5 == 4;
        let (found, outcomes) = std::thread::scope(|scope| {
            let writer =
                writes.then(|| scope.spawn(|| worlds.iter_mut().for_each(|it| it.go_on(4))));
            let found = search(&places, &asked, &limits);
            if let Some(writer) = writer {
                writer.join().unwrap();
            }
            found
        });
        let after = if writes { merged(&worlds, &question, options) } else { before.clone() };
        let is_whole = |outcome: &Outcome| matches!(outcome, Outcome::Done(_, None));
        assert!(outcomes.iter().all(is_whole), "{}: {outcomes:?}", asked.text);
        // What existed before and after is found, each once, in order, and nothing else.
        let oldest_ns: Vec<i64> = worlds
            .iter()
            .map(|world| world.store.as_ref().unwrap().catalog().list()[0].first_ns.unwrap_or(0))
            .collect();
        deleted = deleted.max(oldest_ns[2]);
        assert!(found.is_sorted_by_key(|(ts_ns, _)| *ts_ns), "{}", asked.text);
        let mut rest = found.iter().peekable();
        for (ts_ns, at, frame) in &after {
            if rest.next_if(|(of, found)| of == ts_ns && found == frame).is_none() {
                let was_there = *ts_ns >= oldest_ns[*at]
                    && before.binary_search_by_key(&(*ts_ns, *at), |it| (it.0, it.1)).is_ok();
                assert!(
                    !was_there,
                    "round {round}, {}: {ts_ns} of {at} is missing; next: {:?}",
                    asked.text,
                    rest.peek().map(|it| it.0)
                );
            }
        }
        assert_eq!(rest.next(), None, "round {round}, {}", asked.text);
        if writes {
            worlds.iter().for_each(settle_all);
        }
    }
    assert!(deleted > 0, "the third machine deleted segments");
}

/// Waits until the last packet can be found.
fn settle_all(world: &World) {
    let any = Query::read("tcp or not tcp", 0).unwrap();
    let options = FindOptions {
        from_ns: Some(world.packets.last().unwrap().ts_ns),
        ..FindOptions::default()
    };
    until_so("the last packet is in its file", || {
        !find_query(&world.directory, &any, options, false).0.is_empty()
    });
}

/// A folder and a machine; a limit; a scan; a wrong query is refused by the machine in its words, and a query
/// that is too long before it is sent.
#[test]
fn folders_and_machines_are_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(310, folder.path(), options(folder.path()));
    world.open();
    world.go_on(30);
    settle_all(&world);
    let (_server, machine) = serve(&world);
    let places = [Place::Directory(folder.path().to_owned()), machine];
    let all = limits(u64::MAX, Duration::from_secs(60));
    let any = FindOptions::default();
    let expected = world.answer(&Question::Protocol(17), any);
    let (found, _) = search(&places, &asked("proto 17", any), &all);
    assert_eq!(found.len(), 2 * expected.len());
    assert!(found.chunks(2).zip(&expected).all(|(two, one)| two[0] == *one && two[1] == *one));
    let scan = many::Question { is_scan: true, ..asked("udp", any) };
    assert_eq!(search(&places[..1], &scan, &all).0, expected);
    let (found, _) = search(&places, &asked("udp", any), &limits(3, Duration::from_secs(60)));
    assert_eq!(found.len(), 6);
    let from = FindOptions { from_ns: Some(1_500), to_ns: Some(2_500), ..any };
    assert_eq!(
        search(&places, &asked("udp", from), &all).0.len(),
        2 * world.answer(&Question::Protocol(17), from).len()
    );
    let wrong = many::Question { text: "port x".to_owned(), ..asked("udp", any) };
    let (_, outcomes) = search(&places[1..], &wrong, &all);
    let [Outcome::Failed(text)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert!(text.contains("status 400") && text.contains("column 6"), "{text}");
    let long = |bytes: usize| {
        // Three bytes in a request for each of these.
        let mut text = String::from("udp");
        while text.len() + 500 < bytes {
            text += &format!(" or name = \"{}\"", "é".repeat(200));
        }
        format!("{text} or name = \"{}\"", "a".repeat(bytes - text.len() - 13))
    };
    let text = long(16 << 10);
    assert_eq!(text.len(), 16 << 10);
    let (found, outcomes) = search(&places[1..], &asked(&text, any), &all);
    assert!(found == expected, "{outcomes:?}");
    let target = |text: &str| {
        let udp = asked("udp", any);
        many::Question { text: text.to_owned(), ..udp }.target("pcapng", u64::MAX)
    };
    let left = |text: &str| {
        many::TARGET_BYTES_MAX - target(&format!("{text} or name = \"\"")).expect("it fits").len()
    };
    let mut text = text;
    while left(&text) > 1000 {
        text += &format!(" or name = \"{}\"", "é".repeat(100));
    }
    let left = left(&text);
    let longer = |bytes: usize| format!("{text} or name = \"{}\"", "a".repeat(bytes));
    let most = longer(left);
    assert_eq!(target(&most).map(|target| target.len()), Ok(many::TARGET_BYTES_MAX));
    let (found, outcomes) = search(&places[1..], &asked(&most, any), &all);
    assert!(found == expected, "{outcomes:?}");
    let (_, outcomes) = search(&places[1..], &asked(&longer(left + 1), any), &all);
    let [Outcome::Failed(text)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert!(text.contains("has 57345 bytes in a request, and a machine takes 57344"), "{text}");
    let missing = [Place::Directory(folder.path().join("nowhere"))];
    assert!(matches!(search(&missing, &asked("udp", any), &all).1[..], [Outcome::Failed(_)]));
}

/// Of three machines one sends nothing, one sends a byte now and then, and one is no server of
/// captures: the search takes no longer than the deadline, has what the others have, and names them.
#[test]
fn slow_machines_are_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(320, folder.path(), options(folder.path()));
    world.open();
    world.go_on(30);
    settle_all(&world);
    let (_server, machine) = serve(&world);
    let mut early = Vec::new();
    write::section(&mut early, "x");
    write::interface(&mut early, 1, 0);
    let packet = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, b"early");
    write::packet(&mut early, 0, 1, &packet, packet.len() as u32);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let play = |first: Vec<u8>, drip: &'static [u8]| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let place = http_client::Place::Tcp(listener.local_addr().unwrap().to_string());
            let is_over = &is_over;
            scope.spawn(move || {
                let (mut socket, _) = listener.accept().unwrap();
                let _ = socket.read(&mut [0; 1024]);
                let _ = socket.write_all(&first);
                while !is_over.load(Ordering::Acquire) {
                    let _ = socket.write_all(drip);
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            Place::Machine(place, None)
        };
        let head = b"HTTP/1.1 200 OK\r\n\r\n";
        let places = [
            play(Vec::new(), b""),
            machine,
            play([&head[..], &early].concat(), b"\x06"),
            play([&head[..], b"<html>what is larder?</html>"].concat(), b"<br>"),
        ];
        let started = Instant::now();
        let wait = Duration::from_millis(400);
        let any = FindOptions::default();
        let (found, outcomes) = search(&places, &asked("udp", any), &limits(u64::MAX, wait));
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        is_over.store(true, Ordering::Release);
        let mut expected = world.answer(&Question::Protocol(17), any);
        expected.insert(0, (1, packet.clone()));
        assert!(found == expected, "{} of {}", found.len(), expected.len());
        let failed = |at: usize| matches!(&outcomes[at], Outcome::Failed(_));
        assert!(failed(0) && !failed(1) && failed(2) && failed(3), "{outcomes:?}");
    });
}
