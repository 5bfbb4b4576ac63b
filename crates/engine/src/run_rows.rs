//! Reads the rows of one generation of a run, by kind: parked steps, outputs that arrived, registered compensations,
//! frames, inboxes, notes of failures. Nothing is cached, and several reads are no snapshot: a decision requires the
//! rows it rests on.

use crate::{Error, kernel::Kernel};
use onceflow_core::{
    Name, Row,
    limits::SCAN_ROWS_MAX,
    protocol::{
        ids::{END, FrameId, StepId},
        keys::Keys,
        rows::{self, Failed, Frame, Parked, Received, Undo, Why},
    },
};
use onceflow_store::records::Scan;

/// The rows of a generation of a run.
pub(crate) struct RunRows<'a> {
    kernel: &'a Kernel,
    keys: &'a Keys,
}

/// A parked step, with its row as it was read.
pub(crate) type ParkedStep = (StepId, Row, Parked);

/// A registered compensation, with its row as it was read.
pub(crate) struct RegisteredUndo {
    /// The number of the compensation; those with higher numbers run first.
    pub(crate) number: u32,
    pub(crate) row: Row,
    pub(crate) undo: Undo,
}

/// The name of the row of failures that a run keeps while it is undone and removed.
pub(crate) const NOTED: &[u8] = b"x";

/// The failures of a run, and its steps that could not be undone.
pub(crate) type Noted = (Vec<Failed>, Vec<Failed>);

impl<'a> RunRows<'a> {
    pub(crate) fn new(kernel: &'a Kernel, keys: &'a Keys) -> Self {
        RunRows { kernel, keys }
    }

    /// The outputs of the run that have arrived.
    pub(crate) async fn arrived_outputs(&self) -> Result<Vec<Received>, Error> {
        self.inbox(StepId::of_run(END)).await
    }

    /// The deliveries to a step, in its inbox.
    pub(crate) async fn inbox(&self, step: StepId) -> Result<Vec<Received>, Error> {
        let rows = self.of_kind(self.keys.inbox(step).as_bytes()).await?;
        rows.iter().map(|(_, row)| rows::read(row).ok_or_else(|| Error::damaged("an arrival"))).collect()
    }

    /// The deliveries to all steps, in their inboxes.
    pub(crate) async fn inboxes(&self) -> Result<Vec<(StepId, Received)>, Error> {
        let read = |(name, row): &(Name, Row)| {
            let step = name.as_bytes().get(1..1 + StepId::BYTES).and_then(StepId::from_bytes);
            step.zip(rows::read(row)).ok_or_else(|| Error::damaged("an arrival"))
        };
        self.of_kind(b"i").await?.iter().map(read).collect()
    }

    /// A page of the parked steps, in order, after this one.
    pub(crate) async fn parked(&self, after: Option<StepId>, limit: usize) -> Result<Vec<ParkedStep>, Error> {
        let after = after.map(|step| self.keys.parked(step).name);
        let scan = Scan::of(self.keys.rows.clone(), limit).prefix(b"p").after(after);
        let page = self.kernel.records.scan(self.kernel.shard, scan).await?;
        let read = |(name, row): &(Name, Row)| {
            let parked = StepId::from_bytes(&name.as_bytes()[1..]).zip(rows::read(row));
            let (step, parked) = parked.ok_or_else(|| Error::damaged("a step that was put aside"))?;
            Ok((step, row.clone(), parked))
        };
        page.rows.iter().map(read).collect()
    }

    /// The parked steps with such a reason, in order; at most `max`.
    pub(crate) async fn parked_for(&self, is_it: impl Fn(&Why) -> bool, max: usize) -> Result<Vec<ParkedStep>, Error> {
        let (mut found, mut after) = (Vec::new(), None);
        while found.len() < max {
            let page = self.parked(after, SCAN_ROWS_MAX).await?;
            let Some((last, ..)) = page.last() else { break };
            after = Some(*last);
            found.extend(page.into_iter().filter(|(_, _, parked)| is_it(&parked.why)));
        }
        found.truncate(max);
        Ok(found)
    }

    /// The parked steps that say most about the run: first failed and unknown ones, wherever they stand, then others;
    /// some of each. Also the number of all that failed.
    pub(crate) async fn parked_first(&self) -> Result<(Vec<ParkedStep>, usize), Error> {
        const EACH_MAX: usize = 1000;
        let (mut telling, mut others, mut after, mut failed) = (Vec::new(), Vec::new(), None, 0);
        loop {
            let page = self.parked(after, SCAN_ROWS_MAX).await?;
            let Some((last, ..)) = page.last() else { break };
            after = Some(*last);
            for parked in page {
                failed += usize::from(matches!(parked.2.why, Why::Failed(_)));
                let kind = if parked.2.why == Why::NotStarted { &mut others } else { &mut telling };
                if kind.len() < EACH_MAX {
                    kind.push(parked);
                }
            }
        }
        telling.append(&mut others);
        Ok((telling, failed))
    }

    /// The failures among the parked steps that say most.
    pub(crate) async fn failures(&self) -> Result<Vec<Failed>, Error> {
        Ok(failures(&self.parked_first().await?.0))
    }

    /// The registered compensations, by rising numbers.
    pub(crate) async fn registrations(&self) -> Result<Vec<RegisteredUndo>, Error> {
        let read = |(name, row): (Name, Row)| {
            let number = name.as_bytes()[1..].try_into().ok().map(u32::from_be_bytes);
            let (number, undo) = number.zip(rows::read(&row)).ok_or_else(|| Error::damaged("a registration"))?;
            Ok(RegisteredUndo { number, row, undo })
        };
        let found: Vec<RegisteredUndo> =
            self.of_kind(b"u").await?.into_iter().map(read).collect::<Result<_, Error>>()?;
        debug_assert!(
            found.is_sorted_by(|one, next| one.number < next.number),
            "a registration's number is its row's name in big endian, and rows come by name"
        );
        Ok(found)
    }

    /// The frames that are open.
    pub(crate) async fn frames(&self) -> Result<Vec<(FrameId, Frame)>, Error> {
        let read = |(name, row): &(Name, Row)| {
            let frame = FrameId::from_bytes(&name.as_bytes()[1..]).zip(rows::read(row));
            frame.ok_or_else(|| Error::damaged(format!("a frame of run {}", self.keys.run)))
        };
        self.of_kind(b"f").await?.iter().map(read).collect()
    }

    /// The failures of a run that is being undone, and the compensations that failed.
    pub(crate) async fn noted(&self) -> Result<Noted, Error> {
        let row = self.kernel.row(self.keys.rows.key(NOTED)).await?;
        Ok(row.as_deref().and_then(rows::read::<Noted>).unwrap_or_default())
    }

    async fn of_kind(&self, prefix: &[u8]) -> Result<Vec<(Name, Row)>, Error> {
        self.kernel.all_rows(self.keys.rows.clone(), prefix).await
    }
}

/// The failures among parked steps.
pub(crate) fn failures(parked: &[ParkedStep]) -> Vec<Failed> {
    let failed = |(_, _, parked): &(_, _, Parked)| match &parked.why {
        Why::Failed(failed) => Some(failed.clone()),
        Why::NotStarted | Why::Unknown { .. } | Why::Suspended { .. } => None,
    };
    parked.iter().filter_map(failed).collect()
}
