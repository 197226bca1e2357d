//! Many short timers, most of which are cancelled: a hierarchical timing wheel (Varghese and Lauck,
//! 1987) with a wheel for each six bits of time.
//!
//! Time is milliseconds of any clock that the caller reads; this module reads none. A timer is on
//! the wheel of the highest six bits in which its deadline differs from the wheel's own time, in
//! the slot that those bits of the deadline name. When time reaches a slot, its timers fire (lowest
//! wheel) or move to lower wheels. Eleven wheels cover all 64 bits, so no deadline is too far. A
//! word of bits a wheel marks the slots in use, so time without timers is skipped at once.
//!
//! ```text
//! a timer       held by                      leaves by
//! free          the free list                set()
//! waiting       a slot's list, its TimerId   cancel(), expire()
//! ```
//!
//! Invariants
//! 1. Every waiting timer's `due_ms >= now_ms`, and it is on the wheel and slot that `place`
//!    returns for the two. On a wheel above the lowest its slot is past that of `now_ms`.
//! 2. So no slot before that of `now_ms` is in use, and the first slot in use of the lowest wheel
//!    in use holds the earliest timers.
//! 3. `now_ms` only grows, and never past a slot in use.
//! 4. A `TimerId` is valid for one use of its slot of memory: the generation changes when a timer
//!    leaves. (After 2^32 uses it repeats; an id kept that long may cancel another timer.)
//!
//! Bounds: the number of timers given to `new`, whose memory is allocated then; 2.8 kB of slots.
//! Cost: `set` and `cancel` O(1); a timer that fires is moved at most once per wheel, twice if it
//! lasts seconds. Timers fire in the order of their deadlines; those of one millisecond in any
//! order.

/// Bits of time a wheel.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const WHEELS: usize = u64::BITS.div_ceil(BITS) as usize;
/// The end of a list.
const NONE: u32 = u32::MAX;

/// Most timers at once.
pub const TIMERS_MAX: usize = 1 << 30;

/// Names a timer until it fires or is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// Timers that each carry a `T`.
#[derive(Debug)]
pub struct Timers<T> {
    entries: Vec<Entry<T>>,
    capacity: usize,
    /// First of the free entries, linked by `next`.
    free: u32,
    count: usize,
    now_ms: u64,
    /// Which slots of a wheel are in use: bit s for slot s.
    in_use: [u64; WHEELS],
    /// First timer of each slot.
    heads: [[u32; SLOTS]; WHEELS],
}

#[derive(Debug)]
struct Entry<T> {
    /// When it fires: its deadline, or the wheel's time where that was later.
    due_ms: u64,
    generation: u32,
    next: u32,
    previous: u32,
    /// `None` when free.
    value: Option<T>,
}

impl<T> Timers<T> {
    /// Room for `capacity` timers (at most [`TIMERS_MAX`]); time begins at `now_ms`.
    pub fn new(capacity: usize, now_ms: u64) -> Timers<T> {
        let capacity = capacity.min(TIMERS_MAX);
        Timers {
            entries: Vec::with_capacity(capacity),
            capacity,
            free: NONE,
            count: 0,
            now_ms,
            in_use: [0; WHEELS],
            heads: [[NONE; SLOTS]; WHEELS],
        }
    }

    /// Timers that wait.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no timer waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Most timers at once.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets a timer. A deadline in the past fires at the next [`Timers::expire`]; so a handler that
    /// sets a timer already due is called again in the same round. Returns the value if there is no
    /// room.
    pub fn set(&mut self, deadline_ms: u64, value: T) -> Result<TimerId, T> {
        let due_ms = deadline_ms.max(self.now_ms);
        let index = match self.free {
            NONE if self.entries.len() == self.capacity => return Err(value),
            NONE => {
                let entry =
                    Entry { due_ms, generation: 0, next: NONE, previous: NONE, value: Some(value) };
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
            index => {
                let entry = &mut self.entries[index as usize];
                self.free = entry.next;
                entry.due_ms = due_ms;
                entry.value = Some(value);
                index
            }
        };
        self.count += 1;
        self.link(index);
        Ok(TimerId { index, generation: self.entries[index as usize].generation })
    }

    /// Cancels a timer, and returns its value. `None`: it has fired or was cancelled before.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let entry = self.entries.get(id.index as usize)?;
        if entry.generation != id.generation || entry.value.is_none() {
            return None;
        }
        self.unlink(id.index);
        self.release(id.index)
    }

    /// Takes the earliest timer whose deadline is not after `now_ms`: call it until it returns
    /// `None`. Never early. If time goes backwards, it counts as standing still.
    pub fn expire(&mut self, now_ms: u64) -> Option<T> {
        loop {
            let Some((wheel, slot, start_ms)) = self.first_slot().filter(|first| first.2 <= now_ms)
            else {
                self.now_ms = self.now_ms.max(now_ms);
                return None;
            };
            debug_assert!(start_ms >= self.now_ms, "invariant 3");
            self.now_ms = start_ms;
            let head = self.heads[wheel][slot];
            if wheel == 0 {
                self.unlink(head);
                return self.release(head);
            }
            self.move_down(wheel, slot, head);
        }
    }

