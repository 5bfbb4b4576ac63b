//! Streams with their types.

use super::{
    Pipeline, StepNode, StepWork, Steps, add,
    call::CallTarget,
    facts,
    sink::{SinkPart, StreamSink},
    source::{StreamSource, open_split},
    type_name::{name_of, outer_name_of},
};
use crate::{
    catalog::segments::ExternalId,
    combine::Combine,
    data::{self, StreamData},
    error::StreamError,
    event_time::EventTime,
    plan::{StateFact, StepKind},
    run::{
        bundle::Bundle,
        chain::{AnyPush, BoxPush, Each, Last, StageProgram, StatelessProgram, any, fan_out, sender, typed},
    },
    step::{
        KeyedRecord, PaneOutputs, PaneResult,
        call::{CallProgram, spread_sender},
        client_ids::{OncePerId, id_sender},
        combine::CombineProgram,
        join::{Join, JoinRange, Side, decode_side},
        keyed_sender,
        lifted::lifted_sender,
        lookup::LookupProgram,
        process::{KeyedProcess, ProcessProgram},
        session::SessionProgram,
    },
    upgrade::KIND,
    window::Windowing,
};
use std::{
    fmt,
    marker::PhantomData,
    sync::{Arc, PoisonError},
};

/// The reason why a step gives nothing for a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordFailure {
    /// The record is left out, and counted as skipped.
    Skip,
    /// The pipeline stops before the record, with this message; run again, it tries the record again.
    Stop(String),
}

impl RecordFailure {
    fn note(self, bundle: &mut Bundle, step: &str) {
        match self {
            RecordFailure::Skip => bundle.skipped += 1,
            RecordFailure::Stop(message) => bundle.fail(StreamError::Step { name: step.to_owned(), message }),
        }
    }
}

/// A stream of records of one type.
pub struct Stream<T> {
    steps: Steps,
    step: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Stream<T> {
    fn clone(&self) -> Self {
        Stream { steps: self.steps.clone(), step: self.step, of: PhantomData }
    }
}

/// A stream of records with keys: what follows works on each key apart.
pub struct KeyedStream<K, V> {
    keyed: Stream<KeyedRecord<K, V>>,
}

impl<K, V> Clone for KeyedStream<K, V> {
    fn clone(&self) -> Self {
        KeyedStream { keyed: self.keyed.clone() }
    }
}

impl Pipeline {
    /// Adds a source.
    pub fn source<S: StreamSource>(&self, name: &str, source: S) -> Stream<S::Item> {
        let (splits, source, own) = (source.splits(), Arc::new(source), name.to_owned());
        let work = StepWork::Source {
            splits,
            open: Arc::new(move |split, position, next| open_split(&*source, &own, split, position, next)),
        };
        let (fan_out, sender) = (fan_out::<S::Item> as fn(_) -> _, sender::<S::Item> as fn(_) -> _);
        let step =
            self.add(StepNode { facts: facts::<S::Item>(name, StepKind::Source, Vec::new()), work, fan_out, sender });
        let stream = Stream { steps: self.steps.clone(), step, of: PhantomData };
        stream.keeps([StateFact::new(KIND, outer_name_of::<S>())])
    }
}

/// The work of a step that remembers nothing, from a function that makes it.
fn stateless<T: StreamData, U: StreamData, F>(
    make: impl Fn(BoxPush<U>) -> Each<T, U, F> + Send + Sync + 'static,
) -> StepWork
where
    F: FnMut(&mut Bundle, &mut BoxPush<U>, T, EventTime) + Send + 'static,
{
    StepWork::Stateless {
        make: Arc::new(move |next| any::<T>(make(typed::<U>(next)))),
        program: Arc::new(|first| Box::new(StatelessProgram(typed::<T>(first))) as Box<dyn StageProgram>),
    }
}

impl<T> Stream<T> {
    /// Adds what the rows of its step depend on.
    fn keeps(self, facts: impl IntoIterator<Item = StateFact>) -> Self {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps[self.step].facts.state.extend(facts);
        drop(steps);
        self
    }
}

impl<T: StreamData> Stream<T> {
    /// Says something that the state of this step depends on and that its types do not tell: of a source, which bytes its
    /// positions are positions in. A pipeline of the same name goes on with that state only while the value is the same.
    #[must_use]
    pub fn state_depends_on(self, field: &str, value: impl fmt::Display) -> Self {
        self.keeps([StateFact::new(field, value)])
    }

