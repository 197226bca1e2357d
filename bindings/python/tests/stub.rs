//! The settings in `larder/__init__.pyi` are those of the one table. `UPDATE_STUB=1` writes them.

use std::path::Path;

use larder_cli::embedded;
use larder_settings::table::Setting;
use larder_settings::value::Kind;

const BEGIN: &str = concat!(
    "    *,\n    # Made from the table of settings by tests/stub.rs. The texts are those of the program's flags: ",
    "here -r stands for\n    # the captures, and strict raises Error.\n"
);
const END: &str = ") -> Flows:";

fn line(setting: &Setting) -> String {
    // `from` is a word of Python's.
    let name = setting.name.replace('-', "_");
    let name = if name == "from" { "from_" } else { &name };
    format!("    {name}: Optional[{}] = ...,  # {}\n", kind(setting), setting.help)
}

fn kind(setting: &Setting) -> String {
    let one = match setting.kind {
        Kind::Switch => "bool".to_owned(),
        Kind::Count { .. } => "int".to_owned(),
        Kind::Bytes { .. } | Kind::Space => "_Bytes".to_owned(),
        Kind::Seconds { .. } => "_Seconds".to_owned(),
        Kind::Cores => "Union[int, Literal[\"all\"]]".to_owned(),
        Kind::Seed => "Union[int, str]".to_owned(),
        Kind::Choice(words) if words.starts_with(&["false", "true"]) => {
            format!("Union[bool, {}]", literal(&words[2..]))
        }
        Kind::Choice(words) => literal(words),
        Kind::Set { .. } | Kind::List => return "Union[str, Iterable[str]]".to_owned(),
        Kind::Path | Kind::Endpoint => "_Path".to_owned(),
        Kind::Word => "str".to_owned(),
        Kind::Time(_) => "_Time".to_owned(),
    };
    if setting.many { format!("Union[{one}, Iterable[{one}]]") } else { one }
}

fn literal(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    format!("Literal[{}]", words.join(", "))
}

#[test]
fn settings_are_those_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("larder/__init__.pyi");
    let stub = std::fs::read_to_string(&path).expect("the stub");
    let (head, rest) = stub.split_once(BEGIN).expect("where the settings begin");
    let (given, tail) = rest.split_once(END).expect("where they end");
    let wanted: String = embedded::settings().map(line).collect();
    if std::env::var_os("UPDATE_STUB").is_some() {
        let stub = [head, BEGIN, &wanted, END, tail].concat();
        std::fs::write(&path, stub).expect("room");
        return;
    }
    assert_eq!(
        given, wanted,
        "the table has changed: UPDATE_STUB=1 cargo test --manifest-path bindings/Cargo.toml -p larder-python"
    );
}
