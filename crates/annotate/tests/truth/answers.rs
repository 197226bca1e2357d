//! The names of each DNS message, packet by packet, as `tshark` reads it with reassembly on.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::open::{Capture, captures};
use larder_testkit::process::tshark;
use larder_testkit::skip::skip;

/// The content of one packet's messages: the queried names (in multicast DNS, which has answers
/// without a query, the names that own addresses), the addresses and the alias targets in the
/// answers, each sorted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    asked: Vec<String>,
    addresses: Vec<IpAddr>,
    aliases: Vec<String>,
}

impl Said {
    fn sorted(mut self) -> Said {
        self.asked.sort();
        self.addresses.sort();
        self.aliases.sort();
        self
    }

    fn teaches(&self) -> bool {
        !self.addresses.is_empty() || !self.aliases.is_empty()
    }
}

/// Packets whose answers we read otherwise: capture, packets, whether they count as damage, reason.
const EXPLAINED: &[(&str, &[u64], bool, &str)] = &[
    (
        "nd-malformed_dns.pcap",
        &[2, 3, 5, 6],
        true,
        "Two questions, the second with a name of more than 255 bytes, and an alias to that name. \
         Nobody may ask two questions at once (RFC 9619): it teaches nothing, and is counted as damage.",
    ),
    (
        "dns-tcp-hole.pcap",
        &[45, 59],
        false,
        "They stand behind a hole in the stream, which a late segment may still fill.",
    ),
    (
        "svcb-hints.pcap",
        &[2, 4],
        false,
        "Address hints (RFC 9460, section 7.3), which tshark has in fields of their own.",
    ),
];

/// The content of `dns.log`, by packet.
fn ours(capture: &Capture) -> BTreeMap<u64, Said> {
    let mut said: BTreeMap<u64, Said> = BTreeMap::new();
    let log = String::from_utf8_lossy(&capture.runs[0].answers);
    for line in log.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [_, packet, _, _, learned_from, asked, aliases, addresses, ..] = columns[..] else {
            panic!("{}: {line}", capture.file);
        };
        if !matches!(learned_from, "dns" | "llmnr" | "mdns") {
            continue;
        }
        let list = |column: &str| -> Vec<String> {
            let items = column.split(',').filter(|item| *item != "(empty)" && *item != "-");
            items.map(str::to_owned).collect()
        };
        let said = said.entry(packet.parse().expect("a number")).or_default();
        said.asked.extend(list(asked));
        said.aliases.extend(list(aliases));
        said.addresses.extend(
            list(addresses).iter().map(|addr| -> IpAddr { addr.parse().expect("an address") }),
        );
    }
    said.into_iter().map(|(packet, said)| (packet, said.sorted())).collect()
}

/// Messages, but not those that an ICMP error quotes.
const NOT_QUOTED: &str = "(dns or mdns or llmnr) and not icmp and not icmpv6";

const FIELDS: [&str; 13] = [
    "frame.number",
    "frame.protocols",
    "dns.flags.response",
    "dns.count.queries",
    "dns.count.answers",
    "dns.count.auth_rr",
    "dns.count.add_rr",
    "dns.resp.type",
    "dns.qry.name",
    "dns.a",
    "dns.aaaa",
    "dns.cname",
    "dns.resp.name",
];

/// The content by `tshark`, by packet; `None` where it does not run.
fn by_tshark(capture: &Capture) -> Option<BTreeMap<u64, Said>> {
    let options = ["-n", "-Y", NOT_QUOTED, "-E", "occurrence=a", "-E", "aggregator=|"];
    let lines = tshark(&capture.path, &options, &FIELDS)?;
    Some(lines.iter().map(|line| one_packet(line)).collect())
}

