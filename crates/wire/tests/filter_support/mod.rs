//! Filters and frames for the tests of filters: a hand-written list, a generator from the grammar,
//! and frames that no capture has.
#![allow(dead_code)]

pub use larder_testkit::random::Random;
use larder_wire::filter::LinkType;

/// Filters from a file; some of them are invalid.
pub fn by_hand() -> Vec<&'static str> {
    include_str!("by_hand.txt").lines().filter(|line| !line.starts_with('#')).collect()
}

/// Generates filters from the grammar, over addresses and ports of the captures.
pub struct Grammar {
    random: Random,
    link: LinkType,
}

impl Grammar {
    pub fn new(seed: u64, link: LinkType) -> Grammar {
        Grammar { random: Random(seed), link }
    }

    pub fn filter(&mut self) -> String {
        self.joined(3)
    }

    fn joined(&mut self, depth: usize) -> String {
        let mut text = self.part(depth);
        for _ in 0..self.random.index(3) {
            let join = self.random.of(&[" and ", " or ", " && ", " || "]);
            text = format!("{text}{join}{}", self.part(depth));
        }
        text
    }

    fn part(&mut self, depth: usize) -> String {
        match self.random.index(8) {
            0 if depth > 0 => format!("({})", self.joined(depth - 1)),
            1 if depth > 0 => format!("not ({})", self.joined(depth - 1)),
            2 => format!("not {}", self.test()),
            _ => self.test(),
        }
    }

    fn test(&mut self) -> String {
        const SIDES: [&str; 6] = ["", "", "src ", "dst ", "src or dst ", "src and dst "];
        let side = self.random.of(&SIDES);
        match self.random.index(12) {
            0 => self
                .random
                .of(&["ip", "ip6", "arp", "tcp", "udp", "icmp", "icmp6", "sctp"])
                .to_owned(),
            1 | 2 => {
                let proto = self.random.of(&["", "", "tcp ", "udp "]);
                format!("{proto}{side}port {}", self.ports())
            }
            3 => {
                let (low, high) = (self.random.index(1000), self.random.index(60000));
                format!("{side}portrange {low}-{high}")
            }
            4 | 5 => format!("{side}host {}", self.addr()),
            6 => {
                let net = self.random.of(&[
                    "10",
                    "10.0",
                    "192.168.0.0/16",
                    "10.0.0.0/8",
                    "172.16.0.0/12",
                    "fe80::/10",
                    "fd00::/8",
                    "2001:db8::/32",
                    "ff00::/8",
                ]);
                format!("{side}net {net}")
            }
            7 => format!(
                "{}proto {}",
                self.random.of(&["", "ip ", "ip6 "]),
                self.random.of(&["6", "17", "1", "58"])
            ),
            8 => format!("{} {}", self.random.of(&["less", "greater"]), self.random.index(300)),
            9 if self.link == LinkType::Ethernet => match self.random.index(6) {
                0 => format!("vlan {}", self.random.of(&["", "3", "100", "200"])).trim().to_owned(),
                1 => "vlan".to_owned(),
                2 => format!(
                    "ether {} 02:00:00:00:00:0{}",
                    self.random.of(&["host", "src", "dst"]),
                    self.random.index(4)
                ),
                3 => self.random.of(&["broadcast", "multicast"]).to_owned(),
                _ => format!("ether proto {}", self.random.of(&["0x800", "0x86dd", "\\arp"])),
            },
            9 => "ip multicast".to_owned(),
            _ => self.comparison(),
        }
    }

    fn ports(&mut self) -> String {
        const PORTS: [&str; 9] =
            ["53", "443", "80", "5353", "https", "domain", "123", "67", "5355"];
        let port = self.random.of(&PORTS);
        match self.random.index(4) {
            0 => format!("{port} or {}", self.random.of(&PORTS)),
            1 => format!("({port} or not {})", self.random.of(&PORTS)),
            _ => port.to_owned(),
        }
    }

    fn addr(&mut self) -> String {
        const ADDRS: [&str; 10] = [
            "10.0.0.1",
            "10.0.0.2",
            "10.9.0.2",
            "192.168.1.1",
            "10.0",
            "224.0.0.251",
            "fe80::1",
            "ff02::fb",
            "fd00::1",
            "2001:db8::1",
        ];
        self.random.of(&ADDRS).to_owned()
    }

    fn comparison(&mut self) -> String {
        let relation = self.random.of(&["=", "!=", "<", ">", "<=", ">="]);
        format!("{} {relation} {}", self.value(3), self.random.index(300))
    }

