//! From instructions to those of AVX-512. Floats of any dtype are held as 16 f32 in a vector, bools as a mask.

use super::{Run, Stored};
use crate::element::is_half;
use crate::element::place::is_exact;
use crate::math::{Arithmetic, functions};
use half::{bf16, f16};
use iced_x86::Code as X86;
use meshwork_graph::ops::{BinaryOp, Code, Element, Instr, UnaryOp};
use meshwork_graph::{DType, Scalar};
use smallvec::{SmallVec, smallvec};

/// The value of a step, by its number.
pub type Value = u16;

/// What a machine instruction reads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Source {
    Value(Value),
    /// 32 bits for all lanes, from the table of constants.
    Constant(u32),
    /// The elements at an address, so many bytes each.
    Memory {
        address: u16,
        bytes: u32,
    },
    /// The f32 at an address.
    One {
        address: u16,
    },
}

/// Where the result of a machine instruction goes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Place {
    Vector,
    Mask,
    /// The elements at an address, so many bytes each.
    Memory {
        address: u16,
        bytes: u32,
    },
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
}

/// The loop's body: step number `i` defines value `i`.
#[derive(Debug, Default)]
pub struct Program {
    pub steps: Vec<Step>,
    /// Addresses of operands.
    pub addresses: usize,
}

const SIGN: u32 = 0x8000_0000;
const ONE: u32 = 0x3f80_0000;

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
pub fn lower(run: &Run) -> Program {
    let mut lowering = Lowering { run, program: Program::default(), registers: vec![None; run.inputs.len()] };
    for instr in &run.code {
        let value = lowering.instr(instr);
        lowering.registers.push(Some(value));
    }
    for (k, &(register, stored)) in run.outputs.iter().enumerate() {
        lowering.store((run.inputs.len() + k) as u16, register, stored);
    }
    lowering.program.addresses = run.inputs.len() + run.outputs.len();
    lowering.program
}

struct Lowering<'a> {
    run: &'a Run,
    program: Program,
    /// What registers are, as far as they have been loaded or computed.
    registers: Vec<Option<Source>>,
}

