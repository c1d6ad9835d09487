//! Equal bits for every number of threads and every SIMD level.
//!
//! The level is global, so one test goes through all of them.

mod common;

use common::convnet::Convnet;
use common::numbers::{Numbers, bits};
use meshwork::tensor::{
    ConvOptions, ConvTransposeOptions, CrossEntropy, PoolOptions, Precision, Reduction, autocast, bce_with_logits,
    concat, grad_with, where_,
};
use meshwork::{DType, Device, Tensor};
use meshwork_cpu::Level;

const THREADS: [usize; 4] = [1, 2, 3, 7];

/// Named bits, in a fixed order.
type Results = Vec<(String, Vec<u8>)>;

#[test]
fn bits_do_not_depend_on_threads_or_level() {
    let device = Device::cpu(0).expect("the first device");
    let mut first: Option<Results> = None;
    for level in Level::available() {
        Level::force(level);
        for threads in THREADS {
            device.set_num_threads(threads).expect("a few threads");
            let mut results = operations();
            for precision in [Precision::F32, Precision::BF16, Precision::F16] {
                results.extend(training(precision));
            }
            let Some(first) = &first else {
                assert!(results.len() > 300, "only {} results", results.len());
                first = Some(results);
                continue;
            };
            assert_eq!(first.len(), results.len());
            for ((name, expected), (_, found)) in first.iter().zip(&results) {
                let same = expected == found;
                assert!(
                    same,
                    "{name} differs between {} on 1 thread and {} on {threads}",
                    Level::Portable.name(),
                    level.name()
                );
            }
        }
    }
}

/// Value and gradients of an operation.
struct Recorder {
    results: Results,
    numbers: Numbers,
}

impl Recorder {
    /// Runs an operation on random f32 inputs of these shapes.
    fn run(&mut self, name: &str, shapes: &[&[usize]], f: impl Fn(&[Tensor]) -> Tensor) {
        let inputs: Vec<Tensor> = shapes.iter().map(|s| self.numbers.f32s(-2.0, 2.0, s)).collect();
        self.run_on(name, &inputs, f);
    }

    fn run_on(&mut self, name: &str, inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Tensor) {
        let variables: Vec<Tensor> = inputs.iter().map(Tensor::variable).collect();
        let output = f(&variables);
        let wrt: Vec<&Tensor> = variables.iter().collect();
        let cotangent = self.numbers.f32s(-1.0, 1.0, output.shape()).to_dtype(output.dtype());
        let gradients =
            if output.requires_grad() { grad_with(&[&output], Some(&[&cotangent]), &wrt, false) } else { Vec::new() };
        self.results.push((name.to_string(), bits(&output)));
        for (i, gradient) in gradients.iter().enumerate() {
            self.results.push((format!("{name}, gradient {i}"), bits(gradient)));
        }
    }
}

fn operations() -> Results {
    let mut r = Recorder { results: Vec::new(), numbers: Numbers::new(1) };
    elementwise(&mut r);
    reductions(&mut r);
    products(&mut r);
    windows(&mut r);
    norms_and_losses(&mut r);
    indices_and_shapes(&mut r);
    narrow_dtypes(&mut r);
    random(&mut r);
    r.results
}