    fn then<U: StreamData>(&self, name: &str, kind: StepKind, inputs: Vec<usize>, work: StepWork) -> Stream<U> {
        let node = StepNode { facts: facts::<U>(name, kind, inputs), work, fan_out: fan_out::<U>, sender: sender::<U> };
        Stream { steps: self.steps.clone(), step: add(&self.steps, node), of: PhantomData }
    }

    /// Turns every record into another one.
    pub fn map<U: StreamData>(&self, name: &str, function: impl Fn(T) -> U + Send + Sync + 'static) -> Stream<U> {
        self.flat_map(name, move |record| [function(record)])
    }

    /// Keeps the records for which the function is true.
    pub fn filter(&self, name: &str, function: impl Fn(&T) -> bool + Send + Sync + 'static) -> Stream<T> {
        self.flat_map(name, move |record| function(&record).then_some(record))
    }

    /// Turns every record into any number of others.
    pub fn flat_map<U: StreamData, I: IntoIterator<Item = U>>(
        &self,
        name: &str,
        function: impl Fn(T) -> I + Send + Sync + 'static,
    ) -> Stream<U> {
        self.try_flat_map(name, move |record| Ok(function(record)))
    }

    /// Turns every record into any number of others, or says that it cannot: then the record is skipped and counted, or
    /// the pipeline stops, as the failure says.
    pub fn try_flat_map<U: StreamData, I: IntoIterator<Item = U>>(
        &self,
        name: &str,
        function: impl Fn(T) -> Result<I, RecordFailure> + Send + Sync + 'static,
    ) -> Stream<U> {
        let (function, step) = (Arc::new(function), Arc::<str>::from(name));
        let work = stateless(move |next| {
            let (function, step) = (function.clone(), step.clone());
            Each::new(next, move |bundle: &mut Bundle, next: &mut BoxPush<U>, record: T, time| match function(record) {
                Ok(records) => records.into_iter().for_each(|record| next.push(bundle, record, time)),
                Err(failure) => failure.note(bundle, &step),
            })
        });
        self.then(name, StepKind::Stateless, vec![self.step], work)
    }

    /// Splits the stream: records for which the function is true, and all others.
    pub fn split(&self, name: &str, function: impl Fn(&T) -> bool + Send + Sync + 'static) -> (Stream<T>, Stream<T>) {
        let function = Arc::new(function);
        let other = function.clone();
        (
            self.filter(name, move |record| function(record)),
            self.filter(&format!("not {name}"), move |record| !other(record)),
        )
    }

    /// Turns every record into a record of one of two streams.
    pub fn divide<A: StreamData, B: StreamData>(
        &self,
        name: &str,
        function: impl Fn(T) -> Side<A, B> + Send + Sync + 'static,
    ) -> (Stream<A>, Stream<B>) {
        self.map(name, function).sides(&format!("{name} left"), &format!("{name} right"))
    }

    /// Turns every record into any number of others, or into a failure, which goes to a stream of its own.
    pub fn flat_map_or_divert<U: StreamData, E: StreamData, I: IntoIterator<Item = U>>(
        &self,
        name: &str,
        function: impl Fn(T) -> Result<I, E> + Send + Sync + 'static,
    ) -> (Stream<U>, Stream<E>) {
        let both = self.flat_map(name, move |record| {
            let (good, bad) = match function(record) {
                Ok(records) => (Some(records), None),
                Err(failure) => (None, Some(failure)),
            };
            good.into_iter().flatten().map(Side::Left).chain(bad.map(Side::Right))
        });
        both.sides(&format!("{name} good"), &format!("{name} errors"))
    }

    /// Passes every record on once, by an id that its client chose: of any number of copies, in any order, the first.
    ///
    /// Ids are remembered until the watermark is `horizon_ms` past their record's time. A record that comes later still
    /// is dropped, whether it is a copy or not: nothing is left to tell. Both are counted (`client_duplicates`,
    /// `client_remnants`). The memory it needs is about two bytes for every id within the horizon, for the filters; the
    /// ids themselves are rows.
    ///
    /// # Panics
    /// If the horizon is not positive.
    pub fn once_per_id<I: AsRef<[u8]>>(
        &self,
        name: &str,
        horizon_ms: i64,
        id: impl Fn(&T) -> I + Send + Sync + 'static,
    ) -> Stream<T> {
        assert!(horizon_ms > 0, "the horizon of `{name}` is not positive");
        let id: Arc<dyn Fn(&T) -> ExternalId + Send + Sync> =
            Arc::new(move |record| ExternalId::of(id(record).as_ref()));
        let program =
            move |next: AnyPush, _| -> Box<dyn StageProgram> { Box::new(OncePerId::<T>::new(horizon_ms, typed(next))) };
        let senders: Vec<Arc<dyn Fn(usize, bool) -> AnyPush + Send + Sync>> =
            vec![Arc::new(move |edge, _| id_sender(id.clone(), edge))];
        let work = StepWork::Stateful { senders, program: Arc::new(program) };
        let facts = [StateFact::new(KIND, "once per id"), StateFact::new("horizon", format!("{horizon_ms} ms"))];
        self.then::<T>(name, StepKind::Stateful, vec![self.step], work).keeps(facts)
    }

