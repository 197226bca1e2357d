//! Builds a policy from lines of settings and from files.

use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr};

use larder_wire::dns::rtype;
use larder_wire::prefix::Prefix;
use siphasher::sip::SipHasher13;

use super::admit::{ACCESS_DEFAULT, Access, Admissions, PREFIXES_MAX};
use super::error::{Loaded, PolicyError};
use super::hosts::{self, Data};
use super::lines::{FILE_BYTES_MAX, Lines};
use super::lists;
use super::names::{Full, Names, Tops};
use super::records::{EMPTY, RecordRef, Records, Rejection};
use super::rpz::Rpz;
use super::special::Special;
use super::zones::Zones;
use super::{BLOCK_TTL_S, Block, BlockAnswer, Policy, Reason, VIEWS_MAX, Views};
use crate::name::WireName;

/// Files of a kind, and exempt names, at most.
const FILES_MAX: usize = 1 << 12;

/// Type TXT.
const TXT: u16 = 16;

/// Properties of a blocklist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    /// The views that it blocks names for.
    pub views: Views,
    /// The response for its names.
    pub answer: BlockAnswer,
    /// Whose wish it is.
    pub reason: Reason,
}

impl Default for List {
    /// For all views, with NXDOMAIN, as the operator's wish.
    fn default() -> List {
        List { views: Views::ALL, answer: BlockAnswer::default(), reason: Reason::default() }
    }
}

/// Takes settings and files one after the other; the order counts if two are about one name. After
/// an error it must not be used.
#[derive(Debug)]
pub struct Builder {
    generation: u32,
    key: SipHasher13,
    access: Vec<(Prefix, Access)>,
    views: Vec<String>,
    networks: Vec<(Prefix, u16)>,
    hosts: Vec<(Views, Data)>,
    zones: Vec<(Views, Zones)>,
    allowed: Vec<(Views, Names)>,
    blocked: Vec<Block>,
    lists: u16,
    rpz: Vec<(Views, Rpz)>,
    exempt: Vec<WireName>,
    chaos: Data,
}

impl Builder {
    /// An empty one: it serves local networks and knows names of special use. `key` should come
    /// from the system's random source.
    pub fn new(generation: u32, key: &[u8; 16]) -> Builder {
        let key = SipHasher13::new_with_key(key);
        Builder {
            generation,
            key,
            access: Vec::new(),
            views: vec!["default".into()],
            networks: Vec::new(),
            hosts: Vec::new(),
            zones: Vec::new(),
            allowed: Vec::new(),
            blocked: Vec::new(),
            lists: 0,
            rpz: Vec::new(),
            exempt: Vec::new(),
            chaos: Data::new(key),
        }
    }

    /// `NETWORK allow|refuse|drop`: whether clients of a network are served. The longest network
    /// counts, of equal ones the last. The first such line replaces [`ACCESS_DEFAULT`]; clients in
    /// no line are refused.
    pub fn access(&mut self, setting: &str) -> Result<(), PolicyError> {
        let (prefix, action) = network(setting)?;
        let action = match action {
            "allow" => Access::Allow,
            "refuse" => Access::Refuse,
            "drop" => Access::Drop,
            _ => return Err(PolicyError::setting(setting, "write NETWORK allow, refuse or drop")),
        };
        push(&mut self.access, PREFIXES_MAX, (prefix, action), setting)
    }

    /// `NETWORK NAME`: clients of a network are in the view of that name. The longest network
    /// counts. Returns the view's number: names get numbers in the order of their first use here
    /// and in [`Builder::view`].
    pub fn assign(&mut self, setting: &str) -> Result<u16, PolicyError> {
        let (prefix, name) = network(setting)?;
        let view = self.view(name)?;
        push(&mut self.networks, PREFIXES_MAX, (prefix, view), setting)?;
        Ok(view)
    }

    /// The number of the view with that name.
    pub fn view(&mut self, name: &str) -> Result<u16, PolicyError> {
        match self.find_view(name) {
            Some(number) => Ok(number),
            None => {
                push(&mut self.views, VIEWS_MAX, name.into(), name)?;
                Ok(self.views.len() as u16 - 1)
            }
        }
    }

