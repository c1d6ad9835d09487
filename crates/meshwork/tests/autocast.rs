//! Mixed precision: what operations compute on, gradients, casts, loss scaling.

use meshwork::nn::{Linear, Module, Transformer, TransformerConfig};
use meshwork::optim::{Adam, AdamOptions, LossScale, LossScaleOptions, Optimizer};
use meshwork::tensor::{
    AttentionOptions, CAST_POLICIES, CastPolicy, ConvOptions, ConvTransposeOptions, Precision, Reduction, autocast,
    bce_with_logits, cast_policy, concat, manual_seed, mse_loss, nll_loss, rand, randn, where_,
};
use meshwork::train::loss;
use meshwork::{DType, Tensor};

/// An operation on tensors `[2, 4, 4, 4]` of given types.
type Operation = fn(&[Tensor]) -> Tensor;

const OPTIONS: fn() -> (ConvOptions, ConvTransposeOptions) = Default::default;

fn classes() -> Tensor {
    Tensor::from_slice(&[1i64; 32], &[2, 4, 4])
}

/// An operation of every name in the table, and some that are not there.
#[rustfmt::skip]
fn operations() -> Vec<(&'static str, usize, Operation)> {
    vec![
        ("matmul", 2, |x| x[0].matmul(&x[1])),
        ("linear", 3, |x| x[0].linear(&x[1].flatten(0).reshape(&[32, 4]), Some(&x[2].flatten(0).narrow(0, 0, 32)))),
        ("conv1d", 3, |x| x[0].reshape(&[2, 4, 16]).conv1d(&x[1].reshape(&[32, 4, 1]), Some(&x[2].flatten(0).narrow(0, 0, 32)), &OPTIONS().0)),
        ("conv2d", 3, |x| x[0].conv2d(&x[1].reshape(&[8, 4, 2, 2]), Some(&x[2].flatten(0).narrow(0, 0, 8)), &OPTIONS().0)),
        ("conv3d", 3, |x| x[0].unsqueeze(1).conv3d(&x[1].reshape(&[16, 1, 2, 2, 2]), Some(&x[2].flatten(0).narrow(0, 0, 16)), &OPTIONS().0)),
        ("conv_transpose1d", 3, |x| x[0].reshape(&[2, 4, 16]).conv_transpose1d(&x[1].reshape(&[4, 32, 1]), Some(&x[2].flatten(0).narrow(0, 0, 32)), &OPTIONS().1)),
        ("conv_transpose2d", 3, |x| x[0].conv_transpose2d(&x[1].reshape(&[4, 8, 2, 2]), Some(&x[2].flatten(0).narrow(0, 0, 8)), &OPTIONS().1)),
        ("conv_transpose3d", 3, |x| x[0].unsqueeze(1).conv_transpose3d(&x[1].reshape(&[1, 16, 2, 2, 2]), Some(&x[2].flatten(0).narrow(0, 0, 16)), &OPTIONS().1)),
        ("scaled_dot_product_attention", 3, |x| x[0].scaled_dot_product_attention(&x[1], &x[2], AttentionOptions::default())),
        ("exp", 1, |x| x[0].exp()),
        ("expm1", 1, |x| x[0].expm1()),
        ("log", 1, |x| x[0].log()),
        ("log1p", 1, |x| x[0].log1p()),
        ("pow", 2, |x| x[0].pow(&x[1])),
        ("reciprocal", 1, |x| x[0].reciprocal()),
        ("rsqrt", 1, |x| x[0].rsqrt()),
        ("softplus", 1, |x| x[0].softplus()),
        ("log_sigmoid", 1, |x| x[0].log_sigmoid()),
        ("softmax", 1, |x| x[0].softmax(-1)),
        ("log_softmax", 1, |x| x[0].log_softmax(-1)),
        ("sum", 1, |x| x[0].sum(1)),
        ("sum_keepdim", 1, |x| x[0].sum_keepdim(1)),
        ("prod", 1, |x| x[0].prod(1)),
        ("cumsum", 1, |x| x[0].cumsum(1)),
        ("mean", 1, |x| x[0].mean(..)),
        ("mean_keepdim", 1, |x| x[0].mean_keepdim(1)),
        ("var", 1, |x| x[0].var(1, 1)),
        ("batch_statistics", 1, |x| x[0].batch_statistics().var),
        ("batch_norm", 2, |x| x[0].batch_norm(&x[1].flatten(0).narrow(0, 0, 4), &x[1].flatten(0).narrow(0, 4, 4), None, None, 1e-5)),
        ("layer_norm", 3, |x| x[0].layer_norm(1, Some(&x[1].flatten(0).narrow(0, 0, 4)), Some(&x[2].flatten(0).narrow(0, 0, 4)), 1e-5)),
        ("group_norm", 1, |x| x[0].group_norm(2, None, None, 1e-5)),
        ("rms_norm", 1, |x| x[0].rms_norm(1, None, 1e-5)),
        ("cross_entropy", 1, |x| x[0].cross_entropy(&classes())),
        ("nll_loss", 1, |x| nll_loss(&x[0], &classes(), None, -100, Reduction::Mean)),
        ("mse_loss", 2, |x| mse_loss(&x[0], &x[1], Reduction::None)),
        ("bce_with_logits", 2, |x| bce_with_logits(&x[0], &x[1], None, None, Reduction::None)),
        ("gelu", 1, |x| x[0].gelu()),
        ("gelu_tanh", 1, |x| x[0].gelu_tanh()),
        ("silu", 1, |x| x[0].silu()),
        ("dropout", 1, |x| x[0].dropout(0.3, 7)),
        ("rotary", 1, |x| meshwork::nn::rotary(&x[0], &meshwork::tensor::arange(4, DType::I64), 100.0)),
        ("add", 2, |x| &x[0] + &x[1]),
        ("mul", 2, |x| &x[0] * &x[1]),
        ("div", 2, |x| &x[0] / &x[1]),
        ("mul by a number", 1, |x| &x[0] * 0.1),
        ("maximum", 2, |x| x[0].maximum(&x[1])),
        ("where", 2, |x| where_(&x[0].gt(0.5), &x[0], &x[1])),
        ("concat", 2, |x| concat(&[&x[0], &x[1]], 0)),
        ("relu", 1, |x| x[0].relu()),
        ("tanh", 1, |x| x[0].tanh()),
        ("sigmoid", 1, |x| x[0].sigmoid()),
        ("sqrt", 1, |x| x[0].sqrt()),
        ("amax", 1, |x| x[0].amax(1)),
        ("max_pool2d", 1, |x| x[0].max_pool2d(2)),
        ("avg_pool2d", 1, |x| x[0].avg_pool2d(2)),
        ("permute", 1, |x| x[0].permute(&[3, 2, 1, 0])),
        ("embedding", 1, |x| x[0].reshape(&[32, 4]).embedding(&classes())),
    ]
}

