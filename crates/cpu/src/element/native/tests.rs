use super::*;
use crate::element::ops::{self, Tile, held};
use meshwork_graph::Scalar;
use meshwork_graph::philox;

/// Numbers of all kinds: of every size, zeros, infinities, NaN and subnormal ones.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let special =
        [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, -1e-40, 0.5, 2.5, -3.5, 65519.9];
    let number = |i: u64| match philox::bits(seed, i) {
        bits if bits % 4 == 0 => special[(bits >> 8) as usize % special.len()],
        bits if bits % 4 == 1 => f32::from_bits((bits >> 16) as u32),
        bits => ((bits >> 20) as i32 as f32) * 1e-8,
    };
    (0..count as u64).map(number).collect()
}

fn instr(op: impl Into<Code>, args: &[u16], dtype: DType) -> Instr {
    let mut all = [0; 3];
    all[..args.len()].copy_from_slice(args);
    Instr { op: op.into(), args: all, of_rows: false, dtype }
}

/// Bits of which all NaN are one.
fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect()
}

/// The levels that have code here.
fn levels() -> impl Iterator<Item = Level> {
    Level::available().into_iter().filter(|&level| has_code(level))
}

/// One instruction on three registers of a dtype, by the loops and by machine code, on every number of elements up to
/// some vectors.
fn agrees(element: Element, dtype: DType, result: DType) {
    let arity = element.arity();
    let is_select = element == Element::Select;
    let mut inputs = vec![Stored::held(dtype).unwrap(); arity];
    if is_select {
        inputs[0] = Stored::Bool;
    }
    let args: Vec<u16> = (0..arity as u16).collect();
    let out = Stored::held(result).unwrap();
    let code = vec![instr(element, &args, result)];
    let run = Run { inputs, code, outputs: vec![(arity as u16, out)], ..Run::default() };
    for (level, count) in levels().flat_map(|level| (1..70).chain([1024]).map(move |count| (level, count))) {
        let native = compile(&run, level).unwrap();
        let round = |x: f32| match dtype {
            DType::F16 => half::f16::from_f32(x).to_f32(),
            DType::BF16 => half::bf16::from_f32(x).to_f32(),
            _ => x,
        };
        let floats: Vec<Vec<f32>> =
            (0..3).map(|i| numbers(count as u64 * 3 + i, count).into_iter().map(round).collect()).collect();
        let bools: Vec<Vec<u8>> =
            floats.iter().map(|x| x.iter().map(|x| u8::from(x.to_bits() & 1 == 1 || *x > 0.0)).collect()).collect();
        let at = |i: usize| match dtype {
            DType::Bool => bools[i].as_ptr().cast_mut(),
            _ if is_select && i == 0 => bools[0].as_ptr().cast_mut(),
            _ => floats[i].as_ptr().cast_mut().cast::<u8>(),
        };
        let (mut expected, mut found) = (vec![7.0f32; count + 16], vec![7.0f32; count + 16]);
        let mut addresses: Vec<*mut u8> = (0..arity).map(at).collect();
        addresses.push(found.as_mut_ptr().cast());
        let tile = Tile {
            args: [0, 1, 2].map(|i| at(i).cast_const()),
            out: expected.as_mut_ptr().cast(),
            count,
            level: Level::Portable,
        };
        // SAFETY: operands of `count` elements, and results with room for them.
        unsafe {
            native.run(&addresses, Rows::ONE, count);
            match element {
                Element::Unary(op) => ops::unary(op, held(dtype), &tile),
                Element::Binary(op) => ops::binary(op, held(dtype), &tile),
                Element::Select => ops::select(held(result).size(), &tile),
                Element::Cast(to) => ops::cast(held(dtype), to, &tile),
            }
            if matches!(result, DType::F16 | DType::BF16) {
                ops::round(result, &tile);
            }
        }
        assert_eq!(bits(&found), bits(&expected), "{element:?} of {dtype}, {count} elements, {level:?}");
    }
}

#[test]
fn every_instruction_gives_the_bits_of_its_loop() {
    use BinaryOp::*;
    use UnaryOp::*;
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for op in [Neg, Abs, Sign, Recip, Sqrt, Rsqrt, Floor, Ceil, Round, Relu] {
            agrees(Element::Unary(op), dtype, dtype);
        }
        for op in [Exp, Expm1, Log, Log1p, Tanh, Sigmoid, Erf] {
            agrees(Element::Unary(op), dtype, dtype);
        }
        for op in [Add, Sub, Mul, Div, Max, Min] {
            agrees(Element::Binary(op), dtype, dtype);
        }
        for op in [Eq, Ne, Lt, Le, Gt, Ge] {
            agrees(Element::Binary(op), dtype, DType::Bool);
        }
        agrees(Element::Select, dtype, dtype);
        for to in [DType::F32, DType::F16, DType::BF16, DType::Bool] {
            agrees(Element::Cast(to), dtype, to);
            agrees(Element::Cast(dtype), DType::Bool, dtype);
        }
    }
    agrees(Element::Unary(Not), DType::Bool, DType::Bool);
    for op in [And, Or, Xor] {
        agrees(Element::Binary(op), DType::Bool, DType::Bool);
    }
}

