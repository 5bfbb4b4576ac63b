//! A job: one run, from its start to its end, by whichever worker brings it there. All about it follows from the seed and
//! its number, so that a worker that knows nothing can go on with it.

use crate::{
    effects::Story,
    flows,
    tasks::{content, digest, paid},
};
use onceflow::{Engine, Error, Flow, Port, Resolution, Run, RunStatus, Summary, Timestamp, Value, port::Ports};
use onceflow_engine as engine;
use onceflow_store::testing::random::Random;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Which flow, and what is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Chain,
    /// A chain whose history is over before one can look.
    Short,
    Wide,
    Rounds,
    Choices,
    Files,
    Trying,
    Saga,
    Endless,
    Sheet,
    Payment,
}

const KINDS: [Kind; 11] = [
    Kind::Chain,
    Kind::Short,
    Kind::Wide,
    Kind::Rounds,
    Kind::Choices,
    Kind::Files,
    Kind::Trying,
    Kind::Saga,
    Kind::Endless,
    Kind::Sheet,
    Kind::Payment,
];

/// How long a run of [`Kind::Short`] is remembered.
const SHORT: Duration = Duration::from_millis(300);

const HOUR: Duration = Duration::from_secs(3600);

/// A job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) n: u64,
    keep: bool,
}

/// How a job ended, as it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    /// It ended, and its history with it, before it was looked at.
    Lapsed,
    Undone,
    Cancelled,
    /// The outcome of a step had to be reported, and was reported as a failure.
    Decided,
}

/// What is given to everyone who works on jobs.
pub(crate) struct Place {
    pub(crate) engine: Engine,
    pub(crate) directory: PathBuf,
}

impl Job {
    pub(crate) fn of(seed: u64, number: u64) -> Job {
        let mut random = Random::new(seed.wrapping_mul(1_000_003) ^ number);
        let kind = KINDS[(number as usize + random.below(3)) % KINDS.len()];
        let n = match kind {
            Kind::Wide => 10 + random.below(60) as u64,
            Kind::Files => *random.pick(&[100, 5_000, 80_000, 1_500_000]),
            _ => 1 + random.below(20) as u64,
        };
        Job { number, kind, n, keep: random.percent(30) }
    }

    /// The verbs of its effects, and how many steps have each, when it has ended so.
    pub(crate) fn steps(&self, end: End) -> Vec<(&'static str, u64)> {
        let n = self.n;
        match (self.kind, end) {
            (Kind::Chain | Kind::Short, _) => vec![("bump", 6)],
            (Kind::Wide, _) => vec![("square", n), ("bump", n)],
            (Kind::Rounds, _) => vec![("bump", n)],
            (Kind::Choices, _) => vec![("even", n.div_ceil(2)), ("odd", n / 2)],
            (Kind::Files, _) => vec![("make", 1), ("measure", 1)],
            (Kind::Trying, _) => vec![("flaky", 1), ("bump", 1)],
            (Kind::Saga, _) => vec![("charge", 1), ("reserve", 1), ("ship", 1), ("unreserve", 1), ("refund", 1)],
            (Kind::Sheet, _) => vec![("square", n + 1)],
            (Kind::Payment, End::Done) => vec![("bump", 2), ("pay", 1)],
            (Kind::Payment, _) => vec![("bump", 1)],
            (Kind::Endless, _) => vec![],
        }
    }

    fn key(&self) -> String {
        format!("{:?}-{}", self.kind, self.number)
    }

    /// Brings it to its end, and checks that it is the right one.
    pub(crate) async fn work(&self, place: &Place) -> Result<End, Error> {
        let n = self.n;
        match self.kind {
            Kind::Chain | Kind::Short => self.gives(place, &flows::chain(), n + 6).await,
            Kind::Wide => self.gives(place, &flows::wide(), (0..n).map(|n| n * n + 1).sum()).await,
            Kind::Rounds => self.gives(place, &flows::rounds(), n).await,
            Kind::Choices => {
                let sum = (0..n).map(|n| if n % 2 == 0 { n / 2 } else { 3 * n + 1 }).sum();
                self.gives(place, &flows::choices(), sum).await
            }
            Kind::Trying => self.gives(place, &flows::trying(), n + 101).await,
            Kind::Files => self.files(place).await,
            Kind::Saga => self.saga(place).await,
            Kind::Endless => self.endless(place).await,
            Kind::Sheet => self.sheet(place).await,
            Kind::Payment => self.payment(place).await,
        }
    }

