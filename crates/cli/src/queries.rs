//! Errors of queries, for people.

use larder_settings::exit::Failure;
use larder_store::QueryError;

/// A wrong query, with a mark below the column.
pub fn wrong(what: &str, text: &str, error: &QueryError) -> Failure {
    let next = "larder find --help describes queries";
    let QueryError::Syntax { column, .. } = error else {
        return Failure::usage(format!("{what}: {error}; {next}"));
    };
    // What is before the mark is as wide as it is printed.
    let before: String = text.chars().take(column - 1).collect();
    let width = before.escape_debug().count();
    let (text, mark) = (text.escape_debug(), " ".repeat(width));
    Failure::usage(format!("{what}, {error}; {next}\n  {text}\n  {mark}^"))
}
