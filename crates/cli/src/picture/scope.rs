//! The inside of a scope: a group with a box for each operation, buffer and cleanup flow, and one for each end. Of a run,
//! also what its open sessions wait for.

use super::{
    scene::{BoxKind, Repeats, Scene, SceneGroup, box_id},
    states::State,
};
use onceflow_engine::scope::SessionView;
use onceflow_exec::action::{
    CleanupOn, FileCleanup, FileOp, FileTask, FileWork, KeepEntries, MessageTarget, ScopeAction,
};
use std::collections::BTreeMap;

impl Scene {
    /// Draws the scope of a step into a group around its box.
    pub(super) fn draw_scope(&mut self, at: usize, action: &ScopeAction) {
        let group = self.group_around(at);
        Drawing { scene: self, group, action, known: BTreeMap::new() }.draw(at);
    }

    /// Makes a group of the name of a box, and puts the box into it.
    fn group_around(&mut self, at: usize) -> usize {
        let one = &mut self.boxes[at];
        let (id, name, around) = (one.id.clone(), one.name.clone(), one.group);
        one.id.push('.');
        one.group = Some(self.groups.len());
        self.groups.push(SceneGroup { id, name, repeats: Repeats::Once, group: around });
        self.groups.len() - 1
    }

    /// Sets what the operations of open sessions do.
    pub(crate) fn colour_scopes(&mut self, sessions: &[SessionView], is_left: bool) {
        let at_work = if is_left { State::Interrupted } else { State::Running };
        for session in sessions {
            let way = session.path.iter().fold(box_id(&session.step), |way, part| format!("{way}/{part}"));
            for order in &session.waits {
                // A task that was injected is drawn with the operation that injects it.
                let name = order.name.split(':').next().unwrap_or(&order.name);
                if let Some(at) = self.operation(&format!("{way}/{name}")) {
                    let stand = &mut self.boxes[at].state;
                    (stand.state, stand.running) = (at_work, stand.running + 1);
                    stand.note = Some(crate::words::count(stand.running, "message"));
                }
            }
            for held in &session.holds {
                if let Some(at) = self.operation(&format!("{way}/{}", held.name)) {
                    let closed = if held.is_closed { ", closed" } else { "" };
                    let stand = &mut self.boxes[at].state;
                    stand.state = at_work;
                    stand.note = Some(format!("{}{closed}", crate::words::count(held.holds, "message")));
                }
            }
        }
    }

    fn operation(&self, id: &str) -> Option<usize> {
        self.boxes.iter().position(|one| one.is_operation() && one.id.trim_end_matches('.') == id)
    }
}

struct Drawing<'a> {
    scene: &'a mut Scene,
    group: usize,
    action: &'a ScopeAction,
    known: BTreeMap<String, usize>,
}

