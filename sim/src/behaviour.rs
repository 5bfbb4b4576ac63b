//! What simulated tasks do, and how that is written into a flow: in the parameters of the task.

use onceflow_core::model::{Effect, Port, Retry, TaskSpec, Type};
use onceflow_store::testing::random::Random;

/// How a task behaves beside giving what follows from its inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// It fails this often before it succeeds.
    pub flaky: u8,
    /// It fails for good where the number of its inputs is a multiple of this; 0 is never.
    pub fails: u8,
    /// Such a failure goes away when the user has repaired the world.
    pub repairable: bool,
    /// It takes up to so many hundredths of a lease.
    pub slow: u16,
    /// What it gives is up to chance.
    pub random: bool,
    /// It counts up to this in its first input, and says whether to go on; 0 is no counter.
    pub counts_to: u8,
    /// It panics instead of failing.
    pub panics: bool,
    /// It undoes another.
    pub undoes: bool,
    /// Every attempt is suspended first, and goes on when it is woken.
    pub suspends: bool,
}

impl Behaviour {
    /// As parameters.
    pub fn to_params(self) -> Vec<u8> {
        let flags = u8::from(self.repairable)
            | u8::from(self.random) << 1
            | u8::from(self.panics) << 2
            | u8::from(self.undoes) << 3
            | u8::from(self.suspends) << 4;
        let [a, b] = self.slow.to_be_bytes();
        vec![self.flaky, self.fails, flags, a, b, self.counts_to]
    }

    /// From parameters.
    pub fn of(spec: &TaskSpec) -> Self {
        let [flaky, fails, flags, a, b, counts_to] = spec.params[..] else { return Behaviour::default() };
        Behaviour {
            flaky,
            fails,
            repairable: flags & 1 != 0,
            random: flags & 2 != 0,
            panics: flags & 4 != 0,
            undoes: flags & 8 != 0,
            suspends: flags & 16 != 0,
            slow: u16::from_be_bytes([a, b]),
            counts_to,
        }
    }
}

/// Which behaviours a flow may have.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Some tasks fail for good.
    pub failing: bool,
    /// Some give what chance says.
    pub random: bool,
    /// Some must not run twice.
    pub once: bool,
    /// Some can be undone.
    pub undoing: bool,
    /// Some write rows of the flow.
    pub writing: bool,
    /// Some are slow.
    pub slow: bool,
    /// Some are suspended.
    pub suspending: bool,
}

impl Style {
    /// Of a seed.
    pub fn new(random: &mut Random) -> Self {
        Style {
            failing: random.percent(25),
            random: random.percent(20),
            once: random.percent(40),
            undoing: random.percent(25),
            writing: random.percent(30),
            slow: random.percent(50),
            suspending: random.percent(30),
        }
    }
}

/// The class of tasks that only some workers take at a time.
pub const NARROW: &str = "narrow";

/// A task with these ports and some behaviour.
pub fn task(random: &mut Random, style: Style, name: String, inputs: Vec<Port>, outputs: Vec<Port>) -> TaskSpec {
    let mut spec = TaskSpec::new(name, inputs, outputs);
    let mut behaviour = Behaviour::default();
    spec.effect = match random.below(10) {
        0..3 => Effect::Pure,
        3 | 5 if style.once => Effect::AtMostOnce,
        4 if style.writing => Effect::Transactional,
        _ => Effect::Idempotent,
    };
    if random.percent(15) && spec.effect != Effect::AtMostOnce {
        behaviour.flaky = 1 + random.below(2) as u8;
    }
    if style.failing && random.percent(12) {
        behaviour.fails = 1 + random.below(3) as u8;
        behaviour.repairable = random.percent(60);
        behaviour.panics = random.percent(20);
    }
    if style.slow && random.percent(40) {
        behaviour.slow = [5, 30, 120, 300][random.below(4)];
    }
    behaviour.suspends = style.suspending && spec.effect == Effect::Idempotent && random.percent(35);
    behaviour.random = style.random && random.percent(40);
    if random.percent(15) {
        spec.class = NARROW.into();
    }
    let retry = Retry { attempts: u32::from(behaviour.flaky) + 1, backoff_ms: 20, backoff_ms_max: 200 };
    spec.retry = retry;
    if style.undoing && random.percent(35) && spec.effect != Effect::Pure {
        spec.compensation = Some(Box::new(undo(random, &spec)));
    }
    spec.params = behaviour.to_params();
    spec
}

fn undo(random: &mut Random, of: &TaskSpec) -> TaskSpec {
    let mut undo = TaskSpec::new(format!("undo-{}", of.name), of.inputs.clone(), vec![]);
    let flaky = if random.percent(25) { 1 } else { 0 };
    undo.params = Behaviour { undoes: true, flaky, ..Behaviour::default() }.to_params();
    undo.class.clone_from(&of.class);
    undo.retry = Retry { attempts: 4, backoff_ms: 20, backoff_ms_max: 200 };
    undo
}

/// The task that ends loops: counts its first input up to a limit.
pub fn counter(limit: u8) -> TaskSpec {
    let mut spec = TaskSpec::new(
        format!("count{limit}"),
        vec![Port::new("n", Type::Int)],
        vec![Port::new("n", Type::Int), Port::new("more", Type::Bool)],
    );
    spec.effect = Effect::Pure;
    spec.params = Behaviour { counts_to: limit, ..Behaviour::default() }.to_params();
    spec
}
