//! Many sessions at a time: nothing of them is left.

use onceflow::scope::{BufferKeep, BufferKey, Scope};
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

/// A message that is counted while it exists.
struct Counted(Arc<AtomicI64>, i64);

impl Counted {
    fn new(count: &Arc<AtomicI64>, value: i64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count.clone(), value)
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Counted::new(&self.0, self.1)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn sessions() -> Scope<Counted, i64> {
    let cleanup = Scope::<(BufferKey<Counted>,), ()>::build(|s| {
        s.start().map(|(key,): (BufferKey<Counted>,)| drop(key.pull())).terminate(s);
    });
    let inner = Scope::<Counted, Counted>::build(|s| {
        let [one, two] = s.start().fork_clone();
        one.map_async(|m| async move {
            tokio::task::yield_now().await;
            m
        })
        .terminate(s);
        two.map_async(|m: Counted| async move {
            std::future::pending::<()>().await;
            m
        })
        .terminate(s);
    });
    let build = Scope::<Counted, i64>::build(|s| {
        let buffer = s.buffer::<Counted>(BufferKeep::All);
        let [keep, more, work] = s.start().fork_clone();
        keep.store(buffer);
        more.store(buffer);
        let checked =
            work.call(&inner.unwrap()).result.try_map(|m: Counted| if m.1 % 3 == 0 { Err("third") } else { Ok(m) });
        checked.map(|m| m.1).terminate(s);
        s.on_cleanup("clean", (buffer,), &cleanup.unwrap()).unlimited();
    });
    build.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_sessions_leave_no_message_behind() {
    let count = Arc::new(AtomicI64::new(0));
    let scope = sessions();
    let world: Arc<dyn onceflow_store::World> = onceflow_store::world::RealWorld::here();
    for round in 0..10 {
        let runs: Vec<_> = (0..500).map(|v| scope.open(&world, Counted::new(&count, v))).collect();
        for (v, run) in (0..).zip(runs) {
            if v % 7 == round {
                run.cancel("soak");
            }
            let result = run.await;
            assert!(result == Ok(v) || result.is_err() && (v % 3 == 0 || v % 7 == round), "{v}: {result:?}");
        }
    }
    assert_eq!(count.load(Ordering::Relaxed), 0, "messages are left");
}