impl Lowering<'_> {
    fn step(&mut self, step: Step) -> Source {
        self.program.steps.push(step);
        Source::Value((self.program.steps.len() - 1) as Value)
    }

    fn vector(&mut self, code: X86, sources: &[Source]) -> Source {
        self.step(Step { code, to: Place::Vector, sources: sources.into(), immediate: None, over: false, lanes: None })
    }

    fn immediate(&mut self, code: X86, sources: &[Source], immediate: u8) -> Source {
        let immediate = Some(immediate);
        self.step(Step { code, to: Place::Vector, sources: sources.into(), immediate, over: false, lanes: None })
    }

    /// An instruction whose result takes the place of its first operand.
    fn over(&mut self, code: X86, sources: &[Source], immediate: Option<u8>) -> Source {
        self.step(Step { code, to: Place::Vector, sources: sources.into(), immediate, over: true, lanes: None })
    }

    fn mask(&mut self, code: X86, sources: &[Source], immediate: Option<u8>) -> Source {
        self.step(Step { code, to: Place::Mask, sources: sources.into(), immediate, over: false, lanes: None })
    }

    /// A vector that is zero outside of a mask.
    fn within(&mut self, code: X86, lanes: Source, source: Source) -> Source {
        let Source::Value(lanes) = lanes else { unreachable!("masks are computed") };
        self.step(Step {
            code,
            to: Place::Vector,
            sources: smallvec![source],
            immediate: None,
            over: false,
            lanes: Some(lanes),
        })
    }

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
        let from = |bytes: u32| Source::Memory { address, bytes };
        match self.run.inputs[usize::from(address)] {
            Stored::F32 | Stored::F32PastCaches => self.vector(X86::EVEX_Vmovups_zmm_k1z_zmmm512, &[from(4)]),
            Stored::BF16 => {
                let wide = self.vector(X86::EVEX_Vpmovzxwd_zmm_k1z_ymmm256, &[from(2)]);
                self.immediate(X86::EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8, &[wide], 16)
            }
            Stored::F16 => self.vector(X86::EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae, &[from(2)]),
            Stored::One => self.vector(X86::EVEX_Vbroadcastss_zmm_k1z_xmmm32, &[Source::One { address }]),
            Stored::Bool => {
                let bytes = self.vector(X86::EVEX_Vmovdqu8_xmm_k1z_xmmm128, &[from(1)]);
                self.mask(X86::EVEX_Vptestmb_kr_k1_xmm_xmmm128, &[bytes, bytes], None)
            }
        }
    }

    /// Values of f16 and bf16 have been rounded before.
    fn store(&mut self, address: u16, register: u16, stored: Stored) {
        let value = self.register(register);
        let (code, bytes, value, immediate) = match stored {
            Stored::F32 => (X86::EVEX_Vmovups_zmmm512_k1z_zmm, 4, self.computed(value), None),
            Stored::F32PastCaches => (X86::EVEX_Vmovntps_m512_zmm, 4, self.computed(value), None),
            Stored::F16 => (X86::EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae, 2, self.computed(value), Some(0)),
            Stored::BF16 => {
                let high = self.immediate(X86::EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8, &[value], 16);
                (X86::EVEX_Vpmovdw_ymmm256_k1z_zmm, 2, high, None)
            }
            Stored::Bool => {
                let ones = self.vector(X86::EVEX_Vpmovm2b_xmm_kr, &[value]);
                let bytes = self.vector(X86::EVEX_Vpabsb_xmm_k1z_xmmm128, &[ones]);
                (X86::EVEX_Vmovdqu8_xmmm128_k1z_xmm, 1, bytes, None)
            }
            Stored::One => unreachable!("a run has a result for each element"),
        };
        let to = Place::Memory { address, bytes };
        self.step(Step { code, to, sources: smallvec![value], immediate, over: false, lanes: None });
    }

    /// The value in a register of the processor.
    fn computed(&mut self, source: Source) -> Source {
        match source {
            Source::Constant(_) => self.vector(X86::EVEX_Vbroadcastss_zmm_k1z_xmmm32, &[source]),
            _ => source,
        }
    }

    /// An instruction of two vectors, of which the second may be a constant.
    fn pair(&mut self, code: X86, a: Source, b: Source) -> Source {
        let a = self.computed(a);
        self.vector(code, &[a, b])
    }

    /// The same of two that may change places.
    fn either(&mut self, code: X86, a: Source, b: Source) -> Source {
        if matches!(a, Source::Constant(_)) { self.pair(code, b, a) } else { self.pair(code, a, b) }
    }

    fn compare(&mut self, predicate: u8, a: Source, b: Source) -> Source {
        let a = self.computed(a);
        self.mask(X86::EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae, &[a, b], Some(predicate))
    }

    /// `a` where the mask is set, else `b`.
    fn blend(&mut self, lanes: Source, a: Source, b: Source) -> Source {
        let Source::Value(lanes) = lanes else { unreachable!("masks are computed") };
        let (code, sources) = (X86::EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32, smallvec![self.computed(b), a]);
        self.step(Step { code, to: Place::Vector, sources, immediate: None, over: false, lanes: Some(lanes) })
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
            Element::Cast(_) if self.is_mask(args[0]) => {
                self.within(X86::EVEX_Vbroadcastss_zmm_k1z_xmmm32, args[0], Source::Constant(ONE))
            }
            Element::Cast(_) => args[0],
        };
        if is_half(instr.dtype) && !is_exact(instr.op) { self.round(instr.dtype, value) } else { value }
    }

    fn is_mask(&self, value: Source) -> bool {
        matches!(value, Source::Value(value) if self.program.steps[usize::from(value)].to == Place::Mask)
    }

    fn unary(&mut self, op: UnaryOp, x: Source) -> Source {
        use UnaryOp::*;
        let zero = Source::Constant(0);
        let one = Source::Constant(ONE);
        match op {
            Neg => self.either(X86::EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32, x, Source::Constant(SIGN)),
            Abs => self.either(X86::EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32, x, Source::Constant(!SIGN)),
            Sign => {
                let (below, above) = (self.compare(compare::LT, x, zero), self.compare(compare::GT, x, zero));
                let y = self.within(X86::EVEX_Vbroadcastss_zmm_k1z_xmmm32, below, Source::Constant(SIGN | ONE));
                let y = self.blend(above, one, y);
                let nan = self.compare(compare::UNORDERED, x, x);
                self.blend(nan, x, y)
            }
            Recip => self.pair(X86::EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er, one, x),
            Sqrt => self.vector(X86::EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er, &[x]),
            Rsqrt => {
                let root = self.vector(X86::EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er, &[x]);
                self.pair(X86::EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er, one, root)
            }
            Round | Floor | Ceil => {
                // Bit 3: no exception where the result is not exact.
                let mode = 8 + match op {
                    Round => 0,
                    Floor => 1,
                    _ => 2,
                };
                self.immediate(X86::EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae, &[x], mode)
            }
            Relu => {
                let x = self.computed(x);
                let kept = self.compare(compare::NOT_LE_OR_UNORDERED, x, zero);
                self.within(X86::EVEX_Vmovaps_zmm_k1z_zmmm512, kept, x)
            }
            Not => self.mask(X86::VEX_Knotw_kr_kr, &[x], None),
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
            Add => self.either(X86::EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er, a, b),
            Sub => self.pair(X86::EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er, a, b),
            Mul => self.either(X86::EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er, a, b),
            Div => self.pair(X86::EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er, a, b),
            Max | Min => {
                let a = self.computed(a);
                // Bit 2: the sign is that of the result; zeros are ordered by their signs.
                let mode = 4 + u8::from(op == Max);
                let y = self.immediate(X86::EVEX_Vrangeps_zmm_k1z_zmm_zmmm512b32_imm8_sae, &[a, b], mode);
                let nan = self.compare(compare::UNORDERED, a, b);
                self.blend(nan, Source::Constant(f32::NAN.to_bits()), y)
            }
            Eq => self.compare(compare::EQ, a, b),
            Ne => self.compare(compare::NE_OR_UNORDERED, a, b),
            Lt => self.compare(compare::LT, a, b),
            Le => self.compare(compare::LE, a, b),
            Gt => self.compare(compare::GT, a, b),
            Ge => self.compare(compare::GE, a, b),
            And => self.mask(X86::VEX_Kandw_kr_kr_kr, &[a, b], None),
            Or => self.mask(X86::VEX_Korw_kr_kr_kr, &[a, b], None),
            Xor => self.mask(X86::VEX_Kxorw_kr_kr_kr, &[a, b], None),
            Pow => unreachable!("powers are not simple"),
        }
    }

    /// The nearest values of f16 or bf16, ties to even.
    fn round(&mut self, dtype: DType, x: Source) -> Source {
        let x = self.computed(x);
        if dtype == DType::F16 {
            let half = self.immediate(X86::EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae, &[x], 0);
            return self.vector(X86::EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae, &[half]);
        }
        let constant = Source::Constant;
        let last = self.immediate(X86::EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8, &[x], 16);
        let odd = self.pair(X86::EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32, last, constant(1));
        let most = self.pair(X86::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32, odd, constant(0x7fff));
        let moved = self.pair(X86::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32, x, most);
        // A NaN stays one, with its quiet bit set.
        let nan = self.compare(compare::UNORDERED, x, x);
        let quiet = self.pair(X86::EVEX_Vpord_zmm_k1z_zmm_zmmm512b32, x, constant(0x0040_0000));
        let y = self.blend(nan, quiet, moved);
        self.pair(X86::EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32, y, constant(0xffff_0000))
    }
}

