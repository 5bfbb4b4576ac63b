//! Steps that may fail for a record: then the stream stops, or the record is skipped or diverted, as the file says.

use super::{NodeStreams, OnError, RecordExpression, Side, failed_record, record_of, scope};
use onceflow_exec::{expr::Bindings, value::PortValue};
use onceflow_stream::{KeyedStream, Stream, StreamData};

/// The parts of one node, and where its failures go.
pub(super) struct Router {
    pub(super) on_error: OnError,
    pub(super) streams: NodeStreams,
}

impl Router {
    /// Turns every record into any number of others; a failure is a reason, and the names with the record.
    pub(super) fn each<U: StreamData, I: IntoIterator<Item = U>>(
        &mut self,
        name: &str,
        input: &Stream<PortValue>,
        function: impl Fn(Bindings) -> Result<I, (String, Bindings)> + Send + Sync + 'static,
    ) -> Stream<U> {
        let on_error = self.on_error;
        if on_error != OnError::Divert {
            return input.try_flat_map(name, move |record| {
                function(scope(record)).map_err(|(why, scope)| on_error.failure(why, &scope))
            });
        }
        self.diverted(name, input, move |record| {
            function(scope(record)).map_err(|(why, scope)| (why, record_of(scope)))
        })
    }

    /// As [`Router::each`], for what is no record of a file yet.
    pub(super) fn results<T: StreamData, U: StreamData, I: IntoIterator<Item = U>>(
        &mut self,
        name: &str,
        input: &Stream<T>,
        function: impl Fn(T) -> Result<I, (String, PortValue)> + Send + Sync + 'static,
    ) -> Stream<U> {
        let on_error = self.on_error;
        if on_error != OnError::Divert {
            return input.try_flat_map(name, move |record| {
                function(record).map_err(|(why, record)| on_error.failure(why, &scope(record)))
            });
        }
        self.diverted(name, input, function)
    }

    fn diverted<T: StreamData, U: StreamData, I: IntoIterator<Item = U>>(
        &mut self,
        name: &str,
        input: &Stream<T>,
        function: impl Fn(T) -> Result<I, (String, PortValue)> + Send + Sync + 'static,
    ) -> Stream<U> {
        let (good, failed) = input.flat_map_or_divert(name, move |record| {
            function(record).map_err(|(why, record)| failed_record(record, why))
        });
        self.streams.errors.push(failed);
        good
    }

    /// Keeps the records for which an expression is true, and the others apart if they are read.
    pub(super) fn filter(
        &mut self,
        name: &str,
        input: &Stream<PortValue>,
        filter: &RecordExpression,
        rejects_are_read: bool,
    ) -> Stream<PortValue> {
        let filter = filter.clone();
        let decide = move |scope: Bindings| match filter.eval(&scope) {
            Ok(PortValue::Bool(keeps)) => Ok((keeps, scope)),
            Ok(other) => Err((format!("a filter is true or false, not {}", other.describe()), scope)),
            Err(why) => Err((why, scope)),
        };
        if !rejects_are_read {
            return self
                .each(name, input, move |scope| decide(scope).map(|(keeps, scope)| keeps.then(|| record_of(scope))));
        }
        let both = self.each(name, input, move |scope| {
            let (keeps, scope) = decide(scope)?;
            let record = record_of(scope);
            Ok(Some(if keeps { Side::Left(record) } else { Side::Right(record) }))
        });
        let (kept, rejected) = both.sides(&format!("{name} kept"), &format!("{name} rejects"));
        self.streams.rejects = Some(rejected);
        kept
    }

    /// Gives every record the key that an expression has for it.
    pub(super) fn keyed(
        &mut self,
        name: &str,
        input: &Stream<PortValue>,
        key: &RecordExpression,
    ) -> KeyedStream<PortValue, PortValue> {
        let (key, text) = (key.clone(), key.text().to_owned());
        let keyed = pairs(self, name, input, move |scope| {
            Ok((key.eval(scope)?, scope.root(super::RECORD).cloned().unwrap_or(PortValue::Null)))
        });
        keyed.state_depends_on("key", text)
    }
}

/// Turns every record into a key and a value.
pub(super) fn pairs<V: StreamData>(
    router: &mut Router,
    name: &str,
    input: &Stream<PortValue>,
    function: impl Fn(&Bindings) -> Result<(PortValue, V), String> + Send + Sync + 'static,
) -> KeyedStream<PortValue, V> {
    let on_error = router.on_error;
    if on_error != OnError::Divert {
        return input.try_key_value(name, move |record| {
            let scope = scope(record);
            function(&scope).map_err(|why| on_error.failure(why, &scope))
        });
    }
    let pairs = router.each(&format!("{name} pairs"), input, move |scope| match function(&scope) {
        Ok(pair) => Ok(Some(pair)),
        Err(why) => Err((why, scope)),
    });
    pairs.key_value(name, |pair| pair)
}
