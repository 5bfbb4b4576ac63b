//! Known mistakes, each of which must be noticed: what is switched on in the kernel, and what it is a case of.

/// A mistake that can be made.
pub struct Hazard {
    /// What it is switched on by.
    pub name: &'static str,
    /// What is done wrong.
    pub what: &'static str,
    /// Where it is written that this goes wrong.
    pub of: &'static str,
}

pub(crate) const fn hazard(name: &'static str, of: &'static str, what: &'static str) -> Hazard {
    Hazard { name, what, of }
}

/// Mistakes about scopes, which only the seeds that are about scopes can notice.
pub const OF_SCOPES: &str = "scopes";

/// All of them.
pub const ALL: &[Hazard] = &[
    hazard("row-deleted-apart", "commit 1", "the permission to run is deleted in a write of its own"),
    hazard("next-enqueued-apart", "commit 2", "the next steps are made ready in a write of their own"),
    hazard("join-kept-apart", "commit 3", "who has arrived at a fan-in is kept apart from the run"),
    hazard("arrivals-repeated", "commit 4", "who does not know whether it arrived at a fan-in arrives again"),
    hazard(
        "commit-without-fence",
        "commit 4; kernel 1",
        "a commit requires that the row is there, not that it is ours",
    ),
    hazard("size-from-attempt", "commit 5", "a fan-out is as wide as an attempt said that did not commit"),
    hazard("told-before-durable", "commit 6; kernel 14", "a result is told before it will last"),
    hazard("arrivals-counted", "commit 7", "those who arrive at a fan-in are counted, and a retry counts again"),
    hazard("fewer-inputs", "commit 8", "an input that is not there counts as none"),
    hazard("join-not-counted", "kernel 2", "a step that a fan-in makes ready is not counted"),
    hazard(
        "settles-on-stale-fact",
        "kernel 2",
        "that something is in flight is not required when settling is left to it",
    ),
    hazard("counters-fire-first", "kernel 3", "a counter at zero fires although a full bitmap would raise it"),
    hazard("empty-each-waits", "kernel 5", "an each without elements waits for its last one"),
    hazard("ack-deletes-value", "kernel 8", "who has consumed a value deletes it"),
    hazard("content-named-blindly", "kernel 9", "a value named by its content is put without looking"),
    hazard("unlinked-before-durable", "kernel 10", "an object goes before it is durable that nothing names it"),
    hazard("fences-repeat", "kernel 12", "a fence is a counter that begins anew"),
    hazard("takeover-despite-renewal", "kernel 13", "a takeover does not look whether the deadline was moved"),
    hazard("body-before-durable", "kernel 14", "a body that touches the world starts before that is durable"),
    hazard("claims-void-with-owner", "kernel 15", "those who live do not assert their claims to the next owner"),
    hazard(
        "grants-before-reassertion",
        "kernel 15",
        "a new owner grants claims before those who live have asserted theirs",
    ),
    hazard("torn-tail-believed", "kernel 16", "what is whole behind the torn end of a log is believed"),
    hazard("failure-not-delivered", "kernel 17", "a failure is not delivered to the step that handles it"),
    hazard("commit-in-any-state", "kernel 19, 21", "a commit requires that the run is there, not its phase and plan"),
    hazard("validity-is-not-asked", "kernel 22", "a value is reused whatever it was computed from"),
    hazard("reuse-not-pinned", "kernel 23", "what a new plan may reuse goes before that is decided"),
    hazard("takeover-runs-again", "kernel 26", "who takes over a step that must not run twice runs it"),
    hazard("retry-forgets-start", "kernel 26", "trying a run again forgets which steps were started"),
    hazard("suspended-stays-ready", "suspended attempts", "the ready row of a step stays when the step is suspended"),
    hazard("timer-not-set", "timers", "a step is suspended without the timer that wakes it"),
    hazard("woken-stays-parked", "suspended attempts", "a step that is woken stays parked"),
    hazard("lease-by-client-clock", "values", "a lease ends by the clock of who sweeps"),
    hazard("buried-though-referenced", "values", "a value is swept without looking whether it is referred to again"),
    hazard("scope-answer-lost", OF_SCOPES, "the row of an answer is deleted, and no session takes the answer"),
    hazard("scope-answer-counted-twice", OF_SCOPES, "an answer counts again, for a later order in the same place"),
    hazard("scope-cleanup-before-drop", OF_SCOPES, "an activity counts as over while its future lives"),
    hazard(
        "scope-result-before-cleanup",
        "scopes",
        "the result of a session is delivered while its cleanup flows work",
    ),
    hazard("scope-message-lost", OF_SCOPES, "a message on its way into a buffer is dropped when its session ends"),
    hazard(
        "scope-nested-not-required",
        "scopes",
        "a nested session is told that its parent ends, though it may be gone",
    ),
    hazard("scope-timer-not-stored", OF_SCOPES, "a timer of a session is kept in memory only"),
    hazard("scope-parent-not-told", OF_SCOPES, "a nested session ends without an event for its parent"),
    hazard("arrival-not-held", "our own", "what arrives at a step is not held for it"),
    hazard("consumed-not-released", "our own", "what a step has consumed stays held"),
    hazard("undo-not-registered", "our own", "how to undo a step is not written down"),
    hazard("undo-first-first", "our own", "undoing begins with what was done first"),
    hazard("settles-too-soon", "our own", "a run is settled although steps are in flight"),
    hazard("abandoned-for-ever", "our own", "the steps of dead workers are never freed"),
    hazard("history-without-end", "our own", "the sweeper is not told when the row of a run goes"),
    hazard("failed-for-ever", "our own", "the sweeper is not told when a run that failed goes"),
    hazard("writes-not-in-commit", "our own", "what a transactional step writes is left out of its commit"),
    hazard("reads-not-required", "our own", "what a transactional step has read may have changed"),
    hazard("memo-ignores-inputs", "our own", "what a step gave before is reused for other inputs"),
];

/// Switches one on for this thread, or all off.
pub fn switch(name: Option<&'static str>) {
    #[cfg(feature = "hazards")]
    onceflow_core::hazard::switch(name);
    #[cfg(not(feature = "hazards"))]
    assert!(name.is_none(), "built without the feature `hazards`");
}
