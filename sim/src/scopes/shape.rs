//! The scopes of the simulator's sessions, drawn, and the ends they may have.

use super::{Active, Notes};
use crate::executor::Sim;
use onceflow_core::{
    Row,
    scope::{
        BufferKeep, CleanupFlow, CleanupWhen, Distribution, Emitted, Feed, JoinInput, OpId, OpKind, Operation, Scope,
        ScopeDraft, TaskMode,
    },
};
use onceflow_engine::scope::{Activity, DurableBody, DurableCleanup, DurableScope};
use onceflow_store::BoxFuture;
use std::sync::Arc;

/// How a message is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Activity,
    Sleep,
    Nested { uninterruptible: bool },
}

/// A session that a user wants, drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Its number among those of the seed.
    pub(super) number: usize,
    /// So many messages are kept and worked on.
    pub(super) messages: i64,
    work: Work,
    work_ms: u64,
    /// Each passes a cycle first.
    cycles: bool,
    /// Its answer is joined with a copy that waits for it.
    joins: bool,
    /// The end is a cancel.
    cancels: bool,
    /// Another branch ends the session after so many milliseconds.
    race_ms: Option<u64>,
    /// The user cancels it after so many.
    pub(super) user_cancels_ms: Option<u64>,
    uninterruptible: bool,
}

impl Plan {
    /// Draws one.
    pub(super) fn new(sim: &Sim, number: usize) -> Self {
        let work = match sim.below(5) {
            0 | 1 => Work::Activity,
            2 => Work::Sleep,
            kind => Work::Nested { uninterruptible: kind == 4 },
        };
        let race_ms = sim.per_mille(400).then(|| sim.below(2_000));
        Plan {
            number,
            messages: 1 + sim.below(5) as i64,
            work,
            work_ms: sim.below(2_000),
            cycles: sim.per_mille(400),
            joins: sim.per_mille(300),
            cancels: sim.per_mille(300),
            race_ms,
            user_cancels_ms: sim.per_mille(300).then(|| sim.below(2_000)),
            uninterruptible: sim.per_mille(200),
        }
    }

    /// The name of its scope.
    pub(super) fn name(&self) -> String {
        format!("scope {}", self.number)
    }

    /// The turns of a message round its cycle: it leaves it with 9 at least.
    fn turns(&self, message: i64) -> i64 {
        if self.cycles { (9 - message + 2) / 3 } else { 0 }
    }

    /// The messages that cleanup finds, and those that are gathered.
    fn kept_and_gathered(&self) -> (String, String) {
        let mut messages: Vec<_> = (0..self.messages).collect();
        // Those with fewer turns overtake the others.
        messages.sort_by_key(|message| self.turns(*message));
        let kept: String = messages.iter().map(|message| (message + 3 * self.turns(*message)).to_string()).collect();
        let mut gathered = kept.repeat(if self.joins { 2 } else { 1 }).into_bytes();
        gathered.sort_unstable();
        (kept, String::from_utf8(gathered).expect("digits"))
    }

    /// The ends it may have, each with what its cleanup finds.
    pub(super) fn ends(&self) -> Vec<(String, Option<String>)> {
        let (kept, gathered) = self.kept_and_gathered();
        let end = |message: &str| match self.cancels {
            true => format!("cancelled at the cancel: {message}"),
            false => message.to_owned(),
        };
        let mut ends = vec![(end(&gathered), Some(format!("{kept}{gathered}")))];
        if self.race_ms.is_some() {
            let message = self.messages.to_string();
            ends.push((end(&message), Some(format!("{kept}{message}"))));
            // Both branches may come in one turn: the other's message is on its way into the buffer, too.
            ends.push((end(&message), Some(format!("{kept}{message}{gathered}"))));
            ends.push((end(&gathered), Some(format!("{kept}{gathered}{message}"))));
        }
        if self.user_cancels_ms.is_some() {
            let end = String::from("cancelled: requested: enough");
            ends.extend([(end.clone(), Some(kept)), (end, None)]);
        }
        ends
    }
}

