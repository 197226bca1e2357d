//! `find` returns the packets that a scan returns, and those that were appended.

mod common;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::world::*;
use common::*;
use larder_store::{FindOptions, Finder, Options, Query, Store};

/// Runs random searches; the packets from index `first` on exist.
fn ask(world: &mut World, first: usize, questions: usize) {
    for _ in 0..questions {
        let words: Vec<String> = (0..1 + world.chance.below(3)).map(|_| world.word()).collect();
        let options = world.find_options();
        let (found, summary) = find(&world.directory, &words, options, false);
        assert_eq!(summary.packets, found.len() as u64);
        assert_eq!(summary.segments_without_index, [0; 0]);
        let (scanned, _) = find(&world.directory, &words, options, true);
        assert!(found == scanned, "{words:?} {options:?}: {} {}", found.len(), scanned.len());
        let expected = world.expected(&world.packets[first..], &words, options);
        assert!(found == expected, "{words:?} {options:?}: {} {}", found.len(), expected.len());
    }
}

/// Over more than a hundred segments and three runs, random searches return the packets of a scan
/// and of the model, also while the last segment grows. Invariant 5 of `store`.
#[test]
fn find_is_scan_is_model() {
    compare_with_model(0, false);
}

/// The same; the end of a flow comes into a growing segment with a name, and another name was before.
#[test]
fn find_is_scan_is_model_when_flows_end_late() {
    compare_with_model(106, false);
}

/// The same of compressed segments.
#[test]
fn find_is_scan_is_model_when_compressed() {
    compare_with_model(106, true);
}

fn compare_with_model(seed: u64, is_compressed: bool) {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options_of(folder.path(), is_compressed);
    // Each is synced.
    options.segment_bytes *= 1 + 3 * u64::from(is_compressed);
    let mut world = World::new(seed, folder.path(), options);
    for _ in 0..3 {
        world.open();
        for _ in 0..3 {
            world.go_on(50);
            settle(&world);
            ask(&mut world, 0, 8);
        }
        world.store.take().unwrap().finish().unwrap();
        ask(&mut world, 0, 20);
    }
    let segments = files(folder.path()).iter().filter(|name| name.ends_with(".idx")).count();
    assert!(segments > if is_compressed { 25 } else { 100 }, "{segments}");
}

/// After the budget has deleted older segments, the rest is found by the same names: flows that go
/// on have theirs in each index.
#[test]
fn names_outlive_segments() {
    for seed in 10..14 {
        let folder = tempfile::tempdir().unwrap();
        let is_compressed = seed == 11;
        let mut small = options_of(folder.path(), is_compressed);
        small.budget_bytes = if is_compressed { 70 << 10 } else { 100 << 10 };
        let mut world = World::new(seed, folder.path(), small);
        world.open();
        world.go_on(300);
        world.store.take().unwrap().finish().unwrap();
        let all = all_frames(folder.path());
        let first = world.packets.len() - all.len();
        assert!(first > 1000 && all[0].0 == world.packets[first].ts_ns);
        ask(&mut world, first, 60);
    }
}

