//! Settings of a server under which an acknowledged commit can be lost. They are read when we connect; a server that has
//! one is refused unless that very risk was accepted.

use redis::{FromRedisValue, Value};
use std::{collections::BTreeMap, fmt, str::FromStr};

/// A way in which acknowledged commits can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// `maxmemory-policy` is not `noeviction`: when memory is short the server throws rows away.
    Eviction,
    /// `appendonly` is off: a crash takes back everything since the last snapshot.
    NoAof,
    /// `appendfsync` is not `always`: a crash takes back the last second, or more.
    Everysec,
    /// `no-appendfsync-on-rewrite` is on: a crash takes back what came while the log was rewritten.
    Rewrite,
    /// The settings cannot be read (`CONFIG GET` is not allowed), so the risk is unknown.
    Unreadable,
}

impl Risk {
    /// Every one, with the word that accepts it.
    pub const ALL: [(Risk, &'static str); 5] = [
        (Risk::Eviction, "eviction"),
        (Risk::NoAof, "no-aof"),
        (Risk::Everysec, "everysec"),
        (Risk::Rewrite, "rewrite"),
        (Risk::Unreadable, "unreadable"),
    ];

    /// The word that accepts it.
    pub fn word(self) -> &'static str {
        Risk::ALL.iter().find(|(risk, _)| *risk == self).map_or("", |(_, word)| word)
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Risk::Eviction => {
                "it throws rows away when memory is short: `CONFIG SET maxmemory-policy noeviction` mends that"
            }
            Risk::NoAof => {
                "it keeps no log, so a crash loses commits: `CONFIG SET appendonly yes` and `appendfsync always` mend that"
            }
            Risk::Everysec => {
                "it syncs its log now and then, so a crash loses the last commits: `CONFIG SET appendfsync always` mends that"
            }
            Risk::Rewrite => {
                "it does not sync its log while rewriting it: `CONFIG SET no-appendfsync-on-rewrite no` mends that"
            }
            Risk::Unreadable => "its settings cannot be read, so it is unknown whether a crash loses commits",
        })
    }
}

impl FromStr for Risk {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = || Risk::ALL.map(|(_, word)| word).join(", ");
        let found = Risk::ALL.iter().find(|(_, one)| *one == word).map(|(risk, _)| *risk);
        found.ok_or_else(|| format!("`{word}` is no risk; there are {}", known()))
    }
}

/// The settings to ask for.
pub(super) const SETTINGS: [&str; 4] = ["maxmemory-policy", "appendonly", "appendfsync", "no-appendfsync-on-rewrite"];

/// The risks of these settings.
pub(super) fn of(settings: Value) -> Vec<Risk> {
    let Ok(settings) = BTreeMap::<String, String>::from_redis_value(settings) else { return vec![Risk::Unreadable] };
    let is = |name: &str, good: &str| settings.get(name).map(|value| value == good);
    let mut risks = Vec::new();
    let mut look = |name, good, risk| match is(name, good) {
        Some(true) => {}
        Some(false) => risks.push(risk),
        None => risks.push(Risk::Unreadable),
    };
    look("maxmemory-policy", "noeviction", Risk::Eviction);
    look("appendonly", "yes", Risk::NoAof);
    if is("appendonly", "yes") == Some(true) {
        look("appendfsync", "always", Risk::Everysec);
        look("no-appendfsync-on-rewrite", "no", Risk::Rewrite);
    }
    risks.dedup();
    risks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn risks(settings: &[(&str, &str)]) -> String {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let pairs = settings.iter().flat_map(|(name, value)| [text(name), text(value)]).collect();
        of(Value::Array(pairs)).iter().map(|risk| risk.word()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_setting_that_can_lose_a_commit_is_found() {
        let good = [
            ("maxmemory-policy", "noeviction"),
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("no-appendfsync-on-rewrite", "no"),
        ];
        assert_eq!(risks(&good), "");
        for (at, value, word) in
            [(0, "allkeys-lru", "eviction"), (1, "no", "no-aof"), (2, "everysec", "everysec"), (3, "yes", "rewrite")]
        {
            let mut bad = good;
            bad[at].1 = value;
            assert_eq!(risks(&bad), word);
            assert_eq!(word.parse::<Risk>().unwrap().word(), word);
        }
        assert_eq!(risks(&[]), "unreadable");
    }
}
