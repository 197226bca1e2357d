//! Messages that teach names: DNS over UDP and TCP, mDNS, LLMNR, NetBIOS, DHCP.

use larder_wire::dhcp;
use larder_wire::dns;
use larder_wire::dns::answers::{CHAIN_MAX, Extract};
use larder_wire::nbns;
use larder_wire::packet::Packet;
use larder_wire::stream::Stream;
use larder_wire::{Addr, Name};

use super::carrier::Carrier;
use super::reading::{self, Content, Reading};
use super::{AnswerLine, Given, NameLearner, StreamKey, payload_of};
use crate::decode::Rare;
use crate::flow::{protocol, tcp_flag};
use crate::names::{AddressObservation, AliasObservation, NameProtocol, Standing};
use crate::record::NameSource;

impl NameLearner {
    pub(super) fn datagram(
        &mut self,
        carrier: &Carrier,
        wire_bytes: usize,
        payload: &[u8],
        reading: Option<&Reading>,
    ) {
        let (src_port, dst_port) = (carrier.src_port, carrier.dst_port);
        let either = |port| src_port == port || dst_port == port;
        if let Some(learned_from) = reading::name_protocol(src_port, dst_port) {
            match reading {
                Some(reading) => self.apply(carrier, reading, learned_from),
                None => self.dns(carrier, payload, wire_bytes, learned_from),
            }
        } else if either(137) {
            self.nbns(carrier, payload);
        } else if either(67) || either(68) {
            self.dhcp(carrier, payload);
        } else if either(546) || either(547) {
            self.dhcp6(carrier, payload);
        } else if !matches!(dst_port, 853 | 8853) {
            self.dns_elsewhere(carrier, payload, wire_bytes);
        }
    }

    /// Reads a datagram that looks like DNS on another port. A response counts only after its query
    /// between the same ports. Anything else may not be DNS, so it is not counted as damage.
    fn dns_elsewhere(&mut self, carrier: &Carrier, payload: &[u8], wire_bytes: usize) {
        let mut reading = self.whole.take().unwrap_or_default();
        reading.read(self.names.cache(), payload, wire_bytes, NameProtocol::Dns);
        match reading.content {
            Content::Query => {
                let key = self.query_key(carrier, &reading);
                self.elsewhere.insert((key, carrier.dst_port), ());
            }
            Content::Response(Ok(())) => {
                let key = self.response_key(carrier, &reading);
                if self.elsewhere.remove(&(key, carrier.src_port)).is_some() {
                    self.questions.insert(key, ());
                    self.apply(carrier, &reading, NameProtocol::Dns);
                }
            }
            _ => {}
        }
        self.whole = Some(reading);
    }

    /// Handles a TCP segment from or to port 53.
    pub(super) fn segment(&mut self, carrier: &Carrier, packet: &Packet, payload: &[u8]) {
        if packet.src_port != 53 && packet.dst_port != 53 {
            return;
        }
        let key = (packet.src, packet.src_port, packet.dst, packet.dst_port, packet.scope);
        if packet.tcp_flags & (tcp_flag::SYN | tcp_flag::RST) != 0 {
            self.drop_stream(&key);
        }
        if packet.tcp_flags & tcp_flag::RST != 0 {
            return;
        }
        if payload.is_empty() && packet.tcp_flags & tcp_flag::SYN == 0 {
            if packet.tcp_flags & tcp_flag::FIN != 0 {
                self.drop_stream(&key);
            }
            return;
        }
        if self.streams.get_mut(&key).is_none()
            && let Some(mut oldest) = self.streams.insert(key, Box::new(Stream::new()))
        {
            oldest.clear(&mut self.stream_budget);
        }
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.push(packet.tcp_seq, packet.tcp_flags, payload, &mut self.stream_budget);
        self.drain(&key, carrier);
    }

    fn drop_stream(&mut self, key: &StreamKey) {
        if let Some(mut stream) = self.streams.remove(key) {
            stream.clear(&mut self.stream_budget);
        }
    }