    /// When this job was first begun, by any worker.
    async fn first_tried(&self, place: &Place) -> Result<Timestamp, Error> {
        let file = place.directory.join(format!("tried-{}", self.number));
        if let Some(ms) = fs::read_to_string(&file).ok().and_then(|text| text.strip_suffix('.')?.parse().ok()) {
            return Ok(Timestamp::from_ms(ms));
        }
        let now = place.engine.now().await?;
        fs::write(&file, format!("{}.", now.as_ms())).expect("a place for a file");
        Ok(now)
    }

    async fn start<I: Ports, O: Ports>(
        &self,
        place: &Place,
        flow: &Flow<I, O>,
        inputs: I::Values,
    ) -> Result<Run<O>, Error> {
        let mut start = place.engine.start(flow, inputs).key(self.key()).first_tried(self.first_tried(place).await?);
        if self.keep || self.kind == Kind::Sheet {
            start = start.keep(HOUR);
        }
        if self.kind == Kind::Short {
            start = start.history(SHORT);
        }
        start.await
    }

    /// The run as it is, in any state; started if there is none. To start one again that failed would try again
    /// what failed.
    async fn find<O: Ports>(&self, place: &Place, flow: &Flow<flows::Given, O>) -> Result<Run<O>, Error> {
        match place.engine.find(flow, &self.key()).await {
            Err(Error::Engine(engine::Error::NoRun(_))) => self.start(place, flow, (self.number, self.n)).await,
            found => found,
        }
    }

    async fn gives(&self, place: &Place, flow: &Flow<flows::Given, Port<u64>>, expected: u64) -> Result<End, Error> {
        let result = match self.start(place, flow, (self.number, self.n)).await {
            Ok(run) => run.result().await,
            Err(error) => Err(error),
        };
        match result {
            Err(Error::Engine(error)) if self.kind == Kind::Short && has_lapsed(&error) => Ok(End::Lapsed),
            result => {
                assert_eq!(result?, expected, "{} gave another result", self.key());
                Ok(End::Done)
            }
        }
    }

    async fn files(&self, place: &Place) -> Result<End, Error> {
        let flow = flows::files();
        let run = self.start(place, &flow, (self.number, self.n)).await?;
        let (sum, file) = flow.outputs();
        let expected = content(self.number, self.n);
        assert_eq!(run.output(&sum).await?, digest(&expected), "{} gave another result", self.key());
        let into = tempfile::tempdir_in(&place.directory).expect("a place for a file");
        let file = run.output_into(&file, into.path()).await?;
        assert!(file.read().expect("the file is there") == expected, "{} gave another file", self.key());
        Ok(End::Done)
    }

    async fn saga(&self, place: &Place) -> Result<End, Error> {
        match self.find(place, &flows::saga()).await?.wait().await? {
            Summary { status: RunStatus::Undone | RunStatus::NotUndone, failures, not_undone, .. } => {
                assert!(not_undone.is_empty(), "{}: not undone: {not_undone:?}", self.key());
                assert_eq!(failures.len(), 1, "{}: {failures:?}", self.key());
                Ok(End::Undone)
            }
            other => panic!("{} should have been undone, but: {other}", self.key()),
        }
    }

    async fn endless(&self, place: &Place) -> Result<End, Error> {
        let run = self.find(place, &flows::endless()).await?;
        crate::pause(20 + self.n * 10).await;
        cancel(&run).await?;
        match run.wait().await? {
            Summary { status: RunStatus::Cancelled, not_undone, .. } => {
                assert!(not_undone.is_empty(), "{}: not undone: {not_undone:?}", self.key());
                Ok(End::Cancelled)
            }
            other => panic!("{} should have been cancelled, but: {other}", self.key()),
        }
    }