/// A writer is killed, and its files are cut anywhere: whole packets are found by scan and index,
/// before and after a start that continues the positions; runs share no names. Invariants 1, 2 of
/// `store`.
#[test]
fn what_was_flushed_survives_a_kill() {
    for seed in 20..50 {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World::new(seed, folder.path(), options_of(folder.path(), seed % 5 == 0));
        world.open();
        world.go_on(40);
        settle(&world);
        let killed = tempfile::tempdir().unwrap();
        let is_journal_cut = seed % 3 == 0;
        assert!(kill(folder.path(), killed.path(), &mut world, is_journal_cut));
        world.store.take().unwrap().finish().unwrap();
        world.directory = killed.path().to_owned();
        world.options.directory = killed.path().to_owned();

        // The cut leaves a prefix, since it was the last segment.
        let any = ["0.0.0.0/0".to_owned(), "::/0".to_owned()];
        let (left, _) = find(killed.path(), &any, FindOptions::default(), true);
        let last_ns = left.last().map_or(0, |(ts_ns, _)| *ts_ns);
        world.packets.retain(|packet| {
            let has_address = packet.key.is_some() || !packet.others.is_empty();
            has_address && packet.ts_ns <= last_ns
        });
        let mut before = Vec::new();
        if is_journal_cut {
            // Names may be lost; index and scan lose the same.
            for word in ["*", "*.example.com", "www.example.com", "10.0.0.9"] {
                let words = [word.into()];
                let (found, _) = find(killed.path(), &words, FindOptions::default(), false);
                assert!(found == find(killed.path(), &words, FindOptions::default(), true).0);
                before.push((word, found));
            }
        } else {
            ask(&mut world, 0, 10);
        }
        let numbers: Vec<u64> = files(killed.path())
            .iter()
            .filter_map(|name| name.split('.').next()?.parse().ok())
            .collect();
        let position = Finder::open(killed.path()).map(|mut finder| {
            let mut last = 0;
            let query = Query::parse(&any).unwrap();
            let mut visit = |packet: larder_store::FoundPacket<'_>| {
                last = packet.position;
                std::ops::ControlFlow::Continue(())
            };
            finder.find(&query, FindOptions::default(), &mut visit).unwrap();
            last
        });
        world.open();
        assert!(files(killed.path()).iter().all(|name| !name.ends_with(".pcapng.part")));
        for (word, found) in before {
            let (again, _) = find(killed.path(), &[word.into()], FindOptions::default(), false);
            // The same except for packets of flows of an earlier segment, which are found by name
            // again.
            assert!(found.iter().all(|packet| again.contains(packet)), "{word}");
        }
        world.go_on(20);
        let last = world.store.as_ref().unwrap().catalog().last().unwrap();
        assert!(last.number > numbers.into_iter().max().unwrap());
        assert!(last.first_position > position.unwrap());
        settle(&world);
        if !is_journal_cut {
            ask(&mut world, 0, 10);
        }
        world.store.take().unwrap().finish().unwrap();
        if !is_journal_cut {
            ask(&mut world, 0, 10);
        }
    }
}

/// A segment with a missing or damaged index is read whole, and reported; all its packets are found
/// by address.
#[test]
fn a_damaged_index_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(60, folder.path(), options(folder.path()));
    world.open();
    world.go_on(40);
    world.store.take().unwrap().finish().unwrap();
    fs::remove_file(folder.path().join("00000001.idx")).unwrap();
    let torn = folder.path().join("00000002.idx");
    let mut bytes = fs::read(&torn).unwrap();
    bytes[20] ^= 1;
    fs::write(&torn, bytes).unwrap();
    // One wrong byte in the lists: not detected before it is read.
    let torn = folder.path().join("00000003.idx");
    let mut bytes = fs::read(&torn).unwrap();
    bytes[1000] ^= 1;
    fs::write(&torn, bytes).unwrap();
    let words = ["10.0.0.0/16".to_owned()];
    let (found, summary) = find(folder.path(), &words, FindOptions::default(), false);
    assert_eq!(found, world.expected(&world.packets, &words, FindOptions::default()));
    assert_eq!(summary.segments_without_index, [1, 2, 3]);
}

/// A folder without stored packets is refused, and a missing one, by name; a store without packets
/// has none.
#[test]
fn empty_and_missing_folders() {
    let folder = tempfile::tempdir().unwrap();
    let error = Finder::open(folder.path()).unwrap_err();
    assert!(matches!(error, larder_store::StoreError::NoStore(_)), "{error}");
    // A foreign capture makes no store; a writer that has stored nothing yet does.
    fs::write(folder.path().join("00000001.pcapng"), "a capture of somebody else").unwrap();
    assert!(Finder::open(folder.path()).is_err());
    drop(Store::open(options(folder.path()), &interfaces()).unwrap());
    let (found, summary) = find(folder.path(), &["*".into()], FindOptions::default(), false);
    assert_eq!((found.len(), summary.segments, summary.damaged.len()), (0, 0, 0));
    let missing = folder.path().join("nowhere");
    let error = Finder::open(&missing).unwrap_err().to_string();
    assert!(error.contains("nowhere"), "{error}");
    // A file is no folder, also for the writer.
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(Store::open(options(&file), &interfaces()).is_err());
}

