//! The step that calls something outside for each record. The record is a row until its result is committed; a second
//! row then stays until the target has forgotten the call. So a crash finds every call again, and loses no history.

use super::{CALL, CALLED};
use crate::{
    data::{self, BadValue, StreamData},
    event_time::EventTime,
    pipeline::call::{CallFailure, CallId, CallTarget},
    run::{
        bundle::Bundle,
        calls::{CallContext, Calls},
        cells::Cells,
        chain::{AnyPush, BoxPush, Last, StageProgram, any, named},
    },
};
use futures_util::future::{AbortHandle, abortable};
use onceflow_core::{Name, Row};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

/// Sends records to any partition, equal ones to the same.
pub(crate) fn spread_sender<T: StreamData>(edge: usize) -> AnyPush {
    let mut value = Vec::new();
    any::<T>(Last(move |bundle: &mut Bundle, record: T, time| {
        value.clear();
        value = data::encode_into(std::mem::take(&mut value), &record);
        let key = xxhash_rust::xxh3::xxh3_64(&value).to_be_bytes();
        bundle.send(edge, &key, &value, time);
    }))
}

/// Open calls of a partition, at most: their records are in memory, and their ids are made by number.
const CALLS_MAX: usize = 10_000;

struct OpenCall<T> {
    time: EventTime,
    /// The record, until the call begins.
    record: Option<T>,
    abort: Option<AbortHandle>,
}

/// News of calls, for the partition's next bundle.
enum CallNews<U> {
    Result(CallId, Result<U, CallFailure>),
    Forgotten(CallId),
}

type Mailbox<U> = Arc<Mutex<Vec<CallNews<U>>>>;

/// The program of a stage that calls.
pub(crate) struct CallProgram<T, C: CallTarget<T>> {
    target: Arc<C>,
    calls_max: usize,
    open: BTreeMap<CallId, OpenCall<T>>,
    /// Calls whose result is committed, and which the target is to forget.
    ended: BTreeMap<CallId, Option<AbortHandle>>,
    /// Calls that the bundle under way has opened and ended.
    fresh: (Vec<CallId>, Vec<CallId>),
    mailbox: Mailbox<C::Out>,
    name: Vec<u8>,
    next: BoxPush<C::Out>,
}

impl<T, C: CallTarget<T>> CallProgram<T, C> {
    pub(crate) fn new(target: Arc<C>, calls_max: usize, next: BoxPush<C::Out>) -> Self {
        CallProgram {
            target,
            calls_max: calls_max.clamp(1, CALLS_MAX),
            open: BTreeMap::new(),
            ended: BTreeMap::new(),
            fresh: (Vec::new(), Vec::new()),
            mailbox: Mailbox::default(),
            name: Vec::new(),
            next,
        }
    }

    fn row_name(&mut self, tag: u8, id: CallId) -> Name {
        named(&mut self.name, tag, &[], &id.0);
        Name::new(&self.name)
    }
}

impl<T, C: CallTarget<T>> Drop for CallProgram<T, C> {
    fn drop(&mut self) {
        let open = self.open.values().filter_map(|call| call.abort.as_ref());
        open.chain(self.ended.values().flatten()).for_each(AbortHandle::abort);
    }
}

impl<T: StreamData, C: CallTarget<T>> StageProgram for CallProgram<T, C> {
    fn offer(
        &mut self,
        bundle: &mut Bundle,
        cells: &mut Cells,
        _: usize,
        _: &[u8],
        value: &[u8],
        time: EventTime,
    ) -> Result<(), BadValue> {
        let (id, record) = (CallId(bundle.unique_id()), data::decode(value)?);
        let name = self.row_name(CALL, id);
        cells.put_raw(name, Some(Row::from([&time.to_sortable()[..], value].concat())));
        self.open.insert(id, OpenCall { time, record: Some(record), abort: None });
        self.fresh.0.push(id);
        Ok(())
    }

    fn run(&mut self, _: &mut Bundle, _: &mut Cells) -> Result<(), BadValue> {
        Ok(())
    }

    fn flush(&mut self, bundle: &mut Bundle) {
        self.next.flush(bundle);
    }

    fn is_full(&self) -> bool {
        self.open.len() + self.ended.len() >= self.calls_max
    }

