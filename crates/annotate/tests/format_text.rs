//! The text format, which people read.

mod format_records;

use format_records::{hostile, log, naming, ping, web};
use larder_annotate::options::OutputFormat;
use larder_annotate::record::NameSource;

/// Columns are aligned with their titles, and hostile bytes are escaped.
#[test]
fn golden() {
    let text = log(OutputFormat::Text, false, &[web(), ping(), hostile()]).expect("a line format");
    let expected = [
        "#time                     duration proto source                -> destination           \
         app    sent  rcvd name [source,confidence,flags] <- name of the source",
        "2024-01-02T03:04:05.123Z    12.345 tcp   10.0.0.5:49152        -> 93.184.216.34:https   \
         tls    1.2k 34.5k www.example.com [dns_pair,98%,stale,ambiguous]",
        "2024-01-02T03:04:06.000Z     0.000 icmp6 2001:db8::5           -> 2001:db8::1:0:0:7     \
         -       104     0 - [no_lookup_seen]",
        concat!(
            r"2024-01-02T03:04:05.123Z     0.000 udp   [fe80::1]:mdns        ",
            r#"-> 93.184.216.34:https   quic      0 34.5k =e\x1b[31m,"\x09\x0d\x0a\.\x00\x7f\x80\xff"#,
            r"x;'`$(1)\x20y [quic_sni,98%] <- jos\xc3\xa9\x20\xf0\x9f\x98\x80.local [mdns,98%]",
        ),
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    assert!(text.bytes().all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)));
}

/// `-n` writes ports as numbers.
#[test]
fn numeric_ports() {
    let text = log(OutputFormat::Text, true, &[web()]).expect("a line format");
    assert!(text.contains(" 93.184.216.34:443 "), "{text}");
}

/// A host that gives itself another host's address as its name is not shown by it: both ends stay
/// addresses, and the name that the host states is in a column of its own, with its source.
/// Invariant 1 of `text`.
#[test]
fn a_name_never_stands_in_for_an_address() {
    let mut record = web();
    record.source.naming = Some(naming(b"10.0.0.99", NameSource::Dhcp));
    let text = log(OutputFormat::Text, false, &[record]).expect("a line format");
    let line = text.lines().nth(1).expect("a record");
    let columns: Vec<&str> = line.split(' ').filter(|column| !column.is_empty()).collect();
    assert_eq!((columns[3], columns[5]), ("10.0.0.5:49152", "93.184.216.34:https"));
    assert_eq!(columns[11..], ["<-", "10.0.0.99", "[dhcp,98%]"]);
}
