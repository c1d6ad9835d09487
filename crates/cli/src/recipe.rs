//! From settings to optimizer and schedule.

use crate::large_batch::LargeBatch;
use crate::settings::Settings;
use crate::values::{OptimizerName, ScheduleName};
use meshwork::nn::{Layer, Parameter};
use meshwork::optim::{
    Adagrad, AdagradOptions, Adam, AdamOptions, AdamW, AdamWOptions, BatchScaling, Constant, Cosine, Group, Lamb,
    LambOptions, Lars, LarsOptions, Linear, LrScaling, OneCycle, Optimizer, RmsProp, RmsPropOptions, Schedule, Sgd,
    SgdOptions, Step, WarmUp,
};

/// The optimizer of a model's parameters.
pub fn optimizer(settings: &Settings, model: &dyn Layer) -> Box<dyn Optimizer> {
    let &Settings { lr, momentum, nesterov, weight_decay, alpha, eps, .. } = settings;
    let betas = (settings.beta1, settings.beta2);
    let &LargeBatch { trust_coefficient, min_trust, max_trust, exclude_vectors, .. } = &settings.large_batch;
    match settings.optimizer {
        OptimizerName::Sgd => {
            Box::new(Sgd::new(model, SgdOptions { lr, momentum, nesterov, weight_decay, ..SgdOptions::default() }))
        }
        OptimizerName::Adam => Box::new(Adam::new(model, AdamOptions { lr, betas, eps, weight_decay })),
        OptimizerName::Adamw => {
            let options = AdamWOptions { lr, betas, eps, weight_decay };
            match settings.language {
                Some(_) => Box::new(AdamW::with_groups(of_language(model, options))),
                None => Box::new(AdamW::new(model, options)),
            }
        }
        OptimizerName::Rmsprop => Box::new(RmsProp::new(
            model,
            RmsPropOptions { lr, alpha, eps, weight_decay, momentum, ..RmsPropOptions::default() },
        )),
        OptimizerName::Adagrad => {
            Box::new(Adagrad::new(model, AdagradOptions { lr, eps, weight_decay, ..AdagradOptions::default() }))
        }
        OptimizerName::Lars => Box::new(Lars::new(
            model,
            LarsOptions { lr, momentum, weight_decay, trust_coefficient, eps, exclude_vectors },
        )),
        OptimizerName::Lamb => {
            let trust_bounds = (min_trust, max_trust.unwrap_or(f64::INFINITY));
            Box::new(Lamb::new(model, LambOptions { lr, betas, eps, weight_decay, trust_bounds, exclude_vectors }))
        }
    }
}

/// Matrices, which decay, and vectors (norms, biases), which do not.
fn of_language(model: &dyn Layer, options: AdamWOptions) -> Vec<Group<AdamWOptions>> {
    let is_matrix = |parameter: &Parameter| parameter.shape().len() > 1;
    let (matrices, vectors): (Vec<_>, Vec<_>) = model.named_parameters().into_iter().partition(|(_, p)| is_matrix(p));
    let without = AdamWOptions { weight_decay: 0.0, ..options.clone() };
    vec![Group::new(matrices, options), Group::new(vectors, without)]
}

/// The schedule of a run of so many steps, with so many samples in an epoch.
pub fn schedule(settings: &Settings, samples: u64, total_steps: u64) -> Box<dyn Schedule> {
    let &Settings { lr, gamma, min_lr, .. } = settings;
    let has_own_warmup = settings.schedule == ScheduleName::OneCycle;
    let warmup = if has_own_warmup { 0 } else { settings.warmup_steps(samples) };
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
        ScheduleName::OneCycle => Box::new(OneCycle::new(lr, total_steps)),
    };
    let scaling = settings.large_batch.rule();
    if scaling != LrScaling::None {
        let (batch, base_batch) = (settings.full_batch(samples), settings.large_batch.base_batch);
        return Box::new(BatchScaling { scaling, batch, base_batch, warmup, then });
    }
    match warmup {
        0 => then,
        // The rate of step 0 is one part of the way, so that it is not lost.
        steps => Box::new(WarmUp { steps, start_factor: 1.0 / (steps + 1) as f64, then }),
    }
}
