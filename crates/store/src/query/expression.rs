//! Conditions joined by and, or, not.

/// A query as a tree of the numbers of its terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    /// Each of them.
    All(Vec<Expression>),
    /// At least one of them.
    Any(Vec<Expression>),
    /// It does not hold.
    Not(Box<Expression>),
    /// The term with this number.
    Term(usize),
}

impl Expression {
    /// Each of them; one alone is itself.
    pub fn all(mut parts: Vec<Expression>) -> Expression {
        if parts.len() == 1 { parts.remove(0) } else { Expression::All(parts) }
    }

    /// At least one of them; one alone is itself.
    pub fn any(mut parts: Vec<Expression>) -> Expression {
        if parts.len() == 1 { parts.remove(0) } else { Expression::Any(parts) }
    }

    /// Whether it holds, in Kleene's logic of three values: `None` is unknown, and becomes known
    /// where the terms that are known decide.
    pub fn holds(&self, term: &mut dyn FnMut(usize) -> Option<bool>) -> Option<bool> {
        match self {
            Expression::Term(number) => term(*number),
            Expression::Not(inner) => inner.holds(term).map(|holds| !holds),
            Expression::All(parts) => decide(parts, false, term),
            Expression::Any(parts) => decide(parts, true, term),
        }
    }
}

/// A part with the value `decisive` decides; without one, each part must be known.
fn decide(
    parts: &[Expression],
    decisive: bool,
    term: &mut dyn FnMut(usize) -> Option<bool>,
) -> Option<bool> {
    let mut result = Some(!decisive);
    for part in parts {
        match part.holds(term) {
            Some(holds) if holds == decisive => return Some(decisive),
            Some(_) => {}
            None => result = None,
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What three values give is what two give for each way to replace the unknown ones.
    #[test]
    fn unknown_terms_decide_nothing() {
        let term = Expression::Term;
        let not = |inner| Expression::Not(Box::new(inner));
        let expressions = [
            Expression::all(vec![term(0), not(term(1))]),
            Expression::any(vec![term(0), Expression::all(vec![term(1), not(term(2))])]),
            not(Expression::any(vec![not(term(0)), Expression::any(vec![term(1), term(2)])])),
        ];
        for expression in expressions {
            for known in 0..27 {
                let value = |number: usize| match known / 3_u32.pow(number as u32) % 3 {
                    2 => None,
                    value => Some(value == 1),
                };
                let all = (0..8).filter_map(|filled: u32| {
                    let filled = |number: usize| filled >> number & 1 == 1;
                    let fits = (0..3).all(|at| value(at).is_none_or(|value| value == filled(at)));
                    fits.then(|| expression.holds(&mut |number| Some(filled(number))))
                });
                let all: Vec<Option<bool>> = all.collect();
                let is_same = all.iter().all(|holds| *holds == all[0]);
                let found = expression.holds(&mut |number| value(number));
                assert!(found.is_none() || is_same && found == all[0], "{expression:?} {known}");
                // Each term occurs once, so that what is the same each time is known.
                assert_eq!(found.is_some(), is_same, "{expression:?} {known}");
            }
        }
    }
}
