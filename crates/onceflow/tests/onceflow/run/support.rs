//! Tasks that many tests use, and the events of a run as text.

use onceflow::{Event, Events, prelude::*};

#[task(effect = pure)]
pub(crate) fn add(a: u64, b: u64) -> u64 {
    a + b
}

#[task(effect = pure, inline)]
pub(crate) fn less(a: u64, than: u64) -> bool {
    a < than
}

#[task(effect = pure)]
pub(crate) fn sum(numbers: Vec<u64>) -> u64 {
    numbers.iter().sum()
}

#[task(effect = pure)]
pub(crate) fn count_to(n: u64) -> Vec<u64> {
    (1..=n).collect()
}

#[task(effect = pure)]
pub(crate) async fn shout(text: String) -> String {
    tokio::task::yield_now().await;
    text.to_uppercase()
}

#[task(effect = pure, outputs(words, letters))]
pub(crate) fn measure(text: String) -> (u64, u64) {
    (text.split_whitespace().count() as u64, text.chars().filter(|c| c.is_alphabetic()).count() as u64)
}

/// Collects the events of a run until it ends.
pub(crate) async fn until_end(events: &mut Events, key: &str) -> Vec<Event> {
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        if &*event.run == key {
            let ended = matches!(event.kind, onceflow::EventKind::DidEnd { .. });
            all.push(event);
            if ended {
                break;
            }
        }
    }
    all
}

/// Those events as text, without the run's key.
pub(crate) fn told(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.kind.to_string()).collect()
}
