//! The test world, held to its word.

use super::*;

#[tokio::test]
async fn a_wait_ends_when_its_time_has_passed_and_not_a_millisecond_before() {
    let world = TestWorld::new(1);
    let mut wait = world.sleep(10);
    for ms in [0, 5, 4] {
        world.advance(ms);
        assert_eq!(poll_once(&mut wait).await, Poll::Pending);
    }
    world.advance(1);
    assert_eq!(poll_once(&mut wait).await, Poll::Ready(()));
    world.sleep(0).await;
}

#[tokio::test]
async fn a_task_that_waits_is_woken() {
    let world = TestWorld::new(1);
    let (done, is_done) = tokio::sync::oneshot::channel();
    let wait = world.sleep(10);
    let task = async move {
        wait.await;
        done.send(()).unwrap();
    };
    world.spawn("sleeper", Box::pin(task));
    tokio::task::yield_now().await;
    assert!(world.advance_to_next());
    is_done.await.unwrap();
    assert_eq!(world.clock(), START.plus_ms(10));
    assert!(!world.advance_to_next(), "no task waits any more");
}

#[tokio::test]
async fn a_dropped_wait_leaves_nothing() {
    let world = TestWorld::new(1);
    let mut wait = world.sleep(10);
    assert_eq!(poll_once(&mut wait).await, Poll::Pending);
    assert_eq!(world.sleeping(), 1);
    drop(wait);
    assert_eq!(world.sleeping(), 0);
    world.advance(100);
}

#[tokio::test]
async fn setting_the_clock_ends_no_wait_and_prolongs_none() {
    let world = TestWorld::new(1);
    let mut wait = world.sleep(10);
    world.set_clock(START.plus_ms(1_000_000));
    assert_eq!(poll_once(&mut wait).await, Poll::Pending);
    world.set_clock(Timestamp::from_ms(5));
    world.advance(10);
    assert_eq!(poll_once(&mut wait).await, Poll::Ready(()));
    assert_eq!(world.clock(), Timestamp::from_ms(15));
}

#[tokio::test]
async fn a_dedicated_task_has_a_thread_of_its_own_and_may_spawn() {
    let world = TestWorld::new(1);
    let (done, is_done) = tokio::sync::oneshot::channel();
    let (inside, here) = (world.clone(), std::thread::current().id());
    let task = async move {
        assert_ne!(std::thread::current().id(), here);
        inside.sleep(5).await;
        inside.spawn("from there", Box::pin(async move { done.send(()).unwrap() }));
    };
    world.dedicate("beside", Box::pin(task));
    world.hurry(is_done).await.unwrap();
}

#[test]
fn chance_comes_from_the_seed() {
    let [a, b, c] = [1, 1, 2].map(|seed| TestWorld::new(seed).random());
    assert!(a == b && a != c);
}

#[test]
fn a_skewed_clock_is_ahead_or_behind_and_never_below_zero() {
    let skewed = SkewedWorld::new(TestWorld::new(1), -7);
    assert_eq!(skewed.clock().plus_ms(7), START);
    skewed.set_ahead_ms(7);
    assert_eq!(skewed.clock(), START.plus_ms(7));
    skewed.set_ahead_ms(i64::MIN);
    assert_eq!(skewed.clock(), Timestamp::ZERO);
}
