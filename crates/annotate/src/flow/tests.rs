//! The flow table, compared with Zeek's rules and with a simple model.

use std::collections::HashMap;

use super::tcp::SeqStep;
use super::tcp_flag::{ACK, FIN, RST, SYN};
use super::*;

const S: i64 = 1_000_000_000;

fn rules() -> FlowRules {
    FlowRules {
        tcp_ns: 300 * S,
        other_ns: 60 * S,
        linger_ns: 5 * S,
        active_ns: i64::MAX,
        cut_every_ns: 100 * S,
        is_part: false,
        first_sender_began: false,
    }
}

/// One end and its packets.
#[derive(Clone, Copy)]
struct Talk {
    host: u8,
    port: u16,
    peer: u8,
    peer_port: u16,
}

fn event(talk: Talk, protocol: u8, flags: u8, time_ns: i64, packet: u32) -> Event {
    let addr = |host| Addr::v4([10, 0, 0, host]);
    let sender = (u128::from_be_bytes(addr(talk.host).0), talk.port);
    let peer = (u128::from_be_bytes(addr(talk.peer).0), talk.peer_port);
    let from_low = sender <= peer;
    let ends = ((addr(talk.host), talk.port), (addr(talk.peer), talk.peer_port));
    let (low, high) = if from_low { ends } else { (ends.1, ends.0) };
    let key = FlowKey {
        low: low.0,
        high: high.0,
        low_port: low.1,
        high_port: high.1,
        protocol,
        scope: Scope::NONE,
    };
    Event {
        hash: key.hash(7),
        key,
        time_ns,
        packet,
        payload_offset: 0,
        payload_len: 0,
        payload_bytes: 0,
        ip_bytes: 40,
        tcp_seq: 1000,
        tcp_window: 1000,
        tcp_flags: flags,
        from_low,
        tunnel: None,
        is_held: false,
        is_made: false,
        is_reduced: false,
        note: None,
    }
}

/// A flow at its end: source port, conn state, history, and reason.
type Ended = (u16, ConnState, String, Leave, u64);

#[derive(Default)]
struct User(Vec<Ended>);

impl FlowUser<()> for User {
    fn number(&self, event: &Event) -> u64 {
        event.packet.into()
    }
    fn begin(&mut self, _: &mut Flow<()>, _: &Event) {}
    fn packet(&mut self, _: &mut Flow<()>, _: &Event) {}
    fn end(&mut self, flow: &mut Flow<()>, _: bool, leave: Leave, _: u32) {
        let packets = flow.sent_by_source().packets + flow.sent_by_destination().packets;
        let history = flow.history.as_str().to_owned();
        self.0.push((flow.source().1, flow.conn_state(), history, leave, packets));
    }
}

const CLIENT: Talk = Talk { host: 1, port: 50_000, peer: 2, peer_port: 443 };
const SERVER: Talk = Talk { host: 2, port: 443, peer: 1, peer_port: 50_000 };

fn run(steps: &[(Talk, u8, u32, u32, i64)]) -> Vec<Ended> {
    let mut shard = Shard::new(16, rules());
    let mut user = User::default();
    for (number, &(talk, flags, seq, payload, time_ns)) in steps.iter().enumerate() {
        let mut event = event(talk, protocol::TCP, flags, time_ns, number as u32 + 1);
        event.tcp_seq = seq;
        event.payload_bytes = payload;
        shard.packet(&event, Guess::default(), &mut user);
        shard.validate();
    }
    let open: Vec<u32> = shard.open_flows().map(|(_, slot)| slot).collect();
    for slot in open {
        shard.finish(slot, &mut user);
    }
    shard.validate();
    user.0
}

