use super::cut::RUN;
use super::*;
use crate::Par;
use crate::math;
use crate::stream;
use crate::testing::{self, Case, Sample, bits, each_context, samples};
use half::{bf16, f16};
use meshwork_graph::ops::{BinaryOp, Element, Instr, ReduceOp, Source, Space, UnaryOp};
use meshwork_graph::{DType, Layout, Scalar, Shape};
use smallvec::SmallVec;

const UNARY: [UnaryOp; 19] = {
    use UnaryOp::*;
    [Neg, Abs, Sign, Recip, Exp, Expm1, Log, Log1p, Sqrt, Rsqrt, Sin, Cos, Tanh, Sigmoid, Erf, Floor, Ceil, Round, Relu]
};
const ARITHMETIC: [BinaryOp; 7] = {
    use BinaryOp::*;
    [Add, Sub, Mul, Div, Pow, Max, Min]
};
const COMPARE: [BinaryOp; 6] = {
    use BinaryOp::*;
    [Eq, Ne, Lt, Le, Gt, Ge]
};

/// Scalar references, written from the documentation of the operations.
trait Reference: Sample {
    fn unary(op: UnaryOp, x: Self) -> Option<Self>;
    fn binary(op: BinaryOp, x: Self, y: Self) -> Self;
    fn compare(op: BinaryOp, x: Self, y: Self) -> bool;
}

macro_rules! compare {
    () => {
        fn compare(op: BinaryOp, x: Self, y: Self) -> bool {
            match op {
                BinaryOp::Eq => x == y,
                BinaryOp::Ne => x != y,
                BinaryOp::Lt => x < y,
                BinaryOp::Le => x <= y,
                BinaryOp::Gt => x > y,
                _ => x >= y,
            }
        }
    };
}

macro_rules! reference_float {
    ($t:ident, $($math:ident)::+, $pow:path) => {
        impl Reference for $t {
            fn unary(op: UnaryOp, x: $t) -> Option<$t> {
                use $($math)::+ as m;
                Some(match op {
                    UnaryOp::Neg => -x,
                    UnaryOp::Abs => x.abs(),
                    UnaryOp::Sign if x.is_nan() || x == 0.0 => x.abs(),
                    UnaryOp::Sign => x.signum(),
                    UnaryOp::Recip => 1.0 / x,
                    UnaryOp::Exp => m::exp(x),
                    UnaryOp::Expm1 => m::expm1(x),
                    UnaryOp::Log => m::log(x),
                    UnaryOp::Log1p => m::log1p(x),
                    UnaryOp::Sqrt => x.sqrt(),
                    UnaryOp::Rsqrt => 1.0 / x.sqrt(),
                    UnaryOp::Sin => m::sin(x),
                    UnaryOp::Cos => m::cos(x),
                    UnaryOp::Tanh => m::tanh(x),
                    UnaryOp::Sigmoid if size_of::<$t>() == 4 => math::sigmoid(x as f32) as $t,
                    UnaryOp::Sigmoid if x < 0.0 => m::exp(x) / (1.0 + m::exp(x)),
                    UnaryOp::Sigmoid => 1.0 / (1.0 + m::exp(-x)),
                    UnaryOp::Erf => m::erf(x),
                    UnaryOp::Floor => x.floor(),
                    UnaryOp::Ceil => x.ceil(),
                    UnaryOp::Round => x.round_ties_even(),
                    UnaryOp::Relu => if x.is_nan() || x > 0.0 { x } else { 0.0 },
                    UnaryOp::Not => return None,
                })
            }

            fn binary(op: BinaryOp, x: $t, y: $t) -> $t {
                match op {
                    BinaryOp::Add => x + y,
                    BinaryOp::Sub => x - y,
                    BinaryOp::Mul => x * y,
                    BinaryOp::Div => x / y,
                    BinaryOp::Pow => $pow(x, y),
                    BinaryOp::Max | BinaryOp::Min if x.is_nan() || y.is_nan() => $t::NAN,
                    BinaryOp::Max => if x.total_cmp(&y).is_gt() { x } else { y },
                    _ => if x.total_cmp(&y).is_lt() { x } else { y },
                }
            }


            compare!();
        }
    };
}

