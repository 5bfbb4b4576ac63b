//! The runs that this process works on or is asked about: read from the store, and cached as far as their rows cannot
//! change.

use crate::{Error, kernel::Kernel, shared::lock};
use onceflow_core::{
    model::{InstancePath, Program, Wiring},
    protocol::{
        draft::InstalledProgram,
        ids::{FrameId, Generation, RunId},
        keys::Keys,
        rows::{self, Frame, Header, RunState, Shape},
        settings::Settings,
    },
};
use onceflow_store::values;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// The cache of runs.
pub(crate) struct Runs {
    kernel: Arc<Kernel>,
    runs: Mutex<BTreeMap<RunId, Arc<Run>>>,
    /// Runs that this process has removed.
    removed: Mutex<Vec<RunId>>,
}

/// A run, as this process has last read it.
pub(crate) struct Run {
    pub(crate) plan: InstalledProgram,
    pub(crate) header: Header,
    pub(crate) key: Arc<str>,
    state: Mutex<RunState>,
    frames: Mutex<BTreeMap<FrameId, Arc<Frame>>>,
    places: Mutex<BTreeMap<FrameId, Arc<InstancePath>>>,
}

/// Frames cached per run. A frame serves all its elements or iterations, so there are few.
const FRAMES_MAX: usize = 4096;

/// Runs cached.
const RUNS_MAX: usize = 4096;

impl Runs {
    pub(crate) fn new(kernel: Arc<Kernel>) -> Self {
        Runs { kernel, runs: Mutex::default(), removed: Mutex::default() }
    }

    /// The cached run.
    pub(crate) fn known(&self, run: RunId) -> Option<Arc<Run>> {
        lock(&self.runs).get(&run).cloned()
    }

    /// The run, read if it is not cached or cached in another generation; `None` if it has ended.
    pub(crate) async fn run(&self, id: RunId, generation: Option<Generation>) -> Result<Option<Arc<Run>>, Error> {
        if let Some(run) = self.known(id)
            && generation.is_none_or(|generation| run.plan.keys.generation == generation)
        {
            return Ok(Some(run));
        }
        self.read_run(id).await
    }

    /// Reads a run, whatever is cached.
    pub(crate) async fn read_run(&self, id: RunId) -> Result<Option<Arc<Run>>, Error> {
        loop {
            match self.try_read_run(id).await {
                // The run ended, or got a new plan, between the reads of its rows and its program: it is read again.
                Err(Error::Values(values::Error::Missing { .. })) if self.moved_on(id).await? => {}
                read => return read,
            }
        }
    }

    /// Reads the state of a cached run, and nothing else. False if the run has ended, or has another generation.
    pub(crate) async fn see_state(&self, run: &Run) -> Result<bool, Error> {
        let state = self.kernel.row(run.plan.keys.state()).await?.as_deref().and_then(rows::read::<RunState>);
        let Some(state) = state.filter(|state| state.generation == run.plan.keys.generation) else { return Ok(false) };
        let is_read = self.read_settings(&run.plan, state).await?;
        if is_read {
            run.set_state(state);
        }
        Ok(is_read)
    }

    async fn try_read_run(&self, id: RunId) -> Result<Option<Arc<Run>>, Error> {
        let home = Keys::new(id, Generation(0));
        let found = self.kernel.records.get(self.kernel.shard, &[home.state(), home.header()]).await?;
        let [Some(state), Some(header)] = &found[..] else {
            lock(&self.runs).remove(&id);
            return Ok(None);
        };
        let state: RunState = rows::read(state).ok_or_else(|| Error::damaged(format!("the state of run {id}")))?;
        let header: Header = rows::read(header).ok_or_else(|| Error::damaged(format!("the header of run {id}")))?;
        if let Some(run) = self.known(id)
            && run.plan.keys.generation == state.generation
        {
            if !self.read_settings(&run.plan, state).await? {
                return self.read_without_settings(id, state).await;
            }
            run.set_state(state);
            return Ok(Some(run));
        }
        let program = self.kernel.values.read_all(&header.program.id).await?;
        let program: Program =
            rows::read(&program).ok_or_else(|| Error::damaged(format!("the program of run {id}")))?;
        let plan = self.plan(Keys::new(id, state.generation), Arc::new(program));
        if !self.read_settings(&plan, state).await? {
            return self.read_without_settings(id, state).await;
        }
        Ok(Some(self.remember(plan, header, state)))
    }

