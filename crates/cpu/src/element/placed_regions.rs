//! Regions whose values go particular ways (in place, past the caches, kept, computed again), against their instructions one by
//! one.

use super::operands::{Goes, Lies, Written};
use super::place::{self, placement};
use super::random_regions::{Value, one_by_one};
use super::run;
use crate::stream::STREAM_BYTES;
use crate::testing::{bits, each_context, samples};
use crate::{Context, Level, Operand, Output};
use meshwork_graph::ops::{BinaryOp, Code, Element, Fused, Instr, ReduceOp, Source, Space, UnaryOp};
use meshwork_graph::{DType, Layout, Shape};
use smallvec::SmallVec;

/// softmax(x) of rows.
fn softmax(shape: &Shape) -> Fused {
    softmax_in(Space::rows(1, shape.clone()))
}

/// softmax(x).
fn softmax_in(space: Space) -> Fused {
    let dtype = DType::F32;
    let instr = |op: Code, args: [u16; 2], of_rows| Instr { op, args: [args[0], args[1], 0], of_rows, dtype };
    let binary = |op| Code::Element(Element::Binary(op));
    let code = vec![
        instr(Code::Reduce(ReduceOp::Max, 512), [0, 0], true),
        instr(Code::Spread, [1, 0], false),
        instr(binary(BinaryOp::Sub), [0, 2], false),
        instr(Code::Element(Element::Unary(UnaryOp::Exp)), [3, 0], false),
        instr(Code::Reduce(ReduceOp::Sum, 512), [4, 0], true),
        instr(Code::Spread, [5, 0], false),
        instr(binary(BinaryOp::Div), [4, 6], false),
    ];
    let inputs = vec![Source { dtype, of_rows: false }];
    Fused { space, inputs, code, outputs: SmallVec::from_slice(&[7]) }
}

/// softmax(x) in the memory of x.
#[test]
fn a_wide_row_is_overwritten_when_it_is_read_no_more() {
    let shape = Shape::new(&[5, 3000]);
    let layout = Layout::contiguous(&shape);
    let fused = softmax(&shape);
    let x = samples::<f32>(3, shape.numel());
    each_context(|context| {
        let want = one_by_one(&fused, &[Operand::of(&x, &layout)], context);
        let mut a = x.clone();
        let at = a.as_mut_ptr();
        // SAFETY: the operand is dense at the address of the output.
        unsafe {
            let input = Operand::new(at.cast_const().cast(), DType::F32, &layout);
            run(&fused, &[input], &[Output::new(at.cast(), DType::F32, &shape)], context);
        }
        assert_eq!(bits(&a), want[0]);
    });
}

/// softmax(x) along the middle dimension: terms are combined by the code that reads or computes them. In the memory of x, and
/// past the caches.
#[test]
fn rows_beside_each_other_are_overwritten_or_go_past_the_caches() {
    for (shape, goes) in [([2, 5, 4096], Goes::Cached), ([2, 3, 1 << 21], Goes::Lines)] {
        let shape = Shape::new(&shape);
        let layout = Layout::contiguous(&shape);
        let fused = softmax_in(Space { shape: shape.clone(), row_dims: 1, inner_dims: 1 });
        assert_eq!(goes == Goes::Lines, shape.numel() * size_of::<f32>() >= STREAM_BYTES);
        let x = samples::<f32>(3, shape.numel());
        let mut want = vec![];
        each_context(|context| {
            let level = context.level;
            let written = [Written { goes, over: SmallVec::new() }];
            let region = place::Region { op: &fused, lies: &[Lies::Dense], written: &written, level };
            let placement = placement(region);
            let passes = &placement.wide.as_ref().expect("rows beside each other").passes;
            let come_along = |pass: &super::wide::Pass| matches!(&pass.tiles.steps[..], [super::Step::Run { sums, .. }] if sums.instructions.len() == 1);
            let has_code = cfg!(target_arch = "x86_64") && level >= Level::Avx2;
            assert_eq!(passes[..2].iter().all(come_along), has_code, "{level:?}");
            if want.is_empty() {
                want = one_by_one(&fused, &[Operand::of(&x, &layout)], context);
            }
            let mut a = x.clone();
            if goes == Goes::Cached {
                let at = a.as_mut_ptr();
                // SAFETY: the operand is dense at the address of the output.
                unsafe {
                    let input = Operand::new(at.cast_const().cast(), DType::F32, &layout);
                    run(&fused, &[input], &[Output::new(at.cast(), DType::F32, &shape)], context);
                }
            } else {
                run(&fused, &[Operand::of(&x, &layout)], &[Output::of(&mut a, &shape)], context);
            }
            assert!(bits(&a) == want[0], "{level:?}, {shape}");
        });
    }
}

