//! Small scenes: what is there, and who does what at the same time.

use onceflow_store::values::{EdgeName, Error, Update, Values};

/// How long leases last here.
const LEASE_MS: u64 = 1_000;

/// Something an actor does; names of values and roots.
#[derive(Clone, Copy, Debug)]
pub enum Do {
    /// Puts a value that refers to nothing, and a root to it.
    Leaf(&'static str, &'static str),
    /// Puts a value that refers twice to whatever the first root leads to, and sets the last root to it.
    Above(&'static str, &'static str, &'static str),
    /// As `Leaf`, but the root ends by itself.
    Lease(&'static str, &'static str),
    /// Lets such a root last longer.
    Renew(&'static str),
    /// Lets a root lead nowhere.
    Clear(&'static str),
    /// Reclaims until there is nothing more to do now, touching so many values at a time.
    Reclaim(usize),
}

use Do::{Above, Clear, Leaf, Lease, Reclaim, Renew};

/// What is there, and who does what at the same time.
pub struct Scene {
    /// What people call it.
    pub name: &'static str,
    pub(super) prepared: &'static [Do],
    pub(super) actors: &'static [&'static [Do]],
    pub(super) time_passes: bool,
}

/// All scenes.
pub const SCENES: &[Scene] = &[
    Scene {
        name: "let go, and taken again",
        prepared: &[Leaf("leaf", "old")],
        actors: &[&[Clear("old")], &[Above("old", "above", "new")], &[Reclaim(1)]],
        time_passes: false,
    },
    Scene {
        name: "the same content",
        prepared: &[Leaf("same", "one")],
        actors: &[&[Clear("one"), Reclaim(9)], &[Leaf("same", "two")]],
        time_passes: false,
    },
    Scene {
        name: "come and gone",
        prepared: &[],
        actors: &[&[Leaf("same", "one"), Clear("one")], &[Leaf("same", "two")], &[Reclaim(9)]],
        time_passes: false,
    },
    Scene {
        name: "a lease that ends",
        prepared: &[Lease("held", "lease")],
        actors: &[&[Renew("lease")], &[Reclaim(9)]],
        time_passes: true,
    },
    Scene {
        name: "taken from a lease",
        prepared: &[Lease("held", "lease")],
        actors: &[&[Above("lease", "above", "new")], &[Reclaim(9)]],
        time_passes: true,
    },
    Scene {
        name: "a chain let go",
        prepared: &[Leaf("leaf", "low"), Above("low", "middle", "top"), Clear("low")],
        actors: &[&[Clear("top"), Reclaim(1)], &[Reclaim(2)]],
        time_passes: false,
    },
];

impl Do {
    /// The root it sets, and to what.
    pub(super) fn sets(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Leaf(id, root) | Above(_, id, root) => Some((root, id)),
            Lease(..) | Renew(_) | Clear(_) | Reclaim(_) => None,
        }
    }

    /// Whether it changes where a root leads.
    pub(super) fn changes(&self, which: &str) -> bool {
        match self {
            Leaf(_, root) | Above(_, _, root) | Lease(_, root) | Clear(root) => *root == which,
            Renew(_) | Reclaim(_) => false,
        }
    }
}

impl Scene {
    /// Whether only one of those at work changes where a root leads.
    pub(super) fn has_one_for(&self, root: &str) -> bool {
        self.actors.iter().flat_map(|does| *does).filter(|does| does.changes(root)).count() == 1
    }
}

/// A root of this name.
pub(super) fn root(name: &str) -> EdgeName {
    EdgeName::root(name)
}

async fn one(values: &Values, what: Do) -> Result<(), Error> {
    let update = match what {
        Leaf(id, to) => Update::new().leaf(id, "content").set(&root(to), id),
        Above(from, id, to) => {
            let below = values.edge(&root(from)).await?;
            let refs: Vec<_> = below.into_iter().flat_map(|below| [below.clone(), below]).collect();
            Update::new().put(id, refs, "above").set(&root(to), id)
        }
        Lease(id, to) => Update::new().leaf(id, "held").lease(&root(to), id, LEASE_MS),
        Clear(from) => Update::new().clear(&root(from)),
        Renew(to) => return values.renew(&root(to), LEASE_MS).await.map(drop),
        Reclaim(budget) => {
            while values.reclaim(budget).await?.more {}
            return Ok(());
        }
    };
    values.update(update).await.map(drop)
}

/// Does one after the other, and stops at what fails.
pub(super) async fn perform(values: &Values, does: &[Do]) -> Vec<Result<(), Error>> {
    let mut answers = Vec::new();
    for what in does {
        let answer = one(values, *what).await;
        let goes_on = answer.is_ok();
        answers.push(answer);
        if !goes_on {
            break;
        }
    }
    answers
}