/// What a follower gets until three times there was nothing new after all was written: each time
/// everything had been read.
fn follow(directory: &Path, query: &Query, is_over: &AtomicBool) -> Vec<(i64, Vec<u8>)> {
    let mut finder = Finder::open(directory).unwrap();
    let (mut found, mut idles) = (Vec::new(), 0);
    let mut idle = || {
        idles += u32::from(is_over.load(Ordering::Acquire));
        match idles {
            3 => std::ops::ControlFlow::Break(()),
            _ => std::ops::ControlFlow::Continue(()),
        }
    };
    let mut visit = |packet: larder_store::FoundPacket<'_>| {
        found.push((packet.ts_ns, packet.frame.to_vec()));
        std::ops::ControlFlow::Continue(())
    };
    finder.follow(query, FindOptions::default(), &mut idle, &mut visit).unwrap();
    found
}

/// A follower from before the first packet to after the last, over a hundred segments, two runs and
/// a budget that deletes segments that were read, gets the matches, once and in order. If names are
/// learned late, earlier packets are shown when the name is known, as long as their segment is the
/// last one.
#[test]
fn following_shows_all_that_comes() {
    let word = |word: &str| Question::Word(String::new(), word.to_owned());
    let below = || word("*.example.com");
    let joined = Question::All(vec![
        Question::Any(vec![below(), Question::Port(2000, 2000)]),
        Question::Not(Box::new(word("10.0.1.0/24"))),
        Question::After(5_000),
    ]);
    let words = [
        (70, word("10.0.0.0/16"), true),
        (71, below(), true),
        (72, word("0.0.0.0/0"), true),
        (73, below(), false),
        (74, joined.clone(), true),
        (75, joined, false),
        (76, Question::Not(Box::new(word("0.0.0.0/0"))), true),
    ];
    for (seed, question, is_prompt) in words {
        let folder = tempfile::tempdir().unwrap();
        let mut options = options_of(folder.path(), seed % 2 == 0);
        if !is_prompt {
            options.segment_bytes = 1 << 20;
        }
        let mut world = World::new(seed, folder.path(), options);
        world.is_prompt = is_prompt;
        let query = Query::read(&question.text(), 0).unwrap();
        let is_over = AtomicBool::new(false);
        // Following needs a store.
        drop(Store::open(world.options.clone(), &interfaces()).unwrap());
        let (found, expected) = std::thread::scope(|scope| {
            let follower = scope.spawn(|| follow(folder.path(), &query, &is_over));
            for _ in 0..2 {
                world.open();
                for _ in 0..8 {
                    world.go_on(20);
                    std::thread::sleep(Duration::from_millis(if is_prompt { 20 } else { 100 }));
                }
                world.store.take().unwrap().finish().unwrap();
            }
            is_over.store(true, Ordering::Release);
            let found = follower.join().unwrap();
            (found, world.answer(&question, FindOptions::default()))
        });
        let late = found.windows(2).filter(|pair| pair[0].0 > pair[1].0).count();
        let count = found.len();
        let mut sorted = found;
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), count, "each once");
        if is_prompt {
            assert_eq!(late, 0);
            assert!(sorted == expected, "{question:?}: {count} of {}", expected.len());
        } else {
            assert!(sorted.iter().all(|packet| expected.contains(packet)));
            assert!(late > 0 && count > expected.len() / 2, "{late}, {count}");
        }
    }
}

/// Searches while a writer appends, closes and deletes at full speed meet no error: without
/// deletions they return a prefix of the appended packets, never shorter; with deletions, whole
/// packets (invariant 1 of `store`).
#[test]
fn searches_beside_a_writer() {
    for (budget_bytes, is_compressed) in
        [(1 << 30, false), (1 << 30, true), (64 << 10, false), (64 << 10, true)]
    {
        let folder = tempfile::tempdir().unwrap();
        let mut options = options_of(folder.path(), is_compressed);
        options.budget_bytes = budget_bytes;
        let mut world = World::new(80, folder.path(), options);
        world.open();
        let is_over = AtomicBool::new(false);
        let words = ["0.0.0.0/0".to_owned()];
        let mut searches = Vec::new();
        std::thread::scope(|scope| {
            let searcher = scope.spawn(|| {
                let mut searches = Vec::new();
                while !is_over.load(Ordering::Acquire) {
                    searches.push(find(folder.path(), &words, FindOptions::default(), false));
                }
                searches
            });
            for _ in 0..60 {
                world.go_on(5);
                std::thread::sleep(Duration::from_millis(3));
            }
            world.store.take().unwrap().finish().unwrap();
            is_over.store(true, Ordering::Release);
            searches = searcher.join().unwrap();
        });
        assert!(searches.len() > 3, "{}", searches.len());
        let all = world.expected(&world.packets, &words, FindOptions::default());
        let mut before = 0;
        for (found, summary) in searches {
            if budget_bytes == 1 << 30 {
                let count = found.len();
                let is_prefix = count >= before && found == all[..count];
                assert!(is_prefix, "{count} after {before}, {summary:?}");
                assert!(summary.damaged.is_empty(), "{:?}", summary.damaged);
                before = found.len();
            } else {
                let genuine = found.iter().filter(|packet| all.binary_search(packet).is_ok());
                assert_eq!(genuine.count(), found.len());
                assert!(found.is_sorted());
            }
        }
    }
}