    /// The number of the view with that name, if it was used.
    pub fn find_view(&self, name: &str) -> Option<u16> {
        self.views.iter().position(|view| view == name).map(|number| number as u16)
    }

    /// Adds a hosts file.
    pub fn hosts(
        &mut self,
        views: Views,
        file: &str,
        input: impl Read,
    ) -> Result<Loaded, PolicyError> {
        let data = scoped(&mut self.hosts, views, file, || Data::new(self.key))?;
        hosts::load(data, &self.key, &mut Lines::new(file, input, FILE_BYTES_MAX))
    }

    /// Adds a local record or zone: `NAME [TTL] TYPE DATA`, or `zone NAME
    /// static|transparent|redirect|refuse|nxdomain`. In static zones names above records exist;
    /// `transparent` exempts from the rules for names of special use.
    pub fn local(&mut self, views: Views, setting: &str) -> Result<(), PolicyError> {
        let zones = scoped(&mut self.zones, views, setting, || Zones::new(self.key))?;
        zones.add(&self.key, setting)
    }

    /// Adds a list of domains that blocklists and response policy zones do not apply to.
    pub fn allowlist(
        &mut self,
        views: Views,
        file: &str,
        input: impl Read,
    ) -> Result<Loaded, PolicyError> {
        let names = scoped(&mut self.allowed, views, file, || Names::new(self.key))?;
        lists::load(names, &self.key, &mut Lines::new(file, input, FILE_BYTES_MAX), 0)
    }

    /// Adds a list of domains that are blocked, with all names below them.
    pub fn blocklist(
        &mut self,
        list: List,
        file: &str,
        input: impl Read,
    ) -> Result<Loaded, PolicyError> {
        let at = match self.blocked.iter().position(|block| block.list == list) {
            Some(at) => at,
            None => {
                let block = Block { list, names: Names::new(self.key) };
                push(&mut self.blocked, FILES_MAX, block, file)?;
                self.blocked.len() - 1
            }
        };
        let number = self.lists;
        self.lists = number
            .checked_add(1)
            .ok_or_else(|| PolicyError::setting(file, "there are 65,535 blocklists already"))?;
        let mut lines = Lines::new(file, input, FILE_BYTES_MAX);
        lists::load(&mut self.blocked[at].names, &self.key, &mut lines, number)
    }

    /// Adds a response policy zone with the name `origin`, from a zone file.
    pub fn rpz(
        &mut self,
        views: Views,
        origin: &str,
        file: &str,
        input: impl Read,
    ) -> Result<Loaded, PolicyError> {
        let origin = name(origin)?;
        let mut rpz = Rpz::new(self.key);
        let lines = &mut Lines::new(file, input, FILE_BYTES_MAX);
        let number = self.rpz.len() as u16;
        let loaded = rpz.load(&self.key, &origin, lines)?;
        push(&mut self.rpz, FILES_MAX, (views, rpz), file)?;
        Ok(Loaded { number, ..loaded })
    }

    /// Exempts a name, with all below it, from the rules for names of special use: that of a
    /// forwarded zone.
    pub fn exempt(&mut self, text: &str) -> Result<(), PolicyError> {
        push(&mut self.exempt, FILES_MAX, name(text)?, text)
    }

    /// Sets the text of `version.bind` and `version.server`.
    pub fn version(&mut self, text: &str) -> Result<(), PolicyError> {
        self.chaos(["version.bind", "version.server"], text)
    }

    /// Sets the text of `id.server` and `hostname.bind` (RFC 4892).
    pub fn id(&mut self, text: &str) -> Result<(), PolicyError> {
        self.chaos(["id.server", "hostname.bind"], text)
    }

    fn chaos(&mut self, names: [&str; 2], text: &str) -> Result<(), PolicyError> {
        let len = u8::try_from(text.len())
            .map_err(|_| PolicyError::setting(text, "a text has at most 255 bytes"))?;
        let data = [&[len], text.as_bytes()].concat();
        for owner in names {
            self.chaos
                .add(&self.key, &name(owner)?, RecordRef { rtype: TXT, ttl_s: 0, data: &data })
                .map_err(|rejection| PolicyError::setting(text, rejection))?;
        }
        Ok(())
    }

