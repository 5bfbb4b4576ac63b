//! Sweeps on a store that can do it by itself ([`ServerRecords::sweep`]): the same as
//! `sweep`, but on the server. Each call takes a turn and sets the next one, so calls under way follow each other, and
//! when another sweeper comes between, the calls after it do nothing.

use super::{Error, ReclaimCall, Round, turn::Seen};
use crate::{
    records::{self, ServerRecords, SweepReport, SweepRequest},
    values::{
        limits,
        stored::{Debt, Sweeper},
    },
};
use futures_util::{StreamExt, stream::FuturesOrdered};
use onceflow_core::{Row, Timestamp};

/// The result of several calls.
pub(super) struct There {
    pub(super) round: Round,
    /// Some work needs a batch of this process.
    pub(super) is_odd: bool,
}

impl<'a> ReclaimCall<'a> {
    /// The server that sweeps by itself, if the budget suffices for one call, which looks at as many values as one value
    /// can refer to.
    pub(super) fn sweeping_server(&self) -> Option<&'a dyn ServerRecords> {
        self.values.rows.records.server().filter(|_| self.left >= limits::REFS_PER_VALUE_MAX)
    }

    /// Calls until there is nothing left, the budget is used up, or another sweeper comes between.
    pub(super) async fn sweep_on_server(
        &mut self,
        server: &dyn ServerRecords,
        seen: &Row,
        sweeper: Sweeper,
        next_deadline: Option<Timestamp>,
    ) -> Result<There, Error> {
        let (mut turn, mut calls) = (seen.clone(), FuturesOrdered::new());
        let (mut touched, mut is_odd, mut goes_on) = (0, false, true);
        loop {
            while goes_on && calls.len() < server.concurrent_sweeps() {
                let ask = self.next_sweep_request(&mut turn, sweeper, next_deadline);
                calls.push_back(server.sweep(self.values.rows.shard, ask));
            }
            match calls.next().await {
                None => return Ok(There { round: Round::Did(touched), is_odd }),
                Some(Ok(Some(SweepReport { swept, paid, touched: some, more, odd }))) => {
                    self.done.swept += swept;
                    self.done.paid += paid;
                    touched += some;
                    is_odd |= odd;
                    goes_on &= more && !odd && touched < self.left;
                }
                // After the last call that did something the turn stays, and another sweeper may take it.
                Some(Ok(None)) if !goes_on => {}
                Some(Ok(None) | Err(records::Error::Unknown(_))) if touched == 0 => {
                    return Ok(There { round: Round::Again, is_odd });
                }
                Some(Ok(None) | Err(records::Error::Unknown(_))) => goes_on = false,
                Some(Err(error)) => return Err(error.into()),
            }
        }
    }

    fn next_sweep_request(&self, turn: &mut Row, sweeper: Sweeper, next_deadline: Option<Timestamp>) -> SweepRequest {
        let back_by = next_deadline.unwrap_or(Timestamp::NEVER);
        let next = Sweeper { turn: self.values.writer.fence(), back_by, ..sweeper };
        let row = next.to_row();
        let keys = &self.values.rows.keys;
        let groups = [&keys.values, &keys.counts, &keys.zero, &keys.owed].map(Clone::clone);
        let seen = std::mem::replace(turn, row.clone());
        SweepRequest { turn: (keys.sweeper(), seen, row), groups, debt: Debt::decrements_name(next.turn) }
    }
}

impl Seen {
    /// The row and what it says, if there is one.
    pub(super) fn both(&self) -> Option<(&Row, Sweeper)> {
        Some((self.row.as_ref()?, self.sweeper?))
    }
}