reference_float!(f64, libm, libm::pow);
reference_float!(f32, crate::math, math::pow);

macro_rules! reference_half {
    ($t:ident) => {
        impl Reference for $t {
            fn unary(op: UnaryOp, x: $t) -> Option<$t> {
                f32::unary(op, x.to_f32()).map($t::from_f32)
            }
            fn binary(op: BinaryOp, x: $t, y: $t) -> $t {
                $t::from_f32(f32::binary(op, x.to_f32(), y.to_f32()))
            }
            compare!();
        }
    };
}

reference_half!(f16);
reference_half!(bf16);

macro_rules! reference_int {
    ($t:ident, |$x:ident| $abs:expr, $sign:expr) => {
        impl Reference for $t {
            fn unary(op: UnaryOp, $x: $t) -> Option<$t> {
                Some(match op {
                    UnaryOp::Neg => (0 as $t).wrapping_sub($x),
                    UnaryOp::Abs => $abs,
                    UnaryOp::Sign => $sign,
                    UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round => $x,
                    UnaryOp::Relu => $x.max(0),
                    _ => return None,
                })
            }
            fn binary(op: BinaryOp, x: $t, y: $t) -> $t {
                match op {
                    BinaryOp::Add => x.wrapping_add(y),
                    BinaryOp::Sub => x.wrapping_sub(y),
                    BinaryOp::Mul => x.wrapping_mul(y),
                    BinaryOp::Div => x.checked_div(y).unwrap_or(if y == 0 { 0 } else { x }),
                    BinaryOp::Pow if (y as i128) < 0 => match x as i128 {
                        1 => 1,
                        -1 if y % 2 == 0 => 1,
                        -1 => x,
                        _ => 0,
                    },
                    // Large powers are periodic in the low bits of the exponent only for odd bases; count them all.
                    BinaryOp::Pow => x.wrapping_pow((y as u64).min(1 << 20) as u32),
                    BinaryOp::Max => x.max(y),
                    _ => x.min(y),
                }
            }
            compare!();
        }
    };
}

reference_int!(i64, |x| x.wrapping_abs(), x.signum());
reference_int!(i32, |x| x.wrapping_abs(), x.signum());
reference_int!(u8, |x| x, x.min(1));

fn one_thread(level: Level, test: impl FnOnce(Context)) {
    let par = Par::new(1);
    test(Context { par: &par, level });
}

fn run_single<R: Sample>(op: Element, inputs: &[Operand], context: Context) -> Vec<R> {
    let dtypes: Vec<DType> = inputs.iter().map(|i| i.dtype).collect();
    let fused = Fused::single(op, inputs[0].shape().clone(), &dtypes, R::DTYPE);
    testing::output::<R>(inputs[0].shape(), |output| run(&fused, inputs, &[output], context))
}

/// Two columns of numbers that meet in all pairs of edge cases.
fn pairs<T: Sample>(edges: &[T]) -> (Case<T>, Case<T>) {
    let mut a: Vec<T> = edges.iter().flat_map(|&x| vec![x; edges.len()]).collect();
    let mut b: Vec<T> = edges.iter().flat_map(|_| edges.to_vec()).collect();
    a.extend(samples::<T>(7, 1500));
    b.extend(samples::<T>(8, 1500));
    let layout = meshwork_graph::Layout::contiguous(&Shape::new(&[a.len()]));
    (Case { data: a, layout: layout.clone() }, Case { data: b, layout })
}

fn check_all<T: Reference>(edges: &[T]) {
    let (a, b) = pairs(edges);
    for level in Level::available() {
        one_thread(level, |context| {
            for op in UNARY {
                let want: Option<Vec<T>> = a.data.iter().map(|&x| T::unary(op, x)).collect();
                if let Some(want) = want {
                    let got = run_single::<T>(Element::Unary(op), &[a.operand()], context);
                    assert_eq!(bits(&got), bits(&want), "{op:?} {} {}", T::DTYPE, level.name());
                }
            }
            for op in ARITHMETIC {
                if op == BinaryOp::Pow && !T::DTYPE.is_float() && T::DTYPE != DType::U8 {
                    continue;
                }
                let want: Vec<T> = a.data.iter().zip(&b.data).map(|(&x, &y)| T::binary(op, x, y)).collect();
                let got = run_single::<T>(Element::Binary(op), &[a.operand(), b.operand()], context);
                assert_eq!(bits(&got), bits(&want), "{op:?} {} {}", T::DTYPE, level.name());
            }
            for op in COMPARE {
                let want: Vec<bool> = a.data.iter().zip(&b.data).map(|(&x, &y)| T::compare(op, x, y)).collect();
                let got = run_single::<bool>(Element::Binary(op), &[a.operand(), b.operand()], context);
                assert_eq!(got, want, "{op:?} {} {}", T::DTYPE, level.name());
            }
        });
    }
}