/// Exponentials of a row are kept for the pass that divides them, unless the row is too long; they may be a result, too.
#[test]
fn what_is_costly_is_kept_for_the_next_pass() {
    for (columns, kept) in [(3000, 12_032), (70_000, 0)] {
        let shape = Shape::new(&[3, columns]);
        let mut fused = softmax(&shape);
        fused.outputs.push(4);
        let written = [(); 2].map(|()| Written { goes: Goes::Cached, over: SmallVec::new() });
        let lies = &[Lies::Dense];
        let region = place::Region { op: &fused, lies, written: &written, level: Level::Portable };
        assert_eq!(placement(region).kept, kept, "{columns} columns");
        let x = samples::<f32>(5, shape.numel());
        let layout = Layout::contiguous(&shape);
        each_context(|context| {
            let want = one_by_one(&fused, &[Operand::of(&x, &layout)], context);
            let [mut quotients, mut powers] = [0, 1].map(|_| vec![0f32; shape.numel()]);
            let outputs = [&mut quotients, &mut powers].map(|out| Output::of(out, &shape));
            run(&fused, &[Operand::of(&x, &layout)], &outputs, context);
            assert_eq!([bits(&quotients), bits(&powers)], want[..], "{columns} columns");
        });
    }
}

/// A row is divided along with the exponentials of the next one, unless its largest element is needed once more, whose place
/// that of the next row has taken by then.
#[test]
fn the_last_pass_over_a_row_is_joined_with_the_next_row() {
    let shape = Shape::new(&[6, 3001]);
    let alone = softmax(&shape);
    let mut with_largest = alone.clone();
    let add = Code::Element(Element::Binary(BinaryOp::Add));
    with_largest.code.push(Instr { op: add, args: [7, 2, 0], ..alone.code[6].clone() });
    with_largest.outputs[0] = 8;
    let x = samples::<f32>(11, shape.numel());
    let layout = Layout::contiguous(&shape);
    let written = [Written { goes: Goes::Cached, over: SmallVec::new() }];
    for (fused, may_be_joined) in [(alone, true), (with_largest, false)] {
        each_context(|context| {
            let level = context.level;
            let region = place::Region { op: &fused, lies: &[Lies::Dense], written: &written, level };
            let placement = placement(region);
            let is_joined = placement.wide.as_ref().is_some_and(|wide| wide.joined.is_some());
            let has_code = cfg!(target_arch = "x86_64") && level >= Level::Avx2;
            assert_eq!(is_joined, may_be_joined && has_code, "{level:?}");
            let want = one_by_one(&fused, &[Operand::of(&x, &layout)], context);
            let mut out = vec![0f32; shape.numel()];
            run(&fused, &[Operand::of(&x, &layout)], &[Output::of(&mut out, &shape)], context);
            assert_eq!(bits(&out), want[0], "{level:?}");
        });
    }
}

/// Sums of computed terms are added up by the machine code that computes them, and the terms need not go through memory, if a
/// tile has at most a group of blocks.
#[test]
fn sums_of_wide_rows_come_along_with_their_terms() {
    let dtype = DType::F32;
    let written = [(); 3].map(|()| Written { goes: Goes::Cached, over: SmallVec::new() });
    for (columns, block) in [(1100, 64), (3001, 512), (9001, 1024), (40_000, 1024), (3001, 16)] {
        let shape = Shape::new(&[5, columns]);
        let instr = |op: Code, args: [u16; 2], of_rows| Instr { op, args: [args[0], args[1], 0], of_rows, dtype };
        let binary = |op| Code::Element(Element::Binary(op));
        let sum = |term| instr(Code::Reduce(ReduceOp::Sum, block), [term, 0], true);
        let fused = Fused {
            space: Space::rows(1, shape.clone()),
            inputs: vec![Source { dtype, of_rows: false }],
            code: vec![
                instr(binary(BinaryOp::Mul), [0, 0], false),
                instr(Code::Element(Element::Unary(UnaryOp::Exp)), [0, 0], false),
                sum(1),
                sum(2),
                instr(Code::Spread, [3, 0], false),
                instr(binary(BinaryOp::Sub), [0, 5], false),
            ],
            outputs: SmallVec::from_slice(&[3, 4, 6]),
        };
        let x = samples::<f32>(13, shape.numel());
        let layout = Layout::contiguous(&shape);
        each_context(|context| {
            let region = place::Region { op: &fused, lies: &[Lies::Dense], written: &written, level: context.level };
            let wide = placement(region);
            let steps = &wide.wide.as_ref().expect("rows wider than a tile").passes[0].tiles.steps;
            let come_along = matches!(&steps[..], [super::Step::Run { sums, .. }] if sums.instructions.len() == 2);
            let can = cfg!(target_arch = "x86_64") && context.level >= Level::Avx512;
            // AVX2 may lack registers.
            assert!(come_along == (can && block >= 64) || context.level == Level::Avx2, "{:?}, {block}", context.level);
            let want = one_by_one(&fused, &[Operand::of(&x, &layout)], context);
            let rows = fused.space.row_shape();
            let [mut squares, mut powers] = [0, 1].map(|_| vec![0f32; rows.numel()]);
            let mut out = vec![0f32; shape.numel()];
            let outputs =
                [Output::of(&mut squares, &rows), Output::of(&mut powers, &rows), Output::of(&mut out, &shape)];
            run(&fused, &[Operand::of(&x, &layout)], &outputs, context);
            for (found, want) in [squares, powers, out].iter().map(|x| bits(x)).zip(&want) {
                assert!(found == *want, "{columns} columns, blocks of {block}, {:?}", context.level);
            }
        });
    }
}

