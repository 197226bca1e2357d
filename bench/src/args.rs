//! The flags of the programs here: `--name value` and `--name`, nothing else.

use std::collections::BTreeMap;
use std::str::FromStr;

/// What was written on the command line.
#[derive(Debug)]
pub struct Args {
    given: BTreeMap<String, String>,
}

impl Args {
    /// Reads the process's arguments; only names in `values` and `switches` are taken.
    pub fn from_process(values: &[&str], switches: &[&str]) -> Result<Args, String> {
        Args::parse(std::env::args().skip(1), values, switches)
    }

    /// Reads arguments.
    pub fn parse(
        mut arguments: impl Iterator<Item = String>,
        values: &[&str],
        switches: &[&str],
    ) -> Result<Args, String> {
        let mut given = BTreeMap::new();
        while let Some(argument) = arguments.next() {
            let Some(name) = argument.strip_prefix("--") else {
                return Err(format!("'{argument}' is no flag; they begin with --"));
            };
            let value = if switches.contains(&name) {
                String::new()
            } else if values.contains(&name) {
                arguments.next().ok_or_else(|| format!("--{name} wants a value"))?
            } else {
                let known = [values, switches].concat().join(" --");
                return Err(format!("no flag is called --{name}; there are --{known}"));
            };
            given.insert(name.to_owned(), value);
        }
        Ok(Args { given })
    }

    /// Whether a switch was given.
    pub fn switch(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// The text of a flag.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }

    /// The number of a flag, or the default.
    pub fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => {
                text.parse().map_err(|_| format!("--{name} wants a number, not '{text}'"))
            }
        }
    }

    /// Numbers of a flag with commas between them, or the default.
    pub fn numbers(&self, name: &str, default: &[usize]) -> Result<Vec<usize>, String> {
        let Some(text) = self.text(name) else { return Ok(default.to_vec()) };
        let read = |part: &str| part.trim().parse().ok().filter(|&number| number > 0);
        let numbers: Option<Vec<usize>> = text.split(',').map(read).collect();
        numbers.ok_or_else(|| format!("--{name} wants numbers as 1,2, not '{text}'"))
    }
}

/// Every number of threads from one to what the machine has, doubling.
pub fn threads_of_machine() -> Vec<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut threads: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|&n| n < cores).collect();
    threads.push(cores);
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Args, String> {
        let arguments = text.split_whitespace().map(str::to_owned);
        Args::parse(arguments, &["entries", "threads"], &["tiny"])
    }

    /// Values, lists and switches are read, and anything else is refused with a sentence.
    #[test]
    fn flags_are_read() {
        let args = parse("--entries 7 --tiny --threads 1,2").unwrap();
        assert_eq!(args.number("entries", 0usize), Ok(7));
        assert_eq!(args.numbers("threads", &[9]), Ok(vec![1, 2]));
        assert!(args.switch("tiny") && !args.switch("huge"));
        assert_eq!(parse("").unwrap().number("entries", 5usize), Ok(5));
        for wrong in ["entries", "--entries", "--other 1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("--entries x").unwrap().number("entries", 0usize).is_err());
        assert!(parse("--threads 0").unwrap().numbers("threads", &[]).is_err());
        assert_eq!(threads_of_machine()[0], 1);
    }
}
