//! Random regions against their instructions one by one, each result stored between.

use super::run;
use crate::testing::{Case, Sample, bits, each_context, samples};
use crate::{Context, Operand, Output};
use meshwork_graph::ops::{BinaryOp, Element, Fused, Instr, UnaryOp};
use meshwork_graph::{DType, Layout, Scalar, Shape, philox};
use smallvec::SmallVec;

/// Draws numbers from 0.
struct Draw {
    seed: u64,
    count: u64,
}

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.count += 1;
        (philox::bits(self.seed, self.count) % n as u64) as usize
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

const UNARY: [UnaryOp; 6] = [UnaryOp::Neg, UnaryOp::Exp, UnaryOp::Relu, UnaryOp::Tanh, UnaryOp::Sqrt, UnaryOp::Sigmoid];
const BINARY: [BinaryOp; 6] = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Max, BinaryOp::Lt];
const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// A region of `length` instructions on inputs of a dtype, with several results.
fn random_region(draw: &mut Draw, dtype: DType, inputs: usize, length: usize) -> Fused {
    let mut fused = Fused { inputs: vec![dtype; inputs], code: vec![], outputs: SmallVec::new() };
    while fused.code.len() < length {
        let known = (inputs + fused.code.len()) as u16;
        let any = |draw: &mut Draw, wanted: &dyn Fn(DType) -> bool| {
            let fitting: Vec<u16> = (0..known).filter(|&r| wanted(fused.dtype_of(r))).collect();
            (!fitting.is_empty()).then(|| draw.of(&fitting))
        };
        let float = any(draw, &DType::is_float).expect("the inputs are floats");
        let kind = fused.dtype_of(float);
        let same = any(draw, &|d| d == kind).expect("at least the operand itself");
        let condition = any(draw, &|d| d == DType::Bool);
        let (op, args, dtype) = match draw.below(8) {
            0 => (Element::Const(Scalar::Float(0.3)), [0; 3], kind),
            1 => (Element::Cast(draw.of(&FLOATS)), [float, 0, 0], kind),
            2 | 3 => (Element::Unary(draw.of(&UNARY)), [float, 0, 0], kind),
            4 if condition.is_some() => (Element::Select, [condition.expect("checked"), float, same], kind),
            _ => (Element::Binary(draw.of(&BINARY)), [float, same, 0], kind),
        };
        let dtype = match op {
            Element::Cast(to) => to,
            Element::Binary(BinaryOp::Lt) => DType::Bool,
            _ => dtype,
        };
        fused.code.push(Instr { op, args, dtype });
    }
    for (i, instr) in fused.code.iter().enumerate() {
        if !matches!(instr.op, Element::Const(_)) && (i + 1 == length || draw.below(3) == 0) {
            fused.outputs.push((inputs + i) as u16);
        }
    }
    fused
}

/// Bytes of a value, dense.
struct Value {
    bytes: Vec<u64>,
    dtype: DType,
    layout: Layout,
}

impl Value {
    fn new(dtype: DType, shape: &Shape) -> Value {
        let bytes = vec![0x0101_0101_0101_0101; shape.numel() + 1];
        Value { bytes, dtype, layout: Layout::contiguous(shape) }
    }

    fn operand(&self) -> Operand<'_> {
        // SAFETY: there are eight bytes for each element.
        unsafe { Operand::new(self.bytes.as_ptr().cast(), self.dtype, &self.layout) }
    }

    fn output(&mut self) -> Output<'_> {
        // SAFETY: as above.
        unsafe { Output::new(self.bytes.as_mut_ptr().cast(), self.dtype, &self.layout.shape) }
    }

    /// The bits of the elements; all NaN are one.
    fn bits(&self) -> Vec<u64> {
        let x = self.operand();
        match self.dtype {
            DType::F64 => bits(x.slice::<f64>()),
            DType::F32 => bits(x.slice::<f32>()),
            DType::F16 => bits(x.slice::<half::f16>()),
            DType::BF16 => bits(x.slice::<half::bf16>()),
            DType::I64 => bits(x.slice::<i64>()),
            DType::Bool => bits(x.slice::<bool>()),
            other => unreachable!("no {other} here"),
        }
    }
}

