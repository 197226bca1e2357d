//! Parses expressions: numbers, loads, arithmetic, and comparisons.

use super::{ICMP6, Parser, Part, Proto, Qualifiers, proto};
use crate::filter::tree::{Layer, Operation, Relation, Test, Tree, Value};
use crate::filter::words::Kind;
use crate::filter::{FilterError, NESTING_MAX, ports};

impl<'a> Parser<'a> {
    /// A value, and its comparison if one follows.
    pub(super) fn compared(
        &mut self,
        qualifiers: Option<Qualifiers<'a>>,
        only_things: bool,
    ) -> Result<Part<'a>, FilterError> {
        self.operands = 0;
        let left = match self.value(qualifiers, 0, only_things)? {
            Part::Number(value) => value,
            tree => return Ok(tree),
        };
        let relation = match self.kind() {
            Some(Kind::Sign(">")) => Relation::Greater,
            Some(Kind::Sign(">=")) => Relation::AtLeast,
            Some(Kind::Sign("=" | "==")) => Relation::Equal,
            Some(Kind::Sign("<=")) => Relation::AtMost,
            Some(Kind::Sign("<")) => Relation::Less,
            Some(Kind::Sign("!=")) => Relation::Differs,
            _ => return Ok(Part::Number(left)),
        };
        if only_things {
            return Err(self.expected("an address, a port or a number, as the word before has it"));
        }
        self.at += 1;
        let right = self.number(0)?;
        Ok(Part::Tree(Tree::Test(Test::Compare { left, relation, right }), None))
    }

    /// A value where no test is allowed.
    fn number(&mut self, binding: u8) -> Result<Value, FilterError> {
        if !self.begins_value() {
            return Err(self.expected("a number, \"len\" or PROTOCOL[OFFSET:SIZE]"));
        }
        let start = self.at;
        match self.value(None, binding, false)? {
            Part::Number(value) => Ok(value),
            Part::Tree(..) => {
                Err(self.fail(start, "a test stands where a number is expected".to_owned()))
            }
        }
    }

    /// Operands and operators of higher precedence than `binding`, or tests in parentheses.
    fn value(
        &mut self,
        qualifiers: Option<Qualifiers<'a>>,
        binding: u8,
        only_things: bool,
    ) -> Result<Part<'a>, FilterError> {
        let mut left = match self.operand(qualifiers, only_things)? {
            Part::Number(value) => value,
            tree => return Ok(tree),
        };
        while let Some((operation, own, right)) = self.operation()
            && own > binding
        {
            let sign = self.at;
            self.at += 1;
            self.count_operand()?;
            self.deeper()?;
            let right = self.number(right)?;
            self.nesting -= 1;
            check_constant(operation, &right).map_err(|what| self.fail(sign, what.to_owned()))?;
            left = Value::Computed { operation, left: Box::new(left), right: Box::new(right) };
        }
        Ok(Part::Number(left))
    }

    /// Left operands of left operands are nested as well, so they count as levels.
    fn count_operand(&mut self) -> Result<(), FilterError> {
        self.operands += 1;
        match self.operands > NESTING_MAX {
            true => {
                let what = format!("more than {NESTING_MAX} operators; write a shorter expression");
                Err(self.fail(self.at, what))
            }
            false => Ok(()),
        }
    }

    /// The operator here, how strongly it binds, and how strongly its right operand is bound.
    /// libpcap gives `%` and `^` no precedence: they take the operand before them and everything
    /// after them.
    fn operation(&self) -> Option<(Operation, u8, u8)> {
        let Some(Kind::Sign(sign)) = self.kind() else { return None };
        Some(match sign {
            "|" => (Operation::Or, 1, 1),
            "&" => (Operation::And, 2, 2),
            "<<" => (Operation::Lsh, 3, 3),
            ">>" => (Operation::Rsh, 3, 3),
            "+" => (Operation::Add, 4, 4),
            "-" => (Operation::Sub, 4, 4),
            "*" => (Operation::Mul, 5, 5),
            "/" => (Operation::Div, 5, 5),
            "%" => (Operation::Mod, 7, 0),
            "^" => (Operation::Xor, 7, 0),
            _ => return None,
        })
    }

    fn operand(
        &mut self,
        qualifiers: Option<Qualifiers<'a>>,
        only_things: bool,
    ) -> Result<Part<'a>, FilterError> {
        if self.take_sign("(") {
            self.deeper()?;
            let operands = self.operands;
            let part = self.joined(qualifiers, only_things)?;
            self.operands = operands.max(self.operands);
            self.nesting -= 1;
            self.close()?;
            // The inner value ends there.
            return Ok(match part {
                Part::Tree(tree, _) => Part::Tree(tree, qualifiers),
                number => number,
            });
        }
        if self.take_sign("-") {
            self.count_operand()?;
            self.deeper()?;
            let value = self.number(6)?;
            self.nesting -= 1;
            return Ok(Part::Number(Value::Negative(Box::new(value))));
        }
        if let Some(Kind::Number(number)) = self.kind() {
            self.at += 1;
            return Ok(Part::Number(Value::Number(number)));
        }
        let word = self.keyword();
        if let Some(number) = ports::constant(word) {
            self.at += 1;
            return Ok(Part::Number(Value::Number(number)));
        }
        if matches!(word, "len" | "length") {
            self.at += 1;
            return Ok(Part::Number(Value::Len));
        }
        self.load().map(Part::Number)
    }

    /// `NAME[OFFSET]` or `NAME[OFFSET:SIZE]`.
    fn load(&mut self) -> Result<Value, FilterError> {
        let from = match proto(self.word()) {
            Some(Proto::Link) => Layer::Link,
            Some(Proto::Network(ether_type)) => Layer::Network(ether_type),
            Some(Proto::Transport(ICMP6, ..)) => Layer::Icmp6,
            Some(Proto::Transport(number, true, _)) if !matches!(number, 50 | 51) => {
                Layer::Transport(number)
            }
            _ => {
                return Err(self
                    .expected("a protocol before \"[\": ether, ip, ip6, arp, tcp, udp, icmp, …"));
            }
        };
        self.at += 1;
        if !self.take_sign("[") {
            return Err(self.expected("\"[\""));
        }
        self.count_operand()?;
        self.deeper()?;
        let offset = Box::new(self.number(0)?);
        self.nesting -= 1;
        let mut bytes = 1;
        if self.take_sign(":") {
            match self.kind() {
                Some(Kind::Number(size @ (1 | 2 | 4))) => bytes = size as u8,
                _ => return Err(self.expected("a size of 1, 2 or 4 bytes")),
            }
            self.at += 1;
        }
        if !self.take_sign("]") {
            return Err(self.expected("\"]\" or \":\" and a size of 1, 2 or 4"));
        }
        Ok(Value::Load { from, offset, bytes })
    }
}

/// Rejects a constant right operand for which the result is undefined.
fn check_constant(operation: Operation, right: &Value) -> Result<(), &'static str> {
    match (operation, right) {
        (Operation::Div | Operation::Mod, Value::Number(0)) => Err("a division by 0"),
        (Operation::Lsh | Operation::Rsh, Value::Number(32..)) => {
            Err("a shift by more than 31 bits; a number has 32")
        }
        _ => Ok(()),
    }
}
