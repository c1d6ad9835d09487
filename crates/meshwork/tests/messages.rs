//! Mistakes in model code panic at the line of the call, with both sides in the message.

use meshwork::tensor::{
    AttentionOptions, ConvOptions, ConvTransposeOptions, CrossEntropy, Reduction, concat, mse_loss, stack, where_,
    zeros,
};
use meshwork::{DType, Tensor};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Mutex;

fn f32s(shape: &[usize]) -> Tensor {
    zeros(shape, DType::F32)
}

/// File, line and message of the last panic.
static LAST: Mutex<(String, u32, String)> = Mutex::new((String::new(), 0, String::new()));

/// The body must panic on the line of this call with a message that contains all of these texts.
#[track_caller]
fn refused(texts: &[&str], body: impl FnOnce() -> Tensor) {
    let here = Location::caller();
    assert!(catch_unwind(AssertUnwindSafe(body)).is_err(), "{here}: nothing was refused");
    let (file, line, message) = LAST.lock().expect("the last panic").clone();
    assert_eq!((file.as_str(), line), (here.file(), here.line()), "{message}");
    for text in texts {
        assert!(message.contains(text), "{here}: {text:?} is not in the message {message:?}");
    }
}

/// The hook that records panics is global, so one test holds all cases.
#[test]
#[rustfmt::skip]
fn mistakes_panic_at_the_callers_line() {
    std::panic::set_hook(Box::new(|info| {
        let location = info.location().expect("a location");
        let payload = info.payload();
        let message = payload.downcast_ref::<String>().cloned();
        let message = message.or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
        eprintln!("{location}: {message}");
        if let Ok(mut last) = LAST.lock() {
            *last = (location.file().to_string(), location.line(), message);
        }
    }));
    let (a, b) = (f32s(&[2, 3]), f32s(&[4, 5]));
    let image = f32s(&[2, 3, 8, 8]);
    let ints = zeros(&[2, 3], DType::I64);

    refused(&["add: shapes [2, 3] and [4, 5] do not broadcast"], || &a + &b);
    refused(&["mul: shapes [2, 3] and [4, 5]"], || a.clone() * b.clone());
    refused(&["lt: shapes [2, 3] and [4, 5]"], || a.lt(&b));
    refused(&["max: shapes [2, 3] and [4, 5]"], || a.maximum(&b));
    refused(&["where: shapes [2, 3], [4, 5] and [2, 3]"], || where_(&a.gt(0.0), &b, &a));
    refused(&["where: the condition must be bool"], || where_(&a, &a, &a));
    refused(&["not: needs bool, not f32"], || a.logical_not());
    refused(&["clamp needs a minimum, a maximum or both"], || a.clamp(None, None));
    refused(&["[2, 3] cannot be broadcast to [3, 2]"], || a.broadcast_to(&[3, 2]));

    refused(&["matmul: [2, 3] by [4, 5]", "(3)", "(4)"], || a.matmul(&b));
    refused(&["matmul: batches [2] of [2, 1, 3] and [3] of [3, 3, 1]"], || f32s(&[2, 1, 3]).matmul(&f32s(&[3, 3, 1])));
    refused(&["matmul: 0-d operands [] and [2, 3]"], || f32s(&[]).matmul(&a));
    refused(&["linear: input f32[2, 3] does not fit weight f32[4, 5]"], || a.linear(&b, None));
    refused(&["add: shapes [2, 4] and [3]"], || a.linear(&f32s(&[4, 3]), Some(&f32s(&[3]))));

    refused(&["dim 2 of a tensor of shape [2, 3]"], || a.sum(2));
    refused(&["dim -3 of a tensor of shape [2, 3]"], || a.mean(-3));
    refused(&["dim 5 of a tensor of shape [2, 3]"], || a.amax([0, 5]));
    refused(&["is named twice"], || a.sum([0, -2]));
    refused(&["max over an empty dimension of [0, 3]"], || f32s(&[0, 3]).amax(0));
    refused(&["argmax: dim 0 of [0, 3] has no elements"], || f32s(&[0, 3]).argmax(0));

    refused(&["reshape: [2, 3] has 6 elements, [4, 2] does not"], || a.reshape(&[4, 2]));
    refused(&["reshape: [2, 3] has 6 elements, [4, -1]"], || a.reshape(&[4, -1]));
    refused(&["at most one is -1"], || a.reshape(&[-1, -1]));
    refused(&["permute: [0, 0] is no order of the 2 dims of [2, 3]"], || a.permute(&[0, 0]));
    refused(&["dim 2 of a tensor of shape [2, 3]"], || a.permute(&[0, 2]));
    refused(&["dim 7 of a tensor of shape [2, 3]"], || a.flip(&[0, 7]));
    refused(&["dim 2 of a tensor of shape [2, 3]"], || a.transpose(0, 2));
    refused(&["t: f32[2, 3, 8, 8] is not a matrix"], || image.t());
    refused(&["expand: [2, 3] has more dims than [3]"], || a.expand(&[3]));
    refused(&["expand: size -2 of [-2, 3]"], || a.expand(&[-2, 3]));
    refused(&["[2, 3] cannot be broadcast to [5, 3]"], || a.expand(&[5, -1]));
    refused(&["unsqueeze: dim 4"], || a.unsqueeze(4));
    refused(&["slice", "[2, 3]"], || a.narrow(1, 2, 2));
    refused(&["a step is at least 1"], || a.slice(0, None, None, 0));
    refused(&["select: index 2 of dim 0 of [2, 3]"], || a.select(0, 2));
    refused(&["split: sizes [1, 3] do not add up to 3"], || a.split(&[1, 3], 1).remove(0));
    refused(&["pad: 1 amounts for the dims of f32[2, 3]"], || a.pad(&[(1, 1)], 0.0));
    refused(&["concat along dim 0: f32[2, 3] and f32[4, 5] do not fit"], || concat(&[&a, &b], 0));
    refused(&["concat needs at least one tensor"], || concat(&[], 0));
    refused(&["concat", "f32[2, 1, 3] and f32[4, 1, 5]"], || stack(&[&a, &b], 1));
    refused(&["unsqueeze: dim 9"], || stack(&[&a], 9));
    refused(&["a triangle of f32[3] needs two dims"], || f32s(&[3]).tril(0));

    refused(&["conv", "[2, 3]", "[4, 5]"], || a.conv2d(&b, None, &ConvOptions::default()));
    refused(&["has 3 channels, but weight [4, 2, 3, 3] with 1 groups takes 2"], || image.conv2d(&f32s(&[4, 2, 3, 3]), None, &ConvOptions::default()));
    refused(&["kernel of weight [4, 3, 9, 9] is larger than the padded input [2, 3, 8, 8]"], || image.conv2d(&f32s(&[4, 3, 9, 9]), None, &ConvOptions::default()));
    refused(&["one number for each of the 4 channels"], || image.conv2d(&f32s(&[4, 3, 3, 3]), Some(&f32s(&[3])), &ConvOptions::default()));
    refused(&["has 3 numbers for 2 spatial dims"], || image.conv2d(&f32s(&[4, 3, 3, 3]), None, &ConvOptions { stride: [1, 2, 3].into(), ..ConvOptions::default() }));
    refused(&["output_padding 2 must be smaller than stride 1"], || image.conv_transpose2d(&f32s(&[3, 4, 3, 3]), None, &ConvTransposeOptions { output_padding: 2.into(), ..ConvTransposeOptions::default() }));
    refused(&["max_pool", "does not fit in size 8"], || image.max_pool2d(9));
    refused(&["avg_pool", "[2, 3]", "4 dims"], || a.avg_pool2d(2));
    refused(&["group_norm: f32[2, 3, 8, 8] cannot be cut into 2 groups"], || image.group_norm(2, None, None, 1e-5));
    refused(&["layer_norm over the last 3 dims of f32[2, 3]"], || a.layer_norm(3, None, None, 1e-5));
    refused(&["f32[4] is not one number for each channel of f32[2, 3, 8, 8]"], || image.batch_norm(&f32s(&[3]), &f32s(&[3]), Some(&f32s(&[4])), None, 1e-5));

    let (heads, none) = (f32s(&[2, 4, 5, 8]), AttentionOptions::default);
    refused(&["query f32[2, 3], key f32[2, 4, 5, 8]", "need 4 dims [batch, heads, positions, features]"], || a.scaled_dot_product_attention(&heads, &heads, none()));
    refused(&["query f32[2, 4, 5, 8] and key f32[2, 4, 5, 7]: batch and features"], || heads.scaled_dot_product_attention(&f32s(&[2, 4, 5, 7]), &heads, none()));
    refused(&["key f32[2, 4, 5, 8] and value f32[2, 4, 6, 8]: batch, heads and positions"], || heads.scaled_dot_product_attention(&heads, &f32s(&[2, 4, 6, 8]), none()));
    refused(&["4 heads of query f32[2, 4, 5, 8] are no multiple of the 3 heads of key f32[2, 3, 5, 8]"], || heads.scaled_dot_product_attention(&f32s(&[2, 3, 5, 8]), &f32s(&[2, 3, 5, 8]), none()));
    refused(&["must have one floating-point dtype", "f64[2, 4, 5, 8]"], || heads.scaled_dot_product_attention(&heads, &zeros(&[2, 4, 5, 8], DType::F64), none()));
    refused(&["lengths i64[2, 3] for query f32[2, 4, 5, 8]: one i64 for each sample"], || heads.scaled_dot_product_attention(&heads, &heads, AttentionOptions { lengths: Some(&ints), ..none() }));

    refused(&["cross_entropy: targets i64[2, 3] do not fit scores f32[2, 3]"], || a.cross_entropy(&ints));
    refused(&["label smoothing is in 0..=1, not 2"], || CrossEntropy { label_smoothing: 2.0, ..CrossEntropy::default() }.loss(&a, &ints));
    refused(&["class weights f32[4, 5] for 3 classes"], || CrossEntropy { weight: Some(&b), ..CrossEntropy::default() }.loss(&a, &zeros(&[2], DType::I64)));
    refused(&["sub: shapes [2, 3] and [4, 5]"], || mse_loss(&a, &b, Reduction::Mean));
    refused(&["a dropout probability is in 0..=1, not 1.5"], || a.dropout(1.5, 0));

    refused(&["indices must be i64 or i32, not f32"], || a.embedding(&b));
    refused(&["an embedding table is [entries, size], not f32[2, 3, 8, 8]"], || image.embedding(&ints));
    refused(&["gather along dim 0: indices i64[2, 3] do not fit f32[4, 2]"], || f32s(&[4, 2]).gather(0, &ints));
    refused(&["scatter_add: source f32[4, 2] does not cover the indices i64[2, 3]"], || a.scatter_add(0, &ints, &f32s(&[4, 2])));
    refused(&["index_select needs 1-d indices, not i64[2, 3]"], || a.index_select(0, &ints));

    refused(&["3 elements do not make a tensor of shape [2, 2]"], || Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[2, 2]));
    refused(&["8 bytes do not make a tensor f32[3]"], || Tensor::from_bytes(&[0; 8], DType::F32, &[3]));
    refused(&["byte 2 is no bool: they are 0 or 1"], || Tensor::from_bytes(&[0, 1, 3], DType::Bool, &[3]));
    let _ = std::panic::take_hook();
}
