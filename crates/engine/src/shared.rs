//! What all parts of an engine have in common: the store, the world, the tasks, and what was read and cannot change.

use crate::{Error, events::Events, options::Options, resources::Resources, task::Tasks};
use onceflow_core::{
    Fences, Key, Row, Shard,
    model::{InstancePath, Program, Wiring},
    protocol::{
        draft::InstalledProgram,
        ids::{FrameId, Generation, RunId},
        keys::Keys,
        rows::{self, Frame, Header, Shape, State},
    },
};
use onceflow_store::{
    Records, World,
    records::get_one,
    values::{self, Values},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};
use tokio::sync::Notify;

/// What all parts of an engine have in common.
pub(crate) struct Shared {
    pub(crate) records: Arc<dyn Records>,
    pub(crate) values: Arc<Values>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) options: Options,
    pub(crate) fences: Fences,
    pub(crate) events: Arc<Events>,
    pub(crate) tasks: Mutex<Arc<Tasks>>,
    /// What tasks take by its type, until the engine closes.
    pub(crate) resources: Mutex<Arc<Resources>>,
    runs: Mutex<BTreeMap<RunId, Arc<Run>>>,
    /// Ring when a run got on: an output arrived, or it ended. Several, so that of a thousand who wait few are woken.
    progress: Box<[Notify]>,
    /// Lists that eaches go over.
    pub(crate) lists: crate::data::Lists,
    /// Small files, for tasks that read them.
    pub(crate) small: Arc<crate::data::SmallFiles>,
    /// Rings when a run was cancelled here, or planned anew.
    pub(crate) look: Notify,
    /// Rings when something new will become due.
    pub(crate) due: Notify,
    /// Runs of which nothing is left, because of this process.
    removed: Mutex<Vec<RunId>>,
    /// Runs whose history ends with them: their last handles are gone.
    pub(crate) abandoned: Mutex<BTreeMap<RunId, String>>,
    closed: AtomicBool,
}

/// A run as far as this process has seen it.
pub(crate) struct Run {
    pub(crate) plan: InstalledProgram,
    pub(crate) header: Header,
    pub(crate) key: Arc<str>,
    state: Mutex<State>,
    frames: Mutex<BTreeMap<FrameId, Arc<Frame>>>,
    places: Mutex<BTreeMap<FrameId, Arc<InstancePath>>>,
}

/// Frames remembered per run. Those of elements and iterations are few: a frame serves all of its instances.
const FRAMES_MAX: usize = 4096;

/// Bells for those who wait for runs.
const BELLS: usize = 256;