/// Bit patterns of every size, sign and kind.
#[test]
fn functions_give_the_bits_of_their_definition() {
    use crate::math;
    use UnaryOp::*;
    type Function = (UnaryOp, fn(f32) -> f32);
    let functions: [Function; 7] = [
        (Exp, math::exp),
        (Expm1, math::expm1),
        (Log, math::log),
        (Log1p, math::log1p),
        (Tanh, math::tanh),
        (Sigmoid, math::sigmoid),
        (Erf, math::erf),
    ];
    let all: Vec<f32> = (0..=u32::MAX).step_by(16_363).map(f32::from_bits).collect();
    for (level, (op, function)) in levels().flat_map(|level| functions.map(|function| (level, function))) {
        let run = Run {
            inputs: vec![Stored::F32],
            code: vec![instr(Element::Unary(op), &[0], DType::F32)],
            outputs: vec![(1, Stored::F32)],
            ..Run::default()
        };
        let mut found = vec![0f32; all.len()];
        // SAFETY: operands of as many elements.
        unsafe {
            compile(&run, level).unwrap().run(
                &[all.as_ptr().cast_mut().cast(), found.as_mut_ptr().cast()],
                Rows::ONE,
                all.len(),
            );
        }
        for (&x, &found) in all.iter().zip(&found) {
            let expected = function(x);
            assert_eq!(bits(&[found]), bits(&[expected]), "{op:?} of {x:e}: {found:e}, not {expected:e}, {level:?}");
        }
    }
}

#[test]
fn constants_stand_on_either_side() {
    use BinaryOp::*;
    let x = numbers(5, 37);
    for (level, op) in levels().flat_map(|level| [Add, Sub, Mul, Div, Max, Min].map(|op| (level, op))) {
        for (args, swapped) in [([0u16, 1], false), ([1, 0], true)] {
            let three = instr(Code::Const(Scalar::Float(3.3)), &[], DType::F32);
            let code = vec![three, instr(Element::Binary(op), &args, DType::F32)];
            let run = Run { inputs: vec![Stored::F32], code, outputs: vec![(2, Stored::F32)], ..Run::default() };
            let (mut found, mut expected) = (vec![0f32; 37], vec![0f32; 37]);
            let constants = [3.3f32; 37];
            let (x8, c8) = (x.as_ptr().cast::<u8>(), constants.as_ptr().cast::<u8>());
            let sides = if swapped { [c8, x8, x8] } else { [x8, c8, x8] };
            let tile = Tile { args: sides, out: expected.as_mut_ptr().cast(), count: 37, level: Level::Portable };
            // SAFETY: operands of 37 elements.
            unsafe {
                compile(&run, level).unwrap().run(&[x8.cast_mut(), found.as_mut_ptr().cast()], Rows::ONE, 37);
                ops::binary(op, held(DType::F32), &tile);
            }
            assert_eq!(bits(&found), bits(&expected), "{op:?}, {level:?}");
        }
    }
}

#[test]
fn narrow_floats_are_widened_and_stored() {
    let run = |stored: Stored, dtype: DType, level: Level| {
        let code = vec![instr(Element::Unary(UnaryOp::Neg), &[0], dtype)];
        compile(&Run { inputs: vec![stored], code, outputs: vec![(1, stored)], ..Run::default() }, level).unwrap()
    };
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let mut found = vec![0u16; all.len()];
    let kinds = [(Stored::F16, DType::F16), (Stored::BF16, DType::BF16)];
    for (level, (stored, dtype)) in levels().flat_map(|level| kinds.map(|kind| (level, kind))) {
        let addresses = [all.as_ptr().cast_mut().cast(), found.as_mut_ptr().cast()];
        // SAFETY: operands of as many elements.
        unsafe { run(stored, dtype, level).run(&addresses, Rows::ONE, all.len()) };
        for (&x, &y) in all.iter().zip(&found) {
            let is_nan = if stored == Stored::F16 { x & 0x7fff > 0x7c00 } else { x & 0x7fff > 0x7f80 };
            assert!(y == x ^ 0x8000 || is_nan && y & 0x7fff > 0x7c00, "{stored:?} {x:#x}: {y:#x}, {level:?}");
        }
    }
}

