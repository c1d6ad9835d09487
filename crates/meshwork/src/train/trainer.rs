//! The training loop.

use super::cost::Meter;
use super::evaluate::evaluate_some;
use super::late::{LateStep, Pending, Settled, Start};
use super::{
    EpochDone, Evaluation, Event, Outcome, Saving, StepDone, StepScale, TrainError, TrainSettings, evaluate, loss,
};
use crate::checkpoint::{Checkpoint, CheckpointError, LossSum, TrainingState};
use crate::mesh::Mesh;
use crate::nn::{Layer, Leaf, Visitor};
use crate::optim::{Guard, LossScale, NonFinite, Optimizer, Schedule, with_averaged};
use crate::tensor::{Precision, autocast, forget_peaks, plan_only, set_random_step};
use crate::{Device, Tensor};
use meshwork_data::{Batch, Column, DataPair, Loader, LoaderOptions, Position};
use std::sync::atomic::Ordering;

/// Trains a classifier: a model whose output are logits `[N, C]`, or `[N, T, C]` for each token, with the mean cross
/// entropy of each batch as [`loss`].
///
/// The first field of the data is the model's input, the field `label` (i64 `[N]`, or `[N, T]`) the classes. A run depends on model,
/// optimizer, schedule, data and settings alone: resumed from any checkpoint it goes on with the same bits.
pub struct Trainer<M> {
    model: M,
    optimizer: Box<dyn Optimizer>,
    schedule: Box<dyn Schedule>,
    data: DataPair,
    settings: TrainSettings,
    /// In f16.
    loss_scale: Option<LossScale>,
    step: u64,
    position: Position,
    epoch_loss: LossSum,
    guard: Option<Guard>,
    /// The step of the last checkpoint.
    saved: Option<u64>,
}

