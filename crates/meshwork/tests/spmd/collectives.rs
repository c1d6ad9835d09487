//! Collectives on tensors against the same done on one device.

use crate::{integers, on};
use meshwork::spmd::ReduceOp;
use meshwork::tensor::{concat, manual_seed, randn};
use meshwork::{DType, Tensor};

#[test]
fn reductions_are_those_of_all_tensors() {
    for ranks in 1..5 {
        let inputs: Vec<Tensor> = (0..ranks).map(|rank| integers(&[5, 3], rank)).collect();
        let sum = inputs.iter().skip(1).fold(inputs[0].clone(), |sum, x| sum + x);
        let max = inputs.iter().skip(1).fold(inputs[0].clone(), |max, x| max.maximum(x));
        let results = on(ranks, |group| {
            let x = integers(&[5, 3], group.rank());
            let all = group.all_reduce(&x, ReduceOp::Sum)?;
            let max = group.all_reduce(&x, ReduceOp::Max)?;
            let rows = group.reduce_scatter(&x, 0, ReduceOp::Sum)?;
            let columns = group.reduce_scatter(&x, 1, ReduceOp::Sum)?;
            let root = group.reduce(&x, ReduceOp::Sum, ranks - 1)?;
            assert_eq!(all.device(), *group.device());
            let parts = [group.part_of(&all, 0), group.part_of(&all, 1)];
            assert_eq!(rows.to_bytes(), parts[0].to_bytes());
            assert_eq!((columns.shape(), columns.to_bytes()), (parts[1].shape(), parts[1].to_bytes()));
            Ok((all.to_vec::<f32>(), max.to_vec::<f32>(), root.to_vec::<f32>()))
        });
        for (rank, (all, greatest, root)) in results.into_iter().enumerate() {
            assert_eq!(all, sum.to_vec::<f32>());
            assert_eq!(greatest, max.to_vec::<f32>());
            assert_eq!(root, if rank == ranks - 1 { sum.to_vec::<f32>() } else { inputs[rank].to_vec() });
        }
    }
}

#[test]
fn every_dtype_is_gathered_along_every_dim() {
    for dtype in DType::ALL {
        for dim in 0..3 {
            let part = |rank: usize| {
                let mut shape = [2, 3, 2];
                shape[dim] = rank;
                integers(&shape, rank).to_dtype(dtype)
            };
            let parts: Vec<Tensor> = (0..3).map(part).collect();
            let whole = concat(&parts.iter().collect::<Vec<_>>(), dim as isize).to_bytes();
            let results = on(3, |group| {
                let x = part(group.rank());
                let all = group.all_gather(&x, dim as isize)?;
                let root = group.gather(&x, dim as isize - 3, 1)?;
                assert_eq!(all.dtype(), dtype);
                Ok((all.to_bytes(), root.map(|x| x.to_bytes())))
            });
            for (rank, (all, root)) in results.into_iter().enumerate() {
                assert_eq!(all, whole);
                assert_eq!(root, (rank == 1).then(|| whole.clone()));
            }
        }
    }
}

#[test]
fn parts_are_dealt_and_exchanged() {
    for ranks in 1..4 {
        on(ranks, |group| {
            let whole = integers(&[4, 5], 1);
            for (dim, dtype) in [(0, DType::F32), (1, DType::Bool), (1, DType::I64)] {
                let typed = whole.to_dtype(dtype);
                let own = group.scatter((group.rank() == 0).then_some(&typed), dim, 0)?;
                let expected = group.part_of(&typed, dim as isize);
                assert_eq!((own.dtype(), own.shape(), own.to_bytes()), (dtype, expected.shape(), expected.to_bytes()));
            }
            // Divided by rows, then by columns, and back.
            let rows = group.part_of(&whole, 0);
            let columns = group.all_to_all(&rows, 1, 0)?;
            assert_eq!(columns.to_bytes(), group.part_of(&whole, 1).to_bytes());
            let rows_again = group.all_to_all(&columns, 0, 1)?;
            assert_eq!(rows_again.to_bytes(), rows.to_bytes());
            let root = group.broadcast(&integers(&[3], group.rank()), ranks - 1)?;
            assert_eq!(root.to_bytes(), integers(&[3], ranks - 1).to_bytes());
            Ok(())
        });
    }
}

#[test]
fn tensors_are_sent_in_the_background() {
    on(2, |group| {
        let other = 1 - group.rank();
        let x = integers(&[2, 2], group.rank()).to_dtype(DType::Bool);
        let sent = group.send_async(&x, other)?;
        let expected = group.recv_async(&[2, 2], DType::Bool, other)?;
        let sum = group.all_reduce_async(&integers(&[9], 0), ReduceOp::Mean)?;
        let axes = group.along_axes(&[1, 2])?;
        axes[1].barrier()?;
        assert_eq!(expected.wait()?.to_bytes(), integers(&[2, 2], other).to_dtype(DType::Bool).to_bytes());
        assert_eq!(sent.wait()?.to_bytes(), x.to_bytes());
        assert_eq!(sum.wait()?.to_bytes(), integers(&[9], 0).to_bytes());
        let alone = group.new_group(&[1])?;
        assert_eq!(alone.map(|alone| alone.ranks().to_vec()), (group.rank() == 1).then(|| vec![1]));
        Ok(())
    });
}

#[test]
fn a_product_whose_columns_are_divided_has_the_bits_of_the_whole() {
    for ranks in [2, 3, 5] {
        on(ranks, |group| {
            manual_seed(3);
            let (x, weight) = (randn(&[7, 130]), randn(&[31, 130]));
            let own = x.linear(&group.part_of(&weight, 0), None);
            assert_eq!(group.all_gather(&own, 1)?.to_bytes(), x.linear(&weight, None).to_bytes());
            Ok(())
        });
    }
}
