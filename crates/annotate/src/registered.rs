//! Registered domains: the registered part of a name, by the Public Suffix List.
//!
//! `www.example.co.uk` and `mail.example.co.uk` both end in `example.co.uk`, which one owner
//! registered below the public suffix `co.uk`. The list is compiled in (crate `psl`), so the result
//! is the same on every machine. It costs a walk over the labels, and allocates nothing.

/// The registered domain at the end of `name`, which is in canonical spelling. `None` for a name
/// that is itself a public suffix, that ends in none (`nas.local`, `printer`), or that has an
/// escaped dot, which the list does not have.
pub(crate) fn domain(name: &[u8]) -> Option<&[u8]> {
    if name.contains(&b'\\') {
        return None;
    }
    let domain = psl::domain(name)?;
    domain.suffix().is_known().then(|| domain.as_bytes())
}

/// True for names of one registered domain. If the list has neither (`a.nas.lan`), the last two
/// labels decide.
pub(crate) fn are_of_one_domain(one: &[u8], other: &[u8]) -> bool {
    match (domain(one), domain(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => last_two_labels(one).is_some_and(|end| last_two_labels(other) == Some(end)),
        _ => false,
    }
}

fn last_two_labels(name: &[u8]) -> Option<&[u8]> {
    let mut dots = (0..name.len()).rev().filter(|&at| name[at] == b'.');
    dots.next()?;
    Some(&name[dots.next().map_or(0, |dot| dot + 1)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names have the registered domain of the list, at any depth; suffixes, local names and names
    /// with odd labels have none.
    #[test]
    fn registered_domains() {
        for (name, expected) in [
            ("www.example.com", Some("example.com")),
            ("example.com", Some("example.com")),
            ("a.b.example.co.uk", Some("example.co.uk")),
            ("someone.github.io", Some("someone.github.io")),
            ("com", None),
            ("co.uk", None),
            ("nas.local", None),
            ("printer", None),
            (r"a\.b.example.com", None),
            ("", None),
            (".", None),
        ] {
            let found = domain(name.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{name}");
        }
        assert_eq!(domain(b"\xff\xfe.example.com"), Some(&b"example.com"[..]));
    }

    /// The list decides whether names are of one domain, and the last two labels if it has neither.
    #[test]
    fn one_domain() {
        for (one, other, same) in [
            ("a.example.com", "b.c.example.com", true),
            ("a.example.com", "example.com", true),
            ("a.github.io", "b.github.io", false),
            ("a.co.uk", "b.co.uk", false),
            ("a.nas.lan", "b.nas.lan", true),
            ("a.nas.lan", "a.pc.lan", false),
            ("nas.lan", "b.a.nas.lan", true),
            ("nas.lan", "nas", false),
            ("nas.lan", "a.example.com", false),
            ("nas.local", "pc.local", false),
            ("nas", "pc", false),
            ("com", "a.com", false),
        ] {
            assert_eq!(are_of_one_domain(one.as_bytes(), other.as_bytes()), same, "{one} {other}");
            assert_eq!(are_of_one_domain(other.as_bytes(), one.as_bytes()), same, "{other} {one}");
        }
    }
}
