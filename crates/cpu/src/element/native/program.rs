//! Machine instructions before their values have registers, and how they are written one after the other.

use super::target::Target;
use crate::math::Table;
use iced_x86::Code as X86;
use smallvec::{SmallVec, smallvec};
use std::marker::PhantomData;

/// The value of a step, by its number.
pub type Value = u16;

/// The elements of a vector in memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Elements {
    pub address: u16,
    /// Bytes of an element.
    pub bytes: u32,
    /// Which of the loop's vectors.
    pub part: u32,
}

/// What a machine instruction reads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Source {
    Value(Value),
    /// 32 bits for all lanes, from the table of constants.
    Constant(u32),
    /// The numbers of a table from one of them on, as many as there are lanes.
    Table {
        table: &'static Table,
        first: u8,
    },
    /// The elements at an address.
    Memory(Elements),
    /// The f32 at an address.
    One {
        address: u16,
    },
    /// Lanes of a sum.
    Sum(u16),
}

/// Where the result of a machine instruction goes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Place {
    Vector,
    Mask,
    /// The elements at an address.
    Memory(Elements),
    /// Lanes of a sum, which stay in their register from vector to vector.
    Sum(u16),
    /// Lines are asked for.
    Nowhere,
}

/// A machine instruction.
#[derive(Clone, Debug)]
pub struct Step {
    pub code: X86,
    pub to: Place,
    pub sources: SmallVec<[Source; 2]>,
    pub immediate: Option<u8>,
    /// The first source is a value whose register the machine instruction gives the result.
    pub over: bool,
    /// Lanes outside of this mask become zeros.
    pub lanes: Option<Value>,
}

impl Step {
    /// The values that it reads.
    pub fn reads(&self) -> impl Iterator<Item = Value> {
        let values = self.sources.iter().filter_map(|source| match *source {
            Source::Value(value) => Some(value),
            _ => None,
        });
        values.chain(self.lanes)
    }

    /// The same with other numbers for the values.
    fn renumbered(&self, values: &[Value]) -> Step {
        let value = |value: Value| values[usize::from(value)];
        let source = |&source: &Source| match source {
            Source::Value(old) => Source::Value(value(old)),
            source => source,
        };
        Step { sources: self.sources.iter().map(source).collect(), lanes: self.lanes.map(value), ..self.clone() }
    }

    /// The same for one of two vectors.
    fn of_part(mut self, part: u32) -> Step {
        let of_sum = |sum: u16| 2 * sum + part as u16;
        for source in &mut self.sources {
            match source {
                Source::Memory(elements) => elements.part = part,
                Source::Sum(sum) => *sum = of_sum(*sum),
                _ => {}
            }
        }
        match &mut self.to {
            Place::Memory(elements) => elements.part = part,
            Place::Sum(sum) => *sum = of_sum(*sum),
            _ => {}
        }
        self
    }
}

/// The loop's body: step number `i` defines value `i`.
#[derive(Debug)]
pub struct Program {
    pub steps: Vec<Step>,
    /// The first so many steps come before the loop, and their values keep their registers.
    pub fixed: usize,
    /// Addresses of operands.
    pub addresses: usize,
    /// Vectors that are computed at once.
    pub parts: usize,
    /// The addresses where the lanes of sums go at the end of a block, of each as many registers as there are vectors at once.
    pub sums: Vec<u16>,
    /// Elements of such a block.
    pub block: usize,
    /// The address of elements at whose lines rows are cut into vectors.
    pub cuts_at: Option<u16>,
}

impl Program {
    /// The same for two vectors side by side: one is computed while the other waits, and stores are of twice the length. A
    /// constant is one for both.
    pub fn doubled(&self) -> Program {
        let mut steps: Vec<Step> = Vec::with_capacity(2 * self.steps.len());
        let mut values: [Vec<Value>; 2] = Default::default();
        for step in &self.steps {
            let is_shared = !step.sources.is_empty() && step.sources.iter().all(|s| matches!(s, Source::Constant(_)));
            // Lines for both.
            let is_shared = is_shared || step.to == Place::Nowhere;
            for (part, values) in values.iter_mut().enumerate() {
                if !(is_shared && part == 1) {
                    steps.push(step.renumbered(values).of_part(part as u32));
                }
                values.push((steps.len() - 1) as Value);
            }
        }
        Program { steps, fixed: 0, parts: 2, sums: self.sums.clone(), ..*self }
    }

    /// Constants, tables and numbers that are one for all elements of a row, those that are read most often first.
    pub fn spread(&self) -> Vec<Source> {
        let is_spread = |source: &&Source| !matches!(source, Source::Value(_) | Source::Memory(_) | Source::Sum(_));
        let mut found: Vec<(Source, usize)> = vec![];
        for &source in self.steps.iter().flat_map(|step| &step.sources).filter(is_spread) {
            match found.iter_mut().find(|(known, _)| *known == source) {
                Some((_, times)) => *times += 1,
                None => found.push((source, 1)),
            }
        }
        found.sort_by_key(|&(_, times)| std::cmp::Reverse(times));
        found.into_iter().map(|(source, _)| source).collect()
    }

