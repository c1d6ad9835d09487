//! Matrix products have the bits of the canonical order, however they are cut.

use crate::common::{self, Numbers, assert_bits, contraction, everywhere, with_scratch};
use meshwork_cpu::gemm::Element;
use meshwork_cpu::{Context, Operand, Output, dot};
use meshwork_graph::canonical::Blocking;
use meshwork_graph::ops::Dot;
use meshwork_graph::{Dims, Layout, Operation, Shape, Type};

fn dims(d: &[usize]) -> Dims {
    Dims::from_slice(d)
}

/// The index of flat element `i`.
fn index(mut i: usize, sizes: &[usize]) -> Vec<usize> {
    let mut out = vec![0; sizes.len()];
    for d in (0..sizes.len()).rev() {
        out[d] = i % sizes[d];
        i /= sizes[d];
    }
    out
}

fn output(op: &Dot, lhs: &Layout, rhs: &Layout) -> Shape {
    let ty = |l: &Layout| Type { dtype: meshwork_graph::DType::F32, shape: l.shape.clone() };
    op.infer(&[&ty(lhs), &ty(rhs)]).unwrap().shape
}

fn reference<T: Element>(op: &Dot, a: &[T], lhs: &Layout, b: &[T], rhs: &Layout) -> Vec<T> {
    let shape = output(op, lhs, rhs);
    let blocks = op.blocks(&lhs.shape);
    let inner_sizes: Vec<usize> = op.lhs_contract.iter().skip(1).map(|&d| lhs.shape[d]).collect();
    let (lhs_free, rhs_free) = (op.lhs_free(&lhs.shape), op.rhs_free(&rhs.shape));
    let element = |i: usize| {
        let at = index(i, &shape);
        let (batch, rest) = at.split_at(op.lhs_batch.len());
        let (m, n) = rest.split_at(lhs_free.len());
        let place =
            |layout: &Layout, batch_dims: &Dims, free: &Dims, free_at: &[usize], contract: &Dims, k: &[usize]| {
                let mut at = vec![0; layout.shape.rank()];
                let pairs = [(&batch_dims[..], batch), (&free[..], free_at), (&contract[..], k)];
                for (dims, digits) in pairs {
                    dims.iter().zip(digits).for_each(|(&d, &x)| at[d] = x);
                }
                layout.position(&at)
            };
        T::narrow(contraction(&blocks, |outer, inner| {
            let mut k = vec![outer];
            k.extend(index(inner, &inner_sizes));
            let k = &k[..op.lhs_contract.len()];
            let left = place(lhs, &op.lhs_batch, &lhs_free, m, &op.lhs_contract, k);
            let right = place(rhs, &op.rhs_batch, &rhs_free, n, &op.rhs_contract, k);
            (a[left].widen(), b[right].widen())
        }))
    };
    (0..shape.numel()).map(element).collect()
}

fn run<T: Element>(op: &Dot, a: &[T], lhs: &Layout, b: &[T], rhs: &Layout, context: Context) -> Vec<T> {
    let shape = output(op, lhs, rhs);
    let mut out = vec![T::narrow(common::real(f64::NAN)); shape.numel()];
    // SAFETY: the layouts lie inside the slices, as the tests make them.
    let inputs =
        unsafe { [Operand::new(a.as_ptr().cast(), T::DTYPE, lhs), Operand::new(b.as_ptr().cast(), T::DTYPE, rhs)] };
    with_scratch(dot::scratch(op, T::DTYPE, &[lhs, rhs], context.par.lanes()), |scratch| {
        dot::run(op, &inputs, Output::of(&mut out, &shape), scratch, context);
    });
    out
}

fn check<T: Element + std::fmt::Debug>(op: &Dot, lhs: &Layout, rhs: &Layout, elements: [usize; 2], what: &str) {
    let mut numbers = Numbers(7);
    let (a, b) = (numbers.elements::<T>(elements[0]), numbers.elements::<T>(elements[1]));
    check_of(op, (&a, lhs), (&b, rhs), what);
}

fn check_of<T: Element + std::fmt::Debug>(op: &Dot, (a, lhs): (&[T], &Layout), (b, rhs): (&[T], &Layout), what: &str) {
    let expected = reference(op, a, lhs, b, rhs);
    everywhere(|context, whom| {
        assert_bits(&run(op, a, lhs, b, rhs, context), &expected, &format!("{what} on {whom}"));
    });
}

