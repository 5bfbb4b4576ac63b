//! What every backend does alike.

use crate::{
    records::{Committed, Error, Outcome, Position, Refused},
    state::Answer,
    wake::Signal,
    world::World,
};
use futures_util::future::{Either, select};
use onceflow_core::{Key, batch::Invalid, limits};
use std::pin::pin;

/// Ends when `look` answers, asked again whenever the bell rings, or after `ms`.
pub(super) async fn wait_for(world: &dyn World, bell: &Signal, look: impl FnMut() -> Option<()>, ms: u64) {
    match select(pin!(bell.until(look)), world.sleep(ms)).await {
        Either::Left(_) | Either::Right(_) => {}
    }
}

/// What to answer for a batch tried after `position`, and whether someone should wake.
pub(super) fn outcome(answer: Answer, position: Position) -> (Outcome, bool) {
    match answer {
        Answer::Applied { fired, claimed, enabled } => {
            let position = Position(position.0 + 1);
            (Outcome::Applied(Committed { position, fired, claimed }), enabled)
        }
        Answer::Refused { which, found } => (Outcome::Refused(Refused { position, which, found }), false),
    }
}

pub(super) fn check_get(keys: &[Key]) -> Result<(), Error> {
    let (found, limit) = (keys.len(), limits::GET_KEYS_MAX);
    if found <= limit {
        return Ok(());
    }
    Err(Invalid::TooMany { what: "keys in a get", found, limit, name: "GET_KEYS_MAX" }.into())
}