/// Where too few registers are left for sums to come along, loops add up what has been stored, and find it.
#[test]
fn sums_of_what_is_cheap_are_right_without_registers_for_them() {
    let dtype = DType::F32;
    let instr = |op: Code, args: [u16; 2], of_rows| Instr { op, args: [args[0], args[1], 0], of_rows, dtype };
    let binary = |op, a, b| instr(Element::Binary(op).into(), [a, b], false);
    for count in 1..=5u16 {
        for columns in [40, 100, 200] {
            let shape = Shape::new(&[37, columns]);
            let mut code = vec![instr(Element::Unary(UnaryOp::Tanh).into(), [0, 0], false)];
            // Terms, the sum of each, and all terms divided by their sums.
            code.extend((0..count).map(|i| binary(BinaryOp::Add, 1 + i, 0)));
            let sum = |term| instr(Code::Reduce(ReduceOp::Sum, 64), [term, 0], true);
            code.extend((0..count).map(|i| sum(2 + i)));
            code.push(binary(BinaryOp::Mul, 1, 0));
            for i in 0..count {
                let next = code.len() as u16 + 1;
                let spread = instr(Code::Spread, [2 + count + i, 0], false);
                let all = binary(BinaryOp::Add, next - 1, next + 1);
                code.extend([spread, binary(BinaryOp::Div, 2 + i, next), all]);
            }
            let outputs = SmallVec::from_slice(&[1, code.len() as u16]);
            let inputs = vec![Source { dtype, of_rows: false }];
            let fused = Fused { space: Space::rows(1, shape.clone()), inputs, code, outputs };
            let (x, layout) = (samples::<f32>(19, shape.numel()), Layout::contiguous(&shape));
            let inputs = [Operand::of(&x, &layout)];
            each_context(|context| {
                let want = one_by_one(&fused, &inputs, context);
                let mut values = [0; 2].map(|_| Value::new(dtype, &shape));
                let outputs = values.each_mut().map(Value::output);
                run(&fused, &inputs, &outputs, context);
                assert!(values.iter().map(Value::bits).eq(want), "{fused} at {:?}", context.level);
            });
        }
    }
}

/// Squares of deviations are summed by the code that computes them, and the deviations computed once more for what follows: no
/// elements lie in slots. What is costly is kept there.
#[test]
fn what_is_cheap_is_computed_again_in_narrow_rows() {
    let dtype = DType::F32;
    let written = [Written { goes: Goes::Cached, over: SmallVec::new() }];
    let instr = |op: Code, args: [u16; 2], of_rows| Instr { op, args: [args[0], args[1], 0], of_rows, dtype };
    let binary = |op| Code::Element(Element::Binary(op));
    let unary = |op| Code::Element(Element::Unary(op));
    for (again, written_and_read) in [(unary(UnaryOp::Neg), 0), (unary(UnaryOp::Exp), 2)] {
        for columns in [40, 100, 1000] {
            let shape = Shape::new(&[37, columns]);
            let sum = |term| instr(Code::Reduce(ReduceOp::Sum, 64), [term, 0], true);
            let fused = Fused {
                space: Space::rows(1, shape.clone()),
                inputs: vec![Source { dtype, of_rows: false }],
                code: vec![
                    sum(0),
                    instr(Code::Spread, [1, 0], false),
                    instr(binary(BinaryOp::Sub), [0, 2], false),
                    instr(again, [3, 0], false),
                    instr(binary(BinaryOp::Mul), [4, 4], false),
                    sum(5),
                    instr(Code::Spread, [6, 0], false),
                    instr(binary(BinaryOp::Mul), [4, 7], false),
                ],
                outputs: SmallVec::from_slice(&[8]),
            };
            let x = samples::<f32>(17, shape.numel());
            let layout = Layout::contiguous(&shape);
            each_context(|context| {
                let region =
                    place::Region { op: &fused, lies: &[Lies::Dense], written: &written, level: context.level };
                let placement = placement(region);
                let in_slots = |step: &super::Step| match step {
                    super::Step::Run { operands, steps, .. } => {
                        let of_elements = |(place, step): &(&super::Place, &isize)| {
                            matches!(place, super::Place::Slot(_)) && **step == 4 * columns as isize
                        };
                        operands.iter().zip(steps).filter(of_elements).count()
                    }
                    _ => 0,
                };
                if cfg!(target_arch = "x86_64") && context.level >= Level::Avx512 {
                    let count: usize = placement.steps.iter().map(in_slots).sum();
                    assert_eq!(count, written_and_read, "{columns} columns");
                }
                let want = one_by_one(&fused, &[Operand::of(&x, &layout)], context);
                let mut out = vec![0f32; shape.numel()];
                run(&fused, &[Operand::of(&x, &layout)], &[Output::of(&mut out, &shape)], context);
                assert_eq!(bits(&out), want[0], "{columns} columns, {:?}", context.level);
            });
        }
    }
}

