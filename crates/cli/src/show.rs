//! The table on paper: `show-config`, the configuration template, `docs/guide/settings.md`.
//!
//! All three are pure functions from the table to text; the guide's page is compared with
//! [`guide`] by a test, so that it cannot go stale.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::ArgMatches;

use crate::exit::{self, Failure, Outcome};
use crate::layers::{self, Environment, File, Layer};
use crate::settings::{COMMANDS, Reach, Setting, configurable};
use crate::value::{Kind, Value};

/// Prints every lasting setting with its value and the layer that gave it, as a TOML file.
pub fn print_values(
    matches: &ArgMatches,
    file: Option<&File>,
    environment: Environment<'_>,
) -> Outcome {
    let mut text = String::new();
    for command in configurable() {
        let resolved = layers::resolve(command, matches, file, environment)?;
        let _ = writeln!(text, "[{}]", command.table());
        for (setting, values, layer) in resolved.rows().filter(|row| row.0.reach == Reach::Lasting)
        {
            let assignment = assignment(setting, values);
            let _ = writeln!(text, "{assignment:<36} # {}", plain_layer(layer));
        }
    }
    print(&text)
}

/// Prints [`template`].
pub fn print_template() -> Outcome {
    print(&template())
}

/// Writes to standard output; a reader that went away is not an error of ours.
pub fn print(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::stdout(&error))?;
    Ok(exit::DONE)
}

/// A comment must stay on its line, whatever the path holds; `Display` of a file escapes.
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
pub fn template() -> String {
    let mut text = String::from(
        "# Settings of larder, at their defaults. Put this file at ./larder.toml,\n\
         # ~/.config/larder/larder.toml or /etc/larder/larder.toml, or name it with --config.\n\
         # A flag or an environment variable (LARDER_ANNOTATE_CORES=2) overrules it;\n\
         # `larder show-config` says which layer won.\n",
    );
    for command in configurable() {
        let _ = writeln!(text, "\n[{}]", command.table());
        for setting in command.lasting() {
            let value = setting.kind.parse(setting.default.as_ref());
            let value = value.expect("a test parses every default");
            let _ = writeln!(text, "\n# {}: {}.", setting.help, setting.kind.range());
            let _ = writeln!(text, "# {}", setting.why);
            let _ = writeln!(text, "{}", assignment(setting, &[value]));
        }
    }
    text
}

/// The guide's page of settings, in Markdown.
pub fn guide() -> String {
    let mut text = String::from(
        "# Settings\n\n\
         Generated from the table in `crates/cli/src/settings.rs`; a test keeps it so\n\
         (`UPDATE_DOCS=1 cargo test -p larder-cli` rewrites it).\n\n\
         A setting with a variable can also stand in `larder.toml`, in the table of its command, with\n\
         `_` for `-`. The first that speaks wins: flag, environment, file, default.\n\
         `larder show-config` says which one did. What is marked *live* is changed by a reload, while the server runs.\n",
    );
    for command in COMMANDS {
        let _ = writeln!(text, "\n## larder {}\n\n{}.", command.path.join(" "), command.about);
        text.push_str("\n| flag | value | unit | default | environment | what, why |\n");
        text.push_str("|---|---|---|---|---|---|\n");
        for setting in command.settings {
            let variable = match setting.reach {
                Reach::Lasting => format!("`{}`", command.variable(setting)),
                Reach::Run => String::new(),
            };
            let default = match setting.default {
                "" => String::new(),
                text => format!("`{text}`"),
            };
            let cells = [
                format!("`{}`", setting.usage()),
                setting.kind.range(),
                setting.kind.unit().to_owned(),
                default,
                variable,
                format!("{}. {}{}", setting.help, setting.why, live(setting)),
            ];
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }
    text
}

/// What is to be said of a reload.
fn live(setting: &Setting) -> &'static str {
    if setting.is_live { " *Live*." } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{ANNOTATE, COMMANDS};
    use std::path::Path;

    /// The template is the list of defaults: read as a file it changes nothing, and it holds every
    /// lasting setting.
    #[test]
    fn the_template_is_the_list_of_defaults() {
        let text = template();
        let file = File::parse(Path::new("template"), &text).expect("the template is sound");
        let matches = crate::args::program()
            .try_get_matches_from(["larder", "annotate"])
            .expect("sound flags");
        let inner = crate::args::chosen(&matches).expect("a command").1;
        let with = layers::resolve(&ANNOTATE, inner, Some(&file), &|_| None).expect("sound");
        let without = layers::resolve(&ANNOTATE, inner, None, &|_| None).expect("sound");
        for (left, right) in with.rows().zip(without.rows()) {
            assert_eq!(left.1, right.1, "{}", left.0.name);
            if left.0.reach == Reach::Lasting {
                assert!(matches!(left.2, Layer::File(_)), "{} is not in it", left.0.name);
            }
        }
    }

    /// `docs/guide/settings.md` is what the table says; `UPDATE_DOCS=1` rewrites it.
    #[test]
    fn the_guide_is_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/settings.md");
        let text = guide();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &text).expect("the guide can be written");
        }
        let page = std::fs::read_to_string(&path).expect("docs/guide/settings.md exists");
        assert!(page == text, "settings.md is stale; run UPDATE_DOCS=1 cargo test -p larder-cli");
        for command in COMMANDS {
            assert!(
                command.settings.iter().all(|row| text.contains(&row.usage().replace('|', "\\|")))
            );
        }
    }
}
