//! Lists of domains: one file, many syntaxes.
//!
//! | line | means |
//! |---|---|
//! | `example.com`, `*.example.com`, `.example.com` | that domain and all below it |
//! | `\|\|example.com^` | the same |
//! | `0.0.0.0 example.com` | the same; any loopback or unspecified address, and any number of names |
//! | `# text`, `! text`, `[text]` | nothing; `#` also after a name |
//!
//! A star includes the domain itself: lists are published in several syntaxes and mean the same in
//! all of them. Other rules of ad blockers are about web pages, not names, and are skipped. So are
//! the names of the machine itself, with which hosts files begin (`localhost` and others).

use std::io::Read;

use siphasher::sip::SipHasher13;

use super::error::{Loaded, PolicyError};
use super::hosts::ip;
use super::lines::{LINE_TOO_LONG, Lines};
use super::names::{Full, Names, Suffixes};
use crate::name::{WireName, is_plain};

/// Names of the machine itself in lists with the syntax of hosts files.
const OF_THE_MACHINE: [&str; 13] = [
    "localhost",
    "localhost.localdomain",
    "local",
    "broadcasthost",
    "ip6-localhost",
    "ip6-loopback",
    "ip6-localnet",
    "ip6-mcastprefix",
    "ip6-allnodes",
    "ip6-allrouters",
    "ip6-allhosts",
    "0.0.0.0",
    "127.0.0.1",
];

/// Reads a list into `names`, each with `number`. A name below a listed one is left out.
pub fn load<R: Read>(
    names: &mut Names,
    key: &SipHasher13,
    lines: &mut Lines<'_, R>,
    number: u16,
) -> Result<Loaded, PolicyError> {
    let mut loaded = Loaded { number, ..Loaded::default() };
    let file = lines.file();
    let full = |Full| PolicyError::Full { file: file.into() };
    while let Some(line) = lines.next()? {
        let Some(text) = line.text else {
            loaded.skip(line.number, LINE_TOO_LONG);
            continue;
        };
        if matches!(text.first(), Some(b'!' | b'[')) {
            continue;
        }
        let text = text.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
        let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(first) = words.clone().next() else { continue };
        if let Some(address) = ip(first) {
            if !(address.is_unspecified() || address.is_loopback()) {
                loaded.skip(line.number, "the address is not 0.0.0.0; is this a hosts file?");
                continue;
            }
            words.next();
            let is_of_machine = |word: &&[u8]| {
                OF_THE_MACHINE.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(word))
            };
            for word in words.filter(|word| !is_of_machine(word)) {
                add(names, key, word, number, line.number, &mut loaded).map_err(full)?;
            }
        } else if words.count() > 1 {
            loaded.skip(line.number, "write one name a line, or 0.0.0.0 and names");
        } else {
            let name = match first.strip_prefix(b"||") {
                Some(rule) => rule.strip_suffix(b"^").unwrap_or(rule),
                None => first.strip_prefix(b"*.").or(first.strip_prefix(b".")).unwrap_or(first),
            };
            add(names, key, name, number, line.number, &mut loaded).map_err(full)?;
        }
    }
    Ok(loaded)
}

fn add(
    names: &mut Names,
    key: &SipHasher13,
    text: &[u8],
    number: u16,
    line: u32,
    loaded: &mut Loaded,
) -> Result<(), Full> {
    if text.is_ascii() && !is_plain(text) {
        loaded.skip(line, "this is no domain name, nor a rule that is one");
        return Ok(());
    }
    let name = match WireName::parse(text, &WireName::ROOT) {
        Ok(name) if name.as_bytes() != [0] => name,
        Ok(_) => {
            loaded.skip(line, "the root would be everything");
            return Ok(());
        }
        Err(error) => {
            loaded.skip(line, error);
            return Ok(());
        }
    };
    let name = Suffixes::new(name.as_bytes(), key).expect("a WireName is a name");
    if names.longest(&name, name.labels()).is_some() {
        loaded.covered += 1;
        return Ok(());
    }
    loaded.taken += 1;
    names.put(&name, |_| Ok(number.into()))
}