const EDGES: [f64; 14] =
    [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.1, 1e-42, 1e30, -3e5, 65504.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];

#[test]
fn every_operation_of_floats_is_the_scalar_one() {
    check_all::<f64>(&EDGES);
    check_all::<f32>(&EDGES.map(|x| x as f32));
    check_all::<f16>(&EDGES.map(f16::from_f64));
    check_all::<bf16>(&EDGES.map(bf16::from_f64));
}

#[test]
fn every_operation_of_integers_is_the_scalar_one() {
    check_all::<i64>(&[0, 1, -1, 2, -7, i64::MAX, i64::MIN]);
    check_all::<i32>(&[0, 1, -1, 2, -7, i32::MAX, i32::MIN]);
    check_all::<u8>(&[0, 1, 2, 7, 255]);
    let (a, b) = pairs::<i64>(&[0, 1, -1, 2, -2, 3, 10, 63, -5]);
    let small =
        |case: &Case<i64>| Case { data: case.data.iter().map(|x| x % 70).collect(), layout: case.layout.clone() };
    let (a, b) = (small(&a), small(&b));
    one_thread(Level::current(), |context| {
        let want: Vec<i64> = a.data.iter().zip(&b.data).map(|(&x, &y)| i64::binary(BinaryOp::Pow, x, y)).collect();
        assert_eq!(run_single::<i64>(Element::Binary(BinaryOp::Pow), &[a.operand(), b.operand()], context), want);
    });
}

#[test]
fn bools_follow_logic() {
    let (a, b) = pairs::<bool>(&[false, true]);
    type Logic = fn(bool, bool) -> bool;
    let table: [(BinaryOp, Logic); 7] = [
        (BinaryOp::And, |x, y| x & y),
        (BinaryOp::Or, |x, y| x | y),
        (BinaryOp::Xor, |x, y| x ^ y),
        (BinaryOp::Max, |x, y| x | y),
        (BinaryOp::Min, |x, y| x & y),
        (BinaryOp::Eq, |x, y| x == y),
        (BinaryOp::Lt, |x, y| !x & y),
    ];
    one_thread(Level::current(), |context| {
        for (op, logic) in table {
            let want: Vec<bool> = a.data.iter().zip(&b.data).map(|(&x, &y)| logic(x, y)).collect();
            assert_eq!(run_single::<bool>(Element::Binary(op), &[a.operand(), b.operand()], context), want, "{op:?}");
        }
        let want: Vec<bool> = a.data.iter().map(|x| !x).collect();
        assert_eq!(run_single::<bool>(Element::Unary(UnaryOp::Not), &[a.operand()], context), want);
    });
}

