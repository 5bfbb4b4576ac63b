//! Tests that need a real server: settings, restarts, forgotten scripts, lost replies, passwords, TLS, replicas.

use crate::proxy::{Fate, Proxy};
use onceflow_store::{
    CommitResult, Records, Store,
    backend::redis::{Address, ConnectError, Redis, Risk},
    core::{Batch, Group, Key, Op, Row, Shard, Timestamp, row::counter},
    records::{self, Error, Scan, get_one},
    testing::redis::{Server, forgetful_url},
    world::RealWorld,
};
use std::{collections::BTreeSet, process::Command, sync::Arc};

pub(crate) const SHARD: Shard = Shard(0);

pub(crate) fn key(name: impl AsRef<[u8]>) -> Key {
    Group::rows("g").key(name)
}

pub(crate) async fn connect(url: &str) -> Result<Redis, ConnectError> {
    Redis::connect(Address::parse(url).unwrap(), RealWorld::here()).await
}

/// Counts up once: doing it twice would show.
pub(crate) fn count(name: &str) -> Batch {
    let mut batch = Batch::new(SHARD);
    batch.require_absent(key(name)).put(key(name), Row::new("")).add(key("sum"), 1, vec![]);
    batch
}

pub(crate) async fn sum(redis: &Redis) -> i64 {
    let row = get_one(redis, SHARD, key("sum")).await.unwrap();
    row.map_or(0, |row| counter::read(&row).unwrap())
}

/// Tells a server something, as its operator would.
fn tell(server: &Server, words: &[&str]) -> String {
    let answer = Command::new("redis-cli").args(["-p", &server.port().to_string()]).args(words).output().unwrap();
    String::from_utf8_lossy(&answer.stdout).trim().to_owned()
}

/// Tries until the server answers again.
pub(crate) async fn when_it_answers<T>(mut call: impl AsyncFnMut() -> Result<T, Error>) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(Error::Unavailable(_)) => tokio::task::yield_now().await,
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_can_lose_commits_is_refused_and_each_risk_is_accepted_by_name() {
    let always = ["--appendonly", "yes", "--appendfsync", "always"];
    for (arguments, risk) in [
        (vec!["--appendonly", "no"], Risk::NoAof),
        (vec!["--appendonly", "yes", "--appendfsync", "everysec"], Risk::Everysec),
        ([&always[..], &["--maxmemory-policy", "allkeys-lru"]].concat(), Risk::Eviction),
        ([&always[..], &["--no-appendfsync-on-rewrite", "yes"]].concat(), Risk::Rewrite),
    ] {
        let server = Server::with(&arguments);
        let refused = connect(&server.url()).await.err().expect("it must be refused");
        assert!(matches!(&refused, ConnectError::Risky { risks, .. } if *risks == [risk]), "{refused}");
        assert!(refused.to_string().contains(&format!("accept={}", risk.word())), "{refused}");
        connect(&format!("{}?accept={}", server.url(), risk.word())).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_forgot_our_scripts_is_sent_them_again() {
    let server = Server::start();
    let redis = connect(&server.url()).await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(redis.commit(count(name)).await.unwrap().is_applied());
        assert_eq!(tell(&server, &["SCRIPT", "FLUSH"]), "OK");
        assert!(redis.now().await.unwrap() > Timestamp::ZERO);
        assert_eq!(
            redis.scan(SHARD, Scan::of(Group::rows("g"), 10)).await.unwrap().rows.len(),
            sum(&redis).await as usize + 1
        );
    }
    assert_eq!(sum(&redis).await, 3);
}

#[tokio::test]
async fn acknowledged_batches_outlive_kill_9_of_the_server_and_waiters_wake_when_it_is_back() {
    let mut server = Server::start();
    let redis = connect(&server.url()).await.unwrap();
    let mut acknowledged = BTreeSet::new();
    for round in 0..5 {
        for n in 0..20 {
            let name = format!("{round}-{n}");
            when_it_answers(async || redis.commit(count(&name)).await.map(drop)).await;
            acknowledged.insert(name);
        }
        let seen = redis.position();
        server.kill();
        match redis.commit(count(&format!("{round}-down"))).await {
            Err(Error::Unavailable(_) | Error::Unknown(_)) => {}
            other => panic!("no server can answer: {other:?}"),
        }
        let waiting = redis.wait(SHARD, seen, Timestamp::NEVER);
        server.restart();
        waiting.await.unwrap();
    }
    for name in &acknowledged {
        let found = when_it_answers(async || get_one(&redis, SHARD, key(name)).await).await;
        assert!(found.is_some(), "{name} was acknowledged and is lost");
    }
}

#[tokio::test]
async fn a_lost_reply_is_unknown_and_the_commit_is_not_sent_again() {
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let through = connect(&format!("redis://127.0.0.1:{}", proxy.port())).await.unwrap();
    let direct = connect(&server.url()).await.unwrap();
    for (n, fate) in [Fate::LoseReply, Fate::LoseRequest, Fate::LoseReply].into_iter().enumerate() {
        proxy.next(fate);
        let before = sum(&direct).await;
        let name = format!("n{n}");
        let lost = through.commit(count(&name)).await;
        assert!(matches!(lost, Err(Error::Unknown(_))), "{lost:?}");
        // The client that lost the reply reads, and knows.
        let happened = when_it_answers(async || get_one(&through, SHARD, key(&name)).await).await.is_some();
        assert_eq!(sum(&direct).await, before + i64::from(happened));
        assert_eq!(happened, fate == Fate::LoseReply);
        match when_it_answers(async || through.commit(count(&name)).await).await {
            CommitResult::Applied(_) => assert!(!happened),
            CommitResult::Refused(_) => assert!(happened),
        }
        assert_eq!(sum(&direct).await, before + 1);
    }
}

#[tokio::test]
async fn a_full_server_refuses_and_loses_nothing() {
    let server = Server::start();
    let redis = connect(&server.url()).await.unwrap();
    assert!(redis.commit(count("a")).await.unwrap().is_applied());
    assert_eq!(tell(&server, &["CONFIG", "SET", "maxmemory", "1"]), "OK");
    let full = redis.commit(count("b")).await;
    assert!(matches!(full, Err(Error::Full(_))), "{full:?}");
    assert_eq!(sum(&redis).await, 1, "reading goes on");
    assert_eq!(tell(&server, &["CONFIG", "SET", "maxmemory", "0"]), "OK");
    assert!(redis.commit(count("b")).await.unwrap().is_applied());
}

#[tokio::test]
async fn a_password_opens_the_door_and_is_never_shown() {
    let server = Server::start();
    let rights = ["ACL", "SETUSER", "flow", "on", ">s3cret", "~*", "&*", "+@all"];
    assert_eq!(tell(&server, &rights), "OK");
    assert_eq!(tell(&server, &["ACL", "SETUSER", "default", "off"]), "OK");
    let at = format!("127.0.0.1:{}", server.port());
    for wrong in [format!("redis://{at}"), format!("redis://flow:s3cretx@{at}")] {
        let refused = connect(&wrong).await.err().expect("a wrong password is refused").to_string();
        assert!(!refused.contains("s3cret"), "{refused}");
    }
    let redis = connect(&format!("redis://flow:s3cret@{at}")).await.unwrap();
    assert!(redis.commit(count("a")).await.unwrap().is_applied());
    assert!(!format!("{:?} {}", redis.address(), redis.address()).contains("s3cret"));
    let variable = |name: &str| match name {
        "ONCEFLOW_REDIS_USERNAME" => Some(String::from("flow")),
        _ => Some(String::from("s3cret")),
    };
    let address = Address::parse(&format!("redis://{at}")).unwrap().with_environment(variable);
    let redis = Redis::connect(address, RealWorld::here()).await.unwrap();
    assert_eq!(sum(&redis).await, 1);
}

#[tokio::test]
async fn tls_is_spoken_and_a_stranger_is_not_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let script = r#"set -e; cd "$1"
        new="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
        openssl req -x509 $new -days 2 -subj /CN=ca -keyout ca.key -out ca.pem
        openssl req $new -subj /CN=localhost -keyout s.key -out s.csr
        printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' > ext
        openssl x509 -req -in s.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out s.pem
        openssl req -x509 $new -days 2 -subj /CN=other -keyout other.key -out other.pem"#;
    let made = Command::new("bash").args(["-c", script, "bash"]).arg(directory.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = |name: &str| directory.path().join(name).display().to_string();
    let tls = onceflow_store::testing::redis::free_port();
    let (certificate, secret, authority, port) = (file("s.pem"), file("s.key"), file("ca.pem"), tls.to_string());
    let _server = Server::with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &secret,
        "--tls-ca-cert-file",
        &authority,
        "--tls-auth-clients",
        "no",
    ]);
    let redis = connect(&format!("rediss://localhost:{tls}?ca={authority}")).await.unwrap();
    assert!(redis.commit(count("a")).await.unwrap().is_applied());
    let stranger = connect(&format!("rediss://localhost:{tls}?ca={}", file("other.pem"))).await;
    assert!(matches!(stranger, Err(ConnectError::Unavailable(_))));
}