    /// The policy.
    pub fn build(mut self) -> Result<Policy, PolicyError> {
        if self.access.is_empty() {
            for network in ACCESS_DEFAULT {
                self.access(&format!("{network} allow"))?;
            }
        }
        let full = |Full| PolicyError::Full { file: "local records".into() };
        for (_, data) in &mut self.hosts {
            data.names.seal();
        }
        for (_, zones) in &mut self.zones {
            zones.seal(&self.key).map_err(full)?;
        }
        for (_, names) in &mut self.allowed {
            names.seal();
        }
        for block in &mut self.blocked {
            block.names.seal();
        }
        let own = |rejection: Rejection| PolicyError::setting("exempt", rejection);
        let special = Special::new(self.key, &self.exempt).map_err(own)?;
        let hosts = self.hosts.iter().map(|(_, data)| data.names.tops());
        let zones = self.zones.iter().map(|(_, zones)| zones.tops());
        let blocked = self.blocked.iter().map(|block| block.names.tops());
        let rpz = self.rpz.iter().map(|(_, rpz)| rpz.tops());
        let tops = hosts.chain(zones).chain(blocked).chain(rpz).fold(special.tops(), Tops::or);
        Ok(Policy {
            tops,
            generation: self.generation,
            key: self.key,
            admissions: Admissions::new(&self.access, &self.networks),
            views_mark: views_mark(&self.views),
            views: self.views,
            hosts: self.hosts,
            zones: self.zones,
            allowed: self.allowed,
            blocked: self.blocked,
            rpz: self.rpz,
            special,
            chaos: self.chaos,
            zero: zero().map_err(own)?,
        })
    }
}

/// A hash of the views' names in order; 0 if there is only the default view.
fn views_mark(views: &[String]) -> u32 {
    // FNV-1a: the hash must be the same in every run of the program.
    let named = views.iter().skip(1).flat_map(|name| name.bytes().chain([0]));
    let hash = named
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    if views.len() > 1 { hash } else { 0 }
}

/// The unspecified addresses.
fn zero() -> Result<(Records, u32), Rejection> {
    let mut records = Records::default();
    let mut add = |chain, rtype, data: &[u8]| {
        records.add(chain, RecordRef { rtype, ttl_s: BLOCK_TTL_S, data })
    };
    let chain = add(EMPTY, rtype::A, &Ipv4Addr::UNSPECIFIED.octets())?;
    let chain = add(chain, rtype::AAAA, &Ipv6Addr::UNSPECIFIED.octets())?;
    Ok((records, chain))
}

/// A network and the word after it.
fn network(setting: &str) -> Result<(Prefix, &str), PolicyError> {
    let mut words = setting.split_ascii_whitespace();
    let (Some(prefix), Some(word), None) = (words.next(), words.next(), words.next()) else {
        return Err(PolicyError::setting(setting, "write a network and one word"));
    };
    let prefix =
        Prefix::parse(prefix).map_err(|problem| PolicyError::setting(setting, problem.as_str()))?;
    Ok((prefix, word))
}

fn name(text: &str) -> Result<WireName, PolicyError> {
    WireName::parse(text.as_bytes(), &WireName::ROOT)
        .map_err(|error| PolicyError::setting(text, error))
}

fn push<T>(all: &mut Vec<T>, max: usize, one: T, setting: &str) -> Result<(), PolicyError> {
    if all.len() >= max {
        return Err(PolicyError::setting(setting, format!("there are {max} of these already")));
    }
    all.push(one);
    Ok(())
}

/// The data for exactly these views, created if necessary.
fn scoped<'a, T>(
    all: &'a mut Vec<(Views, T)>,
    views: Views,
    setting: &str,
    make: impl FnOnce() -> T,
) -> Result<&'a mut T, PolicyError> {
    let at = match all.iter().position(|(there, _)| *there == views) {
        Some(at) => at,
        None => {
            push(all, FILES_MAX, (views, make()), setting)?;
            all.len() - 1
        }
    };
    Ok(&mut all[at].1)
}