#[test]
fn many_operands_and_values_find_their_places() {
    // More addresses than registers for them; all sums are stored.
    let (count, inputs) = (53, 14);
    let data: Vec<Vec<f32>> = (0..inputs as u64).map(|i| numbers(i, count)).collect();
    let add = |i: usize| {
        let left = if i == 0 { 0 } else { (inputs + i - 1) as u16 };
        instr(Element::Binary(BinaryOp::Add), &[left, i as u16 + 1], DType::F32)
    };
    let code: Vec<Instr> = (0..inputs - 1).map(add).collect();
    let outputs = (inputs..2 * inputs - 1).map(|r| (r as u16, Stored::F32)).collect();
    let run = Run { inputs: vec![Stored::F32; inputs], code, outputs, ..Run::default() };
    for level in levels() {
        let mut results = vec![vec![0f32; count]; inputs - 1];
        let mut addresses: Vec<*mut u8> = data.iter().map(|x| x.as_ptr().cast_mut().cast()).collect();
        addresses.extend(results.iter_mut().map(|x| x.as_mut_ptr().cast::<u8>()));
        // SAFETY: operands of `count` elements.
        unsafe { compile(&run, level).unwrap().run(&addresses, Rows::ONE, count) };
        let mut sum = data[0].clone();
        for (x, result) in data[1..].iter().zip(&results) {
            sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
            assert_eq!(bits(result), bits(&sum), "{level:?}");
        }
    }
}

#[test]
fn too_many_values_at_once_are_refused() {
    let count = 40;
    let loads: Vec<Instr> = (0..count).map(|i| instr(Element::Unary(UnaryOp::Neg), &[i], DType::F32)).collect();
    let outputs = (0..count).map(|i| (count + i, Stored::F32)).collect();
    let run = Run { inputs: vec![Stored::F32; count.into()], code: loads, outputs, ..Run::default() };
    for level in levels() {
        assert_eq!(compile(&run, level).unwrap_err(), Refused::Registers);
    }
}

/// Sums of elements and of values of rows, whose rows are apart: with operands in registers and with more than there are.
#[test]
fn code_goes_from_row_to_row() {
    const ROWS: usize = 5;
    for (level, (inputs, count)) in levels().flat_map(|level| {
        [2, 9, 12].into_iter().flat_map(|inputs| [1, 16, 37, 48].map(|count| (inputs, count))).map(move |x| (level, x))
    }) {
        // Every third operand is one element for a row, the others have two elements between their rows.
        let stored = |i: usize| if i % 3 == 1 { Stored::One } else { Stored::F32 };
        let step = |i: usize| if stored(i) == Stored::One { 1 } else { count + 2 };
        let sum = |i: usize| {
            instr(
                Element::Binary(BinaryOp::Add),
                &[if i == 0 { 0 } else { (inputs + i - 1) as u16 }, 1 + i as u16],
                DType::F32,
            )
        };
        let run = Run {
            inputs: (0..inputs).map(stored).collect(),
            code: (0..inputs - 1).map(sum).collect(),
            outputs: vec![((2 * inputs - 2) as u16, Stored::F32)],
            ..Run::default()
        };
        let data: Vec<Vec<f32>> = (0..inputs).map(|i| numbers(i as u64, ROWS * step(i))).collect();
        let mut found = vec![7.0f32; ROWS * (count + 2)];
        let mut addresses: Vec<*mut u8> = data.iter().map(|x| x.as_ptr().cast_mut().cast()).collect();
        addresses.push(found.as_mut_ptr().cast());
        let steps: Vec<isize> = (0..inputs).map(step).chain([count + 2]).map(|step| 4 * step as isize).collect();
        let rows = Rows { count: ROWS, steps: &steps };
        // SAFETY: operands of so many rows of `count` elements.
        unsafe { compile(&run, level).unwrap().run(&addresses, rows, count) };
        let mut expected = vec![7.0f32; found.len()];
        for (row, column) in (0..ROWS).flat_map(|row| (0..count).map(move |column| (row, column))) {
            let element = |i: usize| data[i][row * step(i) + if stored(i) == Stored::One { 0 } else { column }];
            expected[row * (count + 2) + column] = (1..inputs).map(element).fold(element(0), |sum, x| sum + x);
        }
        assert_eq!(bits(&found), bits(&expected), "{inputs} operands, {count} elements, {level:?}");
    }
}

