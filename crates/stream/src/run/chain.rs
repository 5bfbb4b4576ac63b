//! Steps that run together: each pushes its records into the next one, as Rust values. Only at the ends of a stage are
//! they encoded.

use super::{bundle::Bundle, calls::Calls, cells::Cells, client_ids::ClientIds};
use crate::{
    data::{self, BadValue, StreamData},
    event_time::EventTime,
};
use onceflow_core::{Name, Row};
use std::any::Any;

/// Takes records of one type.
pub(crate) trait Push<T>: Send {
    /// Takes a record.
    fn push(&mut self, bundle: &mut Bundle, value: T, time: EventTime);
    /// Passes on everything it has kept: the bundle is about to commit.
    fn flush(&mut self, bundle: &mut Bundle);
}

pub(crate) type BoxPush<T> = Box<dyn Push<T>>;

/// A [`BoxPush`] of a type that the compiler checked when the pipeline was written.
pub(crate) type AnyPush = Box<dyn Any + Send>;

/// Returns a push of any type as one of its own type.
pub(crate) fn typed<T: 'static>(push: AnyPush) -> BoxPush<T> {
    *push.downcast::<BoxPush<T>>().expect("connected steps agree on the type: the pipeline's own types see to that")
}

/// Hides the type of a push.
pub(crate) fn any<T: 'static>(push: impl Push<T> + 'static) -> AnyPush {
    Box::new(Box::new(push) as BoxPush<T>)
}

/// Gives every record to several steps.
pub(crate) fn fan_out<T: StreamData>(mut to: Vec<AnyPush>) -> AnyPush {
    struct FanOut<T>(Vec<BoxPush<T>>);
    impl<T: StreamData> Push<T> for FanOut<T> {
        fn push(&mut self, bundle: &mut Bundle, value: T, time: EventTime) {
            let Some((last, rest)) = self.0.split_last_mut() else { return };
            rest.iter_mut().for_each(|push| push.push(bundle, value.clone(), time));
            last.push(bundle, value, time);
        }

        fn flush(&mut self, bundle: &mut Bundle) {
            self.0.iter_mut().for_each(|push| push.flush(bundle));
        }
    }
    match to.len() {
        1 => to.pop().expect("there is one"),
        _ => any(FanOut(to.into_iter().map(typed::<T>).collect())),
    }
}

/// A step made of a function.
pub(crate) struct Each<T, U, F> {
    function: F,
    next: BoxPush<U>,
    of: std::marker::PhantomData<fn(T)>,
}

impl<T, U, F: FnMut(&mut Bundle, &mut BoxPush<U>, T, EventTime) + Send> Each<T, U, F> {
    pub(crate) fn new(next: BoxPush<U>, function: F) -> Self {
        Each { function, next, of: std::marker::PhantomData }
    }
}

impl<T, U, F: FnMut(&mut Bundle, &mut BoxPush<U>, T, EventTime) + Send> Push<T> for Each<T, U, F> {
    #[inline]
    fn push(&mut self, bundle: &mut Bundle, value: T, time: EventTime) {
        (self.function)(bundle, &mut self.next, value, time);
    }

    fn flush(&mut self, bundle: &mut Bundle) {
        self.next.flush(bundle);
    }
}

/// The end of a chain that gives records to a function.
pub(crate) struct Last<F>(pub(crate) F);

impl<T, F: FnMut(&mut Bundle, T, EventTime) + Send> Push<T> for Last<F> {
    #[inline]
    fn push(&mut self, bundle: &mut Bundle, value: T, time: EventTime) {
        (self.0)(bundle, value, time);
    }

    fn flush(&mut self, _: &mut Bundle) {}
}

/// Sends records without a key on an edge.
pub(crate) fn sender<T: StreamData>(edge: usize) -> AnyPush {
    let mut buffer = Vec::new();
    any::<T>(Last(move |bundle: &mut Bundle, value: T, time| {
        buffer.clear();
        buffer = data::encode_into(std::mem::take(&mut buffer), &value);
        bundle.send_unkeyed(edge, &buffer, time);
    }))
}

/// A timer, or a cell whose time has come.
#[derive(Clone, Debug)]
pub(crate) struct DueRow {
    pub(crate) name: Name,
    pub(crate) row: Row,
}

/// A part of a partition's state in order of a time: the kinds of rows that come due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueKind {
    /// The first byte of their names; eight bytes of time follow.
    pub(crate) tag: u8,
    /// Due this long after the time in the name.
    pub(crate) delay_ms: i64,
    /// The time is processing time.
    pub(crate) by_clock: bool,
}

/// The work of a stage on the records that reach it.
pub(crate) trait StageProgram: Send {
    /// Takes a record, or keeps it until [`StageProgram::run`] and names the cells it needs.
    fn offer(
        &mut self,
        bundle: &mut Bundle,
        cells: &mut Cells,
        port: usize,
        key: &[u8],
        value: &[u8],
        time: EventTime,
    ) -> Result<(), BadValue>;

    /// Works on the records that were kept; their cells are in memory now.
    fn run(&mut self, bundle: &mut Bundle, cells: &mut Cells) -> Result<(), BadValue>;

    /// Returns the kinds of rows of its state that come due.
    fn due_kinds(&self) -> Vec<DueKind> {
        Vec::new()
    }

    /// Names the cells that a due row needs.
    fn due(&mut self, bundle: &mut Bundle, cells: &mut Cells, kind: DueKind, due: &DueRow) {
        let _ = (bundle, cells, kind, due);
    }

    /// Works on the due rows it was given; their cells are in memory now.
    fn fire(&mut self, bundle: &mut Bundle, cells: &mut Cells) -> Result<(), BadValue> {
        let _ = (bundle, cells);
        Ok(())
    }

    /// Passes on everything that was kept: the bundle is about to commit.
    fn flush(&mut self, bundle: &mut Bundle);

    /// It takes no further record now.
    fn is_full(&self) -> bool {
        false
    }

    /// Returns the calls of the program, if it makes any.
    fn calls(&mut self) -> Option<&mut dyn Calls> {
        None
    }

    /// Returns the catalog of clients' ids, if the program knows records by them. It judges the records that were
    /// offered before [`StageProgram::run`].
    fn client_ids(&mut self) -> Option<&mut ClientIds> {
        None
    }
}

/// The program of a stage that remembers nothing.
pub(crate) struct StatelessProgram<T>(pub(crate) BoxPush<T>);

impl<T: StreamData> StageProgram for StatelessProgram<T> {
    fn offer(
        &mut self,
        bundle: &mut Bundle,
        _: &mut Cells,
        _: usize,
        _: &[u8],
        value: &[u8],
        time: EventTime,
    ) -> Result<(), BadValue> {
        self.0.push(bundle, data::decode(value)?, time);
        Ok(())
    }

    fn run(&mut self, _: &mut Bundle, _: &mut Cells) -> Result<(), BadValue> {
        Ok(())
    }

    fn flush(&mut self, bundle: &mut Bundle) {
        self.0.flush(bundle);
    }
}

/// The key in the name of a cell or timer: the bytes behind the tag and `times` times of eight bytes.
pub(crate) fn key_in(name: &[u8], times: usize) -> &[u8] {
    name.get(1 + 8 * times..).unwrap_or_default()
}

/// Names a cell or timer: a tag, a time, a key.
pub(crate) fn named(into: &mut Vec<u8>, tag: u8, times: &[[u8; 8]], key: &[u8]) {
    into.clear();
    into.push(tag);
    times.iter().for_each(|time| into.extend_from_slice(time));
    into.extend_from_slice(key);
}
