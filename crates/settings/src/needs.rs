//! Settings that have no effect without others are refused.
//!
//! A row names the settings of which it needs one ([`Row::needs`](crate::row::Row::needs)). What refuses it:
//!
//! * a flag, if none of them is in effect, whatever the value of the flag is. A flag that turns off what is off
//!   by default is no mistake: `--store-pin none`, `--compress=false`;
//! * the environment or the file, if the value is not the default and no layer says anything about the settings
//!   that it needs. Where one of these belongs to a single run (`--store`), a file may be for other runs, too,
//!   and a live setting may wait for a reload.
//!
//! A switch is in effect if it is on, and any other setting if its value is not the default.

use std::ffi::OsStr;

use crate::exit::Failure;
use crate::layers::{Layer, Resolved};
use crate::table::{Reach, Setting};
use crate::value::{Kind, Value};

type Row<'a> = (&'static Setting, &'a [Value], &'a Layer);

/// Refuses a setting without effect, and names those that it needs.
pub(crate) fn check(resolved: &Resolved) -> Result<(), Failure> {
    let rows: Vec<Row<'_>> = resolved.rows().collect();
    for row in &rows {
        let named = |name: &&str| rows.iter().find(|other| other.0.name == *name);
        let needed: Vec<&Row<'_>> = row.0.needs.iter().filter_map(named).collect();
        if !needed.is_empty() && is_refused(row, &needed) {
            let table = resolved.command().table();
            return Err(refusal(&table, row, &needed));
        }
    }
    Ok(())
}

fn is_refused(&(setting, values, layer): &Row<'_>, needed: &[&Row<'_>]) -> bool {
    let is_missing = !needed.iter().any(|(setting, values, _)| is_in_effect(setting, values));
    match layer {
        Layer::Default => false,
        Layer::Flag => is_missing && !(may_be_off(setting) && is_default(setting, values)),
        Layer::Environment(_) | Layer::File(_) => {
            let is_lasting = needed.iter().all(|(setting, ..)| setting.reach == Reach::Lasting);
            let is_unmentioned = needed.iter().all(|(.., layer)| **layer == Layer::Default);
            let is_final = is_lasting && is_unmentioned && !setting.is_live;
            is_missing && is_final && !is_default(setting, values)
        }
    }
}

fn is_in_effect(setting: &Setting, values: &[Value]) -> bool {
    match (setting.kind, values) {
        (Kind::Switch, [Value::Switch(is_on)]) => *is_on,
        _ => !is_default(setting, values),
    }
}

fn is_default(setting: &Setting, values: &[Value]) -> bool {
    match setting.default {
        "" => values.is_empty(),
        text => setting.kind.parse(OsStr::new(text)).is_ok_and(|default| *values == [default]),
    }
}

/// Its default may stand for nothing.
fn may_be_off(setting: &Setting) -> bool {
    matches!(setting.kind, Kind::Switch | Kind::Word | Kind::List) && !setting.default.is_empty()
}

fn refusal(table: &str, &(setting, _, layer): &Row<'_>, needed: &[&Row<'_>]) -> Failure {
    let flag = |setting: &Setting| format!("--{}", setting.name);
    let names = |name: &dyn Fn(&Setting) -> String| -> String {
        let names: Vec<String> = needed.iter().map(|(setting, ..)| name(setting)).collect();
        names.join(" or ")
    };
    let first = needed[0].0;
    let example = format!("{} {}", flag(first), first.value_name);
    let example = example.trim_end();
    Failure::usage(match layer {
        Layer::File(path) => format!(
            "configuration file {path:?}: [{table}] {} has no effect without {}; add {}, or remove {}",
            setting.key(),
            names(&Setting::key),
            first.key(),
            setting.key()
        ),
        Layer::Environment(variable) => format!(
            "environment variable {variable}: it has no effect without {}; add {example}, or unset it",
            names(&flag)
        ),
        Layer::Flag | Layer::Default => {
            format!("{} has no effect without {}; add {example}", flag(setting), names(&flag))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use crate::layers::{File, resolve};
    use crate::sample::{ANNOTATE, PROGRAM};

    /// The refusal of these flags, this file and a variable `LARDER_ANNOTATE_LINGER`; empty if there is none.
    fn refused(flags: &[&str], file: &str, linger: Option<&str>) -> String {
        let line = ["larder", "annotate"].iter().chain(flags);
        let matches = PROGRAM.parse(line).expect("sound flags").matches;
        let file = File::parse(&PROGRAM, Path::new("f"), &format!("[annotate]\n{file}"));
        let environment =
            |name: &str| linger.filter(|_| name == "LARDER_ANNOTATE_LINGER").map(OsString::from);
        let resolved = resolve(&ANNOTATE, &matches, Some(&file.expect("sound")), &environment);
        let failure = super::check(&resolved.expect("sound")).err();
        failure.map(|failure| failure.message).unwrap_or_default()
    }

    /// `linger` needs `quiet` or `names`, `strict` needs `read`, `output` needs `cores`, and `udp-idle`,
    /// which is live, `quiet`.
    #[test]
    fn settings_without_effect_are_refused() {
        let flag = "--linger has no effect without --quiet or --names; add --quiet";
        let file = "configuration file \"f\": [annotate] linger has no effect without quiet or names; \
                    add quiet, or remove linger";
        let variable = "environment variable LARDER_ANNOTATE_LINGER: it has no effect without --quiet or \
                        --names; add --quiet, or unset it";
        assert_eq!(refused(&["--linger", "9s"], "", None), flag);
        assert_eq!(refused(&["--linger", "5s"], "", None), flag, "a flag at its default");
        assert_eq!(refused(&["--linger", "9s", "--quiet=false"], "", None), flag);
        assert_eq!(refused(&["--linger", "9s"], "quiet = false", None), flag);
        assert_eq!(refused(&[], "linger = '9s'", None), file);
        assert_eq!(refused(&[], "", Some("9s")), variable);
        let live = "--udp-idle has no effect without --quiet; add --quiet";
        assert_eq!(refused(&["--udp-idle", "9s"], "", None), live);
        let text = "--output has no effect without --cores; add --cores N";
        assert_eq!(refused(&["--output", "o"], "", None), text);
    }

    /// What is needed may come from any layer, and the defaults of a file are no mistake.
    #[test]
    fn settings_with_effect_are_not_refused() {
        for (flags, file, linger) in [
            (&[][..], "", None),
            (&["--linger", "9s", "--quiet"], "", None),
            (&["--linger", "9s", "--names", "dns"], "", None),
            (&["--linger", "9s"], "quiet = true", None),
            (&["--quiet"], "linger = '9s'", None),
            (&["--quiet"], "", Some("9s")),
            // At its default, for example from the template.
            (&[], "linger = '5s'", None),
            // The command line takes back what the file says.
            (&["--quiet=false"], "linger = '9s'\nquiet = true", None),
            // A file has no inputs.
            (&[], "strict = true", None),
            // A reload may turn on what it needs.
            (&[], "udp_idle = '9s'", None),
            (&["--strict=false"], "", None),
        ] {
            assert_eq!(refused(flags, file, linger), "", "{flags:?} {file}");
        }
        assert_ne!(refused(&["--strict"], "", None), "");
        assert_eq!(refused(&["--strict", "-r", "a"], "", None), "");
    }
}
