//! A flow that was found, as a line of JSON, which a machine that asked for it reads again.
//!
//! ```text
//! {"flow":"192.0.2.1:40000-198.51.100.2:443/tcp","network":"vlan 10","packets":9,"bytes":1200,
//!  "first":"..","last":"..","names":["www.example.com"],"protocol":6,
//!  "source":{"address":"192.0.2.1","port":40000,"packets":5,"ip_bytes":600},
//!  "destination":{"address":"198.51.100.2","port":443,"packets":4,"ip_bytes":400,
//!   "name":"www.example.com","name_source":"sni","name_confidence":99,"name_flags":["unconfirmed"]}}
//! ```
//!
//! Of packets without a flow, `flow` is `null`, and there are no ends. Fields of networks and of names
//! exist where there is one.

use larder_wire::Name;
use larder_wire::digits::write_u64;
use larder_wire::json::write_string;
use larder_wire::naming::NameFlags;

use super::Row;
use crate::flow_event::Choice;

impl Row {
    /// Appends it as a line of JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"flow\":");
        match self.word() {
            Some(flow) => write_string(flow.as_bytes(), out),
            None => out.extend_from_slice(b"null"),
        }
        let network = self.network();
        if !network.is_empty() {
            out.extend_from_slice(b",\"network\":");
            write_string(network.as_bytes(), out);
        }
        self.tally.write_fields(out);
        out.extend_from_slice(b",\"names\":");
        write_list(self.names.iter().map(Name::as_bytes), out);
        if let (Some(key), Some(ends)) = (self.key, self.ends()) {
            write_number("protocol", key.protocol.into(), out);
            let [destination, source] = &self.chosen;
            let names = [("source", source), ("destination", destination)];
            for ((addr, port, sent), (end, chosen)) in ends.into_iter().zip(names) {
                out.extend_from_slice(format!(",\"{end}\":{{\"address\":\"{addr}\"").as_bytes());
                write_number("port", port.into(), out);
                write_number("packets", sent.packets, out);
                write_number("ip_bytes", sent.ip_bytes, out);
                if let Some((name, choice)) = chosen {
                    write_choice(name, choice, out);
                }
                out.push(b'}');
            }
        }
        out.extend_from_slice(b"}\n");
    }
}

fn write_number(key: &str, number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!(",\"{key}\":").as_bytes());
    write_u64(number, out);
}

fn write_list<'a>(texts: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (at, text) in texts.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(text, out);
    }
    out.push(b']');
}

fn write_choice(name: &Name, choice: &Choice, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"name\":");
    write_string(name.as_bytes(), out);
    let source = choice.source.as_str();
    out.extend_from_slice(format!(",\"name_source\":\"{source}\"").as_bytes());
    write_number("name_confidence", choice.confidence.into(), out);
    let flags = NameFlags::ALL.iter().filter(|(flag, _)| choice.flags.has(*flag));
    out.extend_from_slice(b",\"name_flags\":");
    write_list(flags.map(|(_, word)| word.as_bytes()), out);
}