/// Handshake, data both ways, FIN both ways: Zeek calls it SF and writes ShADadFf.
#[test]
fn a_whole_connection() {
    let ended = run(&[
        (CLIENT, SYN, 100, 0, 0),
        (SERVER, SYN | ACK, 900, 0, 1),
        (CLIENT, ACK, 101, 0, 2),
        (CLIENT, ACK, 101, 10, 3),
        (SERVER, ACK, 901, 0, 4),
        (SERVER, ACK, 901, 20, 5),
        (CLIENT, FIN | ACK, 111, 0, 6),
        (SERVER, FIN | ACK, 921, 0, 7),
    ]);
    let history = "ShADadFf".to_owned();
    assert_eq!(ended, [(50_000, ConnState::SF, history, Leave::InputEnd, 8)]);
}

/// States of scans and aborted connections, with Zeek's names.
#[test]
fn states_of_half_connections() {
    let state = |steps: &[(Talk, u8, u32, u32, i64)]| run(steps)[0].1;
    assert_eq!(state(&[(CLIENT, SYN, 1, 0, 0)]), ConnState::S0);
    let refused = [(CLIENT, SYN, 1, 0, 0), (SERVER, RST | ACK, 0, 0, 1)];
    assert_eq!(state(&refused), ConnState::REJ);
    let open = [(CLIENT, SYN, 1, 0, 0), (SERVER, SYN | ACK, 1, 0, 1)];
    assert_eq!(state(&open), ConnState::S1);
    let reset = [open[0], open[1], (CLIENT, RST, 2, 0, 2)];
    assert_eq!(state(&reset), ConnState::RSTO);
    assert_eq!(state(&[(CLIENT, ACK, 5, 1, 0)]), ConnState::OTH);
}

/// The sender of the SYN began, even if the response was seen first; without a SYN the server's
/// port decides.
#[test]
fn who_began() {
    let answer_first = run(&[(SERVER, SYN | ACK, 1, 0, 0), (CLIENT, ACK, 2, 0, 1)]);
    assert_eq!(answer_first[0].0, 50_000);
    let middle = run(&[(SERVER, ACK, 1, 100, 0)]);
    assert_eq!(middle[0].0, 50_000);
    let syn_later = run(&[(CLIENT, ACK, 9, 0, 0), (SERVER, SYN, 1, 0, 1)]);
    assert_eq!(syn_later[0].0, 443);
}

/// A flow that goes on gives a record at each active timeout, and counts nothing twice: a packet
/// and its bytes are in one record, and the last record has the final state.
#[test]
fn what_is_active_is_told() {
    let mut shard = Shard::new(16, FlowRules { active_ns: 10 * S, ..rules() });
    let mut user = User::default();
    let mut steps = vec![(CLIENT, SYN, 100, 0), (SERVER, SYN | ACK, 900, 0)];
    steps.extend((0..28).map(|step| (CLIENT, ACK, 101 + step, 1)));
    steps.extend([(CLIENT, FIN | ACK, 129, 0), (SERVER, FIN | ACK, 901, 0)]);
    for (number, &(talk, flags, seq, payload)) in steps.iter().enumerate() {
        let mut event = event(talk, protocol::TCP, flags, number as i64 * S, number as u32 + 1);
        (event.tcp_seq, event.payload_bytes) = (seq, payload);
        shard.packet(&event, Guess::default(), &mut user);
        shard.validate();
    }
    shard.expire(100 * S, 100, &mut user);
    shard.validate();
    let told: Vec<(Leave, u64)> = user.0.iter().map(|ended| (ended.3, ended.4)).collect();
    assert_eq!(told, [(Leave::Active, 11), (Leave::Active, 11), (Leave::Timeout, 10)]);
    assert_eq!((user.0[0].1, user.0[2].2.as_str()), (ConnState::S1, "DFf"));
    assert_eq!(shard.live(), 0);
}