fn elementwise(r: &mut Recorder) {
    type Unary = fn(&Tensor) -> Tensor;
    let functions: [(&str, Unary); 22] = [
        ("exp", Tensor::exp),
        ("expm1", Tensor::expm1),
        ("log of abs", |x| x.abs().log()),
        ("log1p of abs", |x| x.abs().log1p()),
        ("sqrt of square", |x| x.square().sqrt()),
        ("rsqrt", |x| (x.square() + 0.1).rsqrt()),
        ("reciprocal", Tensor::reciprocal),
        ("sin", |x| (x * 30.0).sin()),
        ("cos", |x| (x * 30.0).cos()),
        ("tanh", Tensor::tanh),
        ("sigmoid", |x| (x * 9.0).sigmoid()),
        ("erf", Tensor::erf),
        ("gelu", Tensor::gelu),
        ("gelu_tanh", Tensor::gelu_tanh),
        ("silu", Tensor::silu),
        ("softplus", Tensor::softplus),
        ("log_sigmoid", Tensor::log_sigmoid),
        ("relu", Tensor::relu),
        ("round", |x| (x * 5.0).round()),
        ("clamp", |x| x.clamp(Some(-0.5), Some(1.0))),
        ("powf", |x| x.abs().powf(1.7)),
        ("dropout", |x| x.dropout(0.3, 99)),
    ];
    for (name, f) in functions {
        for shape in [&[1][..], &[7, 11], &[3, 1031], &[40_009]] {
            r.run(&format!("{name} of {shape:?}"), &[shape], |x| f(&x[0]));
        }
    }
    r.run("a broadcast sum", &[&[37, 1, 13], &[29, 1]], |x| &x[0] + &x[1]);
    r.run("a broadcast quotient", &[&[257, 131], &[131]], |x| &x[0] / (x[1].square() + 1.0));
    r.run("a power", &[&[33, 17], &[17]], |x| x[0].abs().pow(&x[1]));
    r.run("a maximum", &[&[101, 3], &[101, 3]], |x| x[0].maximum(&x[1]) - x[0].minimum(&x[1]));
    r.run("a choice", &[&[63, 65], &[65]], |x| where_(&x[0].gt(0.0), &x[0], &x[1]));
    r.run("strided operands", &[&[131, 67], &[67, 131]], |x| x[0].t() * x[1].flip(&[0, 1]));
}

fn reductions(r: &mut Recorder) {
    let shapes: [&[usize]; 5] = [&[1031], &[3, 517], &[517, 3], &[7, 33, 65], &[67, 5, 3, 7]];
    for shape in shapes {
        for dim in 0..shape.len() as isize {
            r.run(&format!("sum of {shape:?} over {dim}"), &[shape], |x| x[0].sum(dim));
            r.run(&format!("mean of {shape:?} over {dim}"), &[shape], |x| x[0].mean(dim));
            r.run(&format!("var of {shape:?} over {dim}"), &[shape], |x| x[0].var(dim, 1));
            r.run(&format!("amax of {shape:?} over {dim}"), &[shape], |x| x[0].amax(dim));
            r.run(&format!("argmin of {shape:?} over {dim}"), &[shape], |x| x[0].detach().argmin(dim));
            r.run(&format!("cumsum of {shape:?} over {dim}"), &[shape], |x| x[0].cumsum(dim));
        }
        r.run(&format!("sum of {shape:?}"), &[shape], |x| x[0].sum(..));
        r.run(&format!("sum of {shape:?} backwards"), &[shape], |x| x[0].flip(&[0]).sum(..));
    }
    r.run("a product", &[&[5, 19]], |x| x[0].prod(1));
    r.run("a sum of a permutation", &[&[9, 33, 65]], |x| x[0].permute(&[2, 0, 1]).sum([0, 2]));
    r.run("a long sum", &[&[70_001]], |x| x[0].sum(..));
}

fn products(r: &mut Recorder) {
    let shapes: [(&[usize], &[usize]); 10] = [
        (&[257, 515], &[515, 263]),
        (&[1], &[1]),
        (&[129], &[129]),
        (&[33, 517], &[517]),
        (&[1, 1], &[1, 1]),
        (&[5, 1031], &[1031, 3]),
        (&[67, 129], &[129, 35]),
        (&[131, 33], &[33, 257]),
        (&[3, 17, 65], &[3, 65, 31]),
        (&[2, 1, 7, 13], &[5, 13, 3]),
    ];
    for (a, b) in shapes {
        r.run(&format!("{a:?} by {b:?}"), &[a, b], |x| x[0].matmul(&x[1]));
    }
    r.run("transposes", &[&[129, 67], &[35, 129]], |x| x[0].t().matmul(&x[1].t()));
    r.run("linear", &[&[3, 19, 129], &[65, 129], &[65]], |x| x[0].linear(&x[1], Some(&x[2])));
}

