//! Connects the parts of a run: inputs, names, workers, outputs, and the summary.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_io::batch::{Source, SourceOptions};
use larder_io::frame_filter::{FilterCounts, FrameFilter};
use larder_io::input::{Input, InputError};
use larder_io::selection::Selection;
use larder_store::serve::Server;

use crate::control::Control;
use crate::decode::{self, Decoded, Keying, decode};
use crate::evidence::{Budgets, Evidence, Observer};
use crate::feeds::external_names::ExternalNames;
use crate::figures::Figures;
use crate::files::{
    in_directory, load_names, make_directory, open_inputs, open_output, save_all_names, save_stats,
};
use crate::learn::NameLearner;
use crate::live::{self, CaptureStats, LiveCapture};
use crate::log::{Log, resumed};
use crate::names::Names;
use crate::options::{Damage, Endpoint, Operation, Options, SortBy, Summary, add_damage};
use crate::page::PageServer;
use crate::pipeline;
use crate::sink::{AnswerLog, Destinations, Writer};
use crate::sort::Sorter;
use crate::store_sink::StoreSink;
use crate::worker::{Purpose, Shared, Worker};
use crate::{Error, Progress};

/// Memory for `--sort start` before it spills to disk, bytes.
const SORT_BYTES_MAX: usize = 64 << 20;

/// Runs to the end of the input (or until `progress.stop`).
pub fn run(options: &Options, progress: &Arc<Progress>) -> Result<Summary, Error> {
    run_observed(options, progress, None)
}

/// The same, and reports how the choice of names did for flows that state theirs.
pub fn run_observed(
    options: &Options,
    progress: &Arc<Progress>,
    observer: Option<Observer>,
) -> Result<Summary, Error> {
    if options.resume {
        let options = Options { resume: false, ..resumed(options)? };
        return run_observed(&options, progress, observer);
    }
    if let Some(query) = &options.names_at {
        return crate::names_at::run(options, query, progress);
    }
    if crate::feeds::run::is_wanted(options) {
        return crate::feeds::run::run(options, progress, observer);
    }
    if crate::exports::is_wanted(options) {
        return crate::exports::run(options, progress);
    }
    let Some(feed) = open_feed(options, progress)? else {
        let is_endless = options.listens();
        return Ok(Summary { interrupted: true, is_endless, ..Summary::default() });
    };
    run_source(options, progress, feed, observer)
}

/// Opens the captures; `None` if the run is stopped meanwhile.
pub(crate) fn open_feed(options: &Options, progress: &Progress) -> Result<Option<Feed>, Error> {
    let reads_for_names = !options.names_read.is_empty() || options.from_ns.is_some();
    if reads_for_names && options.store.is_some() {
        let why = "a store numbers every packet that is read; store the packets of -r in a run of its own";
        let flag = if options.from_ns.is_some() { "--from" } else { "--names-read" };
        return Err(Error::Options(format!("{flag} with --store: {why}")));
    }
    let open = |endpoints| open_inputs(endpoints, &options.log, &progress.stop);
    let opened = open(&options.read).and_then(|read| Ok((read, open(&options.names_read)?)));
    let (inputs, for_names) = match opened {
        Err(Error::Read(InputError::Stopped)) => return Ok(None),
        opened => opened?,
    };
    let mut files: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let selection = selection_of(options)?;
    if !selection.is_all() {
        // Offsets in the selected packets are not offsets in a file.
        files = vec![format!("the selected packets of {}", files.join(", "))];
    }
    let live = inputs.iter().any(Input::is_live);
    let filtered = selection.filter.as_ref().map(FrameFilter::counts);
    match Source::open_selected(
        inputs,
        for_names,
        selection,
        source_options(options),
        &progress.stop,
    ) {
        Err(InputError::Stopped) => Ok(None),
        source => Ok(Some(Feed { source: source?, files, live, capture: None, filtered })),
    }
}

/// What is read of files.
fn selection_of(options: &Options) -> Result<Selection, Error> {
    let text = options.filter.trim();
    let filter = (!text.is_empty()).then(|| FrameFilter::new(text)).transpose();
    let filter = filter.map_err(|error| Error::Options(format!("the filter {text:?}: {error}")))?;
    // Where records are cut, the range is one of records, not of packets.
    let by_packet = |time_ns: Option<i64>| time_ns.filter(|_| options.cut_every_s == 0);
    let (from_ns, to_ns) = (by_packet(options.from_ns), by_packet(options.to_ns));
    let continues = options.cut_every_s > 0 && options.from_ns.is_some();
    Ok(Selection { filter, from_ns, to_ns, continues })
}

/// The same for interfaces that [`live::open`] has opened: runs until `progress.stop`.
pub fn run_live(
    options: &Options,
    capture: LiveCapture,
    progress: &Arc<Progress>,
) -> Result<Summary, Error> {
    let (mut live, capture) = capture.split();
    let log = options.log.of("capture");
    live.report_to(move |event, interface| drop(log.warn(event).text("interface", interface)));
    let files = vec![capture.name()];
    let source = Source::live(live, source_options(options));
    if !options.flows_listen.is_empty() {
        return crate::exports::listen::run(options, Some((source, capture)), progress);
    }
    run_source(
        options,
        progress,
        Feed { source, files, live: true, capture: Some(capture), filtered: None },
        None,
    )
}

