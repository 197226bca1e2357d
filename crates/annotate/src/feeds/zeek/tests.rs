//! Rows, damage, and added columns of Zeek's logs.

use super::*;
use proptest::prelude::*;

const DNS: &str = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n\
    #unset_field\t-\n#path\tdns\n\
    #fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\trtt\tquery\tqtype\trcode\tanswers\tTTLs\n\
    #types\ttime\tstring\taddr\tport\taddr\tport\tenum\tinterval\tstring\t\
    count\tcount\tvector[string]\tvector[interval]\n\
    1521911720.865716\tCq\t192.0.2.1\t41772\t192.0.2.53\t53\tudp\t0.000870\t\
    WWW.Example.com\t1\t0\tcdn.example.net,203.0.113.9\t2230.000000,60.500000\n\
    1521911721.000000\tCr\t2001:db8::1\t5\t2001:db8::53\t53\tudp\t-\tnone.example\t28\t3\t-\t-\n\
    1521911722.000000\tCs\t192.0.2.1\t5\t192.0.2.53\t53\tudp\t-\t\
    x\\x2cy\\\\z.example\t16\t0\tTXT 3 a\\x2cb\t1.000000\n";

fn items(input: &[u8]) -> Vec<Item> {
    let mut log = Log::new(input);
    std::iter::from_fn(|| log.advance().expect("memory is readable")).collect()
}

fn rows(input: &[u8]) -> Vec<Option<DnsRow>> {
    let mut log = Log::new(input);
    let mut rows = Vec::new();
    while let Some(item) = log.advance().expect("memory is readable") {
        if matches!(item, Item::Row | Item::Json) {
            rows.push(log.dns_row(item));
        }
    }
    rows
}

fn addr(text: &str) -> Addr {
    parse_addr(text.as_bytes()).expect("a literal address")
}

fn name(text: &str) -> Name {
    Name::from_text(text.as_bytes()).expect("a literal name")
}

/// A dns.log gives the name as queried, the chain and the address with their TTLs, at the time
/// of the response; rows without a response give none; lists are split before escapes are
/// undone.
#[test]
fn dns_rows() {
    let rows = rows(DNS.as_bytes());
    let expected = DnsRow {
        time_ns: 1_521_911_720_866_586_000,
        client: addr("192.0.2.1"),
        server: addr("192.0.2.53"),
        query: name("www.example.com"),
        query_type: Some(1),
        response_code: Some(0),
        answers: vec![
            DnsAnswer { ttl_s: 2230, data: DnsData::Name(name("cdn.example.net")) },
            DnsAnswer { ttl_s: 60, data: DnsData::Address(addr("203.0.113.9")) },
        ],
    };
    assert_eq!(rows[0].as_ref(), Some(&expected));
    assert_eq!(rows[1], None);
    let third = rows[2].as_ref().expect("an answer");
    assert_eq!(third.query.as_bytes(), b"x,y\\z.example");
    assert_eq!(third.answers[0].data, DnsData::Name(name("txt 3 a,b")));
}

/// The JSON form gives the same row as the table, times to the last digit.
#[test]
fn json_rows() {
    let line = concat!(
        r#"{"ts":1521911720.865716,"uid":"Cq","id.orig_h":"192.0.2.1","id.orig_p":41772,"#,
        r#""id.resp_h":"192.0.2.53","id.resp_p":53,"proto":"udp","rtt":0.000870,"#,
        r#""query":"WWW.Example.com","qtype":1,"rcode":0,"#,
        r#""answers":["cdn.example.net","203.0.113.9"],"TTLs":[2230.0,60.5]}"#,
    );
    let line = line.as_bytes();
    assert_eq!(rows(line), rows(DNS.as_bytes())[..1]);
    let mut log = Log::new(line);
    let item = log.advance().expect("readable").expect("a line");
    let ends = log.flow_ends(item).expect("a flow");
    assert_eq!((ends.source_port, ends.destination_port, ends.protocol), (41772, 53, Some(17)));
    let iso = br#"{"ts":"2018-03-24T17:15:20.865716Z","id.orig_h":"::1","id.resp_h":"::2"}"#;
    let mut log = Log::new(&iso[..]);
    let item = log.advance().expect("readable").expect("a line");
    assert_eq!(log.flow_ends(item).map(|ends| ends.time_ns), Some(1_521_911_720_865_716_000));
}