    /// Reads each whole message at the front of a stream.
    fn drain(&mut self, key: &StreamKey, carrier: &Carrier) {
        // The stream is taken out while its messages are read; it goes back whole.
        let Some(slot) = self.streams.get_mut(key) else { return };
        let mut stream = std::mem::take(slot);
        loop {
            match dns::tcp::next_message(stream.contiguous()) {
                Ok(Some(range)) => {
                    let end = range.end;
                    let message = &stream.contiguous()[range];
                    let len = message.len();
                    self.dns(carrier, message, len, NameProtocol::Dns);
                    stream.consume(end, &mut self.stream_budget);
                }
                Ok(None) => {
                    // The hole will not be filled. Reading goes on after it, at the next segment, where
                    // messages usually begin.
                    if stream.buffered_bytes() > (64 << 10) + 2 && stream.hole_bytes() > 0 {
                        let front = stream.contiguous().len();
                        stream.consume(front, &mut self.stream_budget);
                        stream.skip_hole(&mut self.stream_budget);
                        self.damage("dns_tcp_hole", carrier);
                        continue;
                    }
                    break;
                }
                Err(_) => {
                    self.damage("dns_tcp_framing", carrier);
                    stream.clear(&mut self.stream_budget);
                    break;
                }
            }
        }
        if let Some(slot) = self.streams.get_mut(key) {
            *slot = stream;
        }
    }

    /// Reads and applies a message that was not read ahead.
    fn dns(
        &mut self,
        carrier: &Carrier,
        payload: &[u8],
        wire_bytes: usize,
        learned_from: NameProtocol,
    ) {
        let mut reading = self.whole.take().unwrap_or_default();
        reading.read(self.names.cache(), payload, wire_bytes, learned_from);
        self.apply(carrier, &reading, learned_from);
        self.whole = Some(reading);
    }

    /// Reads a packet some packets before its turn, if it is a DNS datagram, and prefetches what it will
    /// touch.
    pub(super) fn read_ahead(&mut self, rare: &Rare, bytes: &[u8], reading: &mut Reading) {
        let packet = &rare.packet;
        if packet.fragment.is_some() || packet.protocol != protocol::UDP {
            return;
        }
        let Some(learned_from) = reading::name_protocol(packet.src_port, packet.dst_port) else {
            return;
        };
        let payload = payload_of(packet, &bytes[rare.frame_offset as usize..]);
        reading.read(self.names.cache(), payload, packet.payload_bytes as usize, learned_from);
        if learned_from == NameProtocol::Dns {
            let scope = packet.scope.network();
            reading.prefetch_lines(&mut self.names, scope, packet.dst);
        }
    }

    /// Applies a message.
    fn apply(&mut self, carrier: &Carrier, reading: &Reading, learned_from: NameProtocol) {
        match reading.content {
            Content::Nothing => {}
            Content::Damaged(error) => self.damage(error.as_str(), carrier),
            Content::Query => {
                self.names.note_querier(carrier.scope, carrier.src);
                let key = self.query_key(carrier, reading);
                self.questions.insert(key, ());
            }
            Content::Response(outcome) => {
                if let Err(error) = outcome {
                    self.damage(error.as_str(), carrier);
                }
                if !reading.extract.is_empty() {
                    self.answers += u64::from(!carrier.for_names);
                    self.learn(carrier, reading, learned_from);
                }
            }
        }
    }

    fn query_key(&self, carrier: &Carrier, reading: &Reading) -> u64 {
        let ends = ((carrier.src, carrier.src_port), (carrier.dst, carrier.dst_port));
        reading.key(self.names.cache(), carrier.scope, ends.0, ends.1)
    }

    /// The key of the query that a message answers.
    fn response_key(&self, carrier: &Carrier, reading: &Reading) -> u64 {
        let ends = ((carrier.dst, carrier.dst_port), (carrier.src, carrier.src_port));
        reading.key(self.names.cache(), carrier.scope, ends.0, ends.1)
    }

    /// Rule 9: a response counts in full when its query was seen and has no response yet. A response
    /// without a query may be forged, also if this client's queries are never seen.
    fn standing_of_response(&mut self, carrier: &Carrier, reading: &Reading) -> Standing {
        let key = self.response_key(carrier, reading);
        if self.questions.remove(&key).is_some() || !self.rules.has(9) {
            Standing::Confirmed
        } else if self.names.has_queried(carrier.scope, carrier.dst) {
            Standing::Unsolicited
        } else {
            Standing::OneSided
        }
    }

