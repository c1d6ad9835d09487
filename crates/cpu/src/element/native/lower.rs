//! From instructions to those of a target.

use super::program::{Builder, Program, Source};
use super::target::{NO_EXCEPTION, ONE, SIGN, Target};
use super::{Run, Stored};
use crate::element::operands::is_half;
use crate::element::place::is_exact;
use crate::math::{Arithmetic, Table, functions};
use half::{bf16, f16};
use meshwork_graph::ops::{BinaryOp, Code, Element, Instr, UnaryOp};
use meshwork_graph::{DType, Scalar};
use smallvec::SmallVec;

/// Predicates of `vcmpps`: quiet, and false for NaN unless they say otherwise.
mod compare {
    pub const EQ: u8 = 0;
    pub const UNORDERED: u8 = 3;
    pub const NE_OR_UNORDERED: u8 = 4;
    pub const NOT_LE_OR_UNORDERED: u8 = 0x16;
    pub const LT: u8 = 0x11;
    pub const LE: u8 = 0x12;
    pub const GE: u8 = 0x1d;
    pub const GT: u8 = 0x1e;
}

/// The machine instructions of a run. What is stored is stored when all has been loaded, so that results may lie where
/// inputs do.
pub fn lower<T: Target>(run: &Run) -> Program {
    let mut lowering = Lowering { run, code: Builder::<T>::new(), registers: vec![None; run.inputs.len()] };
    let [outputs, sums, asks, end] = run.addresses();
    for (address, &bytes) in (asks..end).zip(&run.asks) {
        lowering.code.ask((address, bytes));
    }
    for instr in &run.code {
        let value = lowering.instr(instr);
        lowering.registers.push(Some(value));
    }
    for (address, &register) in (sums..asks).zip(&run.sums) {
        let value = lowering.register(register);
        let value = lowering.code.computed(value);
        lowering.code.sum(address, value);
    }
    for (address, &(register, stored)) in (outputs..sums).zip(&run.outputs) {
        lowering.store(address, register, stored);
    }
    let mut program = lowering.code.program;
    program.addresses = end.into();
    program.block = run.block;
    let past_caches = run.outputs.iter().position(|&(_, stored)| stored == Stored::F32PastCaches);
    program.cuts_at = past_caches.filter(|_| run.cuts_rows).map(|k| outputs + k as u16);
    program
}

struct Lowering<'a, T> {
    run: &'a Run,
    code: Builder<T>,
    /// What registers are, as far as they have been loaded or computed.
    registers: Vec<Option<Source>>,
}

