//! The fault backend, held to its word.

use super::*;
use crate::{backend::memory::Memory, records::get_one, testing::world::TestWorld};
use onceflow_core::Group;

const SHARD: Shard = Shard(0);

fn key(name: &str) -> Key {
    Group::rows("g").key(name)
}

fn put(name: &str) -> Batch {
    let mut batch = Batch::new(SHARD);
    batch.put(key(name), Row::new("1"));
    batch
}

fn memory() -> Arc<dyn Records> {
    Arc::new(Memory::new(TestWorld::new(1)))
}

/// Puts a, b and c with the fault at the second call; returns the result of each, and which rows are stored.
async fn story(fault: Fault) -> String {
    let store = memory();
    let faulty = Faulty::new(store.clone(), FaultPlan::at(2, fault));
    let mut story = Vec::new();
    for name in ["a", "b", "c"] {
        let answer = match faulty.commit(put(name)).await {
            Ok(_) => "ok",
            Err(Error::Unknown(_)) => "unknown",
            Err(Error::Unavailable(_)) => "unavailable",
            Err(other) => panic!("{other}"),
        };
        let there = get_one(&*store, SHARD, key(name)).await.unwrap().is_some();
        story.push(format!("{answer}{}", if there { "+" } else { "-" }));
    }
    story.join(" ")
}

#[tokio::test]
async fn each_fault_does_what_its_name_says() {
    assert_eq!(story(Fault::StopBefore).await, "ok+ unavailable- unavailable-");
    assert_eq!(story(Fault::StopAfter).await, "ok+ unknown+ unavailable-");
    assert_eq!(story(Fault::LoseReply).await, "ok+ unknown+ ok+");
    assert_eq!(story(Fault::FailOnce).await, "ok+ unavailable- ok+");
}

#[tokio::test]
async fn every_call_is_reached_once_and_then_the_loop_ends() {
    let failed = std::sync::Mutex::new(vec![]);
    let calls = for_every_n(Fault::FailOnce, async |plan| {
        let faulty = Faulty::new(memory(), plan);
        let answers = [
            faulty.commit(put("a")).await.err(),
            faulty.get(SHARD, &[key("a")]).await.err(),
            faulty.scan(SHARD, Scan::of(Group::rows("g"), 1)).await.err(),
            faulty.now().await.err(),
        ];
        failed.lock().unwrap().push(answers.iter().position(Option::is_some));
    })
    .await;
    assert_eq!(calls, 4);
    assert_eq!(failed.into_inner().unwrap(), [Some(0), Some(1), Some(2), Some(3), None]);
}

#[tokio::test]
async fn a_read_whose_reply_is_lost_has_just_failed() {
    let faulty = Faulty::new(memory(), FaultPlan::at(1, Fault::LoseReply));
    assert!(matches!(faulty.now().await, Err(Error::Unavailable(_))));
    assert!(faulty.now().await.is_ok());
}

#[tokio::test]
async fn a_store_that_cannot_say_durable_has_stopped() {
    for fault in Fault::ALL {
        let plan = FaultPlan::at(1, fault);
        let faulty = Faulty::new(memory(), plan.clone());
        assert!(faulty.durable(Position(0)).await.is_err());
        assert!(plan.stopped() && faulty.commit(put("a")).await.is_err());
    }
}

#[tokio::test]
async fn stores_of_one_plan_stop_together() {
    let plan = FaultPlan::at(2, Fault::StopBefore);
    let (one, other) = (Faulty::new(memory(), plan.clone()), Faulty::new(memory(), plan.clone()));
    assert!(one.commit(put("a")).await.is_ok());
    assert!(other.commit(put("a")).await.is_err());
    assert!(one.commit(put("b")).await.is_err());
    assert_eq!(plan.calls(), 3);
}

#[tokio::test]
async fn chance_strikes_about_as_often_as_it_should_and_the_same_again() {
    let strikes = async |seed| {
        let plan = FaultPlan::by_chance(seed, Odds { lose_reply: 100, fail_once: 50, ..Odds::default() });
        let faulty = Faulty::new(memory(), plan);
        let mut strikes = vec![];
        for n in 0..1000 {
            strikes.extend(faulty.commit(put("a")).await.is_err().then_some(n));
        }
        strikes
    };
    let some = strikes(1).await;
    assert!((100..200).contains(&some.len()), "{}", some.len());
    assert_eq!(some, strikes(1).await);
    assert_ne!(some, strikes(2).await);
}
