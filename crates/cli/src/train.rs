//! `meshwork train`.

use crate::args::TrainArgs;
use crate::bench::machine::Machine;
use crate::failure::Failure;
use crate::language::{SizeArgs, Sizes};
use crate::layout::{self, Layout};
use crate::log::Log;
use crate::metrics::{DeviceMemory, Metrics, RunLine, Targets};
use crate::progress::{Progress, Unit, say};
use crate::samples::Samples;
use crate::settings::{Settings, parse, run_folder, without_effect};
use crate::top::View;
use crate::values::{AugmentName, OrderName, PrecisionName};
use crate::{INTERRUPTED, config, interrupt, large_batch, metrics, recipe, tracing};
use meshwork::checkpoint::{Checkpoint, CheckpointError, Folder, load_module};
use meshwork::data::{Dataset, Order};
use meshwork::mesh::Footprint;
use meshwork::monitor::{About, Monitor, Publisher};
use meshwork::nn::{Layer, Module};
use meshwork::optim::{Ema, LossScaleState};
use meshwork::train::{BuiltIn, Event, Length, Outcome, Saving, TrainError, TrainSettings, Trainer, fit_memory};
use meshwork::{Device, manual_seed};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Trains a model as the flags and the files that they name say.
pub fn run(flags: Box<TrainArgs>, argv: &[String]) -> Result<ExitCode, Failure> {
    let mut all = flags.config.as_deref().map(config::flags).transpose()?.unwrap_or_default();
    all.extend_from_slice(argv);
    let mut given = parse(&all)?;
    // Rules of the command line come before those of the file: the first that fits counts.
    given.layout.place.rotate_right(flags.layout.place.len());
    if given.resume.is_some() && given.init.is_some() {
        return Err(Failure::mistake("--init and --resume exclude each other: a resumed run has its weights already"));
    }

    if given.layout.recompute.is_some() && given.memory_limit.is_some() {
        return Err(Failure::mistake(
            "--recompute and --memory-limit exclude each other: the limit chooses the blocks",
        ));
    }
    for (flag, file) in [("--log", &given.log), ("--trace", &given.trace)] {
        if let Some(file) = file.as_ref().filter(|file| given.metrics.iter().any(|target| target.is(file))) {
            let file = file.display();
            return Err(Failure::Mistake(format!("--metrics: {file} is the file of {flag}; name another one")));
        }
    }

    given.layout.set_devices(given.threads)?;
    let checkpoint = given.resume.as_ref().map(|folder| Folder::new(folder).load()).transpose().map_err(with_flag)?;
    let (settings, notes) = match &checkpoint {
        Some(checkpoint) => Settings::resumed(&checkpoint.state().settings, &given, &all)?,
        None => (Settings::complete(&given)?, Vec::new()),
    };
    warn(without_effect(&given, &settings));
    notes.into_iter().for_each(|text| eprintln!("note: {text}"));

    let samples = Samples::open(&settings, &given, checkpoint.as_ref())?;
    samples.notes.iter().for_each(|text| eprintln!("note: {text}"));
    let model = built_in(&settings, samples.vocabulary())?;
    let layout = given.layout.complete(&model, settings.batch)?;
    model.check(&samples.pair)?;
    let folder = saving_folder(&given, checkpoint.is_some())?;
    folder.as_deref().map_or(Ok(()), |folder| samples.save_tokenizer(folder))?;
    if settings.language.is_none() {
        let classes = samples.pair.train.num_classes().unwrap_or(model.classes());
        warn(large_batch::warning(&settings, samples.pair.train.len() as u64, classes as u64));
    }
    let tracing = given.trace.as_deref().map(tracing::start).transpose()?;

    let ended = Run { given, settings, layout, checkpoint, folder, samples, model }.train();
    tracing.and_then(tracing::stop).into_iter().for_each(|text| say(&text));
    ended
}

/// A run that is ready to begin.
struct Run {
    given: TrainArgs,
    settings: Settings,
    layout: Option<Layout>,
    checkpoint: Option<Checkpoint>,
    folder: Option<PathBuf>,
    samples: Samples,
    model: BuiltIn,
}