    /// Milliseconds that may pass after `now_ms` before [`Timers::expire`] is called again: 0 where
    /// a timer is due, `None` without timers. Never too long; for timers far away it may be shorter
    /// than their time, by up to the width of their slot.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.first_slot().map(|(_, _, start_ms)| start_ms.saturating_sub(now_ms))
    }

    /// The slot with the earliest timers: wheel, slot, and the time at which it begins (invariant
    /// 2).
    #[inline]
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let wheel = self.in_use.iter().position(|slots| *slots != 0)?;
        let slot = self.in_use[wheel].trailing_zeros();
        let shift = BITS * wheel as u32;
        // The bits above this wheel's bits are common to its timers and to now.
        let above = self.now_ms.checked_shr(shift + BITS).unwrap_or(0);
        let above = above.checked_shl(shift + BITS).unwrap_or(0);
        Some((wheel, slot as usize, above | u64::from(slot) << shift))
    }

    /// Moves the timers of a slot, which starts at `now_ms`, to lower wheels.
    fn move_down(&mut self, wheel: usize, slot: usize, head: u32) {
        self.heads[wheel][slot] = NONE;
        self.in_use[wheel] &= !(1 << slot);
        let mut index = head;
        while index != NONE {
            let next = self.entries[index as usize].next;
            self.link(index);
            index = next;
        }
    }

    /// The wheel and slot of a timer.
    #[inline]
    fn place(&self, due_ms: u64) -> (usize, usize) {
        let differs = (due_ms ^ self.now_ms) | 1;
        let wheel = differs.ilog2() / BITS;
        let slot = due_ms >> (BITS * wheel) & (SLOTS as u64 - 1);
        (wheel as usize, slot as usize)
    }

    fn link(&mut self, index: u32) {
        let (wheel, slot) = self.place(self.entries[index as usize].due_ms);
        let next = std::mem::replace(&mut self.heads[wheel][slot], index);
        self.in_use[wheel] |= 1 << slot;
        let entry = &mut self.entries[index as usize];
        (entry.next, entry.previous) = (next, NONE);
        if next != NONE {
            self.entries[next as usize].previous = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        let Entry { due_ms, next, previous, .. } = self.entries[index as usize];
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if previous != NONE {
            self.entries[previous as usize].next = next;
            return;
        }
        // By invariant 1 it is the first of the list that `place` names.
        let (wheel, slot) = self.place(due_ms);
        self.heads[wheel][slot] = next;
        if next == NONE {
            self.in_use[wheel] &= !(1 << slot);
        }
    }

    /// Frees an entry that no list holds.
    fn release(&mut self, index: u32) -> Option<T> {
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = std::mem::replace(&mut self.free, index);
        self.count -= 1;
        entry.value.take()
    }

    /// Checks the invariants; for tests. O(timers + slots).
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn validate(&self) {
        let (mut waiting, mut earliest_ms) = (0, u64::MAX);
        for (wheel, slots) in self.heads.iter().enumerate() {
            for (slot, head) in slots.iter().enumerate() {
                assert_eq!(*head != NONE, self.in_use[wheel] >> slot & 1 == 1, "bits follow lists");
                let (mut index, mut previous) = (*head, NONE);
                while index != NONE {
                    let entry = &self.entries[index as usize];
                    assert!(entry.due_ms >= self.now_ms, "invariant 1: not before now");
                    assert_eq!(
                        self.place(entry.due_ms),
                        (wheel, slot),
                        "invariant 1: in its place"
                    );
                    assert_eq!(entry.previous, previous, "lists lead back");
                    assert!(entry.value.is_some(), "what waits has a value");
                    waiting += 1;
                    earliest_ms = earliest_ms.min(entry.due_ms);
                    assert!(waiting <= self.count, "lists end");
                    (previous, index) = (index, entry.next);
                }
            }
        }
        assert_eq!(waiting, self.count, "every timer is in a list");
        let first = self.first_slot().map(|(wheel, slot, _)| (wheel, slot));
        assert_eq!(first, (waiting > 0).then(|| self.place(earliest_ms)), "invariant 2");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The obvious timers: a sorted map from deadline and name.
    #[derive(Default)]
    struct Model {
        waiting: BTreeMap<(u64, u32), TimerId>,
        now_ms: u64,
    }

    #[derive(Debug, Clone)]
    enum Step {
        Set { after_ms: u64 },
        SetPast,
        Cancel { which: usize },
        CancelAgain { which: usize },
        Pass { by_ms: u64 },
        PassToFirst,
    }

    /// Spans of every wheel.
    fn span() -> impl Strategy<Value = u64> {
        (0u32..64, any::<u64>()).prop_map(|(bits, any)| any >> bits)
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..5000).prop_map(|after_ms| Step::Set { after_ms }),
            2 => span().prop_map(|after_ms| Step::Set { after_ms }),
            1 => Just(Step::SetPast),
            2 => any::<usize>().prop_map(|which| Step::Cancel { which }),
            1 => any::<usize>().prop_map(|which| Step::CancelAgain { which }),
            3 => (0u64..300).prop_map(|by_ms| Step::Pass { by_ms }),
            1 => span().prop_map(|by_ms| Step::Pass { by_ms }),
            2 => Just(Step::PassToFirst),
        ]
    }

    /// Everything due fires, in the order of deadlines, and nothing else.
    fn expire_all(timers: &mut Timers<u32>, model: &mut Model, gone: &mut Vec<TimerId>) {
        let mut last = 0;
        while let Some(name) = timers.expire(model.now_ms) {
            let &(deadline, _) = model.waiting.keys().find(|key| key.1 == name).unwrap();
            assert!(deadline <= model.now_ms && deadline >= last, "{deadline} after {last}");
            last = deadline;
            gone.push(model.waiting.remove(&(deadline, name)).unwrap());
        }
        assert!(model.waiting.keys().all(|(deadline, _)| *deadline > model.now_ms));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Timers behave like a sorted map: the same fire at each time, in the order of deadlines;
        /// cancelled and fired timers cannot be cancelled; waits are never too long. Invariant 4.
        #[test]
        fn timers_are_a_sorted_map(
            start_ms in span(),
            steps in prop::collection::vec(step(), 1..80),
        ) {
            let mut timers = Timers::new(20, start_ms);
            let mut model = Model { now_ms: start_ms, ..Model::default() };
            let mut gone = Vec::new();
            for (name, step) in steps.into_iter().enumerate() {
                let name = name as u32;
                match step {
                    Step::Set { .. } | Step::SetPast => {
                        let deadline = match step {
                            Step::Set { after_ms } => model.now_ms.saturating_add(after_ms),
                            _ => model.now_ms,
                        };
                        let requested = if let Step::SetPast = step { deadline / 2 } else { deadline };
                        match timers.set(requested, name) {
                            Ok(id) => {
                                model.waiting.insert((deadline, name), id);
                            }
                            Err(back) => prop_assert_eq!((back, model.waiting.len()), (name, 20)),
                        }
                    }
                    Step::Cancel { which } if !model.waiting.is_empty() => {
                        let which = which % model.waiting.len();
                        let (&key, &id) = model.waiting.iter().nth(which).unwrap();
                        prop_assert_eq!(timers.cancel(id), Some(key.1));
                        model.waiting.remove(&key);
                        gone.push(id);
                    }
                    Step::CancelAgain { which } if !gone.is_empty() => {
                        prop_assert_eq!(timers.cancel(gone[which % gone.len()]), None);
                    }
                    Step::Cancel { .. } | Step::CancelAgain { .. } => {}
                    Step::Pass { by_ms } => {
                        model.now_ms = model.now_ms.saturating_add(by_ms);
                        expire_all(&mut timers, &mut model, &mut gone);
                    }
                    Step::PassToFirst => {
                        // As a loop does: wait as long as we may, and look again. A wheel each
                        // time.
                        let first = model.waiting.keys().next().map(|key| key.0);
                        for _ in 0..=WHEELS {
                            let Some(wait_ms) = timers.wait_ms(model.now_ms) else { break };
                            prop_assert!(model.now_ms + wait_ms <= first.unwrap());
                            model.now_ms += wait_ms;
                            expire_all(&mut timers, &mut model, &mut gone);
                            if first == Some(model.now_ms) {
                                break;
                            }
                        }
                        prop_assert_eq!(first.unwrap_or(model.now_ms), model.now_ms);
                    }
                }
                timers.validate();
                prop_assert_eq!(timers.len(), model.waiting.len());
            }
        }
    }

    /// The first and the last millisecond that there are.
    #[test]
    fn ends_of_time() {
        let mut timers = Timers::new(4, 0);
        assert_eq!(timers.wait_ms(0), None);
        let last = timers.set(u64::MAX, "last").unwrap();
        timers.set(0, "first").unwrap();
        assert_eq!(timers.expire(0), Some("first"));
        assert_eq!(timers.expire(u64::MAX - 1), None);
        assert_eq!(timers.expire(5), None);
        assert_eq!(timers.wait_ms(u64::MAX - 1), Some(1));
        timers.validate();
        assert_eq!(timers.expire(u64::MAX), Some("last"));
        assert_eq!(timers.cancel(last), None);
        assert!(timers.is_empty());
    }

    /// No memory is allocated after the start, and a full set returns an error.
    #[test]
    fn room_is_a_bound() {
        let mut timers = Timers::new(3, 1000);
        let held = timers.entries.capacity();
        for round in 0..100 {
            let ids: Vec<TimerId> =
                (0..3).map(|n| timers.set(1000 + round + n, n).unwrap()).collect();
            assert_eq!(timers.set(9, 9), Err(9));
            assert!(timers.cancel(ids[1]).is_some());
            while timers.expire(1000 + round + 2).is_some() {}
        }
        assert_eq!((timers.len(), timers.capacity(), timers.entries.capacity()), (0, 3, held));
    }
}
