//! `--names-load` with the files of several runs: whatever their order, however they were joined before.

mod support;

use larder_annotate::names::{Names, Recall};
use larder_annotate::names_file;
use larder_annotate::options::{Options, Rules};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use support::*;

/// The entries of a names file.
type Lines = Vec<String>;

fn file(lines: &[String]) -> String {
    let head = "#larder-names 1\n".to_owned();
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!("{head}{lines}#end {}\n", lines.lines().count())
}

/// The names of files, joined.
fn joined<'a>(files: impl IntoIterator<Item = &'a Lines>, candidates_max: usize) -> Names {
    let (mut names, _) = Names::new(8 << 20, 0, 1, candidates_max, Rules::all()).expect("room");
    for lines in files {
        let text = file(lines);
        let input = &mut text.as_bytes();
        names_file::load(&mut names, input, false, Recall::Joined, &mut || ()).expect("names");
    }
    names.settle(&mut || ()).expect("room");
    names
}

/// What is saved: the candidates of each key in their order, the keys in an order of their own, since only a full
/// budget depends on the order in which they came.
fn saved(names: &Names) -> Lines {
    let mut text = Vec::new();
    names_file::save(names, &mut text).expect("memory");
    entries(&text)
}

fn entries(text: &[u8]) -> Lines {
    let text = String::from_utf8(text.to_vec()).expect("ASCII");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut lines: Lines = lines.map(str::to_owned).collect();
    lines.sort_by_key(|line| key_of(line));
    lines
}

/// Kind, client, address and network; of an alias its target.
fn key_of(line: &str) -> Vec<String> {
    let fields: Vec<&str> = line.split('\t').collect();
    let of_alias = if fields[0] == "alias" { fields[7] } else { "" };
    let network = fields.get(9).copied().unwrap_or_default();
    [fields[0], fields[1], fields[2], network, of_alias].map(str::to_owned).to_vec()
}

fn lines_of(files: &[&Lines], candidates_max: usize) -> Lines {
    saved(&joined(files.iter().copied(), candidates_max))
}

/// Few names, addresses and times, so that files have much in common. Two names are of one domain.
fn name() -> impl Strategy<Value = String> {
    let names = ["a.example", "b.example", "www.a.example", "c.test", "d.test", "edge.cdn.net"];
    let more = (0..12).map(|number| format!("n{number}.net"));
    select(names.map(str::to_owned).into_iter().chain(more).collect::<Vec<_>>())
}

fn fact() -> impl Strategy<Value = String> {
    let time = select(vec![0_i64, 1, 2, 3, 100_000_000_000, 200_000_000_000, 200_000_000_001]);
    let ttl = select(vec![0_u32, 5, 100]);
    let head = prop_oneof![3 => Just("-".to_owned()), 1 => name()];
    let what = (0..8_u8, 0..2_u8, 0..2_u8, select(vec!["", "\tvlan:7"]));
    let rest = (select(vec!['T', 'D', 'L', 'O', 'F', 'C']), time, ttl, name(), head);
    (what, rest).prop_map(|((kind, client, addr, network), (standing, time, ttl, name, head))| {
        let (client, addr) = (format!("10.0.0.{client}"), format!("10.1.0.{addr}"));
        let [kind, client, addr, teacher] = match kind {
            0 | 1 => ["alias", "-", "-", "dns"],
            2 => ["host", "-", &addr, "mdns"],
            3 => ["host", "-", &addr, "dhcp"],
            4 => ["pair", &client, &addr, "dns"],
            _ => ["address", "-", &addr, "dns"],
        };
        // Each kind says what it can say.
        let standing = match (kind, standing) {
            ("alias", 'D' | 'L' | 'C') | ("pair" | "address", 'L' | 'C') => 'T',
            (_, standing) => standing,
        };
        let (head, network) = match kind {
            "alias" if head == "-" => ("b.example".to_owned(), ""),
            "alias" => (head, ""),
            "address" => (head, network),
            _ => ("-".to_owned(), network),
        };
        format!("{kind}\t{client}\t{addr}\t{teacher}\t{standing}\t{time}\t{ttl}\t{name}\t{head}{network}")
    })
}

fn facts() -> impl Strategy<Value = Lines> {
    prop::collection::vec(fact(), 0..60)
}