    /// The same with some of [`spread`](Self::spread) in registers from before the loop on.
    pub fn with_fixed<T: Target>(&self, fixed: &[Source]) -> Program {
        let broadcast = T::CODES.broadcast;
        let to_registers = fixed.iter().map(|&source| Step {
            code: if matches!(source, Source::Table { .. }) { T::CODES.load } else { broadcast },
            to: Place::Vector,
            sources: smallvec![source],
            immediate: None,
            over: false,
            lanes: None,
        });
        let mut steps: Vec<Step> = to_registers.collect();
        let number_of = |source: &Source| fixed.iter().position(|known| known == source);
        let mut values: Vec<Value> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let is_broadcast = step.code == broadcast;
            if let (true, None, Some(number)) = (is_broadcast, step.lanes, number_of(&step.sources[0])) {
                values.push(number as Value);
                continue;
            }
            let mut step = step.renumbered(&values);
            // A broadcast reads memory.
            for source in step.sources.iter_mut().filter(|_| !is_broadcast) {
                if let Some(number) = number_of(source) {
                    *source = Source::Value(number as Value);
                }
            }
            steps.push(step);
            values.push((steps.len() - 1) as Value);
        }
        Program { steps, fixed: fixed.len(), sums: self.sums.clone(), ..*self }
    }
}

/// Writes a program for a target.
#[derive(Debug)]
pub struct Builder<T> {
    pub program: Program,
    target: PhantomData<T>,
}

impl<T: Target> Builder<T> {
    pub fn new() -> Self {
        let program =
            Program { steps: vec![], fixed: 0, addresses: 0, parts: 1, sums: vec![], block: 0, cuts_at: None };
        Builder { program, target: PhantomData }
    }

    pub fn step(&mut self, step: Step) -> Source {
        self.program.steps.push(step);
        Source::Value((self.program.steps.len() - 1) as Value)
    }

    /// A vector of the elements at an address, so many bytes each.
    pub fn load(&mut self, code: X86, (address, bytes): (u16, u32)) -> Source {
        self.vector(code, &[Source::Memory(Elements { address, bytes, part: 0 })])
    }

    pub fn vector(&mut self, code: X86, sources: &[Source]) -> Source {
        self.step(Step { code, to: Place::Vector, sources: sources.into(), immediate: None, over: false, lanes: None })
    }

    pub fn immediate(&mut self, code: X86, sources: &[Source], immediate: u8) -> Source {
        let immediate = Some(immediate);
        self.step(Step { code, to: Place::Vector, sources: sources.into(), immediate, over: false, lanes: None })
    }

    /// An instruction whose result takes the place of its first operand.
    pub fn over(&mut self, code: X86, sources: &[Source], immediate: Option<u8>) -> Source {
        self.step(Step { code, to: Place::Vector, sources: sources.into(), immediate, over: true, lanes: None })
    }

    pub fn mask(&mut self, code: X86, sources: &[Source], immediate: Option<u8>) -> Source {
        self.step(Step { code, to: Place::Mask, sources: sources.into(), immediate, over: false, lanes: None })
    }

    /// An instruction of one vector whose result is zero outside of a mask that is in a register of its own, or for
    /// which its code says what it is there.
    pub fn masked(&mut self, code: X86, lanes: Source, sources: &[Source]) -> Source {
        let Source::Value(lanes) = lanes else { unreachable!("masks are computed") };
        let (sources, lanes) = (sources.into(), Some(lanes));
        self.step(Step { code, to: Place::Vector, sources, immediate: None, over: false, lanes })
    }

    pub fn store(&mut self, code: X86, (address, bytes): (u16, u32), value: Source, immediate: Option<u8>) {
        let to = Place::Memory(Elements { address, bytes, part: 0 });
        self.step(Step { code, to, sources: smallvec![value], immediate, over: false, lanes: None });
    }

    /// Adds a value to the lanes of the next sum, which go to an address.
    pub fn sum(&mut self, address: u16, value: Source) {
        let sum = self.program.sums.len() as u16;
        self.program.sums.push(address);
        let sources = smallvec![Source::Sum(sum), value];
        self.step(Step { code: T::CODES.add, to: Place::Sum(sum), sources, immediate: None, over: false, lanes: None });
    }

    /// Asks for the lines of elements.
    pub fn ask(&mut self, (address, bytes): (u16, u32)) {
        let sources = smallvec![Source::Memory(Elements { address, bytes, part: 0 })];
        let code = X86::Prefetcht1_m8;
        self.step(Step { code, to: Place::Nowhere, sources, immediate: None, over: false, lanes: None });
    }

    /// The value in a register of the processor.
    pub fn computed(&mut self, source: Source) -> Source {
        match source {
            Source::Constant(_) => self.vector(T::CODES.broadcast, &[source]),
            _ => source,
        }
    }

    /// An instruction of two vectors, of which the second may be a constant.
    pub fn pair(&mut self, code: X86, a: Source, b: Source) -> Source {
        let a = self.computed(a);
        self.vector(code, &[a, b])
    }

    /// The same of two that may change places.
    pub fn either(&mut self, code: X86, a: Source, b: Source) -> Source {
        if matches!(a, Source::Constant(_)) { self.pair(code, b, a) } else { self.pair(code, a, b) }
    }

    pub fn shift(&mut self, code: X86, x: Source, bits: u8) -> Source {
        let x = self.computed(x);
        self.immediate(code, &[x], bits)
    }

    /// A mask of the lanes for which a predicate of `vcmpps` is true.
    pub fn compare(&mut self, predicate: u8, a: Source, b: Source) -> Source {
        let a = self.computed(a);
        self.mask(T::CODES.compare, &[a, b], Some(predicate))
    }

    pub fn is_mask(&self, value: Source) -> bool {
        matches!(value, Source::Value(value) if self.program.steps[usize::from(value)].to == Place::Mask)
    }
}