    fn learn(&mut self, carrier: &Carrier, reading: &Reading, learned_from: NameProtocol) {
        let extract = &reading.extract;
        let asked = extract.qname().unwrap_or_default();
        let is_dns = learned_from == NameProtocol::Dns;
        let standing =
            if is_dns { self.standing_of_response(carrier, reading) } else { Standing::Confirmed };
        let as_asked = learned_from != NameProtocol::Mdns && self.rules.has(1);
        let wanted = match learned_from {
            NameProtocol::Dns => self.sources.has(NameSource::DnsAddress),
            NameProtocol::Mdns => self.sources.has(NameSource::Mdns),
            NameProtocol::Llmnr => self.sources.has(NameSource::Llmnr),
            _ => true,
        };
        if wanted {
            if is_dns && standing != Standing::Unsolicited && self.rules.has(1) {
                for alias in extract.aliases() {
                    self.names.learn_alias(&AliasObservation {
                        packet: carrier.packet,
                        time_ns: carrier.time_ns,
                        scope: carrier.scope,
                        client: carrier.dst,
                        owner: alias.owner,
                        target: alias.target,
                        standing,
                    });
                }
            }
            let mut targets = [&[][..]; CHAIN_MAX];
            let aliases = extract.aliases().len().min(CHAIN_MAX);
            for (target, alias) in targets.iter_mut().zip(extract.aliases()) {
                *target = alias.target;
            }
            for address in extract.addresses() {
                let name = if as_asked { asked } else { address.owner };
                let standing = match is_dns {
                    true => standing,
                    false => carrier.standing_of(address.addr, learned_from),
                };
                let given = (address.addr, address.ttl_s);
                self.names.learn(&AddressObservation {
                    client: if is_dns { carrier.dst } else { Addr::UNSPECIFIED },
                    targets: &targets[..aliases],
                    ..carrier.observation(name, given, learned_from, standing)
                });
            }
        }
        if self.sources.has(NameSource::Ptr) && is_dns {
            for reverse in extract.reverses() {
                let given = (reverse.addr, reverse.ttl_s);
                let (protocol, standing) = (NameProtocol::Ptr, Standing::Claimed);
                self.names.learn(&carrier.observation(reverse.name, given, protocol, standing));
            }
        }
        self.log_answer(carrier, extract, learned_from, standing);
    }

    /// The lines of `dns.log`, if it has this packet.
    fn log_for(&mut self, carrier: &Carrier) -> Option<&mut Vec<AnswerLine>> {
        self.log.as_mut().filter(|_| !carrier.for_names)
    }

    /// Adds a line to `dns.log` for the name as queried. Multicast DNS needs no query: it gets a line for
    /// each name that owns addresses (at most `answers::NAMES_MAX`).
    fn log_answer(
        &mut self,
        carrier: &Carrier,
        extract: &Extract,
        learned_from: NameProtocol,
        standing: Standing,
    ) {
        let Some(log) = self.log_for(carrier) else { return };
        let to_group = carrier.dst.is_multicast_or_broadcast();
        let mut line = |asked: &[u8], addresses: Given| {
            log.push(AnswerLine {
                client: if to_group { Addr::UNSPECIFIED } else { carrier.dst },
                addresses,
                aliases: extract.aliases().map(|a| Name::from_canonical(a.target)).collect(),
                ..carrier.answer_line(asked, learned_from, standing)
            });
        };
        if learned_from != NameProtocol::Mdns {
            let addresses = extract.addresses().map(|a| (a.addr, a.ttl_s)).collect();
            return line(extract.qname().unwrap_or_default(), addresses);
        }
        let mut owned: Vec<(&[u8], Given)> = Vec::new();
        for address in extract.addresses() {
            let given = (address.addr, address.ttl_s);
            match owned.iter_mut().find(|(owner, _)| *owner == address.owner) {
                Some((_, addresses)) => addresses.push(given),
                None => owned.push((address.owner, vec![given])),
            }
        }
        owned.into_iter().for_each(|(owner, addresses)| line(owner, addresses));
    }

    /// Learns a name that a host gives itself.
    fn learn_host(
        &mut self,
        carrier: &Carrier,
        name: &[u8],
        given: (Addr, u32),
        learned_from: NameProtocol,
        standing: Standing,
    ) {
        self.answers += u64::from(!carrier.for_names);
        self.names.learn(&carrier.observation(name, given, learned_from, standing));
        if let Some(log) = self.log_for(carrier) {
            let line = carrier.answer_line(name, learned_from, standing);
            log.push(AnswerLine { addresses: vec![given], ..line });
        }
    }