/// A cut writes a record of each flow with packets before it, ends what is closed or idle, and begins the idle time of
/// the others again. A packet behind it that came before it is in the next record.
#[test]
fn records_are_cut() {
    let (mut shard, mut user) = (Shard::new(16, rules()), User::default());
    let at = |host: u8| Talk { host, ..CLIENT };
    let mut number = 0;
    let mut udp = |shard: &mut Shard<()>, user: &mut User, host, time_ns| {
        number += 1;
        let event = event(at(host), protocol::UDP, 0, time_ns, number);
        match time_ns < 100 * S {
            true => shard.packet(&event, Guess::default(), user),
            false => shard.odd_packet(100 * S, &event, user),
        }
        shard.validate();
    };
    for (host, time_ns) in
        [(9, 0), (5, 41 * S), (7, 50 * S), (5, 99 * S), (5, 101 * S), (6, 102 * S)]
    {
        udp(&mut shard, &mut user, host, time_ns);
    }
    let told = |user: &User| user.0.iter().map(|ended| (ended.3, ended.4)).collect::<Vec<_>>();
    assert_eq!(told(&user), [(Leave::Active, 2)], "by its own packet");
    shard.cut(100 * S, 102 * S, 7, &mut user);
    shard.validate();
    // The flow of host 9 was idle; that of host 7 goes on; the others have packets behind the cut only.
    assert_eq!(told(&user)[1..], [(Leave::Active, 1), (Leave::Timeout, 1)]);
    assert_eq!(shard.live(), 3);
    shard.expire(161 * S, 8, &mut user);
    assert_eq!(shard.live(), 3, "the idle time has begun again");
    shard.expire(163 * S, 9, &mut user);
    shard.validate();
    // No record without a packet.
    assert_eq!(told(&user)[3..], [(Leave::Timeout, 1), (Leave::Timeout, 1)]);
    assert_eq!(shard.live(), 0);
}

/// A closed flow ends at a cut: what comes later is another flow, even within its linger.
#[test]
fn a_closed_flow_ends_at_a_cut() {
    let (mut shard, mut user) = (Shard::new(16, rules()), User::default());
    let packet = |talk, flags, time_ns, number| event(talk, protocol::TCP, flags, time_ns, number);
    shard.packet(&packet(CLIENT, SYN, 98 * S, 1), Guess::default(), &mut user);
    shard.packet(&packet(SERVER, RST, 99 * S, 2), Guess::default(), &mut user);
    shard.cut(100 * S, 100 * S, 3, &mut user);
    shard.validate();
    assert_eq!(shard.live(), 0);
    assert_eq!(user.0[0].3, Leave::Timeout);
}

/// After a cut, the order in which flows end does not depend on that before it.
#[test]
fn flows_are_in_the_order_of_their_keys_after_a_cut() {
    let ended = |hosts: [u8; 3]| {
        let (mut shard, mut user) = (Shard::new(16, rules()), User::default());
        for (number, host) in (1..).zip(hosts) {
            // By their ports they are told apart in what the user has.
            let talk = Talk { host, port: 40_000 + u16::from(host), ..CLIENT };
            let event = event(talk, protocol::UDP, 0, 101 * S, number);
            shard.odd_packet(100 * S, &event, &mut user);
        }
        shard.cut(100 * S, 102 * S, 4, &mut user);
        shard.validate();
        shard.expire(200 * S, 5, &mut user);
        user.0.into_iter().map(|ended| ended.0).collect::<Vec<_>>()
    };
    assert_eq!(ended([3, 7, 5]), ended([7, 5, 3]));
    assert_eq!(ended([3, 7, 5]).len(), 3);
}

/// A flow of which packets are left out ends when a note says so, not by the packets that are there.
#[test]
fn notes_say_when_flows_were_idle() {
    let (mut shard, mut user) = (Shard::new(16, rules()), User::default());
    let packet = Event { is_reduced: true, ..event(CLIENT, protocol::UDP, 0, 0, 1) };
    shard.odd_packet(i64::MAX, &packet, &mut user);
    shard.expire(500 * S, 2, &mut user);
    shard.validate();
    assert_eq!(shard.live(), 1, "later packets may be left out");
    let note = |time_ns| Event::of_note(FlowNote::Last, packet.key, 7, 3, time_ns);
    shard.odd_packet(i64::MAX, &note(490 * S), &mut user);
    shard.validate();
    shard.expire(550 * S, 4, &mut user);
    assert_eq!(shard.live(), 1);
    shard.expire(551 * S, 5, &mut user);
    shard.validate();
    assert_eq!((shard.live(), user.0.len()), (0, 1));
}

