//! Numbers as people read them.

/// A number with a comma every three digits: 1234567 is `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes with a binary unit: `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{amount:.1} {}", units[unit]) }
}

/// A rate with a decimal unit: `12.3 M`.
pub fn scaled(rate: f64) -> String {
    match rate {
        _ if rate >= 1e6 => format!("{:.1} M", rate / 1e6),
        _ if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        _ => format!("{rate:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers, sizes and rates read as people write them.
    #[test]
    fn amounts_read_well() {
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(u64::MAX), "16384.0 PiB");
        assert_eq!(scaled(999.0), "999");
        assert_eq!(scaled(1_500.0), "1.5 k");
    }
}
