//! The scripts that a server runs for us. They are sent once and then called by their hash; a server that has forgotten
//! one, after a restart, is sent it again.

use super::{
    link::{Link, Trouble},
    sums,
};
use onceflow_core::Shard;
use redis::{Cmd, ErrorKind, ServerErrorKind, Value};
use std::sync::OnceLock;

/// A script and, once it was called, all of its code and its hash.
pub(crate) struct Script {
    code: &'static str,
    /// Stands before the code, where it is computed.
    before: fn() -> String,
    whole: OnceLock<(String, String)>,
}

impl Script {
    pub(crate) const fn new(code: &'static str) -> Self {
        Script::after(String::new, code)
    }

    const fn after(before: fn() -> String, code: &'static str) -> Self {
        Script { code, before, whole: OnceLock::new() }
    }

    /// The code and its hash.
    fn whole(&self) -> &(String, String) {
        self.whole.get_or_init(|| {
            let code = (self.before)() + self.code;
            let hash = redis::Script::new(&code).get_hash().to_owned();
            (code, hash)
        })
    }
}

const BATCH_CODE: &str = concat!(include_str!("page.lua"), include_str!("clock.lua"), include_str!("batch.lua"));
const SCAN_CODE: &str = concat!(include_str!("page.lua"), include_str!("scan.lua"));
const NOW_CODE: &str = concat!(include_str!("clock.lua"), include_str!("now.lua"));

/// One batch.
pub(super) static BATCH: Script = Script::new(BATCH_CODE);
/// Rows of a group in order.
pub(super) static SCAN: Script = Script::new(SCAN_CODE);
/// Sweeps values.
pub(super) static SWEEP: Script = Script::after(sums::tables, include_str!("bury.lua"));
/// The identity of the store, different from every other's.
pub(super) static IDENTITY: Script = Script::new(include_str!("identity.lua"));
/// The store's clock.
pub(super) static NOW: Script = Script::new(NOW_CODE);

/// The call of a script.
fn command<K: AsRef<str>>(name: &str, what: &str, keys: &[K], arguments: &[&[u8]]) -> Cmd {
    let mut command = Cmd::with_capacity(3 + keys.len() + arguments.len(), 256);
    command.arg(name).arg(what).arg(keys.len());
    keys.iter().for_each(|key| _ = command.arg(key.as_ref()));
    arguments.iter().for_each(|argument| _ = command.arg(argument));
    command
}

/// The call of a script that the server has.
pub(super) fn by_hash<K: AsRef<str>>(script: &Script, keys: &[K], arguments: &[&[u8]]) -> Cmd {
    command("EVALSHA", &script.whole().1, keys, arguments)
}

/// Runs a script on the node that has a shard.
pub(super) async fn run<K: AsRef<str>>(
    link: &Link,
    shard: Shard,
    script: &Script,
    keys: &[K],
    arguments: &[&[u8]],
) -> Result<Value, Trouble> {
    match link.call(shard, &by_hash(script, keys, arguments)).await {
        Err(Trouble::Refused(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            link.call(shard, &command("EVAL", &script.whole().0, keys, arguments)).await
        }
        answer => answer,
    }
}