impl Run {
    fn train(self) -> Result<ExitCode, Failure> {
        let length = Length { epochs: self.settings.epochs, steps: self.settings.steps };
        let (recompute, test_batch_size) = self.fit(length)?;
        let model = self.initial_model()?;
        if let Some(layout) = &self.layout {
            let batch = self.settings.full_batch(self.samples.pair.train.len() as u64);
            warn(layout.without_effect(&*model, batch, self.model.transformer().is_some()));
        }
        model.set_recompute(recompute);
        let samples = self.samples.pair.train.len() as u64;
        let batches = samples.div_ceil(self.settings.batch);
        let total = length.total_steps(batches).unwrap_or(u64::MAX);
        let optimizer = recipe::optimizer(&self.settings, &*model);
        let footprints = self.layout.as_ref().map(|layout| layout.mesh.footprints(&*model, &*optimizer));
        let schedule = recipe::schedule(&self.settings, samples, total);
        let parameters = model.num_parameters();
        let targets = self.metrics_targets();
        let train_settings = self.train_settings(length);
        let train_settings = TrainSettings { metrics: !targets.is_empty(), test_batch_size, ..train_settings };
        let stop = train_settings.stop.clone();
        let mut trainer = Trainer::new(model, optimizer, schedule, self.samples.pair.clone(), train_settings);
        if let Some(checkpoint) = &self.checkpoint {
            trainer.resume(checkpoint)?;
        }
        let mut log = self.log(trainer.step(), trainer.epoch())?;
        let open = || {
            let run = self.run_line(trainer.step(), total, parameters, footprints.as_deref());
            let tokens = self.model.transformer().map(|config| config.context);
            Metrics::open(&targets, tokens, &run)
        };
        let mut metrics = (!targets.is_empty()).then(open).transpose()?;
        interrupt::watch(stop.clone())?;
        let monitor = self.monitor(trainer.step(), total);
        let (publisher, warnings) = Publisher::start(&monitor);
        warn(warnings);
        self.introduce(parameters, footprints, total, trainer.step());

        let unit = Unit::of(&self.model);
        let mut view = (self.given.top == Some(true)).then(|| View::open(&monitor, &stop)).transpose()?;
        let mut progress = match &view {
            Some(view) => Progress::beside_view(view.is_drawn(), self.settings.epochs, unit),
            None => Progress::new(trainer.step(), Some(total), self.settings.epochs, unit),
        };
        let mut failure = None;
        let mut diverged = false;
        let mut observer = |event: Event<'_>| {
            monitor.observe(&event);
            let written = match (&event, &mut log) {
                (Event::Step(step), Some(log)) => log.step(step),
                (Event::Epoch(epoch), Some(log)) => log.epoch(epoch),
                _ => Ok(()),
            };
            let written = written.and_then(|()| metrics.as_mut().map_or(Ok(()), |metrics| metrics.observe(&event)));
            if let Err(e) = written {
                failure.get_or_insert(e);
            }
            match event {
                Event::Step(step) => {
                    progress.step(&step);
                    if !step.loss.is_finite() && !std::mem::replace(&mut diverged, true) {
                        progress.say(&format!("the loss of step {} is {}; try a smaller --lr", step.step, step.loss));
                    }
                }
                Event::Epoch(epoch) => progress.epoch(&epoch),
                _ => {}
            }
        };
        let outcome = trainer.run(&mut observer);
        let trouble = view.as_mut().and_then(View::close);
        progress.finish();
        warn(trouble.into_iter().chain(publisher.finish()));
        let outcome = outcome.map_err(|error| self.stopped(error))?;
        if let Err(e) = metrics.as_mut().map_or(Ok(()), |metrics| metrics.finish(&outcome)) {
            failure.get_or_insert(e);
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(self.conclude(&outcome)),
        }
    }

    /// Why the run ended before its end, and how it can go on.
    fn stopped(&self, error: TrainError) -> Failure {
        let TrainError::NonFinite(found) = error else { return error.into() };
        let go_on = self.folder.as_ref().map_or(String::new(), |folder| {
            let folder = folder.display();
            format!("; saved to {folder}; go on with: meshwork train --resume {folder} --lr RATE")
        });
        Failure::Mistake(format!(
            "{found}{go_on} (--lr, --warmup, --max-norm; --check-finite=false goes on regardless)"
        ))
    }

    /// The model with its initial weights. Those of a resumed run are loaded later.
    fn initial_model(&self) -> Result<Box<dyn Layer>, Failure> {
        manual_seed(self.settings.seed);
        let model = self.model.build();
        model.init(self.settings.seed);
        if let Some(path) = &self.given.init {
            load_module(path, &model).map_err(|e| match Failure::from(e) {
                Failure::Mistake(text) => Failure::Mistake(format!("--init: {text}")),
                other => other,
            })?;
        }
        if let Some(layout) = &self.layout {
            layout.spread(&*model)?;
        }
        Ok(model)
    }

    /// How many blocks are computed again, and how many samples of the test set are taken at a time.
    fn fit(&self, length: Length) -> Result<(usize, Option<usize>), Failure> {
        let Some(limit) = self.given.memory_limit else {
            return Ok((self.given.layout.recompute.unwrap_or(0), self.train_settings(length).test_batch_size));
        };
        let samples = self.samples.pair.train.len() as u64;
        let metrics = !self.metrics_targets().is_empty();
        let mut refused = None;
        let fit = fit_memory(limit, || {
            let model = self.initial_model().map_err(|failure| {
                refused = Some(failure);
                TrainError::Misfit(String::new())
            })?;
            let optimizer = recipe::optimizer(&self.settings, &*model);
            let schedule = recipe::schedule(&self.settings, samples, u64::MAX);
            let settings = TrainSettings { metrics, ..self.train_settings(length) };
            Ok(Trainer::new(model, optimizer, schedule, self.samples.pair.clone(), settings))
        });
        match (fit, refused) {
            (_, Some(failure)) => Err(failure),
            (Err(error), None) => Err(Failure::from(error).about("--memory-limit")),
            (Ok(fit), None) => {
                say(&fit.to_string());
                Ok((fit.recompute, Some(fit.test_batch_size)))
            }
        }
    }

    fn train_settings(&self, length: Length) -> TrainSettings {
        let seed = self.settings.seed;
        let order = match self.settings.order {
            OrderName::Sequential => Order::Sequential,
            OrderName::Shuffled => Order::Shuffled { seed },
        };
        let every = self.settings.save_every;
        TrainSettings {
            model: self.model.name().to_string(),
            batch_size: usize::try_from(self.settings.batch).unwrap_or(usize::MAX),
            test_batch_size: self.given.test_batch.map(|samples| usize::try_from(samples).unwrap_or(usize::MAX)),
            order,
            length,
            max_norm: Some(self.settings.max_norm).filter(|max| *max > 0.0),
            check_finite: self.settings.check_finite,
            ema: (self.settings.ema > 0.0)
                .then_some(Ema { decay: self.settings.ema, warmup: self.settings.ema_warmup }),
            seed,
            precision: self.settings.precision.precision(),
            loss_scale: self.settings.loss_scale,
            saving: self.folder.as_ref().map(|folder| Saving { folder: Folder::new(folder), every }),
            mesh: self.layout.as_ref().map(|layout| layout.mesh.clone()),
            recorded: self.settings.recorded(),
            ..TrainSettings::default()
        }
    }

    fn monitor(&self, done: u64, total: u64) -> Monitor {
        let about = About {
            model: self.model.name().to_string(),
            data: self.samples.pair.name.clone(),
            folder: self.folder.clone(),
            done,
            steps: Some(total).filter(|total| *total != u64::MAX),
            epochs: self.settings.epochs,
        };
        Monitor::new(about, Device::cpus().expect("the devices were asked for before"))
    }

    fn log(&self, steps: u64, epochs: u64) -> Result<Option<Log>, Failure> {
        match &self.given.log {
            Some(path) if self.checkpoint.is_some() => Log::resume(path, steps, epochs).map(Some),
            Some(path) => Log::create(path).map(Some),
            None => Ok(None),
        }
    }

    fn metrics_targets(&self) -> Targets {
        let resumed = self.given.resume.as_deref().map(run_folder);
        let steps = self.checkpoint.as_ref().map(|checkpoint| checkpoint.state().step);
        Targets { given: self.given.metrics.clone(), folder: self.folder.clone(), resumed: resumed.zip(steps) }
    }

    /// What metrics say of the run.
    fn run_line(&self, done: u64, total: u64, parameters: usize, footprints: Option<&[Footprint]>) -> RunLine {
        let machine = Machine::of_all_devices();
        let memory = |footprint: &Footprint| DeviceMemory {
            device: footprint.device.to_string(),
            parameters: footprint.parameters,
            gradients: footprint.gradients,
            optimizer_state: footprint.state,
        };
        let run = metrics::Run {
            version: env!("CARGO_PKG_VERSION").to_string(),
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            model: self.model.name().to_string(),
            parameters,
            data: self.samples.in_words.clone(),
            steps: Some(total).filter(|total| *total != u64::MAX),
            settings: self.settings.recorded(),
            plan: self.layout.as_ref().map(Layout::name),
            devices: layout::devices_in_words(),
            memory: footprints.unwrap_or_default().iter().map(memory).collect(),
            peak_gflops: metrics::rounded(machine.undisturbed_peak(self.settings.precision.precision())),
            processor: machine.processor,
            cores: machine.cores,
            simd: machine.level.name().to_string(),
        };
        RunLine { step: done, run }
    }

    fn introduce(&self, parameters: usize, footprints: Option<Vec<Footprint>>, total: u64, done: u64) {
        say(&format!(
            "{}: {parameters} parameters, {}, batches of {}, {}",
            self.model.name(),
            self.samples.in_words,
            self.settings.batch,
            layout::devices_in_words(),
        ));
        if let Some((layout, footprints)) = self.layout.as_ref().zip(footprints) {
            say(&layout.in_words(&footprints));
        }
        match self.settings.precision {
            PrecisionName::F32 => {}
            PrecisionName::Bf16 => {
                say("products and attention compute on bf16; weights, sums, norms and losses are f32")
            }
            PrecisionName::F16 => say(
                "products and attention compute on f16, with a scaled loss; weights, sums, norms and losses are f32",
            ),
        }
        if self.settings.augment == AugmentName::Affine {
            say("training images are turned, scaled, slanted and shifted at random (--augment none: as they are)");
        }
        if let Some(text) = large_batch::scaling_in_words(&self.settings, self.samples.pair.train.len() as u64) {
            say(&text);
        }
        if let Some(checkpoint) = &self.checkpoint {
            let nothing = if done >= total { "; nothing is left to do (more with --epochs or --steps)" } else { "" };
            say(&format!("resumed from {} after step {done} of {total}{nothing}", checkpoint.folder().display()));
        }
    }

    fn conclude(&self, outcome: &Outcome) -> ExitCode {
        if let Some(LossScaleState { scale, skipped, .. }) = outcome.loss_scale {
            let steps = if skipped == 1 { "step was" } else { "steps were" };
            say(&format!("{skipped} {steps} skipped, whose gradients did not fit into f16; the loss scale is {scale}"));
        }
        let saved = self.folder.as_ref().map(|folder| folder.display().to_string());
        if outcome.interrupted {
            let step = outcome.step;
            match saved {
                Some(folder) => say(&format!(
                    "interrupted after step {step}; saved to {folder}; go on with: meshwork train --resume {folder}"
                )),
                None => say(&format!("interrupted after step {step}; not saved (--save DIR saves)")),
            }
            return ExitCode::from(INTERRUPTED);
        }
        if let Some(folder) = saved {
            say(&format!("saved to {folder}"));
        }
        if let Some(test) = &outcome.test {
            say(&Unit::of(&self.model).result(test));
        }
        if let Some(averaged) = &outcome.averaged {
            say(&format!("averaged weights: {}", Unit::of(&self.model).result(averaged)));
        }
        ExitCode::SUCCESS
    }
}

