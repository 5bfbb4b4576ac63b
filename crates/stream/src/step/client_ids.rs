//! Passes a record on if it is the first with its client's id. The catalog that decides it is the partition's
//! ([`ClientIds`]); copies meet in one partition because their key is the id.

use crate::{
    catalog::segments::ExternalId,
    data::{self, BadValue, StreamData},
    event_time::EventTime,
    run::{
        bundle::Bundle,
        cells::Cells,
        chain::{AnyPush, BoxPush, Last, StageProgram, any},
        client_ids::{ClientIds, OfferedRecord},
    },
};
use std::sync::Arc;

/// Bytes of an id in the batch of a bundle.
const ID_BYTES: usize = size_of::<ExternalId>();

pub(crate) struct OncePerId<T> {
    ids: ClientIds,
    /// Bytes of the records that wait for the answer about their ids.
    waiting_bytes: usize,
    next: BoxPush<T>,
}

impl<T: StreamData> OncePerId<T> {
    pub(crate) fn new(horizon_ms: i64, next: BoxPush<T>) -> Self {
        OncePerId { ids: ClientIds::new(horizon_ms), waiting_bytes: 0, next }
    }
}

impl<T: StreamData> StageProgram for OncePerId<T> {
    fn offer(
        &mut self,
        bundle: &mut Bundle,
        _: &mut Cells,
        _: usize,
        key: &[u8],
        value: &[u8],
        time: EventTime,
    ) -> Result<(), BadValue> {
        // The bundle's bound covers the records that wait here; their ids stay counted, for they are in its batch.
        self.waiting_bytes += value.len();
        bundle.bytes += value.len() + ID_BYTES;
        let id = ExternalId(u128::from_be_bytes(data::fixed(key)?));
        self.ids.offer(OfferedRecord { id, time, value: value.to_vec() });
        Ok(())
    }

    fn run(&mut self, bundle: &mut Bundle, _: &mut Cells) -> Result<(), BadValue> {
        bundle.bytes -= std::mem::take(&mut self.waiting_bytes);
        for record in self.ids.take_new() {
            self.next.push(bundle, data::decode(&record.value)?, record.time);
        }
        Ok(())
    }

    fn flush(&mut self, bundle: &mut Bundle) {
        self.next.flush(bundle);
    }

    fn client_ids(&mut self) -> Option<&mut ClientIds> {
        Some(&mut self.ids)
    }
}

/// Sends records by the hash of their client's id.
pub(crate) fn id_sender<T: StreamData>(id: Arc<dyn Fn(&T) -> ExternalId + Send + Sync>, edge: usize) -> AnyPush {
    let mut value = Vec::new();
    any::<T>(Last(move |bundle: &mut Bundle, record: T, time| {
        value.clear();
        value = data::encode_into(std::mem::take(&mut value), &record);
        bundle.send(edge, &id(&record).0.to_be_bytes(), &value, time);
    }))
}
