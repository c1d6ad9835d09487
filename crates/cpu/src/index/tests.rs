use super::*;
use crate::reduce::{Accumulate, Term};
use crate::testing::{Case, Sample, bits, each_context, indices, output};
use meshwork_graph::canonical::TreeSum;
use meshwork_graph::ops::{IndexAdd, PartOf, ScatterAdd};
use meshwork_graph::{Layout, Shape, philox};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Indices below `size`, in all kinds of layouts.
fn index_cases(shape: &[usize], size: usize) -> Vec<Case<i64>> {
    let mut cases = Case::<i64>::strided(shape);
    for (seed, case) in cases.iter_mut().enumerate() {
        for (i, x) in case.data.iter_mut().enumerate() {
            // Some places get many terms and some none.
            let random = philox::bits(seed as u64, i as u64);
            *x = if random & 3 == 0 { 0 } else { (random >> 8) as i64 % size as i64 };
        }
    }
    cases
}

fn scratch(bytes: usize) -> Vec<u64> {
    vec![!0; bytes.div_ceil(8)]
}

fn as_bytes(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: the bytes of numbers.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
}

fn check_gather<T: Sample>(shape: &[usize], count: usize, dim: usize) {
    let mut picked = shape.to_vec();
    picked[dim] = count;
    let picked = Shape::new(&picked);
    let index = index_cases(&picked, shape[dim]);
    for (i, x) in Case::<T>::strided(shape).iter().enumerate() {
        let index = &index[(i * 3 + 1) % index.len()];
        let read = |mut place: Vec<usize>| {
            place[dim] = index.at(&place) as usize;
            x.at(&place)
        };
        let want: Vec<T> = indices(&picked).map(read).collect();
        each_context(|context| {
            let inputs = [x.operand(), index.operand()];
            let got = output::<T>(&picked, |o| gather(&Gather::new(dim), &inputs, o, context));
            assert_eq!(bits(&got), bits(&want));
        });
    }
}

#[test]
fn gather_reads_along_the_dimension() {
    check_gather::<f32>(&[5, 7, 3], 4, 0);
    check_gather::<f32>(&[5, 7, 3], 11, 1);
    check_gather::<f16>(&[5, 7, 3], 2, 2);
    check_gather::<f64>(&[130, 150], 149, 1);
    check_gather::<bool>(&[4], 0, 0);
}

use half::f16;

fn check_select<T: Sample>(shape: &[usize], picks: &[usize], dim: usize) {
    let index = index_cases(picks, shape[dim]);
    let mut picked = shape[..dim].to_vec();
    picked.extend(picks);
    picked.extend(&shape[dim + 1..]);
    let picked = Shape::new(&picked);
    for (i, x) in Case::<T>::strided(shape).iter().enumerate() {
        let index = &index[(i * 3 + 1) % index.len()];
        let read = |place: Vec<usize>| {
            let behind = dim + picks.len();
            let mut from = place[..dim].to_vec();
            from.push(index.at(&place[dim..behind]) as usize);
            from.extend(&place[behind..]);
            x.at(&from)
        };
        let want: Vec<T> = indices(&picked).map(read).collect();
        each_context(|context| {
            let inputs = [x.operand(), index.operand()];
            let got = output::<T>(&picked, |o| index_select(&IndexSelect::new(dim), &inputs, o, context));
            assert_eq!(bits(&got), bits(&want));
        });
    }
}

#[test]
fn slices_are_selected() {
    check_select::<f32>(&[5, 7, 3], &[4], 0);
    check_select::<f32>(&[5, 7, 3], &[2, 3], 1);
    check_select::<f16>(&[5, 7, 3], &[], 2);
    check_select::<i32>(&[50, 67], &[11, 83], 0);
    check_select::<f64>(&[4], &[0, 2], 0);
}

/// The sum of `(block, term)` pairs by the rule: every block has a leaf, +0 where it has no terms.
fn canonical<T: Term>(blocks: usize, terms: &[(usize, T)]) -> T::Sum {
    let mut tree = TreeSum::new();
    for block in 0..blocks {
        let mut sum = T::Sum::ZERO;
        for (_, x) in terms.iter().filter(|t| t.0 == block) {
            sum = sum.add(x.widen());
        }
        tree.push(sum, T::Sum::add);
    }
    tree.finish(T::Sum::add).unwrap_or(T::Sum::ZERO)
}

