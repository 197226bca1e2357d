//! Cuts the text of a query into words, operators and parentheses.

use super::QueryError;
use super::parse::field_of;

const OPERATORS: [&str; 10] = ["==", "!=", ">=", "<=", "&&", "||", "=", "~", ">", "<"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Open,
    Close,
    And,
    Or,
    Not,
    Operator,
    Word,
    /// In quotes.
    Text,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    /// Offset in the query, bytes.
    pub at: usize,
}

/// Cuts the text into tokens, and an end.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, QueryError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
        let (kind, len) = match (first, operator) {
            (space, _) if space.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            ('(', _) => (Kind::Open, 1),
            (')', _) => (Kind::Close, 1),
            ('"', _) => {
                let Some(len) = rest[1..].find('"') else {
                    return Err(QueryError::at(text, at, "a second \" that ends the text"));
                };
                tokens.push(Token { kind: Kind::Text, text: &rest[1..=len], at });
                at += len + 2;
                continue;
            }
            (_, Some(&operator)) => match operator {
                "&&" => (Kind::And, 2),
                "||" => (Kind::Or, 2),
                operator => (Kind::Operator, operator.len()),
            },
            ('!', None) => (Kind::Not, 1),
            _ => {
                let len = word_len(rest);
                let kind = match &rest[..len] {
                    word if word.eq_ignore_ascii_case("and") => Kind::And,
                    word if word.eq_ignore_ascii_case("or") => Kind::Or,
                    word if word.eq_ignore_ascii_case("not") => Kind::Not,
                    _ => Kind::Word,
                };
                (kind, len)
            }
        };
        debug_assert!(len > 0, "each token has a character");
        tokens.push(Token { kind, text: &rest[..len], at });
        at += len.max(1);
    }
    tokens.push(Token { kind: Kind::End, text: "", at: text.len() });
    Ok(tokens)
}

/// Bytes of the word at the beginning. An operator of comparison ends a word only behind a field:
/// names, and Community IDs, may have its characters.
fn word_len(rest: &str) -> usize {
    let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, '(' | ')' | '"');
    let word = &rest[..rest.find(is_end).unwrap_or(rest.len())];
    let ends = [word.find("&&"), word.find("||")];
    let len = ends.into_iter().flatten().min().unwrap_or(word.len());
    let operator = rest[..len].find(['=', '!', '~', '<', '>']);
    operator.filter(|at| field_of(&rest[..*at]).is_some()).unwrap_or(len)
}
