//! The settings of a run: what was given, what the saved run had, and defaults for the rest.

use crate::args::{Cli, Command, TrainArgs};
use crate::failure::Failure;
use crate::language::Language;
use crate::large_batch::LargeBatch;
use crate::mistakes;
use crate::samples::SOURCE;
use crate::values::*;
use clap::{CommandFactory, FromArgMatches};
use meshwork::optim::LossScaleOptions;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The data set that comes with the program.
const DIGITS: &str = "digits";
/// Default number of epochs of the digits, of which there are few, of text, of which there is much, and of other data.
const EPOCHS: (u64, u64, u64) = (100, 1, 10);
/// Default number of samples of a batch.
const BATCH: u64 = 32;

/// Settings that a resumed run has from its checkpoint.
const FIXED: [&str; 13] = [
    "ema",
    "ema-warmup",
    "model",
    "optimizer",
    "precision",
    "seed",
    "order",
    "layers",
    "width",
    "heads",
    "kv-heads",
    "context",
    "tokenizer",
];

/// Reads flags as if they stood on the command line of `train`, later ones winning.
pub fn parse(flags: &[String]) -> Result<TrainArgs, Failure> {
    let argv: Vec<String> = ["meshwork", "train"].into_iter().map(String::from).chain(flags.iter().cloned()).collect();
    let mistake = |e: clap::Error| Failure::Mistake(mistakes::in_words(&e, &argv));
    let matches = Cli::command().try_get_matches_from(&argv).map_err(mistake)?;
    match Cli::from_arg_matches(&matches).map_err(mistake)?.command {
        Command::Train(args) => Ok(*args),
        _ => unreachable!("the command is train"),
    }
}

/// What a run's result depends on, complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub model: ModelName,
    pub data: String,
    pub batch: u64,
    pub order: OrderName,
    pub augment: AugmentName,
    pub epochs: Option<u64>,
    pub steps: Option<u64>,
    pub precision: PrecisionName,
    /// Only used in f16.
    pub loss_scale: LossScaleOptions,
    pub seed: u64,
    pub optimizer: OptimizerName,
    pub lr: f64,
    pub momentum: f64,
    pub nesterov: bool,
    pub weight_decay: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub alpha: f64,
    pub eps: f64,
    pub schedule: ScheduleName,
    pub warmup: u64,
    pub step_size: Option<u64>,
    pub gamma: f64,
    pub min_lr: f64,
    /// Gradients are not scaled down where this is 0.
    pub max_norm: f64,
    pub check_finite: bool,
    /// Weights are not averaged where this is 0.
    pub ema: f64,
    pub ema_warmup: bool,
    pub large_batch: LargeBatch,
    /// Only of language models.
    pub language: Option<Language>,
    pub save_every: Option<u64>,
}

