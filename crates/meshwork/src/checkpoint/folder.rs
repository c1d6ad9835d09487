//! The folder of a training run with its last checkpoints.

use super::manifest::{self, Manifest};
use super::state::{OptimizerNumbers, Stored};
use super::{CheckpointError, Result, TrainingState, disk, weights};
use crate::Tensor;
use crate::nn::Module;
use crate::optim::{Optimizer, OptimizerState};
use std::fs;
use std::path::{Path, PathBuf};

const MODEL: &str = "model.safetensors";
const AVERAGED: &str = "ema.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";
const LATEST: &str = "latest";

/// Where a training run saves its checkpoints. The last two are kept.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder at `path`; it is made when something is saved.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder { path: path.into() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes sure that a new run can save here.
    ///
    /// # Errors
    /// [`CheckpointError::Occupied`] when there is a checkpoint already, [`CheckpointError::NoCheckpoint`] when the
    /// path is a file.
    pub fn claim(&self) -> Result<()> {
        if self.path.exists() && !self.path.is_dir() {
            return Err(self.no_checkpoint("is a file; name a folder to save to"));
        }
        if let Some(&(step, _)) = self.steps()?.last() {
            return Err(CheckpointError::Occupied { path: self.path.clone(), step });
        }
        match self.path.join(MODEL).exists() {
            true => Err(self.no_checkpoint("holds a model.safetensors of something else; name another folder")),
            false => Ok(()),
        }
    }

    /// Saves a checkpoint and makes it the newest; returns its folder. Whenever the process dies, the newest
    /// checkpoint is either this one or the one before, and whole.
    ///
    /// # Errors
    /// [`CheckpointError::Io`]. A checkpoint is whole and the newest then, this one or the one before.
    pub fn save(
        &self,
        state: &TrainingState,
        model: &[(String, Tensor)],
        optimizer: &OptimizerState,
    ) -> Result<PathBuf> {
        self.save_with(state, model, None, optimizer)
    }

    /// As [`Folder::save`], with averaged weights in a file of their own.
    ///
    /// # Errors
    /// As [`Folder::save`].
    pub fn save_with(
        &self,
        state: &TrainingState,
        model: &[(String, Tensor)],
        averaged: Option<&[(String, Tensor)]>,
        optimizer: &OptimizerState,
    ) -> Result<PathBuf> {
        disk::make_folder(&self.path)?;
        let before = self.latest().ok();
        self.remove_leftovers()?;

        let name = self.free_name(state.step);
        let folder = self.path.join(&name);
        let unfinished = disk::beside(&folder);
        disk::make_folder(&unfinished)?;
        let state = manifest::to_json(&Stored { run: state.clone(), optimizer: OptimizerNumbers::of(optimizer) });
        let (model, optimizer) = (weights::to_bytes(model), weights::to_bytes(&optimizer.tensors));
        let averaged = averaged.map(weights::to_bytes);
        let mut files = vec![(MODEL, model.as_slice()), (OPTIMIZER, &optimizer), (STATE, &state)];
        files.extend(averaged.as_ref().map(|bytes| (AVERAGED, bytes.as_slice())));
        for &(name, bytes) in &files {
            disk::write(&unfinished.join(name), bytes)?;
        }
        Manifest::of(&files).save(&unfinished)?;
        disk::sync_folder(&unfinished)?;

        disk::rename(&unfinished, &folder)?;
        disk::replace(&self.path.join(LATEST), format!("{name}\n").as_bytes())?;
        disk::replace_by_link(&self.path.join(MODEL), &folder.join(MODEL))?;
        if averaged.is_some() {
            disk::replace_by_link(&self.path.join(AVERAGED), &folder.join(AVERAGED))?;
        }
        self.keep(&[Some(folder.clone()), before])?;
        Ok(folder)
    }

    /// Reads the newest checkpoint, and checks all of it. `path` may also be a single checkpoint (`run/step-100`).
    ///
    /// # Errors
    /// [`CheckpointError::NoCheckpoint`] where there is none; [`CheckpointError::Broken`] where the newest one is
    /// damaged, which also names an older one that is intact.
    pub fn load(&self) -> Result<Checkpoint> {
        if !self.path.exists() {
            return Err(self.no_checkpoint("does not exist; name the folder that a run was saved to"));
        }
        if !self.path.is_dir() {
            return Err(self.no_checkpoint("is a file; name the folder that a run was saved to"));
        }
        if self.path.join(manifest::NAME).exists() {
            return Checkpoint::read(&self.path);
        }
        let broken = |cause: CheckpointError, newest: Option<&Path>| {
            let steps = self.steps().unwrap_or_default();
            let others = steps.into_iter().rev().map(|(_, path)| path).filter(|path| Some(path.as_path()) != newest);
            let intact = others.into_iter().find(|path| Checkpoint::read(path).is_ok());
            CheckpointError::Broken { cause: Box::new(cause), intact }
        };
        match self.latest() {
            Ok(newest) => Checkpoint::read(&newest).map_err(|e| broken(e, Some(&newest))),
            Err(_) if self.steps()?.is_empty() => Err(self.no_checkpoint(
                "holds no checkpoint (no file \"latest\" and no folder \"step-N\"); name the folder that a run was saved to",
            )),
            Err(cause) => Err(broken(cause, None)),
        }
    }

    fn no_checkpoint(&self, problem: &str) -> CheckpointError {
        CheckpointError::NoCheckpoint { path: self.path.clone(), problem: problem.to_string() }
    }

    /// The newest checkpoint's folder.
    fn latest(&self) -> Result<PathBuf> {
        let path = self.path.join(LATEST);
        let text = fs::read_to_string(&path).map_err(CheckpointError::io("read", &path))?;
        let name = text.trim_end();
        if step_of(name).is_none() {
            let problem = format!("{name:?} is not the name of a checkpoint, such as \"step-100\"");
            return Err(CheckpointError::Text { path, line: 1, column: 1, problem });
        }
        Ok(self.path.join(name))
    }

    /// All checkpoints by step, oldest first.
    fn steps(&self) -> Result<Vec<(u64, PathBuf)>> {
        let mut found: Vec<(u64, PathBuf)> =
            self.entries()?.into_iter().filter_map(|(name, path)| Some((step_of(&name)?, path))).collect();
        found.sort();
        Ok(found)
    }

    fn entries(&self) -> Result<Vec<(String, PathBuf)>> {
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        let list = || {
            fs::read_dir(&self.path)?.map(|e| e.map(|e| (e.file_name(), e.path()))).collect::<std::io::Result<Vec<_>>>()
        };
        let entries = list().map_err(CheckpointError::io("list", &self.path))?;
        Ok(entries.into_iter().filter_map(|(name, path)| Some((name.into_string().ok()?, path))).collect())
    }

    /// `step-100`, or `step-100-2` where a run that was resumed further back has been there before.
    fn free_name(&self, step: u64) -> String {
        let first = format!("step-{step}");
        let later = (2..).map(|n| format!("step-{step}-{n}"));
        std::iter::once(first).chain(later).find(|name| !self.path.join(name).exists()).expect("names are endless")
    }

    fn remove_leftovers(&self) -> Result<()> {
        let leftovers = self.entries()?.into_iter().filter(|(name, _)| name.starts_with(disk::TEMPORARY));
        leftovers.into_iter().try_for_each(|(_, path)| disk::remove(&path))
    }

    /// Removes all checkpoints but these. What is being removed no longer looks like a checkpoint.
    fn keep(&self, kept: &[Option<PathBuf>]) -> Result<()> {
        for (_, path) in self.steps()? {
            if !kept.iter().flatten().any(|k| *k == path) {
                let doomed = disk::beside(&path);
                disk::rename(&path, &doomed)?;
                disk::remove(&doomed)?;
            }
        }
        Ok(())
    }
}