fn source_options(options: &Options) -> SourceOptions {
    let in_flight = pipeline::depth(options.cores.max(1)) as usize + 2;
    SourceOptions { batch_bytes: options.batch_bytes, in_flight }
}

/// The input of a run.
pub(crate) struct Feed {
    pub source: Source,
    /// Names of its files or interfaces.
    pub files: Vec<String>,
    /// It grows while it is read: a pipe or interfaces.
    pub live: bool,
    /// Counts of the interfaces.
    capture: Option<CaptureStats>,
    /// Counts of the filter for packets of files.
    filtered: Option<Arc<FilterCounts>>,
}

fn run_source(
    options: &Options,
    progress: &Arc<Progress>,
    input: Feed,
    observer: Option<Observer>,
) -> Result<Summary, Error> {
    let Feed { mut source, files, live, capture, filtered } = input;
    progress.reading.get_or_init(|| source.reading());
    let purpose = if observer.is_some() { Purpose::Observed } else { Purpose::Log };
    let (learner, mut workers) = learner_and_workers(options, live, progress, purpose)?;
    if let Some(directory) = &options.directory {
        make_directory(directory, "-d", options.access)?;
    }
    let (mut writer, services) = outputs(options, progress, live, capture.as_ref(), observer)?;
    let plan = pipeline::Plan {
        keying: Keying::of_options(options),
        packets_max: options.packets_max,
        capture_began_ns: options.capture_began_ns,
        cut_every_ns: options.cut_every_ns(),
        from_ns: options.from_ns.filter(|_| options.cut_every_s > 0),
        to_ns: options.to_ns.filter(|_| options.cut_every_s > 0),
        pins: options.pins.clone(),
    };
    let counted = pipeline::run(&mut source, &mut writer, learner, &mut workers, progress, &plan)?;
    let counted_last = writer.finish()?;
    let store = services.end();

    let mut summary = Summary {
        packets: counted.packets - counted.for_names,
        packets_for_names: counted.for_names,
        input_bytes: counted.input_bytes,
        times: counted.times,
        answers: counted.learner.answers,
        interrupted: progress.stop.load(Ordering::Relaxed),
        is_endless: capture.is_some() || options.listens(),
        kept: store.map(|counts| counts.all()),
        failure: source.failure().map(str::to_owned),
        ..Summary::default()
    };
    save_all_names(&counted.learner.names, options, &mut summary)?;
    // If the run ends before the input does, the filter has not seen all packets.
    summary.filtered_of = filtered
        .filter(|_| options.packets_max.is_none() && !summary.interrupted)
        .map(|counts| counts.seen.load(Ordering::Relaxed));
    add_damage_of(&counted, &source, &files, &mut summary);
    summary.skipped = counted.skipped;
    for worker in &workers {
        summary.add_flows(worker.summary());
        let (lookups, hits) = worker.lookups();
        summary.lookups += lookups;
        summary.lookup_hits += hits;
        summary.lookup_times.merge(worker.lookup_times());
    }
    summary.add_flows(&counted_last);
    // A packet that was cut on the wire is no fault of a live capture.
    summary.input_damaged = !summary.damaged.is_empty() && capture.is_none();
    if let Some(capture) = &capture {
        capture.add_to(&mut summary);
    }
    save_stats(&summary, options)?;
    Ok(summary)
}

/// The name learner, with the names that are known before the first packet, and the workers.
pub(crate) fn learner_and_workers(
    options: &Options,
    live: bool,
    progress: &Arc<Progress>,
    purpose: Purpose,
) -> Result<(NameLearner, Vec<Worker>), Error> {
    let count = options.cores.max(1);
    let (mut names, mut readers) = Names::new(
        Budgets::of(options.names_budget_bytes).names,
        count,
        options.seed,
        options.candidates_max,
        options.rules,
    )?;
    load_names(&mut names, options, options.ignore_vlan, &mut || {
        readers.iter_mut().for_each(|reader| {
            reader.sync();
        })
    })?;
    let with_cores = Options { cores: count, ..options.clone() };
    let shared = Arc::new(Shared::new(with_cores, names.learned(), purpose)?);
    let cache = names.cache().clone();
    let mut workers: Vec<Worker> = readers
        .into_iter()
        .enumerate()
        .map(|(me, reader)| Worker::new(me, count, reader, cache.clone(), Arc::clone(&shared)))
        .collect();
    let mut learner = NameLearner::new(names, options);
    learner.external_names = ExternalNames::open(options, live, progress)?;
    if learner.external_names.is_some() {
        learner.names.count_in_all_networks();
        if let Some(time_ns) = first_packet_ns(options, live, progress)? {
            learner.learn_before(time_ns, || {
                for worker in &mut workers {
                    worker.reader.sync();
                }
            })?;
        }
    }
    Ok((learner, workers))
}