/// Also where rows do not begin with a line of the caches.
#[test]
fn rows_are_the_same_past_the_caches() {
    // The last ones are wide rows that stay in the second cache, and do not.
    for columns in [64, 100, 1001, 2048, 2053, 40_001] {
        let rows = STREAM_BYTES / 4 / columns + 2;
        const FEW: usize = 6;
        let few = samples::<f32>(4, FEW * columns);
        let x: Vec<f32> = few.iter().copied().cycle().take(rows * columns).collect();
        let result = |x: &[f32], rows: usize, context: Context| {
            let shape = Shape::new(&[rows, columns]);
            // The first row begins with a line.
            let mut room = vec![0f32; rows * columns + 16];
            let first = room.as_ptr().align_offset(64);
            let out = &mut room[first..first + rows * columns];
            let layout = Layout::contiguous(&shape);
            run(&softmax(&shape), &[Operand::of(x, &layout)], &[Output::of(out, &shape)], context);
            out.to_vec()
        };
        each_context(|context| {
            // Fused multiply-adds in software are too slow for so many.
            if context.level == Level::Portable {
                return;
            }
            let want = bits(&result(&few, FEW, context));
            for found in result(&x, rows, context).chunks(FEW * columns) {
                assert_eq!(bits(found), want[..found.len()], "{columns} columns, {:?}", context.level);
            }
        });
    }
}

/// Softmax times a number that is one element for all, which lies in a slot as a tile of them.
#[test]
fn wide_rows_take_constants_from_memory() {
    let shape = Shape::new(&[3, 5000]);
    let mut fused = softmax(&shape);
    fused.inputs.push(Source { dtype: DType::F32, of_rows: false });
    for instr in &mut fused.code {
        instr.args.iter_mut().filter(|arg| **arg > 0).for_each(|arg| *arg += 1);
    }
    let scaled = Instr { op: Code::Element(Element::Binary(BinaryOp::Mul)), args: [8, 1, 0], ..fused.code[6].clone() };
    fused.code.push(scaled);
    fused.outputs[0] = 9;
    let x = samples::<f32>(7, shape.numel());
    let number = [0.3f32];
    let (layout, one) = (Layout::contiguous(&shape), Layout::contiguous(&Shape::new(&[1, 1])).expand(&shape));
    // SAFETY: all elements of the layout are the number.
    let number = unsafe { Operand::new(number.as_ptr().cast(), DType::F32, &one) };
    each_context(|context| {
        let operands = [Operand::of(&x, &layout), number];
        let want = one_by_one(&fused, &operands, context);
        let mut out = vec![0f32; shape.numel()];
        run(&fused, &operands, &[Output::of(&mut out, &shape)], context);
        assert_eq!(bits(&out), want[0]);
    });
}

#[test]
fn several_results_replace_their_operands() {
    // a + b and a · b in the memory of a and b.
    let shape = Shape::new(&[70, 333]);
    let layout = Layout::contiguous(&shape);
    let dtype = DType::F32;
    let instr = |op| Instr { op: Code::Element(Element::Binary(op)), args: [0, 1, 0], of_rows: false, dtype };
    let fused = Fused {
        space: Space::elements(shape.clone()),
        inputs: vec![Source { dtype, of_rows: false }; 2],
        code: [BinaryOp::Add, BinaryOp::Mul].map(instr).to_vec(),
        outputs: SmallVec::from_slice(&[2, 3]),
    };
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