/// A clock that is set ends no flow early and none late: a flow that was idle for some time is idle
/// for as long in the new time.
#[test]
fn a_clock_that_is_set_changes_no_idleness() {
    for step_ns in [-3_600 * S, 3_600 * S] {
        let (mut shard, mut user) = (Shard::new(16, rules()), User::default());
        let udp = |time_ns, packet| event(CLIENT, protocol::UDP, 0, time_ns, packet);
        shard.packet(&udp(5_000 * S, 1), Guess::default(), &mut user);
        shard.shift_times(step_ns);
        shard.validate();
        shard.expire(5_059 * S + step_ns, 2, &mut user);
        assert_eq!(shard.live(), 1, "not yet");
        shard.expire(5_061 * S + step_ns, 3, &mut user);
        shard.validate();
        assert_eq!(shard.live(), 0, "now");
    }
}

/// A SYN with another sequence number opens the 5-tuple again; a repeated SYN does not.
#[test]
fn ports_are_used_again() {
    let again = run(&[(CLIENT, SYN, 1, 0, 0), (CLIENT, SYN, 1, 0, S)]);
    assert_eq!(again.len(), 1);
    let anew = run(&[(CLIENT, SYN, 1, 0, 0), (CLIENT, SYN, 77, 0, S)]);
    let leaves: Vec<_> = anew.iter().map(|ended| ended.3).collect();
    assert_eq!(leaves, [Leave::Reused, Leave::InputEnd]);
}

/// Stream bytes come from sequence numbers, across the wrap; holes are counted as missed and
/// filled again by late segments.
#[test]
fn sequence_space() {
    let mut sent = Sent::NOTHING;
    let start = u32::MAX - 5;
    assert!(sent.advance(start, 10, 10) == SeqStep::Plain);
    sent.packets = 1;
    assert!(sent.advance(start.wrapping_add(20), 10, 10) == SeqStep::Gap);
    assert_eq!((sent.stream_bytes(), sent.gap_bytes), (30, 10));
    assert!(sent.advance(start.wrapping_add(10), 10, 10) == SeqStep::Plain);
    assert_eq!((sent.stream_bytes(), sent.gap_bytes), (30, 0));
    assert!(sent.advance(start.wrapping_add(10), 10, 10) == SeqStep::Again);
    assert_eq!(sent.stream_bytes(), 30);
}

impl FlowUser<()> for Vec<(u16, u64, Leave)> {
    fn number(&self, event: &Event) -> u64 {
        event.packet.into()
    }

    fn begin(&mut self, _: &mut Flow<()>, _: &Event) {}
    fn packet(&mut self, _: &mut Flow<()>, _: &Event) {}
    fn end(&mut self, flow: &mut Flow<()>, _: bool, leave: Leave, _: u32) {
        self.push((flow.source().1, flow.sent_by_source().packets, leave));
    }
}

/// The shard against an obvious model: random packets of a few hundred UDP flows, a limit of
/// 50, idle times around the timeout. The same flows live after every step, with the same
/// counts; who is evicted has been idle longest, to the second that the lists are exact to.
#[test]
fn a_shard_is_what_the_model_says() {
    const LIMIT: usize = 50;
    let mut shard = Shard::new(LIMIT, rules());
    let mut model: HashMap<u16, (i64, u64)> = HashMap::new();
    let (mut now, mut random) = (0_i64, 0x5eed_u64);
    let mut guess_before = Guess::default();
    for step in 0..20_000_u32 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let port = 2_000 + (random >> 33) as u16 % 200;
        now += (random >> 50) as i64 % 3 * S;
        shard.tick(now);
        let talk = Talk { host: 1, port, peer: 2, peer_port: 9 };
        let mut ended: Vec<(u16, u64, Leave)> = Vec::new();
        let event = event(talk, protocol::UDP, 0, now, step);
        // A guess as old as the last packet, of this flow or of any: it must not matter.
        let guess = match step % 2 {
            0 => shard.prefetch_flow(event.hash, event.from_low),
            _ => guess_before,
        };
        guess_before = guess;
        shard.packet(&event, guess, &mut ended);
        for (ended, packets, leave) in ended {
            let (last, count) = model.remove(&ended).expect("only live flows end");
            assert_eq!(packets, count);
            match leave {
                Leave::Timeout => assert!(ended == port && now - last > 60 * S),
                Leave::Evicted => {
                    let longest = model.values().map(|(last, _)| *last).min();
                    assert!(last <= longest.unwrap_or(last) + S);
                }
                other => panic!("{other:?}"),
            }
        }
        let place = model.entry(port).or_insert((now, 0));
        *place = (now, place.1 + 1);
        if step % 64 == 0 {
            let mut expired: Vec<(u16, u64, Leave)> = Vec::new();
            shard.expire(now, step, &mut expired);
            for (port, ..) in expired {
                let (last, _) = model.remove(&port).expect("only live flows end");
                assert!(now - last > 60 * S);
            }
        }
        assert_eq!(shard.live(), model.len());
        if step % 256 == 0 {
            shard.validate();
        }
    }
}

