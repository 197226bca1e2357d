//! DNS messages, alone and on a stream: bounds, and no address that is not in the message.

use larder_wire::Addr;
use larder_wire::dns::answers::{ADDRESSES_MAX, CHAIN_MAX, Extract, extract, extract_mdns};
use larder_wire::dns::{
    Message, NameBuf, Records, rdata, reverse_addr, rtype, skip_name, tcp::next_message,
};
use larder_wire::name::NAME_BYTES_MAX;
use larder_wire::stream::{Budget, Stream, dns_resync};

use super::{Cut, assert_inside, occurs};

/// The first byte is the number of bytes that the capture cut off, and a message follows.
pub fn dns(input: &[u8]) {
    let mut input = Cut(input);
    let cut = usize::from(input.u8());
    let Ok(message) = Message::parse_captured(input.0, input.0.len() + cut) else { return };
    let _ = message.looks_like_query();
    let mut name = NameBuf::new();
    if let Ok(Some(question)) = message.question() {
        let _ = question.wants_unicast();
        read_name(&message, question.name_offset, &mut name);
    }
    walk(&message, message.records(), &mut name);
    // One that was used before gives the same as a new one.
    let mut used = Extract::new();
    let _ = extract_mdns(&message, &mut used);
    check(&message, &used);
    let mut new = Extract::new();
    assert_eq!(extract(&message, &mut used), extract(&message, &mut new));
    check(&message, &new);
    assert_eq!(used.qname(), new.qname());
    assert!(used.addresses().eq(new.addresses()));
    assert!(used.aliases().eq(new.aliases()));
    assert!(used.reverses().eq(new.reverses()));
}

fn read_name(message: &Message<'_>, offset: usize, name: &mut NameBuf) {
    let end = message.read_name(offset, name);
    assert!(name.as_bytes().len() <= NAME_BYTES_MAX);
    assert!(!name.as_bytes().iter().any(u8::is_ascii_uppercase));
    if let Ok(end) = end {
        assert!(offset < end && end <= message.bytes().len());
        assert_eq!(skip_name(message.bytes(), offset), Ok(end));
        let _ = reverse_addr(name.as_bytes());
    }
}

fn walk(message: &Message<'_>, records: Records<'_>, name: &mut NameBuf) {
    let mut end = 0;
    for record in records {
        let Ok(record) = record else { continue };
        assert!(end < record.rdata_end(), "a record that does not move on");
        end = record.rdata_end();
        assert!(end <= message.bytes().len());
        read_name(message, record.owner_offset, name);
        assert_inside(message.rdata(&record), message.bytes());
        match record.rtype {
            rtype::A => drop(rdata::a(message, &record)),
            rtype::AAAA => drop(rdata::aaaa(message, &record)),
            rtype::SVCB | rtype::HTTPS => {
                if let Ok(service) = rdata::svcb(message, &record) {
                    service.hints().for_each(|hint| assert_stands_in(message, hint));
                }
            }
            _ => {
                let _ = rdata::name(message, &record, 0, name);
            }
        }
    }
}

fn check(message: &Message<'_>, taught: &Extract) {
    assert!(taught.addresses().len() <= ADDRESSES_MAX);
    assert!(taught.aliases().len() <= CHAIN_MAX);
    for address in taught.addresses() {
        assert_stands_in(message, address.addr);
        assert!(address.owner.len() <= NAME_BYTES_MAX);
    }
    let mut owner = taught.qname();
    for alias in taught.aliases() {
        assert_eq!(Some(alias.owner), owner, "a chain with a gap");
        owner = Some(alias.target);
    }
    for reverse in taught.reverses() {
        assert!(reverse.name.len() <= NAME_BYTES_MAX);
    }
}

/// No address is invented: its bytes are in the message.
fn assert_stands_in(message: &Message<'_>, addr: Addr) {
    assert!(occurs(addr.octets(), message.bytes()), "{addr} was invented");
}

/// The first byte is the length of segments, and the bytes of a stream follow. In pieces and
/// whole they hold the same messages.
pub fn dns_stream(input: &[u8]) {
    let mut input = Cut(input);
    let segment_bytes = 1 + usize::from(input.u8());
    let bytes = input.0;
    let whole = messages(bytes);
    let mut budget = Budget::new(1 << 20);
    let mut stream = Stream::starting_at(0);
    let mut found = Vec::new();
    let mut lost = false;
    for (number, segment) in bytes.chunks(segment_bytes).enumerate() {
        let seq = (number * segment_bytes) as u32;
        stream.push(seq, 0, segment, &mut budget);
        while !lost {
            let contiguous = stream.contiguous();
            match next_message(contiguous) {
                Ok(Some(range)) => {
                    assert!(range.end <= contiguous.len());
                    found.push(contiguous[range.clone()].to_vec());
                    stream.consume(range.end, &mut budget);
                }
                Ok(None) => break,
                Err(_) => lost = true,
            }
        }
        if lost {
            // As after a hole: what is found again is a message, or was not wholly here.
            match dns_resync(stream.contiguous()) {
                Some(offset) => {
                    assert!(offset < stream.contiguous().len());
                    stream.consume(offset + 1, &mut budget);
                }
                None => stream.consume(usize::MAX, &mut budget),
            }
        }
    }
    assert_eq!(found, whole);
    stream.clear(&mut budget);
    assert_eq!(budget.used_bytes(), 0);
}

fn messages(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while let Ok(Some(range)) = next_message(rest) {
        found.push(rest[range.clone()].to_vec());
        rest = &rest[range.end..];
    }
    found
}
