//! A small trace of every format, made here, and what it asks for.

use larder_sim::request::{Op, Request, TTL_NONE};
use larder_sim::trace::{Format, text_key};
use larder_wire::capture::write;

/// A trace and its requests.
pub struct Sample {
    /// Its format.
    pub format: Format,
    /// Its name, where that tells the format.
    pub name: &'static str,
    /// The trace.
    pub bytes: Vec<u8>,
    /// What it asks for.
    pub requests: Vec<Request>,
}

fn get(key: u64) -> Request {
    Request::get(key)
}

/// The key of a query, by its definition.
fn query_key(name: &str, qtype: u16, qclass: u16) -> u64 {
    text_key(&[name.as_bytes(), &qtype.to_be_bytes(), &qclass.to_be_bytes()].concat())
}

/// One of each format.
pub fn samples() -> Vec<Sample> {
    let mut samples = numbers();
    samples.extend(columns());
    samples.extend(logs());
    samples.push(capture());
    samples
}

fn numbers() -> Vec<Sample> {
    let keys = [7u64, 4_000_000_000, 7, 0];
    let requests: Vec<Request> = keys.map(get).to_vec();
    let of =
        |format, name, bytes: Vec<u8>| Sample { format, name, bytes, requests: requests.clone() };
    let four = keys.map(|key| key as u32);
    let mut oracle = Vec::new();
    for (time_s, key, size, next) in [(100u32, 7u64, 5u32, 2i64), (100, 8, 0, -1), (103, 7, 5, -1)]
    {
        oracle.extend_from_slice(&time_s.to_le_bytes());
        oracle.extend_from_slice(&key.to_le_bytes());
        oracle.extend_from_slice(&size.to_le_bytes());
        oracle.extend_from_slice(&next.to_le_bytes());
    }
    let seven = Request { bytes: 5, ..get(7) };
    vec![
        of(Format::Lirs, "a.trc", b"7\n4000000000\n*\n\n7\r\n0".to_vec()),
        of(Format::Be32, "a.be32", four.map(u32::to_be_bytes).concat()),
        of(Format::Le32, "a.le32", four.map(u32::to_le_bytes).concat()),
        of(Format::Be64, "a.be64", keys.map(u64::to_be_bytes).concat()),
        Sample {
            format: Format::OracleGeneral,
            name: "a.bin",
            bytes: oracle,
            requests: vec![seven, get(8), Request { time_s: 3, ..seven }],
        },
        Sample {
            format: Format::Arc,
            name: "a.lis",
            bytes: b"17 3 0 0\n5 0 0 1\n18 1 0 2\n".to_vec(),
            requests: [17, 18, 19, 18].map(get).to_vec(),
        },
    ]
}

fn columns() -> Vec<Sample> {
    let (abc, k, x) = (text_key(b"abc"), text_key(b"k"), text_key(b"nz:u:x"));
    let of = |format, name, text: &str, requests| Sample {
        format,
        name,
        bytes: text.as_bytes().to_vec(),
        requests,
    };
    let set = Request { time_s: 2, ttl_s: 300, bytes: 50, op: Op::Set, ..get(k) };
    let steps = [(0, Op::Get, TTL_NONE, 16), (0, Op::Set, 60, 16), (1, Op::Remove, TTL_NONE, 6)];
    vec![
        of(
            Format::AdaptSize,
            "a.tr",
            "1 7 68\n3 abc 0\n",
            vec![Request { bytes: 68, ..get(7) }, Request { time_s: 2, ..get(abc) }],
        ),
        of(
            Format::Csv,
            "a.csv",
            "time,key,size,op,ttl\n10,7,100,get,\n12,k,50,set,300\n",
            vec![Request { bytes: 100, ..get(7) }, set],
        ),
        of(
            Format::Twitter,
            "cluster",
            "5,nz:u:x,6,10,1,get,0\n5,nz:u:x,6,10,1,add,60\n6,nz:u:x,6,0,1,delete,0\n",
            steps
                .map(|(time_s, op, ttl_s, bytes)| Request { key: x, time_s, ttl_s, bytes, op })
                .to_vec(),
        ),
        of(
            Format::Keys,
            "a.txt",
            "/index.html\n\n17\n/a?b\n",
            vec![get(text_key(b"/index.html")), get(17), get(text_key(b"/a?b"))],
        ),
    ]
}

