//! The table on paper: `show-config`, the configuration template, the pages of `docs/reference`.
//!
//! All of them are pure functions from the table to text. A test compares the pages with
//! [`reference()`].

use std::fmt::Write as _;

use crate::exit::{Failure, Outcome};
use crate::layers::{self, Environment, File, Layer, process_environment};
use crate::program::Invocation;
use crate::table::{Command, Program, Reach, Setting};
use crate::terminal::print;
use crate::value::{Kind, Value};

/// Every lasting setting with its value and the layer that gave it, as a TOML file.
pub fn values(
    invocation: &Invocation,
    file: Option<&File>,
    environment: Environment<'_>,
) -> Result<String, Failure> {
    let mut text = String::new();
    for command in invocation.program.configurable() {
        let resolved = layers::resolve(command, &invocation.matches, file, environment)?;
        let _ = writeln!(text, "[{}]", command.table());
        for (setting, values, layer) in resolved.rows().filter(|row| row.0.reach == Reach::Lasting)
        {
            let assignment = assignment(setting, values);
            let _ = writeln!(text, "{assignment:<36} # {}", plain_layer(layer));
        }
    }
    Ok(text)
}

/// Prints every lasting setting of the program with its value and the layer that gave it.
pub fn print_values(invocation: &Invocation) -> Outcome {
    print(&values(invocation, invocation.file()?.as_ref(), &process_environment)?)
}

/// A comment must stay on its line, whatever the path contains; `Display` of a file escapes.
fn plain_layer(layer: &Layer) -> String {
    layer.to_string().replace(['\n', '\r'], " ")
}

/// `key = value` in TOML.
fn assignment(setting: &Setting, values: &[Value]) -> String {
    let value = match values.first() {
        Some(Value::Switch(on)) => on.to_string(),
        Some(Value::Number(n)) if matches!(setting.kind, Kind::Count { .. }) => n.to_string(),
        Some(value) => format!("\"{}\"", setting.kind.show(value).to_string_lossy()),
        None => "\"\"".to_owned(),
    };
    format!("{} = {value}", setting.key())
}

/// A file with every lasting setting at its default, commented: the list of defaults.
pub fn template(program: &Program) -> String {
    let mut text = String::from(
        "# Settings of larder, at their defaults. Copy this file to ./larder.toml,\n\
         # ~/.config/larder/larder.toml or /etc/larder/larder.toml, or name it with --config.\n\
         # A flag or an environment variable (LARDER_ANNOTATE_CORES=2) overrides it;\n\
         # `larder show-config` prints which layer each value came from.\n",
    );
    program.configurable().for_each(|command| table_of(command, "", &mut text));
    text
}

/// The part of a file that one command has, each setting after `before`: behind `#` it stays at its default.
pub fn table_of(command: &Command, before: &str, text: &mut String) {
    let _ = writeln!(text, "\n[{}]", command.table());
    for setting in command.lasting() {
        let value = setting.kind.parse(setting.default.as_ref());
        let value = value.expect("a test parses every default");
        let _ = writeln!(text, "\n# {}: {}.", setting.help, setting.kind.range());
        let needs = setting.needs_in_words();
        for sentences in [setting.more, &needs, setting.why].iter().filter(|it| !it.is_empty()) {
            let _ = writeln!(text, "# {sentences}");
        }
        let _ = writeln!(text, "{before}{}", assignment(setting, &[value]));
    }
}

/// The settings of all commands, in Markdown.
pub fn markdown(program: &Program) -> String {
    let mut text = program.reference.to_owned();
    for command in program.commands {
        let title = title(program, command);
        let _ = writeln!(text, "\n## {title}\n\n{}.\n", command.about);
        table(&mut text, command, |_| true);
    }
    text
}

/// The reference, in Markdown: file names and texts of the page of each command, in which each
/// heading of help has a table, and behind them of `index`, which lists these pages.
pub fn reference(program: &Program, index: &str) -> Vec<(String, String)> {
    let mut list = program.reference.to_owned();
    list.push_str("\n| command | what it does |\n|---|---|\n");
    let mut pages = Vec::new();
    for command in program.commands {
        let title = title(program, command);
        let page = format!("{}.md", title.replace(' ', "-"));
        let _ = writeln!(list, "| [{title}]({page}) | {} |", command.about);
        let mut text = format!(
            "# {title}\n\n{}.\n\n[{index}]({index}) lists the other commands, and explains where \
             settings may be given.\n",
            command.about
        );
        let mut groups: Vec<&str> = Vec::new();
        for group in command.settings.iter().map(|setting| setting.group) {
            if !groups.contains(&group) {
                let _ = writeln!(text, "\n## {group}\n");
                table(&mut text, command, |setting| setting.group == group);
                groups.push(group);
            }
        }
        pages.push((page, text));
    }
    pages.push((index.to_owned(), list));
    pages
}

fn title(program: &Program, command: &Command) -> String {
    format!("{} {}", program.name, command.path.join(" "))
}

/// A table of those settings of a command that `is_wanted`.
fn table(text: &mut String, command: &Command, is_wanted: impl Fn(&Setting) -> bool) {
    text.push_str("| flag | value | unit | default | environment | description |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for setting in command.settings.iter().filter(|setting| is_wanted(setting)) {
        let variable = match setting.reach {
            Reach::Lasting => format!("`{}`", command.variable(setting)),
            Reach::Run => String::new(),
        };
        let default = match setting.default {
            "" => String::new(),
            text => format!("`{}`", setting.kind.shown(text)),
        };
        let cells = [
            format!("`{}`", setting.usage()),
            setting.kind.range(),
            setting.kind.unit().to_owned(),
            default,
            variable,
            description(setting),
        ];
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
}

/// The meaning of a setting, the reason, and whether a reload changes it.
fn description(setting: &Setting) -> String {
    let mut text = format!("{}.", setting.help);
    let live = if setting.is_live { "*Live*." } else { "" };
    let needs = setting.needs_in_words();
    for sentences in [setting.more, &needs, setting.why, live].iter().filter(|it| !it.is_empty()) {
        text.push(' ');
        text.push_str(sentences);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Annotate, PROGRAM};

    /// The template is the list of defaults: read as a file it changes nothing, and it holds every
    /// lasting setting.
    #[test]
    fn the_template_is_the_list_of_defaults() {
        let invocation = PROGRAM.parse(["larder", "annotate"]).expect("sound flags");
        let with = invocation.settings_with(&template(&PROGRAM)).expect("the template is sound");
        let without = invocation.settings_with("").expect("sound");
        for (left, right) in with.rows().zip(without.rows()) {
            assert_eq!(left.1, right.1, "{}", left.0.name);
            if left.0.reach == Reach::Lasting {
                assert!(matches!(left.2, Layer::File(_)), "{} is not in it", left.0.name);
            }
        }
    }

    /// The printed values can be used as a file, and state the layer of each.
    #[test]
    fn values_are_a_file() {
        let invocation =
            PROGRAM.parse(["larder", "annotate", "--cores", "3"]).expect("sound flags");
        let text = values(&invocation, None, &|_| None).expect("sound");
        assert!(text.contains("cores = \"3\"") && text.contains("# flag"), "{text}");
        let read = PROGRAM.parse(["larder", "annotate"]).expect("sound flags").settings_with(&text);
        assert_eq!(read.expect("sound").read::<Annotate>().cores, 3);
    }
}
