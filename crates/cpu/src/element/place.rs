//! Places for the registers of a region whose rows fit into a tile.

use super::{Place, Plan, Step, is_half};
use meshwork_graph::ops::{BinaryOp, Code, Element, ReduceOp, UnaryOp};

impl Plan<'_> {
    /// Gives every register a place. A slot is used again after the last instruction that reads it.
    pub(super) fn place(&mut self) {
        let inputs = self.sources.len();
        let count = self.places.len();
        let mut last_use = vec![usize::MAX; count];
        for (index, instr) in self.op.code.iter().enumerate() {
            for &arg in instr.reads() {
                last_use[usize::from(arg)] = index;
            }
        }
        for (index, instr) in self.op.code.iter().enumerate() {
            self.rounded[index] = is_half(instr.dtype) && !is_exact(instr.op) && last_use[inputs + index] != usize::MAX;
        }
        let mut direct = vec![None; count];
        for (k, sink) in self.sinks.iter().enumerate() {
            if sink.stored {
                // Kept until the tile is stored.
                last_use[sink.register] = usize::MAX - 1;
            } else {
                direct[sink.register] = Some(Place::Output(k));
            }
        }
        let mut free: Vec<usize> = vec![];
        let mut slots = 0;
        let mut take = |free: &mut Vec<usize>| {
            free.pop().unwrap_or_else(|| {
                slots += 1;
                slots - 1
            })
        };
        let mut loaded = vec![false; count];
        // Slots of fixed registers are never given to others, so they come first.
        for register in 0..count {
            let fixed = match self.sources.get(register) {
                Some(source) => source.walk.is_constant() && last_use[register] != usize::MAX,
                None => matches!(self.op.code[register - inputs].op, Code::Const(_)),
            };
            if fixed {
                self.places[register] = Place::Slot(take(&mut free));
                self.fixed.push(register as u16);
                loaded[register] = true;
                last_use[register] = usize::MAX;
            } else if register < inputs
                && self.sources[register].walk.is_dense()
                && !is_half(self.sources[register].dtype)
            {
                self.places[register] = Place::Input(register);
                loaded[register] = true;
            }
        }
        for (index, instr) in self.op.code.iter().enumerate() {
            let register = inputs + index;
            if loaded[register] {
                continue;
            }
            let args = instr.reads();
            for &arg in args {
                let arg = usize::from(arg);
                if !loaded[arg] {
                    let slot = take(&mut free);
                    self.places[arg] = Place::Slot(slot);
                    loaded[arg] = true;
                    self.steps.push(Step::Load { input: arg, slot });
                }
            }
            let to = direct[register].unwrap_or_else(|| Place::Slot(take(&mut free)));
            self.places[register] = to;
            loaded[register] = true;
            self.steps.push(Step::Compute { index, to });
            for (i, &arg) in args.iter().enumerate() {
                if let Place::Slot(slot) = self.places[usize::from(arg)]
                    && last_use[usize::from(arg)] == index
                    && !args[..i].contains(&arg)
                {
                    free.push(slot);
                }
            }
            if let Place::Slot(slot) = to
                && last_use[register] == usize::MAX
            {
                free.push(slot);
            }
        }
        self.spare = take(&mut free);
        self.slots = slots;
    }
}

/// Whether the result of narrow floats needs no rounding.
pub(super) fn is_exact(op: Code) -> bool {
    use UnaryOp::*;
    matches!(
        op,
        Code::Element(
            Element::Select
                | Element::Unary(Neg | Abs | Sign | Floor | Ceil | Round | Relu)
                | Element::Binary(BinaryOp::Max | BinaryOp::Min)
        ) | Code::Reduce(ReduceOp::Max | ReduceOp::Min, _)
            | Code::Spread
            | Code::Gather(..)
            | Code::Scatter(..)
    )
}
