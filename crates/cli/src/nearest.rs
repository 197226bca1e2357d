//! The nearest known name to a wrong one, for error texts.

/// Least likeness (Jaro, 0 to 1) at which a name is worth suggesting; what clap uses for flags.
const LIKENESS_MIN: f64 = 0.7;

/// The known name most like `wrong`, when one is like it at all.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::jaro(wrong, name), name))
        .filter(|(likeness, _)| *likeness > LIKENESS_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
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

    /// A slip finds its name; a word unlike all of them finds none.
    #[test]
    fn slips_find_their_name() {
        let known = ["names_budget", "cores", "seed"];
        assert_eq!(nearest("name_budget", known), Some("names_budget"));
        assert_eq!(nearest("core", known), Some("cores"));
        assert_eq!(nearest("zzz", known), None);
        assert_eq!(hint("zzz", known), "");
    }
}