    fn nbns(&mut self, carrier: &Carrier, payload: &[u8]) {
        if !self.sources.has(NameSource::Nbns) {
            return;
        }
        let mut hosts: Vec<(Name, Addr, u32)> = Vec::new();
        let read = nbns::hosts(payload, |host| {
            // 0 means "never expires" (RFC 1002, section 4.2.1.3).
            let ttl_s = if host.ttl_s == 0 { u32::MAX } else { host.ttl_s };
            hosts.push((Name::from_canonical(host.name), host.addr, ttl_s));
        });
        if let Err(error) = read {
            self.damage(error.as_str(), carrier);
        }
        for (name, addr, ttl_s) in hosts {
            let standing = carrier.standing_of(addr, NameProtocol::Nbns);
            let given = (addr, ttl_s);
            self.learn_host(carrier, name.as_bytes(), given, NameProtocol::Nbns, standing);
        }
    }

    /// A name may come with the client's request and its address with the server's reply: the transaction
    /// ID joins them.
    fn dhcp(&mut self, carrier: &Carrier, payload: &[u8]) {
        if !self.sources.has(NameSource::Dhcp) {
            return;
        }
        let message = match dhcp::v4::MessageV4::parse(payload) {
            Ok(message) => message,
            Err(error) => return self.damage(error.as_str(), carrier),
        };
        let mut name = std::mem::take(&mut self.name);
        let named = message.client_fqdn(&mut name) || message.host_name(&mut name);
        let hash = self.names.cache().hash(message.hardware_addr()).get();
        let key = (message.transaction_id, hash);
        // A client that renews or informs has its address already, and names itself from there.
        let addr = if message.is_reply { message.bound_addr() } else { message.client_addr };
        let exchange = Exchange { key, is_reply: message.is_reply, addr };
        self.join_lease(carrier, exchange, named.then_some(name.as_bytes()));
        self.name = name;
    }

    fn dhcp6(&mut self, carrier: &Carrier, payload: &[u8]) {
        if !self.sources.has(NameSource::Dhcp) {
            return;
        }
        let message = match dhcp::v6::MessageV6::parse(payload) {
            Ok(message) => message,
            Err(error) => return self.damage(error.as_str(), carrier),
        };
        let mut name = std::mem::take(&mut self.name);
        let named = message.client_fqdn(&mut name);
        let hash = self.names.cache().hash(message.client_id().unwrap_or_default()).get();
        let key = (message.transaction_id, !hash);
        let is_reply = message.message_type == dhcp::v6::message_type::REPLY;
        let lease = message.leases().find(|lease| is_reply && lease.valid_s > 0);
        let exchange = Exchange { key, is_reply, addr: lease.map(|lease| lease.addr) };
        self.join_lease(carrier, exchange, named.then_some(name.as_bytes()));
        self.name = name;
    }

    /// A lease names its address when the client's request had the name and a local server replied from a
    /// server's port. A name that only the reply has is the server's claim.
    fn join_lease(&mut self, carrier: &Carrier, exchange: Exchange, name: Option<&[u8]>) {
        let Exchange { key, is_reply, addr } = exchange;
        let name = name.filter(|name| !name.is_empty());
        if let Some(name) = name.filter(|_| matches!(carrier.dst_port, 67 | 547) && !is_reply) {
            self.exchanges.insert(key, Name::from_canonical(name));
        }
        let asked = self.exchanges.get_mut(&key).cloned();
        let from_server = matches!(carrier.src_port, 67 | 547) && carrier.src.is_local();
        let standing = match (&asked, is_reply) {
            (_, false) => {
                addr.map_or(Standing::Claimed, |addr| carrier.standing_of(addr, NameProtocol::Dhcp))
            }
            (Some(_), true) if from_server => Standing::Leased,
            _ => Standing::Claimed,
        };
        let name = asked.or_else(|| name.map(Name::from_canonical));
        if let (Some(addr), Some(name)) = (addr, name) {
            let given = (addr, u32::MAX);
            self.learn_host(carrier, name.as_bytes(), given, NameProtocol::Dhcp, standing);
        }
    }
}

/// A message of a DHCP exchange.
struct Exchange {
    /// Transaction and client.
    key: (u32, u64),
    is_reply: bool,
    /// The address that the reply gives, or that the client already has.
    addr: Option<Addr>,
}