#[test]
fn casts_truncate_saturate_and_round_once() {
    let xs = [1.9, -1.9, 300.0, -300.0, 1e30, -1e30, f64::NAN, 0.0, -0.0, 0.3, 65519.9, 1.0 + 2f64.powi(-11) + 1e-15];
    let case = Case { data: xs.to_vec(), layout: meshwork_graph::Layout::contiguous(&Shape::new(&[xs.len()])) };
    one_thread(Level::current(), |context| {
        let cast = |to| (Element::Cast(to), [case.operand()]);
        let (op, x) = cast(DType::I32);
        assert_eq!(run_single::<i32>(op, &x, context), xs.map(|x| x as i32));
        let (op, x) = cast(DType::U8);
        assert_eq!(run_single::<u8>(op, &x, context), xs.map(|x| x as u8));
        let (op, x) = cast(DType::Bool);
        assert_eq!(run_single::<bool>(op, &x, context), xs.map(|x| x != 0.0));
        let (op, x) = cast(DType::F16);
        let got = run_single::<f16>(op, &x, context);
        assert_eq!(bits(&got[..11]), bits(&xs.map(f16::from_f64)[..11]));
        assert_eq!(got[11].to_bits(), 0x3c01, "just above the middle of two f16");
        let (op, x) = cast(DType::BF16);
        assert_eq!(run_single::<bf16>(op, &x, context)[0], bf16::from_f64(1.9));
        let ints = Case::<i64>::dense(3, &[700]);
        let want: Vec<i32> = ints.data.iter().map(|&x| x as i32).collect();
        assert_eq!(run_single::<i32>(Element::Cast(DType::I32), &[ints.operand()], context), want);
        let want: Vec<f32> = ints.data.iter().map(|&x| x as f32).collect();
        assert_eq!(run_single::<f32>(Element::Cast(DType::F32), &[ints.operand()], context), want);
    });
}

fn instr(op: impl Into<Code>, args: [u16; 3], dtype: DType) -> Instr {
    Instr { op: op.into(), args, of_rows: false, dtype }
}

/// where(a < b, tanh(a·b + a), −b) · 0.1 in a float dtype, with more registers than a tile needs at once.
fn region(dtype: DType, shape: &Shape) -> Fused {
    use Element::{Binary, Select, Unary};
    let source = Source { dtype, of_rows: false };
    Fused {
        space: Space::elements(shape.clone()),
        inputs: vec![source; 2],
        code: vec![
            instr(Binary(BinaryOp::Mul), [0, 1, 0], dtype),
            instr(Binary(BinaryOp::Add), [2, 0, 0], dtype),
            instr(Unary(UnaryOp::Tanh), [3, 0, 0], dtype),
            instr(Code::Const(Scalar::Float(0.1)), [0; 3], dtype),
            instr(Unary(UnaryOp::Neg), [1, 0, 0], dtype),
            instr(Binary(BinaryOp::Lt), [0, 1, 0], DType::Bool),
            instr(Select, [7, 4, 6], dtype),
            instr(Binary(BinaryOp::Mul), [8, 5, 0], dtype),
        ],
        outputs: SmallVec::from_slice(&[9]),
    }
}

fn region_reference<T: Reference>(a: T, b: T, tenth: T) -> T {
    let p = T::binary(BinaryOp::Mul, a, b);
    let t = T::unary(UnaryOp::Tanh, T::binary(BinaryOp::Add, p, a)).unwrap();
    let n = T::unary(UnaryOp::Neg, b).unwrap();
    let s = if T::compare(BinaryOp::Lt, a, b) { t } else { n };
    T::binary(BinaryOp::Mul, s, tenth)
}

fn check_region<T: Reference>(shape: &[usize], tenth: T, everywhere: bool) {
    let fused = region(T::DTYPE, &Shape::new(shape));
    let right = Case::<T>::strided(shape);
    let left = Case::<T>::strided(shape);
    let test = |context: Context| {
        for (i, a) in left.iter().enumerate() {
            let b = &right[(i * 5 + 3) % right.len()];
            let want: Vec<T> =
                a.elements().into_iter().zip(b.elements()).map(|(x, y)| region_reference(x, y, tenth)).collect();
            let got = testing::output::<T>(&a.layout.shape, |output| {
                run(&fused, &[a.operand(), b.operand()], &[output], context);
            });
            assert_eq!(bits(&got), bits(&want), "{} {:?} {:?}", T::DTYPE, a.layout, b.layout);
        }
    };
    if everywhere { each_context(test) } else { one_thread(Level::current(), test) }
}

