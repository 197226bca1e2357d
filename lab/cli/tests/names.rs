//! `larder-lab names`: what it counts of small logs of Zeek, and what it refuses.

mod common;

use common::Scratch;

const DNS: &str = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tdns\n\
    #fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\ttrans_id\tquery\tanswers\tTTLs\n\
    #types\ttime\tstring\taddr\tport\taddr\tport\tenum\tcount\tstring\tvector[string]\tvector[interval]\n\
    100.0\tC1\t10.0.0.1\t40000\t10.0.0.53\t53\tudp\t1\twww.right.example\t192.0.2.1\t300.0\n\
    100.1\tC2\t10.0.0.1\t40001\t10.0.0.53\t53\tudp\t2\tedge.cdn.example\t192.0.2.2\t300.0\n";

const SSL: &str = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tssl\n\
    #fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tserver_name\n\
    #types\ttime\tstring\taddr\tport\taddr\tport\tstring\n\
    101.0\tS1\t10.0.0.1\t50001\t192.0.2.1\t443\twww.right.example\n\
    102.0\tS2\t10.0.0.1\t50002\t192.0.2.2\t443\twww.shop.example\n\
    120.0\tS3\t10.0.0.1\t50003\t192.0.2.2\t443\twww.shop.example\n\
    121.0\tS4\t10.0.0.1\t50004\t192.0.2.9\t443\twww.unseen.example\n";

const LOGS: &str = "names --zeek-dns dns.log --zeek-log ssl.log";

fn logs() -> Scratch {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("dns.log"), DNS).expect("room");
    std::fs::write(scratch.path("ssl.log"), SSL).expect("room");
    scratch
}

/// A line per flow with a name by lookups: the statement of the first flow to the CDN names the
/// second, never itself. A flow without a lookup is no trial.
#[test]
fn lines_state_what_was_chosen() {
    let run = logs().run(&format!("{LOGS} --format jsonl"));
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    let lines: Vec<serde_json::Value> =
        run.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |key: &str| -> Vec<String> {
        lines.iter().map(|line| line[key].to_string().trim_matches('"').to_owned()).collect()
    };
    assert_eq!(of("client_port"), ["50001", "50002", "50003"]);
    assert_eq!(of("stated"), ["www.right.example", "www.shop.example", "www.shop.example"]);
    assert_eq!(of("chosen")[0], "www.right.example");
    assert_eq!(of("chosen")[2], "www.shop.example");
    assert_eq!(of("source")[2], "learned");
    assert_eq!(lines[2]["candidates"][1], "edge.cdn.example");
    assert_eq!(lines[0]["start"], 101.0);
}

/// The figures are those of the lines, in every format, and the figure is an SVG document.
#[test]
fn figures_are_those_of_the_lines() {
    let scratch = logs();
    let run = scratch.run(&format!("{LOGS} --format json --figure reliability.svg"));
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    let figures: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    let lines = scratch.run(&format!("{LOGS} --format jsonl"));
    let right = lines
        .out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .filter(|line| line["stated"] == line["chosen"])
        .count();
    assert_eq!((&figures["all"]["flows"], &figures["all"]["right"]), (&3.into(), &right.into()));
    let svg = std::fs::read_to_string(scratch.path("reliability.svg")).expect("the figure");
    assert!(svg.starts_with("<svg "), "{svg}");
    let table = scratch.run(LOGS);
    assert!(table.out.contains("Expected calibration error: "), "{}", table.out);
}

/// What contradicts itself is refused with what to do; an input without trials is no error.
#[test]
fn wrong_lines_are_refused() {
    let scratch = logs();
    for (line, advice) in [
        ("names", "name a capture"),
        ("names --zeek-log ssl.log", "give both"),
        ("names --zeek-dns dns.log", "give both"),
        ("names x.pcap --zeek-dns dns.log --zeek-log ssl.log", "give one of them"),
        ("names missing.pcap", "missing.pcap"),
    ] {
        let run = scratch.run(line);
        assert_eq!(run.code, Some(2), "{line}: {}", run.err);
        assert!(run.err.contains(advice), "{line}: {}", run.err);
    }
    std::fs::write(scratch.path("empty.pcap"), "").expect("room");
    let run = scratch.run("names empty.pcap");
    assert!(run.out.contains("No flow states a name") || run.code == Some(2), "{}", run.err);
}

/// Lookups of two names for one address, which the client takes in turn.
fn logs_with_a_choice() -> Scratch {
    let scratch = logs();
    let (mut dns, mut ssl) = (DNS.to_owned(), SSL.to_owned());
    for number in 0..20 {
        let (time, name) = (200 + 10 * number, ["www.one.example", "www.two.example"][number % 2]);
        let client = format!("10.0.0.{}", 2 + number / 2 % 4);
        dns += &format!(
            "{time}.0\tD{number}\t{client}\t{}\t10.0.0.53\t53\tudp\t{number}\t{name}\t192.0.2.3\t300.0\n",
            41_000 + number
        );
        ssl += &format!(
            "{time}.5\tT{number}\t{client}\t{}\t192.0.2.3\t443\t{name}\n",
            51_000 + number
        );
    }
    std::fs::write(scratch.path("dns.log"), dns).expect("room");
    std::fs::write(scratch.path("ssl.log"), ssl).expect("room");
    scratch
}

/// Training writes the same table each time, and prints what tables from halves of the clients are worth.
#[test]
fn training_makes_a_table() {
    let scratch = logs_with_a_choice();
    let run = scratch.run(&format!("{LOGS} --train trees.rs"));
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    assert_eq!(run.out.lines().count(), 1 + 3, "{}", run.out);
    let table = std::fs::read_to_string(scratch.path("trees.rs")).expect("the table");
    assert!(table.contains("pub const TABLE: &[Tree] = &["), "{table}");
    scratch.run(&format!("{LOGS} --train again.rs"));
    let again = std::fs::read_to_string(scratch.path("again.rs")).expect("the table");
    assert_eq!(table, again);
    let files = std::fs::read_dir(scratch.path(".")).expect("the directory").count();
    assert_eq!(files, 4, "two logs, two tables, and nothing else");
}

/// What cannot be trained from, or written to, is refused, and no file is left.
#[test]
fn training_that_cannot_be_is_refused() {
    let scratch = logs();
    std::fs::write(scratch.path("empty.pcap"), "").expect("room");
    for (line, advice) in [
        ("names empty.pcap --train trees.rs", "give both"),
        (&*format!("{LOGS} --train trees.rs --figure a.svg"), "leave out --figure"),
        (&*format!("{LOGS} --train trees.rs --format json"), "leave out --figure"),
        (&*format!("{LOGS} --train trees.rs"), "several names"),
    ] {
        let run = scratch.run(line);
        assert_eq!(run.code, Some(2), "{line}: {}", run.err);
        assert!(run.err.contains(advice), "{line}: {}", run.err);
    }
    assert!(!scratch.path("trees.rs").exists());
    let run = logs_with_a_choice().run(&format!("{LOGS} --train missing/trees.rs"));
    assert_eq!(run.code, Some(2));
    assert!(run.err.contains("missing/trees.rs"), "{}", run.err);
}