impl<T: Target> Lowering<'_, T> {
    /// The value of a register, which may be a constant.
    fn register(&mut self, register: u16) -> Source {
        if let Some(value) = self.registers[usize::from(register)] {
            return value;
        }
        let value = self.load(register);
        self.registers[usize::from(register)] = Some(value);
        value
    }

    fn load(&mut self, address: u16) -> Source {
        let stored = self.run.inputs[usize::from(address)];
        let from = (address, stored.bytes());
        match stored {
            Stored::F32 | Stored::F32PastCaches => self.code.load(T::CODES.load, from),
            Stored::BF16 => {
                let wide = self.code.load(T::CODES.widen, from);
                self.code.shift(T::CODES.shift_left, wide, 16)
            }
            Stored::F16 => self.code.load(T::CODES.from_f16, from),
            Stored::One => self.code.vector(T::CODES.broadcast, &[Source::One { address }]),
            Stored::Bool => T::load_bools(&mut self.code, address),
        }
    }

    /// Values of f16 and bf16 have been rounded before.
    fn store(&mut self, address: u16, register: u16, stored: Stored) {
        let value = self.register(register);
        let value = self.code.computed(value);
        let (code, immediate) = match stored {
            Stored::F32 => (T::CODES.store, None),
            Stored::F32PastCaches => (T::CODES.store_past_caches, None),
            Stored::F16 => (T::CODES.to_f16, Some(0)),
            Stored::BF16 => return T::store_bf16(&mut self.code, address, value),
            Stored::Bool => return T::store_bools(&mut self.code, address, value),
            Stored::One => unreachable!("a run has a result for each element"),
        };
        self.code.store(code, (address, stored.bytes()), value, immediate);
    }

    fn compare(&mut self, predicate: u8, a: Source, b: Source) -> Source {
        self.code.compare(predicate, a, b)
    }

    fn blend(&mut self, mask: Source, a: Source, b: Source) -> Source {
        T::blend(&mut self.code, mask, a, b)
    }

    fn instr(&mut self, instr: &Instr) -> Source {
        let element = match instr.op {
            Code::Const(value) => return constant(value, instr.dtype),
            Code::Spread => return self.register(instr.args[0]),
            Code::Element(element) => element,
            _ => unreachable!("{} is not simple", instr.op.name()),
        };
        let args: SmallVec<[Source; 3]> = instr.reads().iter().map(|&arg| self.register(arg)).collect();
        let value = match element {
            Element::Unary(op) => self.unary(op, args[0]),
            Element::Binary(op) => self.binary(op, args[0], args[1]),
            Element::Select => self.blend(args[0], args[1], args[2]),
            Element::Cast(DType::Bool) => self.compare(compare::NE_OR_UNORDERED, args[0], Source::Constant(0)),
            Element::Cast(_) if self.code.is_mask(args[0]) => T::within(&mut self.code, args[0], Source::Constant(ONE)),
            Element::Cast(_) => args[0],
        };
        if is_half(instr.dtype) && !is_exact(instr.op) { self.round(instr.dtype, value) } else { value }
    }

    fn unary(&mut self, op: UnaryOp, x: Source) -> Source {
        use UnaryOp::*;
        let zero = Source::Constant(0);
        let one = Source::Constant(ONE);
        match op {
            Neg => self.code.either(T::CODES.xor, x, Source::Constant(SIGN)),
            Abs => self.code.either(T::CODES.and, x, Source::Constant(!SIGN)),
            Sign => {
                let (below, above) = (self.compare(compare::LT, x, zero), self.compare(compare::GT, x, zero));
                let y = T::within(&mut self.code, below, Source::Constant(SIGN | ONE));
                let y = self.blend(above, one, y);
                let nan = self.compare(compare::UNORDERED, x, x);
                self.blend(nan, x, y)
            }
            Recip => self.code.pair(T::CODES.div, one, x),
            Sqrt => self.code.vector(T::CODES.sqrt, &[x]),
            Rsqrt => {
                let root = self.code.vector(T::CODES.sqrt, &[x]);
                self.code.pair(T::CODES.div, one, root)
            }
            Round | Floor | Ceil => {
                let mode = match op {
                    Round => 0,
                    Floor => 1,
                    _ => 2,
                };
                self.code.immediate(T::CODES.round, &[x], NO_EXCEPTION + mode)
            }
            Relu => {
                let x = self.code.computed(x);
                let kept = self.compare(compare::NOT_LE_OR_UNORDERED, x, zero);
                T::within(&mut self.code, kept, x)
            }
            Not => T::not(&mut self.code, x),
            Exp => functions::exp(self, x),
            Expm1 => functions::expm1(self, x),
            Log => functions::log(self, x),
            Log1p => functions::log1p(self, x),
            Tanh => functions::tanh(self, x),
            Sigmoid => functions::sigmoid(self, x),
            Erf => functions::erf(self, x),
            _ => unreachable!("{op:?} is not simple"),
        }
    }

    fn binary(&mut self, op: BinaryOp, a: Source, b: Source) -> Source {
        use BinaryOp::*;
        match op {
            Add => self.code.either(T::CODES.add, a, b),
            Sub => self.code.pair(T::CODES.sub, a, b),
            Mul => self.code.either(T::CODES.mul, a, b),
            Div => self.code.pair(T::CODES.div, a, b),
            Max | Min => {
                let (a, b) = (self.code.computed(a), self.code.computed(b));
                let y = T::extremum(&mut self.code, op == Max, a, b);
                let nan = self.compare(compare::UNORDERED, a, b);
                self.blend(nan, Source::Constant(f32::NAN.to_bits()), y)
            }
            Eq => self.compare(compare::EQ, a, b),
            Ne => self.compare(compare::NE_OR_UNORDERED, a, b),
            Lt => self.compare(compare::LT, a, b),
            Le => self.compare(compare::LE, a, b),
            Gt => self.compare(compare::GT, a, b),
            Ge => self.compare(compare::GE, a, b),
            And => self.code.mask(T::CODES.mask_and, &[a, b], None),
            Or => self.code.mask(T::CODES.mask_or, &[a, b], None),
            Xor => self.code.mask(T::CODES.mask_xor, &[a, b], None),
            Pow => unreachable!("powers are not simple"),
        }
    }

    /// The nearest values of f16 or bf16, ties to even.
    fn round(&mut self, dtype: DType, x: Source) -> Source {
        let x = self.code.computed(x);
        if dtype == DType::F16 {
            let half = self.code.immediate(T::CODES.to_f16, &[x], 0);
            return self.code.vector(T::CODES.from_f16, &[half]);
        }
        let constant = Source::Constant;
        let last = self.code.shift(T::CODES.shift_right, x, 16);
        let odd = self.code.pair(T::CODES.and, last, constant(1));
        let most = self.code.pair(T::CODES.int_add, odd, constant(0x7fff));
        let moved = self.code.pair(T::CODES.int_add, x, most);
        // A NaN stays one, with its quiet bit set.
        let nan = self.compare(compare::UNORDERED, x, x);
        let quiet = self.code.pair(T::CODES.or, x, constant(0x0040_0000));
        let y = self.blend(nan, quiet, moved);
        self.code.pair(T::CODES.and, y, constant(0xffff_0000))
    }
}