impl Settings {
    /// Fills in the defaults.
    pub fn complete(args: &TrainArgs) -> Result<Settings, Failure> {
        use OptimizerName::{Adagrad, Adam, Adamw, Lamb, Lars, Rmsprop, Sgd};
        let Some(model) = args.positional_model.or(args.model) else {
            return Err(Failure::mistake("which model? Known are lenet, mlp, gpt, llama: meshwork train lenet"));
        };
        let is_language = model.is_language();
        let optimizer = args.optimizer.unwrap_or(if is_language { Adamw } else { Adam });
        let (lr, weight_decay, eps) = match optimizer {
            Sgd => (0.1, 0.0, 1e-8),
            Adamw if is_language => (1e-3, 0.1, 1e-8),
            Adamw => (3e-3, 1e-2, 1e-8),
            Adagrad => (1e-2, 0.0, 1e-10),
            Rmsprop => (1e-3, 0.0, 1e-8),
            Adam => (3e-3, 0.0, 1e-8),
            Lars => (1.0, 1e-4, 1e-8),
            Lamb => (1e-2, 1e-2, 1e-6),
        };
        let data = args.data.clone().unwrap_or_else(|| if is_language { SOURCE } else { DIGITS }.to_string());
        let order = args.order.unwrap_or(OrderName::Shuffled);
        let by_default = match () {
            () if is_language => EPOCHS.1,
            () if data == DIGITS => EPOCHS.0,
            () => EPOCHS.2,
        };
        let epochs = args.epochs.or(if args.steps.is_none() { Some(by_default) } else { None });
        // The digits are few, and those of the test set are by other hands.
        let few = data == DIGITS && !is_language && order == OrderName::Shuffled;
        let augment = args.augment.unwrap_or(if few { AugmentName::Affine } else { AugmentName::None });
        // The default recipe ends softly. A run whose rate or length the user chose has that rate throughout, so that
        // a run does not depend on how long it was meant to be.
        let own = args.optimizer.is_some() || args.lr.is_some() || args.epochs.is_some() || args.steps.is_some();
        let schedule = if own { ScheduleName::Constant } else { ScheduleName::Cosine };
        let settings = Settings {
            model,
            data,
            batch: args.batch.unwrap_or(BATCH),
            order,
            augment,
            epochs,
            steps: args.steps,
            precision: args.precision.unwrap_or_default(),
            loss_scale: loss_scale(args)?,
            seed: args.seed.unwrap_or(0),
            optimizer,
            lr: args.lr.unwrap_or(lr),
            momentum: args.momentum.unwrap_or(if optimizer == Lars { 0.9 } else { 0.0 }),
            nesterov: args.nesterov.unwrap_or(false),
            weight_decay: args.weight_decay.unwrap_or(weight_decay),
            beta1: args.beta1.unwrap_or(0.9),
            beta2: args.beta2.unwrap_or(0.999),
            alpha: args.alpha.unwrap_or(0.99),
            eps: args.eps.unwrap_or(eps),
            schedule: args.schedule.unwrap_or(schedule),
            warmup: args.warmup.unwrap_or(0),
            step_size: args.step_size,
            gamma: args.gamma.unwrap_or(0.1),
            min_lr: args.min_lr.unwrap_or(0.0),
            max_norm: args.max_norm.unwrap_or(if is_language { 1.0 } else { 0.0 }),
            check_finite: args.check_finite.unwrap_or(true),
            ema: args.ema.unwrap_or(0.0),
            ema_warmup: args.ema_warmup.unwrap_or(false),
            large_batch: LargeBatch::complete(&args.large_batch)?,
            language: is_language.then(|| Language::complete(&args.language)).transpose()?,
            save_every: args.save_every,
        };
        if settings.nesterov && settings.momentum == 0.0 && optimizer == Sgd {
            return Err(Failure::mistake("--nesterov needs --momentum above 0, such as 0.9"));
        }
        if settings.warmup > 0 && settings.large_batch.warmup_epochs > 0 {
            return Err(Failure::mistake(
                "--warmup and --warmup-epochs exclude each other: one of them must be 0, or left out",
            ));
        }
        Ok(settings)
    }

    /// Samples of a batch that is not the last one, where an epoch has so many samples.
    pub fn full_batch(&self, samples: u64) -> u64 {
        self.batch.min(samples).max(1)
    }

    /// Steps of the warm-up, where an epoch has so many samples.
    pub fn warmup_steps(&self, samples: u64) -> u64 {
        match self.large_batch.warmup_epochs {
            0 => self.warmup,
            epochs => epochs.saturating_mul(samples.div_ceil(self.batch)),
        }
    }

