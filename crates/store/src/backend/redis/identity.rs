//! Checks that the server still has the store that we wrote to. A server that was flushed, restored from an older copy
//! or replaced by an empty one answers as if nothing had ever been there; the identity of the store is then gone, too.

use super::{Redis, link::Trouble, scripts, wire};
use crate::records::Error;
use onceflow_core::Shard;
use redis::Value;

/// How long the hash of a clock that no process reads any more stays: longer than anyone waits to go on with a run, and
/// finite, so that nothing of an emptied store stays for ever.
pub(super) const CLOCK_MS: u64 = 400 * 24 * 3_600_000;

impl Redis {
    /// Remembers which store this is, once something of ours is in it.
    pub(super) async fn remember_store(&self) {
        if self.id.get().is_some() {
            return;
        }
        match self.store_id(&format!("{:032x}", self.world.random())).await {
            Ok(id) => drop(self.id.set(id)),
            Err(error) => tracing::debug!(%error, "which store this is could not be asked; it is asked again"),
        }
    }

    /// Fails if the server no longer has the store that we wrote to.
    pub(super) async fn check_store(&self) -> Result<(), Error> {
        let Some(known) = self.id.get() else { return Ok(()) };
        let found = self.store_id("").await?;
        if found == *known {
            return Ok(());
        }
        let how = if found.is_empty() { "it has none of it" } else { "it has another one" };
        let why = format!(
            "the server has lost data that was in the store, and {how} (FLUSHALL? a restart without its files?)"
        );
        Err(Error::Lost(why.into()))
    }

    async fn store_id(&self, otherwise: &str) -> Result<String, Error> {
        let shard = Shard::default();
        let (keys, ms) = (self.address().keys(shard), CLOCK_MS.to_string());
        let arguments = [otherwise.as_bytes(), ms.as_bytes()];
        let answer = scripts::run(&self.link, shard, &scripts::IDENTITY, &[keys.clock()], &arguments).await;
        match answer.map_err(Trouble::reading)? {
            Value::BulkString(id) => Ok(String::from_utf8_lossy(&id).into_owned()),
            Value::SimpleString(id) => Ok(id),
            other => Err(wire::strange(&other)),
        }
    }
}