fn plain(blocking: Blocking) -> Dot {
    Dot { lhs_batch: dims(&[]), rhs_batch: dims(&[]), lhs_contract: dims(&[1]), rhs_contract: dims(&[0]), blocking }
}

/// The four orders of the operands' dimensions.
fn matrices<T: Element + std::fmt::Debug>(m: usize, n: usize, k: usize, blocking: Blocking) {
    let op = plain(blocking);
    for (turned, [lhs, rhs]) in in_all_orders(m, n, k).into_iter().enumerate() {
        let what = format!("{m}×{n}×{k} {blocking:?}, turned {turned}, {}", T::DTYPE);
        check::<T>(&op, &lhs, &rhs, [m * k, k * n], &what);
    }
}

/// The layouts of dense operands, each by rows or by columns.
fn in_all_orders(m: usize, n: usize, k: usize) -> [[Layout; 2]; 4] {
    let dense = |rows: usize, columns: usize, turned: bool| match turned {
        false => Layout::contiguous(&Shape::new(&[rows, columns])),
        true => Layout::contiguous(&Shape::new(&[columns, rows])).permute(&[1, 0]),
    };
    std::array::from_fn(|turned| [dense(m, k, turned & 1 != 0), dense(k, n, turned & 2 != 0)])
}

#[test]
fn matrices_of_all_sizes() {
    for (m, n) in [(1, 1), (1, 40), (40, 1), (2, 3), (5, 16), (6, 17), (7, 33), (13, 8), (31, 10), (12, 64)] {
        for k in [1, 2, 31, 32, 33, 64, 97, 130, 257] {
            matrices::<f32>(m, n, k, Blocking::Features);
        }
    }
}

#[test]
fn matrices_of_many_blocks() {
    for (m, n, k) in [(9, 20, 1100), (3, 2, 1025), (20, 9, 640), (17, 50, 1537), (1, 70, 900)] {
        matrices::<f32>(m, n, k, Blocking::Features);
        matrices::<f32>(m, n, k, Blocking::Samples);
    }
}

#[test]
fn few_rows_by_many_columns() {
    for (m, n, k) in [
        (1, 512, 5),
        (2, 517, 33),
        (3, 700, 130),
        (4, 1029, 300),
        (1, 2500, 97),
        (600, 2, 70),
        (530, 4, 260),
        (1, 130, 75),
        (4, 128, 40),
        (2, 257, 90),
    ] {
        matrices::<f32>(m, n, k, Blocking::Features);
        matrices::<f32>(m, n, k, Blocking::Samples);
    }
    matrices::<f64>(3, 530, 130, Blocking::Features);
    matrices::<half::f16>(2, 530, 40, Blocking::Features);
}

#[test]
fn inner_products_of_few_rows() {
    // Whole vectors of columns and not, terms that end within a vector, fewer than one has, one to nine blocks.
    for rows in 1..=13 {
        for (columns, k) in [(8, 5), (13, 41), (70, 131), (23, 264), (131, 9), (9, 1100)] {
            matrices::<f32>(rows, columns, k, Blocking::Features);
        }
        for blocking in [Blocking::Every(3), Blocking::Every(12), Blocking::Every(16), Blocking::Samples] {
            matrices::<f32>(rows, 21, 145, blocking);
        }
        matrices::<half::bf16>(rows, 37, 203, Blocking::Features);
        matrices::<half::f16>(rows, 37, 203, Blocking::Features);
    }
}

#[test]
fn tiles_of_every_height() {
    for m in [20, 21, 22, 23, 24, 25] {
        matrices::<f32>(m, 37, 70, Blocking::Samples);
    }
}

#[test]
fn blocks_of_four_and_eight_terms() {
    // Whole groups of four blocks and such with a rest, tiles of full height and lower ones.
    for k in [32, 35, 36, 48, 61, 64, 69, 96, 100, 256, 263] {
        matrices::<f32>(26, 70, k, Blocking::Samples);
        matrices::<f32>(15, 38, k, Blocking::Samples);
        matrices::<f64>(18, 19, k, Blocking::Samples);
        matrices::<half::bf16>(26, 70, k, Blocking::Samples);
    }
}

#[test]
fn panels_in_place_at_any_distance() {
    for m in [17, 64, 128, 256] {
        matrices::<f32>(m, 80, 70, Blocking::Samples);
    }
}

