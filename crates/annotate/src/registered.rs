//! Registered domains: the part of a name that somebody registered, by the Public Suffix List.
//!
//! `www.example.co.uk` and `mail.example.co.uk` both end in `example.co.uk`, which one owner
//! registered below the public suffix `co.uk`. The list is compiled in (crate `psl`), so the answer
//! is the same on every machine and costs a walk over the labels, without memory.

/// The registered domain at the end of `name`, which is in canonical spelling. `None` for a name
/// that is itself a public suffix, that ends in none (`nas.local`, `printer`), or that has an escaped
/// dot, which the list knows nothing of.
pub(crate) fn domain(name: &[u8]) -> Option<&[u8]> {
    if name.contains(&b'\\') {
        return None;
    }
    let domain = psl::domain(name)?;
    domain.suffix().is_known().then(|| domain.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names have the registered domain that the list says, at any depth; suffixes, local names and
    /// names with odd labels have none.
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
}
