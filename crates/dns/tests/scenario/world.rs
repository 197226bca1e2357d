//! The surroundings of a core in a scenario. Packets to clients and upstreams are queued until a
//! line of the scenario names them, and time passes only with `after`.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;

use hickory_proto::op::Message;
use larder_dns::core::{Client, Net, QUERY_BYTES_MAX};
use larder_io::udp::Route;

use super::text;

/// A response to a client.
#[derive(Debug)]
pub struct Response {
    pub client: u16,
    pub over_tcp: bool,
    pub bytes: Vec<u8>,
}

/// A query to an upstream.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Its number in the scenario.
    pub upstream: usize,
    pub way: Way,
    pub bytes: Vec<u8>,
}

/// Its transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Socket(u32),
    Stream(u64),
}

/// The world.
#[derive(Debug, Default)]
pub struct World {
    /// The upstreams' numbers in the scenario, by the core's number.
    pub upstreams: Vec<usize>,
    pub responses: VecDeque<Response>,
    pub ignored: VecDeque<u16>,
    pub queries: VecDeque<Packet>,
    pub out_of_reach: HashSet<usize>,
    pub without_streams: HashSet<usize>,
    /// Tags of cancelled queries to backends.
    pub forgotten: Vec<u64>,
}

/// A client by its number in a scenario; its address is 198.51.100.N.
pub fn client(number: u16, over_tcp: bool) -> Client {
    let peer = SocketAddr::from(([198, 51, 100, number as u8], number));
    if over_tcp {
        Client::Stream { stream: number.into(), peer }
    } else {
        Client::Udp { socket: 0, route: Route { peer, local: None } }
    }
}

fn number(client: &Client) -> (u16, bool) {
    match client {
        Client::Udp { route, .. } => (route.peer.port(), false),
        Client::Stream { peer, .. } | Client::Side { peer, .. } => (peer.port(), true),
        Client::Frame { letter, .. } => (letter.peer.port(), false),
    }
}

/// The socket to an upstream.
fn socket(upstream: usize) -> u32 {
    1_000 + upstream as u32
}

impl Net for World {
    fn respond(
        &mut self,
        client: &Client,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let mut bytes = vec![0; bytes_max];
        let Some(len) = write(&mut bytes) else { return false };
        bytes.truncate(len);
        let (client, over_tcp) = number(client);
        self.responses.push_back(Response { client, over_tcp, bytes });
        true
    }

    fn drop_query(&mut self, client: &Client) {
        self.ignored.push_back(number(client).0);
    }

    fn query_udp(
        &mut self,
        upstream: usize,
        write: impl FnOnce(u32, &mut [u8]) -> Option<usize>,
    ) -> bool {
        let upstream = self.upstreams[upstream];
        if self.out_of_reach.contains(&upstream) {
            return false;
        }
        let socket = socket(upstream);
        let mut bytes = vec![0; QUERY_BYTES_MAX];
        let Some(length) = write(socket, &mut bytes) else { return false };
        bytes.truncate(length);
        self.queries.push_back(Packet { upstream, way: Way::Socket(socket), bytes });
        true
    }

    fn query_stream(&mut self, upstream: usize, tag: u64, message: &[u8]) -> bool {
        let upstream = self.upstreams[upstream];
        let is_taken = !self.without_streams.contains(&upstream);
        if is_taken {
            let way = Way::Stream(tag);
            self.queries.push_back(Packet { upstream, way, bytes: message.to_vec() });
        }
        is_taken
    }

    fn cancel(&mut self, tag: u64) {
        self.forgotten.push(tag);
    }
}

impl World {
    /// The first packet without a line of the scenario.
    pub fn unclaimed(&self) -> Option<String> {
        if let Some(response) = self.responses.front() {
            return Some(format!("client {} got {}", response.client, describe(&response.bytes)));
        }
        if let Some(query) = self.queries.front() {
            let way = if matches!(query.way, Way::Stream(_)) { " over tcp" } else { "" };
            return Some(format!(
                "upstream {} got{way} {}",
                query.upstream,
                describe(&query.bytes)
            ));
        }
        if let Some(tag) = self.forgotten.first() {
            return Some(format!("a backend was told to stop, at tag {tag:x}"));
        }
        self.ignored.front().map(|client| format!("client {client} was ignored"))
    }
}

/// A message as readable text.
pub fn describe(bytes: &[u8]) -> String {
    let message = match Message::from_vec(bytes) {
        Ok(message) => message,
        Err(error) => return format!("{bytes:02x?}, which cannot be read: {error}"),
    };
    let header = &message.metadata;
    let mut text = text::rcode_name(header.response_code.into());
    for query in &message.queries {
        text += &format!(" {} {}", query.name.to_ascii(), query.query_type);
    }
    for (flag, is_set) in [
        ("qr", bytes[2] & 0x80 != 0),
        ("aa", header.authoritative),
        ("tc", header.truncation),
        ("rd", header.recursion_desired),
        ("ra", header.recursion_available),
        ("ad", header.authentic_data),
        ("cd", header.checking_disabled),
    ] {
        if is_set {
            text = text + " " + flag;
        }
    }
    if let Some(edns) = &message.edns {
        let dnssec = if edns.flags().dnssec_ok { " do" } else { "" };
        text += &format!(" edns {}{dnssec}", edns.max_payload());
    }
    let sections = [
        ("answer", &message.answers),
        ("authority", &message.authorities),
        ("additional", &message.additionals),
    ];
    for (name, records) in sections {
        for record in records {
            text += &format!("\n    {name} {}", text::line(record));
        }
    }
    for code in super::extended_errors(&message).unwrap_or_default() {
        text += &format!("\n    ede {code}");
    }
    text
}