    /// Calls something outside for each record; its result is a record with the same time.
    ///
    /// Of every record there is one call, and its result comes once: the call begins when its record is durable, under an
    /// id that stays, and is forgotten when its result is. At most `calls_max` calls of a partition are open at a time;
    /// with more, no records are taken. The watermark waits for open calls.
    pub fn call<C: CallTarget<T>>(&self, name: &str, calls_max: usize, target: C) -> Stream<C::Out> {
        let target = Arc::new(target);
        let program = move |next: AnyPush, _| -> Box<dyn StageProgram> {
            Box::new(CallProgram::<T, C>::new(target.clone(), calls_max, typed(next)))
        };
        let senders: Vec<Arc<dyn Fn(usize, bool) -> AnyPush + Send + Sync>> =
            vec![Arc::new(|edge, _| spread_sender::<T>(edge))];
        let work = StepWork::Stateful { senders, program: Arc::new(program) };
        let facts = [StateFact::new(KIND, "calls"), StateFact::new("records", name_of::<T>())];
        self.then::<C::Out>(name, StepKind::Stateful, vec![self.step], work).keeps(facts)
    }

    /// Starts a stage here: what follows runs apart from what comes before, with its own commits.
    #[must_use]
    pub fn break_stage(&self, name: &str) -> Stream<T> {
        let stream = self.map(name, |record| record);
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps[stream.step].facts.is_break = true;
        drop(steps);
        stream
    }

    /// Brings all records together in one partition, which starts a stage: what follows sees all of them, a file for
    /// example, and no longer works in parallel.
    #[must_use]
    pub fn gather(&self, name: &str) -> Stream<T> {
        let stream = self.map(name, |record| record);
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps[stream.step].facts.kind = StepKind::Gather;
        drop(steps);
        stream
    }

    /// Reads several streams as one.
    #[must_use]
    pub fn merge(&self, name: &str, others: &[Stream<T>]) -> Stream<T> {
        let inputs = std::iter::once(self.step).chain(others.iter().map(|other| other.step)).collect();
        let work = stateless(|next| {
            Each::new(next, |bundle: &mut Bundle, next: &mut BoxPush<T>, record: T, time| {
                next.push(bundle, record, time);
            })
        });
        self.then(name, StepKind::Merge, inputs, work)
    }

    /// Gives every record its key.
    pub fn key_by<K: StreamData>(
        &self,
        name: &str,
        key: impl Fn(&T) -> K + Send + Sync + 'static,
    ) -> KeyedStream<K, T> {
        self.key_value(name, move |record| (key(&record), record))
    }

    /// Turns every record into a key and a value.
    pub fn key_value<K: StreamData, V: StreamData>(
        &self,
        name: &str,
        function: impl Fn(T) -> (K, V) + Send + Sync + 'static,
    ) -> KeyedStream<K, V> {
        self.try_key_value(name, move |record| Ok(function(record)))
    }

    /// Turns every record into a key and a value, or says that it cannot, as in [`Stream::try_flat_map`].
    pub fn try_key_value<K: StreamData, V: StreamData>(
        &self,
        name: &str,
        function: impl Fn(T) -> Result<(K, V), RecordFailure> + Send + Sync + 'static,
    ) -> KeyedStream<K, V> {
        let (function, step) = (Arc::new(function), Arc::<str>::from(name));
        let work = stateless(move |next| {
            let (function, step) = (function.clone(), step.clone());
            Each::new(next, move |bundle: &mut Bundle, next: &mut BoxPush<KeyedRecord<K, V>>, record: T, time| {
                match function(record) {
                    Ok((key, value)) => next.push(bundle, KeyedRecord { key, value }, time),
                    Err(failure) => failure.note(bundle, &step),
                }
            })
        });
        KeyedStream { keyed: self.then(name, StepKind::KeyBy, vec![self.step], work) }
    }

