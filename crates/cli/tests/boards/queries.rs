//! Queries of Prometheus, as far as boards and rules use them: which metrics, labels and values they
//! name. promtool checks their grammar.

use std::collections::BTreeSet;
use std::iter::Peekable;

use crate::OF_PROMETHEUS;
use crate::exported::Exported;

/// Words of the language that boards and rules use.
const WORDS: [&str; 15] = [
    "absent",
    "and",
    "avg",
    "avg_over_time",
    "clamp_min",
    "count",
    "deriv",
    "histogram_quantile",
    "increase",
    "max",
    "min",
    "or",
    "rate",
    "resets",
    "sum",
];

/// Words that labels in parentheses follow.
const OF_LABELS: [&str; 2] = ["by", "on"];

/// The metric that Prometheus itself makes for each target.
const UP: &str = "up";

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Other(char),
}

/// The tokens of a query. Numbers and durations are left out.
fn tokens(query: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = query.chars().peekable();
    while let Some(&c) = chars.peek() {
        let mut take = |is_part: fn(char) -> bool| {
            let mut word = String::new();
            while let Some(c) = chars.next_if(|&c| is_part(c)) {
                word.push(c);
            }
            word
        };
        if c.is_ascii_digit() {
            take(|c| c.is_ascii_alphanumeric() || c == '.');
        } else if c.is_ascii_alphabetic() {
            let word = take(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'));
            tokens.push(Token::Word(word));
        } else if c == '"' {
            chars.next();
            let text: String = chars.by_ref().take_while(|&c| c != '"').collect();
            tokens.push(Token::Text(text));
        } else {
            chars.next();
            if !c.is_whitespace() {
                tokens.push(Token::Other(c));
            }
        }
    }
    tokens
}

/// Checks that all that a query names is exported or recorded. Returns the labels of its metrics.
pub fn check(place: &str, query: &str, exported: &Exported, recorded: &[&str]) -> BTreeSet<String> {
    let mut tokens = tokens(query).into_iter().peekable();
    let (mut labels, mut named) = (BTreeSet::new(), Vec::new());
    let mut metrics = 0;
    while let Some(token) = tokens.next() {
        let Token::Word(word) = token else { continue };
        if OF_LABELS.contains(&&*word) {
            assert_eq!(tokens.next(), Some(Token::Other('(')), "{place}: {query}");
            named.extend(words_until(&mut tokens, ')'));
        } else if !WORDS.contains(&&*word) {
            metrics += 1;
            let is_ours = !recorded.contains(&&*word) && word != UP;
            let known = exported.labels(&word);
            assert!(known.is_some() || !is_ours, "{place}: nothing exports '{word}'");
            labels.extend(known.into_iter().flatten().map(|(label, _)| label.clone()));
            if tokens.next_if_eq(&Token::Other('{')).is_some() {
                for (label, is_equal, value) in matchers(&mut tokens) {
                    let values = known.and_then(|known| known.get(&label));
                    let is_known = OF_PROMETHEUS.contains(&&*label)
                        || values.is_some_and(|all| !is_equal || all.contains(&value));
                    assert!(is_known, "{place}: {word} has no {label}=\"{value}\": {values:?}");
                }
            }
        }
    }
    assert!(metrics > 0, "{place}: no metric in {query}");
    for label in named {
        let is_known = labels.contains(&label) || OF_PROMETHEUS.contains(&&*label);
        assert!(is_known, "{place}: its metrics have no label '{label}', but {labels:?}");
    }
    labels
}

/// The words before a character.
fn words_until(tokens: &mut impl Iterator<Item = Token>, end: char) -> Vec<String> {
    let of_list = tokens.take_while(|token| *token != Token::Other(end));
    let words = of_list.filter_map(|token| match token {
        Token::Word(word) => Some(word),
        _ => None,
    });
    words.collect()
}

/// Labels in braces, whether each has one value (`=`), and that value or pattern.
fn matchers(tokens: &mut Peekable<impl Iterator<Item = Token>>) -> Vec<(String, bool, String)> {
    let mut found = Vec::new();
    while tokens.next_if_eq(&Token::Other('}')).is_none() {
        let Some(Token::Word(label)) = tokens.next() else { continue };
        let mut operator = String::new();
        while let Some(Token::Other(c)) = tokens.next_if(|it| matches!(it, Token::Other(_))) {
            operator.push(c);
        }
        let Some(Token::Text(value)) = tokens.next() else { panic!("no value of {label}") };
        found.push((label, operator == "=", value));
    }
    found
}

/// Names, labels in braces and in lists, and numbers that look like words are told apart.
#[test]
fn a_query_is_read() {
    let query = "sum by (a, le) (rate(x_total{b=\"c\",d=~\"e.*\"}[5m])) / 1e3";
    let words: Vec<_> = tokens(query)
        .into_iter()
        .filter_map(|token| match token {
            Token::Word(word) => Some(word),
            _ => None,
        })
        .collect();
    assert_eq!(words, ["sum", "by", "a", "le", "rate", "x_total", "b", "d"]);
    let braces = tokens("b=\"c\",d=~\"e\"}");
    let found = matchers(&mut braces.into_iter().peekable());
    let [one, other] = [("b", true, "c"), ("d", false, "e")]
        .map(|(label, is_equal, value)| (label.to_owned(), is_equal, value.to_owned()));
    assert_eq!(found, [one, other]);
}