fn check_index_add<T: Sample + Term>(shape: &[usize], picks: usize, dim: usize, size: usize) {
    let index_shape = Shape::new(&shape[dim..dim + picks]);
    let index = index_cases(&index_shape, size);
    let mut summed = shape[..dim].to_vec();
    summed.push(size);
    summed.extend(&shape[dim + picks..]);
    let summed = Shape::new(&summed);
    let op = IndexAdd::new(dim, size);
    let blocks = op.blocks(&index_shape);
    for (i, source) in Case::<T>::strided(shape).iter().enumerate() {
        let index = &index[(i * 3 + 1) % index.len()];
        let sum = |place: Vec<usize>| {
            let terms: Vec<(usize, T)> = indices(&index_shape)
                .filter(|at| index.at(at) as usize == place[dim])
                .map(|at| {
                    let from = [&place[..dim], &at, &place[dim + 1..]].concat();
                    (at.first().map_or(0, |i| i / blocks.unit), source.at(&from))
                })
                .collect();
            T::narrow(canonical(blocks.count(), &terms))
        };
        let want: Vec<T> = indices(&summed).map(sum).collect();
        each_context(|context| {
            let layouts = [&source.layout, &index.layout];
            let mut scratch = scratch(index_add_scratch(&op, T::DTYPE, &layouts, context.par.lanes()));
            let inputs = [source.operand(), index.operand()];
            let got = output::<T>(&summed, |o| index_add(&op, &inputs, o, as_bytes(&mut scratch), context));
            assert_eq!(bits(&got), bits(&want), "{op:?} {:?} {:?}", source.layout, index.layout);
        });
    }
}

#[test]
fn slices_are_added_in_canonical_order() {
    check_index_add::<f32>(&[67, 5], 1, 0, 4);
    check_index_add::<f32>(&[9, 6, 3], 2, 0, 5);
    check_index_add::<f32>(&[3, 41], 1, 1, 3);
    check_index_add::<half::bf16>(&[40, 3], 1, 0, 2);
    check_index_add::<f64>(&[2, 5], 0, 1, 3);
    check_index_add::<i64>(&[33, 2], 1, 0, 7);
    check_index_add::<u8>(&[5, 0], 1, 0, 2);
    check_index_add::<f32>(&[0, 3], 1, 0, 2);
}

fn check_scatter_add<T: Sample + Term>(shape: &[usize], count: usize, dim: usize) {
    let mut picked = shape.to_vec();
    picked[dim] = count;
    let picked = Shape::new(&picked);
    let index = index_cases(&picked, shape[dim]);
    let sources = Case::<T>::strided(&picked);
    let op = ScatterAdd::new(dim);
    let blocks = op.blocks(&picked);
    for (i, base) in Case::<T>::strided(shape).iter().enumerate() {
        let (index, source) = (&index[(i * 3 + 1) % index.len()], &sources[(i * 5 + 2) % sources.len()]);
        let sum = |place: Vec<usize>| {
            let mut terms = vec![];
            let mut from = place.clone();
            for i in 0..count {
                from[dim] = i;
                if index.at(&from) as usize == place[dim] {
                    terms.push((from[0] / blocks.unit, source.at(&from)));
                }
            }
            T::narrow(base.at(&place).widen().add(canonical(blocks.count(), &terms)))
        };
        let want: Vec<T> = indices(&base.layout.shape).map(sum).collect();
        each_context(|context| {
            let layouts = [&base.layout, &index.layout, &source.layout];
            let mut scratch = scratch(scatter_add_scratch(&op, T::DTYPE, &layouts, context.par.lanes()));
            let inputs = [base.operand(), index.operand(), source.operand()];
            let got =
                output::<T>(&base.layout.shape, |o| scatter_add(&op, &inputs, o, as_bytes(&mut scratch), context));
            assert_eq!(bits(&got), bits(&want), "{op:?} {:?} {:?}", source.layout, index.layout);
        });
    }
}

#[test]
fn elements_are_added_in_canonical_order() {
    check_scatter_add::<f32>(&[4, 5], 67, 0);
    check_scatter_add::<f32>(&[7, 3, 5], 9, 1);
    check_scatter_add::<half::bf16>(&[9, 6], 5, 1);
    check_scatter_add::<i32>(&[3, 2], 40, 0);
    check_scatter_add::<f64>(&[3], 0, 0);
    check_scatter_add::<f32>(&[60, 50], 101, 1);
}