    /// Reads the settings that a state names, unless they are known. False if they are gone, and the generation with
    /// them.
    pub(crate) async fn read_settings(&self, plan: &InstalledProgram, state: RunState) -> Result<bool, Error> {
        if plan.settings().revision >= state.settings {
            return Ok(true);
        }
        let Some(row) = self.kernel.row(plan.keys.settings()).await? else { return Ok(false) };
        let settings: Settings = rows::read(&row).ok_or_else(|| Error::damaged("the settings of a run"))?;
        assert!(settings.revision >= state.settings, "the row of settings is older than the state that names it");
        plan.set_settings(settings);
        Ok(true)
    }

    /// Reads a run again whose settings were not there: it has ended, or got a new plan, since its state was read.
    async fn read_without_settings(&self, id: RunId, seen: RunState) -> Result<Option<Arc<Run>>, Error> {
        let now = self.kernel.row(Keys::new(id, Generation(0)).state()).await?;
        match now.as_deref().and_then(rows::read::<RunState>) == Some(seen) {
            true => Err(Error::damaged(format!("the settings of run {id}"))),
            false => Box::pin(self.try_read_run(id)).await,
        }
    }

    /// The run has ended, or got another program since its header was read.
    async fn moved_on(&self, id: RunId) -> Result<bool, Error> {
        let home = Keys::new(id, Generation(0));
        let Some(header) = self.kernel.row(home.header()).await? else { return Ok(true) };
        let header: Header = rows::read(&header).ok_or_else(|| Error::damaged(format!("the header of run {id}")))?;
        // If its program is there now, the one that was missing was that of an earlier plan.
        Ok(self.kernel.values.get(&header.program.id).await.is_ok())
    }

    pub(crate) fn plan(&self, keys: Keys, program: Arc<Program>) -> InstalledProgram {
        let wiring = Arc::new(Wiring::of(&program));
        InstalledProgram::new(self.kernel.shard, keys, program, wiring)
    }

    pub(crate) fn remember(&self, plan: InstalledProgram, header: Header, state: RunState) -> Arc<Run> {
        let run = Run::new(plan, header, state);
        self.cache(&run);
        run
    }

    pub(crate) fn cache(&self, run: &Arc<Run>) {
        let mut runs = lock(&self.runs);
        while runs.len() >= RUNS_MAX {
            runs.pop_first();
        }
        runs.insert(run.plan.keys.run, run.clone());
    }

    /// Notes that this process removed a run.
    pub(crate) fn was_removed(&self, id: RunId) {
        let mut removed = lock(&self.removed);
        if removed.len() < RUNS_MAX {
            removed.push(id);
        }
    }

    pub(crate) fn take_removed(&self) -> Vec<RunId> {
        std::mem::take(&mut lock(&self.removed))
    }

    pub(crate) fn forget(&self, id: RunId) {
        lock(&self.runs).remove(&id);
    }

    /// A frame of a run; `None` if it is gone.
    pub(crate) async fn frame(&self, run: &Run, id: FrameId) -> Result<Option<Arc<Frame>>, Error> {
        if let Some(frame) = lock(&run.frames).get(&id) {
            return Ok(Some(frame.clone()));
        }
        let Some(row) = self.kernel.row(run.plan.keys.frame(id)).await? else { return Ok(None) };
        let frame = rows::read::<Frame>(&row).ok_or_else(|| Error::damaged(format!("frame {id:?}")))?;
        let frame = Arc::new(frame);
        let mut frames = lock(&run.frames);
        while frames.len() >= FRAMES_MAX {
            frames.pop_first();
        }
        frames.insert(id, frame.clone());
        Ok(Some(frame))
    }

