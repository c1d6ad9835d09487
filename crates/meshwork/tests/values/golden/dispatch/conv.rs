//! Convolutions and transposed convolutions.

use crate::golden::case::Case;
use meshwork::Tensor;
use meshwork::tensor::{ConvOptions, ConvTransposeOptions, PerDim};

pub fn call(case: &Case) -> Option<Vec<Tensor>> {
    if !case.op.starts_with("conv") {
        return None;
    }
    let (x, weight, bias) = (case.input("x"), case.input("weight"), case.maybe_input("bias"));
    Some(vec![match case.op.as_str() {
        "conv1d" => x.conv1d(weight, bias, &options(case)),
        "conv2d" => x.conv2d(weight, bias, &options(case)),
        "conv3d" => x.conv3d(weight, bias, &options(case)),
        "conv_transpose1d" => x.conv_transpose1d(weight, bias, &transpose_options(case)),
        "conv_transpose2d" => x.conv_transpose2d(weight, bias, &transpose_options(case)),
        "conv_transpose3d" => x.conv_transpose3d(weight, bias, &transpose_options(case)),
        _ => return None,
    }])
}

fn each(case: &Case, name: &str) -> PerDim {
    case.sizes(name)[..].into()
}

fn options(case: &Case) -> ConvOptions {
    ConvOptions {
        stride: each(case, "stride"),
        padding: each(case, "padding"),
        dilation: each(case, "dilation"),
        groups: case.int("groups") as usize,
    }
}

fn transpose_options(case: &Case) -> ConvTransposeOptions {
    ConvTransposeOptions {
        stride: each(case, "stride"),
        padding: each(case, "padding"),
        output_padding: each(case, "output_padding"),
        dilation: each(case, "dilation"),
        groups: case.int("groups") as usize,
    }
}
