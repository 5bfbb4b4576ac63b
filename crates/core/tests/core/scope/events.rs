//! Every event in every phase: one that does not fit changes nothing that matters, and the session still ends.

use super::rig::Numbers;
use onceflow_core::scope::{
    CancelCause, CleanupFlow, CleanupWhen, Emitted, OpId, OpKind, Operation, OrderFailure, OrderId, Scope, ScopeDraft,
    ScopeEffect, ScopeEvent, ScopeFault, ScopeSettings, Session, SessionPhase, SessionTimer, TaskMode,
};
use std::collections::VecDeque;

/// start → task → terminate, with a buffer and a cleanup flow.
fn scope(uninterruptible: bool) -> Scope {
    let op =
        |name: &str, kind, outputs: &[Option<OpId>]| Operation { name: name.into(), kind, outputs: outputs.into() };
    let task = OpKind::Task { mode: TaskMode::Async, streams: 1 };
    let keep = onceflow_core::scope::BufferKeep::All;
    let scope = Scope::check(ScopeDraft {
        ops: vec![
            op("task", task, &[Some(OpId(1)), Some(OpId(2))]),
            op("end", OpKind::Terminate, &[]),
            op("buffer", OpKind::Buffer { keep }, &[]),
        ],
        start: Some(OpId(0)),
        cleanups: vec![CleanupFlow {
            name: "clean".into(),
            when: CleanupWhen::Ended,
            buffers: vec![OpId(2)],
            timeout_ms: Some(10),
        }],
        streams: Vec::new(),
        settings: ScopeSettings { uninterruptible, deadline_ms: Some(100), rounds_max: None },
    });
    scope.expect("a right scope")
}

fn order_of(effects: &VecDeque<ScopeEffect<i64>>) -> Option<OrderId> {
    effects.iter().rev().find_map(|effect| match effect {
        ScopeEffect::Run { order, .. } | ScopeEffect::Clean { order, .. } => Some(*order),
        _ => None,
    })
}

fn events(order: OrderId) -> Vec<ScopeEvent<i64>> {
    let (emitted, mishaps) = (Emitted::One(0, 5), Vec::new());
    vec![
        ScopeEvent::Start(4),
        ScopeEvent::Ended { order, emitted, mishaps: mishaps.clone() },
        ScopeEvent::Streamed { order, port: 1, message: 6 },
        ScopeEvent::Failed { order, why: OrderFailure::Error("no".into()), mishaps: mishaps.clone() },
        ScopeEvent::Dropped { order, mishaps },
        ScopeEvent::Push { buffer: OpId(2), by: None, message: 7 },
        ScopeEvent::Push { buffer: OpId(0), by: None, message: 7 },
        ScopeEvent::KeysReleased { buffer: OpId(2) },
        ScopeEvent::KeysReleased { buffer: OpId(9) },
        ScopeEvent::Cancel(CancelCause::CallerGone),
        ScopeEvent::ParentEnds,
        ScopeEvent::Due(SessionTimer::Deadline),
        ScopeEvent::Due(SessionTimer::Cleanup(order)),
        ScopeEvent::Idle,
    ]
}

/// Answers all orders until the session is done; returns how often its end was delivered.
fn finish(scope: &Scope, session: &mut Session<i64>, effects: &mut VecDeque<ScopeEffect<i64>>) -> usize {
    let mut deliveries = 0;
    while let Some(effect) = effects.pop_front() {
        match effect {
            ScopeEffect::Run { order, .. } | ScopeEffect::Clean { order, .. } => {
                let ended = ScopeEvent::Ended { order, emitted: Emitted::One(0, 1), mishaps: Vec::new() };
                session.apply(scope, &Numbers, ended, effects);
            }
            ScopeEffect::Deliver(_) => deliveries += 1,
            _ => {}
        }
        session.apply(scope, &Numbers, ScopeEvent::Idle, effects);
    }
    deliveries
}

#[test]
fn any_three_events_leave_a_session_that_ends_once_and_empty() {
    for uninterruptible in [false, true] {
        let scope = scope(uninterruptible);
        let count = events(OrderId::default()).len();
        for choice in 0..count * count * count {
            let mut session = Session::new(&scope);
            let mut effects = VecDeque::new();
            session.apply(&scope, &Numbers, ScopeEvent::Start(1), &mut effects);
            for at in [choice % count, choice / count % count, choice / count / count] {
                let order = order_of(&effects).unwrap_or_default();
                session.apply(&scope, &Numbers, events(order).swap_remove(at), &mut effects);
            }
            let deliveries = finish(&scope, &mut session, &mut effects);
            assert_eq!((deliveries, session.phase()), (1, SessionPhase::Done), "events {choice}");
            assert!(session.is_empty(), "events {choice} leave something");
        }
    }
}

#[test]
fn all_faults_of_a_scope_are_found_at_once() {
    let op =
        |name: &str, kind, outputs: &[Option<OpId>]| Operation { name: name.into(), kind, outputs: outputs.into() };
    let draft = ScopeDraft {
        ops: vec![
            op("a", OpKind::Push { buffer: OpId(1) }, &[Some(OpId(9))]),
            op("a", OpKind::Terminate, &[None]),
            op("c", OpKind::Collect { min: 3, max: Some(2) }, &[Some(OpId(3))]),
            op("j", OpKind::Join { inputs: Vec::new() }, &[None]),
            op("s", OpKind::StreamOut { stream: 0 }, &[]),
        ],
        start: None,
        ..ScopeDraft::default()
    };
    let faults = Scope::check(draft).expect_err("many faults");
    let expected = [
        ScopeFault::NoStart,
        ScopeFault::DuplicateName("a".into()),
        ScopeFault::UnknownOperation("a".into()),
        ScopeFault::TakesNoMessage { at: "c".into(), target: "j".into() },
        ScopeFault::NotABuffer { at: "a".into(), target: "a".into() },
        ScopeFault::WrongPorts { at: "a".into(), has: 1 },
        ScopeFault::Buffers("j".into()),
        ScopeFault::Bounds("c".into()),
        ScopeFault::UnknownStream("s".into()),
    ];
    assert_eq!(faults, expected);
}
