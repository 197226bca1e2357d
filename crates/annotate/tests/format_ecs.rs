//! The ECS format, read back by serde_json.

mod format_records;

use format_records::{HOSTILE, all, hostile, log, name, ping, web};
use larder_annotate::format::fields::FIELDS;
use larder_annotate::format::schema::Type;
use larder_annotate::options::OutputFormat;
use serde_json::Value;

fn read_back(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A line, whole, so that a change of any key or value is seen.
#[test]
fn golden() {
    let text = log(OutputFormat::Ecs, false, &[web()]).expect("a line format");
    let expected = concat!(
        r#"{"@timestamp":"2024-01-02T03:04:05.123456789Z","ecs.version":"8.17.0","#,
        r#""event.kind":"event","event.category":["network"],"event.type":["connection"],"#,
        r#""event.dataset":"larder.flow","event.module":"larder","event.id":"Cm03nOU5yCMeZsFI9f","#,
        r#""observer.product":"larder","observer.type":"sensor","observer.version":""#,
        env!("CARGO_PKG_VERSION"),
        r#"","#,
        r#""event.start":"2024-01-02T03:04:05.123456789Z","#,
        r#""event.end":"2024-01-02T03:04:17.469135578Z","event.duration":12345678789,"#,
        r#""network.transport":"tcp","network.type":"ipv4","network.protocol":"tls","#,
        r#""network.community_id":"1:WFu5YQGJptNO6IrtaHnl24qBbd0=","#,
        r#""network.bytes":35801,"network.packets":40,"#,
        r#""source.ip":"10.0.0.5","source.port":49152,"source.bytes":1234,"source.packets":11,"#,
        r#""destination.ip":"93.184.216.34","destination.port":443,"#,
        r#""destination.domain":"www.example.com","#,
        r#""destination.registered_domain":"example.com","#,
        r#""destination.bytes":34567,"destination.packets":29,"#,
        r#""larder.destination.name_source":"dns_pair","#,
        r#""larder.destination.candidates":["www.example.com","cdn.example.net"],"#,
        r#""larder.source.unnamed_reason":"local","larder.destination.name_confidence":98,"#,
        r#""larder.destination.name_age_ms":250,"#,
        r#""larder.destination.name_stale":true,"larder.destination.name_late":false,"#,
        r#""larder.destination.name_ambiguous":true,"larder.destination.name_conflict":false,"#,
        r#""larder.destination.name_unsolicited":false,"larder.destination.name_one_sided":false,"#,
        r#""larder.destination.name_unconfirmed":false,"larder.destination.name_claimed":false,"#,
        r#""tls.client.server_name":"www.example.com","tls.client.ech":true,"#,
        r#""related.ip":["10.0.0.5","93.184.216.34"],"#,
        r#""related.hosts":["www.example.com","cdn.example.net"]}"#,
        "\n"
    );
    assert_eq!(text, expected);
}

/// What is unknown has no key: an unnamed ping has no ports, no names and no flags of names.
#[test]
fn absent_means_unknown() {
    let lines = read_back(&log(OutputFormat::Ecs, false, &[ping()]).expect("a line format"));
    let line = lines[0].as_object().expect("an object");
    for key in ["source.port", "destination.domain", "related.hosts", "network.protocol"] {
        assert!(!line.contains_key(key), "{key}");
    }
    assert!(!line.keys().any(|key| key.contains("name_")), "{line:?}");
    assert_eq!(line["network.transport"], "ipv6-icmp");
    assert_eq!(line["larder.destination.unnamed_reason"], "no_lookup_seen");
}

/// Every value has the JSON type of its field, keys do not repeat, and no key is unknown.
#[test]
fn types_are_those_of_the_schema() {
    let text = log(OutputFormat::Ecs, false, &all()).expect("a line format");
    for (line, raw) in read_back(&text).iter().zip(text.lines()) {
        let line = line.as_object().expect("an object");
        assert_eq!(line.len(), raw.matches("\":").count(), "a key repeats in {raw}");
        for (key, value) in line {
            let field = FIELDS.iter().find(|field| field.name == key).expect("a field");
            let sound = match field.kind {
                Type::Date | Type::Keyword | Type::Ip | Type::Id => value.is_string(),
                Type::Keywords | Type::Ips => value.as_array().is_some_and(|list| !list.is_empty()),
                Type::Long => value.is_u64(),
                Type::Boolean => value.is_boolean(),
            };
            assert!(sound, "{key}: {value}");
        }
    }
}

/// Fields that are the schema's have the type and the arity that it gives them, by a table made from
/// the ECS 8.17 field reference; all others are under `larder.`, where no later version can clash.
#[test]
fn types_are_those_of_ecs() {
    const REFERENCE: &[(Type, &[&str])] = &[
        (Type::Date, &["@timestamp", "event.start", "event.end"]),
        (Type::Keywords, &["event.category", "event.type", "related.hosts"]),
        (Type::Ip, &["source.ip", "destination.ip"]),
        (Type::Ips, &["related.ip"]),
        // Not of the schema, which has no field for it yet: it is where users look for it.
        (Type::Boolean, &["tls.client.ech"]),
        (Type::Id, &["network.vlan.id", "network.inner.vlan.id"]),
        (
            Type::Long,
            &[
                "event.duration",
                "network.bytes",
                "network.packets",
                "source.port",
                "source.bytes",
                "source.packets",
                "destination.port",
                "destination.bytes",
                "destination.packets",
            ],
        ),
        (
            Type::Keyword,
            &[
                "ecs.version",
                "event.kind",
                "event.dataset",
                "event.module",
                "event.id",
                "observer.product",
                "observer.type",
                "observer.version",
                "network.transport",
                "network.type",
                "network.protocol",
                "network.community_id",
                "source.domain",
                "destination.domain",
                "destination.registered_domain",
                "tls.client.server_name",
                "url.domain",
            ],
        ),
    ];
    for field in FIELDS.iter().filter(|field| !field.name.starts_with("larder.")) {
        let kind = REFERENCE.iter().find(|(_, names)| names.contains(&field.name));
        assert_eq!(kind.map(|(kind, _)| *kind), Some(field.kind), "{}", field.name);
    }
}

/// Names are spelled as in every other format, with bytes outside printable ASCII as `\xHH` and
/// the root as a dot; no byte of the line can harm a terminal.
#[test]
fn hostile_names() {
    let text = log(OutputFormat::Ecs, false, &[hostile()]).expect("a line format");
    assert!(text.bytes().all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)), "{text}");
    let line = &read_back(&text)[0];
    assert_eq!(line["destination.domain"], name(HOSTILE).to_string());
    assert_eq!(line["source.domain"], r"jos\xc3\xa9\x20\xf0\x9f\x98\x80.local");
    assert_eq!(line["url.domain"], "@sum(a1),b");
    assert_eq!(line["larder.destination.candidates"][1], "-");
    assert_eq!(line["larder.destination.candidates"][2], ".");
    assert_eq!(line["related.hosts"].as_array().expect("a list").len(), 5, "without repeats");
    assert_eq!(line["event.duration"], 0, "a clock that ran backwards");
}