/// A flow that had a later packet within its second keeps its place among those that wait to end
/// (invariant 2): flows that had packets much later neither outlast it nor are evicted before it.
#[test]
fn a_second_packet_does_not_make_a_flow_young() {
    let mut shard = Shard::new(2, rules());
    let mut ended: Vec<(u16, u64, Leave)> = Vec::new();
    let udp = |port, time_ns, packet| {
        event(Talk { host: 1, port, peer: 2, peer_port: 9 }, protocol::UDP, 0, time_ns, packet)
    };
    let guess = Guess::default();
    shard.packet(&udp(1, 0, 1), guess, &mut ended);
    shard.packet(&udp(1, 9 * S / 10, 2), guess, &mut ended);
    shard.packet(&udp(2, 50 * S, 3), guess, &mut ended);
    // After the time at which it would end by its place, before the one by its last packet.
    shard.expire(605 * S / 10, 4, &mut ended);
    assert!(ended.is_empty());
    shard.validate();
    shard.expire(61 * S, 5, &mut ended);
    assert_eq!(ended.first().map(|it| (it.0, it.2)), Some((1, Leave::Timeout)));

    shard.packet(&udp(3, 62 * S, 6), guess, &mut ended);
    shard.packet(&udp(3, 62 * S + 1, 7), guess, &mut ended);
    shard.expire(1105 * S / 10, 8, &mut ended);
    shard.packet(&udp(4, 111 * S, 9), guess, &mut ended);
    assert_eq!(ended.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 2]);
}

/// Packets with times far in the future hold up other flows for a minute at most, however many there are: neither
/// as the first of a list nor when they are taken out of it.
#[test]
fn wrong_times_hold_up_flows_for_a_minute() {
    let mut shard = Shard::new(1_000, rules());
    let mut ended: Vec<(u16, u64, Leave)> = Vec::new();
    let packet = |shard: &mut Shard<()>, ended: &mut Vec<_>, port, time_ns, number| {
        let talk = Talk { host: 1, port, peer: 2, peer_port: 9 };
        let event = event(talk, protocol::UDP, 0, time_ns, number);
        shard.packet(&event, Guess::default(), ended);
    };
    for second in 0..300 {
        let now = i64::from(second) * S;
        let port = 2_000 + second as u16;
        if second % 10 == 3 {
            packet(&mut shard, &mut ended, port, now + (1 << 60), second);
        } else {
            packet(&mut shard, &mut ended, port, now, second);
        }
        shard.tick(now);
        shard.expire(now, second, &mut ended);
        shard.validate();
        // All flows of sound times end a minute after they are due at the latest, and most of them sooner.
        let due = (0..second.saturating_sub(122)).filter(|second| second % 10 != 3).count();
        assert!(ended.len() >= due, "{second}: {} of {due}", ended.len());
    }
    let of_wrong = ended.iter().filter(|(port, ..)| port % 10 == 3).count();
    assert_eq!((shard.live(), of_wrong), (300 - ended.len(), 0));
}
