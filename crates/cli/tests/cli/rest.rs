//! `fsck --at-rest` and `workers`: the proof for a store that no process uses, the workers that prevent it, and how
//! long a killed worker counts as present.

use crate::support;

use support::{
    Said,
    team::{Team, Worker, stores},
};

const FLOW: &str = "
flow: two
steps:
  a: { run: \"printf 1\", out: { t: text } }
  b: { run: \"printf ${{ a.t }}2\", out: { t: text } }
outputs: { t: b.t }
";

fn with_a_run(team: &Team) {
    team.bed.write("two.yaml", FLOW);
    team.run(&["run", "two.yaml", "--shared"]).ends(0);
}

fn prove(team: &Team) -> Said {
    team.run(&["fsck", "--at-rest", "--json"])
}

/// Starts a worker, and waits until it is listed.
fn listed(team: &Team, machine: &str, args: &[&str]) -> Worker {
    let worker = team.worker_on(machine, args);
    while team.run(&["workers", "--json"]).ends(0).json()["workers"] == serde_json::json!([]) {}
    worker
}

fn all(said: &Said) -> String {
    format!("{}{}", said.stdout, said.stderr)
}

#[track_caller]
fn is_proven(said: Said) {
    let proof = said.ends(0).json();
    assert_eq!((&proof["exact"], &proof["clean"]), (&true.into(), &true.into()), "{proof}");
}

#[test]
fn an_idle_store_is_proven_exactly() {
    for team in stores() {
        with_a_run(&team);
        is_proven(prove(&team));
    }
}

#[test]
fn a_store_with_a_worker_is_refused_by_name_until_it_has_left() {
    for team in stores() {
        with_a_run(&team);
        let worker = listed(&team, "user", &[]);
        let refused = all(&prove(&team).ends(75));
        let place = format!(":{} is registered, and sent its last heartbeat", worker.child.id());
        assert!(refused.contains("OF0480") && refused.contains(&place), "{refused}");
        // Without `--at-rest`, the store is checked as far as possible.
        assert_eq!(team.run(&["fsck", "--json"]).ends(0).json()["clean"], true);
        worker.leave();
        is_proven(prove(&team));
    }
}

#[test]
fn a_worker_that_was_killed_here_is_gone_at_once() {
    for team in stores() {
        with_a_run(&team);
        let worker = listed(&team, "user", &[]);
        worker.signal("KILL");
        assert_eq!(worker.end().0, -1);
        assert_eq!(team.run(&["workers", "--json"]).ends(0).json()["workers"], serde_json::json!([]));
        is_proven(prove(&team));
        let worker = listed(&team, "user", &[]);
        worker.signal("KILL");
        assert_eq!(worker.end().0, -1);
        is_proven(prove(&team));
    }
}

#[test]
fn a_worker_that_was_killed_elsewhere_is_silent_and_forgotten_when_its_lease_is_over() {
    const LEASE_MS: u64 = 3000;
    for team in stores().into_iter().filter(Team::is_server) {
        with_a_run(&team);
        let killed = listed(&team, "other", &["--lease", "3s"]);
        killed.signal("KILL");
        assert_eq!(killed.end().0, -1);
        let mut seen = Vec::new();
        loop {
            let workers = team.run(&["workers", "--json"]).ends(0).json();
            let Some(worker) = workers["workers"].get(0) else { break };
            let (status, silent_ms) = (worker["status"].as_str().unwrap(), worker["silent_ms"].as_u64().unwrap());
            assert_eq!(status, if silent_ms <= LEASE_MS / 2 { "alive" } else { "silent" }, "{worker}");
            assert!(silent_ms < LEASE_MS, "{worker}");
            seen.push(status.to_owned());
            let refused = prove(&team);
            // Its lease may have ended just now.
            if refused.code == 75 {
                let said = all(&refused);
                assert!(said.contains("sent its last heartbeat") || said.contains("is forgotten in"), "{said}");
            }
        }
        assert!(seen.is_sorted(), "once it is silent it stays so: {seen:?}");
        is_proven(prove(&team));
    }
}
