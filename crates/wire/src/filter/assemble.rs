//! Assembles code with labels into a program.
//!
//! A comparison can skip at most 255 instructions. If a label is further away, the assembler inserts
//! an unconditional jump after the comparison. That moves the code after it, so the assembler
//! repeats this until every jump reaches its label. A long jump stays long, so the repetition ends.

use super::{INSTRUCTIONS_MAX, Instruction};

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Code under construction.
#[derive(Debug, Default)]
pub(super) struct Code {
    items: Vec<Item>,
    /// For each label the index of the item after it.
    labels: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Item {
    Plain {
        code: u16,
        k: u32,
    },
    /// A comparison. The flags: the jump needs an instruction of its own.
    Branch {
        code: u16,
        k: u32,
        yes: Label,
        no: Label,
        yes_long: bool,
        no_long: bool,
    },
    /// An unconditional jump to a label.
    Always(Label),
}

pub(super) const TOO_LONG: &str =
    "the program for this filter would be too long for the kernel; write fewer tests";

const JUMP_ALWAYS: u16 = 0x05;
const SKIP_MAX: usize = 255;

impl Code {
    /// A new label without a place.
    pub fn label(&mut self) -> Label {
        self.labels.push(usize::MAX);
        Label(self.labels.len() - 1)
    }

    /// Puts the label here.
    pub fn mark(&mut self, label: Label) {
        self.labels[label.0] = self.items.len();
    }

    pub fn plain(&mut self, code: u16, k: u32) {
        self.items.push(Item::Plain { code, k });
    }

    /// Compares, and continues at `yes` or `no`.
    pub fn branch(&mut self, code: u16, k: u32, yes: Label, no: Label) {
        self.items.push(Item::Branch { code, k, yes, no, yes_long: false, no_long: false });
    }

    pub fn always(&mut self, label: Label) {
        self.items.push(Item::Always(label));
    }

    /// False if the program is already too long: the caller can stop generating.
    pub fn has_room(&self) -> bool {
        self.items.len() <= INSTRUCTIONS_MAX
    }

    /// The program. Every used label must have a place, behind its uses.
    pub fn assemble(mut self) -> Result<Vec<Instruction>, &'static str> {
        if !self.has_room() {
            return Err(TOO_LONG);
        }
        let mut places = self.places();
        while self.lengthen(&places) {
            places = self.places();
        }
        let mut program = Vec::with_capacity(places[self.items.len()]);
        for (at, item) in self.items.iter().enumerate() {
            self.emit(item, places[at], &places, &mut program);
        }
        if program.len() > INSTRUCTIONS_MAX {
            return Err(TOO_LONG);
        }
        Ok(program)
    }

    /// The places of all items, and the end of the last.
    fn places(&self) -> Vec<usize> {
        let mut place = 0;
        let mut places = Vec::with_capacity(self.items.len() + 1);
        for item in &self.items {
            places.push(place);
            place += match item {
                Item::Branch { yes_long, no_long, .. } => {
                    1 + usize::from(*yes_long) + usize::from(*no_long)
                }
                _ => 1,
            };
        }
        places.push(place);
        places
    }

    fn place(&self, label: Label, places: &[usize]) -> usize {
        places[self.labels[label.0]]
    }

    /// Makes each jump long that would skip too many instructions; false if there was none.
    fn lengthen(&mut self, places: &[usize]) -> bool {
        let mut changed = false;
        for at in 0..self.items.len() {
            let Item::Branch { yes, no, .. } = self.items[at] else { continue };
            let next = places[at] + 1;
            let far = |label: Label| self.place(label, places) - next > SKIP_MAX;
            let (yes_far, no_far) = (far(yes), far(no));
            let Item::Branch { yes_long, no_long, .. } = &mut self.items[at] else { continue };
            changed |= (yes_far && !*yes_long) || (no_far && !*no_long);
            *yes_long |= yes_far;
            *no_long |= no_far;
        }
        changed
    }

    fn emit(&self, item: &Item, at: usize, places: &[usize], program: &mut Vec<Instruction>) {
        let always = |place: usize, label: Label| {
            let k = (self.place(label, places) - (place + 1)) as u32;
            Instruction { code: JUMP_ALWAYS, jt: 0, jf: 0, k }
        };
        match *item {
            Item::Plain { code, k } => program.push(Instruction { code, jt: 0, jf: 0, k }),
            Item::Always(label) => program.push(always(at, label)),
            Item::Branch { code, k, yes, no, yes_long, no_long } => {
                // `lengthen` has checked that a short jump fits.
                let short = |label: Label| (self.place(label, places) - (at + 1)) as u8;
                let jt = if yes_long { 0 } else { short(yes) };
                let jf = if no_long { u8::from(yes_long) } else { short(no) };
                program.push(Instruction { code, jt, jf, k });
                if yes_long {
                    program.push(always(at + 1, yes));
                }
                if no_long {
                    program.push(always(at + 1 + usize::from(yes_long), no));
                }
            }
        }
    }
}