#[test]
fn every_operation_computes_on_what_the_table_says() {
    let operations = operations();
    for (name, _) in CAST_POLICIES {
        assert!(operations.iter().any(|(known, _, _)| known == name), "{name} is not tried");
    }
    for (name, count, run) in &operations {
        for precision in [Precision::BF16, Precision::F16] {
            let low = precision.dtype();
            for (first, others) in [(DType::F32, DType::F32), (low, low), (low, DType::F32), (DType::F64, DType::F64)] {
                let types = [first, others, others];
                let operands: Vec<Tensor> =
                    types[..*count].iter().map(|&dtype| (rand(&[2, 4, 4, 4]) + 0.1).to_dtype(dtype)).collect();
                let expected = match cast_policy(name) {
                    _ if first == DType::F64 => DType::F64,
                    CastPolicy::Narrow => low,
                    CastPolicy::Wide => DType::F32,
                    CastPolicy::RoundedOnce | CastPolicy::Widest if *count == 1 => first,
                    CastPolicy::RoundedOnce | CastPolicy::Widest => first.promote(others),
                };
                let result = autocast(precision, || run(&operands));
                assert_eq!(result.dtype(), expected, "{name} of {types:?} in {precision}");
                assert!(result.to_f64().iter().all(|x| x.is_finite()), "{name} of {types:?} in {precision}");
            }
        }
        let plain: Vec<Tensor> = (0..*count).map(|_| rand(&[2, 4, 4, 4]) + 0.1).collect();
        let [with, without] = [autocast(Precision::F32, || run(&plain)), run(&plain)];
        assert!(with.dtype() == DType::F32 && with.to_bytes() == without.to_bytes(), "{name} in f32");
    }
}

#[test]
fn functions_that_are_rounded_once_are_as_near_as_their_type_allows() {
    for (name, _) in CAST_POLICIES.iter().filter(|(_, policy)| *policy == CastPolicy::RoundedOnce) {
        let (_, _, run) = operations().into_iter().find(|(known, _, _)| known == name).unwrap();
        let x = (randn(&[2, 4, 4, 4]) * 3.0).to_dtype(DType::BF16);
        let rounded = autocast(Precision::BF16, || run(std::slice::from_ref(&x)));
        let exact = run(&[x.to_dtype(DType::F32)]).to_dtype(DType::BF16);
        assert!(rounded.to_bytes() == exact.to_bytes(), "{name}");
    }
}

#[test]
fn integers_are_not_cast() {
    let index = Tensor::from_slice(&[1i64, 2, 3, 4], &[2, 2]);
    let [product, sum] = autocast(Precision::BF16, || [index.matmul(&index), index.sum(..)]);
    assert_eq!((product.to_vec::<i64>(), sum.to_vec::<i64>()), (vec![7, 10, 15, 22], vec![10]));
}

