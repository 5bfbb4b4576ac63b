//! The same for values: the real code that puts, refers, leases, clears and reclaims, with every order of the calls of several
//! actors, a death of each at every call, one lost reply, and time that passes at any moment.
//!
//! A future cannot be copied, so a state is reached by doing again all that led there. Two ways lead to the same state if
//! the rows are the same and every actor was told the same: what it does next follows from that.

mod actor;
mod scene;

pub use scene::{Do, SCENES, Scene};

use super::Explored;
use crate::executor::at_once;
use actor::{Actor, Table};
use onceflow_store::values::{Error, Values, fsck::Mode};
use std::collections::{HashSet, VecDeque};

/// Longer than any lease here, and than the grace that follows an outage.
const LATER_MS: u64 = 100_000;

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The next call of an actor happens, and is answered.
    Call(usize),
    /// It happens, and the answer is lost.
    Lose(usize),
    Die(usize),
    Later,
}

/// A state of the world.
struct World {
    table: Table,
    actors: Vec<Actor>,
    lost: bool,
    later: bool,
}

/// Everything that can happen in a scene.
///
/// # Errors
/// What may not be, and what leads there.
pub fn explore(scene: &Scene) -> Result<Explored, String> {
    let first = World::after(scene, &[]);
    let mut seen = HashSet::from([first.digest()]);
    let mut found = Explored { states: 1, ..Explored::default() };
    let mut queue = VecDeque::from([Vec::new()]);
    while let Some(path) = queue.pop_front() {
        found.depth = found.depth.max(path.len());
        let world = World::after(scene, &path);
        let at = |why: String| format!("after {path:?}: {why}");
        world.look().map_err(at)?;
        let events = world.events(scene);
        if world.actors.iter().all(Actor::is_over) {
            found.ends += 1;
            world.end(scene).map_err(at)?;
            continue;
        }
        for event in events {
            let path: Vec<_> = path.iter().copied().chain([event]).collect();
            if seen.insert(World::after(scene, &path).digest()) {
                found.states += 1;
                queue.push_back(path);
            }
        }
    }
    Ok(found)
}

impl World {
    /// The world after all this.
    fn after(scene: &Scene, path: &[Event]) -> World {
        let table = Table::new();
        let prepared = at_once(scene::perform(&table.values(), scene.prepared));
        assert!(prepared.iter().all(Result::is_ok), "{} cannot be prepared: {prepared:?}", scene.name);
        let actors = (1..).zip(scene.actors).map(|(at, does)| Actor::start(&table, at, does)).collect();
        let mut world = World { table, actors, lost: false, later: false };
        for event in path {
            match event {
                Event::Call(at) => world.actors[*at].call(false),
                Event::Lose(at) => {
                    world.actors[*at].call(true);
                    world.lost = true;
                }
                Event::Die(at) => world.actors[*at].die(),
                Event::Later => {
                    world.table.pass(LATER_MS);
                    world.later = true;
                }
            }
        }
        world
    }

    fn events(&self, scene: &Scene) -> Vec<Event> {
        let mut events = Vec::new();
        for (at, _) in self.actors.iter().enumerate().filter(|(_, actor)| !actor.is_over()) {
            events.extend([Event::Call(at), Event::Die(at)]);
            if !self.lost {
                events.push(Event::Lose(at));
            }
        }
        if scene.time_passes && !self.later {
            events.push(Event::Later);
        }
        events
    }

    fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for (_, key, row) in self.table.rows() {
            hasher.update(format!("{key:?}").as_bytes()).update(&row);
        }
        for actor in &self.actors {
            hasher.update(&actor.digest());
        }
        hasher.update(&[u8::from(self.lost), u8::from(self.later)]);
        *hasher.finalize().as_bytes()
    }

    /// What must be so at any moment: whatever is referred to is there, and counted.
    fn look(&self) -> Result<(), String> {
        sound(&self.table.values())
    }

    /// All clients have ended. What was answered is so; and when all leases have ended and all is reclaimed, nothing is
    /// there that no root leads to.
    fn end(&self, scene: &Scene) -> Result<(), String> {
        let values = self.table.values();
        for (actor, does) in self.actors.iter().zip(scene.actors) {
            for (one, _) in does.iter().zip(actor.answers()).filter(|(_, well)| *well) {
                let Some((root, id)) = one.sets().filter(|(root, _)| scene.has_one_for(root)) else { continue };
                let leads = at_once(values.edge(&scene::root(root))).map_err(told)?;
                if leads != Some(id.into()) || at_once(values.get(&id.into())).is_err() {
                    return Err(format!("{root} was set to {id}, and does not lead there"));
                }
            }
        }
        loop {
            let done = at_once(values.reclaim(usize::MAX)).map_err(told)?;
            match done.next_deadline {
                _ if done.more => {}
                Some(_) => self.table.pass(LATER_MS),
                None => break,
            }
        }
        sound(&values)?;
        match at_once(values.reclaim(usize::MAX)).map_err(told)?.swept {
            0 => Ok(()),
            n => Err(format!("{n} values were left")),
        }
    }
}

fn told(error: Error) -> String {
    error.to_string()
}

fn sound(values: &Values) -> Result<(), String> {
    let report = at_once(values.fsck(Mode::Check)).map_err(told)?;
    if report.is_clean() && report.lost.is_empty() { Ok(()) } else { Err(report.to_string()) }
}