    /// Runs, and then with one row changed.
    async fn sheet(&self, place: &Place) -> Result<End, Error> {
        let flow = flows::sheet();
        let mut rows: Vec<u64> = (0..self.n).map(|row| row + 1).collect();
        let squares = |rows: &[u64]| rows.iter().map(|row| row * row).sum::<u64>();
        let is_first_done = place.directory.join(format!("first-{}", self.number));
        if !is_first_done.exists() {
            let run = self.start(place, &flow, (self.number, rows.clone())).await?;
            assert_eq!(run.result().await?, squares(&rows), "{} gave another result", self.key());
            fs::write(&is_first_done, "").expect("a place for a file");
        }
        rows[self.n as usize / 2] += 1000;
        let run = self.start(place, &flow, (self.number, rows.clone())).await?;
        assert_eq!(run.result().await?, squares(&rows), "{} gave another result for changed rows", self.key());
        Ok(End::Done)
    }

    async fn payment(&self, place: &Place) -> Result<End, Error> {
        let run = self.find(place, &flows::payment()).await?;
        loop {
            match run.wait().await? {
                Summary { status: RunStatus::Done, .. } => {
                    assert_eq!(run.result().await?, paid(self.n + 1) + 1, "{} gave another result", self.key());
                    return Ok(End::Done);
                }
                Summary { status: RunStatus::Waiting, undecided: steps, .. } => {
                    self.decide(place, &run, &steps).await?;
                }
                Summary { status: RunStatus::Failed, failures, .. } => {
                    let is_ours = failures.iter().all(|failed| format!("{failed:?}").contains("no one paid"));
                    assert!(is_ours, "{} failed: {failures:?}", self.key());
                    // A failed run waits to be tried again, for ever; this one is not.
                    cancel(&run).await?;
                }
                Summary { status: RunStatus::Cancelled, .. } => return Ok(End::Decided),
                other => panic!("{} should be done, but: {other}", self.key()),
            }
        }
    }

    /// Reports the outcome of a payment: it was made if its effect is there, and otherwise it failed. Never that it be made
    /// again: who began it may still be at it.
    async fn decide(&self, place: &Place, run: &Run<Port<u64>>, steps: &[String]) -> Result<(), Error> {
        let story = Story::read(&effects_file(&place.directory), Some(self.number)).expect("effects that can be read");
        let is_paid = story.effects.iter().any(|effect| effect.verb == "pay");
        let resolution = match is_paid {
            true => Resolution::Done(vec![paid(self.n + 1).encode().expect("a number can be written")]),
            false => Resolution::Fail(String::from("no one paid")),
        };
        match run.resolve(&steps[0], resolution).await {
            Err(Error::Engine(engine::Error::Refused { .. })) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Cancels a run, unless it was cancelled by one who was then killed.
async fn cancel<O: Ports>(run: &Run<O>) -> Result<(), Error> {
    use engine::Error::{Busy, Ended, Refused};
    match run.cancel().await {
        Err(Error::Engine(Refused { .. } | Busy { .. } | Ended { .. })) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Lets an engine work on all of them.
pub(crate) fn offer(engine: &Engine) -> Result<(), Error> {
    for flow in [
        flows::chain(),
        flows::wide(),
        flows::rounds(),
        flows::choices(),
        flows::trying(),
        flows::saga(),
        flows::endless(),
        flows::payment(),
    ] {
        engine.offer(&flow)?;
    }
    engine.offer(&flows::files())?;
    engine.offer(&flows::sheet())
}

/// Whether it says that the history is over.
fn has_lapsed(error: &engine::Error) -> bool {
    matches!(error, engine::Error::TooLate { .. } | engine::Error::Ended { .. } | engine::Error::NoRun(_))
}

pub(crate) fn effects_file(directory: &Path) -> PathBuf {
    directory.join("effects")
}
