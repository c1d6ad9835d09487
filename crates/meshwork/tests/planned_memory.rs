//! What a step is planned to take of each device is what it takes.

use meshwork::data::{ArrayDataset, DataPair, Dataset};
use meshwork::mesh::Plan;
use meshwork::nn::{Module, Transformer, TransformerConfig};
use meshwork::optim::{AdamW, AdamWOptions, Constant, LossScaleOptions};
use meshwork::tensor::Precision;
use meshwork::train::{Length, TrainSettings, Trainer};
use meshwork::{Device, synchronize};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const BLOCKS: usize = 6;

/// The devices are those of the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static PROCESS: Mutex<()> = Mutex::new(());
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A training of a small GPT.
fn trainer(precision: Precision, recompute: usize, plan: Option<&Plan>, steps: Option<u64>) -> Trainer<Transformer> {
    trainer_of(TransformerConfig::gpt2(31, 64, BLOCKS, 48, 4), precision, recompute, plan, steps)
}

fn trainer_of(
    config: TransformerConfig,
    precision: Precision,
    recompute: usize,
    plan: Option<&Plan>,
    steps: Option<u64>,
) -> Trainer<Transformer> {
    let tokens = |samples: usize| -> Arc<dyn Dataset> {
        let tokens: Vec<i64> = (0..samples as i64 * 64).map(|i| i * 7 % 31).collect();
        let data = ArrayDataset::new().with_field("tokens", [64], tokens.clone()).unwrap();
        Arc::new(data.with_field("label", [64], tokens).unwrap())
    };
    let data = DataPair { name: "tokens".into(), origin: "made up".into(), train: tokens(32), test: tokens(1) };
    let model = Transformer::new(config);
    model.init(1);
    model.set_recompute(recompute);
    let mesh = plan.map(|plan| {
        let mesh = plan.mesh(&Device::cpus().unwrap()).unwrap();
        let plan = Plan { places: config.tensor_plan(), ..plan.clone() };
        plan.apply(&model, &mesh).unwrap();
        mesh
    });
    let optimizer = AdamW::new(&model, AdamWOptions::default());
    let settings = TrainSettings {
        batch_size: 8,
        length: Length { epochs: None, steps },
        max_norm: Some(1.0),
        precision,
        loss_scale: LossScaleOptions { initial: 64.0, ..LossScaleOptions::default() },
        mesh,
        ..TrainSettings::default()
    };
    // Without an end it is stopped after its first step, before it is tested.
    settings.stop.store(steps.is_none(), Ordering::Relaxed);
    Trainer::new(model, optimizer, Constant { lr: 1e-3 }, data, settings)
}

/// The most bytes in use on each device while a training runs.
fn measured(mut trainer: Trainer<Transformer>) -> Vec<usize> {
    let devices = Device::cpus().unwrap();
    synchronize();
    devices.iter().for_each(Device::reset_peak_memory);
    let outcome = trainer.run(&mut |_| {}).unwrap();
    assert_eq!(outcome.loss_scale.map_or(0, |scale| scale.skipped), 0);
    synchronize();
    devices.iter().map(|device| device.memory().peak).collect()
}

#[test]
fn a_step_on_one_device_takes_exactly_what_was_planned() {
    let _only = alone();
    meshwork::set_cpu_devices(1).unwrap();
    for precision in [Precision::F32, Precision::BF16, Precision::F16] {
        let mut before = usize::MAX;
        for recompute in [0, 2, BLOCKS] {
            let make = |steps| trainer(precision, recompute, None, steps);
            let planned =
                |steps| make(steps).planned_memory().unwrap().iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>();
            let step = planned(Some(1));
            assert_eq!(measured(make(None)), step, "{precision:?}, {recompute} blocks");
            assert!(step[0] < before, "{precision:?}, {recompute} blocks: {} after {before}", step[0]);
            before = step[0];

            // Tokens and labels of the batches that are brought meanwhile; of the step before its loss, its gradients' squares
            // and norm, and whether they were finite.
            let batches = if precision == Precision::F16 { 1 } else { 2 };
            let report = 4 + 4 * make(None).model().named_parameters().len() + 4 + 1;
            let steps = planned(Some(5));
            let more = steps[0] - step[0] - batches * 2 * 8 * 64 * 8;
            assert!(more.abs_diff(report) < 8, "{precision:?}, {recompute} blocks: {more} bytes");
            let measured = measured(make(Some(5)));
            assert!(
                step <= measured && measured <= steps,
                "{precision:?}, {recompute} blocks: {measured:?} of {steps:?}"
            );
        }
    }
}

/// Under ZeRO 3 what is gathered in a narrower type is let go and gathered again, too.
#[test]
fn gathered_parameters_are_not_kept_from_forward_to_backward() {
    let _only = alone();
    meshwork::set_cpu_devices(4).unwrap();
    let config = TransformerConfig::gpt2(31, 64, BLOCKS, 192, 4);
    let plan: Plan = "data=4,zero=3".parse().unwrap();
    let planned = |precision| trainer_of(config, precision, BLOCKS, Some(&plan), Some(1)).planned_memory().unwrap();
    let wide = planned(Precision::F32);
    for precision in [Precision::BF16, Precision::F16] {
        for ((device, narrow), (_, wide)) in planned(precision).iter().zip(&wide) {
            assert!(narrow < wide, "{precision:?}: {device} takes {narrow} bytes, {wide} in f32");
        }
    }
}

#[test]
fn what_was_planned_is_not_there_to_be_read() {
    let _only = alone();
    let kept = trainer(Precision::F16, 0, None, Some(1));
    let (_, parameter) = kept.model().named_parameters().remove(0);
    kept.planned_memory().unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| parameter.value().to_bytes())).unwrap_err();
    let said = panic.downcast_ref::<String>().expect("a text");
    assert_eq!(said, "the value was planned and never computed");
}

/// Copies come when they can, so that what happens is less than what was planned, which has them all at the worst time.
#[test]
fn steps_on_meshes_that_keep_the_order_take_no_more_than_was_planned() {
    let _only = alone();
    let layouts = [
        "data=2",
        "tensor=2",
        "sequence=2",
        "data=2,zero=3",
        "data=2,zero=1,accumulate=2",
        "data=3,zero=2",
        "data=2,tensor=2,zero=1,accumulate=3",
    ];
    for layout in layouts {
        let plan: Plan = layout.parse().unwrap();
        meshwork::set_cpu_devices(plan.devices()).unwrap();
        for device in Device::cpus().unwrap() {
            device.set_in_order(true);
        }
        let kinds = [(Precision::F32, 0, None), (Precision::BF16, BLOCKS, Some(4)), (Precision::F16, BLOCKS, None)];
        for (precision, recompute, steps) in kinds {
            let make = |steps| trainer(precision, recompute, Some(&plan), steps);
            let planned = make(steps.or(Some(1))).planned_memory().unwrap();
            let measured = measured(make(steps));
            assert_eq!(planned.len(), measured.len());
            for (measured, (device, planned)) in measured.into_iter().zip(planned) {
                let took =
                    format!("{layout}, {precision:?}, {recompute} blocks: {device} took {measured} of {planned} bytes");
                assert!(measured <= planned && measured as f64 >= 0.6 * planned as f64, "{took}");
            }
        }
    }
}
