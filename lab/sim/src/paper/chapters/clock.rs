//! Figures 7 to 12 and Table 2: what is measured by the clock.

use super::{Block, bars, heading, hidden, picture, rows, text};
use crate::paper::measured::{Measured, cores_text};
use crate::paper::reported::{INSERTS, SYSTEMS};
use larder_bench::result_table::{Cell, ResultTable};

const LEFT_OUT: &str = "Left out in this run.";

pub(super) fn inserts(measured: Option<&Measured>) -> Vec<Block> {
    let mut blocks = vec![heading("Figures 7 to 9: time of an insert")];
    let Some(measured) = measured else {
        blocks.push(text(LEFT_OUT));
        return blocks;
    };
    let mut table = ResultTable::new(&["figure", "cores", "who", "the_paper's_ns", "here_ns"]);
    for insert in INSERTS {
        let own = [insert.own_ns, insert.fifo_ns, insert.lru_ns];
        for (name, ns) in measured.stands_for.iter().zip(own) {
            let here = measured.insert_ns(name, insert.cores, 100);
            table.push([
                u64::from(insert.figure).into(),
                (insert.cores as u64).into(),
                name.clone().into(),
                Cell::Number(ns, 0),
                here.map_or(Cell::Unknown, |ns| Cell::Number(ns, 0)),
            ]);
        }
    }
    blocks.push(text("Into a full table (load factor 100 %); a dash is a number of cores that this machine lacks."));
    blocks.push(rows("insert-latency-paper", table));
    for cores in measured.cores_measured() {
        blocks.push(picture(&format!("insert-latency-{cores}"), &measured.insert_figure(cores)));
    }
    let [_, fifo, lru] = &measured.stands_for;
    let here = match (measured.insert_ns(lru, 1, 100), measured.insert_ns(fifo, 1, 100)) {
        (Some(lru), Some(fifo)) => format!("{:.2} times the time", lru / fifo),
        _ => "an unknown share of the time".to_owned(),
    };
    blocks.push(Block::List(vec![
        "The paper does not say what its load factor is of; here it is the share of the entries that the table is \
         built for, and each point is the mean over a tenth of the table. On one core times are those that the thread \
         ran, on several they are by the clock, from the first thread's start to the last one's end."
            .to_owned(),
        format!(
            "Its LRU takes {:.1} times as long as its FIFO in a full table on one core; an LRU under one lock takes {here} \
             of the engine's FIFO here. A list and a map need no search, and we suppose that the paper's searched.",
            INSERTS[0].lru_ns / INSERTS[0].fifo_ns,
        ),
        "Its LRU needs 141 µs an insert on eight cores, 118 times what one core needs. A lock alone does not explain \
         that; it is no measure of what an LRU must cost."
            .to_owned(),
    ]));
    let columns = ["contestant", "cores", "load_percent", "ns", "ns_low", "ns_high"];
    blocks.push(hidden(
        "insert-latency",
        Measured::table(&measured.inserts, &columns, measured.rounds),
    ));
    blocks
}

pub(super) fn throughput(measured: Option<&Measured>) -> Vec<Block> {
    let mut blocks = vec![heading("Figures 10 to 12: throughput")];
    let Some(measured) = measured else {
        blocks.push(text(LEFT_OUT));
        return blocks;
    };
    blocks.push(text(
        "Keys are uniform over twice what fits, the hardest case for a cache; the paper does not say what its keys were. \
         Its text has 30 % put and 70 % get in one place, the caption of Figure 11, Table 2 and the conclusions have the \
         reverse; both are measured.",
    ));
    let mut percents: Vec<usize> = measured.throughput.iter().map(|point| point.percent).collect();
    percents.dedup();
    percents.sort_unstable_by(|a, b| b.cmp(a));
    percents.dedup();
    for &percent in &percents {
        let mut chart = measured.throughput_bars(percent, false);
        let figure = if percent == 100 { "Figure 10" } else { "Figure 11" };
        chart.title = format!("{figure}: {}", chart.title.to_lowercase());
        blocks.push(bars(&format!("throughput-{percent}"), &chart));
    }
    for &percent in &percents {
        let mut chart = measured.throughput_bars(percent, true);
        chart.title = format!("Figure 12: {}", chart.title.to_lowercase());
        blocks.push(bars(&format!("per-core-{percent}"), &chart));
    }
    blocks.push(text(
        "One main behind one lock takes the puts of all cores, so that a core's share must fall as cores come; the \
         engine has several mains (shards), which moves that point. The paper's figures fall from the first core on.",
    ));
    let columns = ["contestant", "cores", "put_percent", "mops", "mops_low", "mops_high"];
    blocks.push(hidden(
        "throughput",
        Measured::table(&measured.throughput, &columns, measured.rounds),
    ));
    blocks
}

pub(super) fn systems(measured: Option<&Measured>) -> Vec<Block> {
    let mut table = ResultTable::new(&["system", "get_%", "cores", "Mops", "Mops_a_core", "from"]);
    for system in SYSTEMS {
        let cores = system.cores.parse::<f64>().ok();
        table.push([
            system.name.into(),
            u64::from(system.get_percent).into(),
            system.cores.into(),
            Cell::Number(system.mops, 2),
            cores.map_or(Cell::Unknown, |cores| Cell::Number(system.mops / cores, 2)),
            "the paper's Table 2".into(),
        ]);
    }
    if let Some(measured) = measured {
        let cores = measured.cores_measured().last().copied().unwrap_or(1);
        for point in measured.throughput.iter().filter(|point| point.cores == cores) {
            if point.name == measured.contestants[0] {
                table.push([
                    point.name.clone().into(),
                    (100 - point.percent.min(100) as u64).into(),
                    cores.to_string().into(),
                    Cell::Number(point.value[0], 2),
                    Cell::Number(point.value[0] / cores as f64, 2),
                    format!("here, {}", cores_text(cores)).into(),
                ]);
            }
        }
    }
    vec![
        heading("Table 2: other systems"),
        text(
            "As the paper cites them, each from its own machine, mix and keys: neither its comparison nor ours with them is \
             one of like with like. Other caches measured beside the engine on one machine are what `larder-lab bench engine` \
             shows.",
        ),
        rows("table-2", table),
    ]
}