/// Code for the functions that are more than an instruction.
impl Arithmetic for Lowering<'_> {
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
        let a = self.computed(a);
        if is_constant(b) {
            let c = self.computed(c);
            return self.over(X86::EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er, &[c, a, b], None);
        }
        self.over(X86::EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er, &[a, b, c], None)
    }

    fn scaled(&mut self, x: Source, (n, _): (Source, Source)) -> Source {
        self.pair(X86::EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er, x, n)
    }

    fn at_most(&mut self, x: Source, most: f32) -> Source {
        // Of two numbers that cannot be compared it is the second.
        let (most, x) = (self.float(most), self.computed(x));
        self.pair(X86::EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae, most, x)
    }

    fn at_least(&mut self, x: Source, least: f32) -> Source {
        let (least, x) = (self.float(least), self.computed(x));
        self.pair(X86::EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae, least, x)
    }

    fn abs(&mut self, x: Source) -> Source {
        self.unary(UnaryOp::Abs, x)
    }

    fn neg(&mut self, x: Source) -> Source {
        self.unary(UnaryOp::Neg, x)
    }

    fn copysign(&mut self, size: Source, sign: Source) -> Source {
        let (size, sign) = (self.computed(size), self.computed(sign));
        // Where the third operand has a 1, the bit of the second.
        let sources = [size, sign, Source::Constant(SIGN)];
        self.over(X86::EVEX_Vpternlogd_zmm_k1z_zmm_zmmm512b32_imm8, &sources, Some(0b1101_1000))
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

    fn is_nan(&mut self, x: Source) -> Source {
        let x = self.computed(x);
        self.compare(compare::UNORDERED, x, x)
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
        self.vector(X86::EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er, &[x])
    }

    fn int_add(&mut self, a: Source, b: Source) -> Source {
        self.either(X86::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32, a, b)
    }

    fn int_sub(&mut self, a: Source, b: Source) -> Source {
        self.pair(X86::EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32, a, b)
    }

    fn int_and(&mut self, a: Source, b: Source) -> Source {
        self.either(X86::EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32, a, b)
    }

    fn shift_left(&mut self, x: Source, bits: u8) -> Source {
        self.immediate(X86::EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8, &[x], bits)
    }

    fn shift_right(&mut self, x: Source, bits: u8) -> Source {
        self.immediate(X86::EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8, &[x], bits)
    }

    fn choose_int(&mut self, mask: Source, a: Source, b: Source) -> Source {
        self.blend(mask, a, b)
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
