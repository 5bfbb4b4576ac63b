//! The least a durable commit can cost: a file that bytes are appended to, one thread that writes and syncs whatever
//! arrived meanwhile, and wakers called straight from it. No state, no checksums, no segments, no snapshots.
//!
//! Its space is written once before anything is measured and then used round and round, which is the best case: no sync
//! ever carries metadata or newly prepared space.

use crate::disk;
use std::{
    fs,
    future::poll_fn,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, Waker},
    thread::JoinHandle,
};

const SPACE_BYTES: u64 = 64 << 20;

/// A log and the thread that writes it.
pub struct BareLog {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<io::Result<Totals>>>,
}

/// What the writer did in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub bytes: u64,
    pub syncs: u64,
}

struct Shared {
    next: Mutex<Group>,
    arrived: Condvar,
    /// The last group that is durable.
    durable: AtomicU64,
}

/// What is written together, and who waits for it.
#[derive(Default)]
struct Group {
    number: u64,
    bytes: Vec<u8>,
    waiting: Vec<Waker>,
    closing: bool,
}

impl BareLog {
    /// A log in a new file.
    pub fn create(path: &Path) -> io::Result<BareLog> {
        let file = fs::File::options().read(true).write(true).create_new(true).open(path)?;
        prepare(&file, 0, SPACE_BYTES)?;
        file.sync_all()?;
        let next = Mutex::new(Group { number: 1, ..Group::default() });
        let shared = Arc::new(Shared { next, arrived: Condvar::new(), durable: AtomicU64::new(0) });
        let writer = std::thread::spawn({
            let shared = shared.clone();
            move || shared.write(&file)
        });
        Ok(BareLog { shared, writer: Some(writer) })
    }

    /// Appends a record and ends when it is durable. To be awaited by one task from its beginning to its end: the waker of
    /// the first poll is the one that is called.
    pub async fn append(&self, record: &[u8]) {
        let mut group = None;
        poll_fn(|context| match group {
            None => {
                group = Some(self.shared.join(record, context.waker()));
                Poll::Pending
            }
            Some(group) if self.shared.durable.load(Ordering::Acquire) >= group => Poll::Ready(()),
            Some(_) => Poll::Pending,
        })
        .await;
    }

    /// Writes what is left and ends.
    pub fn close(mut self) -> io::Result<Totals> {
        self.shared.lock().closing = true;
        self.shared.arrived.notify_one();
        let writer = self.writer.take().expect("closed once");
        writer.join().expect("the log's writer does not panic")
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Group> {
        self.next.lock().expect("no thread panics while it holds the log's lock")
    }

    fn join(&self, record: &[u8], waker: &Waker) -> u64 {
        let mut group = self.lock();
        let first = group.bytes.is_empty();
        group.bytes.extend_from_slice(record);
        group.waiting.push(waker.clone());
        let number = group.number;
        drop(group);
        if first {
            self.arrived.notify_one();
        }
        number
    }

    fn write(&self, file: &fs::File) -> io::Result<Totals> {
        let (mut totals, mut at, mut spare) = (Totals::default(), 0, (Vec::new(), Vec::new()));
        loop {
            let mut next = self.lock();
            while next.bytes.is_empty() && !next.closing {
                next = self.arrived.wait(next).expect("no thread panics while it holds the log's lock");
            }
            if next.bytes.is_empty() {
                return Ok(totals);
            }
            let number = next.number;
            next.number += 1;
            let mut bytes = std::mem::replace(&mut next.bytes, spare.0);
            let mut waiting = std::mem::replace(&mut next.waiting, spare.1);
            drop(next);
            if at + bytes.len() as u64 > SPACE_BYTES {
                at = 0;
            }
            file.write_all_at(&bytes, at)?;
            disk::synced(|| file.sync_data())?;
            at += bytes.len() as u64;
            totals.bytes += bytes.len() as u64;
            totals.syncs += 1;
            self.durable.store(number, Ordering::Release);
            waiting.drain(..).for_each(Waker::wake);
            bytes.clear();
            spare = (bytes, waiting);
        }
    }
}

/// Writes zeros, as the journal prepares its space.
pub fn prepare(file: &fs::File, from: u64, to: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut at = from;
    while at < to {
        let bytes = (to - at).min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..bytes as usize], at)?;
        at += bytes;
    }
    Ok(())
}
