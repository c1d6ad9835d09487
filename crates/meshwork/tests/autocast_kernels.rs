//! What becomes of casts in a program.

use meshwork::DType;
use meshwork::nn::{Linear, Module};
use meshwork::tensor::{Precision, autocast, last_program, randn};

#[test]
fn a_parameter_is_cast_once_and_what_is_narrow_already_never() {
    let kernels = || {
        let program = last_program().expect("a program");
        program.steps.iter().map(|step| step.op.operation().name().to_string()).collect::<Vec<_>>()
    };
    let (x, w) = (randn(&[64, 64]).to_dtype(DType::BF16), randn(&[64, 64]).to_dtype(DType::BF16));
    x.eval();
    w.eval();
    drop(autocast(Precision::BF16, || x.linear(&w, None)).to_bytes());
    assert_eq!(kernels(), ["dot"]);

    let layer = Linear::new(64, 64).no_bias();
    layer.init(0);
    drop(autocast(Precision::BF16, || layer.forward(&layer.forward(&x))).to_bytes());
    let names = kernels();
    let count = |kind: &str| names.iter().filter(|name| *name == kind).count();
    assert_eq!((count("dot"), count("fused")), (2, 1), "{names:?}");
}
