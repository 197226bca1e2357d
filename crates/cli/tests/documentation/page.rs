//! A page: its commands, and the output that it shows for them.

use std::path::PathBuf;

/// A line after a prompt, with its continuation lines.
#[derive(Debug, PartialEq)]
pub struct Command {
    /// Number of its line in the page, from 1.
    pub line: usize,
    pub text: String,
    /// The output that the page shows below it.
    pub shown: Vec<String>,
}

/// The repository.
pub fn root() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository is there")
}

/// Text of a page.
pub fn text(file: &str) -> String {
    let path = root().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The commands of a page, by its blocks. A text block has prompts of users (`$`); a `console`
/// block also has those of root (`#`).
pub fn blocks(text: &str) -> Vec<Vec<Command>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((fence, _)) = lines.next() {
        let Some(kind) = fence.strip_prefix("```") else { continue };
        let inside = lines.by_ref().take_while(|(line, _)| *line != "```");
        let block = commands(inside, kind == "console");
        if !block.is_empty() {
            blocks.push(block);
        }
    }
    blocks
}

fn commands<'a>(lines: impl Iterator<Item = (&'a str, usize)>, root: bool) -> Vec<Command> {
    let mut block: Vec<Command> = Vec::new();
    let mut ends: Option<String> = None;
    for (text, line) in lines {
        let prompted = text.strip_prefix("$ ").or_else(|| text.strip_prefix("# ").filter(|_| root));
        let last = block.last_mut();
        if let Some(command) = last.as_ref().filter(|command| command.goes_on(ends.as_deref())) {
            let whole = format!("{}\n{text}", command.text);
            ends = ends.filter(|end| end != text);
            last.expect("it goes on").text = whole;
        } else if let Some(text) = prompted {
            ends = document(text).map(str::to_owned);
            block.push(Command { line, text: text.to_owned(), shown: Vec::new() });
        } else if let Some(command) = last {
            command.shown.push(text.to_owned());
        }
    }
    block
}

impl Command {
    /// The exit status that the shown error implies: `larder: …` or `curl: (56) …`.
    pub fn status(&self) -> i32 {
        let first = self.shown.first().map_or("", String::as_str);
        let code = first.strip_prefix("curl: (").and_then(|rest| rest.split(')').next());
        match code.map(str::parse) {
            Some(Ok(code)) => code,
            _ if first.starts_with("larder: ") => 2,
            _ => 0,
        }
    }

    /// True if the next line belongs to the command. `ends` is the end mark of an open
    /// here-document.
    fn goes_on(&self, ends: Option<&str>) -> bool {
        ends.is_some() || self.text.ends_with('\\')
    }
}

/// The end mark of a line's here-document, if it has one.
fn document(line: &str) -> Option<&str> {
    let (_, word) = line.split_once("<<")?;
    let word = word.split_whitespace().next()?;
    Some(word.trim_matches(['\'', '"']))
}

/// Commands are found with their continuation lines and their shown output. Lines without a prompt,
/// and comments, are not commands.
#[test]
fn commands_are_found() {
    let page = "$ not in a block\n```console\n$ one \\\n    two\nshown\n# three\n```\n```toml\n# a comment\n```\n\
                ```text\n# none\n$ cat <<END\n$ four\nEND\nfive\n```\n";
    let command = |line, text: &str, shown: &[&str]| Command {
        line,
        text: text.to_owned(),
        shown: shown.iter().map(|&line| line.to_owned()).collect(),
    };
    let expected = vec![
        vec![command(3, "one \\\n    two", &["shown"]), command(6, "three", &[])],
        vec![command(13, "cat <<END\n$ four\nEND", &["five"])],
    ];
    assert_eq!(blocks(page), expected);
    let statuses = ["fine", "larder: no", "curl: (52) Empty reply"]
        .map(|line| command(1, "", &[line]).status());
    assert_eq!(statuses, [0, 2, 52]);
}