/// A part of the rows of a table, and what the indices name there.
#[test]
fn what_is_not_in_a_part_reads_as_minus_zero_and_is_not_added() {
    let (part, rows) = (PartOf { start: 4, size: 9 }, 3);
    let table = Case::<f32>::dense(1, &[rows, 2]);
    let index = Case { data: vec![0i64, 4, 6, 8, 3, 7, 5, 4], layout: Layout::contiguous(&Shape::new(&[8])) };
    let inside = |i: usize| (index.data[i] as usize).checked_sub(part.start).filter(|at| *at < rows);
    let read = |i: usize, d: usize| inside(i).map_or(-0f32, |at| table.at(&[at, d]));
    let selected: Vec<f32> = (0..8).flat_map(|i| [read(i, 0), read(i, 1)]).collect();
    let columns = Case {
        data: index.data.iter().flat_map(|&i| [i, i]).collect(),
        layout: Layout::contiguous(&Shape::new(&[8, 2])),
    };
    let sources = Case::<f32>::dense(2, &[8, 2]);
    let added = |row: usize, d: usize| {
        let terms: Vec<(usize, f32)> =
            (0..8).filter(|&i| inside(i) == Some(row)).map(|i| (i / 2, sources.at(&[i, d]))).collect();
        canonical(4, &terms)
    };
    let sums: Vec<f32> = (0..rows).flat_map(|row| [added(row, 0), added(row, 1)]).collect();
    let (some, op) = (Some(part), IndexAdd { part_of: Some(part), ..IndexAdd::new(0, rows) });
    assert_eq!(op.blocks(&Shape::new(&[8])).unit, 2);
    each_context(|context| {
        let shape = Shape::new(&[8, 2]);
        let select = IndexSelect { dim: 0, part_of: some };
        let got = output::<f32>(&shape, |o| index_select(&select, &[table.operand(), index.operand()], o, context));
        assert_eq!(bits(&got), bits(&selected));
        let got = output::<f32>(&shape, |o| {
            gather(&Gather { dim: 0, part_of: some }, &[table.operand(), columns.operand()], o, context);
        });
        assert_eq!(bits(&got), bits(&selected));
        let mut memory = scratch(1000);
        let got = output::<f32>(&table.layout.shape, |o| {
            index_add(&op, &[sources.operand(), index.operand()], o, as_bytes(&mut memory), context);
        });
        assert_eq!(bits(&got), bits(&sums));
        let zeros = Case { data: vec![0f32; 6], layout: table.layout.clone() };
        let scatter = ScatterAdd { part_of: some, ..ScatterAdd::new(0) };
        let got = output::<f32>(&table.layout.shape, |o| {
            let inputs = [zeros.operand(), columns.operand(), sources.operand()];
            scatter_add(&scatter, &inputs, o, as_bytes(&mut memory), context);
        });
        assert_eq!(bits(&got), bits(&sums));
    });
}

#[test]
fn an_index_outside_of_the_whole_is_refused_by_a_part() {
    let table = Case::<f32>::dense(1, &[3, 2]);
    for wrong in [9, -1] {
        let index = Case { data: vec![0i64, wrong], layout: Layout::contiguous(&Shape::new(&[2])) };
        let select = IndexSelect { dim: 0, part_of: Some(PartOf { start: 4, size: 9 }) };
        each_context(|context| {
            let inputs = [table.operand(), index.operand()];
            let attempt = || output::<f32>(&Shape::new(&[2, 2]), |o| index_select(&select, &inputs, o, context));
            let panic = catch_unwind(AssertUnwindSafe(attempt)).expect_err("an index out of range");
            let message = panic.downcast_ref::<String>().expect("a message");
            assert_eq!(*message, format!("index {wrong} is out of range for dimension 0 of size 9"));
        });
    }
}

#[test]
fn nothing_changes_no_sum() {
    let each = |bits: u64| [f32::from_bits(bits as u32), -0.0, 0.0, 1.5, f32::MIN_POSITIVE, f32::NEG_INFINITY];
    for x in each(nothing(DType::F32)) {
        let nothing = f32::from_bits(nothing(DType::F32) as u32);
        assert_eq!([(x + nothing).to_bits(), (nothing + x).to_bits()], [x.to_bits(); 2]);
    }
    assert_eq!(f64::from_bits(nothing(DType::F64)).to_bits(), (-0f64).to_bits());
    assert_eq!(f16::from_bits(nothing(DType::F16) as u16).to_bits(), f16::NEG_ZERO.to_bits());
    assert_eq!(half::bf16::from_bits(nothing(DType::BF16) as u16), half::bf16::NEG_ZERO);
    assert!([DType::I64, DType::I32, DType::U8].iter().all(|&dtype| nothing(dtype) == 0));
}

#[test]
fn an_index_out_of_range_is_an_error_that_names_it() {
    let x = Case::<f32>::dense(1, &[3, 10]);
    for wrong in [12, -1, i64::MIN] {
        let index = Case { data: vec![0, 9, wrong], layout: Layout::contiguous(&Shape::new(&[3, 1])) };
        let source = Case::<f32>::dense(1, &[3, 1]);
        let mut scratch = scratch(1000);
        each_context(|context| {
            let attempts: [&mut dyn FnMut(); 3] = [
                &mut || {
                    let inputs = [x.operand(), index.operand()];
                    output::<f32>(&Shape::new(&[3, 1]), |o| gather(&Gather::new(1), &inputs, o, context));
                },
                &mut || {
                    let inputs = [x.operand(), index.operand()];
                    let shape = Shape::new(&[3, 3, 1]);
                    output::<f32>(&shape, |o| index_select(&IndexSelect::new(1), &inputs, o, context));
                },
                &mut || {
                    let inputs = [x.operand(), index.operand(), source.operand()];
                    let op = ScatterAdd::new(1);
                    output::<f32>(&x.layout.shape, |o| {
                        scatter_add(&op, &inputs, o, as_bytes(&mut scratch), context);
                    });
                },
            ];
            for attempt in attempts {
                let panic = catch_unwind(AssertUnwindSafe(attempt)).expect_err("an index out of range");
                let message = panic.downcast_ref::<String>().expect("a message");
                assert_eq!(*message, format!("index {wrong} is out of range for dimension 1 of size 10"));
            }
        });
    }
}