/// The step of a checkpoint named `step-100` or `step-100-2`.
fn step_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix("step-")?;
    let (step, again) = number.split_once('-').unwrap_or((number, "2"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits(step) && digits(again) { step.parse().ok() } else { None }
}

/// A checkpoint that has been read and checked.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    state: TrainingState,
    model: Vec<(String, Tensor)>,
    averaged: Option<Vec<(String, Tensor)>>,
    optimizer: OptimizerState,
}

impl Checkpoint {
    /// Reads one checkpoint (`run/step-100`), and checks all of it.
    fn read(folder: &Path) -> Result<Checkpoint> {
        let manifest = Manifest::load(folder)?;
        let tensors = |name| weights::from_bytes(&manifest.read(folder, name)?, &folder.join(name));
        let stored: Stored = manifest::from_json(&manifest.read(folder, STATE)?, &folder.join(STATE))?;
        Ok(Checkpoint {
            folder: folder.to_owned(),
            state: stored.run,
            model: tensors(MODEL)?,
            averaged: manifest.lists(AVERAGED).then(|| tensors(AVERAGED)).transpose()?,
            optimizer: stored.optimizer.with(tensors(OPTIMIZER)?),
        })
    }

    /// Where it was read from.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the run stood.
    pub fn state(&self) -> &TrainingState {
        &self.state
    }

    /// The weights, by name.
    pub fn model(&self) -> &[(String, Tensor)] {
        &self.model
    }

    /// The averaged weights, by name, if weights were averaged.
    pub fn averaged(&self) -> Option<&[(String, Tensor)]> {
        self.averaged.as_deref()
    }

    /// Gives the averaged weights to a model; false, and the model unchanged, if weights were not averaged.
    ///
    /// # Errors
    /// As [`Checkpoint::load_model`].
    pub fn load_averaged(&self, module: &dyn Module) -> Result<bool> {
        let Some(averaged) = &self.averaged else { return Ok(false) };
        weights::fit(&self.folder.join(AVERAGED), module, averaged.clone()).map(|()| true)
    }

    /// The optimizer's state.
    pub fn optimizer(&self) -> &OptimizerState {
        &self.optimizer
    }

    /// Gives the weights to a model.
    ///
    /// # Errors
    /// [`CheckpointError::Misfit`] for other names or shapes; the model is unchanged then.
    pub fn load_model(&self, module: &dyn Module) -> Result<()> {
        weights::fit(&self.folder.join(MODEL), module, self.model.clone())
    }

    /// Gives its state to an optimizer.
    ///
    /// # Errors
    /// [`CheckpointError::OtherRun`] for another kind of optimizer, or one of other parameters; it is unchanged then.
    pub fn load_optimizer(&self, optimizer: &mut dyn Optimizer) -> Result<()> {
        optimizer.load_state(self.optimizer.clone()).map_err(|e| {
            let problem = format!("{}; resume with the settings of the saved run", e.to_string().replace("\n ", ";"));
            CheckpointError::OtherRun { path: self.folder.join(OPTIMIZER), problem }
        })
    }
}
