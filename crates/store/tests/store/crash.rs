//! Every backend that writes files, on a disk that stops, fails or is full at every operation. To add one, add a line.

use onceflow_store::{
    backend::{
        journal::{ExpectedStore, Journal, Options},
        paged::{Options as PagedOptions, Paged},
    },
    records_crash_suite,
};
use std::sync::Arc;

records_crash_suite!(journal, |disk, world| match Journal::open(Arc::new(disk), Options::default(), world) {
    Ok((journal, _)) => Ok(Arc::new(journal)),
    Err(error) => Err(Box::new(error)),
});

records_crash_suite!(paged, |disk, world| {
    match Paged::open(Arc::new(disk), PagedOptions::default(), world, ExpectedStore::Unknown) {
        Ok((paged, _)) => Ok(Arc::new(paged)),
        Err(error) => Err(Box::new(error)),
    }
});
