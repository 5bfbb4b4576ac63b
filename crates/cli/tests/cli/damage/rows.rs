//! Rows and objects of a store on a server that are deleted or changed behind its back: `fsck` reports them, or they
//! are not needed.

use crate::support::team::Team;
use onceflow_engine::{Engine, Options};
use onceflow_store::{Store, testing::redis::Server, values::fsck::Mode};
use redis::{Commands, Connection};
use std::collections::{BTreeMap, BTreeSet};

/// A flow that is done, with a kept value, a list and a large file.
const DONE: &str = "
flow: done
inputs: { n: list<int> }
steps:
  make:
    each: i in inputs.n
    run: seq 1 ${{ i }} > a.txt
    out: { t: { file: a.txt } }
  sum: { run: \"cat ${{ make.t }} > all.txt\", out: { t: { file: all.txt } } }
outputs: { t: sum.t }
";

/// A flow with a step that fails, and another that waits for it and for one that is done.
const FAILED: &str = "
flow: failed
steps:
  a: { run: seq 1 3000 > a.txt, out: { t: { file: a.txt } } }
  b: { run: \"cat ${{ a.t }}; exit 9\", out: { t: text } }
  c: { run: \"cat ${{ a.t }} > c.txt; echo ${{ b.t }}\", out: { t: { file: c.txt } } }
outputs: { t: c.t }
";

/// Rows whose loss does no harm, by the beginning of their group: those for people only, of present workers, and of
/// turns.
const HARMLESS: [&str; 7] = ["E", "L", "W", "attended", "workers", "wanted", "values.sweeper"];

/// Losses that are not reported, because the row might never have existed, and its content is computed again: an output
/// of a step that is no stored value, and a run that has ended, which could have been forgotten. See `engine/fsck.rs`.
const KNOWN: [&str; 2] = ["K:m deleted with its name", "runs:ended deleted with its name"];

struct Bed {
    team: Team,
    redis: Connection,
    tag: String,
    runtime: tokio::runtime::Runtime,
    _server: Server,
}

impl Bed {
    fn new() -> Self {
        let server = Server::start();
        let team = Team::on(server.url());
        let mut redis = connection(&server);
        team.bed.write("done.yaml", DONE);
        team.bed.write("failed.yaml", FAILED);
        team.run(&["run", "done.yaml", "-i", "n=[10,2000,3000]", "--keep", "1d"]).ends(0);
        team.run(&["run", "failed.yaml", "--keep", "1d"]).ends(1);
        // A run that no process works on.
        team.start(&["failed.yaml", "--key", "ready"]);
        let keys: Vec<String> = redis.keys("*:rows").expect("keys");
        let tag = keys[0].strip_suffix("rows").expect("it ends so").to_owned();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        Bed { team, redis, tag, runtime, _server: server }
    }

    /// Returns all problems that are reported.
    fn told(&self, deep: bool) -> Vec<String> {
        self.runtime.block_on(async {
            let store = Store::connect(&self.team.url()).await.expect("a store");
            let values = store.values().await.expect("values");
            let report = if deep { values.fsck_deep(Mode::Check).await } else { values.fsck(Mode::Check).await };
            let mut told = match report {
                Ok(report) if report.is_clean() => vec![],
                Ok(report) => vec![report.to_string()],
                Err(error) => vec![error.to_string()],
            };
            let options = Options { works: false, ..Options::default() };
            let engine = Engine::open(&store, options).await.expect("an engine");
            match engine.fsck().await {
                Ok(found) => told.extend(found.expect("no worker is at work")),
                Err(error) => told.push(error.to_string()),
            }
            engine.stop();
            told
        })
    }

    fn rows(&mut self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.redis.hgetall(format!("{}rows", self.tag)).expect("rows")
    }

    fn put(&mut self, field: &[u8], row: &[u8]) {
        let _new: i64 = self.redis.hset(format!("{}rows", self.tag), field, row).expect("it is put");
    }

    /// Deletes a row and, if it is to look as if it had never existed, its name.
    fn delete(&mut self, field: &[u8], set: Option<&str>) {
        let _gone: i64 = self.redis.hdel(format!("{}rows", self.tag), field).expect("it is deleted");
        if let Some(set) = set {
            let _gone: i64 = self.redis.zrem(format!("{}{set}", self.tag), &field[1..]).expect("its name is deleted");
        }
    }

    fn put_back(&mut self, field: &[u8], row: &[u8], set: Option<&str>) {
        self.put(field, row);
        if let Some(set) = set {
            let _new: i64 = self.redis.zadd(format!("{}{set}", self.tag), &field[1..], 0).expect("its name is put");
        }
    }
}

fn connection(server: &Server) -> Connection {
    redis::Client::open(server.url()).and_then(|client| client.get_connection()).expect("a server")
}

/// Returns the kind of a row, from its group; for a row of a run also from its name.
fn kind(field: &[u8], row: &[u8]) -> String {
    let length = usize::from(u16::from_be_bytes([field[1], field[2]]));
    let (group, name) = field[3..].split_at(length);
    let known = std::str::from_utf8(group).unwrap_or_default();
    match group.first() {
        // The row under a run's key: the byte after the version says whether the run has ended.
        _ if known == "runs" => String::from(if row[1] == 1 { "runs:ended" } else { "runs:active" }),
        _ if known.starts_with("values") || known.starts_with("runs") || HARMLESS.contains(&known) => known.to_owned(),
        Some(letter @ (b'r' | b'R' | b'K')) => {
            format!("{}:{}", char::from(*letter), char::from(*name.first().unwrap_or(&b'?')))
        }
        Some(letter) => char::from(*letter).to_string(),
        None => String::new(),
    }
}

fn is_harmless(kind: &str) -> bool {
    HARMLESS.contains(&kind)
}

#[test]
fn fsck_reports_every_lost_or_changed_row_on_a_server_that_matters() {
    let mut bed = Bed::new();
    assert_eq!(bed.told(true), Vec::<String>::new());
    let rows = bed.rows();
    let kinds: BTreeSet<_> = rows.iter().map(|(field, row)| kind(field, row)).collect();
    for wanted in [
        "runs:ended",
        "runs:active",
        "runs.due",
        "R:s",
        "R:h",
        "r:f",
        "r:i",
        "r:j",
        "r:p",
        "r:l",
        "q",
        "K:m",
        "values.edges",
    ] {
        assert!(kinds.contains(wanted), "{wanted} is not among {kinds:?}");
    }
    let mut missed = Vec::new();
    for (field, row) in &rows {
        let kind = kind(field, row);
        // The row is deleted as by a command, and also as if it had never existed.
        let set = match field[0] {
            0 => Some("names"),
            1 => Some("free"),
            _ => None,
        };
        bed.delete(field, None);
        if bed.told(false).is_empty() {
            missed.push(format!("{kind} deleted"));
        }
        bed.delete(field, set);
        if set.is_some() && bed.told(false).is_empty() && !is_harmless(&kind) {
            missed.push(format!("{kind} deleted with its name"));
        }
        bed.put_back(field, row, set);
        for at in [0, row.len() / 2, row.len().saturating_sub(1)] {
            let mut other = row.clone();
            let Some(byte) = other.get_mut(at) else { continue };
            *byte ^= 4;
            bed.put(field, &other);
            if bed.told(false).is_empty() && !is_harmless(&kind) {
                missed.push(format!("{kind} changed at {at} of {}", row.len()));
            }
        }
        bed.put(field, row);
    }
    assert_eq!(bed.told(true), Vec::<String>::new());
    missed.retain(|missed| !KNOWN.iter().any(|known| missed.starts_with(known)));
    assert!(missed.is_empty(), "of {} rows: {missed:#?}", rows.len());
}

#[test]
fn an_object_that_changed_on_a_server_is_never_given_out_and_is_computed_again() {
    let server = Server::start();
    let team = Team::on(server.url());
    let mut redis = connection(&server);
    team.bed.write("done.yaml", DONE);
    let run = ["run", "done.yaml", "-i", "n=[10,2000,3000]"];
    team.run(&run).ends(0);
    let right = team.bed.read("results/all.txt");
    let harms: [(&str, fn(&mut Connection, &str)); 3] = [
        ("changed", |redis, key| {
            let mut chunk: Vec<u8> = redis.hget(key, 0).unwrap();
            chunk[1_000] ^= 1;
            let _old: i64 = redis.hset(key, 0, chunk).unwrap();
        }),
        ("cut", |redis, key| {
            let chunk: Vec<u8> = redis.hget(key, 0).unwrap();
            let _old: i64 = redis.hset(key, 0, &chunk[..1_000]).unwrap();
        }),
        ("deleted", |redis, key| {
            let _gone: i64 = redis.del(key).unwrap();
        }),
    ];
    for (harm, how) in harms {
        let objects: Vec<String> = redis.keys("*object:*").expect("keys");
        assert!(!objects.is_empty());
        objects.iter().for_each(|key| how(&mut redis, key));
        assert_eq!(team.run(&["fsck", "--deep", "--json"]).ends(7).json()["clean"], false, "{harm}");
        std::fs::remove_dir_all(team.bed.path("results")).expect("results");
        let said = team.run(&run);
        assert_eq!(said.code, 0, "{harm}: {}", said.all());
        assert_eq!(team.bed.read("results/all.txt"), right, "{harm}");
        team.run(&["reclaim"]).ends(0);
    }
}