#[test]
fn transposed_left_sides_in_place_and_packed() {
    for (m, n, k) in [
        (64, 60, 70),
        (128, 60, 70),
        (256, 60, 70),
        (256, 64, 280),
        (256, 64, 300),
        (256, 70, 300),
        (512, 40, 70),
        (64, 16, 70),
        (256, 12, 280),
        (256, 17, 70),
    ] {
        matrices::<f32>(m, n, k, Blocking::Features);
    }
    matrices::<f64>(128, 64, 300, Blocking::Features);
    matrices::<f64>(256, 40, 70, Blocking::Features);
    matrices::<f64>(256, 12, 300, Blocking::Features);
}

#[test]
fn panels_in_place_on_few_sets_of_the_cache() {
    for (m, n, k) in [(8, 512, 600), (9, 1024, 300), (41, 1024, 270), (60, 512, 130), (17, 2048, 70)] {
        matrices::<f32>(m, n, k, Blocking::Features);
        matrices::<f32>(m, n, k, Blocking::Samples);
    }
    matrices::<f64>(12, 512, 300, Blocking::Features);
}

#[test]
fn panels_that_tall_tiles_or_a_first_tile_read_in_place() {
    // Terms a multiple of 4 KB apart, of whole panels and a last one that is narrower or ends within a vector, in one chunk or some.
    // Tiles are tall where blocks are long and rows are few; 300 rows are several blocks.
    for (m, k) in [(9, 128), (16, 300), (17, 1024), (33, 600), (50, 257), (130, 64), (300, 520)] {
        [24, 40, 48].into_iter().for_each(|n| strided::<f32>([m, n, k], 1024));
    }
    strided::<f64>([21, 40, 130], 512);
}

#[test]
fn tiles_beside_each_other() {
    // Long rows and few of them, whole tiles and others; the last one's panels are more than stay in the second-level cache.
    for (m, n, k) in [(3, 64, 9), (6, 150, 33), (21, 790, 5), (5, 2100, 100)] {
        matrices::<f32>(m, n, k, Blocking::Features);
        matrices::<f32>(m, n, k, Blocking::Samples);
    }
    matrices::<half::bf16>(9, 777, 21, Blocking::Features);
    // The first ones copy their panels, or they are tall, with a last panel that ends within a vector.
    strided::<f32>([11, 800, 40], 1024);
    strided::<f32>([20, 809, 100], 1024);
    strided::<f64>([10, 203, 18], 512);
}

/// Products whose right operand has rows so far apart, and whose left one lies by rows or by columns.
fn strided<T: Element + std::fmt::Debug>([m, n, k]: [usize; 3], step: usize) {
    let mut numbers = Numbers(11);
    let (a, b) = (numbers.elements::<T>(m * k), numbers.elements::<T>(k * step));
    let rhs = Layout::contiguous(&Shape::new(&[k, step])).slice(&[0, 3], &[k, n], &[1, 1]);
    for blocking in [Blocking::Features, Blocking::Samples] {
        for (turned, [lhs, _]) in in_all_orders(m, n, k).iter().take(2).enumerate() {
            let what = format!("{m}×{n}×{k} {blocking:?}, rows {step} apart, turned {turned}, {}", T::DTYPE);
            check_of(&plain(blocking), (&a, lhs), (&b, &rhs), &what);
        }
    }
}

#[test]
fn panels_in_place_but_for_a_last_one() {
    for (m, n, k) in [(7, 250, 600), (32, 33, 130), (20, 1000, 70), (12, 41, 40)] {
        matrices::<f32>(m, n, k, Blocking::Features);
        matrices::<f32>(m, n, k, Blocking::Samples);
    }
    matrices::<f64>(9, 101, 300, Blocking::Features);
}

#[test]
fn panels_packed_in_their_turn() {
    matrices::<f32>(70, 40, 1100, Blocking::Features);
    matrices::<f32>(90, 57, 256, Blocking::Samples);
    matrices::<f64>(66, 21, 130, Blocking::Samples);
    matrices::<half::bf16>(67, 34, 96, Blocking::Samples);
}

#[test]
fn large_matrices_in_many_tasks() {
    matrices::<f32>(130, 210, 70, Blocking::Features);
    matrices::<f32>(250, 530, 33, Blocking::Features);
    // Rows of the left operand are copied for so many columns.
    matrices::<f32>(1030, 1100, 6, Blocking::Features);
}

#[test]
fn rows_that_are_copied() {
    // Those of the last chunk are many and short, and each has a gap behind it.
    matrices::<half::f16>(1000, 36, 577, Blocking::Features);
    matrices::<f32>(27, 70, 1024, Blocking::Features);
}

