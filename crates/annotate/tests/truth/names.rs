//! The name of each flow.

use crate::open::{Capture, Ours, captures};

/// Flows whose own name is not the one that `tshark` reads, each with its reason: capture, flow,
/// reason.
const OWN_NAME_EXPLAINED: &[(&str, &str, &str)] = &[
    ("nd-wechat.pcap", "udp4", GOOGLE_QUIC),
    ("nd-wechat.pcap", "udp6", GOOGLE_QUIC),
    ("nd-wechat.pcap", "udp9", GOOGLE_QUIC),
    ("pp-many_interfaces-1.pcapng", "udp11", GOOGLE_QUIC),
];

const GOOGLE_QUIC: &str = "a hello of Google QUIC: the truth has names of TLS and HTTP alone, tshark's gquic.tag.sni has this one";

/// Flows of recordings whose name by DNS is not that of the plain rules, which every recording of a
/// better rule is made to show: capture, flows, reason.
const BY_DNS_EXPLAINED: &[(&str, &[&str], &str)] = &[
    (
        "dns-tcp-hole.pcap",
        &["tcp3", "tcp4"],
        "The answers stand behind a hole in the stream, which a late segment may still fill.",
    ),
    (
        "r9-unsolicited.pcap",
        &["tcp0", "tcp1"],
        "An answer that nobody asked for displaces no other (rule 9); the newest is a forged one.",
    ),
    (
        "svcb-hints.pcap",
        &["tcp0", "tcp1", "tcp2"],
        "Address hints of SVCB records (RFC 9460, section 7.3) name as addresses do.",
    ),
];

/// Captures that hold no name for any address: nothing may be named there.
const NAMELESS: [(&str, &str); 6] = [
    ("ak-bigendian.pcap", "an echo and its reply"),
    ("gp-test018.pcapng", "DHCP without host names"),
    ("nd-malformed_dns.pcap", "responses with two questions, one of them over 255 bytes"),
    ("zk-dns-svcb.pcap", "a service binding without address hints"),
    ("zk-get-to-ssh-server.pcap", "a request to a host given by its address"),
    ("zk-linux_dlt_sll2.pcap", "echoes, router solicitations, ARP"),
];

/// Suffixes of two labels under which names are registered, of those that occur here.
const LONG_SUFFIXES: [&str; 2] = ["co.il", "co.uk"];

/// What one registers: the public suffix and a label more.
fn registered_domain(name: &str) -> &str {
    let labels = |count: usize| match name.rmatch_indices('.').nth(count - 1) {
        Some((dot, _)) => &name[dot + 1..],
        None => name,
    };
    if LONG_SUFFIXES.contains(&labels(2)) { labels(3) } else { labels(2) }
}

/// What is known of the flows of a capture that state a name.
#[derive(Default)]
struct Score {
    /// Flows that state a name.
    truth: u64,
    /// Those that DNS had named at their first packet.
    covered: u64,
    /// Those where it is the name that they state.
    exact: u64,
    /// Those where it has the same registered domain.
    domain: u64,
    /// Those where the stated name is among the candidates.
    among: u64,
    /// Those where we read the name that they state.
    own: u64,
}

impl Score {
    const HEADER: &str = "| capture | state a name | named by DNS | exact | same domain | among the \
                          candidates | SNI/Host equal |\n|---|--:|--:|--:|--:|--:|--:|";

    fn add(&mut self, other: &Score) {
        self.truth += other.truth;
        self.covered += other.covered;
        self.exact += other.exact;
        self.domain += other.domain;
        self.among += other.among;
        self.own += other.own;
    }

    fn row(&self, capture: &str) -> String {
        let Score { truth, covered, exact, domain, among, own } = self;
        format!("| {capture} | {truth} | {covered} | {exact} | {domain} | {among} | {own} |")
    }
}

fn score(capture: &Capture) -> Score {
    let mut score = Score::default();
    for flow in &capture.theirs {
        let Some(truth) = flow.name.as_deref() else { continue };
        score.truth += 1;
        let by_dns = Capture::record_of(&capture.by_dns, flow);
        if let Some((record, name)) = by_dns.and_then(|r| Some((r, r.name_at_start()?))) {
            score.covered += 1;
            score.exact += u64::from(name == truth);
            score.domain += u64::from(registered_domain(name) == registered_domain(truth));
            score.among += u64::from(record.candidates.iter().any(|one| one == truth));
        }
        let by_all = Capture::record_of(&capture.by_all, flow);
        let own = by_all.and_then(|record| own_name(record, flow.source.as_deref()));
        score.own += u64::from(own == Some(truth));
    }
    score
}

/// The name that a flow states; an address in its place is logged, and is no name.
fn own_name<'o>(record: &'o Ours, source: Option<&str>) -> Option<&'o str> {
    let stated = match source {
        Some("http") => record.http_host.as_deref(),
        _ => record.server_name.as_deref(),
    };
    stated.filter(|stated| stated.parse::<std::net::IpAddr>().is_err())
}

