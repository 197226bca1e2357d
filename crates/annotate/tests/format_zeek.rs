//! The Zeek format.

mod format_records;

use format_records::{all, hostile, log, name, ping, web};
use larder_annotate::format::Format;
use larder_annotate::options::OutputFormat;
use larder_annotate::record::FlowRecord;

/// The values of a record with their fields.
type Line = Vec<(String, String)>;

/// Reads a log as Zeek's own reader does: by what its header says.
fn read_back(records: &[FlowRecord]) -> Vec<Line> {
    let text = log(OutputFormat::Zeek, false, records).expect("a line format");
    let (fields, types) = (titles(&text, "#fields\t"), titles(&text, "#types\t"));
    assert_eq!(fields.len(), types.len());
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let values: Vec<_> = line.split('\t').map(str::to_owned).collect();
        assert_eq!(values.len(), fields.len(), "a value for each field");
        fields.iter().cloned().zip(values).collect()
    });
    lines.collect()
}

fn titles(text: &str, tag: &str) -> Vec<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(tag)).expect("a header line");
    line.split('\t').map(str::to_owned).collect()
}

fn get<'a>(record: &'a Line, field: &str) -> &'a str {
    &record.iter().find(|(name, _)| name == field).expect("a field").1
}

/// The header lines are Zeek's, with Zeek's columns and types first and ours after them.
#[test]
fn golden_header() {
    let text = log(OutputFormat::Zeek, false, &[]).expect("a line format");
    let expected = concat!(
        "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n",
        "#path\tconn\n#open\t1970-01-01-00-00-00\n",
        "#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\tservice\tduration\t",
        "orig_bytes\tresp_bytes\tconn_state\tlocal_orig\tlocal_resp\tmissed_bytes\thistory\t",
        "orig_pkts\torig_ip_bytes\tresp_pkts\tresp_ip_bytes\ttunnel_parents\tip_proto\t",
        "id.orig_h_name.src\tid.orig_h_name.vals\tid.resp_h_name.src\tid.resp_h_name.vals\t",
        "community_id\tvlan\tinner_vlan\ttunnel_id\torig_name_confidence\torig_name_age_ms\torig_name_stale\torig_name_late\torig_name_ambiguous\t",
        "orig_name_conflict\torig_name_conflict_grade\torig_name_unsolicited\torig_name_one_sided\t",
        "orig_name_unconfirmed\torig_name_claimed\torig_unnamed_reason\tresp_name_confidence\tresp_name_age_ms\t",
        "resp_name_stale\tresp_name_late\tresp_name_ambiguous\tresp_name_conflict\t",
        "resp_name_conflict_grade\tresp_name_unsolicited\tresp_name_one_sided\t",
        "resp_name_unconfirmed\tresp_name_claimed\tresp_unnamed_reason\t",
        "server_name\tech\thost\texporter\texporter_domain\tsampling_rate\tcontinued_since\n",
        "#types\ttime\tstring\taddr\tport\taddr\tport\tenum\tstring\tinterval\t",
        "count\tcount\tstring\tbool\tbool\tcount\tstring\t",
        "count\tcount\tcount\tcount\tset[string]\tcount\t",
        "string\tvector[string]\tstring\tvector[string]\t",
        "string\tint\tint\tint\tcount\tcount\tbool\tbool\tbool\tbool\tstring\tbool\tbool\tbool\tbool\tstring\t",
        "count\tcount\tbool\tbool\tbool\tbool\tstring\tbool\tbool\tbool\tbool\tstring\t",
        "string\tbool\tstring\taddr\tint\tcount\ttime\n",
        "#close\t1970-01-01-00-00-00\n",
    );
    assert_eq!(text, expected);
}