    /// The address of an instance. Keys of steps are made from it, so a missing frame is an error and no reason to
    /// guess: another worker has the step by then.
    pub(crate) async fn place(&self, run: &Run, id: FrameId, index: u32) -> Result<InstancePath, Error> {
        let outer = self.outer_place(run, id).await?;
        let frame = self.frame(run, id).await?.ok_or_else(|| gone(id))?;
        Ok(match (frame.shape, self.opener(run, &frame)) {
            (Shape::Each(_), _) | (_, Some(onceflow_core::model::program::NodeOp::Loop { .. })) => {
                outer.numbered(u64::from(index))
            }
            _ => (*outer).clone(),
        })
    }

    fn opener<'a>(&self, run: &'a Run, frame: &Frame) -> Option<&'a onceflow_core::model::program::NodeOp> {
        let (step, block) = frame.opened_by?;
        Some(&run.plan.program.blocks[block as usize].nodes[step.node as usize].op)
    }

    /// The address of a frame, which all its instances share.
    async fn outer_place(&self, run: &Run, id: FrameId) -> Result<Arc<InstancePath>, Error> {
        // From the inside out, then back: a flow may call itself a thousand deep.
        let (mut inside, mut at) = (Vec::new(), id);
        let mut place = loop {
            if let Some(place) = lock(&run.places).get(&at) {
                break place.clone();
            }
            match self.frame(run, at).await? {
                Some(frame) if frame.opened_by.is_some() => {
                    inside.push((at, frame.clone()));
                    at = frame.opened_by.expect("just tested").0.frame;
                }
                Some(_) => break Arc::new(InstancePath::root()),
                None => return Err(gone(at)),
            }
        };
        let mut around = at;
        while let Some((id, frame)) = inside.pop() {
            let (step, block) = frame.opened_by.expect("only such frames are gathered");
            let outer = self.frame(run, around).await?.ok_or_else(|| gone(around))?;
            let numbered = match (outer.shape, self.is_loop(run, &outer)) {
                (Shape::Each(_), _) | (_, true) => place.numbered(u64::from(step.index)),
                _ => (*place).clone(),
            };
            let node = &run.plan.program.blocks[block as usize].nodes[step.node as usize];
            let next = match node.op {
                onceflow_core::model::program::NodeOp::Call { .. } => numbered.called(node),
                _ => numbered,
            };
            place = Arc::new(next);
            let mut places = lock(&run.places);
            while places.len() >= FRAMES_MAX {
                places.pop_first();
            }
            places.insert(id, place.clone());
            around = id;
        }
        Ok(place)
    }

    fn is_loop(&self, run: &Run, frame: &Frame) -> bool {
        matches!(self.opener(run, frame), Some(onceflow_core::model::program::NodeOp::Loop { .. }))
    }
}

/// The error for the missing frame of a step: another worker has the step, or rows were lost.
fn gone(id: FrameId) -> Error {
    Error::damaged(format!("frame {id:?}, which is missing"))
}

impl Run {
    pub(crate) fn new(plan: InstalledProgram, header: Header, state: RunState) -> Arc<Self> {
        let key = Arc::from(header.key.as_str());
        let (state, frames, places) = (Mutex::new(state), Mutex::default(), Mutex::default());
        Arc::new(Run { plan, header, key, state, frames, places })
    }

    /// After a failure, steps that do not depend on it continue.
    pub(crate) fn finish_independent(&self) -> bool {
        self.plan.settings().finish_independent.unwrap_or(self.header.finish_independent)
    }

    pub(crate) fn state(&self) -> RunState {
        *lock(&self.state)
    }

    /// Sets the state. The settings that it names must have been read: see [`Runs::read_settings`].
    pub(crate) fn set_state(&self, state: RunState) {
        let (settings, own) = (self.plan.settings().revision, self.plan.keys.generation);
        assert_eq!(state.generation, own, "run `{}` is given the state of another generation", self.key);
        assert!(settings >= state.settings, "settings {} of run `{}` were not read", state.settings, self.key);
        *lock(&self.state) = state;
    }

    pub(crate) fn forget_frame(&self, id: FrameId) {
        lock(&self.frames).remove(&id);
        lock(&self.places).remove(&id);
    }
}
