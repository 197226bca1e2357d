//! Flows of another machine: lines of [`Row::write_json`], which may have been written in any way.

use larder_store::found::{NAMES_MAX, Row, Sent, Tally};
use larder_store::{Choice, FlowKey};
use larder_wire::naming::{NameFlags, NameSource};
use larder_wire::scope::Scope;
use larder_wire::times::iso_ns;
use larder_wire::{Addr, Name};
use serde_json::Value;

/// The flow of a line; `None`: the line says something else.
pub fn row(value: &Value) -> Option<Row> {
    let names = value["names"].as_array()?.iter().take(NAMES_MAX);
    let names = names.map(|name| Some(Name::from_canonical(name.as_str()?.as_bytes())));
    let mut row = Row {
        key: None,
        tally: tally(value)?,
        sent: [Sent::default(); 2],
        source_is_low: false,
        names: names.collect::<Option<_>>()?,
        chosen: [None, None],
    };
    if value["flow"].is_null() {
        return Some(row);
    }
    let (source, destination) = (&value["source"], &value["destination"]);
    let ends = [end(source)?, end(destination)?];
    let protocol = u8::try_from(value["protocol"].as_u64()?).ok()?;
    let pair = ends.map(|(addr, port, _)| (addr, port));
    let (key, source_is_low) = FlowKey::between(pair, protocol, scope(&value["network"])?);
    let [from_source, from_destination] = ends.map(|(_, _, sent)| sent);
    row.key = Some(key);
    row.source_is_low = source_is_low;
    row.sent = match source_is_low {
        true => [from_source, from_destination],
        false => [from_destination, from_source],
    };
    row.chosen = [chosen(destination)?, chosen(source)?];
    Some(row)
}

/// The counts of a line.
pub fn tally(value: &Value) -> Option<Tally> {
    let time = |key: &str| iso_ns(value[key].as_str()?.as_bytes());
    Some(Tally {
        packets: value["packets"].as_u64()?,
        bytes: value["bytes"].as_u64()?,
        first_ns: time("first")?,
        last_ns: time("last")?,
    })
}

fn end(value: &Value) -> Option<(Addr, u16, Sent)> {
    let addr: std::net::IpAddr = value["address"].as_str()?.parse().ok()?;
    let port = u16::try_from(value["port"].as_u64()?).ok()?;
    let sent = Sent { packets: value["packets"].as_u64()?, ip_bytes: value["ip_bytes"].as_u64()? };
    Some((addr.into(), port, sent))
}

/// The network of a flow: conditions such as `vlan 10 and vni 42`.
fn scope(value: &Value) -> Option<Scope> {
    if value.is_null() {
        return Some(Scope::NONE);
    }
    value.as_str()?.split(" and ").try_fold(Scope::NONE, |scope, part| {
        let (word, number) = part.split_once(' ')?;
        Some(match word {
            "vlan" => scope.tagged(number.parse().ok()?),
            "vni" => scope.with_vni(number.parse().ok()?),
            "gre_key" => scope.with_gre_key(number.parse().ok()?),
            _ => return None,
        })
    })
}

/// The name of an end, or that there is none; `None`: it is no name.
#[allow(clippy::option_option)]
fn chosen(value: &Value) -> Option<Option<(Name, Choice)>> {
    let Some(name) = value["name"].as_str() else { return Some(None) };
    let source = value["name_source"].as_str()?;
    let source = NameSource::ALL.into_iter().find(|of| of.as_str() == source)?;
    let words = value["name_flags"].as_array()?;
    let is_set = |word: &str| words.iter().any(|set| set.as_str() == Some(word));
    let flags = NameFlags::ALL
        .iter()
        .fold(NameFlags::NONE, |flags, (flag, word)| flags.with_if(is_set(word), *flag));
    let confidence = u8::try_from(value["name_confidence"].as_u64()?).ok()?.min(100);
    Some(Some((Name::from_canonical(name.as_bytes()), Choice { source, flags, confidence })))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some_row() -> impl Strategy<Value = Row> {
        let end = || (0u8..3, 0u16..3, 0u64..9, 0u64..9, any::<Option<(u16, u8)>>());
        let scope = (0u16..3, 0u16..3, proptest::option::of(0u32..3));
        (end(), end(), 0u8..30, scope, any::<i32>(), 0u64..9, proptest::bool::weighted(0.9))
            .prop_map(
                |(source, destination, protocol, (outer, inner, vni), time, packets, has_flow)| {
                    let scope = Scope::NONE.tagged(outer).tagged(if outer > 0 { inner } else { 0 });
                    let scope = vni.map_or(scope, |vni| scope.with_vni(vni));
                    let addr = |host: u8| Addr::v4([192, 0, 2, host]);
                    let ends = [(addr(source.0), source.1), (addr(destination.0), destination.1)];
                    let (key, source_is_low) = FlowKey::between(ends, protocol, scope);
                    let sent = |packets, ip_bytes| Sent { packets, ip_bytes };
                    let sent = [sent(source.2, source.3), sent(destination.2, destination.3)];
                    let chosen = |choice: Option<(u16, u8)>| {
                        let (flags, number) = choice?;
                        let source = NameSource::ALL[usize::from(number % 12)];
                        let name =
                            Name::from_canonical(format!("a\\x0{}\"<", number % 8).as_bytes());
                        let flags = NameFlags::from_bits(flags);
                        Some((name, Choice { source, flags, confidence: number % 100 }))
                    };
                    let mut row = Row {
                        key: None,
                        tally: Tally {
                            packets: packets + 1,
                            bytes: packets,
                            first_ns: i64::from(time),
                            last_ns: i64::from(time) + 5,
                        },
                        sent: [Sent::default(); 2],
                        source_is_low: false,
                        names: vec![Name::from_canonical(b"x.example")],
                        chosen: [None, None],
                    };
                    if has_flow {
                        row.key = Some(key);
                        row.source_is_low = source_is_low;
                        row.sent = if source_is_low { sent } else { [sent[1], sent[0]] };
                        row.chosen = [chosen(destination.4), chosen(source.4)];
                    }
                    row
                },
            )
    }

    proptest! {
        /// A row that was sent is read as it was; of a line with other values there is a row or none.
        #[test]
        fn lines_are_rows(row in some_row(), at in any::<prop::sample::Index>(), by in 0usize..4) {
            let mut line = Vec::new();
            row.write_json(&mut line);
            let value: Value = serde_json::from_slice(&line).unwrap();
            prop_assert_eq!(super::row(&value), Some(row));
            let other = [Value::Null, Value::from(-1), Value::from(u64::MAX), Value::from("\u{1b}")];
            let mut wrong = value.clone();
            let members = wrong.as_object_mut().unwrap();
            let key = members.keys().nth(at.index(members.len())).unwrap().clone();
            members.insert(key, other[by].clone());
            let _ = super::row(&wrong);
            for end in ["source", "destination"] {
                let mut wrong = value.clone();
                let Some(members) = wrong[end].as_object_mut() else { continue };
                let key = members.keys().nth(at.index(members.len())).unwrap().clone();
                members.insert(key, other[by].clone());
                let _ = super::row(&wrong);
            }
        }
    }
}
