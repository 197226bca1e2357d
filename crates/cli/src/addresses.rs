//! Addresses of servers: where they listen, the control socket, metrics.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use larder_settings::exit::Failure;
use larder_settings::row::{List, Text};

/// The control socket, and its file mode.
pub fn control(ctl: Option<&PathBuf>, mode: &str) -> Result<Option<(PathBuf, u32)>, Failure> {
    let is_octal = (1..=4).contains(&mode.len());
    let mode = u32::from_str_radix(mode, 8).ok().filter(|_| is_octal).ok_or_else(|| {
        Failure::usage(format!("--ctl-mode {mode:?}: expected octal digits, such as 0600 or 660"))
    })?;
    Ok(ctl.map(|path| (path.clone(), mode)))
}

/// The address of the metrics endpoint.
pub fn metrics(address: Option<&Text>) -> Result<Option<SocketAddr>, Failure> {
    let parsed = address.map(|word| {
        word.parse().map_err(|_| {
            Failure::usage(format!(
                "--metrics {word:?}: expected ADDR:PORT, such as 127.0.0.1:9953"
            ))
        })
    });
    parsed.transpose()
}

/// The addresses of a list, with this port if they have none.
pub fn addresses(list: &List, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    let each =
        |word: &String| parse_address(word, port).ok_or_else(|| not_an_address(list.name(), word));
    list.iter().map(each).collect()
}

/// What to write where an address is expected.
pub fn not_an_address(name: &str, word: &str) -> Failure {
    Failure::usage(format!(
        "--{name} {word:?}: expected an address, such as 192.0.2.1, 192.0.2.1:5353 or [2001:db8::1]:5353"
    ))
}

/// An address, with this port if it has none.
pub fn parse_address(word: &str, port: u16) -> Option<SocketAddr> {
    let bare = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(word);
    match bare.parse::<IpAddr>() {
        Ok(address) => Some(SocketAddr::new(address, port)),
        Err(_) => word.parse().ok(),
    }
}