/// A message.
pub(super) fn row(text: impl ToString) -> Row {
    Row::new(text.to_string())
}

/// The text of a message.
pub(super) fn text(row: &Row) -> String {
    String::from_utf8_lossy(row).into_owned()
}

fn many(feed: &Feed<Row>) -> String {
    match feed {
        Feed::One(message) => text(message),
        Feed::Many(messages) => messages.iter().map(text).collect(),
        _ => String::new(),
    }
}

fn number(feed: &Feed<Row>) -> i64 {
    many(feed).parse().expect("a number")
}

fn inline(body: impl Fn(Feed<Row>) -> Emitted<Row> + Send + Sync + 'static) -> DurableBody {
    DurableBody::Inline(Arc::new(move |feed, _: &mut _| Ok(body(feed))))
}

const TASK: OpKind = OpKind::Task { mode: TaskMode::Async, streams: 0 };

/// A scope under construction: operations are linked by name.
#[derive(Default)]
struct Build {
    draft: ScopeDraft,
    bodies: Vec<DurableBody>,
    links: Vec<(usize, Vec<&'static str>)>,
    cleanups: Vec<DurableCleanup>,
}

impl Build {
    fn op(&mut self, name: &str, kind: OpKind, body: DurableBody, next: &[&'static str]) -> OpId {
        let at = self.draft.ops.len();
        self.draft.ops.push(Operation { name: name.to_owned(), kind, outputs: vec![] });
        self.bodies.push(body);
        self.links.push((at, next.to_vec()));
        OpId(at as u32)
    }

    fn cleanup(&mut self, buffer: OpId, scope: Arc<DurableScope>) {
        let (name, when) = (String::from("release"), CleanupWhen::Ended);
        self.draft.cleanups.push(CleanupFlow { name, when, buffers: vec![buffer], timeout_ms: None });
        let first = move |access: &mut onceflow_engine::scope::BufferAccess<'_>| {
            row(access.pull_all(buffer).iter().map(text).collect::<String>())
        };
        self.cleanups.push(DurableCleanup { scope, first: Arc::new(first) });
    }

    fn build(mut self) -> Arc<DurableScope> {
        let find = |ops: &[Operation], name: &str| {
            OpId(ops.iter().position(|op| op.name == name).expect("an operation of that name") as u32)
        };
        for (at, next) in &self.links {
            self.draft.ops[*at].outputs = next.iter().map(|name| Some(find(&self.draft.ops, name))).collect();
        }
        self.draft.start = Some(OpId(0));
        let scope = Scope::check(self.draft).expect("a scope without faults");
        DurableScope::new(scope, self.bodies, self.cleanups, Arc::new(|_, row| Some(text(row))))
    }
}

fn activity(notes: &Notes, session: usize, what: &'static str, ms: u64) -> DurableBody {
    let notes = notes.clone();
    DurableBody::Activity(Arc::new(move |activity: Activity| {
        let notes = notes.clone();
        let body: BoxFuture<'static, _> = Box::pin(async move {
            // Cleanup is no work that cleanup has to wait for.
            let active = (what == "work").then(|| Active::new(&notes, session));
            notes.sim.sleep(ms).await;
            let message = many(&activity.feed);
            notes.perform(session, &activity.key, format!("{what} {message}"));
            drop(active);
            Ok(Emitted::One(0, row(message)))
        });
        body
    }))
}

/// A scope of one activity.
fn single(body: DurableBody) -> Arc<DurableScope> {
    let mut build = Build::default();
    build.op("do", TASK, body, &["end"]);
    build.op("end", OpKind::Terminate, DurableBody::None, &[]);
    build.build()
}