/// A second header inside a file changes the columns; rows that do not fit are damaged, and
/// rows before any header as well.
#[test]
fn concatenated_and_damaged() {
    let log = "early\trow\n#separator \\x09\n#fields\ta\tb\n#types\tstring\tstring\n1\t2\n1\n1\t2\t3\n\
        #close\t2024\n#separator |\n#fields|x\n7\n\n";
    use Item::*;
    let damaged = Damaged { first: true };
    // An empty line is a row of one empty column if there is one column.
    let expected =
        [damaged, Header, Fields, Types, Row, damaged, damaged, Header, Header, Fields, Row, Row];
    assert_eq!(items(log.as_bytes()), expected);
    assert_eq!(items(b"#separator ab\n"), [damaged]);
}

/// Columns are added to header and rows; without them the output is the input. Invariant 1.
#[test]
fn append_keeps_every_byte() {
    let names: [&[u8]; 2] = [b"a,b", b"c\td"];
    let columns = [
        Column { name: "n.src", kind: "string", value: Value::Text(b"-") },
        Column { name: "n.vals", kind: "vector[string]", value: Value::List(&names) },
        Column { name: "n.age", kind: "count", value: Value::Count(7) },
        Column { name: "n.stale", kind: "bool", value: Value::Bool(false) },
        Column { name: "n.none", kind: "string", value: Value::Unset },
    ];
    let mut log = Log::new(DNS.as_bytes());
    let mut out = Vec::new();
    while let Some(item) = log.advance().expect("memory is readable") {
        log.write_with(item, &columns, &mut out);
    }
    let out = String::from_utf8(out).expect("ASCII");
    let mut cut = String::new();
    for line in out.lines() {
        let tail = if line.starts_with("#fields") {
            "\tn.src\tn.vals\tn.age\tn.stale\tn.none"
        } else if line.starts_with("#types") {
            "\tstring\tvector[string]\tcount\tbool\tstring"
        } else if line.starts_with('#') {
            ""
        } else {
            "\t\\x2d\ta\\x2cb,c\\x09d\t7\tF\t-"
        };
        cut += line.strip_suffix(tail).expect("our columns are there");
        cut.push('\n');
    }
    assert_eq!(cut, DNS);
}

/// A JSON row gets keys instead of columns; a line that only begins like one is damaged.
#[test]
fn append_to_json() {
    let mut log = Log::new(&b"{\"ts\":1}\n"[..]);
    let item = log.advance().expect("readable").expect("a line");
    let column = Column { name: "n", kind: "string", value: Value::Text(b"x") };
    let mut out = Vec::new();
    log.write_with(item, &[column], &mut out);
    assert_eq!(out, b"{\"ts\":1,\"n\":\"x\"}\n");
    assert_eq!(
        items(b"{\"ts\":1\n{}}\n{}\n"),
        [Item::Damaged { first: true }, Item::Damaged { first: true }, Item::Json]
    );
}

proptest! {
    /// No input panics, and the lines of every input are the input.
    #[test]
    fn any_input_passes_through(
        noise in proptest::collection::vec(any::<u8>(), 0..200),
        cut in 0..DNS.len(),
        at in 0..DNS.len(),
    ) {
        let mut input = DNS.as_bytes()[..cut].to_vec();
        input.splice(at.min(cut)..at.min(cut), noise);
        let mut log = Log::new(input.as_slice());
        let (mut lines, mut copied) = (Vec::new(), Vec::new());
        while let Some(item) = log.advance().expect("memory is readable") {
            let _ = (log.flow_ends(item), log.dns_row(item), log.column(3));
            lines.extend_from_slice(log.line());
            log.write_with(item, &[], &mut copied);
        }
        prop_assert_eq!(&lines, &input);
        prop_assert_eq!(&copied, &input);
    }

    /// Any bytes that are written into a column are read back the same.
    #[test]
    fn written_text_reads_back(text in proptest::collection::vec(any::<u8>(), 1..40)) {
        let mut out = Vec::new();
        write_text(&Header::default(), &text, &mut out);
        prop_assert!(out.iter().all(|byte| (0x21..0x7f).contains(byte) && *byte != b','));
        prop_assert_ne!(out.as_slice(), b"-");
        let read = unescape(&out);
        prop_assert_eq!(read.as_ref(), text.as_slice());
    }
}
