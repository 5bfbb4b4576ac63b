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

/// Sessions that overlap in one round.
const AT_ONCE: i64 = 500;

/// The memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let words = std::fs::read_to_string("/proc/self/statm").expect("Linux says how large a process is");
    words.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
}

/// 5 000 sessions; 100 000 if `ONCEFLOW_LONG` is set, and then memory is measured, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_sessions_leave_no_message_behind() {
    let count = Arc::new(AtomicI64::new(0));
    let scope = sessions();
    let world: Arc<dyn onceflow_store::World> = onceflow_store::world::RealWorld::here();
    let is_long = std::env::var_os("ONCEFLOW_LONG").is_some();
    let rounds = if is_long { 100_000 / AT_ONCE } else { 10 };
    let mut began = 0;
    for round in 0..rounds {
        let runs: Vec<_> = (0..AT_ONCE).map(|v| scope.open(&world, Counted::new(&count, v))).collect();
        for (v, run) in (0..).zip(runs) {
            let is_cancelled = v % 7 == round % 7;
            if is_cancelled {
                run.cancel("soak");
            }
            let result = run.await;
            assert!(result == Ok(v) || result.is_err() && (v % 3 == 0 || is_cancelled), "{v}: {result:?}");
        }
        assert_eq!(count.load(Ordering::Relaxed), 0, "messages are left after round {round}");
        if round == rounds / 10 {
            began = resident_bytes();
        }
    }
    let grown = resident_bytes().saturating_sub(began);
    assert!(!is_long || grown < 8 << 20, "{rounds} rounds of sessions have left {grown} bytes");
}

#[tokio::test]
async fn session_with_thousands_of_futures_drops_all_of_them_when_it_is_cancelled() {
    const FUTURES: usize = 5_000;
    let count = Arc::new(AtomicI64::new(0));
    let scope = Scope::<Counted, ()>::build(|s| {
        for chain in s.start().fork_clone_to(FUTURES) {
            let wait = |message: Counted| async move {
                std::future::pending::<()>().await;
                drop(message);
            };
            chain.map_async(wait).terminate(s);
        }
    });
    let world: Arc<dyn onceflow_store::World> = onceflow_store::world::RealWorld::here();
    let run = scope.unwrap().open(&world, Counted::new(&count, 0));
    assert_eq!(count.load(Ordering::Relaxed), FUTURES as i64, "all of them have begun");
    run.cancel("enough");
    assert!(run.await.is_err());
    assert_eq!(count.load(Ordering::Relaxed), 0, "futures are left");
}
