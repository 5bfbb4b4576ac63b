//! Runs the chains of a worker. A chain is the work of one slot: a step, then the step that its commit claimed, and so
//! on, as one future.
//!
//! Most chains wait for one thing only: that the claim of their next step is durable. A task for each would be woken and
//! scheduled at every step. Here they are parked in the order of their positions, and one wait for the first serves all
//! that became durable with it. A few tasks, the runners, poll the chains that can go on; a chain that waits for anything
//! else, because its body does, gets a task of its own until it is parked again.
//!
//! A body may block its thread, and must hold up no chain but its own. So no runner owns chains, all are in one line; and a
//! runner polls a chain only while the rest of the line is attended without it: another runner is about to come, or waits
//! for the disk and nothing else is to be done. What is woken last is next on its thread, and no other thread takes it from
//! there, even while a body blocks the thread. So a runner polls one chain, and then lets its thread go on to that; and
//! where it has called another runner, it first goes to the end of its thread's tasks itself, from where any thread takes
//! it.

use crate::shared::lock;
use onceflow_store::{
    BoxFuture, Position, Records, World,
    records::{self, is_durable},
    world::yield_now,
};
use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

/// The chains of a worker that have no task of their own.
pub(super) struct Runners {
    world: Arc<dyn World>,
    records: Arc<dyn Records>,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    /// Chains that can go on.
    ready: VecDeque<Chain>,
    /// Chains that wait until a position is durable, by position.
    parked: VecDeque<(Position, Chain)>,
    /// Runners that are called, or have stepped aside for a moment, and will look at the line.
    coming: usize,
    /// A runner waits until the first of the parked chains can go on.
    is_waited_for: bool,
    /// The runtime has dropped its tasks: chains end unfinished, so that the worker drains.
    is_closed: bool,
}

/// The steps of a slot.
pub(super) struct Chain {
    future: BoxFuture<'static, ()>,
    parking: Arc<Parking>,
}

/// Where a chain says which position it waits for, and hears that it is durable.
#[derive(Default)]
pub(crate) struct Parking(Mutex<Parked>);

#[derive(Clone, Copy, Default)]
enum Parked {
    #[default]
    No,
    /// The chain is to be polled again when this position is durable.
    Until(Position),
    /// The position is durable.
    Over,
}

impl Parking {
    /// Waits until everything up to `position` is durable. For the chain itself, which must not wait for anything else at the
    /// same time: nothing else wakes it.
    pub(crate) async fn until_durable(&self, records: &dyn Records, position: Position) -> Result<(), records::Error> {
        if is_durable(records, position) {
            return Ok(());
        }
        *lock(&self.0) = Parked::Until(position);
        let mut is_back = false;
        poll_fn(|_| if std::mem::replace(&mut is_back, true) { Poll::Ready(()) } else { Poll::Pending }).await;
        let parked = std::mem::take(&mut *lock(&self.0));
        match parked {
            Parked::Over => Ok(()),
            // The wait for all has failed: each chain hears why for itself.
            Parked::No | Parked::Until(_) => records.durable(position).await,
        }
    }
}

/// The result of polling a chain: it has ended, or waits.
enum Polled {
    Ended,
    Durable(Position),
    /// Its waker will be called.
    Waker,
}

impl Chain {
    pub(super) fn new(future: BoxFuture<'static, ()>, parking: Arc<Parking>) -> Self {
        Chain { future, parking }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Polled {
        if self.future.as_mut().poll(context).is_ready() {
            return Polled::Ended;
        }
        match *lock(&self.parking.0) {
            Parked::Until(position) => Polled::Durable(position),
            Parked::No | Parked::Over => Polled::Waker,
        }
    }
}

impl Line {
    fn park(&mut self, position: Position, chain: Chain) {
        // Chains that commit on several threads come here in any order.
        let at = self.parked.partition_point(|(other, _)| *other <= position);
        self.parked.insert(at, (position, chain));
    }

    /// Moves the first chains, as long as their positions are durable, to those that can go on.
    fn unpark(&mut self, is_durable: impl Fn(Position) -> bool) {
        while let Some((_, chain)) = self.parked.pop_front_if(|(position, _)| is_durable(*position)) {
            *lock(&chain.parking.0) = Parked::Over;
            self.ready.push_back(chain);
        }
    }

    /// Lets the first chain go on without what it waits for.
    fn unpark_first(&mut self) {
        if let Some((_, chain)) = self.parked.pop_front() {
            *lock(&chain.parking.0) = Parked::No;
            self.ready.push_back(chain);
        }
    }