proptest! {
    /// The join is commutative: no order of the files makes a difference.
    #[test]
    fn any_order_gives_the_same(
        files in prop::collection::vec(facts(), 1..5),
        order: [Index; 4],
        candidates in 1..9_usize,
    ) {
        let in_order: Vec<&Lines> = files.iter().collect();
        let mut other = in_order.clone();
        for (at, index) in order.iter().enumerate().take(other.len()) {
            let with = index.index(other.len());
            other.swap(at, with);
        }
        prop_assert_eq!(lines_of(&in_order, candidates), lines_of(&other, candidates));
    }

    /// It is associative: files that were joined and saved before are as good as the files themselves.
    #[test]
    fn any_grouping_gives_the_same(a in facts(), b in facts(), c in facts(), candidates in 1..9_usize) {
        let all = lines_of(&[&a, &b, &c], candidates);
        let (ab, bc) = (lines_of(&[&a, &b], candidates), lines_of(&[&b, &c], candidates));
        prop_assert_eq!(&lines_of(&[&ab, &c], candidates), &all);
        prop_assert_eq!(&lines_of(&[&a, &bc], candidates), &all);
        prop_assert_eq!(&lines_of(&[&bc, &ab], candidates), &all);
    }

    /// It is idempotent: a file that comes again changes nothing, nor does its order of lines.
    #[test]
    fn what_comes_again_changes_nothing(a in facts(), b in facts(), candidates in 1..9_usize) {
        let all = lines_of(&[&a, &b], candidates);
        prop_assert_eq!(&lines_of(&[&a, &b, &a, &b, &b], candidates), &all);
        prop_assert_eq!(&lines_of(&[&all], candidates), &all);
        let backwards: Lines = a.iter().chain(&b).rev().cloned().collect();
        prop_assert_eq!(&lines_of(&[&backwards], candidates), &all);
    }

    /// Parts of one run, whose times rise, give what the run has learned: the join is the order of the naming rules.
    /// Which clients had queried a name before (`D`) each part says for itself.
    #[test]
    fn parts_of_a_run_are_the_run(lines in facts(), parts in 1..5_usize, candidates in 1..9_usize) {
        let lines = lines.into_iter().filter(|line| line.starts_with("pair") || line.starts_with("address"));
        let rising = lines.enumerate().map(|(second, line)| {
            let mut fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
            fields[4] = fields[4].replace('D', "T");
            fields[5] = (second * 1_000_000_000).to_string();
            fields[8] = "-".to_owned();
            fields.join("\t")
        });
        let rising: Lines = rising.collect();
        let (mut names, _) = Names::new(8 << 20, 0, 1, candidates, Rules::all()).expect("room");
        let (text, as_saved) = (file(&rising), Recall::AsSaved);
        names_file::load(&mut names, &mut text.as_bytes(), false, as_saved, &mut || ()).expect("names");
        let parts: Vec<Lines> = rising.chunks(rising.len() / parts + 1).map(<[_]>::to_vec).collect();
        prop_assert_eq!(lines_of(&parts.iter().rev().collect::<Vec<_>>(), candidates), saved(&names));
    }

    /// No candidate is better than the first of its key by what the rules name: support, then time.
    #[test]
    fn the_latest_supported_name_is_first(files in prop::collection::vec(facts(), 1..4)) {
        let files: Vec<Lines> = files
            .into_iter()
            .map(|lines| lines.into_iter().filter(|line| !line.starts_with("alias")).collect())
            .collect();
        let lines = lines_of(&files.iter().collect::<Vec<_>>(), 8);
        for line in files.iter().flatten() {
            // The last line of a key is its first candidate.
            let first = lines.iter().rfind(|known| key_of(known) == key_of(line)).expect("the key");
            let rank = |line: &str| {
                let fields: Vec<&str> = line.split('\t').collect();
                let time_ns: i64 = fields[5].parse().expect("a number");
                let ttl_s: i64 = fields[6].parse().expect("a number");
                let is_own = fields[0] == "host" && matches!(fields[4], "T" | "D");
                let until_ns = time_ns + if is_own { ttl_s * 1_000_000_000 } else { 0 };
                (matches!(fields[4], "T" | "D" | "L"), until_ns)
            };
            prop_assert!(rank(first) >= rank(line), "{first}\n{line}");
        }
    }
}

