//! Layers: shapes, training and evaluation, misuse.

use crate::golden::cases::{assert_close, cases};
use meshwork::nn::init;
use meshwork::optim::{Sgd, SgdOptions};
use meshwork::prelude::*;

fn ramp(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, shape)
}

#[test]
fn shapes_of_outputs() {
    let check = |layer: &dyn Layer, input: &[usize], output: &[usize]| {
        assert_eq!(layer.forward(&ramp(input)).shape(), output);
    };
    check(&Linear::new(3, 5), &[2, 7, 3], &[2, 7, 5]);
    check(&Conv1d::new(2, 4, 3).padding(1).stride(2), &[1, 2, 9], &[1, 4, 5]);
    check(&Conv2d::new(2, 4, [3, 5]).groups(2), &[1, 2, 9, 9], &[1, 4, 7, 5]);
    check(&Conv3d::new(1, 2, 2).dilation(2).no_bias(), &[1, 1, 5, 5, 5], &[1, 2, 3, 3, 3]);
    check(&ConvTranspose1d::new(2, 3, 4).stride(2).padding(1), &[1, 2, 5], &[1, 3, 10]);
    check(&ConvTranspose2d::new(4, 6, 3).groups(2).stride(2).output_padding(1), &[1, 4, 3, 3], &[1, 6, 8, 8]);
    check(&ConvTranspose3d::new(1, 1, 2), &[1, 1, 2, 2, 2], &[1, 1, 3, 3, 3]);
    check(&MaxPool2d::new(2), &[1, 1, 5, 4], &[1, 1, 2, 2]);
    check(&MaxPool2d::new(3).stride(2).padding(1).ceil_mode(), &[1, 1, 6, 6], &[1, 1, 4, 4]);
    check(&AvgPool1d::new(3).stride(1), &[1, 1, 5], &[1, 1, 3]);
    check(&AdaptiveAvgPool2d::new(1), &[1, 3, 5, 4], &[1, 3, 1, 1]);
    check(&AdaptiveMaxPool1d::new(2), &[1, 3, 5], &[1, 3, 2]);
    check(&LayerNorm::new([3, 4]), &[2, 3, 4], &[2, 3, 4]);
    check(&RmsNorm::new(4), &[2, 3, 4], &[2, 3, 4]);
    check(&GroupNorm::new(2, 4), &[2, 4, 3], &[2, 4, 3]);
    check(&BatchNorm3d::new(2), &[2, 2, 1, 2, 1], &[2, 2, 1, 2, 1]);
    check(&Flatten::default(), &[2, 3, 4], &[2, 12]);
    check(&sequential![Softmax::new(-1), LeakyRelu::default(), Gelu, Identity], &[2, 3], &[2, 3]);
    let indices = Tensor::from_slice(&[0i64, 3, 1, 2], &[2, 2]);
    assert_eq!(Embedding::new(4, 5).forward(&indices).shape(), [2, 2, 5]);
}

#[test]
fn grouped_weights_have_pytorchs_shapes() {
    assert_eq!(Conv2d::new(4, 6, 3).groups(2).weight.shape(), [6, 2, 3, 3]);
    assert_eq!(ConvTranspose2d::new(4, 6, 3).groups(2).weight.shape(), [4, 3, 3, 3]);
}

#[test]
fn batch_norm_keeps_running_statistics() {
    for case in cases("norm").iter().filter(|c| c.op == "batch_norm" && c.args["training"] == true) {
        let x = case.tensor("x");
        let channels = x.shape()[1];
        let norm = BatchNorm2d::new(channels).eps(case.number("eps")).momentum(case.number("momentum"));
        if x.rank() != 4 {
            continue;
        }
        let (Some(mean), Some(var)) = (case.find("running_mean"), case.find("running_var")) else {
            continue;
        };
        norm.running_mean.as_ref().expect("a buffer").set(mean);
        norm.running_var.as_ref().expect("a buffer").set(var);
        let (weight, bias) = (norm.weight.as_ref().expect("affine"), norm.bias.as_ref().expect("affine"));
        if let (Some(w), Some(b)) = (case.find("weight"), case.find("bias")) {
            weight.set(w);
            bias.set(b);
        }
        let y = norm.forward(&x);
        assert_close(&case.name, &y.to_f64(), &case.tensor("output").to_f64(), 1e-5, 1e-4);
        let buffers = norm.named_buffers();
        let names: Vec<&str> = buffers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["running_mean", "running_var", "num_batches_tracked"]);
        for (i, name) in ["new_running_mean", "new_running_var"].iter().enumerate() {
            let expected = case.tensor(name).to_f64();
            assert_close(&format!("{} {name}", case.name), &buffers[i].1.value().to_f64(), &expected, 1e-6, 1e-5);
        }
        assert_eq!(buffers[2].1.value().to_vec::<i64>(), [1]);
    }
}

#[test]
fn batch_norm_in_evaluation_uses_running_statistics_and_leaves_them() {
    let norm = BatchNorm1d::new(2);
    norm.eval();
    let x = ramp(&[3, 2]);
    let expected: Vec<f64> = x.to_f64().iter().map(|v| v / (1.0f64 + 1e-5).sqrt()).collect();
    assert_close("first statistics are 0 and 1", &norm.forward(&x).to_f64(), &expected, 1e-6, 1e-6);
    assert_eq!(norm.num_batches_tracked.as_ref().expect("a buffer").value().item(), 0.0);

    norm.train();
    norm.forward(&x);
    assert_eq!(norm.num_batches_tracked.as_ref().expect("a buffer").value().item(), 1.0);
    norm.init(0);
    assert_eq!(norm.num_batches_tracked.as_ref().expect("a buffer").value().item(), 0.0);
    assert_eq!(norm.running_var.as_ref().expect("a buffer").value().to_vec::<f32>(), [1.0, 1.0]);
}

