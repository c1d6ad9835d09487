//! Right programs in the types: values and gradients are those of one device. The numbers are small integers, so that
//! sums are exact in any order.

use crate::{integers, on};
use meshwork::Tensor;
use meshwork::optim::{Sgd, SgdOptions};
use meshwork::spmd::{CommError, Parameter, Update, all_reduce_together};
use meshwork::tensor::grad;

/// The loss of two layers on one device, and its gradients.
fn whole(x: &Tensor, a: &Tensor, b: &Tensor) -> (f64, Vec<Vec<u8>>) {
    let variables = [x, a, b].map(Tensor::variable);
    let [x, a, b] = &variables;
    let loss = x.linear(a, None).relu().linear(b, None).square().sum(..);
    let gradients = grad(&loss, &variables.iter().collect::<Vec<_>>());
    (loss.item(), gradients.iter().map(Tensor::to_bytes).collect())
}

#[test]
fn two_layers_in_columns_and_rows_as_in_megatron() {
    let (x, a, b) = (integers(&[4, 6], 1), integers(&[5, 6], 2), integers(&[3, 5], 3));
    let (loss, gradients) = whole(&x, &a, &b);
    for ranks in 1..4 {
        let results = on(ranks, |group| {
            let x = group.replicated(&x)?.variable();
            let (a, b) = (group.replicated(&a)?.variable(), group.replicated(&b)?.variable());
            let hidden = x.fan_out().linear(&a.shard(0)).relu();
            let y = hidden.linear(&b.shard(1)).partial().all_reduce()?;
            let loss = y.square().sum(..);
            let found = loss.backward()?;
            let bytes = [&x, &a, &b].map(|w| found.of(w).value().to_bytes());
            Ok((loss.item(), bytes.to_vec()))
        });
        assert!(results.into_iter().all(|result| result == (loss, gradients.clone())));
    }
}

#[test]
fn samples_divided_among_ranks() {
    let (x, a, b) = (integers(&[5, 6], 1), integers(&[5, 6], 2), integers(&[3, 5], 3));
    let (loss, gradients) = whole(&x, &a, &b);
    for ranks in 1..4 {
        let results = on(ranks, |group| {
            let x = group.varying(&group.part_of(&x, 0)).variable();
            let (a, b) = (group.replicated(&a)?.variable(), group.replicated(&b)?.variable());
            let y = x.linear(&a.fan_out()).relu().linear(&b.fan_out());
            let loss = y.square().sum(..).partial().all_reduce()?;
            let found = loss.backward()?;
            let whole_x = group.all_gather(found.of(&x).local(), 0)?.to_bytes();
            Ok((loss.item(), vec![whole_x, found.of(&a).value().to_bytes(), found.of(&b).value().to_bytes()]))
        });
        assert!(results.into_iter().all(|result| result == (loss, gradients.clone())));
    }
}

/// Parameters divided as in ZeRO-3: gathered before they are used, their gradients added up and divided.
#[test]
fn samples_and_parameters_divided_among_ranks() {
    let (x, a, b) = (integers(&[5, 6], 1), integers(&[5, 6], 2), integers(&[3, 5], 3));
    let (loss, gradients) = whole(&x, &a, &b);
    for ranks in 1..4 {
        let results = on(ranks, |group| {
            let x = group.varying(&group.part_of(&x, 0)).variable();
            let a = group.varying(&group.part_of(&a, 0)).variable();
            let b = group.varying(&group.part_of(&b, 1)).variable();
            let y = x.linear(&a.all_gather_shared(0)?).relu().linear(&b.all_gather_shared(1)?);
            let loss = y.square().sum(..).partial().all_reduce()?;
            let found = loss.backward()?;
            let gathered = [(&x, 0), (&a, 0), (&b, 1)].map(|(w, dim)| group.all_gather(found.of(w).local(), dim));
            let bytes =
                gathered.into_iter().map(|gradient| Ok(gradient?.to_bytes())).collect::<Result<_, CommError>>()?;
            Ok((loss.item(), bytes))
        });
        assert!(results.into_iter().all(|result| result == (loss, gradients.clone())));
    }
}