#[test]
fn regions_are_their_operations_one_by_one() {
    check_region::<f32>(&[13, 7, 31], 0.1, true);
    check_region::<f32>(&[37, 1021], 0.1, false);
    // Rows that are longer than a tile, in parts that begin with lines of the caches and in others.
    check_region::<f32>(&[67, 1200], 0.1, true);
    check_region::<f32>(&[67, 1201], 0.1, false);
    check_region::<bf16>(&[3, 40, 1056], bf16::from_f64(0.1), false);
    check_region::<f64>(&[5, 211], 0.1, false);
    check_region::<f16>(&[3, 5, 101], f16::from_f64(0.1), false);
    check_region::<bf16>(&[3, 5, 101], bf16::from_f64(0.1), true);
    for shape in [&[][..], &[1], &[0], &[4, 0, 3], &[1, 1, 1]] {
        check_region::<f32>(shape, 0.1, true);
        check_region::<bf16>(shape, bf16::from_f64(0.1), false);
    }
}

#[test]
fn large_regions_use_all_threads_and_give_the_same() {
    let a = Case::<f32>::dense(1, &[307, 409]);
    let fused = region(DType::F32, &a.layout.shape);
    let want: Vec<f32> = a.data.iter().map(|&x| region_reference(x, x, 0.1)).collect();
    each_context(|context| {
        let got = testing::output::<f32>(&a.layout.shape, |output| {
            run(&fused, &[a.operand(), a.operand()], &[output], context);
        });
        assert_eq!(bits(&got), bits(&want));
    });
}

#[test]
fn a_transposed_operand_goes_past_the_caches_in_parts_of_rows() {
    let (rows, columns) = (stream::STREAM_BYTES / 4 / 2048 + 3, 2048);
    let layout = Layout::contiguous(&Shape::new(&[columns, rows])).permute(&[1, 0]);
    let turned = Case::<f32>::new(1, rows * columns, layout);
    let dense = Case::<f32>::dense(2, &[rows, columns]);
    let fused = Fused {
        space: Space::elements(turned.layout.shape.clone()),
        inputs: vec![Source { dtype: DType::F32, of_rows: false }; 2],
        code: vec![instr(Element::Binary(BinaryOp::Add), [0, 1, 0], DType::F32)],
        outputs: SmallVec::from_slice(&[2]),
    };
    let want: Vec<f32> =
        (0..rows * columns).map(|i| turned.data[i % columns * rows + i / columns] + dense.data[i]).collect();
    let par = Par::new(3);
    for level in Level::available() {
        let got = testing::output::<f32>(&turned.layout.shape, |output| {
            run(&fused, &[turned.operand(), dense.operand()], &[output], Context { par: &par, level });
        });
        assert!(bits(&got) == bits(&want), "{level:?}");
    }
}

/// ((aᵀ + bᵀ) · cᵀ)^d, where b is of bf16 and d dense: rows and their parts of many lengths, with and without machine code.
#[test]
fn transposed_operands_are_read_by_strips_of_long_rows() {
    for (rows, columns) in [(3, 1100), (16, 1025), (70, 2 * turned::WINDOW + 7), (131, 1600)] {
        let layout = Layout::contiguous(&Shape::new(&[columns, rows])).permute(&[1, 0]);
        let [a, c] = [1, 2].map(|seed| Case::<f32>::new(seed, rows * columns, layout.clone()));
        let b = Case::<bf16>::new(3, rows * columns, layout.clone());
        let d = Case::<f32>::dense(4, &[rows, columns]);
        let source = |dtype: DType| Source { dtype, of_rows: false };
        let fused = Fused {
            space: Space::elements(layout.shape.clone()),
            inputs: vec![source(DType::F32), source(DType::BF16), source(DType::F32), source(DType::F32)],
            code: vec![
                instr(Element::Cast(DType::F32), [1, 0, 0], DType::F32),
                instr(Element::Binary(BinaryOp::Add), [0, 4, 0], DType::F32),
                instr(Element::Binary(BinaryOp::Mul), [5, 2, 0], DType::F32),
                instr(Element::Binary(BinaryOp::Pow), [6, 3, 0], DType::F32),
            ],
            outputs: SmallVec::from_slice(&[6, 7]),
        };
        let operands = a.elements().into_iter().zip(b.elements()).zip(c.elements());
        let products: Vec<f32> = operands.map(|((a, b), c)| (a + b.to_f32()) * c).collect();
        let powers: Vec<f32> = products.iter().zip(&d.data).map(|(&x, &y)| math::pow(x, y)).collect();
        each_context(|context| {
            let mut got = [vec![0.0f32; rows * columns], vec![0.0f32; rows * columns]];
            let [first, second] = &mut got;
            let outputs = [Output::of(first, &layout.shape), Output::of(second, &layout.shape)];
            run(&fused, &[a.operand(), b.operand(), c.operand(), d.operand()], &outputs, context);
            assert!(bits(&got[0]) == bits(&products), "{rows}×{columns}, {:?}", context.level);
            assert!(bits(&got[1]) == bits(&powers), "{rows}×{columns}, {:?}", context.level);
        });
    }
}

