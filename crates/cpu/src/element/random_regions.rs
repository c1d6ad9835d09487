//! Random regions against their instructions one by one, each result stored between.

use super::run;
use crate::testing::{Case, Sample, bits, each_context};
use crate::{Context, Operand, Output, copy, index, leaf};
use meshwork_graph::canonical::Blocking;
use meshwork_graph::ops::{
    BinaryOp, Code, Const, Element, Fused, Gather, Instr, PartOf, Reduce, ReduceOp, ScatterAdd, Source, Space, UnaryOp,
};
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

const UNARY: [UnaryOp; 7] =
    [UnaryOp::Neg, UnaryOp::Exp, UnaryOp::Relu, UnaryOp::Tanh, UnaryOp::Sqrt, UnaryOp::Sigmoid, UnaryOp::Erf];
const BINARY: [BinaryOp; 7] =
    [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Max, BinaryOp::Lt, BinaryOp::Eq];
const REDUCE: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min];
const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// A region of `length` instructions on these inputs, with several results. The last input are indices of columns, where
/// there are rows.
fn random_region(draw: &mut Draw, space: &Space, inputs: Vec<Source>, length: usize) -> Fused {
    let count = inputs.len();
    let has_rows = space.columns() > 1;
    let index = count as u16 - 1;
    let mut fused = Fused { space: space.clone(), inputs, code: vec![], outputs: SmallVec::new() };
    while fused.code.len() < length {
        let known = (count + fused.code.len()) as u16;
        let any = |draw: &mut Draw, wanted: &dyn Fn(u16) -> bool| {
            let fitting: Vec<u16> = (0..known).filter(|&r| wanted(r)).collect();
            (!fitting.is_empty()).then(|| draw.of(&fitting))
        };
        let float = any(draw, &|r| fused.dtype_of(r).is_float()).expect("there are floats");
        let (dtype, of_rows) = (fused.dtype_of(float), fused.of_rows(float));
        let same = any(draw, &|r| fused.dtype_of(r) == dtype && fused.of_rows(r) == of_rows).expect("itself");
        let condition = any(draw, &|r| fused.dtype_of(r) == DType::Bool && fused.of_rows(r) == of_rows);
        let one_dim = space.column_dims().len() == 1 && space.inner_dims == 0;
        // The columns are all, or those behind the first ones of some more.
        let before = draw.below(space.columns());
        let part_of = (draw.below(2) == 0).then_some(PartOf { start: before, size: before + space.columns() + 1 });
        let (op, args, of_rows) = match draw.below(if has_rows { 12 } else { 8 }) {
            0 => (Code::Const(Scalar::Float(draw.of(&[0.3, 0.0, 1.0, 21.0]))), [0; 3], false),
            1 if condition.is_some() && draw.below(2) == 0 => {
                (Element::Cast(dtype).into(), [condition.expect("checked"), 0, 0], of_rows)
            }
            1 => (Element::Cast(draw.of(&FLOATS)).into(), [float, 0, 0], of_rows),
            2 | 3 => (Element::Unary(draw.of(&UNARY)).into(), [float, 0, 0], of_rows),
            4 if condition.is_some() => (Element::Select.into(), [condition.expect("checked"), float, same], of_rows),
            8.. if of_rows && one_dim && draw.below(3) == 0 => {
                (Code::Scatter(space.row_dims, part_of), [index, float, 0], false)
            }
            8.. if of_rows => (Code::Spread, [float, 0, 0], false),
            11 if one_dim => (Code::Gather(space.row_dims, part_of), [float, index, 0], true),
            8.. => {
                let op = draw.of(&REDUCE);
                let blocks = reduce(op, space).blocks(&space.shape);
                // Those of samples are short.
                let short = if space.inner_dims > 0 { draw.of(&[0, 0, 1, 4, 6]) } else { 0 };
                let unit = if short > 0 { short } else { blocks.unit };
                (Code::Reduce(op, unit * blocks.inner), [float, 0, 0], true)
            }
            _ => (Element::Binary(draw.of(&BINARY)).into(), [float, same, 0], of_rows),
        };
        let dtype = match op {
            Code::Element(Element::Cast(to)) => to,
            Code::Element(Element::Binary(BinaryOp::Lt | BinaryOp::Eq)) => DType::Bool,
            _ => dtype,
        };
        fused.code.push(Instr { op, args, of_rows, dtype });
    }
    for (i, instr) in fused.code.iter().enumerate() {
        if !matches!(instr.op, Code::Const(_)) && (i + 1 == length || draw.below(3) == 0) {
            fused.outputs.push((count + i) as u16);
        }
    }
    fused
}