/// Eight KiB in the middle of a closed segment are zeros. All packets before and after them are
/// found, by index, without one and by a scan, and each way reports the segment; if the index has
/// the number of lost packets, it is exact.
#[test]
fn damage_costs_what_it_touches() {
    let folder = tempfile::tempdir().unwrap();
    let mut sized = options(folder.path());
    sized.segment_bytes = 64 << 10;
    let mut store = Store::open(sized, &interfaces()).unwrap();
    append_packets(&mut store, |number| number % 2);
    store.finish().unwrap();
    let path = folder.path().join("00000001.pcapng");
    let mut file = fs::read(&path).unwrap();
    let before: Vec<i64> = frames(&file).iter().map(|(number, _)| *number).collect();
    file[20_000..28_192].fill(0);
    fs::write(&path, &file).unwrap();
    let numbers = |is_scan| {
        let (found, summary) =
            find(folder.path(), &["10.0.0.0".into()], FindOptions::default(), is_scan);
        (found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), summary)
    };
    let (found, summary) = numbers(false);
    let lost: Vec<i64> = (0..200).step_by(2).filter(|number| !found.contains(number)).collect();
    assert!(lost.len() >= 4 && lost.len() <= 6, "{lost:?}");
    assert!(lost.iter().all(|number| before.contains(number)));
    let damage = larder_store::Damage { segment: 1, packets: Some(lost.len() as u64), bytes: 0 };
    assert_eq!(summary.damaged, [damage]);
    let (scanned, summary) = numbers(true);
    assert_eq!(scanned, found, "a scan goes on behind the damage");
    let [damage] = summary.damaged[..] else { panic!("{:?}", summary.damaged) };
    assert!(damage.segment == 1 && damage.bytes >= 8192);
    assert!(damage.packets.is_some_and(|packets| (8..12).contains(&packets)), "{damage:?}");

    fs::remove_file(folder.path().join("00000001.idx")).unwrap();
    let (found, summary) = numbers(false);
    assert_eq!((found, summary.segments_without_index), (scanned, vec![1]));
    let [damage] = summary.damaged[..] else { panic!("{:?}", summary.damaged) };
    assert!(damage.packets.is_none() && damage.bytes >= 8192, "{damage:?}");
}

/// A segment with a damaged beginning is found by its index; with the index damaged too it is
/// reported, and not skipped as foreign. An index that was copied from another segment is not used.
#[test]
fn a_damaged_beginning_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(91, folder.path(), options(folder.path()));
    world.open();
    world.go_on(100);
    world.store.take().unwrap().finish().unwrap();
    let words = ["0.0.0.0/0".to_owned()];
    let all = find(folder.path(), &words, FindOptions::default(), false).0;
    let path = |number: u64, ending| folder.path().join(format!("{number:08}.{ending}"));
    let index = fs::read(path(3, "idx")).unwrap();
    let mut other = fs::read(path(4, "idx")).unwrap();
    // The number and the length of the third, and matching checksums: only the position differs.
    other[8..16].copy_from_slice(&index[8..16]);
    other[32..40].copy_from_slice(&index[32..40]);
    let header = 8 + 7 * 8 + 8 * 16 + 16;
    let crc = crc32fast::hash(&other[..header]);
    other[header..header + 4].copy_from_slice(&crc.to_le_bytes());
    fs::write(path(3, "idx"), &other).unwrap();
    let (found, summary) = find(folder.path(), &words, FindOptions::default(), false);
    assert!(found == all && summary.segments_without_index == [3]);
    fs::write(path(3, "idx"), &index).unwrap();

    let mut bytes = fs::read(path(3, "pcapng")).unwrap();
    bytes[..8].fill(0xff);
    fs::write(path(3, "pcapng"), &bytes).unwrap();
    let (found, summary) = find(folder.path(), &words, FindOptions::default(), false);
    assert!(!summary.damaged.is_empty() || found == all, "{:?}", summary.damaged);
    fs::write(path(3, "idx"), b"nothing").unwrap();
    let (found, summary) = find(folder.path(), &words, FindOptions::default(), false);
    assert!(found.len() < all.len());
    assert_eq!(summary.damaged.iter().map(|damage| damage.segment).collect::<Vec<_>>(), [3]);
}

