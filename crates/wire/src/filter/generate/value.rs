//! Generates comparisons: first the checks of the protocols that they load from, then the loads.

use super::*;
use crate::filter::tree::{Layer, Relation, Value};

impl Generator {
    pub(super) fn compare(
        &mut self,
        left: &Value,
        relation: Relation,
        right: &Value,
        yes: Label,
        no: Label,
    ) -> Result<(), &'static str> {
        self.check(left, no);
        self.check(right, no);
        let (code, yes, no) = match relation {
            Relation::Greater => (IF_GREATER, yes, no),
            Relation::AtLeast => (IF_AT_LEAST, yes, no),
            Relation::Equal => (IF_EQUAL, yes, no),
            Relation::AtMost => (IF_GREATER, no, yes),
            Relation::Less => (IF_AT_LEAST, no, yes),
            Relation::Differs => (IF_EQUAL, no, yes),
        };
        self.value(left, 0)?;
        match right {
            Value::Number(number) => self.code.branch(code, *number, yes, no),
            _ => {
                self.operand_to_x(right, 0)?;
                self.code.branch(code + WITH_X, 0, yes, no);
            }
        }
        Ok(())
    }

    /// Continues after this code if the frame has all protocols that the value loads from.
    fn check(&mut self, value: &Value, no: Label) {
        match value {
            Value::Number(_) | Value::Len => {}
            Value::Negative(value) => self.check(value, no),
            Value::Computed { left, right, .. } => {
                self.check(left, no);
                self.check(right, no);
            }
            Value::Load { from, offset, .. } => {
                let ether_type = match from {
                    Layer::Link => None,
                    Layer::Network(ether_type) => Some(*ether_type),
                    Layer::Transport(_) => Some(IPV4),
                    Layer::Icmp6 => Some(IPV6),
                };
                if let Some(ether_type) = ether_type {
                    let next = self.within(ether_type, no);
                    self.code.mark(next);
                }
                self.check(offset, no);
                match from {
                    Layer::Transport(number) => {
                        self.one_of(Some(*number), 9, no);
                        self.first_fragment(no);
                    }
                    Layer::Icmp6 => self.one_of(Some(58), 6, no),
                    _ => {}
                }
            }
        }
    }

    /// Sets A to the value. The scratch words hold `used` operands already.
    fn value(&mut self, value: &Value, used: u32) -> Result<(), &'static str> {
        if !self.code.has_room() {
            return Err(TOO_LONG);
        }
        match value {
            Value::Number(number) => self.code.plain(LOAD_NUMBER, *number),
            Value::Len => self.code.plain(LOAD_LEN, 0),
            Value::Negative(value) => {
                self.value(value, used)?;
                self.code.plain(NEGATE, 0);
            }
            Value::Computed { operation, left, right } => {
                self.value(left, used)?;
                let code = COMPUTE + *operation as u16;
                match &**right {
                    Value::Number(number) => self.code.plain(code, *number),
                    right => {
                        self.operand_to_x(right, used)?;
                        self.code.plain(code + WITH_X, 0);
                    }
                }
            }
            Value::Load { from, offset, bytes } => return self.load(*from, offset, *bytes, used),
        }
        Ok(())
    }

    /// Sets X to the value and keeps A.
    fn operand_to_x(&mut self, value: &Value, used: u32) -> Result<(), &'static str> {
        if used >= OPERANDS_MAX {
            return Err(TOO_DEEP);
        }
        self.code.plain(STORE, used);
        self.value(value, used + 1)?;
        self.code.plain(A_TO_X, 0);
        self.code.plain(LOAD_SCRATCH, used);
        Ok(())
    }

    fn load(
        &mut self,
        from: Layer,
        offset: &Value,
        bytes: u8,
        used: u32,
    ) -> Result<(), &'static str> {
        let load = match bytes {
            4 => LOAD_WORD,
            2 => LOAD_HALF,
            _ => LOAD_BYTE,
        };
        self.value(offset, used)?;
        let at = match from {
            Layer::Link => {
                self.code.plain(A_TO_X, 0);
                0
            }
            Layer::Network(_) | Layer::Icmp6 => {
                if self.shifted {
                    self.code.plain(LOAD_X_SCRATCH, SCRATCH_SHIFT);
                    self.code.plain(ADD_X, 0);
                }
                self.code.plain(A_TO_X, 0);
                self.payload_at + if from == Layer::Icmp6 { 40 } else { 0 }
            }
            Layer::Transport(_) => {
                if self.shifted {
                    if used >= OPERANDS_MAX {
                        return Err(TOO_DEEP);
                    }
                    self.code.plain(STORE, used);
                    self.header_to_x();
                    self.code.plain(LOAD_SCRATCH, used);
                } else {
                    self.header_to_x();
                }
                self.code.plain(ADD_X, 0);
                self.code.plain(A_TO_X, 0);
                self.payload_at
            }
        };
        self.code.plain(load + INDIRECT, at);
        Ok(())
    }
}