/// Opens all outputs before the first byte is written, so that a failure leaves no half log.
fn outputs(
    options: &Options,
    progress: &Arc<Progress>,
    live: bool,
    capture: Option<&CaptureStats>,
    observer: Option<Observer>,
) -> Result<(Writer, Services), Error> {
    let packets = options.write_packets.as_ref();
    let packets = packets.map(|to| open_output(to, options.access)).transpose()?;
    let answers = in_directory(options, "dns.log");
    let answers = answers.map(|path| AnswerLog::open(path, options)).transpose()?;
    let log = Log::open(options)?;
    let sorter = (options.sort_by == SortBy::Start).then(|| Sorter::new(SORT_BYTES_MAX, None));
    let interfaces = capture.map_or(&[][..], CaptureStats::interfaces);
    let store = options.store.clone();
    let store =
        store.map(|store| larder_store::Options { ignores_vlan: options.ignore_vlan, ..store });
    let store = store.map(|store| StoreSink::open(&store, interfaces)).transpose()?;
    let services = Services::start(options, progress, capture, store.as_ref())?;
    let evidence = Evidence::new(options, observer);
    let to = Destinations { log, sorter, packets, answers, store_sink: store };
    let writer = Writer::new(to, evidence, options, progress, live)?;
    Ok((writer, services))
}

/// Adds the damage that the pipeline, the source and the other logs found.
pub(crate) fn add_damage_of(
    counted: &pipeline::Counted,
    source: &Source,
    files: &[String],
    summary: &mut Summary,
) {
    for (kind, found) in counted.damaged.iter().chain(&counted.learner.damaged) {
        let decode::Count { count, first_offset, file } = *found;
        let first_file = files.get(file as usize).cloned().unwrap_or_default();
        add_damage(&mut summary.damaged, kind, Damage { count, first_offset, first_file });
    }
    for damage in source.damage() {
        let found =
            Damage { count: damage.count, first_offset: damage.offset, first_file: damage.file };
        add_damage(&mut summary.damaged, damage.kind.as_str(), found);
    }
    if let Some(external_names) = &counted.learner.external_names {
        external_names.add_damage(summary);
    }
}

/// Services next to the pipeline: stored packets over HTTP, the control socket with metrics, the page.
struct Services {
    store: Option<Arc<larder_store::Counts>>,
    _server: Option<Server>,
    _control: Option<Control>,
    _page: Option<PageServer>,
}

impl Services {
    fn start(
        options: &Options,
        progress: &Arc<Progress>,
        capture: Option<&CaptureStats>,
        store_sink: Option<&StoreSink>,
    ) -> Result<Services, Error> {
        let store = store_sink.map(|store_sink| Arc::clone(store_sink.store().counts()));
        let server = match (&options.serve, store_sink) {
            (Some(serve), Some(store_sink)) => Some(store_sink.serve(serve)?),
            _ => None,
        };
        if let Some(server) = &server {
            for place in server.places() {
                options.log.of("store").info("listening").text("address", place);
            }
        }
        let (mut control, mut page) = (None, None);
        let budget_bytes = options.store.as_ref().map(|store| store.budget_bytes);
        let others = live::others(capture, store.as_ref().zip(budget_bytes));
        let figures = Arc::new(Figures::new(progress, others));
        if options.page.is_some() {
            page = PageServer::start(options, progress, &figures, capture, store_sink)?;
        }
        if options.operation != Operation::default() || capture.is_some() {
            let status = capture.map_or_else(String::new, CaptureStats::status);
            control = Some(Control::start(options, progress, figures, &status)?);
        }
        Ok(Services { store, _server: server, _control: control, _page: page })
    }

    /// Ends them; returns the counts of the packet store.
    fn end(self) -> Option<Arc<larder_store::Counts>> {
        self.store
    }
}

/// Time of the first packet of captures that can be read twice, ns.
fn first_packet_ns(
    options: &Options,
    live: bool,
    progress: &Progress,
) -> Result<Option<i64>, Error> {
    if live || options.read.iter().chain(&options.names_read).any(|input| *input == Endpoint::Pipe)
    {
        return Ok(None);
    }
    let inputs = open_inputs(&options.read, &options.log, &progress.stop)?;
    let for_names = open_inputs(&options.names_read, &options.log, &progress.stop)?;
    let (selection, of_source) = (selection_of(options)?, SourceOptions::default());
    let source = Source::open_selected(inputs, for_names, selection, of_source, &progress.stop);
    let mut source = match source {
        Err(InputError::Stopped) => return Ok(None),
        source => source?,
    };
    let mut decoded = Decoded::default();
    while let Some(batch) = source.next_batch(&progress.stop) {
        decode(&batch, 1, Keying::of_options(options), &mut decoded);
        if decoded.first_ns.is_some() {
            break;
        }
    }
    Ok(decoded.first_ns)
}
