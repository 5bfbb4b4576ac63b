//! Calls that records cause, as a partition sees them. **A call begins when the commit with its record is durable, and is
//! forgotten when the commit with its result is.** Until then the watermark stays at its record.

use super::{
    bundle::Bundle,
    cells::Cells,
    control::StreamControl,
    keys::{Station, StreamKeys},
    outbox::Effect,
    partition::{Partition, Program, SHARD, Stop},
};
use crate::{
    data::BadValue,
    event_time::EventTime,
    pipeline::call::{CallId, RecordCall},
    step::{CALL, CALLED},
};
use onceflow_core::{Key, Name, Row, limits::SCAN_ROWS_MAX};
use onceflow_store::{World, records::Scan};
use std::sync::Arc;

/// The parts of its partition that a call is given.
pub(crate) struct CallContext {
    pub(crate) world: Arc<dyn World>,
    pub(crate) control: StreamControl,
    keys: StreamKeys,
    station: Station,
}

impl CallContext {
    /// The call whose row has this name in the partition's state.
    pub(crate) fn call(&self, id: CallId, name: Name) -> RecordCall {
        RecordCall { id, open_row: Key { group: self.keys.state(self.station), name }, world: self.world.clone() }
    }
}

/// The calls of a stage's program.
pub(crate) trait Calls: Send {
    /// Takes in the row of an open call, or of one to be forgotten.
    fn load(&mut self, name: &Name, row: &Row) -> Result<(), BadValue>;

    /// Returns the earliest time of a record whose call is open.
    fn hold(&self) -> Option<EventTime>;

    /// No call is open, and none is to be forgotten.
    fn is_settled(&self) -> bool;

    /// Takes results into the bundle, and forgets what the target has forgotten; true if there was any.
    fn take_news(&mut self, bundle: &mut Bundle, cells: &mut Cells) -> bool;

    /// Takes the calls that the bundle has opened, and those that it has ended.
    fn take_fresh(&mut self) -> (Vec<CallId>, Vec<CallId>);

    /// Begins calls whose records are durable.
    fn begin(&mut self, ids: Vec<CallId>, context: &CallContext);

    /// Lets the target forget calls whose results are durable.
    fn forget(&mut self, ids: Vec<CallId>, context: &CallContext);
}

impl Partition {
    pub(super) fn calls(&mut self) -> Option<&mut dyn Calls> {
        match &mut self.program {
            Program::Stage(program) => program.calls(),
            Program::Source(_) => None,
        }
    }

    /// A call is open, or is to be forgotten.
    pub(crate) fn is_calling(&mut self) -> bool {
        self.calls().is_some_and(|calls| !calls.is_settled())
    }

    /// Takes results of calls into the bundle; true if there was any.
    pub(super) fn take_call_news(&mut self) -> bool {
        match &mut self.program {
            Program::Stage(program) => {
                program.calls().is_some_and(|calls| calls.take_news(&mut self.bundle, &mut self.cells))
            }
            Program::Source(_) => false,
        }
    }

    /// The calls that this commit opens and ends, to be begun and forgotten when it is durable.
    pub(super) fn call_effect(&mut self) -> Option<Effect> {
        let (opened, ended) = self.calls()?.take_fresh();
        (!opened.is_empty() || !ended.is_empty()).then_some(Effect::Call { opened, ended })
    }

    pub(super) fn begin_calls(&mut self, opened: Vec<CallId>, ended: Vec<CallId>) {
        let runtime = &self.runtime;
        let context = CallContext {
            world: runtime.world.clone(),
            control: runtime.control.clone(),
            keys: runtime.keys.clone(),
            station: self.station,
        };
        let Some(calls) = self.calls() else { return };
        calls.begin(opened, &context);
        calls.forget(ended, &context);
    }

    /// Reads the open calls after a restart; each is started again under its id, which starts it once.
    pub(super) async fn load_calls(&mut self) -> Result<(), Stop> {
        if self.calls().is_none() {
            return Ok(());
        }
        for tag in [CALL, CALLED] {
            let mut after = None;
            loop {
                let scan = Scan::of(self.runtime.keys.state(self.station), SCAN_ROWS_MAX).prefix([tag]).after(after);
                let page = self.runtime.records.scan(SHARD, scan).await?;
                after = page.rows.last().map(|(name, _)| name.clone());
                for (name, row) in &page.rows {
                    self.calls().expect("there are calls").load(name, row)?;
                }
                if !page.more {
                    break;
                }
            }
        }
        let effects = self.call_effect().into_iter().collect();
        self.outbox.committed(self.runtime.records.position(), effects);
        Ok(())
    }
}
