//! The page for a browser (`--ui`): its address, host names and token.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use larder_serve::changes::Changes;
use larder_serve::page_server::{Listen, Options, PageOptions};
use larder_settings::exit::Failure;
use larder_settings::row::{List, Text};

/// Characters of a token at most.
const TOKEN_BYTES_MAX: u64 = 4096;

/// The settings of a page of `larder dns` and `larder http`.
pub struct Ui<'a> {
    /// `--ui`.
    pub ui: Option<&'a Text>,
    /// `--ui-history`.
    pub history: Option<&'a PathBuf>,
    /// `--ui-token`.
    pub token: Option<&'a Path>,
    /// `--ui-hosts`.
    pub hosts: &'a List,
}

/// The options of the page.
pub fn page(settings: &Ui<'_>) -> Result<Option<PageOptions>, Failure> {
    let Ui { ui, history, token: token_file, hosts } = settings;
    let Some(word) = ui else {
        let others = [
            ("ui-history", history.is_some()),
            ("ui-token", token_file.is_some()),
            ("ui-hosts", !hosts.is_empty()),
        ];
        return match others.into_iter().find(|(_, is_set)| *is_set) {
            Some((name, _)) => Err(Failure::usage(format!(
                "--{name} has no effect without --ui; add --ui ADDR:PORT"
            ))),
            None => Ok(None),
        };
    };
    let listen = listen("ui", word)?;
    check_hosts(hosts)?;
    let token = token_file.map(|path| token("--ui-token", path)).transpose()?;
    check_token(&listen, token.is_some(), "ui-token")?;
    let server = Options { hosts: hosts.to_vec(), token, ..Options::new(listen) };
    Ok(Some(PageOptions { server, history: history.cloned() }))
}

/// Notes at a reload that the file of the token has another token than the one in force: the setting is the same.
pub fn note_token(
    changes: &mut Changes,
    in_force: Option<&PageOptions>,
    fresh: Option<&PageOptions>,
) {
    let [before, now] =
        [in_force, fresh].map(|page| page.and_then(|page| page.server.token.as_ref()));
    let is_noted = changes.needs_restart.iter().any(|name| name == "ui-token");
    if !is_noted && before != now {
        changes.needs_restart.push("ui-token".to_owned());
    }
}

/// The address of the setting `name`, whose value is `word`.
pub fn listen(name: &str, word: &str) -> Result<Listen, Failure> {
    match word.strip_prefix("unix:") {
        Some("") => Err(Failure::usage(format!(
            "--{name} unix: no path; expected unix:PATH, such as unix:/run/larder/{name}"
        ))),
        Some(path) => Ok(Listen::Unix(path.into())),
        None => word.parse().map(Listen::Tcp).map_err(|_| {
            Failure::usage(format!(
                "--{name} {word:?}: expected ADDR:PORT or unix:PATH, such as 127.0.0.1:8053"
            ))
        }),
    }
}

/// Host names have neither scheme nor port.
pub fn check_hosts(hosts: &List) -> Result<(), Failure> {
    match hosts.iter().find(|host| host.contains([':', '/', '*'])) {
        Some(host) => Err(Failure::usage(format!(
            "--{} {host:?}: expected a host name without scheme and port, such as tap.example.com",
            hosts.name()
        ))),
        None => Ok(()),
    }
}

/// A page at an address that other machines reach has a token, of the setting `name`.
pub fn check_token(listen: &Listen, has_token: bool, name: &str) -> Result<(), Failure> {
    match listen {
        Listen::Tcp(address) if listen.is_public() && !has_token => Err(Failure::usage(format!(
            "--ui {address}: other machines reach this address, so it needs a token; add --{name} FILE, \
             or use 127.0.0.1:{} or unix:PATH",
            address.port()
        ))),
        _ => Ok(()),
    }
}

/// Reads the token of a flag: one line without spaces.
pub fn token(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    let what = format!("{flag} {}", path.display());
    let next = "create a token with: head -c 32 /dev/urandom | base64";
    let mut text = Vec::new();
    let file = fs::File::open(path);
    file.and_then(|file| file.take(TOKEN_BYTES_MAX + 1).read_to_end(&mut text))
        .map_err(|error| Failure::file(&what, &error, next))?;
    let token = text.trim_ascii();
    let is_sound = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    if !is_sound || text.len() as u64 > TOKEN_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{what}: expected one line of 1 to {TOKEN_BYTES_MAX} ASCII characters without spaces; {next}"
        )));
    }
    Ok(token.to_vec())
}