/// DNS alone names the flows that it can name, and as well as it can: in numbers, by capture.
/// `cargo test -p larder-annotate --test truth -- --nocapture` prints the table.
#[test]
fn dns_names_flows_as_they_name_themselves() {
    let mut total = Score::default();
    println!("{}", Score::HEADER);
    for capture in captures() {
        let score = score(capture);
        let counted = |what: &str| capture.counts.get(what).copied().unwrap_or_default();
        let file = &capture.file;
        assert_eq!(score.truth, counted("truth"), "{file}: flows that state a name");
        assert_eq!(score.covered, counted("cov"), "{file}: flows with a name by DNS");
        assert!(score.exact >= counted("d_exact"), "{file}: {} exact", score.exact);
        assert!(score.domain >= counted("d_rd"), "{file}: {} of the same domain", score.domain);
        if score.truth > 0 {
            println!("{}", score.row(file));
        }
        if capture.is_public {
            total.add(&score);
        }
    }
    if !captures().iter().any(|capture| capture.is_public) {
        return;
    }
    println!("{}", total.row("all public"));
    assert_eq!((total.truth, total.covered), (321, 281));
    assert!(total.exact >= 221, "{} exact", total.exact);
    assert!(total.domain >= 254, "{} of the same registered domain", total.domain);
}

/// Every flow, whether it states a name or not, has the name by DNS that the same rules give on
/// `tshark`'s reading of the answers, but for what is explained; and what is explained does differ.
#[test]
fn dns_names_are_those_of_the_rules() {
    let mut differing = Vec::new();
    for capture in captures() {
        for flow in &capture.theirs {
            let record = Capture::record_of(&capture.by_dns, flow);
            let name = record.and_then(Ours::name_at_start);
            let explained = BY_DNS_EXPLAINED
                .iter()
                .any(|(file, flows, _)| *file == capture.file && flows.contains(&&*flow.id));
            if (record.is_none() || name != flow.by_dns.as_deref()) != explained {
                differing.push(format!(
                    "{} {}: named {name:?}, by the rules {:?}",
                    capture.file, flow.id, flow.by_dns
                ));
            }
        }
    }
    assert!(differing.is_empty(), "look at the packets:\n{}", differing.join("\n"));
}

/// The server name or host that a flow states is read as `tshark` reads it, and the flow is called
/// by it; a host given as an address is no name.
#[test]
fn flows_state_the_names_that_tshark_reads() {
    let (mut truth, mut equal, mut differing) = (0, 0, Vec::new());
    for capture in captures() {
        for flow in &capture.theirs {
            let record = Capture::record_of(&capture.by_all, flow);
            let own = record.and_then(|record| own_name(record, flow.source.as_deref()));
            let called = record.and_then(|record| record.name.as_deref());
            let name = flow.name.as_deref();
            truth += u64::from(name.is_some() && capture.is_public);
            equal += u64::from(name.is_some() && own == name && capture.is_public);
            let as_stated = name.is_none() || called == name;
            let explained = OWN_NAME_EXPLAINED
                .iter()
                .any(|(file, id, _)| (*file, *id) == (&capture.file, &flow.id));
            if (own != name || !as_stated) != explained {
                differing.push(format!(
                    "{} {}: states {own:?} and is called {called:?}, tshark reads {name:?}",
                    capture.file, flow.id
                ));
            }
        }
    }
    assert!(differing.is_empty(), "look at the packets:\n{}", differing.join("\n"));
    if captures().iter().any(|capture| capture.is_public) {
        assert_eq!(truth, 321);
        assert!(100 * equal >= 98 * truth, "{equal} of {truth} names are equal");
    }
}

/// No name is invented: with DNS alone every name in every record was in an answer of that capture,
/// and in captures without names no flow is named, by any source.
#[test]
fn no_name_is_invented() {
    let mut nameless = 0;
    for capture in captures() {
        let file = &capture.file;
        for name in capture.by_dns.iter().flat_map(|record| &record.all_names) {
            assert!(capture.learned.contains(name), "{file}: nobody answered for {name}");
        }
        if NAMELESS.iter().any(|(nameless, _)| nameless == file) {
            nameless += 1;
            let records = capture.by_all.iter();
            let named: Vec<_> =
                records.flat_map(|record| record.all_names.iter().chain(&record.hosts)).collect();
            assert!(named.is_empty(), "{file}: {named:?}");
            let known = String::from_utf8_lossy(&capture.runs[0].names);
            let known: Vec<_> = known.lines().filter(|line| !line.starts_with('#')).collect();
            assert!(known.is_empty(), "{file}: {known:?}");
        }
    }
    let public = captures().iter().any(|capture| capture.is_public);
    assert!(!public || nameless == NAMELESS.len(), "a capture is gone");
}
