use larder_io::batch::SourceOptions;
use larder_io::input::{Content, Input};
use larder_wire::capture::write;

use super::*;
use crate::names::Names;
use crate::options::{Options, OutputFormat};
use crate::worker::{Purpose, Shared};

/// Invariant 3: a worker that finds the source empty while a batch is in flight does not poll it again
/// before that batch is written; it could not do the batch's flows while it waits.
#[test]
fn no_worker_waits_for_input_while_a_batch_waits() {
    let mut schedule = Schedule::new(2);
    assert!(matches!(schedule.next_task(0, 8), Some(Task::Read)));
    assert!(schedule.next_task(1, 8).is_none(), "one reads at a time");
    schedule.slots.push_back(Slot::Decoding);
    (schedule.read_next, schedule.source_busy) = (1, false);
    assert!(matches!(schedule.next_task(1, 8), Some(Task::Read)), "there may be more");
    (schedule.source_busy, schedule.source_dry) = (false, true);
    assert!(schedule.next_task(0, 8).is_none() && schedule.next_task(1, 8).is_none());
    (schedule.learn_next, schedule.flows_next) = (1, vec![1, 1]);
    schedule.written();
    assert!(matches!(schedule.next_task(1, 8), Some(Task::Read)));
}

/// A packet of UDP between hosts 1 and 2 of 10.0.0.0/24, from this port, as a block of a capture.
fn block(out: &mut Vec<u8>, port: u16, time_ns: i64) {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(port.to_be_bytes());
    frame.extend([0x13, 0x88, 0, 9, 0, 0, 0]);
    write::packet(out, 0, time_ns, &frame, frame.len() as u32);
}

/// The clock is set while a flow is open: the flow ends after its idle time in the new time, not
/// before it (forward) and not an hour late (back); its record has times of the new clock, and a
/// length that is its own. A batch without packets moves time on.
#[test]
fn a_clock_that_is_set_ends_no_flow_early_or_late() {
    const S: i64 = 1_000_000_000;
    for step_s in [-3_600, 3_600] {
        let options = Options { format: OutputFormat::Csv, ..Options::default() };
        let (names, mut readers) = Names::new(8 << 20, 1, 7, 8, options.rules).expect("names");
        let (cache, learned) = (names.cache().clone(), names.learned());
        let shared = Shared::new(options.clone(), learned, Purpose::Log).expect("a format");
        let shared = Arc::new(shared);
        let reader = readers.pop().expect("a reader");
        let mut worker = Worker::new(0, 1, reader, cache, shared);
        let keying = Keying { seed: 7, ignores_vlan: false };
        let plan = Plan { keying, ..Plan::default() };
        let mut state = LearnerState::new(NameLearner::new(names, &options), 1, &plan);
        let mut capture = Vec::new();
        write::section(&mut capture, "test");
        write::interface(&mut capture, 1, 0);
        let stop = std::sync::atomic::AtomicBool::new(false);
        // Ends, as the log has them, of the flow that was open when the clock was set.
        let mut ended = Vec::new();
        let new = |seconds: i64| (10_000 + step_s + seconds) * S;
        let steps = [
            (Some((1, 10_000 * S)), 0, None),
            (Some((1, 10_003 * S)), 0, None),
            (Some((2, new(4))), step_s * S, None),
            (None, 0, Some(new(62))),
            (None, 0, Some(new(66))),
        ];
        for (number, (packet, clock_step_ns, silent_at_ns)) in steps.into_iter().enumerate() {
            let mut file = capture.clone();
            if let Some((port, time_ns)) = packet {
                block(&mut file, port, time_ns);
            }
            let input = Input { name: String::new(), content: Content::Memory(file.leak()) };
            let mut source =
                Source::new(input, 0, SourceOptions::default(), &stop).expect("a capture");
            let mut batch = source.next_batch(&stop).expect("a batch");
            (batch.clock_step_ns, batch.silent_at_ns) = (clock_step_ns, silent_at_ns);
            let mut decoded = Decoded::default();
            decode(&batch, 1, keying, &mut decoded);
            let (number, batch) = (number as u64, Some(batch));
            let mut work = Work { number, batch, decoded, ..Work::default() };
            state.take(&mut work);
            let committed = state.learner.names.commit().expect("room").expect("no stall");
            worker.reader.sync_to(committed.position);
            let bytes: &[u8] = work.batch.as_ref().map_or(&[], |batch| &batch.bytes);
            let input = BatchInput {
                packets_before: work.packets_before,
                packets: work.decoded.packets,
                capture_start_ns: work.capture_start_ns,
                bytes,
                held: &[],
                joined: &[],
                committed: &committed,
                ticks: &work.decoded.ticks,
                finish_before: 0,
                logged_after: 0,
                cut_ns: i64::MAX,
                cut_every_ns: 0,
                clock_step_ns: work.clock_step_ns(),
            };
            let mut output = Output::default();
            worker.batch(&work.decoded.lanes[0], &input, &mut output);
            ended.extend(
                output.ended.iter().map(|one| (number, one.place.first_packet, one.end_ns)),
            );
        }
        // The first flow was last seen at 3 s of the new time, so 62 s is too early and 66 s is not.
        assert_eq!(ended, [(4, 1, new(3)), (4, 3, new(4))], "{step_s}");
    }
}