/// Relative distance of the gradients from those in f32, over all parameters together.
fn distance(model: &dyn Module, forward: &dyn Fn() -> Tensor, precision: Precision) -> f64 {
    let gradients = |precision| {
        let loss = autocast(precision, forward);
        assert_eq!(loss.dtype(), DType::F32);
        let gradients = model.gradients(&loss);
        gradients.iter().for_each(|(p, g)| assert_eq!(p.dtype(), g.dtype()));
        gradients.iter().flat_map(|(_, gradient)| gradient.to_f64()).collect::<Vec<f64>>()
    };
    let (exact, narrow) = (gradients(Precision::F32), gradients(precision));
    let norm = |of: &mut dyn Iterator<Item = f64>| of.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut exact.iter().zip(&narrow).map(|(a, b)| a - b)) / norm(&mut exact.iter().copied())
}

#[test]
fn gradients_are_close_to_those_in_f32() {
    for config in [TransformerConfig::gpt2(37, 16, 2, 32, 4), TransformerConfig::llama(37, 16, 2, 32, 4)] {
        let model = Transformer::new(config);
        model.init(1);
        manual_seed(2);
        let tokens = (rand(&[4, 16]) * 37.0).floor().to_dtype(DType::I64);
        tokens.eval();
        let forward = || loss(&model.forward(&tokens), &tokens);
        let (bf16, f16) = (distance(&model, &forward, Precision::BF16), distance(&model, &forward, Precision::F16));
        assert!(bf16 > 1e-4 && bf16 < 2e-2, "{bf16}");
        assert!(f16 > 1e-5 && f16 < 3e-3, "{f16}");
    }
}

#[test]
fn a_model_learns_in_every_precision() {
    let config = TransformerConfig::gpt2(19, 12, 2, 32, 4);
    let mut losses = Vec::new();
    for precision in [Precision::F32, Precision::BF16, Precision::F16] {
        let model = Transformer::new(config);
        model.init(1);
        let mut optimizer = Adam::new(&model, AdamOptions { lr: 5e-3, ..AdamOptions::default() });
        let mut scale = LossScale::new(LossScaleOptions::default());
        let tokens: Vec<i64> = (0..8 * 12).map(|i| (i * i % 19) as i64).collect();
        let tokens = Tensor::from_slice(&tokens, &[8, 12]);
        let mut last = f64::NAN;
        for _ in 0..60 {
            let loss = autocast(precision, || loss(&model.forward(&tokens), &tokens));
            let mut gradients = model.gradients(&scale.scaled(&loss));
            if scale.unscale(&mut gradients) {
                optimizer.step(gradients);
            }
            last = loss.item();
        }
        assert!(last < 0.1, "{precision}: {last}");
        losses.push(last);
    }
    assert!(losses.iter().all(|loss| (loss - losses[0]).abs() < 0.02), "{losses:?}");
}

#[test]
fn a_step_whose_gradients_overflow_is_skipped_and_leaves_no_trace() {
    let train = |initial: f64| {
        let model = Linear::new(4, 3);
        model.init(0);
        let mut optimizer = Adam::new(&model, AdamOptions::default());
        let options = LossScaleOptions { initial, ..LossScaleOptions::default() };
        let mut scale = LossScale::new(options);
        manual_seed(3);
        let x = randn(&[16, 4]);
        let mut done = 0;
        while done < 5 {
            let loss = autocast(Precision::F16, || model.forward(&x).square().mean(..));
            let mut gradients = model.gradients(&scale.scaled(&loss));
            if scale.unscale(&mut gradients) {
                assert!(gradients.iter().all(|(_, g)| g.to_f64().iter().all(|g| g.is_finite() && g.abs() < 10.0)));
                optimizer.step(gradients);
                done += 1;
            }
        }
        assert_eq!(optimizer.steps(), 5);
        let state = model.state().into_iter().map(|(_, value)| value.to_bytes()).collect::<Vec<_>>();
        (state, scale.state())
    };
    let (weights, small) = train(1024.0);
    let (same, large) = train((1u64 << 30) as f64);
    assert_eq!((small.skipped, small.scale, small.good_steps), (0, 1024.0, 5));
    assert!(large.skipped > 5 && large.scale < 1e7, "{large:?}");
    assert!(weights == same, "scales are powers of two, and skipped steps count nowhere");
}

#[test]
fn a_parameter_that_is_not_finite_is_not_finite_whatever_the_scale() {
    let model = Linear::new(2, 1);
    model.init(0);
    model.weight.set(Tensor::from_slice(&[f32::NAN, 1.0], &[1, 2]));
    let mut scale = LossScale::new(LossScaleOptions { initial: 4.0, ..LossScaleOptions::default() });
    for expected in [2.0, 1.0, 1.0] {
        let mut gradients = model.gradients(&scale.scaled(&model.forward(&randn(&[3, 2])).square().mean(..)));
        assert!(!scale.unscale(&mut gradients));
        assert_eq!(scale.scale(), expected);
    }
    assert_eq!(scale.state().skipped, 3);
}
