//! Names that spell an address, for lookups from address to name.

use crate::Addr;

/// The address of a canonical reverse name: four numbers below `in-addr.arpa` (RFC 1035, section
/// 3.5) or 32 hexadecimal digits below `ip6.arpa` (RFC 3596, section 2.5).
pub fn reverse_addr(name: &[u8]) -> Option<Addr> {
    if let Some(labels) = name.strip_suffix(b".in-addr.arpa") {
        let mut bytes = [0; 4];
        let mut labels = labels.split(|&byte| byte == b'.');
        for byte in bytes.iter_mut().rev() {
            *byte = decimal(labels.next()?)?;
        }
        return labels.next().is_none().then_some(Addr::v4(bytes));
    }
    let labels = name.strip_suffix(b".ip6.arpa")?;
    if labels.len() != 63 {
        return None;
    }
    let mut bytes = [0; 16];
    for (index, pair) in labels.chunks(2).enumerate() {
        if pair.get(1).is_some_and(|&dot| dot != b'.') {
            return None;
        }
        let nibble = char::from(pair[0]).to_digit(16)? as u8;
        bytes[15 - index / 2] |= nibble << (index % 2 * 4);
    }
    Some(Addr::v6(bytes))
}

/// A number from 0 to 255 as an address label spells it: no sign, no leading zero.
fn decimal(label: &[u8]) -> Option<u8> {
    if label.len() > 1 && label[0] == b'0' || !label.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(label).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> Option<String> {
        reverse_addr(name.as_bytes()).map(|addr| addr.to_string())
    }

    /// Both families are read in the spelling of their RFCs; the IPv6 digits come lowest first.
    #[test]
    fn spelled_addresses() {
        assert_eq!(read("10.2.0.192.in-addr.arpa").as_deref(), Some("192.0.2.10"));
        assert_eq!(read("0.255.0.1.in-addr.arpa").as_deref(), Some("1.0.255.0"));
        let digits = "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.0.0.0.0.1.2.3.4.ip6.arpa";
        assert_eq!(read(digits).as_deref(), Some("4321:0:1:2:3:4:567:89ab"));
    }

    /// A name that is nearly a reverse name gives no address.
    #[test]
    fn near_misses() {
        for name in [
            "",
            "in-addr.arpa",
            ".in-addr.arpa",
            "2.0.192.in-addr.arpa",
            "1.10.2.0.192.in-addr.arpa",
            "256.2.0.192.in-addr.arpa",
            "01.2.0.192.in-addr.arpa",
            "+1.2.0.192.in-addr.arpa",
            "1..0.192.in-addr.arpa",
            "0-31.2.0.192.in-addr.arpa",
            "b.a.9.8.ip6.arpa",
            "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.0.0.0.0.1.2.3.g.ip6.arpa",
            "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.0.0.0.0.1.2-3.4.ip6.arpa",
            "10.2.0.192.in-addr.arpa.example",
        ] {
            assert_eq!(read(name), None, "{name}");
        }
    }
}