#[test]
fn few_outputs_of_long_sums() {
    for (m, n, k) in [(4, 5, 20_000), (12, 20, 5_003), (1, 1, 70_001)] {
        matrices::<f32>(m, n, k, Blocking::Samples);
        matrices::<f32>(m, n, k, Blocking::Features);
    }
}

#[test]
fn more_terms_than_outputs() {
    matrices::<f32>(97, 300, 4000, Blocking::Samples);
    matrices::<f32>(97, 300, 4000, Blocking::Features);
}

#[test]
fn right_operands_that_tasks_share() {
    for turned in 0..4 {
        shared::<f32>((1930, 99, 541), turned);
        shared::<f64>((1930, 99, 541), turned);
        shared::<half::bf16>((1930, 99, 541), turned);
    }
    // Several chunks of terms, and tasks that begin at other columns.
    shared::<f32>((1450, 300, 1100), 2);
}

/// A product that one thread, whose sums other tests compare with their definition, computes without sharing.
fn shared<T: Element + std::fmt::Debug>((m, n, k): (usize, usize, usize), turned: usize) {
    let (op, mut numbers) = (plain(Blocking::Features), Numbers(7));
    let (a, b) = (numbers.elements::<T>(m * k), numbers.elements::<T>(k * n));
    let [lhs, rhs] = &in_all_orders(m, n, k)[turned];
    let mut expected = None;
    everywhere(|context, whom| {
        let found = run(&op, &a, lhs, &b, rhs, context);
        let expected = expected.get_or_insert_with(|| found.clone());
        assert_bits(&found, expected, &format!("turned {turned}, {}, {whom}", T::DTYPE));
    });
}

#[test]
fn other_dtypes() {
    for (m, n, k) in [(1, 1, 1), (7, 9, 130), (13, 33, 600), (3, 50, 2050)] {
        matrices::<f64>(m, n, k, Blocking::Features);
        matrices::<f64>(m, n, k, Blocking::Samples);
        matrices::<half::f16>(m, n, k, Blocking::Features);
        matrices::<half::bf16>(m, n, k, Blocking::Features);
    }
}

#[test]
fn pairs_of_terms() {
    for (m, n) in [(1, 1), (5, 16), (7, 33), (13, 8), (31, 10), (12, 64), (70, 40)] {
        for k in [1, 2, 3, 31, 64, 97, 129, 257] {
            matrices::<half::bf16>(m, n, k, Blocking::Features);
            matrices::<half::bf16>(m, n, k, Blocking::Samples);
        }
    }
    // Rows that are read often, sums of several chunks, and few outputs of many terms.
    matrices::<half::bf16>(30, 1100, 70, Blocking::Features);
    matrices::<half::bf16>(17, 36, 1537, Blocking::Samples);
    matrices::<half::bf16>(12, 20, 5_003, Blocking::Samples);
}

#[test]
fn pairs_of_terms_whose_products_are_tiny_or_huge() {
    let mut numbers = Numbers(11);
    // Exponents of the operands; some products or sums are subnormal, some are infinite.
    let scales: [[&[i32]; 2]; 7] = [
        [&[-56], &[-54]],
        [&[-60], &[-60, -66]],
        [&[0, -100], &[0, -20]],
        [&[-130, -120], &[0]],
        [&[0], &[-133, 5]],
        [&[64], &[40, 60]],
        [&[64, -64], &[64, -64]],
    ];
    for (number, [left, right]) in scales.into_iter().enumerate() {
        for (m, n, k) in [(3, 5, 40), (13, 40, 131), (16, 34, 520)] {
            let mut elements = |count: usize, scales: &[i32]| -> Vec<half::bf16> {
                let scaled = |_| {
                    let x = numbers.number() * 2f64.powi(scales[numbers.below(scales.len())]);
                    half::bf16::from_f64(if numbers.below(9) == 0 { 0.0 } else { x })
                };
                (0..count).map(scaled).collect()
            };
            // One sign where sums are infinite: they shall not be NaN.
            let (mut a, mut b) = (elements(m * k, left), elements(k * n, right));
            if number >= 5 {
                a.iter_mut().chain(&mut b).for_each(|x| *x = half::bf16::from_bits(x.to_bits() & 0x7fff));
            }
            for [lhs, rhs] in in_all_orders(m, n, k) {
                for blocking in [Blocking::Features, Blocking::Samples] {
                    check_of(&plain(blocking), (&a, &lhs), (&b, &rhs), &format!("{m}×{n}×{k}, scales {number}"));
                }
            }
        }
    }
}

