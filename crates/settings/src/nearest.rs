//! The nearest known name to a wrong one, for error texts.

/// The known name with the fewest slips (a letter too many, too few, wrong, or two swapped), when
/// those are few for its length.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let slips_max = 1 + wrong.chars().count() / 4;
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(wrong, name), name))
        .filter(|(slips, _)| *slips <= slips_max)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, name)| name)
}

/// `; did you mean 'name'?`, or nothing.
pub fn hint<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(wrong, known) {
        Some(name) => format!("; did you mean '{name}'?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A misspelling finds its name; a word unlike all names finds none.
    #[test]
    fn slips_find_their_name() {
        let known = ["names_budget", "cores", "seed"];
        assert_eq!(nearest("name_budget", known), Some("names_budget"));
        assert_eq!(nearest("core", known), Some("cores"));
        assert_eq!(nearest("dsn", ["mdns", "dns"]), Some("dns"));
        assert_eq!(nearest("zzz", known), None);
        assert_eq!(hint("zzz", known), "");
    }
}