impl<M: Layer> Trainer<M> {
    /// A run at its beginning.
    pub fn new(
        model: M,
        optimizer: impl Optimizer + 'static,
        schedule: impl Schedule + 'static,
        data: DataPair,
        settings: TrainSettings,
    ) -> Trainer<M> {
        let mut optimizer: Box<dyn Optimizer> = Box::new(optimizer);
        settings.ema.into_iter().for_each(|ema| optimizer.average(ema));
        Trainer {
            guard: settings.check_finite.then(|| Guard::new(&model)),
            model,
            optimizer,
            schedule: Box::new(schedule),
            data,
            loss_scale: (settings.precision == Precision::F16).then(|| LossScale::new(settings.loss_scale)),
            settings,
            step: 0,
            position: Position::default(),
            epoch_loss: LossSum::default(),
            saved: None,
        }
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// Steps done since the beginning of the run.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Epochs finished since the beginning of the run.
    pub fn epoch(&self) -> u64 {
        self.position.epoch
    }

    /// Goes to where a saved run stood.
    ///
    /// # Errors
    /// When the checkpoint is of another model, optimizer, seed or precision.
    pub fn resume(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let state = checkpoint.state();
        let other = |what, saved: &dyn std::fmt::Display, own: &dyn std::fmt::Display| {
            let problem = format!("the run that was saved has the {what} {saved}, this one {own}; resume with {saved}");
            Err(CheckpointError::OtherRun { path: checkpoint.folder().to_owned(), problem }.into())
        };
        if state.model != self.settings.model {
            return other("model", &state.model, &self.settings.model);
        }
        if state.seed != self.settings.seed {
            return other("seed", &state.seed, &self.settings.seed);
        }
        if state.precision != self.settings.precision {
            return other("precision", &state.precision, &self.settings.precision);
        }
        checkpoint.load_model(&self.model)?;
        checkpoint.load_optimizer(&mut *self.optimizer)?;
        if let Some((own, saved)) = self.loss_scale.as_mut().zip(state.loss_scale) {
            own.load_state(saved);
        }
        (self.step, self.position, self.epoch_loss) = (state.step, state.position, state.epoch_loss);
        Ok(())
    }

    /// Trains up to the end that the settings name.
    ///
    /// # Errors
    /// Data that cannot be read, checkpoints that cannot be written, and, unless the settings say otherwise, a loss or gradients
    /// that are not finite: the run stands where it stood before that step then, and that is saved if anything is.
    pub fn run(&mut self, observer: &mut dyn FnMut(Event<'_>)) -> Result<Outcome, TrainError> {
        let mut loader = self.loader()?;
        let mut late = LateStep::new();
        let mut meter = self.settings.metrics.then(|| Meter::new(self.settings.mesh.as_ref()));
        let mut test = None;
        let mut interrupted = false;
        self.model.train();
        set_random_step(self.step);
        self.restart_sites();
        while !interrupted && !self.is_finished() {
            let batch = loader.next().expect("the loader's sequence has no end")?;
            let (values, step) = self.train(&batch);
            let cost = meter.as_mut().map(Meter::last_step);
            if let Some(before) = late.exchange(values, StepDone { cost, ..step }) {
                self.settle(before, observer)?;
            }
            test = None;
            let finished = self.is_finished();
            interrupted = !finished && self.settings.stop.load(Ordering::Relaxed);
            let ends = finished || interrupted;
            if batch.is_last() || ends || self.is_time_to_save(&batch) {
                let last = late.settle().expect("a step has just been handed over");
                self.settle(last, observer)?;
            }
            if batch.is_last() {
                test = Some(self.finish_epoch(observer)?);
                late.restart_clock();
            }
            if ends || self.is_time_to_save(&batch) {
                self.save(observer)?;
                late.restart_clock();
            }
        }
        let test = match test {
            _ if interrupted => None,
            Some(known) => Some(known),
            None => Some(self.evaluate_both()?),
        };
        let (test, averaged) = test.map_or((None, None), |(test, averaged)| (Some(test), averaged));
        let loss_scale = self.loss_scale.as_ref().map(LossScale::state);
        Ok(Outcome { step: self.step, test, averaged, loss_scale, interrupted })
    }

    /// One step: forward, loss, gradients, update. Only hands it over to the device; in f16 waits for the gradients.
    fn train(&mut self, batch: &Batch) -> (Pending, StepDone) {
        self.guard.iter_mut().for_each(|guard| guard.begin(&*self.optimizer));
        let lr = self.schedule.lr(self.step);
        self.optimizer.set_lr(lr);

        let mesh = self.settings.mesh.as_ref();
        let forward = || loss(&self.model.forward(&inputs(batch, mesh)), &labels(batch, mesh));
        let loss = autocast(self.settings.precision, forward);
        let scale_before = self.loss_scale.as_ref().map(LossScale::state);
        let (mut gradients, loss_scale) = match &mut self.loss_scale {
            Some(scaling) => {
                let scale = scaling.scale();
                let mut gradients = self.model.gradients(&scaling.scaled(&loss));
                let is_skipped = !scaling.unscale(&mut gradients);
                (gradients, Some(StepScale { scale, is_skipped }))
            }
            None => (self.model.gradients(&loss), None),
        };
        let is_examined = self.is_examined(loss_scale);
        self.guard.iter_mut().filter(|_| is_examined).for_each(|guard| guard.examine(&loss, &gradients));
        let gradient_norm = match self.settings.max_norm {
            Some(max) => Some(gradients.clip_by_global_norm(max)),
            None => self.settings.metrics.then(|| gradients.global_norm()),
        };
        match &mut self.guard {
            Some(guard) if is_examined => guard.step(&mut *self.optimizer, gradients),
            None if loss_scale.is_none_or(|scale| !scale.is_skipped) => self.optimizer.step(gradients),
            _ => {}
        }

        self.step += 1;
        let position = std::mem::replace(&mut self.position, batch.next_position());
        let start = Start { position, loss_scale: scale_before };
        let (step, epoch, samples) = (self.step, batch.epoch() + 1, batch.len());
        let done = StepDone {
            step,
            epoch,
            loss: f32::NAN,
            lr,
            samples,
            samples_per_second: 0.0,
            gradient_norm: None,
            loss_scale,
            cost: None,
        };
        (Pending { loss, gradient_norm, start }, done)
    }

    /// Whether a guard looks at a step: not at one that is skipped, unless no smaller scale is left to try.
    fn is_examined(&self, loss_scale: Option<StepScale>) -> bool {
        let minimum = self.settings.loss_scale.minimum;
        loss_scale.is_none_or(|StepScale { scale, is_skipped }| !is_skipped || scale <= minimum)
    }

    /// How well the model does on the test set.
    ///
    /// # Errors
    /// Samples that cannot be read.
    pub fn evaluate(&self) -> Result<Evaluation, TrainError> {
        let TrainSettings { precision, mesh, .. } = &self.settings;
        let batch_size = self.settings.test_batch_size();
        autocast(*precision, || evaluate(&self.model, &self.data.test, batch_size, mesh.as_ref()))
    }

    /// A step that is done again draws what it drew.
    fn restart_sites(&self) {
        self.model.visit(&mut Visitor::new(&mut |_, leaf| {
            if let Leaf::Site(site) = leaf {
                site.restart();
            }
        }));
    }

    /// The most bytes in use on each device while a step runs: parameters, gradients, optimizer state, batches, what is kept for
    /// the gradients, and what else is there. Nothing is trained; the model cannot be used any more.
    ///
    /// Unless it is the run's only step, batches that are brought meanwhile count, and what is read late of the step before.
    ///
    /// # Errors
    /// Data that cannot be read.
    pub fn planned_memory(mut self) -> Result<Vec<(Device, usize)>, TrainError> {
        let mut loader = self.loader()?;
        let mut next = || loader.next().expect("the loader's sequence has no end");
        let batch = next()?;
        let later = self.settings.length.steps.map_or(u64::MAX, |steps| steps.saturating_sub(self.step + 1));
        // A step is handed over while the one before runs, unless that is waited for, and the next batch before it has ended.
        let brought = later.min(if self.loss_scale.is_some() { 1 } else { 2 });
        // What is brought lies on one device as a whole, until its own step spreads it over the mesh.
        let whole = |batch: Batch| (inputs(&batch, None), labels(&batch, None));
        let _brought = (0..brought).map(|_| next().map(whole)).collect::<Result<Vec<_>, _>>()?;
        self.model.train();
        Ok(plan_only(|| {
            let _before = (later > 0).then(|| self.train(&batch));
            self.train(&batch);
        }))
    }

    /// The most bytes in use on each device while the model is tested, after a step and with batches of so many samples: see
    /// [`Trainer::planned_memory`].
    ///
    /// # Errors
    /// Data that cannot be read.
    pub fn planned_test_memory(mut self, batch_size: usize) -> Result<Vec<(Device, usize)>, TrainError> {
        let batch = self.loader()?.next().expect("the loader's sequence has no end")?;
        self.model.train();
        let mut tested = Ok(());
        let planned = plan_only(|| {
            self.train(&batch);
            forget_peaks();
            let TrainSettings { precision, mesh, .. } = &self.settings;
            let test = || evaluate_some(&self.model, &self.data.test, batch_size, mesh.as_ref());
            tested = autocast(*precision, test).map(|_| ());
        });
        tested.map(|()| planned)
    }

    /// Samples of the test set.
    pub fn test_samples(&self) -> usize {
        self.data.test.len()
    }

    /// How it is trained.
    pub fn settings(&self) -> &TrainSettings {
        &self.settings
    }

    fn loader(&self) -> Result<Loader, TrainError> {
        let has_labels = self.data.train.fields().iter().any(|field| field.name == "label");
        if !has_labels {
            return Err(TrainError::Misfit(format!("the data {:?} has no field \"label\"", self.data.name)));
        }
        let TrainSettings { batch_size, order, .. } = self.settings;
        let options = LoaderOptions { batch_size, order, ..LoaderOptions::default() };
        Ok(Loader::from_position(self.data.train.clone(), options, self.position)?)
    }

    fn is_finished(&self) -> bool {
        let super::Length { epochs, steps } = self.settings.length;
        epochs.is_some_and(|n| self.position.epoch >= n) || steps.is_some_and(|n| self.step >= n)
    }

    /// Whether the settings ask for a checkpoint after the batch that has just been trained.
    fn is_time_to_save(&self, batch: &Batch) -> bool {
        match &self.settings.saving {
            Some(Saving { every: Some(every), .. }) => self.step.is_multiple_of(*every),
            Some(Saving { every: None, .. }) => batch.is_last(),
            None => false,
        }
    }

    /// A step's loss is known.
    fn settle(
        &mut self,
        Settled { step, start }: Settled,
        observer: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        let is_examined = self.is_examined(step.loss_scale);
        let guard = self.guard.as_mut().filter(|_| is_examined);
        if let Some(Err(found)) = guard.map(|guard| guard.settle(&mut *self.optimizer)) {
            (self.step, self.position) = (step.step - 1, start.position);
            if let Some((scaling, before)) = self.loss_scale.as_mut().zip(start.loss_scale) {
                scaling.load_state(before);
            }
            if self.saved != Some(self.step) {
                self.save(observer)?;
            }
            return Err(NonFinite { step: step.step, ..found }.into());
        }
        self.epoch_loss.add(step.loss, step.samples as u64);
        observer(Event::Step(step));
        Ok(())
    }

    /// How well the model does, and how well with averaged weights.
    fn evaluate_both(&self) -> Result<(Evaluation, Option<Evaluation>), TrainError> {
        let averaged = with_averaged(&*self.optimizer, || self.evaluate()).transpose()?;
        Ok((self.evaluate()?, averaged))
    }

    fn finish_epoch(
        &mut self,
        observer: &mut dyn FnMut(Event<'_>),
    ) -> Result<(Evaluation, Option<Evaluation>), TrainError> {
        let (test, averaged) = self.evaluate_both()?;
        let train_loss = std::mem::take(&mut self.epoch_loss).mean();
        observer(Event::Epoch(EpochDone { epoch: self.position.epoch, step: self.step, train_loss, test, averaged }));
        Ok((test, averaged))
    }

    fn save(&mut self, observer: &mut dyn FnMut(Event<'_>)) -> Result<(), TrainError> {
        let Some(Saving { folder, .. }) = &self.settings.saving else { return Ok(()) };
        let state = TrainingState {
            model: self.settings.model.clone(),
            step: self.step,
            position: self.position,
            seed: self.settings.seed,
            precision: self.settings.precision,
            loss_scale: self.loss_scale.as_ref().map(LossScale::state),
            epoch_loss: self.epoch_loss,
            settings: self.settings.recorded.clone(),
        };
        let averaged = with_averaged(&*self.optimizer, || self.model.state());
        let saved = folder.save_with(&state, &self.model.state(), averaged.as_deref(), &self.optimizer.state())?;
        self.saved = Some(self.step);
        observer(Event::Saved { step: self.step, folder: &saved });
        Ok(())
    }
}

/// The first field of a batch.
pub(super) fn inputs(batch: &Batch, mesh: Option<&Mesh>) -> Tensor {
    tensor(batch, &batch.fields()[0].name, mesh)
}

/// The field `label`.
pub(super) fn labels(batch: &Batch, mesh: Option<&Mesh>) -> Tensor {
    tensor(batch, "label", mesh)
}

fn tensor(batch: &Batch, name: &str, mesh: Option<&Mesh>) -> Tensor {
    let shape = batch.shape(name);
    let tensor = match batch.column(name) {
        Some(Column::F32(values)) => Tensor::from_slice(values, &shape),
        Some(Column::I64(values)) => Tensor::from_slice(values, &shape),
        Some(Column::U8(values)) => Tensor::from_slice(values, &shape),
        None => unreachable!("the shape of the field was found"),
    };
    mesh.map_or(tensor.clone(), |mesh| tensor.batch_on(mesh))
}
