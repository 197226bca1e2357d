//! Writes the first inputs of the fuzz targets: `seeds FOLDER CAPTURE...` takes recordings apart, so
//! that each target begins with real messages. `fuzz/seed.sh` runs it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use larder_fuzz_targets::LINK_TYPES;
use larder_wire::capture::{Capture, Record, Step};
use larder_wire::packet::{Packet, decode};

/// Most bytes of a seed: long ones make a fuzzer slow.
const SEED_BYTES_MAX: usize = 8 << 10;

/// Most seeds of one target from one file.
const SEEDS_MAX: usize = 40;

/// Most bytes of a capture that is a seed of a whole run.
const CAPTURE_BYTES_MAX: usize = 64 << 10;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(folder) = arguments.next() else {
        eprintln!("usage: seeds FOLDER CAPTURE...");
        std::process::exit(2);
    };
    let mut seeds = Seeds { folder, captures: 0, stem: String::new(), written: HashMap::new() };
    seeds.made_by_hand()?;
    for path in arguments {
        let file = std::fs::read(&path)?;
        seeds.stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        seeds.written.clear();
        seeds.capture(&file)?;
    }
    Ok(())
}

struct Seeds {
    folder: PathBuf,
    captures: usize,
    /// Name of the capture at hand.
    stem: String,
    /// Seeds of that capture by target.
    written: HashMap<&'static str, usize>,
}