    /// Whatever the runners do that poll chains now, the line moves on.
    fn is_attended(&self) -> bool {
        let is_empty = self.ready.is_empty() && self.parked.is_empty();
        is_empty || self.coming > 0 || self.is_waited_for && self.ready.is_empty()
    }
}

/// A task that polls chains, or waits for the disk.
struct Runner {
    of: Arc<Runners>,
    /// The line counts on it.
    is_awaited: bool,
}

impl Drop for Runner {
    fn drop(&mut self) {
        // Only a runtime that drops its tasks ends a runner that the line counts on.
        if self.is_awaited {
            self.of.close();
        }
    }
}

/// The last act of a runner.
enum Did {
    /// It was called, or stepped aside.
    Come,
    /// It has polled a chain, which may have to be parked.
    Poll(Option<(Position, Chain)>),
    /// It has waited until this position was durable, or until that failed.
    Wait(Position, bool),
}

/// The next act of a runner.
enum Turn {
    Poll(Chain),
    /// It lets its thread go on to other tasks, after calling another runner if it `calls`.
    StepAside {
        calls: bool,
    },
    Wait(Position),
    End,
}

impl Runners {
    pub(super) fn new(world: Arc<dyn World>, records: Arc<dyn Records>) -> Arc<Self> {
        Arc::new(Runners { world, records, line: Mutex::default() })
    }

    /// Begins a chain.
    pub(super) fn begin(self: &Arc<Self>, chain: Chain) {
        self.join(|line| line.ready.push_back(chain));
    }

    /// Adds a chain to the line.
    fn join(self: &Arc<Self>, add: impl FnOnce(&mut Line)) {
        let mut line = lock(&self.line);
        if line.is_closed {
            // The chain is dropped with `add`: not under the lock.
            return drop(line);
        }
        add(&mut line);
        let is_attended = line.is_attended();
        line.coming += usize::from(!is_attended);
        drop(line);
        if !is_attended {
            self.call();
        }
    }

    /// Starts a runner that is counted as coming.
    fn call(self: &Arc<Self>) {
        let runner = Runner { of: self.clone(), is_awaited: true };
        self.world.spawn("onceflow runner", Box::pin(runner.run()));
    }

    /// Polls a chain: answers it if it is to be parked, and gives it a task if its waker will be called.
    fn poll(self: &Arc<Self>, mut chain: Chain) -> Option<(Position, Chain)> {
        match chain.poll(&mut Context::from_waker(Waker::noop())) {
            Polled::Ended => None,
            Polled::Durable(position) => Some((position, chain)),
            Polled::Waker => {
                // Its task polls it at once, with the waker that counts.
                let task = Apart { chain: Some(chain), of: self.clone() };
                self.world.spawn("onceflow slot", Box::pin(task));
                None
            }
        }
    }

    /// Drops all chains, now and from now on.
    fn close(&self) {
        let mut line = lock(&self.line);
        line.is_closed = true;
        let chains = (std::mem::take(&mut line.ready), std::mem::take(&mut line.parked));
        drop(line);
        drop(chains);
    }
}

impl Runner {
    async fn run(mut self) {
        let mut did = Did::Come;
        loop {
            did = match self.turn(did) {
                // If the chain panics, this runner ends, and the line is attended without it.
                Turn::Poll(chain) => Did::Poll(self.of.poll(chain)),
                Turn::StepAside { calls } => {
                    if calls {
                        self.of.call();
                    }
                    yield_now().await;
                    Did::Come
                }
                Turn::Wait(position) => {
                    let durable = self.of.records.durable(position).await;
                    Did::Wait(position, durable.is_ok())
                }
                Turn::End => return,
            }
        }
    }

