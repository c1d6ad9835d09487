//! From settings to optimizer and schedule.

use crate::settings::Settings;
use crate::values::{OptimizerName, ScheduleName};
use meshwork::nn::Layer;
use meshwork::optim::{
    Adagrad, AdagradOptions, Adam, AdamOptions, AdamW, AdamWOptions, Constant, Cosine, Linear, OneCycle, Optimizer,
    RmsProp, RmsPropOptions, Schedule, Sgd, SgdOptions, Step, WarmUp,
};

/// The optimizer of a model's parameters.
pub fn optimizer(settings: &Settings, model: &dyn Layer) -> Box<dyn Optimizer> {
    let &Settings { lr, momentum, nesterov, weight_decay, alpha, eps, .. } = settings;
    let betas = (settings.beta1, settings.beta2);
    match settings.optimizer {
        OptimizerName::Sgd => {
            Box::new(Sgd::new(model, SgdOptions { lr, momentum, nesterov, weight_decay, ..SgdOptions::default() }))
        }
        OptimizerName::Adam => Box::new(Adam::new(model, AdamOptions { lr, betas, eps, weight_decay })),
        OptimizerName::Adamw => Box::new(AdamW::new(model, AdamWOptions { lr, betas, eps, weight_decay })),
        OptimizerName::Rmsprop => Box::new(RmsProp::new(
            model,
            RmsPropOptions { lr, alpha, eps, weight_decay, momentum, ..RmsPropOptions::default() },
        )),
        OptimizerName::Adagrad => {
            Box::new(Adagrad::new(model, AdagradOptions { lr, eps, weight_decay, ..AdagradOptions::default() }))
        }
    }
}

/// The schedule of a run of so many steps.
pub fn schedule(settings: &Settings, total_steps: u64) -> Box<dyn Schedule> {
    let &Settings { lr, warmup, gamma, min_lr, .. } = settings;
    let after_warmup = total_steps.saturating_sub(warmup).max(1);
    let then: Box<dyn Schedule> = match settings.schedule {
        ScheduleName::Constant => Box::new(Constant { lr }),
        ScheduleName::Step => {
            let step_size = settings.step_size.unwrap_or(after_warmup.div_ceil(3));
            Box::new(Step { lr, step_size, gamma })
        }
        ScheduleName::Cosine => Box::new(Cosine { lr, period: after_warmup, eta_min: min_lr }),
        ScheduleName::Linear => {
            let end_factor = if lr > 0.0 { min_lr / lr } else { 1.0 };
            Box::new(Linear { lr, start_factor: 1.0, end_factor, total_steps: after_warmup })
        }
        ScheduleName::OneCycle => return Box::new(OneCycle::new(lr, total_steps)),
    };
    match warmup {
        0 => then,
        // The rate of step 0 is one part of the way, so that it is not lost.
        steps => Box::new(WarmUp { steps, start_factor: 1.0 / (steps + 1) as f64, then }),
    }
}