/// One line of `tshark`. Its columns list the records of all messages of the packet, one after the
/// other, and do not separate sections: the counts and the types of the records do.
fn one_packet(line: &str) -> (u64, Said) {
    let columns: Vec<Vec<&str>> = line
        .split('\t')
        .map(|column| column.split('|').filter(|item| !item.is_empty()).collect())
        .collect();
    let count = |column: usize, message: usize| -> usize {
        columns[column].get(message).map_or(0, |count| count.parse().expect("a count"))
    };
    let is_mdns = columns[1].first().is_some_and(|layers| layers.ends_with(":mdns"));
    let mut types = columns[7].iter();
    let mut asked = columns[8].iter();
    let mut owners = columns[12].iter();
    let (mut v4, mut v6, mut cname) = (columns[9].iter(), columns[10].iter(), columns[11].iter());
    let mut said = Said::default();
    for (message, flag) in columns[2].iter().enumerate() {
        let is_response = matches!(*flag, "1" | "True");
        let names = asked.by_ref().take(count(3, message));
        let names: Vec<String> = names.map(|name| name.to_lowercase()).collect();
        if is_response && !is_mdns {
            said.asked.extend(names);
        }
        let (answers, rest) = (count(4, message), count(5, message) + count(6, message));
        for at in 0..answers + rest {
            // In multicast DNS the additional records count as well (RFC 6762, section 6.2).
            let counts = is_response && (at < answers || is_mdns);
            let address =
                |text: Option<&&str>| text.map(|it| -> IpAddr { it.parse().expect("IP") });
            let rtype = types.next();
            // The owner of an SRV record stands in fields of its own.
            let owner = if rtype == Some(&"33") { None } else { owners.next() };
            let owner = owner.map(|name| name.to_lowercase());
            if is_mdns && counts && matches!(rtype, Some(&"1" | &"28")) {
                said.asked.extend(owner.filter(|name| !said.asked.contains(name)));
            }
            match rtype {
                Some(&"1") => said.addresses.extend(address(v4.next()).filter(|_| counts)),
                Some(&"28") => said.addresses.extend(address(v6.next()).filter(|_| counts)),
                Some(&"5") => {
                    let target = cname.next().map(|name| name.to_lowercase());
                    said.aliases.extend(target.filter(|_| counts));
                }
                _ => {}
            }
        }
    }
    (columns[0][0].parse().expect("a number"), said.sorted())
}

/// Over tunnels, fragments and segments, each packet that ends a message gives the names, aliases
/// and addresses that `tshark` reads there, and no other packet gives any.
#[test]
fn answers_are_those_of_tshark() {
    let (mut equal, mut wrong) = (0, Vec::new());
    for capture in captures() {
        let Some(theirs) = by_tshark(capture) else {
            return skip("answers_are_those_of_tshark", "tshark does not run");
        };
        let mut ours = ours(capture);
        for (packet, theirs) in theirs {
            let ours = ours.remove(&packet).unwrap_or_default();
            // An answer without addresses and aliases gives no names, and is in none of our logs.
            let agree = if theirs.teaches() { ours == theirs } else { !ours.teaches() };
            let explained = EXPLAINED
                .iter()
                .any(|(file, packets, ..)| *file == capture.file && packets.contains(&packet));
            equal += u64::from(agree && theirs.teaches());
            if agree == explained {
                wrong.push(format!("{} {packet}: {ours:?}, not {theirs:?}", capture.file));
            }
        }
        let damaged = &capture.runs[0].summary.damaged;
        let counted: u64 = damaged.values().map(|damage| damage.count).sum();
        let unread = EXPLAINED.iter().find(|row| row.0 == capture.file && row.2);
        let unread = unread.map_or(0, |(_, packets, ..)| packets.len() as u64);
        if counted != unread {
            wrong.push(format!("{}: {damaged:?}, not {unread} messages", capture.file));
        }
        wrong.extend(ours.keys().map(|packet| format!("{} {packet}: no message", capture.file)));
    }
    assert!(wrong.is_empty(), "look at the packets:\n{}", wrong.join("\n"));
    println!("{equal} packets teach the same");
}