    /// Loads are left operands only: libpcap checks the protocols of no others.
    fn value(&mut self, depth: usize) -> String {
        match self.random.index(6) {
            0 if depth > 0 => {
                let operator = self.random.of(&["+", "-", "*", "&", "|", "<<", ">>", "/"]);
                let right = match operator {
                    "<<" | ">>" => self.random.index(32).to_string(),
                    "/" => (self.random.index(9) + 1).to_string(),
                    _ => self.random.of(&["1", "4", "0xf0", "len", "(len & 7)", "-3"]).to_owned(),
                };
                format!("({} {operator} {right})", self.value(depth - 1))
            }
            1 => "len".to_owned(),
            _ => {
                let proto =
                    self.random.of(&["ip", "ip6", "tcp", "udp", "icmp", "icmp6", "ether", "arp"]);
                let offset = match self.random.index(6) {
                    0 if depth > 0 => self.value(depth - 1),
                    _ => self.random.index(40).to_string(),
                };
                let size = self.random.of(&["", "", ":1", ":2", ":4"]);
                format!("{proto}[{offset}{size}]")
            }
        }
    }
}

/// Frames of kinds that captures lack: tags in all types, ARP, RARP, multicast, options, fragments.
pub fn rare_frames(link: LinkType) -> Vec<Vec<u8>> {
    let ip = |options: usize, fragment: u16, proto: u8, dst: [u8; 4]| {
        let mut packet = vec![0x45 + options as u8, 0, 0, 60];
        packet.extend_from_slice(&[0, 1]);
        packet.extend_from_slice(&fragment.to_be_bytes());
        packet.extend_from_slice(&[64, proto, 0, 0, 10, 0, 0, 1]);
        packet.extend_from_slice(&dst);
        packet.extend(std::iter::repeat_n(1, options * 4));
        packet.extend_from_slice(&[1, 187, 0, 53, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 0, 1]);
        packet.extend_from_slice(&[0; 8]);
        packet
    };
    let ip6 = |next: u8, dst: u8, rest: &[u8]| {
        let mut packet = vec![0x60, 0, 0, 0, 0, 24, next, 64];
        packet.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        packet.extend_from_slice(&[dst, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfb]);
        packet.extend_from_slice(rest);
        packet.extend_from_slice(&[0x14, 0xe9, 0x14, 0xe9, 0, 24, 0, 0, 135, 0, 0, 0, 0, 0, 0, 0]);
        packet
    };
    let v4 = vec![
        ip(0, 0, 6, [10, 0, 0, 2]),
        ip(3, 0, 17, [224, 0, 0, 251]),
        ip(0, 0x2000, 17, [10, 0, 0, 2]),
        ip(0, 0x00b9, 6, [10, 0, 0, 1]),
        ip(1, 0x4000, 132, [255, 255, 255, 255]),
        ip(0, 0, 1, [192, 168, 1, 1]),
        ip(0, 0, 2, [10, 9, 0, 2]),
    ];
    let v6 = vec![
        ip6(17, 0xff, &[]),
        ip6(6, 0xfe, &[]),
        ip6(132, 0xff, &[]),
        ip6(58, 0xff, &[135, 0, 0, 0, 0, 0, 0, 0]),
        ip6(44, 0xfe, &[17, 0, 0, 1, 0, 0, 0, 5]),
        ip6(44, 0xfe, &[6, 0, 0, 0x10, 0, 0, 0, 5]),
    ];
    if link == LinkType::RawIp {
        return v4.into_iter().chain(v6).collect();
    }
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    arp.extend_from_slice(&[10, 0, 0, 2]);
    let mut bodies: Vec<(u16, Vec<u8>)> = v4.into_iter().map(|packet| (0x0800, packet)).collect();
    bodies.extend(v6.into_iter().map(|packet| (0x86dd, packet)));
    bodies.extend([(0x0806, arp.clone()), (0x8035, arp), (0x0026, vec![0xaa; 38])]);
    let tags: [&[(u16, u16)]; 6] = [
        &[],
        &[(0x8100, 0x2003)],
        &[(0x88a8, 100)],
        &[(0x9100, 200)],
        &[(0x8100, 3), (0x8100, 4)],
        &[(0x88a8, 100), (0x8100, 200)],
    ];
    let mut frames = Vec::new();
    for (number, (kind, body)) in bodies.iter().enumerate() {
        for tags in tags {
            let dst = [[2, 0, 0, 0, 0, 1], [0xff; 6], [1, 0, 0x5e, 0, 0, 0xfb]][number % 3];
            let mut frame = dst.to_vec();
            frame.extend_from_slice(&[2, 0, 0, 0, 0, 2]);
            for (tag, id) in tags {
                frame.extend_from_slice(&tag.to_be_bytes());
                frame.extend_from_slice(&id.to_be_bytes());
            }
            frame.extend_from_slice(&kind.to_be_bytes());
            frame.extend_from_slice(body);
            frames.push(frame);
        }
    }
    frames
}