#[tokio::test]
async fn a_commit_is_durable_when_a_replica_has_it_and_a_replica_itself_is_refused() {
    let primary = Server::start();
    let port = primary.port().to_string();
    let replica = Server::with(&["--appendonly", "yes", "--appendfsync", "always", "--replicaof", "127.0.0.1", &port]);
    let refused = connect(&replica.url()).await.err().expect("it takes no writes").to_string();
    assert!(refused.contains("primary"), "{refused}");
    let redis = connect(&format!("{}?replicas=1", primary.url())).await.unwrap();
    for n in 0..10 {
        let outcome = when_it_answers(async || {
            let outcome = redis.commit(count(&n.to_string())).await?;
            redis.durable(outcome.position()).await.map(|()| outcome)
        });
        let _ = outcome.await;
        assert_eq!(tell(&replica, &["HLEN", "{onceflow:0}:rows"]), (n + 2).to_string());
    }
}

#[tokio::test]
async fn when_everything_is_deleted_no_key_is_left_but_the_clock() {
    let server = Server::start();
    let redis = Arc::new(connect(&server.url()).await.unwrap());
    for name in ["a", "b"] {
        assert!(redis.commit(count(name)).await.unwrap().is_applied());
    }
    redis.now().await.unwrap();
    let mut batch = Batch::new(SHARD);
    batch.ops = vec![Op::DeleteGroup(Group::rows("g"))];
    assert!(records::commit_durably(&*redis, batch).await.unwrap().is_applied());
    assert_eq!(tell(&server, &["KEYS", "*"]), "{onceflow:0}:clock");
}

#[tokio::test]
async fn a_store_on_a_server_has_values_and_leaves_nothing() {
    use onceflow_store::values::{EdgeName, Update, fsck::Mode};
    let store = Store::connect(&forgetful_url()).await.unwrap();
    let values = store.values().await.unwrap();
    let latest = EdgeName::root("latest");
    values.update(Update::new().leaf("part", "text").put("whole", ["part"], "").set(&latest, "whole")).await.unwrap();
    values.update(Update::new().clear(&latest)).await.unwrap();
    assert_eq!(values.reclaim(1000).await.unwrap().swept, 2);
    assert!(values.fsck(Mode::Check).await.unwrap().is_clean());
    assert!(values.rows().await.unwrap().is_empty());
    store.close().await.unwrap();
}
