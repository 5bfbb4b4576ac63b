//! Code that all backends share.

use crate::{records::Error, wake::Signal, world::World};
use futures_util::future::{Either, select};
use onceflow_core::{Key, batch::Invalid, limits};
use std::pin::pin;

/// Ends when `look` answers, asked again whenever the bell rings, or after `ms`.
pub(super) async fn wait_for(world: &dyn World, bell: &Signal, look: impl FnMut() -> Option<()>, ms: u64) {
    match select(pin!(bell.until(look)), world.sleep(ms)).await {
        Either::Left(_) | Either::Right(_) => {}
    }
}

pub(super) fn check_get(keys: &[Key]) -> Result<(), Error> {
    let (found, limit) = (keys.len(), limits::GET_KEYS_MAX);
    if found <= limit {
        return Ok(());
    }
    Err(Invalid::TooMany { what: "keys in a get", found, limit, name: "GET_KEYS_MAX" }.into())
}
