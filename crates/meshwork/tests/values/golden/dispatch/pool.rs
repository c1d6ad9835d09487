//! Pooling.

use crate::golden::case::Case;
use meshwork::Tensor;
use meshwork::tensor::{PerDim, PoolOptions};

pub fn call(case: &Case) -> Option<Vec<Tensor>> {
    if !case.op.contains("_pool") {
        return None;
    }
    let x = case.input("x");
    let output = || PerDim::from(&case.sizes("output_size")[..]);
    Some(vec![match case.op.as_str() {
        "max_pool1d" => x.max_pool1d(max(case)),
        "max_pool2d" => x.max_pool2d(max(case)),
        "max_pool3d" => x.max_pool3d(max(case)),
        "avg_pool1d" => x.avg_pool1d(average(case)),
        "avg_pool2d" => x.avg_pool2d(average(case)),
        "avg_pool3d" => x.avg_pool3d(average(case)),
        "adaptive_avg_pool1d" => x.adaptive_avg_pool1d(output()),
        "adaptive_avg_pool2d" => x.adaptive_avg_pool2d(output()),
        "adaptive_avg_pool3d" => x.adaptive_avg_pool3d(output()),
        "adaptive_max_pool2d" => x.adaptive_max_pool2d(output()),
        _ => return None,
    }])
}

fn common(case: &Case) -> PoolOptions {
    let each = |name: &str| PerDim::from(&case.sizes(name)[..]);
    PoolOptions {
        stride: Some(each("stride")),
        padding: each("padding"),
        ceil_mode: case.flag("ceil_mode"),
        ..PoolOptions::from(each("kernel_size"))
    }
}

fn max(case: &Case) -> PoolOptions {
    PoolOptions { dilation: case.sizes("dilation")[..].into(), ..common(case) }
}

fn average(case: &Case) -> PoolOptions {
    PoolOptions { count_include_pad: case.flag("count_include_pad"), ..common(case) }
}