/// Says on standard error what may not be meant.
pub fn warn(texts: impl IntoIterator<Item = String>) {
    texts.into_iter().for_each(|text| eprintln!("warning: {text}"));
}

/// The library's model that the settings name, for so many tokens if it reads any.
pub fn built_in(settings: &Settings, vocabulary: usize) -> Result<BuiltIn, Failure> {
    let sizes = settings.language.as_ref().map_or_else(|| Sizes::complete(&SizeArgs::default()), |l| Ok(l.sizes))?;
    sizes.model(settings.model, vocabulary)
}

/// Where to save, once it is sure that nobody else's run is there.
fn saving_folder(given: &TrainArgs, resumed: bool) -> Result<Option<PathBuf>, Failure> {
    let own = given.resume.as_deref().map(run_folder);
    let Some(folder) = given.save.clone().or_else(|| own.clone()) else { return Ok(None) };
    let same =
        |a: &Path, b: &Path| a == b || a.canonicalize().ok().is_some_and(|a| b.canonicalize().is_ok_and(|b| a == b));
    let is_own = resumed && own.is_some_and(|own| same(&own, &folder));
    if !is_own && given.overwrite != Some(true) {
        Folder::new(&folder).claim().map_err(|e| match e {
            CheckpointError::Occupied { path, step } => Failure::Mistake(format!(
                "--save: {0} already holds a checkpoint of step {step}; go on with it (--resume {0}), save to \
                 another folder, or replace it (--overwrite)",
                path.display()
            )),
            other => match Failure::from(other) {
                Failure::Mistake(text) => Failure::Mistake(format!("--save: {text}")),
                other => other,
            },
        })?;
    }
    Ok(Some(folder))
}

fn with_flag(error: CheckpointError) -> Failure {
    match Failure::from(error) {
        Failure::Mistake(text) => Failure::Mistake(format!("--resume: {text}")),
        other => other,
    }
}
