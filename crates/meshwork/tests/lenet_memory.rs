//! The memory of a LeNet step is what the plan said before it ran.

use meshwork::optim::{Optimizer, Sgd, SgdOptions};
use meshwork::tensor::{last_program, manual_seed, randn};
use meshwork::train::LeNet;
use meshwork::{DType, Device, Tensor, nn::Module};

#[test]
fn the_peak_of_a_lenet_step_is_the_planned_one() {
    manual_seed(1);
    let device = Device::cpu(0).expect("the first device");
    for batch in [1, 33, 64] {
        let model = LeNet::new();
        model.init(1);
        let mut optimizer = Sgd::new(&model, SgdOptions { momentum: 0.9, ..SgdOptions::new(0.1) });
        let images = randn(&[batch, 1, 28, 28]);
        let labels = Tensor::from_slice(&(0..batch as i64).map(|i| i % 10).collect::<Vec<_>>(), &[batch]);
        meshwork::synchronize();
        for step in 0..3 {
            device.reset_peak_memory();
            let before = device.memory().allocated;
            let loss = model.forward(&images).cross_entropy(&labels);
            optimizer.step(model.gradients(&loss));
            assert_eq!(loss.dtype(), DType::F32);
            // The loss alone would be there before the updates are.
            meshwork::synchronize();
            let planned = last_program().expect("a program").memory;
            // On top of what is alive the step takes its loss and the arena: parameters and momenta are updated in place.
            assert_eq!(planned.outputs, 4, "batch {batch}, step {step}");
            assert_eq!(device.memory().peak - before, planned.outputs + planned.arena, "batch {batch}, step {step}");
            // Images and labels, 129,068 parameters, as many momenta.
            assert!(planned.inputs >= batch * (784 * 4 + 8) + 2 * 4 * 129_068);
            assert_eq!(planned.peak(), planned.inputs + planned.outputs + planned.arena);
        }
    }
}