impl Seeds {
    fn write(&mut self, target: &'static str, parts: &[&[u8]]) -> std::io::Result<()> {
        let count = self.written.entry(target).or_default();
        let seed = parts.concat();
        let bytes_max = if target == "pipeline" { CAPTURE_BYTES_MAX } else { SEED_BYTES_MAX };
        if *count >= SEEDS_MAX || seed.len() > bytes_max {
            return Ok(());
        }
        *count += 1;
        let folder: &Path = &self.folder.join(target);
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join(format!("{}-{count}", self.stem)), seed)
    }

    fn capture(&mut self, file: &[u8]) -> std::io::Result<()> {
        self.write("capture", &[file])?;
        self.write("traces", &[&[TRACE_PCAP_DNS], file])?;
        // One way for each: a whole run is slow, and the fuzzer tries the others itself.
        let choice = [0x08, 0x15, 0x0a, 0x17, 0x08, 0x14, 0x31][self.captures % 7];
        self.captures += 1;
        self.write("pipeline", &[file, &[choice]])?;
        let Ok((mut capture, mut offset)) = Capture::open(file) else {
            return self.write("dnstap", &[file]);
        };
        let mut streams: HashMap<_, Vec<u8>> = HashMap::new();
        loop {
            match capture.next(file, offset, true) {
                Step::Record(record) => {
                    self.frame(&record, &mut streams)?;
                    offset = record.next_offset;
                }
                Step::Meta { next_offset } | Step::Damaged { next_offset, .. } => {
                    offset = next_offset;
                }
                Step::NeedMore | Step::End => break,
            }
        }
        for ((_, source_port, _, port), bytes) in streams {
            if source_port == 53 || port == 53 {
                self.write("dns_stream", &[&[63], &bytes])?;
            } else if bytes.starts_with(&[22, 3]) {
                self.write("tls", &[&[0, 99], &bytes])?;
            } else if bytes.first().is_some_and(u8::is_ascii_alphabetic) {
                self.write("http", &[&[40], &bytes])?;
                let kind = if bytes.starts_with(b"HTTP/") { 2 } else { 0 };
                self.write("http_message", &[&[kind, 40], &bytes])?;
            }
        }
        Ok(())
    }

    fn frame(
        &mut self,
        record: &Record<'_>,
        streams: &mut HashMap<(larder_wire::Addr, u16, larder_wire::Addr, u16), Vec<u8>>,
    ) -> std::io::Result<()> {
        let Some(choice) = LINK_TYPES.iter().position(|&known| known == record.link_type) else {
            return Ok(());
        };
        self.write("packet", &[&[choice as u8], record.frame])?;
        if record.link_type == LINK_TYPE_ETHERNET {
            self.write("frame", &[record.frame])?;
        }
        let Ok(packet) = decode(record.link_type, record.frame) else { return Ok(()) };
        let at = packet.payload_offset as usize;
        let payload = &record.frame[at..at + packet.payload_len as usize];
        let Packet { src, dst, src_port, dst_port, protocol, .. } = packet;
        if packet.fragment.is_some() || payload.is_empty() {
            return Ok(());
        }
        if protocol == 6 {
            // Retransmissions stay in: seeds need not be sound.
            streams.entry((src, src_port, dst, dst_port)).or_default().extend_from_slice(payload);
            return Ok(());
        }
        let is_of = |port: u16| src_port == port || dst_port == port;
        if protocol != 17 {
            self.write("packet", &[&[128, protocol], payload])
        } else if is_of(53) || is_of(5353) || is_of(5355) {
            self.write("dns", &[&[0], payload])?;
            self.write("dns_query", &[payload])?;
            self.write("dns_rendered", &[&[0x0f, 0x04, 0xd0, 0, 9], payload])
        } else if is_of(137) {
            self.write("nbns", &[payload])
        } else if is_of(67) || is_of(546) || is_of(547) {
            self.write("dhcp", &[payload])
        } else if is_of(443) || is_of(4433) || is_of(8443) {
            self.write("quic", &[&[0], &(payload.len() as u16).to_be_bytes(), payload])
        } else if larder_annotate::exports::PORTS.contains(&dst_port) {
            self.write("exports", &[&[1], &(payload.len() as u16).to_be_bytes(), payload])
        } else {
            Ok(())
        }
    }

    /// Inputs of which no recording has one.
    fn made_by_hand(&mut self) -> std::io::Result<()> {
        "by-hand".clone_into(&mut self.stem);
        self.write("dns_recursor", &[WALK])?;
        for (kind, message) in MESSAGES {
            self.write("http_message", &[&[kind, 6], message.as_bytes()])?;
        }
        for header in PROXY_HEADERS {
            self.write("proxy_protocol", &[header, b"GET"])?;
        }
        // A request of HTTP/2 in the clear, alone and behind a PROXY header.
        let request = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x0a\x01\x04\0\0\0\x01\x82\x86\x41\x06a.test\0\0";
        self.write("http2", &[&[0, 30], request])?;
        self.write("http2", &[&[0, 60], b"PROXY UNKNOWN\r\n", request])?;
        for line in LOGS_EVE {
            self.write("eve", &[line.as_bytes(), b"\n"])?;
        }
        for log in LOGS_ZEEK {
            self.write("zeek", &[log.as_bytes()])?;
        }
        for (format, trace) in TRACES {
            self.write("traces", &[&[format], trace])?;
        }
        for (kind, text) in FILTERS.into_iter().enumerate() {
            let len = u8::try_from(text.len()).expect("short texts");
            self.write("filter", &[&[kind as u8, len], text.as_bytes(), &[0x45; 60]])?;
        }
        self.write("names_file", &[NAMES.as_bytes()])?;
        let facts: Vec<&str> = NAMES.lines().filter(|line| !line.starts_with('#')).collect();
        self.write("names_file", &[facts.join("\n").as_bytes()])?;

        // A CRYPTO frame with a ClientHello that names `a.test`, whole and in two packets.
        let hello = [&HELLO_HEAD[..], b"a.test"].concat();
        let frame = |offset: u8, data: &[u8]| [&[6, offset, data.len() as u8], data].concat();
        let sealed = |kind: u8, frames: &[u8]| [&[kind, 0, frames.len() as u8], frames].concat();
        let (first, second) = hello.split_at(30);
        self.write("quic", &[&sealed(1, &frame(0, &hello))])?;
        let parts = [sealed(1, &frame(30, second)), sealed(1, &frame(0, first))];
        self.write("quic", &[&parts.concat()])?;
        let in_one = [sealed(5, &frame(0, first)), sealed(3, &frame(30, second))];
        self.write("quic", &[&in_one.concat()])?;
        let record = [&[22, 3, 1, 0, hello.len() as u8][..], &hello].concat();
        self.write("tls", &[&[0, 9], &record])?;

        // Steps: in order, in reverse, with holes and clears.
        let push = |distance: i16, size: u8| {
            let [high, low] = distance.to_be_bytes();
            [6, 0, high, low, size]
        };
        let steps = [push(0, 20), push(100, 9), [0; 5], [2, 0, 0, 0, 30], push(-172, 9)];
        self.write("stream", &[&[0xff, 0xff], &steps.concat()])?;
        let rewinds = [push(0, 2), push(-40, 3), push(-70, 3), [4, 0, 0, 0, 0], push(9, 9)];
        self.write("stream", &[&[0, 0], &rewinds.concat()])?;
        let fragments: [[u8; 7]; 5] = [
            [2, 1, 0, 0, 8, 0, 1],
            [0, 1, 0, 8, 4, 3, 1],
            [1, 2, 0, 8, 4, 3, 1],
            [3, 2, 0, 0, 8, 0, 1],
            [22, 3, 0, 4, 8, 0, 1],
        ];
        self.write("fragment", &[&fragments.concat()])?;
        let inserts = (0..200_u8).flat_map(|key| [7 | (key % 5) << 4, 0, key, 20, key % 3]);
        let tail = [[0x82, 0, 0, 0, 0], [0, 0, 0, 0, 2], [3, 0, 7, 0, 0], [5, 0, 9, 0, 1]];
        let steps: Vec<u8> = inserts.chain(tail.into_iter().flatten()).collect();
        self.write("engine", &[&steps])
    }
}