/// A region whose value is the constant of an instruction.
fn spread(constant: &Instr, input: DType) -> Fused {
    let instr = |op, args, dtype| Instr { op, args, dtype };
    let code = vec![
        constant.clone(),
        instr(Element::Const(Scalar::Int(1)), [0; 3], DType::Bool),
        instr(Element::Select, [2, 1, 1], constant.dtype),
    ];
    Fused { inputs: vec![input], code, outputs: SmallVec::from_slice(&[3]) }
}

/// The results of a region, each instruction on its own.
fn one_by_one(fused: &Fused, inputs: &[Operand], shape: &Shape, context: Context) -> Vec<Vec<u64>> {
    let mut values: Vec<Value> = vec![];
    for instr in &fused.code {
        let mut value = Value::new(instr.dtype, shape);
        let register = |r: u16| match inputs.get(usize::from(r)) {
            Some(input) => *input,
            None => values[usize::from(r) - inputs.len()].operand(),
        };
        let mut operands: Vec<Operand> = instr.reads().iter().map(|&r| register(r)).collect();
        let dtypes: Vec<DType> = operands.iter().map(|x| x.dtype).collect();
        let single = match instr.op {
            Element::Const(_) => {
                operands = vec![inputs[0]];
                spread(instr, inputs[0].dtype)
            }
            op => Fused::single(op, &dtypes, instr.dtype),
        };
        run(&single, &operands, &[value.output()], context);
        values.push(value);
    }
    fused.outputs.iter().map(|&r| values[usize::from(r) - inputs.len()].bits()).collect()
}

fn check<T: Sample>(seed: u64, shape: &[usize]) {
    let mut draw = Draw { seed, count: 0 };
    let cases = Case::<T>::strided(shape);
    let chosen: Vec<usize> = (0..3).map(|_| draw.below(cases.len())).collect();
    let inputs: Vec<Operand> = chosen.iter().map(|&i| cases[i].operand()).collect();
    let length = 2 + draw.below(20);
    let fused = random_region(&mut draw, T::DTYPE, inputs.len(), length);
    let shape = Shape::new(shape);
    each_context(|context| {
        let want = one_by_one(&fused, &inputs, &shape, context);
        let mut values: Vec<Value> = fused.outputs.iter().map(|&r| Value::new(fused.dtype_of(r), &shape)).collect();
        let outputs: Vec<Output> = values.iter_mut().map(Value::output).collect();
        run(&fused, &inputs, &outputs, context);
        for (value, want) in values.iter().zip(want) {
            assert_eq!(value.bits(), want, "{fused} of {:?} {shape}", T::DTYPE);
        }
    });
}

#[test]
fn several_results_are_those_of_the_instructions_one_by_one() {
    for seed in 0..12 {
        for shape in [&[5, 7][..], &[1], &[3, 1, 341], &[2, 1025], &[41, 67], &[0, 3]] {
            check::<f32>(seed, shape);
            check::<half::bf16>(seed + 100, shape);
        }
        check::<f64>(seed + 200, &[3, 401]);
        check::<half::f16>(seed + 300, &[3, 401]);
    }
}

#[test]
fn several_results_replace_their_operands() {
    // a + b and a · b in the memory of a and b.
    let shape = Shape::new(&[70, 333]);
    let layout = Layout::contiguous(&shape);
    let code =
        [BinaryOp::Add, BinaryOp::Mul].map(|op| Instr { op: Element::Binary(op), args: [0, 1, 0], dtype: DType::F32 });
    let fused = Fused { inputs: vec![DType::F32; 2], code: code.to_vec(), outputs: SmallVec::from_slice(&[2, 3]) };
    let (x, y) = (samples::<f32>(1, shape.numel()), samples::<f32>(2, shape.numel()));
    each_context(|context| {
        let (mut a, mut b) = (x.clone(), y.clone());
        let (at, bt) = (a.as_mut_ptr(), b.as_mut_ptr());
        // SAFETY: the operands are dense at the addresses of the outputs.
        unsafe {
            let inputs = [at, bt].map(|p| Operand::new(p.cast_const().cast(), DType::F32, &layout));
            let outputs = [at, bt].map(|p| Output::new(p.cast(), DType::F32, &shape));
            run(&fused, &inputs, &outputs, context);
        }
        let sums: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        let products: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x * y).collect();
        assert_eq!((bits(&a), bits(&b)), (bits(&sums), bits(&products)));
    });
}