    /// Decides what to do next.
    fn turn(&mut self, did: Did) -> Turn {
        let records = &*self.of.records;
        let mut line = lock(&self.of.line);
        // It is counted as coming or as waiting again before the line is unlocked, unless it polls or ends.
        self.is_awaited = false;
        let has_polled = matches!(did, Did::Poll(_));
        match did {
            Did::Come => {
                assert!(line.coming > 0, "a runner comes that is not counted as coming");
                line.coming -= 1;
            }
            Did::Poll(parks) => {
                if line.is_closed {
                    drop(line);
                    return Turn::End;
                }
                if let Some((position, chain)) = parks {
                    line.park(position, chain);
                }
            }
            Did::Wait(reached, is_ok) => {
                line.is_waited_for = false;
                if is_ok { line.unpark(|position| position <= reached) } else { line.unpark_first() }
            }
        }
        line.unpark(|position| is_durable(records, position));
        let Some(chain) = line.ready.pop_front() else {
            let Some((position, _)) = line.parked.front() else { return Turn::End };
            if line.is_attended() {
                return Turn::End;
            }
            let position = *position;
            line.is_waited_for = true;
            self.is_awaited = true;
            return Turn::Wait(position);
        };
        if !has_polled && line.is_attended() {
            return Turn::Poll(chain);
        }
        line.ready.push_front(chain);
        line.coming += 1;
        self.is_awaited = true;
        let calls = !has_polled;
        line.coming += usize::from(calls);
        Turn::StepAside { calls }
    }
}

/// A chain with a task of its own, until it is parked.
struct Apart {
    chain: Option<Chain>,
    of: Arc<Runners>,
}

impl Future for Apart {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut chain = self.chain.take().expect("a task that has ended is not polled again");
        match chain.poll(context) {
            Polled::Ended => Poll::Ready(()),
            Polled::Durable(position) => {
                self.of.join(|line| line.park(position, chain));
                Poll::Ready(())
            }
            Polled::Waker => {
                self.chain = Some(chain);
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use onceflow_store::{
        backend::memory::Memory,
        testing::keep::keep,
        world::{RealWorld, World},
    };
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use tokio::sync::mpsc;

    /// Runners on a store that must be asked what is durable.
    fn runners() -> Arc<Runners> {
        let world: Arc<dyn World> = RealWorld::here();
        Runners::new(world.clone(), keep(Arc::new(Memory::new(world)), ()))
    }

    /// A chain that waits for the disk before each of its steps.
    fn chain(of: &Arc<Runners>, steps: usize, step: impl Fn(usize) + Send + 'static) -> Chain {
        let (records, parking) = (of.records.clone(), Arc::<Parking>::default());
        let parks = parking.clone();
        let future = async move {
            for at in 0..steps {
                parks.until_durable(&*records, Position(0)).await.unwrap();
                step(at);
            }
        };
        Chain::new(Box::pin(future), parking)
    }

    #[tokio::test]
    async fn a_chain_that_panics_ends_alone() {
        const CHAINS: usize = 10;
        const STEPS: usize = 20;
        let (runners, (ended, mut ends)) = (runners(), mpsc::unbounded_channel());
        for number in 0..CHAINS {
            let ended = ended.clone();
            let step = move |at| {
                assert!(number != 3 || at != 5, "the chain of a test panics");
                if at + 1 == STEPS {
                    ended.send(number).unwrap();
                }
            };
            runners.begin(chain(&runners, STEPS, step));
        }
        drop(ended);
        let mut all = Vec::new();
        while let Some(number) = ends.recv().await {
            all.push(number);
        }
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn chains_are_dropped_with_their_runtime() {
        struct Dropped(Arc<AtomicUsize>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let (runtime, dropped) = (tokio::runtime::Builder::new_current_thread().build().unwrap(), Arc::default());
        let runners = runtime.block_on(async {
            let runners = runners();
            for _ in 0..3 {
                let here = Dropped(Arc::clone(&dropped));
                runners.begin(chain(&runners, 1, move |_| assert!(Arc::strong_count(&here.0) > 0)));
            }
            runners
        });
        assert_eq!(dropped.load(SeqCst), 0, "no runner came yet");
        drop(runtime);
        assert_eq!(dropped.load(SeqCst), 3);
        assert!(lock(&runners.line).is_closed);
        runners.begin(chain(&runners, 1, |_| panic!("it does not begin")));
    }

    #[tokio::test]
    async fn chains_are_parked_by_position_and_go_on_as_far_as_the_disk_is() {
        let (runners, mut line) = (runners(), Line::default());
        for position in [5, 2, 9, 5, 7] {
            line.park(Position(position), chain(&runners, 0, drop));
        }
        assert!(line.parked.iter().map(|(position, _)| position.0).eq([2, 5, 5, 7, 9]));
        assert!(!line.is_attended());
        line.unpark(|position| position <= Position(5));
        assert_eq!((line.ready.len(), line.parked.len()), (3, 2));
        line.is_waited_for = true;
        assert!(!line.is_attended(), "a runner that waits for the disk polls no chain");
        line.ready.clear();
        assert!(line.is_attended());
        let polled = line.parked.front_mut().and_then(|(_, chain)| chain.future.as_mut().now_or_never());
        assert_eq!(polled, Some(()));
    }
}