fn logs() -> Vec<Sample> {
    const ZEEK: &str = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n\
        #unset_field\t-\n#path\tdns\n#fields\tts\tuid\tquery\tqclass\tqtype\tTTLs\n\
        #types\ttime\tstring\tstring\tcount\tcount\tvector[interval]\n\
        1000.25\tCa\tWWW.example\t1\t1\t60.000000,30.5\n\
        1001.50\tCb\twww.example\t1\t28\t-\n\
        #close\t2020-01-01-00-00-00\n";
    let requests = |a, aaaa| {
        let first = Request { ttl_s: 30, ..get(a) };
        vec![first, Request { time_s: 1, ..get(aaaa) }]
    };
    let name = query_key("www.example", 0, 0);
    vec![
        Sample {
            format: Format::ZeekDns,
            name: "dns.log",
            bytes: ZEEK.as_bytes().to_vec(),
            requests: requests(query_key("www.example", 1, 1), query_key("www.example", 28, 1)),
        },
        Sample {
            format: Format::DnsLog,
            name: "dns.log",
            bytes: ZEEK.replace("\tdns\n", "\tlarder_dns\n").into_bytes(),
            requests: requests(name, name),
        },
    ]
}

/// A capture: a question and its answer over UDP, a name that is not there, two questions in one segment, and
/// what asks nothing.
pub fn capture() -> Sample {
    const RAW: u16 = 101;
    const NAME: &[u8] = b"\x01A\x07example\0";
    const OTHER: &[u8] = b"\x01b\x07example\0";
    let soa = [&[0, 0][..], &[0; 16], &90u32.to_be_bytes()].concat();
    let framed = |message: Vec<u8>| [&(message.len() as u16).to_be_bytes()[..], &message].concat();
    let answers = [record(5, 300, &[0]), record(1, 20, &[203, 0, 113, 9])];
    let authority = [record(6, 3600, &soa)];
    let two =
        [framed(message(0x0100, NAME, 1, &[], &[])), framed(message(0x0100, OTHER, 28, &[], &[]))];
    let packets = [
        (0, packet(17, true, &message(0x0100, NAME, 1, &[], &[]))),
        (0, packet(17, false, &message(0x8180, NAME, 1, &answers, &[]))),
        (1, packet(17, true, &message(0x0100, OTHER, 1, &[], &[]))),
        (2, packet(17, false, &message(0x8183, OTHER, 1, &[], &authority))),
        // A failure that may not be kept, a message of another kind, a segment without payload.
        (3, packet(17, false, &message(0x8182, OTHER, 1, &[], &[]))),
        (3, packet(17, true, &message(0x2800, OTHER, 6, &[], &[]))),
        (4, packet(6, true, &[])),
        (4, packet(6, true, &two.concat())),
    ];
    let mut bytes = Vec::new();
    write::pcap_header(&mut bytes, RAW, 65_535);
    for (second, packet) in &packets {
        let ts_ns = (1_600_000_000 + second) * 1_000_000_000;
        write::pcap_record(&mut bytes, ts_ns, packet, packet.len() as u32);
    }
    let (name, other) = (query_key("a.example", 1, 1), query_key("b.example", 1, 1));
    let set = |time_s, ttl_s, key| Request { time_s, ttl_s, op: Op::Set, ..get(key) };
    let at = |time_s, key| Request { time_s, ..get(key) };
    let requests = vec![
        get(name),
        set(0, 20, name),
        at(1, other),
        set(2, 90, other),
        at(4, name),
        at(4, query_key("b.example", 28, 1)),
    ];
    Sample { format: Format::PcapDns, name: "a.pcap", bytes, requests }
}

/// A DNS message: an ID, flags, one question, records of the answer and the authority section.
fn message(
    flags: u16,
    name: &[u8],
    qtype: u16,
    answers: &[Vec<u8>],
    authority: &[Vec<u8>],
) -> Vec<u8> {
    let counts = [7, flags, 1, answers.len() as u16, authority.len() as u16, 0];
    let mut out = counts.map(u16::to_be_bytes).concat();
    out.extend_from_slice(name);
    out.extend_from_slice(&[qtype, 1].map(u16::to_be_bytes).concat());
    answers.iter().chain(authority).for_each(|record| out.extend_from_slice(record));
    out
}

/// A record of the question's name.
fn record(rtype: u16, ttl_s: u32, data: &[u8]) -> Vec<u8> {
    let mut out = [0xc00c, rtype, 1].map(u16::to_be_bytes).concat();
    out.extend_from_slice(&ttl_s.to_be_bytes());
    out.extend_from_slice(&(data.len() as u16).to_be_bytes());
    out.extend_from_slice(data);
    out
}

/// A raw IPv4 packet of UDP (17) or TCP (6) to or from port 53.
fn packet(protocol: u8, to_server: bool, payload: &[u8]) -> Vec<u8> {
    let ports = if to_server { [40_000u16, 53] } else { [53, 40_000] };
    let mut transport = ports.map(u16::to_be_bytes).concat();
    if protocol == 17 {
        transport.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        transport.extend_from_slice(&[0, 0]);
    } else {
        transport.extend_from_slice(&[0; 8]);
        transport.extend_from_slice(&[0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    }
    transport.extend_from_slice(payload);
    let [high, low] = (20 + transport.len() as u16).to_be_bytes();
    let mut out = vec![0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0];
    out.extend_from_slice(&[192, 0, 2, 1, 192, 0, 2, 53]);
    out.extend_from_slice(&transport);
    out
}