    /// Writes every record to a sink, encoded by a function that appends its bytes.
    pub fn sink(&self, name: &str, sink: impl StreamSink, encode: impl Fn(&T, &mut Vec<u8>) + Send + Sync + 'static) {
        let (encode, step) = (Arc::new(encode), Arc::<str>::from(name));
        let sink: Arc<dyn StreamSink> = Arc::new(sink);
        let parts = sink.parts();
        let make = move |at: usize| {
            let (encode, parts, step, mut bytes) = (encode.clone(), parts.clone(), step.clone(), Vec::new());
            let mut part: Option<Arc<SinkPart>> = None;
            any::<T>(Last(move |bundle: &mut Bundle, record: T, time| {
                if let Some(parts) = &parts
                    && !part.as_ref().is_some_and(|part| part.start <= time && time < part.end)
                {
                    match parts.of(time) {
                        Ok(found) => part = Some(Arc::new(found)),
                        Err(message) => return bundle.fail(StreamError::Step { name: step.to_string(), message }),
                    }
                }
                bytes.clear();
                encode(&record, &mut bytes);
                bundle.write(at, part.as_ref(), &bytes);
            }))
        };
        let work = StepWork::Sink {
            make: Arc::new(make),
            program: Arc::new(|first| Box::new(StatelessProgram(typed::<T>(first))) as Box<dyn StageProgram>),
            sink,
        };
        let _end: Stream<T> = self.then(name, StepKind::Sink, vec![self.step], work);
    }
}

impl<A: StreamData, B: StreamData> Stream<Side<A, B>> {
    /// Takes records of two kinds apart.
    pub fn sides(&self, left: &str, right: &str) -> (Stream<A>, Stream<B>) {
        let of_left = |side| if let Side::Left(record) = side { Some(record) } else { None };
        let of_right = |side| if let Side::Right(record) = side { Some(record) } else { None };
        (self.flat_map(left, of_left), self.flat_map(right, of_right))
    }
}

impl<K: StreamData, V: StreamData> KeyedStream<K, V> {
    /// Says something that the state of the steps that read this stream depends on and that its types do not tell, such as
    /// how the key is made. A pipeline of the same name goes on with that state only while the value is the same.
    #[must_use]
    pub fn state_depends_on(self, field: &str, value: impl fmt::Display) -> Self {
        KeyedStream { keyed: self.keyed.state_depends_on(field, value) }
    }

    /// Combines the records of each key and window.
    pub fn combine<C: Combine<In = V>>(
        &self,
        name: &str,
        windowing: Windowing,
        combine: C,
    ) -> Stream<PaneResult<K, C::Out>> {
        self.combine_into(name, windowing, combine, PaneOutputs { pane: |pane| pane, late: None })
    }

    /// Combines the records of each key and window, and gives those apart that came after all their windows. They must be
    /// seen one by one, so nothing is combined before the shuffle.
    pub fn combine_with_late<C: Combine<In = V>>(
        &self,
        name: &str,
        windowing: Windowing,
        combine: C,
    ) -> (Stream<PaneResult<K, C::Out>>, Stream<KeyedRecord<K, V>>) {
        let outputs = PaneOutputs { pane: Side::Left, late: Some(Side::Right) };
        let both = self.combine_into(name, windowing, combine, outputs);
        both.sides(&format!("{name} results"), &format!("{name} late"))
    }

    fn combine_into<C: Combine<In = V>, O: StreamData>(
        &self,
        name: &str,
        windowing: Windowing,
        combine: C,
        outputs: PaneOutputs<K, C, O>,
    ) -> Stream<O> {
        windowing.kind.assert_positive();
        let kind = StepKind::Combine { laws: combine.laws(), windowing };
        let combined = match combine.state() {
            state if state.is_empty() => outer_name_of::<C>(),
            state => state,
        };
        let state = [
            StateFact::new(KIND, "combine"),
            StateFact::new("window", windowing.kind),
            StateFact::new("trigger", windowing.trigger),
            StateFact::new("lateness", format!("{} ms", windowing.lateness_ms)),
            StateFact::new("combine", combined),
            StateFact::new("key type", name_of::<K>()),
            StateFact::new("state type", name_of::<C::Acc>()),
        ];
        let sending = combine.clone();
        let sender = move |edge, is_lifted| match is_lifted {
            true => lifted_sender::<K, C>(sending.clone(), windowing, edge),
            false => keyed_sender::<K, V>(edge),
        };
        let program = move |next: AnyPush, is_lifted| -> Box<dyn StageProgram> {
            let (combine, next) = (combine.clone(), typed(next));
            match windowing.kind.merges() {
                true => Box::new(SessionProgram::<K, C, O>::new(combine, windowing, outputs, next)),
                false => Box::new(CombineProgram::<K, C, O>::new(combine, windowing, is_lifted, outputs, next)),
            }
        };
        let work = StepWork::Stateful { senders: vec![Arc::new(sender)], program: Arc::new(program) };
        let combined = self.keyed.then(name, kind, vec![self.keyed.step], work).keeps(state);
        let mut steps = combined.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps[combined.step].facts.gives_late = outputs.late.is_some();
        drop(steps);
        combined
    }