fn windows(r: &mut Recorder) {
    let padded = ConvOptions { padding: 1.into(), ..ConvOptions::default() };
    let strided = ConvOptions { stride: 2.into(), padding: 2.into(), groups: 2, ..ConvOptions::default() };
    let dilated = ConvOptions { dilation: [1, 2].into(), ..ConvOptions::default() };
    r.run("conv1d", &[&[3, 5, 67], &[7, 5, 3]], |x| x[0].conv1d(&x[1], None, &padded));
    r.run("conv2d", &[&[5, 3, 17, 13], &[19, 3, 3, 3], &[19]], |x| x[0].conv2d(&x[1], Some(&x[2]), &padded));
    r.run("conv2d of many channels", &[&[2, 67, 7, 5], &[33, 67, 3, 3]], |x| x[0].conv2d(&x[1], None, &padded));
    r.run("conv2d of a big batch", &[&[37, 2, 5, 7], &[3, 2, 3, 2]], |x| x[0].conv2d(&x[1], None, &dilated));
    r.run("conv2d in groups", &[&[3, 6, 9, 11], &[10, 3, 5, 3]], |x| x[0].conv2d(&x[1], None, &strided));
    r.run("depthwise", &[&[3, 13, 9, 7], &[13, 1, 3, 3]], |x| {
        x[0].conv2d(&x[1], None, &ConvOptions { groups: 13, ..padded.clone() })
    });
    r.run("conv3d", &[&[2, 3, 5, 7, 6], &[5, 3, 3, 2, 3]], |x| x[0].conv3d(&x[1], None, &padded));
    let turned = ConvTransposeOptions { stride: 2.into(), padding: 1.into(), ..ConvTransposeOptions::default() };
    r.run("conv_transpose2d", &[&[3, 7, 9, 5], &[7, 11, 3, 3]], |x| x[0].conv_transpose2d(&x[1], None, &turned));
    let overlapping = || PoolOptions { stride: Some(2.into()), padding: 1.into(), ..PoolOptions::from(3) };
    r.run("max_pool2d", &[&[5, 7, 13, 11]], |x| x[0].max_pool2d(overlapping()));
    r.run("avg_pool2d", &[&[5, 7, 13, 11]], |x| x[0].avg_pool2d(overlapping()));
    r.run("avg_pool3d", &[&[2, 3, 7, 5, 9]], |x| x[0].avg_pool3d(2));
    r.run("adaptive_avg_pool2d", &[&[5, 7, 13, 11]], |x| x[0].adaptive_avg_pool2d([5, 3]));
    r.run("adaptive_max_pool1d", &[&[5, 7, 31]], |x| x[0].adaptive_max_pool1d(7));
}

fn norms_and_losses(r: &mut Recorder) {
    r.run("batch_norm", &[&[19, 7, 5, 3], &[7], &[7]], |x| {
        let batch = x[0].batch_statistics();
        x[0].batch_norm(&batch.mean, &batch.var, Some(&x[1]), Some(&x[2]), 1e-5)
    });
    r.run("layer_norm", &[&[13, 259], &[259], &[259]], |x| x[0].layer_norm(1, Some(&x[1]), Some(&x[2]), 1e-5));
    r.run("group_norm", &[&[5, 6, 7, 3], &[6], &[6]], |x| x[0].group_norm(3, Some(&x[1]), Some(&x[2]), 1e-5));
    r.run("rms_norm", &[&[13, 131], &[131]], |x| x[0].rms_norm(1, Some(&x[1]), 1e-5));
    r.run("softmax", &[&[37, 131]], |x| x[0].softmax(1));
    r.run("softmax over rows", &[&[37, 131]], |x| x[0].softmax(0));
    let target = Numbers::new(2).indices(67, &[131]);
    let weight = Numbers::new(3).f32s(0.2, 2.0, &[67]);
    let smoothed = CrossEntropy { weight: Some(&weight), label_smoothing: 0.1, ..CrossEntropy::default() };
    r.run("cross_entropy", &[&[131, 67]], |x| x[0].cross_entropy(&target));
    r.run("weighted cross_entropy", &[&[131, 67]], |x| smoothed.loss(&x[0], &target));
    let truth = Numbers::new(4).f32s(0.0, 1.0, &[37, 13]);
    r.run("bce_with_logits", &[&[37, 13]], |x| bce_with_logits(&x[0], &truth, None, None, Reduction::Mean));
}