/// GRE around the IP packet of a frame.
fn gre(outer: [[u8; 4]; 2], inner: &[u8]) -> Vec<u8> {
    let payload = [&[0, 0, 8, 0], &inner[14..]].concat();
    ethernet(&ipv4(outer[0], outer[1], 47, 0, &payload), 0x0800)
}

/// Packets with addresses that are no ends of a flow, each with a host of its own: ends of a
/// tunnel, ARP, transport headers that are cut or malformed, quoted headers, a tunnel in fragments,
/// which has its host in the first one and in the one that completes it.
fn odd_packets() -> Vec<(u8, Vec<u8>)> {
    let host = |last: u8| [10, 77, 0, last];
    let plain = |last: u8| udp(host(last), 1, [192, 0, 2, 1], 53, &[7; 64]);
    let arp = |sender: u8, target: u8| {
        let head = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1];
        ethernet(&[&head[..], &host(sender), &[0; 6], &host(target)].concat(), 0x0806)
    };
    let quoting = [&[3, 1, 0, 0, 0, 0, 0, 0], &plain(6)[14..42]].concat();
    let around = gre([[192, 0, 2, 8], [192, 0, 2, 9]], &plain(7));
    let piece = |range: std::ops::Range<usize>, word| {
        ethernet(&ipv4([192, 0, 2, 8], [192, 0, 2, 9], 47, word, &around[34..][range]), 0x0800)
    };
    vec![
        (1, gre([host(1), [192, 0, 2, 7]], &udp([10, 1, 0, 1], 1, [10, 1, 0, 2], 2, &[1; 9]))),
        (2, arp(2, 200)),
        (3, arp(201, 3)),
        (4, ethernet(&ipv4(host(4), [192, 0, 2, 1], 6, 0, &[9; 30]), 0x0800)),
        (5, ethernet(&ipv4([192, 0, 2, 1], host(5), 17, 0, &[9; 3]), 0x0800)),
        (6, ethernet(&ipv4([192, 0, 2, 3], [192, 0, 2, 4], 1, 0, &quoting), 0x0800)),
        (7, piece(0..40, 0x2000)),
        (0, piece(40..64, 0x2005)),
        (7, piece(64..around.len() - 34, 8)),
        (8, plain(8)),
    ]
}

/// An address finds each packet that has it in any header of IP or in ARP, and no other: by the
/// index, by one of version 1, by a scan, in a growing segment, and in one that was closed after a
/// kill.
#[test]
fn an_address_finds_packets_by_any_header() {
    let folder = tempfile::tempdir().unwrap();
    let killed = tempfile::tempdir().unwrap();
    let sized = Options { segment_bytes: 1 << 20, ..options(folder.path()) };
    let mut store = Store::open(sized, &interfaces()).unwrap();
    let (mut made, mut next) = (Made::default(), 1);
    let packets = odd_packets();
    for (number, (_, frame)) in packets.iter().enumerate() {
        made.packet(0, number as i64, frame);
    }
    made.events.push(event(key(&packets[9].1), 10, "host8.example"));
    made.append(&mut store, &mut next);
    let check = |directory: &Path, state: &str| {
        for host in 1..=8u8 {
            let with_host = packets.iter().filter(|(of, _)| *of == host);
            let expected: Vec<Vec<u8>> = with_host.map(|(_, frame)| frame.clone()).collect();
            for word in [format!("10.77.0.{host}"), format!("10.77.0.{host}/32")] {
                for is_scan in [false, true] {
                    let words = [word.clone()];
                    let (found, _) = find(directory, &words, FindOptions::default(), is_scan);
                    let found: Vec<Vec<u8>> = found.into_iter().map(|(_, frame)| frame).collect();
                    assert!(found == expected, "{state} {word} {is_scan}: {}", found.len());
                }
            }
        }
        let all = find(directory, &["10.77.0.0/16".into()], FindOptions::default(), false).0;
        assert_eq!(all.len(), 9, "{state}: each once");
        let late = FindOptions { from_ns: Some(3), to_ns: Some(5), ..FindOptions::default() };
        assert_eq!(find(directory, &["10.77.0.0/16".into()], late, false).0.len(), 2, "{state}");
        let (named, summary) =
            find(directory, &["host8.example".into()], FindOptions::default(), false);
        assert_eq!((named.len(), summary.segments_without_index.len()), (1, 0), "{state}");
    };
    wait_until_written(&store);
    check(folder.path(), "growing");
    copy_files(folder.path(), killed.path());
    drop(Store::open(options(killed.path()), &interfaces()).unwrap());
    check(killed.path(), "killed");
    store.finish().unwrap();
    check(folder.path(), "closed");
    let index = folder.path().join("00000000.idx");
    fs::write(&index, of_version_1(&fs::read(&index).unwrap())).unwrap();
    check(folder.path(), "an index of version 1");
}