#[test]
fn several_contracted_dimensions_make_long_blocks() {
    // A block of Samples is whole samples, here of 700 terms each: longer than a chunk of packed terms.
    for (samples, positions) in [(1, 700), (3, 700), (40, 130), (9, 1300)] {
        let op = Dot {
            lhs_batch: dims(&[]),
            rhs_batch: dims(&[]),
            lhs_contract: dims(&[0, 2]),
            rhs_contract: dims(&[0, 2]),
            blocking: Blocking::Samples,
        };
        let lhs = Layout::contiguous(&Shape::new(&[samples, 7, positions]));
        let rhs = Layout::contiguous(&Shape::new(&[samples, 19, positions]));
        check::<f32>(&op, &lhs, &rhs, [lhs.shape.numel(), rhs.shape.numel()], "long blocks");
        check::<half::bf16>(&op, &lhs, &rhs, [lhs.shape.numel(), rhs.shape.numel()], "long blocks of pairs");
    }
}

#[test]
fn batches_of_products() {
    for (batch, m, n, k) in [(1, 3, 4, 5), (6, 17, 9, 40), (40, 5, 5, 33), (3, 50, 20, 200)] {
        let op = Dot {
            lhs_batch: dims(&[0]),
            rhs_batch: dims(&[1]),
            lhs_contract: dims(&[2]),
            rhs_contract: dims(&[0]),
            blocking: Blocking::Features,
        };
        let lhs = Layout::contiguous(&Shape::new(&[batch, m, k]));
        let rhs = Layout::contiguous(&Shape::new(&[k, batch, n]));
        check::<f32>(&op, &lhs, &rhs, [lhs.shape.numel(), rhs.shape.numel()], "batch");
    }
}

#[test]
fn any_strides() {
    let op = plain(Blocking::Features);
    let base = Layout::contiguous(&Shape::new(&[40, 90]));
    let flipped = base.slice(&[39, 80], &[20, 40], &[-2, -2]);
    let broadcast = Layout::contiguous(&Shape::new(&[1, 23])).expand(&Shape::new(&[40, 23]));
    let column = Layout::contiguous(&Shape::new(&[40, 1])).expand(&Shape::new(&[40, 23]));
    check::<f32>(&op, &flipped, &broadcast, [3600, 23], "flipped by broadcast");
    check::<f32>(&op, &flipped, &column, [3600, 40], "flipped by a repeated column");
    let tall = broadcast.permute(&[1, 0]);
    check::<f32>(&op, &tall, &base, [23, 3600], "broadcast by dense");
    let window = Layout { shape: Shape::new(&[30, 40]), strides: [1, 1][..].into(), offset: 3 };
    check::<f32>(&op, &window, &base, [80, 3600], "overlapping windows");
    check::<f64>(&op, &window, &base, [80, 3600], "overlapping windows");
}

#[test]
fn empty_dimensions() {
    for (m, n, k) in [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)] {
        matrices::<f32>(m, n, k, Blocking::Features);
        matrices::<f64>(m, n, k, Blocking::Samples);
    }
}

#[test]
fn zeros_are_positive_and_infinities_stay() {
    let op = plain(Blocking::Features);
    let (lhs, rhs) = (Layout::contiguous(&Shape::new(&[2, 3])), Layout::contiguous(&Shape::new(&[3, 1])));
    let a = [-0.0f32, -0.0, -0.0, f32::INFINITY, 0.0, 1.0];
    let b = [1.0f32, 1.0, 1.0];
    everywhere(|context, whom| {
        assert_bits(&run(&op, &a, &lhs, &b, &rhs, context), &[0.0, f32::INFINITY], whom);
    });
}

#[test]
fn integers_wrap() {
    let op = plain(Blocking::Features);
    let (lhs, rhs) = (Layout::contiguous(&Shape::new(&[2, 3])), Layout::contiguous(&Shape::new(&[3, 2])));
    let a = [200u8, 3, 7, 1, 0, 255];
    let b = [2u8, 1, 5, 5, 9, 2];
    let expected: Vec<u8> =
        (0..4).map(|i| (0..3).map(|k| a[i / 2 * 3 + k] as u32 * b[k * 2 + i % 2] as u32).sum::<u32>() as u8).collect();
    everywhere(|context, whom| {
        let mut out = [0u8; 4];
        let shape = Shape::new(&[2, 2]);
        let inputs = [Operand::of(&a, &lhs), Operand::of(&b, &rhs)];
        dot::run(&op, &inputs, Output::of(&mut out, &shape), &mut [], context);
        assert_eq!(&out[..], expected, "{whom}");
    });
}