/// A ClientHello up to the six bytes of its name.
#[rustfmt::skip]
const HELLO_HEAD: [u8; 56] = [
    1, 0, 0, 58,  3, 3,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0,  0, 2, 0x13, 1,  1, 0,  0, 15,  0, 0, 0, 11, 0, 9, 0, 0, 6,
];

/// Messages of HTTP/1.1, by what they are to the target.
const MESSAGES: [(u8, &str); 7] = [
    (
        0,
        "GET /a?b HTTP/1.1\r\nHost: a.test:80\r\nConnection: close, x-y\r\nX-Y: z\r\nTE: trailers\r\n\r\n",
    ),
    (
        0,
        "\r\nPOST http://b.test/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n3;a=\"b\"\r\nabc\r\n0\r\nA: b\r\n\r\n",
    ),
    (
        0,
        "OPTIONS * HTTP/1.0\r\nHost: [2001:db8::1]:8080\r\nConnection: Keep-Alive\r\nContent-Length: 3, 3\r\n\r\nabc",
    ),
    (0, "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"),
    (
        2,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n00A \t;x\r\n0123456789\r\n0\r\n\r\n",
    ),
    (
        1,
        "HTTP/1.0 404 \r\nContent-Length: 5\r\nConnection: keep-alive, ETag\r\nETag: \"a\"\r\n\r\n",
    ),
    (3, "4\r\nRust\r\n00a ; b\r\n0123456789\r\n0\r\nA: b\r\nC:\r\n\r\n"),
];

/// The PROXY protocol in both versions.
const PROXY_HEADERS: [&[u8]; 4] = [
    b"PROXY TCP4 192.0.2.1 198.51.100.7 51000 80\r\n",
    b"PROXY TCP6 2001:db8::1 ::1 0 443\r\n",
    b"PROXY UNKNOWN x\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x07\xc7\x38\0\x50",
];

const LOGS_EVE: [&str; 4] = [
    r#"{"timestamp":"2024-01-02T03:04:05.678901+0000","flow_id":1,"event_type":"dns","src_ip":"192.0.2.1","src_port":53000,"dest_ip":"192.0.2.53","dest_port":53,"proto":"UDP","dns":{"version":2,"type":"answer","id":7,"flags":"8180","rrname":"WWW.example.com","rrtype":"A","rcode":"NOERROR","answers":[{"rrname":"www.example.com","rrtype":"CNAME","ttl":60,"rdata":"cdn.example.net"},{"rrname":"cdn.example.net","rrtype":"A","ttl":30,"rdata":"203.0.113.9"}],"grouped":{"A":["203.0.113.9"]}}}"#,
    r#"{"timestamp":"2024-01-02T03:04:05Z","event_type":"dns","src_ip":"2001:db8::1","src_port":5,"dest_ip":"2001:db8::53","dest_port":53,"proto":"TCP","dns":{"version":3,"type":"response","queries":[{"rrname":"a.example","rrtype":"AAAA"}],"answers":[{"rrname":"a.example","rrtype":"AAAA","ttl":30,"rdata":"2001:db8::9"}]}}"#,
    r#"{"timestamp":"2013-05-31T10:42:00.000000-0500","event_type":"dns","src_ip":"192.0.2.1","dest_ip":"192.0.2.53","proto":"017","dns":{"type":"answer","id":1,"rrname":"a.example","rrtype":"A","ttl":5,"rdata":"203.0.113.1"}}"#,
    r#"{ "timestamp" : "2024-01-02T03:04:05.6+00:00" , "event_type":"flow","src_ip":"192.0.2.1","src_port":1,"dest_ip":"203.0.113.9","dest_port":443,"proto":"TCP","flow":{"a":[1,2.5e3,null,true,"\u00e4\ud83d\ude00\\"]} }  "#,
];

const LINK_TYPE_ETHERNET: u16 = 1;

/// A question for www.good.test, answered by a referral to test. and its server, by one to good.test., and by an
/// address.
#[rustfmt::skip]
const WALK: &[u8] = &[
    0,  0, 1,
    0,  0, 45,  0, 0, 0, 1, 1, 0, 0,
    4, b't', b'e', b's', b't', 0, 0, 2, 0, 1, 0, 0, 1, 44, 0, 4, 1, b'n', 0xc0, 12,
    1, b'n', 0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 9, 9, 9, 2,
    0,  0, 34,  0, 0, 0, 1, 1, 0, 0,
    0xc0, 12, 0, 2, 0, 1, 0, 0, 1, 44, 0, 4, 1, b'm', 0xc0, 12,
    1, b'm', 0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 9, 9, 9, 3,
    0,  0, 16,  0, 0, 1, 0, 0, 0, 0,
    0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 9, 9, 9, 33,
];

