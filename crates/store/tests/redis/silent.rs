//! A server that is silent: it accepts and does not answer, and breaks no connection.

use crate::server::{SHARD, connect, count, key, sum, when_it_answers};
use futures_util::future::join_all;
use onceflow_store::{
    CommitResult, Records,
    backend::redis::ConnectError,
    core::Timestamp,
    records::{Error, get_one},
    testing::redis::Server,
};
use std::{net::TcpListener, process::Command};

fn signal(server: &Server, name: &str) {
    let pid = server.pid().expect("it runs").to_string();
    assert!(Command::new("kill").args([name, &pid]).status().expect("there is a kill").success());
}

#[tokio::test]
async fn a_commit_to_a_silent_server_is_unknown_and_the_server_is_lost_until_it_answers() {
    let server = Server::start();
    let redis = connect(&format!("{}?timeout=2", server.url())).await.unwrap();
    let mut lost = redis.lost();
    for round in 0..3 {
        let name = format!("n{round}");
        let before = sum(&redis).await;
        signal(&server, "-STOP");
        let seen = redis.position();
        let unknown = redis.commit(count(&name)).await;
        assert!(matches!(unknown, Err(Error::Unknown(_))), "{unknown:?}");
        lost.wait_for(|is_lost| *is_lost).await.unwrap();
        let read = get_one(&redis, SHARD, key(&name)).await;
        assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
        signal(&server, "-CONT");
        lost.wait_for(|is_lost| !*is_lost).await.unwrap();
        // The waiting call is woken: something may have happened.
        redis.wait(SHARD, seen, Timestamp::NEVER).await.unwrap();
        // Now it can be known.
        let happened = when_it_answers(async || get_one(&redis, SHARD, key(&name)).await).await.is_some();
        match when_it_answers(async || redis.commit(count(&name)).await).await {
            CommitResult::Applied(_) => assert!(!happened),
            CommitResult::Refused(_) => assert!(happened),
        }
        assert_eq!(sum(&redis).await, before + 1);
    }
}

#[tokio::test]
async fn a_thousand_calls_to_a_silent_server_all_end_and_none_failed_for_good() {
    let server = Server::start();
    let redis = connect(&format!("{}?timeout=2", server.url())).await.unwrap();
    signal(&server, "-STOP");
    for _ in 0..2 {
        let calls: Vec<_> = (0..1000).map(|n| redis.commit(count(&n.to_string()))).collect();
        for ended in join_all(calls).await {
            assert!(matches!(ended, Err(Error::Unknown(_) | Error::Unavailable(_))), "{ended:?}");
        }
    }
    signal(&server, "-CONT");
    when_it_answers(async || get_one(&redis, SHARD, key("0")).await).await;
}

#[tokio::test]
async fn a_wait_longer_than_the_reply_timeout_loses_nothing() {
    let server = Server::start();
    let redis = connect(&format!("{}?timeout=2", server.url())).await.unwrap();
    let lost = redis.lost();
    let until = redis.now().await.unwrap().plus_ms(3000);
    redis.wait(SHARD, redis.position(), until).await.unwrap();
    assert!(redis.now().await.unwrap() >= until && !lost.has_changed().unwrap());
}

#[tokio::test]
async fn a_server_that_never_answers_is_unavailable() {
    // Connections wait in its queue: no process accepts them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}?timeout=0.3", listener.local_addr().unwrap());
    assert!(matches!(connect(&url).await.err(), Some(ConnectError::Unavailable(_))));
}