fn indices_and_shapes(r: &mut Recorder) {
    let few = Numbers::new(5).indices(11, &[67, 5]);
    r.run("embedding", &[&[11, 7]], |x| x[0].embedding(&few));
    let many = Numbers::new(6).indices(3, &[1031]);
    r.run("embedding with many repeats", &[&[3, 5]], |x| x[0].embedding(&many));
    let index = Numbers::new(7).indices(5, &[131, 3]);
    r.run("gather", &[&[5, 3]], |x| x[0].gather(0, &index));
    r.run("scatter_add", &[&[5, 3], &[131, 3]], |x| x[0].scatter_add(0, &index, &x[1]));
    let rows = Numbers::new(8).indices(7, &[33]);
    r.run("index_select", &[&[5, 7, 3]], |x| x[0].index_select(1, &rows));
    r.run("concat", &[&[7, 13], &[7, 5]], |x| concat(&[&x[0], &x[1], &x[0]], 1));
    r.run("pad", &[&[7, 13]], |x| x[0].pad(&[(1, 2), (3, 0)], 0.5));
    r.run("roll", &[&[7, 13]], |x| x[0].roll(4, 1));
    r.run("slices", &[&[17, 13, 5]], |x| {
        x[0].slice(0, Some(1), None, 3).flip(&[1]).permute(&[2, 0, 1]).reshape(&[-1, 13])
    });
    r.run("triu", &[&[3, 17, 13]], |x| x[0].triu(2));
}

fn narrow_dtypes(r: &mut Recorder) {
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        let mut input = |shape: &[usize]| r.numbers.f32s(-1.0, 1.0, shape).to_dtype(dtype);
        let (a, b, w) = (input(&[35, 129]), input(&[129, 33]), input(&[5, 3, 3, 3]));
        let image = input(&[7, 3, 9, 5]);
        r.run_on(&format!("{dtype} matmul"), &[a.clone(), b], |x| x[0].matmul(&x[1]));
        r.run_on(&format!("{dtype} conv2d"), &[image, w], |x| x[0].conv2d(&x[1], None, &ConvOptions::default()));
        r.run_on(&format!("{dtype} gelu"), std::slice::from_ref(&a), |x| x[0].gelu());
        r.run_on(&format!("{dtype} sum"), std::slice::from_ref(&a), |x| x[0].sum(0));
        r.run_on(&format!("{dtype} softmax"), &[a], |x| x[0].softmax(1));
    }
}

fn random(r: &mut Recorder) {
    meshwork::manual_seed(5);
    for n in [1usize, 63, 1031, 40_009] {
        r.results.push((format!("rand of {n}"), bits(&meshwork::tensor::rand(&[n]))));
        r.results.push((format!("randn of {n}"), bits(&meshwork::tensor::randn(&[n]))));
        r.results.push((format!("permutation of {n}"), bits(&meshwork::tensor::permutation(n))));
    }
}

/// Losses, gradients, parameters and statistics of three steps.
fn training(precision: Precision) -> Results {
    let mut net = Convnet::new();
    let mut results = Results::new();
    for step in 0..3 {
        let (images, labels) = Convnet::batch(step);
        let recorded = autocast(precision, || net.step(&images, &labels, step, 0.05));
        results.push((format!("{precision} loss of step {step}"), bits(&recorded.loss)));
        for (i, gradient) in recorded.gradients.iter().enumerate() {
            results.push((format!("{precision} gradient {i} of step {step}"), bits(gradient)));
        }
        for (i, parameter) in net.parameters.iter().enumerate() {
            results.push((format!("{precision} parameter {i} after step {step}"), bits(parameter)));
        }
        results.push((format!("{precision} running mean after step {step}"), bits(&net.running.0)));
        results.push((format!("{precision} running var after step {step}"), bits(&net.running.1)));
    }
    results
}