/// The choice of `pcap-dns` in the target of traces, whole and in pieces of one byte.
const TRACE_PCAP_DNS: u8 = 12;

/// Traces by the choice of their format.
const TRACES: [(u8, &[u8]); 8] = [
    (1, b"7\n*\n18446744073709551615\n"),
    (2, b"17 3 0 0\n5 65536 0 1\n"),
    (6, b"1 7 68\n3.5 abc 0\n"),
    (7, b"#separator |\n#set_separator|;\n#fields|ts|query|qtype|TTLs\n10.25|a.b|1|5.0;6.5\n11|-|-|-\n"),
    (7, b"{\"ts\":\"2018-03-24T17:15:24.8Z\",\"query\":\"A.b\",\"qtype\":1,\"TTLs\":[60.0,7]}\n"),
    (8, b"time;obj-id;size;op;ttl\n1;\"a;\"\"b\";2;set;3\n4;k;;get;\n"),
    (9, b"\x01\0\0\0\x07\0\0\0\0\0\0\0\x05\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
    (10, b"5,a,b,6,10,1,add,60\n5,a,6,10,1,get,0\n"),
];

const LOGS_ZEEK: [&str; 3] = [
    "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\tdns\n#open\t2024-01-02-03-04-05\n#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\trtt\tquery\tqtype\trcode\tanswers\tTTLs\n#types\ttime\tstring\taddr\tport\taddr\tport\tenum\tinterval\tstring\tcount\tcount\tvector[string]\tvector[interval]\n1521911720.865716\tCq\t192.0.2.1\t41772\t192.0.2.53\t53\tudp\t0.000870\tWWW.Example.com\t1\t0\tcdn.example.net,203.0.113.9\t2230.000000,60.500000\n1521911721.000000\tCr\t2001:db8::1\t5\t2001:db8::53\t53\tudp\t-\tnone.example\t28\t3\t-\t-\n1.5\tCs\t192.0.2.1\t5\t192.0.2.53\t53\tudp\t-\tx\\x2cy\\\\z\t16\t0\tTXT 3 a\\x2cb\t1.0\n#close\t2024-01-02-03-04-06\n",
    "{\"ts\":1521911720.865716,\"uid\":\"C\",\"id.orig_h\":\"192.0.2.1\",\"id.orig_p\":5,\"id.resp_h\":\"192.0.2.53\",\"id.resp_p\":53,\"proto\":\"udp\",\"rtt\":0.5,\"query\":\"a\\\\xc3.example\",\"qtype\":1,\"rcode\":0,\"answers\":[\"b.example\",\"203.0.113.9\"],\"TTLs\":[5.0,6]}\n{\"ts\":\"2024-01-02T03:04:05.6Z\",\"id.orig_h\":\"::1\",\"id.resp_h\":\"::2\"}\r\n",
    "#separator |\n#fields|ts|id.orig_h|id.orig_p|id.resp_h|id.resp_p|proto\n#types|time|addr|port|addr|port|enum\n1.0|192.0.2.1|1|203.0.113.9|443|tcp\nbroken\n",
];

/// Filters with a bit of everything.
const FILTERS: [&str; 6] = [
    "tcp port 80 or 443 and not (src host 10.0.0.1 or net fe80::/10)",
    "ip proto \\tcp and portrange 1-1023 or icmp",
    "vlan 3 and vlan and udp[8:2] & 0x8000 != 0",
    "tcp[((tcp[12:1] & 0xf0) >> 2):4] = 0x47455420 or len > -1 + 3 * 5 % 4 ^ 6",
    "vlan and ether host 02:00:00:00:00:01 and ip multicast and less 100",
    "! (ip6 host ::1) && src and dst port domain || greater 0x10",
];

const NAMES: &str = "#larder-names 1\n#fields\tkind\tclient\taddress\tteacher\tsolicited\ttime_ns\tttl_s\tname\thead\naddress\t-\t203.0.113.9\tdns\tT\t1700000000000000000\t300\twww.example.com\t-\npair\t192.0.2.7\t203.0.113.9\tdns\tF\t1700000000000000001\t60\tb.example\thead.example\nhost\t-\t2001:db8::7\tmdns\tT\t5\t120\tprinter.local\t-\nalias\t-\t-\tdns\tT\t0\t0\tedge.cdn.example\twww.example.com\npair\t2001:db8::1\t2001:db8::2\tptr\tT\t-5\t0\tx\\x5cy\\xff\t-\n#end 5\n";