    /// The settings as text under the names of their flags, for the checkpoint.
    pub fn recorded(&self) -> BTreeMap<String, String> {
        let pairs = [
            ("model", Some(name_of(self.model))),
            ("data", Some(self.data.clone())),
            ("batch", Some(self.batch.to_string())),
            ("order", Some(name_of(self.order))),
            ("augment", Some(name_of(self.augment))),
            ("epochs", self.epochs.map(|n| n.to_string())),
            ("steps", self.steps.map(|n| n.to_string())),
            ("precision", Some(name_of(self.precision))),
            ("initial-loss-scale", Some(self.loss_scale.initial.to_string())),
            ("min-loss-scale", Some(self.loss_scale.minimum.to_string())),
            ("loss-scale-window", Some(self.loss_scale.interval.to_string())),
            ("loss-scale-growth", Some(self.loss_scale.growth.to_string())),
            ("loss-scale-backoff", Some(self.loss_scale.backoff.to_string())),
            ("seed", Some(self.seed.to_string())),
            ("optimizer", Some(name_of(self.optimizer))),
            ("lr", Some(self.lr.to_string())),
            ("momentum", Some(self.momentum.to_string())),
            ("nesterov", Some(self.nesterov.to_string())),
            ("weight-decay", Some(self.weight_decay.to_string())),
            ("beta1", Some(self.beta1.to_string())),
            ("beta2", Some(self.beta2.to_string())),
            ("alpha", Some(self.alpha.to_string())),
            ("eps", Some(self.eps.to_string())),
            ("schedule", Some(name_of(self.schedule))),
            ("warmup", Some(self.warmup.to_string())),
            ("step-size", self.step_size.map(|n| n.to_string())),
            ("gamma", Some(self.gamma.to_string())),
            ("min-lr", Some(self.min_lr.to_string())),
            ("max-norm", Some(self.max_norm.to_string())),
            ("check-finite", Some(self.check_finite.to_string())),
            ("ema", Some(self.ema.to_string())),
            ("ema-warmup", Some(self.ema_warmup.to_string())),
            ("save-every", self.save_every.map(|n| n.to_string())),
        ];
        let language = self.language.iter().flat_map(Language::recorded);
        let pairs = pairs.into_iter().chain(self.large_batch.recorded()).chain(language);
        pairs.filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
    }

    /// The settings of a resumed run: those that were saved, then those that were given. Also says what differs.
    ///
    /// # Errors
    /// When something was given that a run cannot change on its way.
    pub fn resumed(
        saved: &BTreeMap<String, String>,
        given: &TrainArgs,
        flags: &[String],
    ) -> Result<(Settings, Vec<String>), Failure> {
        let new_length = given.epochs.is_some() || given.steps.is_some();
        let kept = saved.iter().filter(|(name, _)| !(new_length && ["epochs", "steps"].contains(&name.as_str())));
        let saved_flags: Vec<String> = kept.map(|(name, value)| format!("--{name}={value}")).collect();
        let read = |flags: &[String]| {
            parse(flags).map_err(|e| match e {
                Failure::Mistake(text) => Failure::Mistake(format!("the saved run's settings cannot be used: {text}")),
                other => other,
            })
        };
        let before = Settings::complete(&read(&saved_flags)?)?.recorded();
        let all: Vec<String> = saved_flags.iter().chain(flags).cloned().collect();
        let mut args = read(&all)?;
        args.overwrite = None;
        let settings = Settings::complete(&args)?;
        let mut notes = Vec::new();
        for (name, value) in settings.recorded() {
            let Some(old) = before.get(&name).filter(|old| **old != value) else { continue };
            if FIXED.contains(&name.as_str()) {
                return Err(Failure::Mistake(format!(
                    "--{name} {value}: the saved run has {old}, and a run keeps its {name}; leave it out, \
                     or begin a new run from the saved weights with --init"
                )));
            }
            if !["epochs", "steps"].contains(&name.as_str()) {
                notes.push(format!("--{name} is {value} from here on; the saved run had {old}"));
            }
        }
        Ok((settings, notes))
    }
}

