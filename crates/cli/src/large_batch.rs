//! Settings for large batches: how the learning rate follows the batch, how it warms up, and the options of the
//! layer-wise optimizers. They say what they do.

use crate::failure::Failure;
use crate::settings::Settings;
use crate::values::*;
use crate::words::counted;
use clap::Args;
use meshwork::optim::LrScaling;

/// Default of --base-batch: the default batch, which the default rates are for.
const BASE_BATCH: u64 = 32;

/// Flags of `train` for large batches.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Large batches")]
pub struct LargeBatchArgs {
    /// How the learning rate follows the batch [default: none]
    #[arg(long, value_enum, value_name = "RULE")]
    pub lr_scaling: Option<ScalingName>,
    /// Samples of a batch that --lr and --min-lr are right for [default: 32]
    #[arg(long, value_name = "N", value_parser = count)]
    pub base_batch: Option<u64>,
    /// As --warmup, in epochs [default: 0]
    #[arg(long, value_name = "EPOCHS", value_parser = whole)]
    pub warmup_epochs: Option<u64>,
    /// Norm of a step over the norm of its parameter, at a rate of 1 (lars) [default: 0.001]
    #[arg(long, value_name = "X", value_parser = positive)]
    pub trust_coefficient: Option<f64>,
    /// Lowest ratio of norms (lamb) [default: 0]
    #[arg(long, value_name = "X", value_parser = not_negative)]
    pub min_trust: Option<f64>,
    /// Highest ratio of norms (lamb) [default: any]
    #[arg(long, value_name = "X", value_parser = positive)]
    pub max_trust: Option<f64>,
    /// Biases and norms take plain steps and do not decay (lars, lamb) [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub exclude_vectors: Option<bool>,
}

/// The same, complete.
#[derive(Clone, Debug, PartialEq)]
pub struct LargeBatch {
    pub scaling: ScalingName,
    pub base_batch: u64,
    pub warmup_epochs: u64,
    pub trust_coefficient: f64,
    pub min_trust: f64,
    pub max_trust: Option<f64>,
    pub exclude_vectors: bool,
}

impl LargeBatch {
    /// Fills in the defaults.
    pub fn complete(args: &LargeBatchArgs) -> Result<LargeBatch, Failure> {
        let (min_trust, max_trust) = (args.min_trust.unwrap_or(0.0), args.max_trust);
        if let Some(max) = max_trust.filter(|max| *max < min_trust) {
            return Err(Failure::Mistake(format!("--min-trust {min_trust} is above --max-trust {max}")));
        }
        Ok(LargeBatch {
            scaling: args.lr_scaling.unwrap_or(ScalingName::None),
            base_batch: args.base_batch.unwrap_or(BASE_BATCH),
            warmup_epochs: args.warmup_epochs.unwrap_or(0),
            trust_coefficient: args.trust_coefficient.unwrap_or(1e-3),
            min_trust,
            max_trust,
            exclude_vectors: args.exclude_vectors.unwrap_or(true),
        })
    }

