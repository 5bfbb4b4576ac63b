//! The rows of a pipeline.
//!
//! | group | rows |
//! |---|---|
//! | `streams` | a row for every pipeline |
//! | `stream/NAME` | `plan`; `result`; `desired`, what was asked of it from outside; per partition its meta row (`m`) and what it tells the others (`p`) |
//! | `savepoints`; `savepoint/NAME…` | a row for every savepoint; its rows, as of a pipeline |
//! | `stream-copies` | a row for every copy that is being made: of a pipeline as a savepoint, or back |
//! | queue `stream/NAME` | a row per partition that has not ended; its claim is the right to be the partition's one writer |
//! | `stream/NAME/in…`, `/out…`, `/state…` | inbox, outbox and keyed state of a partition |
//! | `stream/NAME/parts…` | the places in the parts of its sinks, such as the files of days |
//! | `stream/NAME/ids…` | the ids of clients that a partition has seen, one group per time bucket |
//! | `stream/NAME/seen…` | the catalog of a partition, one group per time bucket, so that a bucket is dropped whole |

use crate::{event_time::EventTime, identity::ProducerId};
use onceflow_core::{Group, Inbox, Key, Name, Row};

/// One partition of one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Station {
    /// The stage.
    pub stage: u16,
    /// The partition of that stage.
    pub partition: u16,
}

impl Station {
    pub(crate) fn to_bytes(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.stage.to_be_bytes(), self.partition.to_be_bytes());
        [a, b, c, d]
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, d] = *<&[u8; 4]>::try_from(bytes).ok()?;
        Some(Station { stage: u16::from_be_bytes([a, b]), partition: u16::from_be_bytes([c, d]) })
    }
}

/// Names the rows of one pipeline.
#[derive(Clone, Debug)]
pub(crate) struct StreamKeys {
    prefix: String,
}

impl StreamKeys {
    pub(crate) fn new(name: &str) -> Self {
        StreamKeys { prefix: format!("stream/{name}") }
    }

    /// Names the rows of a savepoint, which are those of a pipeline.
    pub(crate) fn of_savepoint(name: &str) -> Self {
        StreamKeys { prefix: format!("savepoint/{name}") }
    }

    pub(crate) fn of_prefix(prefix: &str) -> Self {
        StreamKeys { prefix: prefix.to_owned() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn rows(&self) -> Group {
        Group::rows(&self.prefix)
    }

    pub(crate) fn queue(&self) -> Group {
        Group::queue(&self.prefix)
    }

    pub(crate) fn plan(&self) -> Key {
        self.rows().key("plan")
    }

    pub(crate) fn result(&self) -> Key {
        self.rows().key("result")
    }

    pub(crate) fn desired(&self) -> Key {
        self.rows().key("desired")
    }

    pub(crate) fn meta(&self, station: Station) -> Key {
        Key { group: self.rows(), name: Name::join(&[b"m", &station.to_bytes()]) }
    }

    pub(crate) fn published(&self, station: Station) -> Key {
        Key { group: self.rows(), name: Name::join(&[b"p", &station.to_bytes()]) }
    }

    pub(crate) fn worker(&self, incarnation: u128) -> Key {
        Key { group: self.workers(), name: Name::new(incarnation.to_be_bytes()) }
    }

    pub(crate) fn workers(&self) -> Group {
        Group::rows(format!("{}/workers", self.prefix))
    }

    pub(crate) fn ready_row(&self) -> Row {
        Inbox { group: self.rows(), prefix: Name::new("-"), note: Vec::new() }.to_row()
    }

    fn of(&self, what: &str, station: Station) -> Group {
        Group::rows([self.prefix.as_bytes(), what.as_bytes(), &station.to_bytes()].concat())
    }

    pub(crate) fn inbox(&self, station: Station) -> Group {
        self.of("/in", station)
    }

    pub(crate) fn outbox(&self, station: Station) -> Group {
        self.of("/out", station)
    }

    pub(crate) fn state(&self, station: Station) -> Group {
        self.of("/state", station)
    }

    pub(crate) fn sink_parts(&self, station: Station) -> Group {
        self.of("/parts", station)
    }

    pub(crate) fn seen(&self, station: Station, bucket: u64) -> Group {
        let station = self.of("/seen", station);
        Group::rows([station.id(), &bucket.to_be_bytes()].concat())
    }

    pub(crate) fn client_ids(&self, station: Station, bucket_end: EventTime) -> Group {
        let station = self.of("/ids", station);
        Group::rows([station.id(), &bucket_end.to_sortable()].concat())
    }
}

/// The rows of all savepoints, by their names.
pub(crate) fn savepoints() -> Group {
    Group::rows("savepoints")
}

/// The rows of all pipelines, by their names.
pub(crate) fn pipelines() -> Group {
    Group::rows("streams")
}

/// The name of a block in an inbox or outbox: its producer and first number.
pub(crate) fn block_name(producer: ProducerId, first: u64) -> Name {
    Name::join(&[&producer.to_bytes(), &first.to_be_bytes()])
}

/// The name of a chunk for a sink in an outbox. Blocks have longer names, so the two never meet.
pub(crate) fn chunk_name(sink: u16, number: u64) -> Name {
    Name::join(&[&sink.to_be_bytes(), &number.to_be_bytes()])
}