/// How the scale of the loss changes, with its defaults.
fn loss_scale(args: &TrainArgs) -> Result<LossScaleOptions, Failure> {
    let usual = LossScaleOptions::default();
    let options = LossScaleOptions {
        initial: args.initial_loss_scale.unwrap_or(usual.initial),
        minimum: args.min_loss_scale.unwrap_or(usual.minimum),
        interval: args.loss_scale_window.unwrap_or(usual.interval),
        growth: args.loss_scale_growth.unwrap_or(usual.growth),
        backoff: args.loss_scale_backoff.unwrap_or(usual.backoff),
    };
    if options.initial < options.minimum {
        return Err(Failure::Mistake(format!(
            "--initial-loss-scale {} is below --min-loss-scale {}: raise the one or lower the other",
            options.initial, options.minimum
        )));
    }
    Ok(options)
}

/// Flags that were given and have no effect, in words.
pub fn without_effect(given: &TrainArgs, settings: &Settings) -> Vec<String> {
    use OptimizerName::{Adagrad, Adam, Adamw, Lamb, Lars, Rmsprop, Sgd};
    use ScheduleName::{Constant, Cosine, Linear, Step};
    let large = &given.large_batch;
    let of_optimizer = [
        ("momentum", given.momentum.is_some(), &[Sgd, Rmsprop, Lars][..]),
        ("nesterov", given.nesterov.is_some(), &[Sgd]),
        ("beta1", given.beta1.is_some(), &[Adam, Adamw, Lamb]),
        ("beta2", given.beta2.is_some(), &[Adam, Adamw, Lamb]),
        ("alpha", given.alpha.is_some(), &[Rmsprop]),
        ("eps", given.eps.is_some(), &[Adam, Adamw, Rmsprop, Adagrad, Lars, Lamb]),
        ("trust-coefficient", large.trust_coefficient.is_some(), &[Lars]),
        ("min-trust", large.min_trust.is_some(), &[Lamb]),
        ("max-trust", large.max_trust.is_some(), &[Lamb]),
        ("exclude-vectors", large.exclude_vectors.is_some(), &[Lars, Lamb]),
    ];
    let of_schedule = [
        ("warmup", given.warmup.is_some(), &[Constant, Step, Cosine, Linear][..]),
        ("warmup-epochs", large.warmup_epochs.is_some(), &[Constant, Step, Cosine, Linear]),
        ("step-size", given.step_size.is_some(), &[Step]),
        ("gamma", given.gamma.is_some(), &[Step]),
        ("min-lr", given.min_lr.is_some(), &[Cosine, Linear]),
    ];
    let optimizer = of_optimizer
        .into_iter()
        .filter(|(_, given, of)| *given && !of.contains(&settings.optimizer))
        .map(|(name, _, _)| format!("--{name} has no effect with the optimizer {}", name_of(settings.optimizer)));
    let schedule = of_schedule
        .into_iter()
        .filter(|(_, given, of)| *given && !of.contains(&settings.schedule))
        .map(|(name, _, _)| format!("--{name} has no effect with the schedule {}", name_of(settings.schedule)));
    let saving = given.save.is_some() || given.resume.is_some();
    let is_scaled = settings.large_batch.scaling != ScalingName::None;
    let is_f16 = settings.precision == PrecisionName::F16;
    let others = [
        ("initial-loss-scale", given.initial_loss_scale.is_some() && !is_f16, "without --precision f16"),
        ("min-loss-scale", given.min_loss_scale.is_some() && !is_f16, "without --precision f16"),
        ("loss-scale-window", given.loss_scale_window.is_some() && !is_f16, "without --precision f16"),
        ("loss-scale-growth", given.loss_scale_growth.is_some() && !is_f16, "without --precision f16"),
        ("loss-scale-backoff", given.loss_scale_backoff.is_some() && !is_f16, "without --precision f16"),
        ("base-batch", large.base_batch.is_some() && !is_scaled, "without --lr-scaling"),
        ("ema-warmup", given.ema_warmup.is_some() && settings.ema == 0.0, "without --ema"),
        ("save-every", given.save_every.is_some() && !saving, "without --save"),
        ("overwrite", given.overwrite.is_some() && given.save.is_none(), "without --save"),
    ];
    let others = others.into_iter().filter(|f| f.1).map(|(name, _, why)| format!("--{name} has no effect {why}"));
    let of_model: Vec<&str> = match settings.language {
        Some(_) => given.augment.map(|_| "augment").into_iter().collect(),
        None => {
            let recompute = given.layout.recompute.filter(|_| settings.model == ModelName::Mlp).map(|_| "recompute");
            given.language.given().chain(recompute).collect()
        }
    };
    let model = name_of(settings.model);
    let of_model = of_model.into_iter().map(|name| format!("--{name} has no effect with the model {model}"));
    optimizer.chain(schedule).chain(others).chain(of_model).collect()
}

