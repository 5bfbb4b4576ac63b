//! Sinks that take their time with some chunks: every chunk is written once, in order, whichever of them is slow.

use crate::bed::{Bed, MemorySink, line, options};
use onceflow_stream::{EdgeMode, EventTime, Generator, Pipeline, SinkChunk, SinkWriter, StreamSink, WriteProgress};
use std::{
    io,
    sync::{Arc, Mutex},
};

/// Takes its time with every third chunk, as a database does while another process writes to it.
struct SometimesSlow(MemorySink);

struct SometimesSlowWriter {
    /// The writer, and the number of its next chunk.
    inner: Arc<Mutex<(Box<dyn SinkWriter>, u64)>>,
}

impl StreamSink for SometimesSlow {
    fn open(&self, partition: u16, of: u16) -> io::Result<Box<dyn SinkWriter>> {
        let inner = Arc::new(Mutex::new((self.0.open(partition, of)?, 0)));
        Ok(Box::new(SometimesSlowWriter { inner }))
    }
}

fn write(inner: &Mutex<(Box<dyn SinkWriter>, u64)>, chunk: &SinkChunk) -> io::Result<()> {
    let (writer, next) = &mut *inner.lock().unwrap();
    assert_eq!(chunk.number, *next, "chunks come in order");
    *next += 1;
    writer.write(chunk)
}

impl SinkWriter for SometimesSlowWriter {
    fn begin_write(&mut self, chunk: &SinkChunk) -> io::Result<WriteProgress> {
        if !chunk.number.is_multiple_of(3) {
            return self.write(chunk).map(|()| WriteProgress::Done);
        }
        let (inner, chunk) = (self.inner.clone(), chunk.clone());
        Ok(WriteProgress::Going(Box::pin(async move {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            write(&inner, &chunk)
        })))
    }

    fn write(&mut self, chunk: &SinkChunk) -> io::Result<()> {
        write(&self.inner, chunk)
    }
}

#[tokio::test(flavor = "current_thread")]
async fn chunks_behind_a_slow_one_are_all_written() {
    let (bed, sink) = (Bed::new(), MemorySink::default());
    let pipeline = Pipeline::new("p").options(options(EdgeMode::Local));
    let numbers = pipeline.source("numbers", Generator::new(300, |n| (n, EventTime(0))));
    numbers.sink("out", SometimesSlow(sink.clone()), |n, bytes| line(&format!("{n:03}"), bytes));
    bed.run(&pipeline).await.unwrap();
    assert_eq!(sink.lines(), (0..300).map(|n| format!("{n:03}")).collect::<Vec<_>>());
}