fn nested(notes: &Notes, plan: Plan, uninterruptible: bool) -> Arc<DurableScope> {
    let mut build = Build::default();
    build.op("copy", OpKind::Clone, DurableBody::None, &["kept", "work"]);
    let kept = build.op("kept", OpKind::Buffer { keep: BufferKeep::All }, DurableBody::None, &[]);
    build.op("work", TASK, activity(notes, plan.number, "work", plan.work_ms), &["end"]);
    build.op("end", OpKind::Terminate, DurableBody::None, &[]);
    build.draft.settings.uninterruptible = uninterruptible;
    build.cleanup(kept, single(activity(notes, plan.number, "inner", 1)));
    build.build()
}

/// The scope of a plan.
pub(super) fn scope(notes: &Notes, plan: Plan) -> Arc<DurableScope> {
    let mut build = Build::default();
    let blocking = OpKind::Task { mode: TaskMode::Blocking, streams: 0 };
    let first: &[&'static str] = if plan.race_ms.is_some() { &["spread", "race"] } else { &["spread"] };
    build.op("start", OpKind::Clone, DurableBody::None, first);
    let spread = inline(|feed| Emitted::Many((0..number(&feed)).map(|message| (0, row(message))).collect()));
    build.op(
        "spread",
        OpKind::Distribute(Distribution::Spread),
        spread,
        if plan.cycles { &["far"] } else { &["copy"] },
    );
    if plan.cycles {
        let far = inline(|feed| Emitted::One(u32::from(number(&feed) < 9), row(number(&feed))));
        build.op("far", OpKind::Distribute(Distribution::Fork), far, &["copy", "up"]);
        build.op("up", blocking, inline(|feed| Emitted::One(0, row(number(&feed) + 3))), &["far"]);
    }
    build.op(
        "copy",
        OpKind::Clone,
        DurableBody::None,
        if plan.joins { &["kept", "waits", "work"] } else { &["kept", "work"] },
    );
    let keep = || OpKind::Buffer { keep: BufferKeep::All };
    let kept = build.op("kept", keep(), DurableBody::None, &[]);
    let body = match plan.work {
        Work::Activity => activity(notes, plan.number, "work", plan.work_ms),
        Work::Sleep => DurableBody::Sleep { ms: plan.work_ms },
        Work::Nested { uninterruptible } => DurableBody::Flow(nested(notes, plan, uninterruptible)),
    };
    let mode = if matches!(plan.work, Work::Nested { .. }) { TaskMode::Flow } else { TaskMode::Async };
    build.op("work", OpKind::Task { mode, streams: 0 }, body, if plan.joins { &["done"] } else { &["all"] });
    if plan.joins {
        let waits = build.op("waits", keep(), DurableBody::None, &[]);
        let done = build.op("done", keep(), DurableBody::None, &[]);
        let inputs = [waits, done].map(|buffer| JoinInput { buffer, by_clone: false }).to_vec();
        build.op("join", OpKind::Join { inputs }, inline(|feed| Emitted::One(0, row(many(&feed)))), &["all"]);
    }
    let all = inline(|feed| {
        let mut bytes = many(&feed).into_bytes();
        bytes.sort_unstable();
        Emitted::One(0, Row::new(bytes))
    });
    build.op("all", OpKind::Collect { min: 0, max: None }, all, &["last"]);
    // The second copy is on its way to a buffer as the session ends.
    build.op("last", OpKind::Clone, DurableBody::None, &["the cancel", "kept"]);
    let end = if plan.cancels { OpKind::Cancel { implicit: false } } else { OpKind::Terminate };
    build.op("the cancel", end, DurableBody::None, &[]);
    if let Some(ms) = plan.race_ms {
        build.op("race", TASK, DurableBody::Sleep { ms }, &["last"]);
    }
    build.draft.settings.uninterruptible = plan.uninterruptible;
    build.cleanup(kept, single(activity(notes, plan.number, "released", 1)));
    build.build()
}