/// Where a resumed run saves when nothing else is said: beside the checkpoint that it comes from.
pub fn run_folder(resume: &std::path::Path) -> PathBuf {
    if resume.join("manifest.json").exists() {
        let parent = resume.canonicalize().ok().and_then(|path| Some(path.parent()?.to_owned()));
        return parent.unwrap_or_else(|| resume.to_owned());
    }
    resume.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    fn complete(text: &str) -> Settings {
        Settings::complete(&parse(&flags(text)).unwrap()).unwrap()
    }

    #[test]
    fn recorded_settings_give_the_same_settings() {
        for text in [
            "lenet",
            "mlp --optimizer sgd --lr 1e-3 --nesterov --momentum 0.9 --steps 7",
            "mlp --schedule step --step-size 9 --precision bf16",
            "mlp --check-finite=false",
            "mlp --ema 0.99 --ema-warmup",
            "lenet --optimizer lars --trust-coefficient 0.02 --exclude-vectors=false --warmup-epochs 5",
            "gpt --layers 2 --kv-heads 2 --tokenizer bytes --max-norm 0.5 --dropout 0.1",
            "lenet --optimizer lamb --min-trust 0.1 --max-trust 10 --lr-scaling sqrt --base-batch 256",
        ] {
            let settings = complete(text);
            let again: Vec<String> =
                settings.recorded().iter().map(|(name, value)| format!("--{name}={value}")).collect();
            assert_eq!(Settings::complete(&parse(&again).unwrap()).unwrap(), settings);
        }
    }

    #[test]
    fn a_resumed_run_keeps_what_it_is() {
        let saved = complete("mlp --steps 10 --seed 3").recorded();
        let resumed = |text: &str| Settings::resumed(&saved, &parse(&flags(text)).unwrap(), &flags(text));
        let (settings, notes) = resumed("--lr 0.5 --epochs 2").unwrap();
        assert_eq!((settings.seed, settings.steps, settings.epochs, settings.lr), (3, None, Some(2), 0.5));
        assert_eq!(notes, ["--lr is 0.5 from here on; the saved run had 0.003"]);
        for text in ["lenet", "--precision f16", "--optimizer sgd", "--seed 4", "--order sequential"] {
            let Err(Failure::Mistake(text)) = resumed(text) else { panic!("{text} was accepted") };
            assert!(text.contains("and a run keeps its"), "{text}");
        }
    }

    #[test]
    fn settings_without_effect_are_named() {
        let given =
            parse(&flags("mlp --momentum 0.9 --gamma 2 --save-every 3 --base-batch 8 --max-trust 9 --layers 2"))
                .unwrap();
        let warnings = without_effect(&given, &Settings::complete(&given).unwrap());
        assert_eq!(
            warnings,
            [
                "--momentum has no effect with the optimizer adam",
                "--max-trust has no effect with the optimizer adam",
                "--gamma has no effect with the schedule cosine",
                "--base-batch has no effect without --lr-scaling",
                "--save-every has no effect without --save",
                "--layers has no effect with the model mlp"
            ]
        );
    }
}