/// The owner of a zone can point an alias at any name. Joined with lookups of that name, which clients did themselves,
/// the alias does not come before it, however new it is, and whichever file has what.
#[test]
fn an_alias_stays_behind_its_target() {
    let line = |kind: &str, addr: &str, standing: char, time: i64, name: &str, head: &str| {
        format!("{kind}\t-\t{addr}\tdns\t{standing}\t{time}\t60\t{name}\t{head}")
    };
    let bank = line("address", "192.0.2.1", 'D', 5, "www.bank.example", "-");
    let forged = line("address", "192.0.2.1", 'D', 500, "evil.test", "-");
    let alias = line("alias", "-", 'T', 500, "www.bank.example", "evil.test");
    let one = |facts: &[&String]| facts.iter().map(|fact| (*fact).clone()).collect::<Lines>();
    for files in [
        [one(&[&bank]), one(&[&forged, &alias])],
        [one(&[&bank, &alias]), one(&[&forged])],
        [one(&[&alias]), one(&[&forged, &bank])],
    ] {
        for files in [[&files[0], &files[1]], [&files[1], &files[0]]] {
            let lines = lines_of(&files, 8);
            let first = lines.iter().rfind(|line| line.starts_with("address")).expect("one");
            assert!(first.contains("www.bank.example"), "{lines:#?}");
            // The head of the chain, which other clients see where the target was not queried itself.
            assert!(first.ends_with("\tevil.test"), "{lines:#?}");
        }
    }
    // Without the alias the newer name is first.
    let lines = lines_of(&[&one(&[&bank]), &one(&[&forged])], 8);
    assert!(lines.last().expect("one").contains("evil.test"), "{lines:#?}");
}

/// Parts of a capture, learned apart: joined in any order they give the same log and names, and nearly always those of
/// one run over all parts.
#[test]
fn parts_learned_apart_are_joined() {
    let (count, seed) = (setting("LARDER_MUTATIONS", 6), setting("LARDER_SEED", 1));
    let (mut same, mut all) = (0, 0);
    for case in 0..count {
        let Maker { frames, .. } = traffic(seed.wrapping_mul(1 << 32).wrapping_add(case));
        let folder = Folder::new();
        let keep = |name: &str, frames: &[Frame]| {
            let mut maker = Maker::new(0);
            maker.frames = frames.to_vec();
            folder.keep(name, maker.pcapng())
        };
        let parts = frames.chunks(frames.len() / 4 + 1).enumerate();
        let files: Vec<_> = parts
            .map(|(number, frames)| {
                let part = keep(&format!("{number}.pcapng"), frames);
                let names = made(&ecs(&part), 1).files.remove("names").expect("names");
                folder.keep(&format!("{number}.names"), names)
            })
            .collect();
        let again = keep("again.pcapng", &frames[frames.len() / 2..]);
        let load = |names_load: Vec<_>| made(&Options { names_load, ..ecs(&again) }, 2);
        let mut forwards = load(files.clone());
        let mut backwards = load(files.iter().rev().chain(&files[1..2]).cloned().collect());
        let names = |made: &mut Made| entries(&made.files.remove("names").expect("names"));
        assert_eq!(names(&mut forwards), names(&mut backwards), "case {case}");
        forwards.files.retain(|name, _| name == "log");
        backwards.files.retain(|name, _| name == "log");
        assert!(difference(&forwards, &backwards).is_none(), "case {case}");
        let whole = entries(&made(&ecs(&keep("whole.pcapng", &frames)), 1).files["names"]);
        let texts = files.iter().map(|file| entries(&std::fs::read(file).expect("names")));
        let apart: Vec<Lines> = texts.collect();
        let apart = lines_of(&apart.iter().collect::<Vec<_>>(), 8);
        same += whole.iter().filter(|line| apart.contains(line)).count();
        all += whole.len();
    }
    assert!(all > 100 * count as usize, "{all} names");
    println!("{same} of {all} candidates are those of one run");
    assert!(same * 100 > all * 90, "{same} of {all} candidates are those of one run");
}

/// Saved names of one run say of which clients queries were seen: a response without one, right at the start of the
/// next run, is unsolicited. Names of several runs may be those of other sensors.
#[test]
fn the_next_run_knows_who_queries() {
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    let folder = Folder::new();
    let first =
        folder.capture(vec![question(client, 5_000, 1, 1), answer(client, 5_000, 1, 1, &[server])]);
    let names = made(&ecs(&first), 1).files.remove("names").expect("names");
    let names = folder.keep("saved", names);
    let mut maker = Maker::new(9);
    maker.push(answer(client, 5_001, 2, 2, &[[198, 51, 100, 66]]));
    maker.push(udp((client, [198, 51, 100, 66]), (6_000, 9_999), b"request"));
    let later = folder.keep("later.pcapng", maker.pcapng());
    for (loaded, is_unsolicited) in [(0, false), (1, true), (2, false)] {
        let options = Options { names_load: vec![names.clone(); loaded], ..ecs(&later) };
        let records = made(&options, 1).records();
        let flow = records.iter().find(|flow| flow["destination.ip"] == "198.51.100.66");
        let flow = flow.expect("the flow");
        assert_eq!(flow["larder.destination.name_unsolicited"], is_unsolicited, "{loaded} files");
        assert_eq!(flow["larder.destination.name_one_sided"], !is_unsolicited, "{loaded} files");
    }
}