/// The reduction of rows.
fn reduce(op: ReduceOp, space: &Space) -> Reduce {
    let dims: Vec<usize> = space.column_dims().collect();
    Reduce::new(op, &dims)
}

/// Bytes of a value, dense.
pub struct Value {
    bytes: Vec<u64>,
    dtype: DType,
    layout: Layout,
}

impl Value {
    pub fn new(dtype: DType, shape: &Shape) -> Value {
        let bytes = vec![0x0101_0101_0101_0101; shape.numel() + 1];
        Value { bytes, dtype, layout: Layout::contiguous(shape) }
    }

    fn operand(&self) -> Operand<'_> {
        // SAFETY: there are eight bytes for each element.
        unsafe { Operand::new(self.bytes.as_ptr().cast(), self.dtype, &self.layout) }
    }

    pub fn output(&mut self) -> Output<'_> {
        // SAFETY: as above.
        unsafe { Output::new(self.bytes.as_mut_ptr().cast(), self.dtype, &self.layout.shape) }
    }

    /// Whether nothing has been written behind the elements.
    fn is_untouched_behind(&self) -> bool {
        let elements = self.layout.shape.numel() * self.dtype.size();
        self.bytes.iter().flat_map(|word| word.to_ne_bytes()).skip(elements).all(|byte| byte == 1)
    }

    /// The bits of the elements; all NaN are one.
    pub fn bits(&self) -> Vec<u64> {
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

/// Runs a kernel with the scratch memory that it asks for.
fn with_scratch(bytes: usize, kernel: impl FnOnce(&mut [u8])) {
    let mut memory = vec![0u8; bytes + 64];
    let skip = memory.as_ptr().align_offset(64);
    kernel(&mut memory[skip..skip + bytes]);
}

/// One instruction alone, by the kernel of its operation.
fn instruction(space: &Space, instr: &Instr, operands: &[Operand], output: Output, context: Context) {
    // Values of rows as columns of one element each.
    let of_columns = |d: usize| space.column_dims().contains(&d);
    let column: Shape = (0..space.shape.rank()).map(|d| if of_columns(d) { 1 } else { space.shape[d] }).collect();
    let columns: Vec<Layout> =
        operands.iter().map(|x| x.layout.reshape(&column).unwrap_or_else(|| x.layout.clone())).collect();
    // SAFETY: the elements are the operand's.
    let as_column = |i: usize| unsafe { Operand::new(operands[i].bytes(), operands[i].dtype, &columns[i]) };
    let threads = context.par.lanes();
    match instr.op {
        Code::Const(value) => {
            let mut number = Value::new(instr.dtype, &Shape::new(&[]));
            leaf::constant(&Const { value, dtype: instr.dtype }, number.output());
            let ones = Shape::new(&vec![1; space.shape.rank()]);
            let layout = Layout::contiguous(&ones).expand(&space.shape);
            // SAFETY: all elements are the one number.
            copy::run(unsafe { Operand::new(number.operand().bytes(), instr.dtype, &layout) }, output, context);
        }
        Code::Element(op) => {
            let dtypes: Vec<DType> = operands.iter().map(|x| x.dtype).collect();
            let single = Fused::single(op, output.shape.clone(), &dtypes, instr.dtype);
            run(&single, operands, &[output], context);
        }
        Code::Reduce(op, block) => {
            let reduce = reduce(op, space);
            let inner = reduce.blocks(&space.shape).inner;
            let op = Reduce { blocking: Blocking::Every(block / inner), ..reduce };
            let bytes = crate::reduce::scratch(&op, instr.dtype, &[operands[0].layout], threads);
            with_scratch(bytes, |scratch| crate::reduce::run(&op, operands, output, scratch, context));
        }
        Code::Spread => {
            let layout = columns[0].expand(&space.shape);
            // SAFETY: as for columns.
            copy::run(unsafe { Operand::new(operands[0].bytes(), instr.dtype, &layout) }, output, context);
        }
        Code::Gather(dim, part_of) => {
            // SAFETY: the same elements under another shape.
            let output = unsafe { Output::new(output.bytes(), instr.dtype, &column) };
            index::gather(&Gather { dim, part_of }, &[operands[0], as_column(1)], output, context);
        }
        Code::Scatter(dim, part_of) => {
            let mut zeros = Value::new(instr.dtype, &space.shape);
            zeros.bytes.fill(0);
            let inputs = [zeros.operand(), as_column(0), as_column(1)];
            let layouts = inputs.map(|x| x.layout);
            let op = ScatterAdd { part_of, ..ScatterAdd::new(dim) };
            let bytes = index::scatter_add_scratch(&op, instr.dtype, &layouts, threads);
            with_scratch(bytes, |scratch| index::scatter_add(&op, &inputs, output, scratch, context));
        }
    }
}

/// The results of a region, each instruction on its own.
pub fn one_by_one(fused: &Fused, inputs: &[Operand], context: Context) -> Vec<Vec<u64>> {
    let mut values: Vec<Value> = vec![];
    let mut dense: Vec<Value> = inputs.iter().map(|x| Value::new(x.dtype, x.shape())).collect();
    dense.iter_mut().zip(inputs).for_each(|(value, x)| copy::run(*x, value.output(), context));
    for instr in &fused.code {
        let mut value = Value::new(instr.dtype, &shape_of(fused, instr.of_rows));
        let register = |r: u16| match dense.get(usize::from(r)) {
            Some(input) => input.operand(),
            None => values[usize::from(r) - inputs.len()].operand(),
        };
        let operands: Vec<Operand> = instr.reads().iter().map(|&r| register(r)).collect();
        instruction(&fused.space, instr, &operands, value.output(), context);
        values.push(value);
    }
    fused.outputs.iter().map(|&r| values[usize::from(r) - inputs.len()].bits()).collect()
}

fn shape_of(fused: &Fused, of_rows: bool) -> Shape {
    if of_rows { fused.space.row_shape() } else { fused.space.shape.clone() }
}

fn check<T: Sample>(seed: u64, shape: &[usize], row_dims: usize) {
    check_in::<T>(seed, Space::rows(row_dims, Shape::new(shape)));
}

fn check_in<T: Sample>(seed: u64, space: Space) {
    let mut draw = Draw { seed, count: 0 };
    let shape = &space.shape[..];
    let cases = Case::<T>::strided(shape);
    let rows = Case::<T>::strided(&space.row_shape());
    // Few regions have more operands than registers for addresses.
    let most = draw.of(&[1, 1, 1, 6]);
    let count = 2 + draw.below(most);
    let mut operands: Vec<Operand> = (0..count).map(|_| cases[draw.below(cases.len())].operand()).collect();
    let mut sources = vec![Source { dtype: T::DTYPE, of_rows: false }; count];
    let columns: Vec<i64> = (0..space.row_shape().numel()).map(|_| draw.below(space.columns()) as i64).collect();
    let layout = Layout::contiguous(&space.row_shape());
    if space.columns() > 1 {
        for _ in 0..1 + draw.below(2 * most) {
            operands.push(rows[draw.below(rows.len())].operand());
            sources.push(Source { dtype: T::DTYPE, of_rows: true });
        }
        operands.push(Operand::of(&columns, &layout));
        sources.push(Source { dtype: DType::I64, of_rows: true });
    }
    let length = 2 + draw.below(20 * most.min(2));
    let fused = random_region(&mut draw, &space, sources, length);
    each_context(|context| {
        let want = one_by_one(&fused, &operands, context);
        let value = |&r: &u16| Value::new(fused.dtype_of(r), &shape_of(&fused, fused.of_rows(r)));
        let mut values: Vec<Value> = fused.outputs.iter().map(value).collect();
        let outputs: Vec<Output> = values.iter_mut().map(Value::output).collect();
        run(&fused, &operands, &outputs, context);
        for (value, want) in values.iter().zip(want) {
            assert_eq!(value.bits(), want, "{fused} of {:?} {shape:?}", T::DTYPE);
            assert!(value.is_untouched_behind(), "{fused} of {:?} {shape:?}", T::DTYPE);
        }
    });
}

#[test]
fn several_results_are_those_of_the_instructions_one_by_one() {
    for seed in 0..12 {
        for shape in [&[5, 7][..], &[1], &[3, 1, 341], &[2, 1025], &[3, 2, 700], &[41, 67], &[0, 3]] {
            check::<f32>(seed, shape, shape.len());
            check::<half::bf16>(seed + 100, shape, shape.len());
        }
        check::<f64>(seed + 200, &[3, 401], 2);
        check::<half::f16>(seed + 300, &[3, 401], 2);
    }
}

#[test]
fn rows_are_combined_and_spread_as_alone() {
    for seed in 0..30 {
        let spaces: [(&[usize], usize); 13] = [
            (&[256, 10], 1),
            (&[300, 40], 1),
            (&[1100, 8], 1),
            (&[61, 200], 1),
            (&[5, 700], 1),
            (&[37, 2], 1),
            (&[5, 33], 1),
            (&[3, 4, 65], 2),
            (&[130, 3, 5], 1),
            (&[2, 1024], 1),
            (&[600], 0),
            (&[9, 7], 0),
            (&[0, 4], 1),
        ];
        for (shape, row_dims) in spaces {
            check::<f32>(seed, shape, row_dims);
        }
        check::<half::bf16>(seed, &[70, 31], 1);
        check::<half::f16>(seed, &[7, 300], 1);
        check::<f64>(seed, &[70, 10], 1);
    }
}

#[test]
fn rows_that_are_wider_than_a_tile_are_combined_and_spread_as_alone() {
    for seed in 0..30 {
        let spaces: [(&[usize], usize); 5] =
            [(&[3, 1025], 1), (&[7, 2048], 1), (&[2, 2, 3333], 2), (&[2, 9001], 1), (&[4500], 0)];
        for (shape, row_dims) in spaces {
            check::<f32>(seed, shape, row_dims);
        }
        check::<half::bf16>(seed, &[3, 5000], 1);
        check::<half::f16>(seed, &[2, 1500], 1);
        check::<f64>(seed, &[3, 2050], 1);
    }
}

#[test]
fn rows_beside_each_other_are_combined_and_spread_as_alone() {
    for seed in 0..30 {
        let spaces: [(&[usize], usize, usize); 12] = [
            (&[2, 5, 70], 1, 1),
            (&[3, 1100], 0, 1),
            (&[3, 20, 16], 1, 1),
            (&[2, 2, 3, 4, 33], 2, 1),
            (&[70, 2, 40], 0, 2),
            (&[2, 3, 4, 130], 1, 1),
            (&[1, 300, 17], 1, 1),
            (&[2500, 9], 0, 1),
            (&[2, 1, 65], 1, 1),
            (&[4, 7, 1], 1, 1),
            (&[600, 64], 0, 1),
            (&[0, 4, 3], 1, 1),
        ];
        for (shape, row_dims, inner_dims) in spaces {
            check_in::<f32>(seed, Space { shape: Shape::new(shape), row_dims, inner_dims });
        }
        let space = |shape: &[usize]| Space { shape: Shape::new(shape), row_dims: 1, inner_dims: 1 };
        check_in::<half::bf16>(seed, space(&[2, 31, 70]));
        check_in::<half::f16>(seed, space(&[1, 300, 7]));
        check_in::<f64>(seed, space(&[3, 10, 70]));
    }
}