/// Sums of what is read and of what is computed, of rows of any number of elements in blocks, some of which are stored, beside
/// lines that are asked for.
#[test]
fn sums_come_along_by_lanes() {
    use meshwork_graph::canonical::LANES;
    const ROWS: usize = 3;
    let square = instr(Element::Binary(BinaryOp::Mul), &[0, 0], DType::F32);
    let counts = (1..70).chain([127, 1024]);
    let cases = counts.flat_map(|count| [16, 32, 48, 2048].map(|block| (count, block, (count + block / 16) % 2 == 0)));
    for (level, (count, block, stores)) in levels().flat_map(|level| cases.clone().map(move |case| (level, case))) {
        let run = Run {
            inputs: vec![Stored::F32],
            code: vec![square.clone()],
            outputs: if stores { vec![(1, Stored::F32)] } else { vec![] },
            sums: vec![1, 0],
            block,
            asks: vec![4, 2],
            ..Run::default()
        };
        let x = numbers(count as u64, ROWS * count);
        let mut squares = vec![7.0f32; ROWS * count];
        let lanes_of_sum = ROWS * count.div_ceil(block) * LANES;
        let mut lanes = vec![7.0f32; 2 * lanes_of_sum];
        let (from, to, first): (*mut u8, *mut u8, *mut f32) =
            (x.as_ptr().cast_mut().cast(), squares.as_mut_ptr().cast(), lanes.as_mut_ptr());
        let second = first.wrapping_add(lanes_of_sum);
        let mut operands =
            vec![(from, 4 * count), (to, 4 * count), (first.cast(), 0), (second.cast(), 0), (from, 0), (to, 8)];
        if !stores {
            operands.remove(1);
        }
        let (addresses, steps): (Vec<*mut u8>, Vec<isize>) =
            operands.into_iter().map(|(address, step)| (address, step as isize)).unzip();
        // SAFETY: operands of so many rows of `count` elements, and lanes for as many.
        unsafe { compile(&run, level).unwrap().run(&addresses, Rows { count: ROWS, steps: &steps }, count) };
        let terms = [x.iter().map(|x| x * x).collect::<Vec<_>>(), x.clone()];
        let blocks = terms.iter().flat_map(|terms| terms.chunks(count)).flat_map(|row| row.chunks(block));
        let expected: Vec<f32> = blocks
            .flat_map(|row| (0..LANES).map(|lane| row.iter().skip(lane).step_by(LANES).fold(0.0, |sum, x| sum + x)))
            .collect();
        assert_eq!(bits(&lanes), bits(&expected), "{count} elements in blocks of {block}, {level:?}");
        if stores {
            assert_eq!(bits(&squares), bits(&terms[0]), "{count} elements in blocks of {block}, {level:?}");
        }
    }
}

/// Rows that begin anywhere in a line, past the caches and beside results that go through them, with a number for each row.
#[test]
fn rows_are_cut_where_lines_begin() {
    use meshwork_graph::canonical::LANES;
    const ROWS: usize = 5;
    let add = instr(Element::Binary(BinaryOp::Add), &[0, 1], DType::F32);
    for level in levels().filter(|&level| has_masks(level)) {
        for count in (16..70).chain([1000]) {
            let run = Run {
                inputs: vec![Stored::F32, Stored::One],
                code: vec![add.clone()],
                outputs: vec![(2, Stored::F32PastCaches), (2, Stored::F32)],
                cuts_rows: true,
                ..Run::default()
            };
            let (x, values) = (numbers(count as u64, ROWS * count), numbers(7, ROWS));
            let mut lines = vec![meshwork_simd::line::Line([0; 64]); (ROWS * count).div_ceil(LANES)];
            let mut others = vec![7f32; ROWS * count];
            let line = lines.as_mut_ptr().cast::<f32>();
            let operands: [(*mut u8, usize); 4] = [
                (x.as_ptr().cast_mut().cast(), 4 * count),
                (values.as_ptr().cast_mut().cast(), 4),
                (line.cast(), 4 * count),
                (others.as_mut_ptr().cast(), 4 * count),
            ];
            let (addresses, steps): (Vec<*mut u8>, Vec<isize>) =
                operands.into_iter().map(|(address, step)| (address, step as isize)).unzip();
            // SAFETY: operands of so many rows of `count` elements.
            unsafe { compile(&run, level).unwrap().run(&addresses, Rows { count: ROWS, steps: &steps }, count) };
            // SAFETY: the lines are initialised.
            let found = unsafe { std::slice::from_raw_parts(line, lines.len() * LANES) };
            let expected: Vec<f32> =
                x.chunks(count).zip(&values).flat_map(|(row, value)| row.iter().map(move |x| x + value)).collect();
            assert_eq!(bits(&found[..expected.len()]), bits(&expected), "{count} elements");
            assert!(found[expected.len()..].iter().all(|x| x.to_bits() == 0), "{count} elements");
            assert_eq!(bits(&others), bits(&expected), "{count} elements");
        }
    }
}
