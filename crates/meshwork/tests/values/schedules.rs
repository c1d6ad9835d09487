//! Learning-rate schedules against PyTorch's.

use crate::golden::cases::{Case, assert_close, cases};
use meshwork::optim::{BatchScaling, Constant, Cosine, Linear, LrScaling, OneCycle, Schedule, Step, WarmUp};

fn schedule(case: &Case) -> Box<dyn Schedule> {
    let lr = case.number("lr");
    match case.op.as_str() {
        "constant_lr" => Box::new(Constant { lr }),
        "step_lr" => Box::new(Step { lr, step_size: case.count("step_size"), gamma: case.number("gamma") }),
        "cosine_annealing_lr" => Box::new(Cosine { lr, period: case.count("T_max"), eta_min: case.number("eta_min") }),
        "linear_lr" => Box::new(Linear {
            lr,
            start_factor: case.number("start_factor"),
            end_factor: case.number("end_factor"),
            total_steps: case.count("total_iters"),
        }),
        "warmup_cosine_lr" => {
            let steps = case.count("warmup_steps");
            let period = case.count("total_steps") - steps;
            let then = Cosine { lr, period, eta_min: case.number("eta_min") };
            Box::new(WarmUp { steps, start_factor: case.number("start_factor"), then })
        }
        "one_cycle_lr" => Box::new(OneCycle {
            max_lr: case.number("max_lr"),
            total_steps: case.count("total_steps"),
            pct_start: case.number("pct_start"),
            div_factor: case.number("div_factor"),
            final_div_factor: case.number("final_div_factor"),
            linear: case.args["anneal_strategy"] == "linear",
        }),
        other => panic!("no schedule for {other}"),
    }
}

#[test]
fn rates_are_pytorchs() {
    for case in cases("schedule") {
        let schedule = schedule(&case);
        let expected = case.tensor("output").to_vec::<f64>();
        let found: Vec<f64> = (0..expected.len() as u64).map(|step| schedule.lr(step)).collect();
        assert_close(&case.name, &found, &expected, 1e-14, 1e-12);
    }
}

#[test]
fn one_cycle_has_pytorchs_defaults() {
    let cycle = OneCycle::new(0.5, 31);
    let all = cases("schedule");
    let case = all.iter().find(|c| c.name == "one_cycle_lr/cos_31").expect("the case is there");
    assert_close(&case.name, &[cycle.lr(3)], &case.tensor("output").to_vec::<f64>()[3..4], 1e-14, 1e-12);
}

#[test]
fn a_finished_cycle_stays_at_its_end() {
    let cycle = OneCycle::new(0.5, 10);
    assert_eq!(cycle.lr(9), cycle.lr(1000));
    assert!(OneCycle::new(1.0, 1).lr(0).is_finite());
}

#[test]
fn rates_grow_with_the_batch_or_with_its_root() {
    let factors = |scaling: LrScaling| [(1024, 256), (100, 400), (256, 256)].map(|(b, base)| scaling.factor(b, base));
    assert_eq!(factors(LrScaling::Linear), [4.0, 0.25, 1.0]);
    assert_eq!(factors(LrScaling::Sqrt), [2.0, 0.5, 1.0]);
    assert_eq!(factors(LrScaling::None), [1.0, 1.0, 1.0]);
}

#[test]
fn a_scaled_schedule_warms_up_from_its_own_rate_and_is_scaled_throughout() {
    let then = Cosine { lr: 0.1, period: 50, eta_min: 0.01 };
    for (scaling, factor) in [(LrScaling::Linear, 4.0), (LrScaling::Sqrt, 2.0), (LrScaling::None, 1.0)] {
        let scaled = BatchScaling { scaling, batch: 1024, base_batch: 256, warmup: 10, then };
        assert_eq!(scaled.lr(0), 0.1);
        for step in 0..10 {
            let expected = 0.1 + (factor * 0.1 - 0.1) * step as f64 / 10.0;
            assert_close("warm-up", &[scaled.lr(step)], &[expected], 1e-15, 1e-12);
        }
        for step in 10..80 {
            assert_eq!(scaled.lr(step), factor * then.lr(step - 10), "{scaling:?}, step {step}");
        }
        let at_once = BatchScaling { warmup: 0, ..scaled };
        assert_eq!(at_once.lr(0), factor * 0.1);
    }
}
