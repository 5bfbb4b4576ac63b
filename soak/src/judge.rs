//! Whether what happened may have happened. Pure: the story and the ends in, what is wrong out.

use crate::{
    effects::{Effect, Story},
    jobs::{End, Job, Kind},
    worker::STEPS_MAX,
};
use std::collections::{BTreeMap, BTreeSet};

/// Effects of a process that survived a kill among which those are that were in flight at it: some steps overtake others.
const SURVIVOR_EFFECTS_MAX: usize = 4 * STEPS_MAX;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    pub(crate) wrong: Vec<String>,
    /// Steps that took effect.
    pub(crate) steps: usize,
    /// Effects that happened once more because a worker was killed.
    pub(crate) doubles: usize,
    pub(crate) payments: usize,
}

pub(crate) fn judge(seed: u64, story: &Story, ended: &BTreeMap<u64, End>) -> Judged {
    let mut judged = Judged::default();
    let mut by_job = BTreeMap::<u64, Vec<&Effect>>::new();
    for effect in &story.effects {
        by_job.entry(effect.job).or_default().push(effect);
    }
    for (number, end) in ended {
        let effects = by_job.get(number).map_or(&[][..], |effects| effects);
        let job = Job::of(seed, *number);
        complete(&job, *end, effects, &mut judged);
        in_order(&job, effects, &mut judged);
    }
    for (number, effects) in &by_job {
        repeated(&Job::of(seed, *number), effects, story, &mut judged);
    }
    judged
}

/// Every step took effect, and no other.
fn complete(job: &Job, end: End, effects: &[&Effect], judged: &mut Judged) {
    let mut steps = BTreeMap::<&str, BTreeSet<(&str, &str)>>::new();
    for effect in effects {
        steps.entry(&effect.verb).or_default().insert((&effect.address, &effect.key));
    }
    judged.steps += steps.values().map(BTreeSet::len).sum::<usize>();
    for (verb, expected) in job.steps(end) {
        let found = steps.get(verb).map_or(0, BTreeSet::len) as u64;
        // A start that comes too late is refused: then none of it ran, or all of it.
        let never_ran = end == End::Lapsed && found == 0;
        if found != expected && !never_ran {
            judged.wrong.push(format!("{job:?} ended {end:?}: {found} steps of {verb}, not {expected}"));
        }
    }
    // How to undo it is written down before it is done: what was refunded need not have been charged.
    if job.kind == Kind::Endless && steps.contains_key("charge") && !steps.contains_key("refund") {
        judged.wrong.push(format!("{job:?} ended {end:?}: what was charged was not refunded"));
    }
}

/// What was done last is undone first.
fn in_order(job: &Job, effects: &[&Effect], judged: &mut Judged) {
    let first = |verb: &str| effects.iter().find(|effect| effect.verb == verb).map(|effect| effect.line);
    if job.kind == Kind::Saga && first("unreserve") > first("refund") {
        judged.wrong.push(format!("{job:?}: it was undone in the wrong order"));
    }
}

/// The same effect happened again only where a worker was killed meanwhile, or where it failed on purpose; and with the same
/// key. What must not start twice never did.
fn repeated(job: &Job, effects: &[&Effect], story: &Story, judged: &mut Judged) {
    let mut last = BTreeMap::<(&str, &str), &Effect>::new();
    let mut keys = BTreeMap::<(&str, &str), &str>::new();
    for effect in effects {
        judged.payments += usize::from(effect.verb == "pay");
        // A row that was changed makes another step of its element; all other steps have one key for ever.
        let key = keys.entry((&effect.verb, &effect.address)).or_insert(&effect.key);
        if *key != effect.key && job.kind != Kind::Sheet {
            judged.wrong.push(format!("{job:?}: {} had two keys", effect.address));
        }
        let Some(before) = last.insert((&effect.verb, &effect.key), effect) else { continue };
        if effect.verb == "pay" {
            judged.wrong.push(format!("{job:?}: what must not start twice did"));
        } else if !before.fails {
            judged.doubles += 1;
            if !story.was_in_flight(before, effect, SURVIVOR_EFFECTS_MAX) {
                judged.wrong.push(format!(
                    "{job:?}: {} {} happened twice, and no process was killed",
                    effect.verb, effect.address
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(line: usize, verb: &str, key: &str) -> Effect {
        let (verb, key, address) = (verb.into(), key.into(), format!("/{key}"));
        Effect { line, job: 1, verb, key, address, fails: false, process: 7 }
    }

    fn wrong(effects: Vec<Effect>, kills: Vec<(usize, usize)>) -> usize {
        judge(1, &Story { effects, kills, begun: vec![(7, 4)] }, &BTreeMap::new()).wrong.len()
    }

    #[test]
    fn an_effect_happens_again_only_around_a_kill_and_a_payment_never() {
        assert_eq!(wrong(vec![effect(0, "bump", "a"), effect(9, "bump", "a")], vec![(3, 5)]), 0);
        assert_eq!(wrong(vec![effect(4, "bump", "a"), effect(9, "bump", "a")], vec![(3, 5)]), 0);
        assert_eq!(wrong(vec![effect(6, "bump", "a"), effect(9, "bump", "a")], vec![(3, 5)]), 1);
        assert_eq!(wrong(vec![effect(0, "pay", "a"), effect(9, "pay", "a")], vec![(3, 5)]), 1);
        let survived = vec![(6, 8)];
        assert_eq!(wrong(vec![effect(9, "bump", "a"), effect(10, "bump", "a")], survived.clone()), 0);
        let others = (9..9 + SURVIVOR_EFFECTS_MAX).map(|line| effect(line, "bump", &line.to_string()));
        let late = [effect(90, "bump", "a"), effect(91, "bump", "a")];
        assert_eq!(wrong(others.chain(late).collect(), survived), 1);
        let again = Effect { fails: true, ..effect(0, "flaky", "a") };
        assert_eq!(wrong(vec![again, effect(9, "flaky", "a")], vec![]), 0);
    }

    #[test]
    fn a_step_whose_effect_is_missing_is_noticed() {
        let chain = (0..).find(|number| Job::of(1, *number).kind == Kind::Chain).expect("there is one");
        let judged = judge(1, &Story::default(), &[(chain, End::Done)].into());
        assert_eq!(judged.wrong.len(), 1);
    }
}
