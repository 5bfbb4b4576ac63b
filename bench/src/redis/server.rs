//! A private server, and what it tells about itself: how often commands were called, how long they took, how many keys it has.

use anyhow::Context;
use onceflow_store::testing::redis::Server;
use redis::{Value, aio::MultiplexedConnection};
use std::collections::BTreeMap;

/// Clock ticks of `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// A server that syncs every commit, and a connection of our own to ask it things.
pub(super) struct Bench {
    server: Server,
    connection: MultiplexedConnection,
}

/// How often commands were called and how many microseconds they took, by name.
pub(super) struct Commands(BTreeMap<String, (u64, u64)>);

/// A call that took long.
#[derive(Clone, Debug)]
pub(super) struct Slow {
    pub(super) us: u64,
    /// The command.
    pub(super) name: String,
}

impl Bench {
    pub(super) async fn start() -> anyhow::Result<Bench> {
        let server = tokio::task::spawn_blocking(Server::start).await?;
        let connection = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
        Ok(Bench { server, connection })
    }

    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    /// Lets it run before others: `SLOWLOG` counts the time for which another process had the processor. Answers whether it may.
    pub(super) fn favour(&self) -> bool {
        let pid = self.server.pid().unwrap_or_default().to_string();
        let renice = std::process::Command::new("renice").args(["-n", "-15", "-p", &pid]).output();
        renice.is_ok_and(|output| output.status.success())
    }

    /// Another connection.
    pub(super) async fn connect(&self) -> anyhow::Result<MultiplexedConnection> {
        Ok(redis::Client::open(self.url())?.get_multiplexed_async_connection().await?)
    }

    /// Asks something, in words.
    pub(super) async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> anyhow::Result<T> {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| _ = command.arg(word));
        Ok(command.query_async(&mut self.connection.clone()).await?)
    }

    /// What was called so far.
    pub(super) async fn commands(&self) -> anyhow::Result<Commands> {
        let info: String = self.ask(&["INFO", "commandstats"]).await?;
        let read = |line: &str| {
            let (name, rest) = line.trim().strip_prefix("cmdstat_")?.split_once(':')?;
            let field = |name: &str| rest.split(',').find_map(|part| part.strip_prefix(name)?.parse().ok());
            Some((name.to_owned(), (field("calls=")?, field("usec=")?)))
        };
        Ok(Commands(info.lines().filter_map(read).collect()))
    }

    /// Keeps every call that takes longer than this, from now on.
    pub(super) async fn watch_slow(&self, us: u64) -> anyhow::Result<()> {
        let _: String = self.ask(&["CONFIG", "SET", "slowlog-max-len", "1000000"]).await?;
        let _: String = self.ask(&["CONFIG", "SET", "slowlog-log-slower-than", &us.to_string()]).await?;
        let _: String = self.ask(&["SLOWLOG", "RESET"]).await?;
        Ok(())
    }

    /// Those calls.
    pub(super) async fn slow(&self) -> anyhow::Result<Vec<Slow>> {
        let _: String = self.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]).await?;
        let calls: Vec<Value> = self.ask(&["SLOWLOG", "GET", "-1"]).await?;
        let read = |call: Value| -> Option<Slow> {
            let Value::Array(parts) = call else { return None };
            let (Value::Int(us), Value::Array(words)) = (parts.get(2)?, parts.get(3)?) else { return None };
            let Value::BulkString(name) = words.first()? else { return None };
            Some(Slow { us: u64::try_from(*us).ok()?, name: String::from_utf8_lossy(name).to_lowercase() })
        };
        calls.into_iter().map(|call| read(call).context("SLOWLOG answers something else")).collect()
    }

    /// Empties it.
    pub(super) async fn flush(&self) -> anyhow::Result<()> {
        let _: String = self.ask(&["FLUSHALL"]).await?;
        Ok(())
    }

    /// Processor time it has taken, in seconds, without the load of other processes.
    pub(super) fn cpu_seconds(&self) -> f64 {
        let path = format!("/proc/{}/stat", self.server.pid().unwrap_or_default());
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
    }
}

impl Commands {
    /// Calls of these.
    pub(super) fn calls(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.0.get(*name)).map(|(calls, _)| calls).sum()
    }

    /// What was called between two looks, a step: calls and microseconds.
    pub(super) fn per_step(&self, before: &Commands, steps: u64) -> serde_json::Value {
        let per = |now: u64, then: u64| onceflow_bench::report::rounded((now - then) as f64 / steps as f64);
        let all = self.0.iter().map(|(name, (calls, us))| {
            let (then_calls, then_us) = before.0.get(name).copied().unwrap_or_default();
            (name.clone(), serde_json::json!([per(*calls, then_calls), per(*us, then_us)]))
        });
        all.filter(|(_, figures)| figures[0].as_f64() > Some(0.0)).collect::<serde_json::Map<_, _>>().into()
    }
}