/// (a + row) · column, and column^row, which no machine code does, from long rows on: the result streamed and not,
/// whose rows begin with lines of the caches or within them.
#[test]
fn rows_and_columns_are_repeated_over_long_rows() {
    let streamed = [1040, 1041, RUN + 5, 2 * RUN + 9].map(|columns| (stream::STREAM_BYTES / 4 / columns + 1, columns));
    let cached = [(5, 511), (5, 512), (3, 1300), (3, 2 * RUN + 48)];
    for (rows, columns) in cached.into_iter().chain(streamed) {
        let streams = 4 * rows * columns >= stream::STREAM_BYTES;
        let shape = Shape::new(&[rows, columns]);
        let a = Case::<f32>::dense(1, &[rows, columns]);
        let row = Case::new(2, columns, Layout::contiguous(&Shape::new(&[1, columns])).expand(&shape));
        let column = Case::new(3, rows, Layout::contiguous(&Shape::new(&[rows, 1])).expand(&shape));
        let fused = Fused {
            space: Space::elements(shape.clone()),
            inputs: vec![Source { dtype: DType::F32, of_rows: false }; 3],
            code: vec![
                instr(Element::Binary(BinaryOp::Add), [0, 1, 0], DType::F32),
                instr(Element::Binary(BinaryOp::Mul), [3, 2, 0], DType::F32),
            ],
            outputs: SmallVec::from_slice(&[4]),
        };
        let element = |i: usize| (a.data[i] + row.data[i % columns]) * column.data[i / columns];
        let want: Vec<f32> = (0..rows * columns).map(element).collect();
        let power = Fused::single(Element::Binary(BinaryOp::Pow), shape.clone(), &[DType::F32; 2], DType::F32);
        let powers = |i: usize| math::pow(column.data[i / columns], row.data[i % columns]);
        let powers: Vec<f32> = (0..if streams { 0 } else { rows * columns }).map(powers).collect();
        let par = Par::new(3);
        for level in Level::available() {
            let context = Context { par: &par, level };
            // The first row begins with a line.
            let mut room = vec![0f32; rows * columns + 16];
            let first = room.as_ptr().align_offset(64);
            let got = &mut room[first..first + rows * columns];
            run(&fused, &[a.operand(), row.operand(), column.operand()], &[Output::of(got, &shape)], context);
            assert!(bits(got) == bits(&want), "{shape} at {level:?}");
            if !streams {
                let got = testing::output::<f32>(&shape, |output| {
                    run(&power, &[column.operand(), row.operand()], &[output], context);
                });
                assert_eq!(bits(&got), bits(&powers), "powers of {shape} at {level:?}");
            }
        }
    }
}