/// Activations divided by samples between layers that are divided by features (Korthikanti et al., 2022).
#[test]
fn samples_divided_between_layers_that_are_divided() {
    let (x, a, b) = (integers(&[5, 6], 1), integers(&[5, 6], 2), integers(&[3, 5], 3));
    let (loss, gradients) = whole(&x, &a, &b);
    for ranks in 1..4 {
        let results = on(ranks, |group| {
            let x = group.replicated(&x)?.variable();
            let (a, b) = (group.replicated(&a)?.variable(), group.replicated(&b)?.variable());
            let hidden = x.shard(0).all_gather_shared(0)?.linear(&a.shard(0)).relu();
            let y = hidden.linear(&b.shard(1)).partial().reduce_scatter(0)?;
            let loss = y.square().sum(..).partial().all_reduce()?;
            let found = loss.backward()?;
            Ok((loss.item(), [&x, &a, &b].map(|w| found.of(w).value().to_bytes()).to_vec()))
        });
        assert!(results.into_iter().all(|result| result == (loss, gradients.clone())));
    }
}

#[test]
fn what_is_exchanged_has_its_gradient_exchanged_back() {
    let x = integers(&[4, 6], 5);
    let expected = (&x * 2.0).to_bytes();
    let results = on(2, |group| {
        let x = group.replicated(&x)?.variable();
        let columns = x.shard(0).all_to_all(1, 0)?;
        let loss = columns.square().sum(..).partial().all_reduce()?;
        assert_eq!(columns.local().to_bytes(), group.part_of(x.value(), 1).to_bytes());
        Ok(loss.backward()?.of(&x).value().to_bytes())
    });
    assert!(results.into_iter().all(|gradient| gradient == expected));
}

#[test]
fn a_shared_sum_goes_on_in_different_ways() {
    // Σ over ranks of (rank + 1) · s², with s = Σ over ranks of (rank + 1) · w.
    let results = on(3, |group| {
        let w = group.replicated(&integers(&[2], 4))?.variable();
        let own = group.varying(&Tensor::from_slice(&[group.rank() as f32 + 1.0], &[1]));
        let s = (&w.fan_out() * &own).partial().all_reduce_shared()?;
        let loss = (&s.square() * &own).sum(..).partial().all_reduce()?;
        Ok((w.value().to_vec::<f32>(), loss.item(), loss.backward()?.of(&w).value().to_vec::<f32>()))
    });
    for (w, loss, gradient) in results {
        assert_eq!(loss, f64::from(w.iter().map(|w| 6.0 * (6.0 * w) * (6.0 * w)).sum::<f32>()));
        assert_eq!(gradient, w.iter().map(|w| 6.0 * 2.0 * 36.0 * w).collect::<Vec<_>>());
    }
}

/// Cross entropy of logits whose classes are divided: gathered, and without a gather (Shoeybi et al., 2019).
#[test]
fn cross_entropy_over_a_divided_vocabulary() {
    let (x, weight) = (integers(&[4, 3], 1), integers(&[7, 3], 2) * 0.25);
    let labels = Tensor::from_slice(&[0i64, 6, 3, 2], &[4]);
    let one = weight.variable();
    let loss = x.linear(&one, None).cross_entropy(&labels);
    let expected = (loss.item(), grad(&loss, &[&one]).remove(0).to_vec::<f32>());
    let near = |found: &(f64, Vec<f32>)| {
        (found.0 - expected.0).abs() < 1e-5 && found.1.iter().zip(&expected.1).all(|(a, b)| (a - b).abs() < 1e-5)
    };
    for ranks in 1..4 {
        let results = on(ranks, |group| {
            let (x, labels) = (group.replicated(&x)?, group.replicated(&labels)?);
            let weight = group.replicated(&weight)?.variable();
            let logits = x.fan_out().linear(&weight.shard(0));
            let gathered = logits.all_gather(1)?.cross_entropy(&labels);
            let gradient = gathered.backward()?.of(&weight).value().to_vec::<f32>();

            let max = logits.amax([1]).all_reduce_max()?;
            let shifted = &logits - &max.constant().unsqueeze(1);
            let one_hot = meshwork::tensor::one_hot(labels.value(), 7, meshwork::DType::F32);
            let own = group.varying(&group.part_of(&one_hot, 1));
            let total = shifted.exp().sum([1]).partial().all_reduce()?;
            let picked = (&shifted * &own).sum([1]).partial().all_reduce()?;
            let loss = (&total.log() - &picked).mean(..);
            let other = loss.backward()?.of(&weight).value().to_vec::<f32>();
            Ok([(gathered.item(), gradient), (loss.item(), other)])
        });
        assert!(results.iter().flatten().all(near));
    }
}