/// Two records, whole: a TCP flow, and a lone packet that has no duration and no sizes to Zeek.
#[test]
fn golden_records() {
    let text = log(OutputFormat::Zeek, false, &[web(), ping()]).expect("a line format");
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        concat!(
            "1704164645.123456\tCm03nOU5yCMeZsFI9f\t10.0.0.5\t49152\t93.184.216.34\t443\ttcp\tssl\t",
            "12.345678\t790\t33001\tSF\tT\tF\t1460\tShADadFf\t11\t1234\t29\t34567\t-\t6\t",
            "-\t-\tdns_pair\twww.example.com,cdn.example.net\t1:WFu5YQGJptNO6IrtaHnl24qBbd0=\t-\t-\t-\t",
            "-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\tlocal\t98\t250\tT\tF\tT\tF\t-\tF\tF\tF\tF\t-\t",
            "www.example.com\tT\t-\t-\t-\t-\t-",
        ),
        concat!(
            "1704164646.000000\tC3wXvS20y9KOpCo1aH\t2001:db8::5\t128\t2001:db8::1:0:0:7\t129\t",
            "icmp\t-\t-\t-\t-\tS0\tF\tF\t0\t-\t1\t104\t0\t0\t-\t58\t",
            "-\t-\t-\t-\t1:WOa1N4HY2PZVf7wz4Hlrskuyc3U=\t-\t-\t-\t",
            "-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\tno_lookup_seen\t-\t-\t-\t-\t-\t-\t-",
        ),
    ];
    assert_eq!(lines, expected);
}

/// A name can't end a line, add a column or an element, or look like an absent or empty value.
#[test]
fn hostile_names() {
    let mut empty = web();
    empty.tls_server_name = Some(name(b"(empty)"));
    empty.http_host = Some(name(b"-"));
    let records = read_back(&[hostile(), empty]);
    let escaped = r#"=e\x1b[31m\x2c"\x09\x0d\x0a\.\x00\x7f\x80\xffx;'`$(1)\x20y,\x2d,."#;
    assert_eq!(get(&records[0], "id.resp_h_name.vals"), escaped);
    assert_eq!(get(&records[0], "service"), "quic,ssl");
    assert_eq!(get(&records[1], "server_name"), r"\x28empty)");
    assert_eq!(get(&records[1], "host"), r"\x2d");
    let text = log(OutputFormat::Zeek, false, &all()).expect("a line format");
    assert!(text.bytes().all(|byte| matches!(byte, b'\n' | b'\t' | 0x20..0x7f)));
}

/// The uid has Zeek's shape, stays the same, and changes with each part of the 5-tuple and with
/// the start, but with nothing else.
#[test]
fn uid() {
    let changes: [fn(&mut FlowRecord); 8] = [
        |_| {},
        |record| record.source.addr = format_records::addr("10.0.0.6"),
        |record| record.destination.addr = format_records::addr("93.184.216.35"),
        |record| std::mem::swap(&mut record.source.addr, &mut record.destination.addr),
        |record| record.source.port += 1,
        |record| record.destination.port += 1,
        |record| record.protocol = 17,
        |record| record.start_ns += 1,
    ];
    let records: Vec<_> = changes
        .iter()
        .map(|change| {
            let mut record = web();
            change(&mut record);
            record
        })
        .collect();
    let mut uids: Vec<_> =
        read_back(&records).iter().map(|record| get(record, "uid").to_owned()).collect();
    for uid in &uids {
        assert!(uid.len() == 18 && uid.starts_with('C'), "{uid}");
        assert!(uid.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{uid}");
    }
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), changes.len());

    let mut other = web();
    (other.first_packet, other.end_ns, other.app) = (1, other.end_ns + 1, None);
    let both = read_back(&[web(), other]);
    assert_eq!(get(&both[0], "uid"), get(&both[1], "uid"));
}

/// Header and footer state the times that they are given.
#[test]
fn log_times() {
    let format = Format::new(OutputFormat::Zeek, false).expect("a line format");
    let mut out = Vec::new();
    format.writer().header(1_704_164_645_999_999_999, &mut out);
    format.writer().footer(1_704_164_646_000_000_000, &mut out);
    let text = String::from_utf8(out).expect("ASCII");
    assert!(text.contains("\n#open\t2024-01-02-03-04-05\n"), "{text}");
    assert!(text.ends_with("\n#close\t2024-01-02-03-04-06\n"), "{text}");
}
