//! Where servers listen: addresses, the control socket, metrics.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use larder_settings::exit::Failure;
use larder_settings::layers::Resolved;

/// The control socket, and its file mode.
pub fn control(settings: &Resolved) -> Result<Option<(PathBuf, u32)>, Failure> {
    let mode = settings.word("ctl-mode").unwrap_or_default();
    let is_octal = (1..=4).contains(&mode.len());
    let mode = u32::from_str_radix(mode, 8).ok().filter(|_| is_octal).ok_or_else(|| {
        Failure::usage(format!("--ctl-mode {mode:?}: expected octal digits, such as 0600 or 660"))
    })?;
    let word = settings.word("ctl").filter(|word| *word != "none");
    Ok(word.map(|word| (PathBuf::from(word), mode)))
}

/// Where metrics are told.
pub fn metrics(settings: &Resolved) -> Result<Option<SocketAddr>, Failure> {
    let word = settings.word("metrics").filter(|word| *word != "none");
    let parsed = word.map(|word| {
        word.parse().map_err(|_| {
            Failure::usage(format!(
                "--metrics {word:?}: expected ADDR:PORT, such as 127.0.0.1:9953"
            ))
        })
    });
    parsed.transpose()
}

/// Addresses of a list, with this port where they have none.
pub fn addresses_with(
    settings: &Resolved,
    name: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, Failure> {
    let each = |word| parse_address(word, port).ok_or_else(|| not_an_address(name, word));
    settings.list(name).into_iter().map(each).collect()
}

/// What to write where an address is expected.
pub fn not_an_address(name: &str, word: &str) -> Failure {
    Failure::usage(format!(
        "--{name} {word:?}: expected an address, such as 192.0.2.1, 192.0.2.1:5353 or [2001:db8::1]:5353"
    ))
}

/// An address, with this port where it has none.
pub fn parse_address(word: &str, port: u16) -> Option<SocketAddr> {
    let bare = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(word);
    match bare.parse::<IpAddr>() {
        Ok(address) => Some(SocketAddr::new(address, port)),
        Err(_) => word.parse().ok(),
    }
}