/// Code for the functions that are more than an instruction.
impl<T: Target> Arithmetic for Lowering<'_, T> {
    type Float = Source;
    type Int = Source;
    type Mask = Source;

    fn float(&mut self, x: f32) -> Source {
        Source::Constant(x.to_bits())
    }

    fn add(&mut self, a: Source, b: Source) -> Source {
        self.binary(BinaryOp::Add, a, b)
    }

    fn sub(&mut self, a: Source, b: Source) -> Source {
        self.binary(BinaryOp::Sub, a, b)
    }

    fn mul(&mut self, a: Source, b: Source) -> Source {
        self.binary(BinaryOp::Mul, a, b)
    }

    fn div(&mut self, a: Source, b: Source) -> Source {
        self.binary(BinaryOp::Div, a, b)
    }

    fn fma(&mut self, a: Source, b: Source, c: Source) -> Source {
        let is_constant = |source: Source| matches!(source, Source::Constant(_));
        let (a, b) = if is_constant(a) { (b, a) } else { (a, b) };
        let a = self.code.computed(a);
        if is_constant(b) {
            let c = self.code.computed(c);
            return self.code.over(T::CODES.fma_over_c, &[c, a, b], None);
        }
        self.code.over(T::CODES.fma_over_a, &[a, b, c], None)
    }

    fn scaled(&mut self, x: Source, (float, int): (Source, Source)) -> Source {
        match T::SCALE {
            Some(code) => self.code.pair(code, x, float),
            None => functions::scaled(self, x, int),
        }
    }

    fn at_most(&mut self, x: Source, most: f32) -> Source {
        // Of two numbers that cannot be compared it is the second.
        let (most, x) = (self.float(most), self.code.computed(x));
        self.code.pair(T::CODES.min, most, x)
    }

    fn at_least(&mut self, x: Source, least: f32) -> Source {
        let (least, x) = (self.float(least), self.code.computed(x));
        self.code.pair(T::CODES.max, least, x)
    }

    fn abs(&mut self, x: Source) -> Source {
        self.unary(UnaryOp::Abs, x)
    }

    fn neg(&mut self, x: Source) -> Source {
        self.unary(UnaryOp::Neg, x)
    }

    fn copysign(&mut self, size: Source, sign: Source) -> Source {
        T::copysign(&mut self.code, size, sign)
    }

    fn greater(&mut self, a: Source, b: Source) -> Source {
        self.code.pair(T::CODES.max, a, b)
    }

    fn is_less(&mut self, a: Source, b: Source) -> Source {
        self.binary(BinaryOp::Lt, a, b)
    }

    fn reaches(&mut self, a: Source, b: Source) -> Source {
        self.binary(BinaryOp::Ge, a, b)
    }

    fn is_equal(&mut self, a: Source, b: Source) -> Source {
        self.binary(BinaryOp::Eq, a, b)
    }

    fn choose(&mut self, mask: Source, a: Source, b: Source) -> Source {
        self.blend(mask, a, b)
    }

    fn int(&mut self, x: u32) -> Source {
        Source::Constant(x)
    }

    fn bits(&mut self, x: Source) -> Source {
        x
    }

    fn of_bits(&mut self, x: Source) -> Source {
        x
    }

    fn int_to_float(&mut self, x: Source) -> Source {
        self.code.vector(T::CODES.int_to_float, &[x])
    }

    fn int_add(&mut self, a: Source, b: Source) -> Source {
        self.code.either(T::CODES.int_add, a, b)
    }

    fn int_sub(&mut self, a: Source, b: Source) -> Source {
        self.code.pair(T::CODES.int_sub, a, b)
    }

    fn int_and(&mut self, a: Source, b: Source) -> Source {
        self.code.either(T::CODES.and, a, b)
    }

    fn shift_left(&mut self, x: Source, bits: u8) -> Source {
        self.code.shift(T::CODES.shift_left, x, bits)
    }

    fn shift_right(&mut self, x: Source, bits: u8) -> Source {
        self.code.shift(T::CODES.shift_right_signed, x, bits)
    }

    fn choose_int(&mut self, mask: Source, a: Source, b: Source) -> Source {
        self.blend(mask, a, b)
    }

    fn of_tables<const N: usize>(&mut self, tables: &'static [Table; N], index: Source) -> [Source; N] {
        T::of_tables(&mut self.code, tables, index)
    }
}

/// A constant, rounded to its dtype.
fn constant(value: Scalar, dtype: DType) -> Source {
    use crate::number::Number;
    let number = match dtype {
        DType::F16 => f16::from_scalar(value).to_f32(),
        DType::BF16 => bf16::from_scalar(value).to_f32(),
        _ => f32::from_scalar(value),
    };
    Source::Constant(number.to_bits())
}