#[derive(Module)]
struct TwoDrops {
    first: Dropout,
    second: Dropout,
}

fn two_drops(seed: u64) -> TwoDrops {
    let model = TwoDrops { first: Dropout::new(0.5), second: Dropout::new(0.5) };
    model.init(seed);
    model
}

#[test]
fn dropout_masks_depend_on_seed_name_step_and_call() {
    let ones = Tensor::from_slice(&[1f32; 256], &[256]);
    let mask = |layer: &Dropout| layer.forward(&ones).to_vec::<f32>();
    manual_seed(0);
    let model = two_drops(1);
    let (first, again, second) = (mask(&model.first), mask(&model.first), mask(&model.second));
    let dropped = first.iter().filter(|v| **v == 0.0).count();
    assert!((80..176).contains(&dropped), "{dropped} of 256 dropped");
    assert!(first.iter().all(|v| *v == 0.0 || *v == 2.0));
    assert_ne!(first, again, "the second call of a step");
    assert_ne!(first, second, "another site");

    let model = two_drops(1);
    assert_eq!(mask(&model.second), second, "the order of sites does not matter");
    assert_eq!(mask(&model.first), first);
    assert_ne!(mask(&two_drops(2).first), first, "another seed");

    let weight = Parameter::new(&[1], init::constant(0.0));
    let mut sgd = Sgd::new(vec![("weight".to_string(), weight)], SgdOptions::new(0.1));
    sgd.step(Gradients::default());
    let next = mask(&model.first);
    assert_ne!(next, first, "another step");

    manual_seed(0);
    let resumed = two_drops(1);
    sgd.load_state(sgd.state()).expect("its own state");
    assert_eq!(mask(&resumed.first), next, "a resumed run continues at its step");

    model.eval();
    assert_eq!(mask(&model.first), [1.0; 256]);
}

#[test]
fn padding_entries_are_zero_and_stay() {
    let table = Embedding::new(4, 2).padding_idx(1);
    table.init(5);
    assert_eq!(table.weight.value().to_vec::<f32>()[2..4], [0.0, 0.0]);
    assert!(table.weight.value().to_vec::<f32>()[..2].iter().all(|v| *v != 0.0));

    let indices = Tensor::from_slice(&[1i64, 2, 1, 2, 0], &[5]);
    let loss = table.forward(&indices).sum(..);
    let gradients = table.gradients(&loss);
    let gradient = gradients.get(&table.weight).expect("the loss depends on it").to_vec::<f32>();
    assert_eq!(gradient, [1.0, 1.0, 0.0, 0.0, 2.0, 2.0, 0.0, 0.0]);
}

#[test]
fn losses_are_their_functions() {
    let (logits, classes) = (ramp(&[4, 3]), Tensor::from_slice(&[0i64, 2, 1, 2], &[4]));
    let loss = CrossEntropyLoss::default().forward(&logits, &classes);
    assert_eq!(loss.item(), logits.cross_entropy(&classes).item());
    assert_eq!(MseLoss::default().forward(&logits, &logits).item(), 0.0);

    let weight = Parameter::from_tensor(&Tensor::from_slice(&[1f32, 3.0], &[2]));
    let loss = MseLoss::default().forward(&weight.value(), &Tensor::from_slice(&[0f32, 1.0], &[2]));
    let gradients = weight.gradients(&loss);
    assert_eq!(gradients.get(&weight).expect("the loss depends on it").to_vec::<f32>(), [1.0, 2.0]);
}

#[test]
#[should_panic(expected = "linear: input f32[2, 4] does not fit weight f32[5, 3]")]
fn linear_refuses_other_widths() {
    Linear::new(3, 5).forward(&ramp(&[2, 4]));
}

#[test]
#[should_panic(expected = "LayerNorm of [3] cannot take Tensor(f32[2, 4])")]
fn layer_norm_refuses_other_sizes() {
    LayerNorm::new(3).forward(&ramp(&[2, 4]));
}

#[test]
#[should_panic(expected = "BatchNorm2d needs [N, C, H, W], not Tensor(f32[2, 4])")]
fn batch_norm_refuses_other_ranks() {
    BatchNorm2d::new(4).forward(&ramp(&[2, 4]));
}

#[test]
#[should_panic(expected = "more than one value per channel")]
fn batch_norm_refuses_to_train_on_one_value() {
    BatchNorm1d::new(4).forward(&ramp(&[1, 4]));
}

#[test]
#[should_panic(expected = "2 groups do not divide 3 input and 4 output channels")]
fn groups_must_divide_the_channels() {
    let _ = Conv2d::new(3, 4, 3).groups(2);
}

#[test]
fn mistakes_are_reported_at_the_users_line() {
    let start = line!();
    let line = std::sync::Arc::new(std::sync::Mutex::new((String::new(), 0)));
    let seen = line.clone();
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // Other tests panic on purpose at the same time.
        if std::thread::current().name() == Some("mistaken")
            && let Some(location) = info.location()
        {
            *seen.lock().expect("no panic holds it") = (location.file().to_string(), location.line());
        }
    }));
    let mistake = || {
        let x = ramp(&[2, 4]);
        Linear::new(3, 5).forward(&x);
    };
    let thread = std::thread::Builder::new().name("mistaken".into());
    let outcome = thread.spawn(mistake).expect("a thread").join();
    std::panic::set_hook(previous);
    assert!(outcome.is_err());
    let (file, line) = line.lock().expect("no panic holds it").clone();
    assert!(file.ends_with("layers.rs") && line > start && line < line!(), "{file}:{line}");
}
