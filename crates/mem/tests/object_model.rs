//! Random operations on bodies, compared with a model that has each as a `Vec`: several fillers and
//! readers in one arena that is too small for them, in one thread. After every step each result,
//! each byte and each notice is the model's. At the end all leases have returned once and the arena
//! is whole.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_mem::object::*;
use proptest::prelude::*;

#[derive(Default)]
struct Inbox(Mutex<Vec<Notice>>);

impl Inbox {
    /// Also after a failed assertion: what is dropped then sends notices, too.
    fn notices(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Post for Inbox {
    fn post(&self, notice: Notice) {
        self.notices().push(notice);
    }
}

/// The next step; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    Create { announced: Option<u64>, window: Option<u64> },
    Write { filler: usize, bytes: u64 },
    Publish { filler: usize, now: bool },
    End { filler: usize, how: u8 },
    Open { object: usize, start: u64, len: Option<u64>, lease_bytes_max: u64 },
    Lease { reader: usize, bytes_max: u64 },
    GiveBack { reader: usize, count: usize },
    DropLease { lease: usize, is_shown: bool },
    DropReader { reader: usize },
    Forget { object: usize, revokes: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0usize..1000;
    let bytes = || prop_oneof![1u64..100, 1u64..70_000, 1u64..600_000];
    let step = prop_oneof![
        2 => (prop::option::of(bytes()), prop::option::of(1u64..400_000))
            .prop_map(|(announced, window)| Step::Create { announced, window }),
        8 => (number.clone(), bytes()).prop_map(|(filler, bytes)| Step::Write { filler, bytes }),
        5 => (number.clone(), any::<bool>())
            .prop_map(|(filler, now)| Step::Publish { filler, now }),
        1 => (number.clone(), any::<u8>()).prop_map(|(filler, how)| Step::End { filler, how }),
        4 => (number.clone(), bytes(), prop::option::of(bytes()), bytes())
            .prop_map(|(object, start, len, lease_bytes_max)| {
                // Half of them from the beginning.
                let start = if start % 2 == 0 { 0 } else { start };
                Step::Open { object, start, len, lease_bytes_max }
            }),
        10 => (number.clone(), bytes())
            .prop_map(|(reader, bytes_max)| Step::Lease { reader, bytes_max }),
        3 => (number.clone(), 0usize..4)
            .prop_map(|(reader, count)| Step::GiveBack { reader, count }),
        5 => (number.clone(), any::<bool>())
            .prop_map(|(lease, is_shown)| Step::DropLease { lease, is_shown }),
        1 => number.clone().prop_map(|reader| Step::DropReader { reader }),
        1 => (number, any::<bool>()).prop_map(|(object, revokes)| Step::Forget { object, revokes }),
    ];
    prop::collection::vec(step, 1..150)
}

/// An object in the model.
struct Body {
    id: ObjectId,
    data: Vec<u8>,
    published: usize,
    phase: Phase,
    is_revoked: bool,
    announced: Option<u64>,
    window: Option<u64>,
    had_reader: bool,
}

struct Reading {
    reader: Reader,
    body: usize,
    end: u64,
    loop_number: u32,
    lease_bytes_max: u64,
    /// It found nothing and got no notice since.
    waits: bool,
}

struct Held {
    lease: Lease,
    loop_number: u32,
    body: usize,
    position: usize,
}

struct World {
    store: ObjectStore,
    inbox: Arc<Inbox>,
    bodies: Vec<Body>,
    /// Indices of bodies.
    fillers: Vec<(usize, Filler)>,
    handles: Vec<(usize, Arc<Object>)>,
    readers: Vec<Reading>,
    held: Vec<Held>,
    /// Fillers that wait for memory, in order.
    queue: VecDeque<ObjectId>,
    loops: u32,
}

impl World {
    fn new() -> Self {
        let inbox = Arc::new(Inbox::default());
        let options = StoreOptions { digest: Some(sum), ..StoreOptions::of(1 << 20) };
        World {
            store: ObjectStore::new(options, inbox.clone()).unwrap(),
            inbox,
            bodies: Vec::new(),
            fillers: Vec::new(),
            handles: Vec::new(),
            readers: Vec::new(),
            held: Vec::new(),
            queue: VecDeque::new(),
            loops: 0,
        }
    }

    /// New notices came only for readers that waited. Fillers that waited for memory got it in the
    /// order in which they began to wait, and got a notice. Other Room notices are of windows,
    /// which wait for their own readers.
    fn receive(&mut self) {
        let notices = std::mem::take(&mut *self.inbox.notices());
        let mut rooms = Vec::new();
        for notice in notices {
            match notice.news {
                News::More => {
                    let requested = |reading: &&mut Reading| {
                        reading.waits
                            && reading.loop_number == notice.loop_number
                            && self.bodies[reading.body].id == notice.object
                    };
                    let reading = self.readers.iter_mut().find(requested);
                    // Or it was dropped since.
                    if let Some(reading) = reading {
                        reading.waits = false;
                    }
                }
                News::Room => rooms.push(notice.object),
            }
        }
        let waiting = self.store.stats().waiting_fillers as usize;
        let mut rooms = rooms.into_iter();
        for object in self.queue.drain(..self.queue.len().saturating_sub(waiting)) {
            assert!(
                rooms.any(|room| room == object),
                "{object:?} is out of turn, or got no notice"
            );
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create { announced, window } => self.create(announced, window),
            Step::Write { filler, bytes } => self.write(filler, bytes),
            Step::Publish { filler, now } => self.publish(filler, now),
            Step::End { filler, how } => self.end(filler, how),
            Step::Open { object, start, len, lease_bytes_max } => {
                let end = len.map_or(u64::MAX, |len| start + len);
                self.open(object, start, end, lease_bytes_max);
            }
            Step::Lease { reader, bytes_max } => self.lease(reader, bytes_max),
            Step::GiveBack { reader, count } => self.give_back(reader, count),
            Step::DropLease { lease, is_shown } => {
                if let Some(index) = lease.checked_rem(self.held.len()) {
                    let held = self.held.swap_remove(index);
                    self.check(&held);
                    if is_shown {
                        let _ = held.lease.file_range();
                    }
                }
            }
            Step::DropReader { reader } => {
                if let Some(index) = reader.checked_rem(self.readers.len()) {
                    self.readers.swap_remove(index);
                }
            }
            Step::Forget { object, revokes } => {
                if let Some(index) = object.checked_rem(self.handles.len()) {
                    let (body, handle) = self.handles.swap_remove(index);
                    if revokes {
                        handle.revoke();
                        self.bodies[body].is_revoked = true;
                    }
                }
            }
        }
        self.receive();
        let held: u64 = self.held.iter().map(|held| held.lease.len() as u64).sum();
        assert_eq!(self.store.stats().leased_bytes, held);
        self.store.validate().unwrap();
    }

    fn create(&mut self, announced: Option<u64>, window: Option<u64>) {
        if self.fillers.len() == 5 {
            return;
        }
        let kind = match window {
            Some(window_bytes) => Kind::Transit { window_bytes },
            None => Kind::Stored,
        };
        let filler = self.store.create(Plan { loop_number: 0, bytes: announced, kind });
        self.handles.push((self.bodies.len(), filler.object().clone()));
        self.bodies.push(Body {
            id: filler.object().id(),
            data: Vec::new(),
            published: 0,
            phase: Phase::Filling,
            is_revoked: false,
            announced,
            window,
            had_reader: false,
        });
        self.fillers.push((self.bodies.len() - 1, filler));
    }

    fn write(&mut self, filler: usize, bytes: u64) {
        let Some(index) = filler.checked_rem(self.fillers.len()) else { return };
        let (body, filler) = &mut self.fillers[index];
        let body = &mut self.bodies[*body];
        let end = body.data.len() + bytes as usize;
        while body.data.len() < end {
            let waiting = self.store.stats().waiting_fillers;
            let reported = self.inbox.notices().len();
            let requested = end - body.data.len();
            match filler.room(requested) {
                Room::Memory(data) => {
                    assert!(!data.is_empty() && data.len() <= requested);
                    // Not all of it, now and then.
                    let len = data.len().div_ceil(1 + bytes as usize % 2);
                    for place in &mut data[..len] {
                        let byte = (body.data.len() * 31 + body.data.len() / 1000) as u8;
                        *place = byte;
                        body.data.push(byte);
                    }
                    filler.wrote(len);
                }
                Room::Later => {
                    // A window returns what was read of it before it waits, which may serve others.
                    let news = self.inbox.notices();
                    let rooms = news[reported..].iter().filter(|notice| notice.news == News::Room);
                    let served = rooms.zip(&self.queue).take_while(|(a, b)| a.object == **b);
                    if self.store.stats().waiting_fillers + served.count() as u64 > waiting {
                        self.queue.push_back(body.id);
                    }
                    break;
                }
            }
        }
        if let Some(window) = body.window {
            assert!(filler.object().bytes_held() <= window.max(16 << 10));
        }
    }

    fn publish(&mut self, filler: usize, now: bool) {
        let Some(index) = filler.checked_rem(self.fillers.len()) else { return };
        let (body, filler) = &mut self.fillers[index];
        let grown = self.bodies[*body].data.len() > self.bodies[*body].published;
        self.bodies[*body].published = self.bodies[*body].data.len();
        if now {
            filler.publish_now();
        } else {
            filler.publish();
        }
        assert_eq!(filler.object().published(), self.bodies[*body].published as u64);
        let body = *body;
        self.receive();
        if now && grown {
            self.nobody_waits(body);
        }
    }

    fn nobody_waits(&self, body: usize) {
        let waits = |reading: &Reading| reading.body == body && reading.waits;
        assert!(!self.readers.iter().any(waits), "a reader got no notice");
    }

    fn end(&mut self, filler: usize, how: u8) {
        let Some(index) = filler.checked_rem(self.fillers.len()) else { return };
        let (number, filler) = self.fillers.swap_remove(index);
        let body = &mut self.bodies[number];
        let id = body.id;
        self.queue.retain(|&waiting| waiting != id);
        let announced = body.announced.unwrap_or(body.data.len() as u64);
        body.phase = match how {
            0 => Phase::Failed(Failure::Abandoned),
            1..100 => Phase::Failed(Failure::Damaged),
            _ => match (body.data.len() as u64).cmp(&announced) {
                std::cmp::Ordering::Less => Phase::Failed(Failure::Origin),
                std::cmp::Ordering::Equal => Phase::Sealed,
                std::cmp::Ordering::Greater => Phase::Failed(Failure::TooLong),
            },
        };
        let object = filler.object().clone();
        match how {
            0 => drop(filler),
            1..100 => filler.fail(Failure::Damaged),
            _ => filler.seal(),
        }
        if body.phase == Phase::Sealed {
            body.published = body.data.len();
        }
        assert_eq!((object.phase(), object.published()), (body.phase, body.published as u64));
        if body.window.is_none() {
            assert_eq!(object.bytes_held(), body.data.len().next_multiple_of(UNIT_BYTES) as u64);
        }
        self.receive();
        self.nobody_waits(number);
    }

    fn open(&mut self, object: usize, start: u64, end: u64, lease_bytes_max: u64) {
        let Some(index) = object.checked_rem(self.handles.len()) else { return };
        let (number, handle) = &self.handles[index];
        let body = &mut self.bodies[*number];
        // Mostly a loop of its own: then each notice has one reader.
        self.loops = (self.loops + 1) % LOOPS_MAX;
        let loop_number = self.loops;
        if self.readers.iter().any(|reading| reading.loop_number == loop_number) {
            return;
        }
        let expected = match body.phase {
            Phase::Failed(failure) => Some(Gone::Failed(failure)),
            _ if body.is_revoked => Some(Gone::Revoked),
            _ if body.window.is_some() && body.had_reader => Some(Gone::Taken),
            _ => None,
        };
        let opened = handle.open(start..end, ReaderOptions { loop_number, lease_bytes_max });
        body.had_reader = true;
        assert_eq!(opened.as_ref().err(), expected.as_ref());
        if let Ok(reader) = opened {
            let (body, waits) = (*number, false);
            self.readers.push(Reading { reader, body, end, loop_number, lease_bytes_max, waits });
        }
    }

    fn lease(&mut self, reader: usize, bytes_max: u64) {
        let Some(index) = reader.checked_rem(self.readers.len()) else { return };
        let reading = &mut self.readers[index];
        let body = &self.bodies[reading.body];
        let position = reading.reader.position();
        let own =
            |held: &&Held| held.loop_number == reading.loop_number && held.body == reading.body;
        let leased: u64 = self.held.iter().filter(own).map(|held| held.lease.len() as u64).sum();
        let published = body.published as u64;
        let end =
            if body.phase == Phase::Sealed { reading.end.min(published) } else { reading.end };
        let bytes = end.min(published).saturating_sub(position);
        let bytes = bytes.min(bytes_max).min(reading.lease_bytes_max.saturating_sub(leased));
        let expected = match body.phase {
            Phase::Failed(Failure::Damaged) => Leased::Failed(Failure::Damaged),
            _ if position >= end => Leased::End,
            Phase::Failed(failure) if position >= published => Leased::Failed(failure),
            _ if position >= published => Leased::Later,
            _ if bytes == 0 => Leased::ReturnFirst,
            _ => Leased::Some { bytes, is_end: position + bytes == end },
        };
        let mut leases = Vec::new();
        assert_eq!(reading.reader.lease(&mut leases, bytes_max), expected);
        reading.waits |= expected == Leased::Later;
        let (loop_number, body) = (reading.loop_number, reading.body);
        let mut at = position as usize;
        for lease in leases {
            let held = Held { position: at, lease, loop_number, body };
            at += held.lease.len();
            self.check(&held);
            self.held.push(held);
        }
        let came = if let Leased::Some { bytes, .. } = expected { bytes } else { 0 };
        assert_eq!(at as u64, position + came);
        assert_eq!(self.readers[index].reader.position(), position + came);
    }

    fn check(&self, held: &Held) {
        let expected = &self.bodies[held.body].data[held.position..][..held.lease.len()];
        assert!(held.lease.as_bytes() == expected, "other bytes at {}", held.position);
    }

    /// Returns some leases, of any reader, through one reader.
    fn give_back(&mut self, reader: usize, count: usize) {
        let Some(index) = reader.checked_rem(self.readers.len()) else { return };
        let count = count.min(self.held.len());
        let leases: Vec<Lease> = self.held.drain(..count).map(|held| held.lease).collect();
        self.readers[index].reader.give_back(leases);
    }
}

/// Any checksum will do.
fn sum(before: u32, data: &[u8]) -> u32 {
    data.iter().fold(before, |sum, &byte| sum.wrapping_mul(31) ^ u32::from(byte))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    /// Any steps in any order, and all that remains is dropped in any order.
    #[test]
    fn as_the_model_has_it(steps in steps(), last in 0u8..3) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        for held in &world.held {
            world.check(held);
        }
        let World { store, fillers, handles, readers, held, .. } = world;
        match last {
            0 => drop((fillers, handles, readers, held)),
            1 => drop((held, readers, handles, fillers)),
            _ => drop((readers, fillers, held, handles)),
        }
        store.validate().unwrap();
        let stats = store.stats();
        prop_assert_eq!((stats.free_bytes, stats.objects, stats.leased_bytes), (stats.bytes, 0, 0));
        prop_assert_eq!((stats.waiting_fillers, stats.reserved_bytes, stats.lost_bytes), (0, 0, 0));
        prop_assert_eq!(store.shortage_bytes(), 0);
    }
}
