//! The size of bundles follows the load: input gathers while a source has a backlog, and passes on at once when it has none.

use super::bed::{Bed, MemorySink, line, options};
use onceflow_stream::{
    EdgeMode, EventTime, Generator, NextRecord, Pipeline, SplitReader, StreamOptions, StreamResult, StreamSource,
    combine::Count, window::Windowing,
};
use std::io;

const RECORDS: u64 = 3500;

/// Numbers, one at a time: after each there is none for now.
struct Trickle;

struct Trickling {
    next: u64,
    is_pending: bool,
}

impl StreamSource for Trickle {
    type Item = u64;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> io::Result<Box<dyn SplitReader<u64>>> {
        let next = position.map_or(0, |position| u64::from_be_bytes(position.try_into().unwrap()));
        Ok(Box::new(Trickling { next, is_pending: false }))
    }
}

impl SplitReader<u64> for Trickling {
    fn next(&mut self) -> io::Result<NextRecord<u64>> {
        self.is_pending = !self.is_pending;
        if self.next == RECORDS {
            return Ok(NextRecord::Ended);
        }
        if !self.is_pending {
            return Ok(NextRecord::Pending);
        }
        self.next += 1;
        Ok(NextRecord::Record(self.next, EventTime(self.next as i64)))
    }

    fn position(&self) -> Vec<u8> {
        self.next.to_be_bytes().to_vec()
    }

    fn watermark(&self) -> EventTime {
        EventTime(self.next as i64)
    }
}

/// Counts even and odd numbers; the combine is lifted, so a bundle of the source is one record for each partition.
async fn count(source: impl StreamSource<Item = u64>, edges: EdgeMode) -> StreamResult {
    let (bed, sink) = (Bed::new(), MemorySink::default());
    let pipeline = Pipeline::new("counts").options(StreamOptions { gather_ms: 10, ..options(edges) });
    let parities = pipeline.source("numbers", source).key_value("parity", |n| (n % 2, ()));
    let counts = parities.combine("count", Windowing::global(), Count::new());
    counts.sink("out", sink.clone(), |pane, bytes| line(&format!("{} {}", pane.key, pane.value), bytes));
    let result = bed.run(&pipeline).await.unwrap();
    assert_eq!(sink.lines(), [format!("0 {}", RECORDS / 2), format!("1 {}", RECORDS / 2)]);
    result
}

#[tokio::test(flavor = "current_thread")]
async fn bundles_of_later_stages_grow_while_a_source_has_a_backlog() {
    for edges in [EdgeMode::Local, EdgeMode::Retry] {
        let result = count(Generator::new(RECORDS, |n| (n, EventTime(n as i64))), edges).await;
        let [source, counting] = [0, 1].map(|stage| result.stages[stage].counts);
        assert!(source.bundles >= RECORDS / 7, "{edges:?}: {source:?}");
        assert!(counting.bundles < source.bundles, "{edges:?}: {} of {}", counting.bundles, source.bundles);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_record_passes_on_at_once_when_no_other_waits() {
    let result = count(Trickle, EdgeMode::Local).await;
    let [source, counting] = [0, 1].map(|stage| result.stages[stage].counts);
    assert!(source.bundles >= RECORDS, "{source:?}");
    assert!(counting.bundles >= RECORDS, "{} bundles of {RECORDS} records", counting.bundles);
}
