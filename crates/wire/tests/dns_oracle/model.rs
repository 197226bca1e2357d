//! A slow and simple model of the names that a unicast response teaches. It uses hickory's reading,
//! and scans all records for each step of the chain.

use larder_wire::dns::answers::{CHAIN_MAX, Extract, NAMES_MAX, extract};
use larder_wire::dns::{Message, class, reverse_addr, rtype};

use crate::view::{Data, View};

/// Aliases (owner, target, TTL), then addresses (owner, address, TTL, hint), then reverse names.
#[derive(Debug, PartialEq, Eq)]
pub struct Taught {
    pub aliases: Vec<(Vec<u8>, Vec<u8>, u32)>,
    pub addresses: Vec<(Vec<u8>, String, u32, bool)>,
    pub reverses: Vec<(String, Vec<u8>, u32)>,
}

/// The result of `extract`; other tests check its error.
pub fn ours(bytes: &[u8]) -> Taught {
    let mut out = Extract::new();
    if let Ok(message) = Message::parse(bytes) {
        let _ = extract(&message, &mut out);
    }
    let aliases = out.aliases().map(|a| (a.owner.to_vec(), a.target.to_vec(), a.ttl_s));
    let addresses =
        out.addresses().map(|a| (a.owner.to_vec(), a.addr.to_string(), a.ttl_s, a.hint));
    let reverses = out.reverses().map(|r| (r.addr.to_string(), r.name.to_vec(), r.ttl_s));
    Taught {
        aliases: aliases.collect(),
        addresses: addresses.collect(),
        reverses: reverses.collect(),
    }
}

/// The expected result. The model has no DNAME: hickory does not support it.
pub fn expected(view: &View) -> Taught {
    let mut taught = Taught { aliases: Vec::new(), addresses: Vec::new(), reverses: Vec::new() };
    let Some((qname, ..)) = &view.question else { return taught };
    if !view.is_response || view.opcode != 0 || view.rcode != 0 {
        return taught;
    }
    let answers = || view.sections[0].iter().filter(|entry| entry.2 == class::IN);

    // The chain: each name on it with the lowest TTL on the path to it.
    let mut chain = vec![(qname.clone(), u32::MAX)];
    while chain.len() <= CHAIN_MAX {
        let (tail, ttl_s) = chain[chain.len() - 1].clone();
        let alias = answers().find(|entry| entry.1 == rtype::CNAME && entry.0 == tail);
        let Some((_, _, _, alias_ttl_s, Data::Name(_, target))) = alias else { break };
        if chain.iter().any(|(name, _)| name == target) {
            break;
        }
        taught.aliases.push((tail, target.clone(), *alias_ttl_s));
        chain.push((target.clone(), ttl_s.min(*alias_ttl_s)));
    }

    let head_addr = reverse_addr(qname);
    for (owner, rtype, _, ttl_s, data) in answers() {
        let Some((_, chain_ttl_s)) = chain.iter().find(|(name, _)| name == owner) else { continue };
        let ttl_s = *ttl_s.min(chain_ttl_s);
        match data {
            Data::Address(addr) => {
                taught.addresses.push((owner.clone(), addr.clone(), ttl_s, false));
            }
            Data::Service(_, target, hints) => {
                let holder = if target.is_empty() { owner } else { target };
                let addresses =
                    hints.iter().map(|addr| (holder.clone(), addr.clone(), ttl_s, true));
                taught.addresses.extend(addresses);
            }
            Data::Name(_, target) if *rtype == rtype::PTR => {
                if let Some(addr) = head_addr.or_else(|| reverse_addr(owner)) {
                    taught.reverses.push((addr.to_string(), target.clone(), ttl_s));
                }
            }
            _ => {}
        }
    }
    taught
}

/// True if the response is within the bounds, so that [`expected`] is valid.
pub fn within_bounds(view: &View) -> bool {
    let mut names: Vec<&[u8]> = Vec::new();
    for (owner, _, _, _, data) in &view.sections[0] {
        names.push(owner);
        if let Data::Name(_, name) | Data::Service(_, name, _) = data {
            names.push(name);
        }
    }
    names.sort_unstable();
    names.dedup();
    let dname = view.sections[0].iter().any(|entry| entry.1 == rtype::DNAME);
    names.len() < NAMES_MAX && !dname
}