impl Drawing<'_> {
    /// Draws the scope that begins at a box.
    fn draw(mut self, from: usize) {
        let action = self.action;
        for (name, keep) in &action.buffers {
            let word = match keep {
                KeepEntries::All => String::from("buffer"),
                KeepEntries::Last(most) => format!("buffer, last {most}"),
                KeepEntries::First(most) => format!("buffer, first {most}"),
            };
            self.add(name, word);
        }
        for op in &action.ops {
            let in_turn = if op.delivery.is_some() { ", in turn" } else { "" };
            self.add(&op.name, word(&op.work) + in_turn);
        }
        for cleanup in &action.cleanups {
            self.cleanup(cleanup);
        }
        self.target(from, &action.start);
        for op in &action.ops {
            self.operation(op);
        }
    }

    fn add(&mut self, name: &str, word: String) -> usize {
        let id = format!("{}/{name}", self.scene.groups[self.group].id);
        let at = self.scene.add(id, name.to_owned(), BoxKind::Operation(word));
        self.scene.boxes[at].group = Some(self.group);
        self.known.insert(name.to_owned(), at);
        at
    }

    fn operation(&mut self, op: &FileOp) {
        let at = self.known[&op.name];
        let (mut reads, mut writes): (&[String], &[String]) = (&[], &[]);
        match &op.work {
            FileWork::Join { buffers, .. } | FileWork::Listen { buffers, .. } | FileWork::Access { buffers, .. } => {
                reads = buffers;
            }
            FileWork::Watch(of) => reads = of,
            FileWork::Push { buffer, .. } => writes = std::slice::from_ref(buffer),
            FileWork::Open(buffers) | FileWork::Close(buffers) | FileWork::Gate { buffers, .. } => writes = buffers,
            _ => {}
        }
        self.scene.arrows.extend(reads.iter().filter_map(|name| Some((*self.known.get(name)?, at))));
        self.scene.arrows.extend(writes.iter().filter_map(|name| Some((at, *self.known.get(name)?))));
        let parts: Vec<_> = op.work.parts().into_iter().map(|(_, target)| target).collect();
        let streams = op.streams.iter().map(|(_, target)| target);
        for target in parts.into_iter().chain([&op.next]).chain(&op.other).chain(streams) {
            self.target(at, target);
        }
        if let FileWork::Task(FileTask::Scope(nested)) = &op.work {
            self.scene.draw_scope(at, nested);
        }
    }

    fn cleanup(&mut self, cleanup: &FileCleanup) {
        let on = match cleanup.on {
            CleanupOn::Cancel => "on cancel",
            CleanupOn::Terminate => "on terminate",
            CleanupOn::Either => "at the end",
        };
        let at = self.add(&cleanup.name, format!("cleanup {on}: {}", task(&cleanup.task)));
        self.scene.arrows.extend(cleanup.with.iter().filter_map(|name| Some((*self.known.get(name)?, at))));
        if let FileTask::Scope(nested) = &cleanup.task {
            self.scene.draw_scope(at, nested);
        }
    }

    fn target(&mut self, from: usize, target: &MessageTarget) {
        let to = match target {
            MessageTarget::Op(name) | MessageTarget::Push(name) => self.known.get(name).copied(),
            MessageTarget::Terminate => Some(self.end("terminate", "end")),
            MessageTarget::Cancel | MessageTarget::ImplicitCancel => Some(self.end("cancel", "end")),
            MessageTarget::Stream(name) => Some(self.end(name, "stream")),
            MessageTarget::Dispose => None,
            MessageTarget::All(targets) => return targets.iter().for_each(|target| self.target(from, target)),
        };
        // A target of its own is drawn as no arrow: a picture has none from a box to itself.
        if let Some(to) = to.filter(|to| *to != from) {
            self.scene.arrows.insert((from, to));
        }
    }

    /// The box of an end, or of a stream, made if it does not exist.
    fn end(&mut self, name: &str, word: &str) -> usize {
        // Operations may have the names of streams.
        let key = format!("<{name}>");
        match self.known.get(&key) {
            Some(at) => *at,
            None => {
                let at = self.add(&key, word.to_owned());
                self.scene.boxes[at].name = name.to_owned();
                at
            }
        }
    }
}

fn task(task: &FileTask) -> String {
    match task {
        FileTask::Run(_) => String::from("run"),
        FileTask::Script(_) => String::from("script"),
        FileTask::Http(_) => String::from("http"),
        FileTask::Call(call) => format!("call {}", call.flow),
        FileTask::Scope(_) => String::from("scope"),
    }
}

fn word(work: &FileWork) -> String {
    if let FileWork::Task(one) = work {
        return task(one);
    }
    String::from(match work {
        FileWork::Task(_) => "task",
        FileWork::Inject { .. } => "inject",
        FileWork::Expr(_) => "expr",
        FileWork::When(_) => "when",
        FileWork::Match { .. } => "match",
        FileWork::Spread(_) => "spread",
        FileWork::Collect { .. } => "collect",
        FileWork::Join { .. } => "join",
        FileWork::Listen { .. } => "listen",
        FileWork::Access { .. } => "access",
        FileWork::Push { .. } => "push",
        FileWork::Split(_) => "split",
        FileWork::Unzip(_) => "unzip",
        FileWork::Open(_) => "open",
        FileWork::Close(_) => "close",
        FileWork::Gate { .. } => "gate",
        FileWork::Trim(_) => "trim",
        FileWork::Watch(_) => "watch",
        FileWork::Sleep(_) => "sleep",
        FileWork::Wait(_) => "wait",
    })
}