#[test]
fn sums_that_are_made_together_have_the_bits_of_each_by_itself() {
    on(3, |group| {
        meshwork::manual_seed(group.rank() as u64);
        let w = group.replicated(&integers(&[3, 2], 1))?.variable();
        let noise = |shape: &[usize]| group.varying(&meshwork::tensor::randn(shape));
        let (a, b) = ((&w.fan_out() * &noise(&[3, 2])).partial(), noise(&[50]).partial());
        let together = all_reduce_together(&[&a, &b])?;
        assert_eq!(together[0].value().to_bytes(), a.all_reduce()?.value().to_bytes());
        assert_eq!(together[1].value().to_bytes(), b.all_reduce()?.value().to_bytes());
        let gradient = together[0].sum(..).backward()?.of(&w).value().to_bytes();
        assert_eq!(gradient, a.all_reduce()?.sum(..).backward()?.of(&w).value().to_bytes());
        assert!(all_reduce_together(&[])?.is_empty());
        Ok(())
    });
}

#[test]
fn training_keeps_replicated_parameters_equal_and_is_that_of_one_device() {
    let (x, a, b) = (integers(&[4, 6], 1), integers(&[4, 6], 2), integers(&[3, 4], 3));
    let options = SgdOptions { momentum: 0.5, ..SgdOptions::new(2f64.powi(-10)) };
    let train = |ranks: usize| {
        on(ranks, |group| {
            let x = group.replicated(&x)?;
            let a = Parameter::new(&group.replicated(&a)?.shard(0));
            let b = Parameter::new(&group.replicated(&b)?);
            let mut optimizer = Sgd::new(vec![a.named("a"), b.named("b")], options.clone());
            let mut losses = Vec::new();
            for _ in 0..4 {
                let hidden = x.fan_out().linear(&a.value()).relu();
                let y = hidden.linear(&b.value().shard(1)).partial().all_reduce()?;
                let loss = y.square().mean(..);
                let found = loss.backward()?;
                losses.push(loss.item());
                let update = Update::new().with(&a, &found.of(&a.value())).with(&b, &found.of(&b.value()));
                update.step(&mut optimizer);
            }
            Ok((losses, group.all_gather(a.value().local(), 0)?.to_vec::<f32>(), b.value().value().to_vec::<f32>()))
        })
    };
    let expected = train(1).remove(0);
    assert!(expected.0.windows(2).all(|pair| pair[1] < pair[0]), "the loss falls: {:?}", expected.0);
    let results = train(2);
    assert_eq!(results[0], results[1]);
    // After the first step numbers are no integers any more.
    let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs().max(1.0));
    assert!(near(&results[0].1, &expected.1) && near(&results[0].2, &expected.2));
    assert_eq!(results[0].0[0], expected.0[0]);
}

#[test]
fn a_value_that_is_used_twice_gets_both_gradients() {
    let results = on(2, |group| {
        let w = group.replicated(&integers(&[3], 2))?.variable();
        let unused = group.replicated(&integers(&[3], 3))?.variable();
        let shared = w.fan_out();
        // The same hidden value goes into two collectives, and into the loss.
        let hidden = shared.square();
        let a = hidden.vary().partial().all_reduce()?;
        let b = (&hidden * &shared).vary().partial().all_reduce()?;
        let loss = &(&a.sum(..) + &b.sum(..)) + &w.sum(..);
        let found = loss.backward()?;
        assert_eq!(found.of(&unused).value().to_vec::<f32>(), [0.0; 3]);
        Ok((w.value().to_vec::<f32>(), found.of(&w).value().to_vec::<f32>()))
    });
    for (w, gradient) in results {
        assert_eq!(gradient, w.iter().map(|w| 2.0 * (2.0 * w + 3.0 * w * w) + 1.0).collect::<Vec<_>>());
    }
}