    /// Gives every record the row that a table has for its key: the latest one that is not after the record.
    ///
    /// The table is a stream, and its rows are kept in the state of this step. A record waits until the watermarks of both
    /// have passed its time, so its row does not depend on what came first. One that comes late gets the row that holds
    /// then.
    pub fn lookup<W: StreamData>(&self, name: &str, table: &KeyedStream<K, W>) -> Stream<(K, V, Option<W>)> {
        let program =
            move |next: AnyPush, _| -> Box<dyn StageProgram> { Box::new(LookupProgram::<K, V, W>::new(typed(next))) };
        let senders: Vec<Arc<dyn Fn(usize, bool) -> AnyPush + Send + Sync>> =
            vec![Arc::new(|edge, _| keyed_sender::<K, V>(edge)), Arc::new(|edge, _| keyed_sender::<K, W>(edge))];
        let work = StepWork::Stateful { senders, program: Arc::new(program) };
        let inputs = vec![self.keyed.step, table.keyed.step];
        self.keyed.then::<(K, V, Option<W>)>(name, StepKind::Stateful, inputs, work).keeps([
            StateFact::new(KIND, "lookup"),
            StateFact::new("key type", name_of::<K>()),
            StateFact::new("records", name_of::<V>()),
            StateFact::new("rows", name_of::<W>()),
        ])
    }

    /// Keeps state and timers of one's own per key. `make` makes the process of a partition.
    pub fn process<P: KeyedProcess<Key = K, In = V>>(
        &self,
        name: &str,
        make: impl Fn() -> P + Send + Sync + 'static,
    ) -> Stream<P::Out> {
        let program = move |next: AnyPush, _| -> Box<dyn StageProgram> {
            Box::new(ProcessProgram::new(make(), |_, value| data::decode(value), typed(next)))
        };
        let senders: Vec<Arc<dyn Fn(usize, bool) -> AnyPush + Send + Sync>> =
            vec![Arc::new(|edge, _| keyed_sender::<K, V>(edge))];
        let work = StepWork::Stateful { senders, program: Arc::new(program) };
        self.keyed.then::<P::Out>(name, StepKind::Stateful, vec![self.keyed.step], work).keeps([
            StateFact::new(KIND, "process"),
            StateFact::new("key type", name_of::<K>()),
            StateFact::new("state type", name_of::<P::State>()),
        ])
    }

    /// Joins with another stream of the same keys: every pair of records that `range` lets meet, once.
    pub fn join<W: StreamData>(&self, name: &str, other: &KeyedStream<K, W>, range: JoinRange) -> Stream<(K, V, W)> {
        let program = move |next: AnyPush, _| -> Box<dyn StageProgram> {
            Box::new(ProcessProgram::new(Join::<K, V, W>::new(range), decode_side::<V, W>, typed(next)))
        };
        let senders: Vec<Arc<dyn Fn(usize, bool) -> AnyPush + Send + Sync>> =
            vec![Arc::new(|edge, _| keyed_sender::<K, V>(edge)), Arc::new(|edge, _| keyed_sender::<K, W>(edge))];
        let work = StepWork::Stateful { senders, program: Arc::new(program) };
        let inputs = vec![self.keyed.step, other.keyed.step];
        self.keyed.then::<(K, V, W)>(name, StepKind::Stateful, inputs, work).keeps([
            StateFact::new(KIND, "join"),
            StateFact::new("range", range),
            StateFact::new("key type", name_of::<K>()),
            StateFact::new("records", format!("{} and {}", name_of::<V>(), name_of::<W>())),
        ])
    }
}