    /// The settings as text under the names of their flags.
    pub fn recorded(&self) -> [(&'static str, Option<String>); 7] {
        [
            ("lr-scaling", Some(name_of(self.scaling))),
            ("base-batch", Some(self.base_batch.to_string())),
            ("warmup-epochs", Some(self.warmup_epochs.to_string())),
            ("trust-coefficient", Some(self.trust_coefficient.to_string())),
            ("min-trust", Some(self.min_trust.to_string())),
            ("max-trust", self.max_trust.map(|x| x.to_string())),
            ("exclude-vectors", Some(self.exclude_vectors.to_string())),
        ]
    }

    /// The library's rule.
    pub fn rule(&self) -> LrScaling {
        match self.scaling {
            ScalingName::None => LrScaling::None,
            ScalingName::Linear => LrScaling::Linear,
            ScalingName::Sqrt => LrScaling::Sqrt,
        }
    }
}

/// What is scaled, by how much, and how it gets there; nothing where nothing is scaled. An epoch has so many samples.
pub fn scaling_in_words(settings: &Settings, samples: u64) -> Option<String> {
    let LargeBatch { base_batch, warmup_epochs, .. } = settings.large_batch;
    let rule = settings.large_batch.rule();
    let name = match rule {
        LrScaling::None => return None,
        LrScaling::Linear => "linear",
        LrScaling::Sqrt => "square-root",
    };
    let batch = settings.full_batch(samples);
    let times = short(batch as f64 / base_batch as f64);
    let (from, to) = (short(settings.lr), short(settings.lr * rule.factor(batch, base_batch)));
    let warmup = match (settings.schedule, warmup_epochs, settings.warmup) {
        (ScheduleName::OneCycle, ..) => "the cycle's own warm-up".to_string(),
        (_, 0, 0) => "no warm-up".to_string(),
        (_, 0, steps) => format!("warm-up over {}", counted(steps as usize, "step")),
        (_, epochs, _) => format!("warm-up over {}", counted(epochs as usize, "epoch")),
    };
    Some(format!("{name} scaling: batch {batch} = {times} × {base_batch}, learning rate {from} → {to}, {warmup}"))
}

/// A warning where batches have more than ten times as many samples as there are classes (a rule of thumb of Dive into
/// Deep Learning), with the settings that help and are not in use.
pub fn warning(settings: &Settings, samples: u64, classes: u64) -> Option<String> {
    let batch = settings.full_batch(samples);
    if batch <= classes.saturating_mul(10) {
        return None;
    }
    let is_layer_wise = matches!(settings.optimizer, OptimizerName::Lars | OptimizerName::Lamb);
    let is_sgd = matches!(settings.optimizer, OptimizerName::Sgd | OptimizerName::Lars);
    let warms_up = settings.warmup_steps(samples) > 0 || settings.schedule == ScheduleName::OneCycle;
    let remedies = [
        (settings.large_batch.scaling == ScalingName::None).then_some(if is_sgd {
            "--lr-scaling linear"
        } else {
            "--lr-scaling sqrt"
        }),
        (!warms_up).then_some("--warmup-epochs 5"),
        (!is_layer_wise).then_some("--optimizer lars or lamb"),
        Some("or a smaller --batch"),
    ];
    let remedies: Vec<&str> = remedies.into_iter().flatten().collect();
    let remedies = remedies.join(", ");
    let remedies = remedies.strip_prefix("or ").unwrap_or(&remedies);
    Some(format!(
        "a batch of {batch} is more than ten times the {classes} classes: its samples repeat each other, so a step \
         learns little more than one of a smaller batch, and an epoch has fewer steps; what helps: {remedies}"
    ))
}

/// A number with at most four digits that count.
fn short(number: f64) -> String {
    format!("{number:.3e}").parse::<f64>().map_or_else(|_| number.to_string(), |x| x.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parse;

    fn settings(flags: &str) -> Settings {
        let flags: Vec<String> = flags.split_whitespace().map(String::from).collect();
        Settings::complete(&parse(&flags).unwrap()).unwrap()
    }

    #[test]
    fn a_scaling_says_what_it_does() {
        let says = |flags: &str| scaling_in_words(&settings(&format!("lenet --optimizer sgd {flags}")), 60_000);
        assert_eq!(says("--batch 1024"), None);
        let cases = [
            (
                "--batch 1024 --base-batch 256 --lr-scaling linear --warmup-epochs 5",
                "linear scaling: batch 1024 = 4 × 256, learning rate 0.1 → 0.4, warm-up over 5 epochs",
            ),
            (
                "--batch 1024 --base-batch 256 --lr-scaling sqrt --warmup 1",
                "square-root scaling: batch 1024 = 4 × 256, learning rate 0.1 → 0.2, warm-up over 1 step",
            ),
            (
                "--batch 100 --lr 0.3 --lr-scaling sqrt",
                "square-root scaling: batch 100 = 3.125 × 32, learning rate 0.3 → 0.5303, no warm-up",
            ),
            (
                "--batch 16 --lr-scaling linear --schedule one-cycle",
                "linear scaling: batch 16 = 0.5 × 32, learning rate 0.1 → 0.05, the cycle's own warm-up",
            ),
            (
                "--batch 70000 --base-batch 20000 --lr-scaling linear",
                "linear scaling: batch 60000 = 3 × 20000, learning rate 0.1 → 0.3, no warm-up",
            ),
        ];
        for (flags, expected) in cases {
            assert_eq!(says(flags).as_deref(), Some(expected));
        }
    }

    #[test]
    fn batches_of_more_than_ten_times_the_classes_are_warned_about() {
        let warns = |flags: &str, classes| warning(&settings(flags), 60_000, classes);
        assert_eq!(warns("lenet --batch 100", 10), None);
        assert_eq!(warns("lenet --batch 1000", 100), None);
        assert_eq!(
            warns("lenet --batch 101", 10).unwrap(),
            "a batch of 101 is more than ten times the 10 classes: its samples repeat each other, so a step learns \
             little more than one of a smaller batch, and an epoch has fewer steps; what helps: --lr-scaling sqrt, \
             --warmup-epochs 5, --optimizer lars or lamb, or a smaller --batch"
        );
        let cases = [
            (
                "--optimizer sgd",
                "--lr-scaling linear, --warmup-epochs 5, --optimizer lars or lamb, or a smaller --batch",
            ),
            ("--lr-scaling linear", "--warmup-epochs 5, --optimizer lars or lamb, or a smaller --batch"),
            ("--optimizer lamb --warmup 9", "--lr-scaling sqrt, or a smaller --batch"),
            ("--optimizer lars --warmup-epochs 1 --lr-scaling linear", "a smaller --batch"),
            ("--schedule one-cycle --lr-scaling sqrt", "--optimizer lars or lamb, or a smaller --batch"),
        ];
        for (flags, expected) in cases {
            let text = warns(&format!("lenet --batch 1000 {flags}"), 10).unwrap();
            assert_eq!(text.split_once("what helps: ").unwrap().1, expected, "{flags}");
        }
        assert_eq!(warning(&settings("lenet --batch 1000"), 90, 10), None, "no batch has more samples than the data");
    }
}
