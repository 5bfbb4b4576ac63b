//! Checks that the rows of a shard and the sets that keep their names in order fit together. A row that was deleted
//! behind our back leaves its name there, and one that was put has none.

use super::{Redis, link::Trouble, wire};
use crate::records::Error;
use onceflow_core::{Kind, Shard};
use redis::{Cmd, Value};
use std::collections::BTreeSet;

/// Fields read by one call: about a millisecond of a server that others wait for.
const AT_ONCE: usize = 1000;

type Places = BTreeSet<Vec<u8>>;

impl Redis {
    pub(super) async fn inconsistencies(&self, shard: Shard) -> Result<Vec<String>, Error> {
        let keys = self.address().keys(shard);
        // Without their contents: the second of every two, which follows a field, is not kept.
        let fields = self.members(shard, "HSCAN", keys.rows()).await?;
        let [names, free, held] = [1, 2, 3].map(|at| self.members(shard, "ZSCAN", &keys.all[at]));
        let (names, free, held) = (names.await?, free.await?, held.await?);
        Ok(judge(&fields, &names, &free, &held))
    }

    async fn members(&self, shard: Shard, command: &str, key: &str) -> Result<Places, Error> {
        let (mut found, mut cursor) = (Places::new(), b"0".to_vec());
        loop {
            let mut scan: Cmd = redis::cmd(command);
            scan.arg(key).arg(&cursor).arg("COUNT").arg(AT_ONCE);
            let answer = self.link.call(shard, &scan).await.map_err(Trouble::reading)?;
            let Value::Array(parts) = &answer else { return Err(wire::strange(&answer)) };
            let [Value::BulkString(next), Value::Array(pairs)] = &parts[..] else { return Err(wire::strange(&answer)) };
            for pair in pairs.chunks(2) {
                let Value::BulkString(member) = &pair[0] else { return Err(wire::strange(&pair[0])) };
                found.insert(member.clone());
            }
            if &next[..] == b"0" {
                return Ok(found);
            }
            cursor.clone_from(next);
        }
    }
}

fn judge(fields: &Places, names: &Places, free: &Places, held: &Places) -> Vec<String> {
    let mut found = Vec::new();
    let field = |kind: Kind, place: &[u8]| [&[kind as u8][..], place].concat();
    let is_there = |kind: Kind, place: &[u8]| fields.contains(&field(kind, place));
    let called =
        |field: &[u8]| wire::key(field).map_or_else(|| field.escape_ascii().to_string(), |key| key.to_string());
    for field in fields {
        let Some(key) = wire::key(field) else {
            found.push(format!("row \"{}\" is of no group", called(field)));
            continue;
        };
        let place = &field[1..];
        let is_claimed = is_there(Kind::Claims, place);
        match key.group.kind() {
            Kind::Rows if wire::is_heap(field) || names.contains(place) => {}
            Kind::Rows => found.push(format!("row {key} is in no index of names")),
            Kind::Queue if is_claimed || free.contains(place) => {}
            Kind::Queue => found.push(format!("row {key} is ready, and in no index of what is free")),
            Kind::Claims if !held.contains(place) => found.push(format!("row {key} is in no index of what is held")),
            Kind::Claims if !is_there(Kind::Deadlines, place) => found.push(format!("claim {key} has no deadline")),
            Kind::Claims => {}
            Kind::Deadlines if is_claimed => {}
            Kind::Deadlines => found.push(format!("deadline {key} is of no claim")),
        }
    }
    let gone =
        |kind: Kind, place: &Vec<u8>| format!("row {} is gone, and its name is there", called(&field(kind, place)));
    found.extend(names.iter().filter(|place| !is_there(Kind::Rows, place)).map(|place| gone(Kind::Rows, place)));
    found.extend(free.iter().filter(|place| !is_there(Kind::Queue, place)).map(|place| gone(Kind::Queue, place)));
    found.extend(held.iter().filter(|place| !is_there(Kind::Claims, place)).map(|place| gone(Kind::Claims, place)));
    found
}
