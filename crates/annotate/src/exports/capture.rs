//! `--flows-read`: export packets out of captures.
//!
//! Export packets are UDP datagrams to one of the ports of exporters; all other packets are passed over. The
//! sender of the datagram is the exporter, and the packet's time is when the receiver got it.
//!
//! Bounds: as the source's; a fragment is no datagram, and is counted (`flows_fragment`).

use std::sync::atomic::Ordering;

use larder_io::input::Input;

use super::collect::Collector;
use super::record::Export;
use crate::decode::{Decoded, Keying, decode};
use crate::flow::protocol;
use crate::knowledge::open_packets;
use crate::options::{Damage, Options, Summary, add_damage};
use crate::{Error, Progress};

/// Gives all flows of the captures to `take`.
pub fn read(
    inputs: Vec<Input>,
    options: &Options,
    collector: &mut Collector,
    summary: &mut Summary,
    progress: &Progress,
    mut take: impl FnMut(Export) -> Result<(), Error>,
) -> Result<(), Error> {
    let files: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let files = files.join(", ");
    let mut source = open_packets(inputs, "", progress)?;
    let keying = Keying { seed: options.seed, ignores_vlan: true };
    let mut decoded = Decoded::default();
    let mut failed = None;
    let damage = |kind, offset: u64, count, summary: &mut Summary| {
        let found = Damage { count, first_offset: offset, first_file: files.clone() };
        add_damage(&mut summary.damaged, kind, found);
    };
    while let Some(batch) = source.next_batch(&progress.stop) {
        decode(&batch, 1, keying, &mut decoded);
        for event in decoded.lanes.iter().flatten() {
            let key = event.key;
            let (exporter, port) = match event.from_low {
                true => (key.low, key.high_port),
                false => (key.high, key.low_port),
            };
            if key.protocol != protocol::UDP || !super::PORTS.contains(&port) {
                continue;
            }
            let start = event.payload_offset as usize;
            let payload = batch.bytes.get(start..start + event.payload_len as usize);
            let refused = collector.datagram(
                exporter,
                event.time_ns,
                payload.unwrap_or_default(),
                |export| {
                    if let Err(error) = take(export) {
                        failed.get_or_insert(error);
                    }
                },
            );
            if let Err(kind) = refused {
                damage(kind, batch.base_offset + start as u64, 1, summary);
            }
            if let Some(error) = failed.take() {
                return Err(error);
            }
        }
        let fragments = decoded.rare.iter().filter(|rare| rare.packet.fragment.is_some()).count();
        if fragments > 0 {
            damage("flows_fragment", batch.base_offset, fragments as u64, summary);
        }
        for (kind, found) in &decoded.damaged {
            damage(kind, found.first_offset, found.count, summary);
        }
        summary.packets += u64::from(decoded.packets);
        summary.input_bytes = summary.input_bytes.max(batch.base_offset + decoded.end as u64);
        progress.packets.store(summary.packets, Ordering::Relaxed);
        progress.input_bytes.store(summary.input_bytes, Ordering::Relaxed);
    }
    for found in source.damage() {
        let found_damage =
            Damage { count: found.count, first_offset: found.offset, first_file: found.file };
        add_damage(&mut summary.damaged, found.kind.as_str(), found_damage);
    }
    Ok(())
}
