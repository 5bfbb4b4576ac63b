//! Chunks on their way to sinks that take their time. Each sink has one chunk at a time on its way, in order, beside the
//! partition's work: heartbeats, other sinks and other stages go on meanwhile.

use super::{
    control::StreamControl,
    partition::{Partition, Stop},
};
use crate::pipeline::{
    sink::{SinkChunk, WriteProgress},
    source::io_error,
};
use futures_util::future::{AbortHandle, abortable};
use onceflow_core::Name;
use onceflow_store::{BoxFuture, World};
use std::{
    collections::{BTreeMap, VecDeque},
    io::Result,
    sync::{Arc, Mutex, PoisonError},
};

/// Bytes of chunks that wait for slow sinks, at most; with more, the partition takes no input.
const WAITING_BYTES_MAX: usize = 4 << 20;

type Written = Arc<Mutex<Vec<(usize, Name, Result<()>)>>>;

/// The writes of a partition that have not ended.
#[derive(Default)]
pub(crate) struct SlowWrites {
    /// For each sink, the chunk on its way, and those behind it.
    sinks: BTreeMap<usize, (AbortHandle, VecDeque<(Name, SinkChunk)>)>,
    bytes: usize,
    written: Written,
}

impl Drop for SlowWrites {
    fn drop(&mut self) {
        // What they have sent is sent again by the next owner, under the same key.
        self.sinks.values().for_each(|(going, _)| going.abort());
    }
}

impl SlowWrites {
    pub(crate) fn is_empty(&self) -> bool {
        self.sinks.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes > WAITING_BYTES_MAX
    }

    /// Lets a chunk wait if another one of its sink is on its way; gives it back if none is.
    fn wait(&mut self, sink: usize, name: Name, chunk: SinkChunk) -> Option<(Name, SinkChunk)> {
        let Some((_, behind)) = self.sinks.get_mut(&sink) else { return Some((name, chunk)) };
        self.bytes += chunk.bytes.len();
        behind.push_back((name, chunk));
        None
    }

    fn go(
        &mut self,
        (sink, name): (usize, Name),
        write: BoxFuture<'static, Result<()>>,
        behind: VecDeque<(Name, SinkChunk)>,
        (world, control): (&dyn World, StreamControl),
    ) {
        let (write, handle) = abortable(write);
        self.bytes += behind.iter().map(|(_, chunk)| chunk.bytes.len()).sum::<usize>();
        self.sinks.insert(sink, (handle, behind));
        let written = self.written.clone();
        let going = async move {
            let Ok(result) = write.await else { return };
            written.lock().unwrap_or_else(PoisonError::into_inner).push((sink, name, result));
            control.ring();
        };
        world.spawn("onceflow stream sink", Box::pin(going));
    }
}

impl Partition {
    /// Writes a chunk, or begins to.
    pub(super) fn write_chunk(&mut self, sink: usize, name: Name, chunk: SinkChunk) -> std::result::Result<(), Stop> {
        match self.outbox.slow.wait(sink, name, chunk) {
            Some((name, chunk)) => self.begin_writes(sink, VecDeque::from([(name, chunk)])),
            None => Ok(()),
        }
    }

    /// Writes chunks until one takes its time, or none is left: a sink may be slow with one chunk and not with the next.
    fn begin_writes(&mut self, sink: usize, mut chunks: VecDeque<(Name, SinkChunk)>) -> std::result::Result<(), Stop> {
        while let Some((name, chunk)) = chunks.pop_front() {
            let begun = self.outbox.writers[sink].begin_write(&chunk);
            match begun.map_err(|error| io_error(self.sink_name(sink), error))? {
                WriteProgress::Done => self.outbox.done.push(name),
                WriteProgress::Going(write) => {
                    let runtime = self.runtime.clone();
                    let of = (&*runtime.world, runtime.control.clone());
                    self.outbox.slow.go((sink, name), write, chunks, of);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Takes note of slow writes that have ended, and begins the next ones.
    pub(super) fn take_written(&mut self) -> std::result::Result<(), Stop> {
        let written = std::mem::take(&mut *self.outbox.slow.written.lock().unwrap_or_else(PoisonError::into_inner));
        for (sink, name, result) in written {
            result.map_err(|error| io_error(self.sink_name(sink), error))?;
            self.outbox.done.push(name);
            let Some((_, behind)) = self.outbox.slow.sinks.remove(&sink) else { continue };
            self.outbox.slow.bytes -= behind.iter().map(|(_, chunk)| chunk.bytes.len()).sum::<usize>();
            self.begin_writes(sink, behind)?;
        }
        Ok(())
    }

    /// A call is open or is to be forgotten, or a chunk is on its way to a sink.
    pub(crate) fn waits_outside(&mut self) -> bool {
        !self.outbox.slow.is_empty() || self.is_calling() || !self.outbox.is_acknowledged()
    }
}