/// Runs remembered.
const RUNS_MAX: usize = 4096;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(
        records: Arc<dyn Records>,
        values: Arc<Values>,
        world: Arc<dyn World>,
        mut options: Options,
    ) -> Arc<Self> {
        let resources = Mutex::new(Arc::new(std::mem::take(&mut options.resources)));
        let fences = Fences::new(world.random());
        let small = options.scratch.join(crate::data::scratch_name(fences.incarnation()));
        Arc::new(Shared {
            records,
            values,
            world,
            options,
            fences,
            events: Arc::default(),
            tasks: Mutex::default(),
            resources,
            runs: Mutex::default(),
            progress: (0..BELLS).map(|_| Notify::new()).collect(),
            lists: crate::data::Lists::default(),
            small: crate::data::SmallFiles::new(small),
            look: Notify::new(),
            due: Notify::new(),
            removed: Mutex::default(),
            abandoned: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.due.notify_waiters();
        self.due.notify_one();
        self.ring_all();
    }

    /// Rings for all who wait for any run.
    pub(crate) fn ring_all(&self) {
        self.progress.iter().for_each(Notify::notify_waiters);
    }

    /// Rings when this run got on, and when the engine closes.
    pub(crate) fn progress(&self, run: RunId) -> &Notify {
        // Ids of runs are random.
        &self.progress[usize::from(run.0[0]) % BELLS]
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    pub(crate) fn shard(&self) -> Shard {
        self.options.shard
    }

    /// Why a run is not there: its history has ended, or the store is not the one any more that it was in.
    pub(crate) async fn no_run(&self, key: &str) -> Error {
        match self.records.check_store().await {
            Err(lost @ onceflow_store::Error::Lost(_)) => lost.into(),
            _ => Error::NoRun(key.to_owned()),
        }
    }

    pub(crate) async fn row(&self, key: Key) -> Result<Option<Row>, Error> {
        Ok(get_one(&*self.records, self.shard(), key).await?)
    }

    pub(crate) fn resources(&self) -> Arc<Resources> {
        lock(&self.resources).clone()
    }

    /// The run, as it was last seen.
    pub(crate) fn known(&self, run: RunId) -> Option<Arc<Run>> {
        lock(&self.runs).get(&run).cloned()
    }

    /// The run, read if it is not known or known in another generation; `None` if it has ended.
    pub(crate) async fn run(&self, id: RunId, generation: Option<Generation>) -> Result<Option<Arc<Run>>, Error> {
        if let Some(run) = self.known(id)
            && generation.is_none_or(|generation| run.plan.keys.generation == generation)
        {
            return Ok(Some(run));
        }
        self.read_run(id).await
    }

    /// Reads a run, whatever is known of it.
    pub(crate) async fn read_run(&self, id: RunId) -> Result<Option<Arc<Run>>, Error> {
        loop {
            match self.try_read_run(id).await {
                // It ended, or was planned anew, between its rows and its program: it is looked at again.
                Err(Error::Values(values::Error::Missing { .. })) if self.moved_on(id).await? => {}
                read => return read,
            }
        }
    }

    /// Looks at the state of a run that is known, and at nothing else. False if it has ended, or has another plan.
    pub(crate) async fn see_state(&self, run: &Run) -> Result<bool, Error> {
        let state = self.row(run.plan.keys.state()).await?.as_deref().and_then(rows::read::<State>);
        let state = state.filter(|state| state.generation == run.plan.keys.generation);
        if let Some(state) = state {
            run.set_state(state);
        }
        Ok(state.is_some())
    }

    async fn try_read_run(&self, id: RunId) -> Result<Option<Arc<Run>>, Error> {
        let home = Keys::new(id, Generation(0));
        let found = self.records.get(self.shard(), &[home.state(), home.header()]).await?;
        let [Some(state), Some(header)] = &found[..] else {
            lock(&self.runs).remove(&id);
            return Ok(None);
        };
        let state: State = rows::read(state).ok_or_else(|| Error::damaged(format!("the state of run {id}")))?;
        let header: Header = rows::read(header).ok_or_else(|| Error::damaged(format!("the header of run {id}")))?;
        if let Some(run) = self.known(id)
            && run.plan.keys.generation == state.generation
        {
            *lock(&run.state) = state;
            return Ok(Some(run));
        }
        let program = self.values.read_all(&header.program.id).await?;
        let program: Program =
            rows::read(&program).ok_or_else(|| Error::damaged(format!("the program of run {id}")))?;
        let plan = self.plan(Keys::new(id, state.generation), Arc::new(program));
        Ok(Some(self.remember(plan, header, state)))
    }

    /// Whether a run has ended, or has another plan than its header, read first, said.
    async fn moved_on(&self, id: RunId) -> Result<bool, Error> {
        let home = Keys::new(id, Generation(0));
        let Some(header) = self.row(home.header()).await? else { return Ok(true) };
        let header: Header = rows::read(&header).ok_or_else(|| Error::damaged(format!("the header of run {id}")))?;
        // If its program is there now, the one that was missing was that of an earlier plan.
        Ok(self.values.get(&header.program.id).await.is_ok())
    }

    pub(crate) fn plan(&self, keys: Keys, program: Arc<Program>) -> InstalledProgram {
        let wiring = Arc::new(Wiring::of(&program));
        InstalledProgram::new(self.shard(), keys, program, wiring)
    }

    pub(crate) fn remember(&self, plan: InstalledProgram, header: Header, state: State) -> Arc<Run> {
        let id = plan.keys.run;
        let key = Arc::from(header.key.as_str());
        let run = Arc::new(Run {
            plan,
            header,
            key,
            state: Mutex::new(state),
            frames: Mutex::default(),
            places: Mutex::default(),
        });
        let mut runs = lock(&self.runs);
        while runs.len() >= RUNS_MAX {
            runs.pop_first();
        }
        runs.insert(id, run.clone());
        run
    }

    /// Nothing is left of a run.
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
        let Some(row) = self.row(run.plan.keys.frame(id)).await? else { return Ok(None) };
        let frame = rows::read::<Frame>(&row).ok_or_else(|| Error::damaged(format!("frame {id:?}")))?;
        let frame = Arc::new(frame);
        let mut frames = lock(&run.frames);
        while frames.len() >= FRAMES_MAX {
            frames.pop_first();
        }
        frames.insert(id, frame.clone());
        Ok(Some(frame))
    }

    /// Where an instance is, for people; and for the key of a step, so a frame that has gone is no reason to guess: whoever
    /// asks is not the one who has the step any more.
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

    /// Where a frame is: what all of its instances have in common.
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

/// A frame that a step stands in is not there: the step is somebody else's now, or rows were lost.
fn gone(id: FrameId) -> Error {
    Error::damaged(format!("frame {id:?}, which is missing"))
}

impl Run {
    pub(crate) fn state(&self) -> State {
        *lock(&self.state)
    }

    pub(crate) fn set_state(&self, state: State) {
        *lock(&self.state) = state;
    }

    pub(crate) fn forget_frame(&self, id: FrameId) {
        lock(&self.frames).remove(&id);
        lock(&self.places).remove(&id);
    }
}