/// A follower of an address gets packets of any kind that have it, as they come.
#[test]
fn following_an_address_shows_any_header() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(options(folder.path()), &interfaces()).unwrap();
    let mut next = 1;
    let mut batch = |store: &mut Store, time: i64| {
        let mut made = Made::default();
        odd_packets().iter().for_each(|(_, frame)| made.packet(0, time, frame));
        made.append(store, &mut next);
    };
    batch(&mut store, 0);
    let query = Query::parse(&["10.77.0.0/29"]).unwrap();
    let mut finder = Finder::open(folder.path()).unwrap();
    let (mut found, mut batches) = (Vec::new(), 1);
    let mut store = Some(store);
    let started = Instant::now();
    let seen = std::cell::Cell::new(0);
    let mut idle = || {
        if seen.get() == batches * 8 && batches < 5 {
            batch(store.as_mut().unwrap(), batches);
            batches += 1;
        }
        match seen.get() >= 40 || started.elapsed() > Duration::from_secs(20) {
            true => std::ops::ControlFlow::Break(()),
            false => std::ops::ControlFlow::Continue(()),
        }
    };
    let mut visit = |packet: larder_store::FoundPacket<'_>| {
        found.push(packet.frame.to_vec());
        seen.set(seen.get() + 1);
        std::ops::ControlFlow::Continue(())
    };
    finder.follow(&query, FindOptions::default(), &mut idle, &mut visit).unwrap();
    store.take().unwrap().finish().unwrap();
    let wanted = odd_packets().into_iter().filter(|(host, _)| (1..8).contains(host));
    let expected: Vec<Vec<u8>> = wanted.map(|(_, frame)| frame).collect();
    assert_eq!(found.len(), 40);
    assert!(found.chunks(8).all(|batch| batch == expected));
}

/// A writer is killed, and a page of its last file was never written: the next start keeps the
/// packets after it, in a file that others read to its end, and reports the damage.
#[test]
fn recovery_keeps_what_lies_behind_a_hole() {
    let folder = tempfile::tempdir().unwrap();
    let killed = tempfile::tempdir().unwrap();
    let sized = Options { segment_bytes: 1 << 20, ..options(folder.path()) };
    let mut store = Store::open(sized, &interfaces()).unwrap();
    append_packets(&mut store, |_| 1);
    wait_until_written(&store);
    copy_files(folder.path(), killed.path());
    let path = killed.path().join("00000000.pcapng.part");
    let mut file = fs::read(&path).unwrap();
    file[40_960..45_056].fill(0);
    file.truncate(file.len() - 10);
    fs::write(&path, &file).unwrap();
    let options = options(killed.path());
    let log = options.log.clone();
    let store = Store::open(options, &interfaces()).unwrap();
    let lines = log.take();
    assert!(lines.iter().any(|line| line.contains("segment damaged")), "{lines:?}");
    drop(store);
    let kept: Vec<i64> = all_frames(killed.path()).iter().map(|(number, _)| *number).collect();
    assert!((192..=196).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept.last(), Some(&198), "only the torn end is cut off");
    let (found, summary) = find(killed.path(), &["10.0.0.1".into()], FindOptions::default(), false);
    assert_eq!((found.len(), summary.damaged.len()), (kept.len(), 0));
}
