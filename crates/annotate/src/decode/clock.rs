//! The packets' clock: the seconds that two packets in a row have reached.

use larder_io::batch::Purpose;

use super::{Decoded, TICK_NS, Tick};

/// The packets' clock within a batch.
pub(super) struct Clock {
    /// Time of the last packet that moves it with its successor, ns; the least: none.
    pub last_ns: i64,
    /// The next second, ns.
    next_ns: i64,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { last_ns: i64::MIN, next_ns: i64::MIN + 1 }
    }
}

impl Clock {
    /// Moves it by a packet. Without `PURPOSES`, each packet moves it.
    #[inline(always)]
    pub fn take<const PURPOSES: bool>(
        &mut self,
        purpose: Purpose,
        packet: u32,
        time_ns: i64,
        out: &mut Decoded,
    ) {
        if !PURPOSES {
            self.packet(packet, time_ns, out);
        } else if !purpose.is_reduced() {
            self.first_or_later(packet, time_ns, out);
        }
    }

    /// Notes what the next batch needs. `first_ns`: time of the batch's first packet.
    pub fn finish<const PURPOSES: bool>(&self, first_ns: i64, out: &mut Decoded) {
        if !PURPOSES && out.packets > 0 {
            out.first_of_clock = Some((1, first_ns));
        }
        out.last_of_clock_ns = Some(self.last_ns).filter(|last_ns| *last_ns > i64::MIN);
    }

    #[inline(always)]
    fn packet(&mut self, packet: u32, time_ns: i64, out: &mut Decoded) {
        let certain_ns = time_ns.min(std::mem::replace(&mut self.last_ns, time_ns));
        if certain_ns >= self.next_ns {
            self.tick(packet, certain_ns, out);
        }
    }

    /// The same, where the first packet may be any.
    pub fn first_or_later(&mut self, packet: u32, time_ns: i64, out: &mut Decoded) {
        if self.last_ns == i64::MIN {
            out.first_of_clock.get_or_insert((packet, time_ns));
        }
        self.packet(packet, time_ns, out);
    }

    /// Notes a second.
    #[cold]
    pub fn tick(&mut self, packet: u32, time_ns: i64, out: &mut Decoded) {
        let tick = Tick::at(packet, time_ns);
        out.ticks.push(tick);
        self.next_ns = tick.time_ns.saturating_add(TICK_NS);
    }
}