    fn calls(&mut self) -> Option<&mut dyn Calls> {
        Some(self)
    }
}

impl<T: StreamData, C: CallTarget<T>> Calls for CallProgram<T, C> {
    fn load(&mut self, name: &Name, row: &Row) -> Result<(), BadValue> {
        let (tag, id) = name.as_bytes().split_first().expect("a row of state has a tag");
        let id = CallId(data::fixed(id)?);
        if *tag == CALLED {
            self.ended.insert(id, None);
            self.fresh.1.push(id);
            return Ok(());
        }
        let (time, value) = row.split_at_checked(8).unwrap_or_default();
        let time = EventTime::from_sortable(&data::fixed::<8>(time)?).expect("eight bytes are a time");
        self.open.insert(id, OpenCall { time, record: Some(data::decode(value)?), abort: None });
        self.fresh.0.push(id);
        Ok(())
    }

    fn hold(&self) -> Option<EventTime> {
        self.open.values().map(|call| call.time).min()
    }

    fn is_settled(&self) -> bool {
        self.open.is_empty() && self.ended.is_empty()
    }

    fn take_news(&mut self, bundle: &mut Bundle, cells: &mut Cells) -> bool {
        let news = std::mem::take(&mut *self.mailbox.lock().unwrap_or_else(PoisonError::into_inner));
        let has_news = !news.is_empty();
        for news in news {
            match news {
                CallNews::Forgotten(id) => {
                    self.ended.remove(&id);
                    let name = self.row_name(CALLED, id);
                    cells.put_raw(name, None);
                }
                CallNews::Result(id, Err(CallFailure::Unwanted)) => {
                    // The row is gone, so the partition is another worker's, and this bundle will be refused.
                    tracing::info!(%id, "another worker has the result of a call");
                }
                CallNews::Result(id, result) => {
                    let Some(call) = self.open.remove(&id) else { continue };
                    let name = self.row_name(CALL, id);
                    cells.put_raw(name, None);
                    match result {
                        Ok(record) => {
                            let name = self.row_name(CALLED, id);
                            cells.put_raw(name, Some(Row::default()));
                            self.ended.insert(id, None);
                            self.fresh.1.push(id);
                            self.next.push(bundle, record, call.time);
                        }
                        Err(CallFailure::Skip) => bundle.skipped += 1,
                        Err(CallFailure::Stop(error)) => bundle.fail(error),
                        Err(CallFailure::Unwanted) => unreachable!("it was handled above"),
                    }
                }
            }
        }
        has_news
    }

    fn take_fresh(&mut self) -> (Vec<CallId>, Vec<CallId>) {
        std::mem::take(&mut self.fresh)
    }

    fn begin(&mut self, ids: Vec<CallId>, context: &CallContext) {
        for id in ids {
            let name = self.row_name(CALL, id);
            let Some(open) = self.open.get_mut(&id) else { continue };
            let Some(record) = open.record.take() else { continue };
            let called = self.target.call(context.call(id, name), record);
            let (called, abort) = abortable(called);
            open.abort = Some(abort);
            let (mailbox, control) = (self.mailbox.clone(), context.control.clone());
            let waiting = async move {
                let Ok(result) = called.await else { return };
                mailbox.lock().unwrap_or_else(PoisonError::into_inner).push(CallNews::Result(id, result));
                control.ring();
            };
            context.world.spawn("onceflow stream call", Box::pin(waiting));
        }
    }

    fn forget(&mut self, ids: Vec<CallId>, context: &CallContext) {
        for id in ids.into_iter().collect::<BTreeSet<_>>() {
            let name = self.row_name(CALLED, id);
            let Some(handle) = self.ended.get_mut(&id) else { continue };
            let (forgotten, abort) = abortable(self.target.forget(context.call(id, name)));
            *handle = Some(abort);
            let (mailbox, control) = (self.mailbox.clone(), context.control.clone());
            let waiting = async move {
                let Ok(()) = forgotten.await else { return };
                mailbox.lock().unwrap_or_else(PoisonError::into_inner).push(CallNews::Forgotten(id));
                control.ring();
            };
            context.world.spawn("onceflow stream call to forget", Box::pin(waiting));
        }
    }
}
