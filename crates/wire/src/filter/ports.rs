//! Names of ports and protocols. Ports and their protocols are those of a usual `/etc/services`.

/// Port, protocol; `None`: TCP, UDP and SCTP.
const PORTS: [(&str, u16, Option<u8>); 48] = [
    ("bgp", 179, TCP),
    ("bootpc", 68, UDP),
    ("bootps", 67, UDP),
    ("domain", 53, None),
    ("domain-s", 853, None),
    ("echo", 7, None),
    ("finger", 79, TCP),
    ("ftp", 21, TCP),
    ("ftp-data", 20, TCP),
    ("git", 9418, TCP),
    ("http", 80, TCP),
    ("http-alt", 8080, None),
    ("https", 443, None),
    ("imap2", 143, TCP),
    ("imaps", 993, TCP),
    ("ipp", 631, TCP),
    ("ipsec-nat-t", 4500, UDP),
    ("isakmp", 500, UDP),
    ("kerberos", 88, None),
    ("l2f", 1701, UDP),
    ("ldap", 389, None),
    ("ldaps", 636, None),
    ("mdns", 5353, UDP),
    ("microsoft-ds", 445, None),
    ("ms-sql-s", 1433, TCP),
    ("mysql", 3306, TCP),
    ("netbios-dgm", 138, UDP),
    ("netbios-ns", 137, UDP),
    ("netbios-ssn", 139, TCP),
    ("nfs", 2049, None),
    ("ntp", 123, UDP),
    ("openvpn", 1194, None),
    ("pop3", 110, TCP),
    ("pop3s", 995, TCP),
    ("postgresql", 5432, TCP),
    ("radius", 1812, None),
    ("radius-acct", 1813, None),
    ("rsync", 873, TCP),
    ("sip", 5060, None),
    ("sip-tls", 5061, None),
    ("smtp", 25, TCP),
    ("snmp", 161, None),
    ("snmp-trap", 162, None),
    ("ssh", 22, TCP),
    ("submission", 587, TCP),
    ("syslog", 514, UDP),
    ("telnet", 23, TCP),
    ("tftp", 69, UDP),
];

const TCP: Option<u8> = Some(6);
const UDP: Option<u8> = Some(17);

/// The port of a name, and its protocol if it has only one.
pub(super) fn port(name: &str) -> Option<(u16, Option<u8>)> {
    let at = PORTS.binary_search_by(|row| row.0.cmp(name)).ok()?;
    Some((PORTS[at].1, PORTS[at].2))
}

/// The number of an IP protocol.
pub(super) fn protocol(name: &str) -> Option<u8> {
    Some(match name {
        "icmp" => 1,
        "igmp" => 2,
        "tcp" => 6,
        "udp" => 17,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmp6" | "ipv6-icmp" => 58,
        "pim" => 103,
        "vrrp" => 112,
        "sctp" => 132,
        _ => return None,
    })
}

/// The number of an EtherType.
pub(super) fn ether_type(name: &str) -> Option<u32> {
    Some(match name {
        "ip" => 0x0800,
        "ip6" => 0x86dd,
        "arp" => 0x0806,
        "rarp" => 0x8035,
        _ => return None,
    })
}

/// Names of numbers in expressions.
pub(super) fn constant(name: &str) -> Option<u32> {
    Some(match name {
        "icmptype" | "icmp6type" | "icmp-echoreply" => 0,
        "icmpcode" | "icmp6code" | "icmp6-destinationunreach" => 1,
        "icmp-unreach" | "icmp6-timeexceeded" => 3,
        "icmp-sourcequench" | "icmp6-parameterproblem" => 4,
        "icmp-redirect" => 5,
        "icmp-echo" => 8,
        "icmp-routeradvert" => 9,
        "icmp-routersolicit" => 10,
        "icmp-timxceed" => 11,
        "icmp-paramprob" => 12,
        "icmp-tstamp" => 13,
        "icmp-tstampreply" => 14,
        "icmp-ireq" => 15,
        "icmp-ireqreply" => 16,
        "icmp-maskreq" => 17,
        "icmp-maskreply" => 18,
        "icmp6-packettoobig" => 2,
        "icmp6-echo" => 128,
        "icmp6-echoreply" => 129,
        "icmp6-routersolicit" => 133,
        "icmp6-routeradvert" => 134,
        "icmp6-neighborsolicit" => 135,
        "icmp6-neighboradvert" => 136,
        "icmp6-redirect" => 137,
        "tcpflags" => 13,
        "tcp-fin" => 0x01,
        "tcp-syn" => 0x02,
        "tcp-rst" => 0x04,
        "tcp-push" => 0x08,
        "tcp-ack" => 0x10,
        "tcp-urg" => 0x20,
        "tcp-ece" => 0x40,
        "tcp-cwr" => 0x80,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table is sorted for the binary search, and each name is found.
    #[test]
    fn the_table_is_in_order() {
        assert!(PORTS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(port("https"), Some((443, None)));
        assert_eq!(port("tftp"), Some((69, Some(17))));
        assert_eq!(port("nothing"), None);
    }
}
