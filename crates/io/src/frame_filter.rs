//! A filter in tcpdump's language over frames of captures with any link types.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_wire::filter::{FilterError, Instruction, LinkType, Origin, compile, run};

/// The value that a filter returns for a selected frame; files are not cut.
const TAKEN: u32 = 1;

/// Takes the frames that a text describes.
#[derive(Clone, Debug)]
pub struct FrameFilter {
    text: String,
    /// For each link type that was met.
    programs: Vec<(u16, Vec<Instruction>)>,
    counts: Arc<FilterCounts>,
}

/// The decisions of a filter.
#[derive(Debug, Default)]
pub struct FilterCounts {
    /// Frames that the filter checked.
    pub seen: AtomicU64,
    /// Frames that the filter selected.
    pub taken: AtomicU64,
}

impl FrameFilter {
    /// Compiles a filter; an error names the position in the text.
    pub fn new(text: &str) -> Result<FrameFilter, FilterError> {
        // Ethernet supports every primitive that any link type supports.
        compile(text, LinkType::Ethernet, Origin::File, TAKEN)?;
        Ok(FrameFilter { text: text.to_owned(), programs: Vec::new(), counts: Arc::default() })
    }

    /// The decisions so far.
    pub fn counts(&self) -> Arc<FilterCounts> {
        Arc::clone(&self.counts)
    }

    /// True if the filter selects the frame, which the counts have if `is_counted`. An error: the
    /// filter cannot be compiled for this link type.
    pub(crate) fn takes(
        &mut self,
        link_type: u16,
        frame: &[u8],
        original_len: u32,
        is_counted: bool,
    ) -> Result<bool, String> {
        let known = self.programs.iter().position(|(known, _)| *known == link_type);
        let number = match known {
            Some(number) => number,
            None => {
                let program = LinkType::of(link_type)
                    .and_then(|link| compile(&self.text, link, Origin::File, TAKEN));
                self.programs.push((link_type, program.map_err(|error| error.what)?));
                self.programs.len() - 1
            }
        };
        let is_taken = run(&self.programs[number].1, frame, original_len) != 0;
        if is_counted {
            self.counts.seen.fetch_add(1, Ordering::Relaxed);
            self.counts.taken.fetch_add(u64::from(is_taken), Ordering::Relaxed);
        }
        Ok(is_taken)
    }
}