/// (a + row) − the greatest element of its row: what every tile has the same of is there in each, whether tiles have one
/// row or several, and where the last one has fewer; for f32 and for what is widened.
#[test]
fn rows_that_are_the_same_in_every_tile_are_there_in_each() {
    fn check<T: Reference>(rows: usize, columns: usize) {
        let shape = Shape::new(&[rows, columns]);
        let a = Case::<T>::dense(1, &[rows, columns]);
        let row = Case::<T>::new(2, columns, Layout::contiguous(&Shape::new(&[1, columns])).expand(&shape));
        let fused = Fused {
            space: Space::rows(1, shape.clone()),
            inputs: vec![Source { dtype: T::DTYPE, of_rows: false }; 2],
            code: vec![
                instr(Element::Binary(BinaryOp::Add), [0, 1, 0], T::DTYPE),
                Instr { of_rows: true, ..instr(Code::Reduce(ReduceOp::Max, 64), [2, 0, 0], T::DTYPE) },
                instr(Code::Spread, [3, 0, 0], T::DTYPE),
                instr(Element::Binary(BinaryOp::Sub), [2, 4, 0], T::DTYPE),
            ],
            outputs: SmallVec::from_slice(&[5]),
        };
        let sum = |i: usize| T::binary(BinaryOp::Add, a.data[i], row.data[i % columns]);
        let greatest = |i: usize| {
            let first = i / columns * columns;
            (first..first + columns).map(sum).reduce(|x, y| T::binary(BinaryOp::Max, x, y)).expect("columns")
        };
        let want: Vec<T> = (0..rows * columns).map(|i| T::binary(BinaryOp::Sub, sum(i), greatest(i))).collect();
        each_context(|context| {
            let got = testing::output::<T>(&shape, |output| {
                run(&fused, &[a.operand(), row.operand()], &[output], context);
            });
            assert_eq!(bits(&got), bits(&want), "{shape} of {:?} at {:?}", T::DTYPE, context.level);
        });
    }
    for (rows, columns) in
        [(1, 7), (33, 1), (70, 16), (19, 256), (7, 300), (3, 1024), (5, 1500), (70, 1000), (1100, 40), (1100, 9)]
    {
        check::<f32>(rows, columns);
        check::<bf16>(rows, columns);
    }
}

/// An operand whose elements come again and again, whatever of them a tile begins with.
#[test]
fn elements_that_come_again_are_there_wherever_a_tile_begins() {
    fn check<T: Reference>(rows: usize, period: usize) {
        let shape = Shape::new(&[rows, period]);
        let a = Case::<T>::dense(1, &[rows, period]);
        let row = Case::<T>::new(2, period, Layout::contiguous(&Shape::new(&[1, period])).expand(&shape));
        let one = Case::<T>::new(3, rows, Layout::contiguous(&Shape::new(&[rows, 1])).expand(&shape));
        let fused = Fused {
            space: Space::rows(2, shape.clone()),
            inputs: vec![Source { dtype: T::DTYPE, of_rows: false }; 3],
            code: vec![
                instr(Element::Binary(BinaryOp::Add), [0, 1, 0], T::DTYPE),
                instr(Element::Binary(BinaryOp::Mul), [3, 2, 0], T::DTYPE),
            ],
            outputs: SmallVec::from_slice(&[4]),
        };
        let value = |i: usize| {
            let sum = T::binary(BinaryOp::Add, a.data[i], row.data[i % period]);
            T::binary(BinaryOp::Mul, sum, one.data[i / period])
        };
        let want: Vec<T> = (0..rows * period).map(value).collect();
        each_context(|context| {
            let got = testing::output::<T>(&shape, |output| {
                run(&fused, &[a.operand(), row.operand(), one.operand()], &[output], context);
            });
            assert_eq!(bits(&got), bits(&want), "{shape} of {:?} at {:?}", T::DTYPE, context.level);
        });
    }
    for (rows, period) in [(3, 5), (1100, 7), (400, 20), (300, 69), (40, 500), (11, 511), (9, 1000), (30, 64)] {
        check::<f32>(rows, period);
        check::<bf16>(rows, period);
        check::<f64>(rows, period);
        check::<i32>(rows, period);
    }
}

#[test]
fn more_results_than_vector_registers_are_all_there() {
    let shape = Shape::new(&[3, 37]);
    let count = 45;
    let cases: Vec<Case<f32>> = (0..count).map(|i| Case::dense(i as u64, &[3, 37])).collect();
    let fused = Fused {
        space: Space::elements(shape.clone()),
        inputs: vec![Source { dtype: DType::F32, of_rows: false }; count],
        code: (0..count as u16).map(|i| instr(Element::Unary(UnaryOp::Neg), [i, 0, 0], DType::F32)).collect(),
        outputs: (count as u16..2 * count as u16).collect(),
    };
    let operands: Vec<Operand> = cases.iter().map(Case::operand).collect();
    each_context(|context| {
        let mut results = vec![vec![0f32; shape.numel()]; count];
        let output = |result: &mut Vec<f32>| {
            // SAFETY: room for all elements.
            unsafe { Output::new(result.as_mut_ptr().cast(), DType::F32, &shape) }
        };
        let outputs: Vec<Output> = results.iter_mut().map(output).collect();
        run(&fused, &operands, &outputs, context);
        for (case, result) in cases.iter().zip(&results) {
            let want: Vec<f32> = case.data.iter().map(|x| -x).collect();
            assert_eq!(bits(result), bits(&want));
        }
    });
}

