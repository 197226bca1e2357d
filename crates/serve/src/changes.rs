//! What came of reading a configuration again.

use std::fmt;

/// Settings that differ from those in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Settings that have another value from now on.
    pub changed: Vec<String>,
    /// Settings that have another value after a restart.
    pub needs_restart: Vec<String>,
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.changed.is_empty() {
            f.write_str("nothing changed")?;
        } else {
            write!(f, "changed {}", self.changed.join(", "))?;
        }
        if !self.needs_restart.is_empty() {
            let s = if self.needs_restart.len() == 1 { "s" } else { "" };
            write!(f, "; {} need{s} a restart", self.needs_restart.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes are one line, whatever changed.
    #[test]
    fn one_line() {
        let changes = |changed: &[&str], needs_restart: &[&str]| {
            let own = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
            Changes { changed: own(changed), needs_restart: own(needs_restart) }.to_string()
        };
        assert_eq!(changes(&[], &[]), "nothing changed");
        assert_eq!(changes(&["a", "b"], &["c"]), "changed a, b; c needs a restart");
        assert_eq!(changes(&[], &["c", "d"]), "nothing changed; c, d need a restart");
    }
}