#[test]
fn results_larger_than_the_caches_are_the_same_wherever_they_lie() {
    let shape = Shape::new(&[stream::STREAM_BYTES / 4 + 5]);
    let count = shape.numel();
    let data: Vec<f32> = (0..count).map(|i| (i % 1013) as f32 * 0.25 - 100.0).collect();
    let want: Vec<u32> = data.iter().map(|&x| region_reference(x, x, 0.1).to_bits()).collect();
    let fused = region(DType::F32, &shape);
    let layout = Layout::contiguous(&shape);
    let mut room = vec![0f32; count + 17];
    let par = Par::new(2);
    for level in Level::available() {
        for start in [0, 1] {
            room.fill(0.0);
            let first = room.as_ptr().align_offset(64) + start;
            // SAFETY: the operand's elements, and room for those of the result.
            unsafe {
                let operand = Operand::new(data.as_ptr().cast(), DType::F32, &layout);
                let output = Output::new(room[first..].as_mut_ptr().cast(), DType::F32, &shape);
                run(&fused, &[operand, operand], &[output], Context { par: &par, level });
            }
            let got = room[first..first + count].iter().map(|x| x.to_bits());
            assert!(got.eq(want.iter().copied()), "{level:?}, {start} elements off a line");
            assert!(room[..first].iter().chain(&room[first + count..]).all(|&x| x == 0.0));
        }
    }
}

fn check_in_place<T: Reference>(tenth: T) {
    let shape = Shape::new(&[70, 333]);
    let layout = meshwork_graph::Layout::contiguous(&shape);
    let b = Case::<T>::dense(2, &shape);
    let start = samples::<T>(1, shape.numel());
    let want: Vec<T> = start.iter().zip(&b.data).map(|(&x, &y)| region_reference(x, y, tenth)).collect();
    each_context(|context| {
        let mut data = start.clone();
        let at = data.as_mut_ptr();
        // SAFETY: the operand is dense at the address of the output.
        unsafe {
            let a = Operand::new(at.cast_const().cast(), T::DTYPE, &layout);
            let output = Output::new(at.cast(), T::DTYPE, &shape);
            run(&region(T::DTYPE, &shape), &[a, b.operand()], &[output], context);
        }
        assert_eq!(bits(&data), bits(&want));
    });
}

#[test]
fn results_may_replace_an_operand() {
    check_in_place::<f32>(0.1);
    check_in_place::<f16>(f16::from_f64(0.1));
}

#[test]
#[should_panic(expected = "overlaps the output")]
fn a_shifted_operand_may_not_be_replaced() {
    let shape = Shape::new(&[3, 3]);
    let layout = meshwork_graph::Layout::contiguous(&shape).permute(&[1, 0]);
    let mut data = [0f32; 9];
    let at = data.as_mut_ptr();
    one_thread(Level::current(), |context| {
        // SAFETY: the memory is there; the kernel refuses before it reads.
        unsafe {
            let a = Operand::new(at.cast_const().cast(), DType::F32, &layout);
            let fused = Fused::single(Element::Unary(UnaryOp::Neg), shape.clone(), &[DType::F32], DType::F32);
            run(&fused, &[a], &[Output::new(at.cast(), DType::F32, &shape)], context);
        }
    });
}

#[test]
fn far_sines_are_exact_wherever_they_stand() {
    let mut data = samples::<f32>(1, 2000);
    for i in (0..2000).step_by(37) {
        data[i] *= 1e7;
    }
    data[1999] = f32::MAX;
    let case = Case { data, layout: meshwork_graph::Layout::contiguous(&Shape::new(&[2000])) };
    each_context(|context| {
        let got = run_single::<f32>(Element::Unary(UnaryOp::Sin), &[case.operand()], context);
        assert_eq!(bits(&got), bits(&case.data.iter().map(|&x| math::sin(x)).collect::<Vec<_>>()));
    });
}
