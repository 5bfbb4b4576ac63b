//! Workers: several processes that take steps of any run, on a directory and on a real Redis server.

use crate::support;

use onceflow_store::testing::redis::Server;
use std::collections::BTreeMap;
use support::{
    copy_flow,
    team::{Team, stores},
};

/// A flow that runs every element once, each with a trace; then all of them together.
fn many(team: &Team, labels: &str) -> Vec<String> {
    let effects = team.bed.path("effects");
    let flow = format!(
        r#"
flow: many
inputs: {{ ns: list<int> }}
steps:
  one:
    each: n in inputs.ns
    run: echo did ${{{{ n }}}}; echo ${{{{ n }}}} >> '{}'; echo ${{{{ n }}}} > n.txt
    out: {{ n: {{ file: n.txt }} }}
  all: {{ run: "cat ${{{{ one.n }}}} > all.txt", {labels} out: {{ all: {{ file: all.txt }} }} }}
outputs: {{ all: all.all }}
"#,
        effects.display()
    );
    team.bed.write("many.yaml", &flow);
    ["many.yaml", "-i", "ns=[1,2,3,4,5,6,7,8,9,10]"].map(String::from).into()
}

fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

const TEN: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";

/// Returns how often each line is in a text.
fn counts(text: &str) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    text.lines().for_each(|line| *counts.entry(line).or_default() += 1);
    counts
}

#[test]
fn workers_share_the_steps_of_a_run_and_each_is_done_once() {
    for team in stores() {
        let run = many(&team, "");
        let workers = [team.worker(&["--jobs", "1"]), team.worker(&["--jobs", "1"])];
        team.wait(&words(&run)).ends(0);
        assert_eq!(team.bed.read("results/all.txt"), TEN);
        assert!(counts(&team.bed.read("effects")).values().all(|times| *times == 1));
        let done: usize = workers
            .into_iter()
            .map(|worker| {
                let said = worker.leave();
                said.lines().filter(|line| line.starts_with("done ")).count()
            })
            .sum();
        assert_eq!(done, 11);
        team.is_at_rest();
    }
}

#[test]
fn a_run_works_on_its_own_steps_too_and_needs_no_worker() {
    for team in stores() {
        let run = many(&team, "");
        team.run(&[&["run"], &words(&run)[..], &["--shared"]].concat()).ends(0);
        assert_eq!(team.bed.read("results/all.txt"), TEN);
        // Without `--shared` it is the same run.
        let again = team.run(&[&["run"], &words(&run)[..]].concat()).ends(0);
        assert!(again.stderr.contains("nothing to do"), "{}", again.stderr);
        team.is_at_rest();
    }
}

/// Makes a run whose only step waits at a gate.
fn gated(team: &Team) -> support::Gate {
    let gate = team.bed.gate("gate");
    team.bed.write("in.txt", "text");
    team.bed.write("copy.yaml", &copy_flow("copy", &gate.shell()));
    gate
}

const COPY: [&str; 3] = ["copy.yaml", "-i", "text=in.txt"];

#[test]
fn a_worker_that_is_asked_to_stop_finishes_what_it_has_and_takes_no_more() {
    for team in stores() {
        let gate = gated(&team);
        team.start(&COPY);
        let mut worker = team.worker(&[]);
        gate.until_there();
        worker.signal("TERM");
        worker.until("draining: takes no further steps, finishes 1 step");
        let workers = team.run(&["workers", "--json"]).ends(0).json();
        assert_eq!(workers["workers"][0]["steps"][0]["step"], "copy", "{workers}");
        gate.open();
        let (code, said) = worker.end();
        assert!(code == 0 && said.contains("left: 1 step done, 0 failed, 0 lost"), "{code}: {said}");
        // The following steps are left to other workers.
        let (code, said) = team.worker(&["--once"]).end();
        assert_eq!(code, 0, "{said}");
        team.wait(&COPY).ends(0);
        assert_eq!(team.bed.read("results/copy.txt"), "text");
        team.is_at_rest();
    }
}

#[test]
fn a_worker_that_is_asked_twice_gives_back_what_it_has() {
    for team in stores() {
        let gate = gated(&team);
        team.start(&COPY);
        let mut worker = team.worker(&[]);
        gate.until_there();
        worker.signal("TERM");
        worker.until("draining");
        worker.signal("TERM");
        assert_eq!(worker.end().0, 143);
        let other = team.worker(&[]);
        gate.until_there();
        gate.open();
        team.wait(&COPY).ends(0);
        other.leave();
        team.is_at_rest();
    }
}

#[test]
fn steps_of_a_killed_worker_are_done_by_another() {
    for team in stores() {
        let gate = gated(&team);
        team.start(&COPY);
        let killed = team.worker(&["--lease", "2s"]);
        gate.until_there();
        killed.signal("KILL");
        assert_eq!(killed.end().0, -1);
        // As on another machine, which cannot see that the process is gone.
        let other = team.worker_on("other", &["--lease", "2s"]);
        gate.until_there();
        gate.open();
        team.wait(&COPY).ends(0);
        other.leave();
        assert_eq!(team.bed.read("results/copy.txt"), "text");
    }
}

#[test]
fn show_names_a_silent_worker_and_its_steps() {
    for team in stores().into_iter().filter(Team::is_server) {
        let gate = gated(&team);
        team.start(&COPY);
        let killed = team.worker_on("other", &["--lease", "3s"]);
        gate.until_there();
        killed.signal("KILL");
        assert_eq!(killed.end().0, -1);
        let silent = loop {
            let shown = team.run(&["show", "--json"]).ends(0).json();
            if let Some(silent) = shown["silent"].get(0) {
                break silent.clone();
            }
        };
        assert_eq!(silent["steps"], serde_json::json!(["copy"]), "{silent}");
        assert!(
            silent["silent_ms"].as_u64() > Some(1500) && silent["lease_ends_in_ms"].as_u64() < Some(1500),
            "{silent}"
        );
        team.run(&["cancel", "copy"]).ends(5);
        team.is_at_rest();
    }
}

#[test]
fn a_worker_that_was_slow_is_refused_and_told() {
    // A stopped process that owns a directory keeps all others from it, so only servers are tested.
    for team in stores().into_iter().filter(Team::is_server) {
        let gate = gated(&team);
        team.start(&COPY);
        let mut slow = team.worker_on("slow", &["--lease", "1s"]);
        gate.until_there();
        slow.signal("STOP");
        let other = team.worker_on("other", &["--lease", "1s"]);
        gate.until_there();
        slow.signal("CONT");
        slow.until("lost    copy copy");
        gate.open();
        team.wait(&COPY).ends(0);
        assert!(slow.leave().contains("0 steps done, 0 failed, 1 lost"));
        other.leave();
        assert_eq!(team.bed.read("results/copy.txt"), "text");
        team.is_at_rest();
    }
}

#[test]
fn a_step_that_asks_for_a_label_waits_for_a_worker_that_has_it() {
    for team in stores() {
        let run = many(&team, "labels: [gpu],");
        team.start(&words(&run));
        let plain = team.worker(&["--once"]).end();
        assert_eq!(plain.0, 0, "{}", plain.1);
        let shown = team.run(&["show"]).ends(0);
        assert!(shown.stdout.contains("waiting  1 step waits for a worker with label gpu"), "{}", shown.stdout);
        let waits = team.run(&["workers", "--json"]).ends(0).json();
        let backlog = &waits["backlog"][0];
        assert_eq!(
            (&backlog["class"], &backlog["ready"], &backlog["workers"]),
            (&"flow+gpu".into(), &1.into(), &0.into())
        );
        let able = team.worker(&["--label", "gpu", "--label", "large", "--class", "gpu=1", "--once"]).end();
        assert_eq!(able.0, 0, "{}", able.1);
        team.wait(&words(&run)).ends(0);
        assert_eq!(team.bed.read("results/all.txt"), TEN);
        team.is_at_rest();
    }
}

#[test]
fn a_begun_run_takes_up_changed_labels_and_runs_nothing_again() {
    for team in stores() {
        let run = many(&team, "labels: [gpu],");
        team.start(&words(&run));
        assert_eq!(team.worker(&["--once"]).end().0, 0);
        assert_eq!(team.run(&["show"]).ends(0).stdout.matches("waits for a worker with label gpu").count(), 1);
        // The step that waits goes to workers with another label, then to any.
        many(&team, "labels: [large],");
        let said = team.start(&words(&run));
        assert!(said.stderr.contains("all: the run takes up changed"), "{}", said.all());
        let shown = team.run(&["show"]).ends(0);
        assert!(shown.stdout.contains("1 step waits for a worker with label large"), "{}", shown.all());
        assert_eq!(team.worker(&["--label", "gpu", "--once"]).end().0, 0);
        assert!(team.run(&["show"]).ends(0).stdout.contains("waits for a worker with label large"));
        many(&team, "");
        team.start(&words(&run));
        assert_eq!(team.worker(&["--once"]).end().0, 0);
        team.wait(&words(&run)).ends(0);
        assert_eq!(team.bed.read("results/all.txt"), TEN);
        assert!(counts(&team.bed.read("effects")).values().all(|n| *n == 1), "an element ran again");
        team.is_at_rest();
    }
}

#[test]
fn runs_without_a_worker_or_waiting_for_a_label_can_be_cancelled() {
    for team in stores() {
        let run = many(&team, "labels: [gpu],");
        team.start(&words(&run));
        team.run(&["cancel", "many"]).ends(5);
        // A run whose only step is where all workers would look.
        team.bed
            .write("one.yaml", "flow: one\nsteps: { a: { run: 'echo 1', out: { t: text } } }\noutputs: { t: a.t }\n");
        team.start(&["one.yaml"]);
        team.run(&["cancel", "one"]).ends(5);
        team.start(&words(&run));
        assert_eq!(team.worker(&["--once"]).end().0, 0);
        let worker = team.worker(&[]);
        team.run(&["cancel", "many"]).ends(5);
        worker.leave();
        team.is_at_rest();
    }
}

#[test]
fn a_run_at_work_is_not_replanned_for_other_inputs_by_accident() {
    for team in stores() {
        let run = many(&team, "");
        team.start(&words(&run));
        let other = team.wait(&["many.yaml", "-i", "ns=[1]"]).ends(75);
        assert!(other.stderr.contains("error[OF0404]"), "{}", other.stderr);
        assert_eq!(team.worker(&["--once"]).end().0, 0);
        team.wait(&words(&run)).ends(0);
    }
}

#[test]
fn logs_of_steps_on_another_machine_can_be_read_here() {
    for team in stores().into_iter().filter(Team::is_server) {
        let run = many(&team, "");
        team.start(&words(&run));
        assert_eq!(team.worker_on("other", &["--once"]).end().0, 0);
        let logs = team.run(&["logs", "many", "one[3]"]).ends(0);
        assert!(logs.stdout == "did 4\n" && logs.stderr.contains("== one[3], on "), "{}{}", logs.stdout, logs.stderr);
    }
}

#[test]
fn the_password_of_a_server_is_never_printed() {
    let arguments = ["--appendonly", "yes", "--appendfsync", "always", "--requirepass", "hunter2"];
    let server = Server::with(&arguments);
    let team = Team::on(server.url());
    let run = many(&team, "");
    let said = |team: &Team, password: &str, args: &[&str]| {
        let mut command = team.command("user", args);
        let output = command.env("ONCEFLOW_REDIS_PASSWORD", password).env("ONCEFLOW_LOG", "debug").output();
        let said = team.bed.said(output.expect("the command starts"));
        assert!(!format!("{}{}", said.stdout, said.stderr).contains("hunter"), "{}{}", said.stdout, said.stderr);
        said
    };
    said(&team, "hunter2", &[&["run"], &words(&run)[..]].concat()).ends(0);
    said(&team, "hunter3", &["ls"]).ends(75);
    let within = Team::on(server.url().replace("redis://", "redis://default:hunter2@"));
    for args in [&["ls"][..], &["workers"], &["show", "many"], &["fsck"], &["cancel", "nothing"]] {
        said(&within, "", args);
    }
    let unsafe_server = Server::with(&["--appendonly", "no", "--requirepass", "hunter2"]);
    let team = Team::on(unsafe_server.url().replace("redis://", "redis://default:hunter2@"));
    let refused = said(&team, "", &["ls"]).ends(2);
    assert!(refused.stderr.contains("error[OF0417]"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint: ") && !refused.stderr.contains("everysec"), "{}", refused.stderr);
}

#[test]
fn a_worker_takes_as_many_steps_as_it_runs_and_leaves_the_others_to_others() {
    for team in stores() {
        let gate = team.bed.gate("gate");
        let run = format!(
            "flow: four\ninputs: {{ ns: list<int> }}\nsteps:\n  one:\n    each: n in inputs.ns\n    run: |\n      echo \
             ${{{{ n }}}}\n      {}\n    out: {{ t: text }}\noutputs: {{ t: one.t }}\n",
            gate.shell()
        );
        team.bed.write("four.yaml", &run);
        team.start(&["four.yaml", "-i", "ns=[1,2,3,4]"]);
        let mut workers = Vec::new();
        for n in 1..=2 {
            workers.push(team.worker(&["--jobs", "1", "--label", "gpu"]));
            gate.until_there();
            let seen = loop {
                let seen = team.run(&["workers", "--json"]).ends(0).json();
                // Each worker registers when it starts, and its step may be read before that.
                if seen["workers"].as_array().is_some_and(|workers| workers.len() == n) {
                    break seen;
                }
            };
            for worker in seen["workers"].as_array().unwrap() {
                assert_eq!(worker["steps"].as_array().map(Vec::len), Some(1), "{seen}");
                let classes = worker["classes"].as_array().unwrap();
                assert!(classes.len() == 2 && classes.iter().all(|class| class["at_a_time"] == 1), "{seen}");
            }
            let backlog = &seen["backlog"][0];
            assert_eq!((&backlog["ready"], &backlog["taken"]), (&(4 - n).into(), &n.into()), "{seen}");
        }
        team.run(&["cancel", "four"]).ends(5);
        workers.into_iter().for_each(|worker| drop(worker.leave()));
        team.is_at_rest();
    }
}

#[test]
fn a_worker_says_that_a_silent_server_is_lost_and_that_it_is_back() {
    let server = Server::start();
    let team = Team::on(format!("{}?timeout=1", server.url()));
    let run = many(&team, "");
    let signal = |name: &str| {
        let pid = server.pid().expect("it runs").to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().expect("kill").success());
    };
    let mut worker = team.worker(&["--lease", "3s"]);
    for _ in 0..2 {
        signal("-STOP");
        worker.until("does not answer");
        signal("-CONT");
        worker.until("is back");
    }
    team.start(&words(&run));
    team.wait(&words(&run)).ends(0);
    assert_eq!(team.bed.read("results/all.txt"), TEN);
    assert!(counts(&team.bed.read("effects")).values().all(|times| *times == 1));
    worker.leave();
    team.is_at_rest();
}

/// Starts a run that waits at a gate, on a server; returns the gate and the command that attends it.
fn at_a_gate(team: &Team) -> (support::Gate, std::process::Child) {
    let gate = team.bed.gate("gate");
    team.bed.write("text.txt", "text\n");
    team.bed.write("gated.yaml", &copy_flow("gated", &gate.shell()));
    let mut command = team.command("user", &["run", "gated.yaml", "-i", "text=text.txt"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("the command starts");
    gate.until_there();
    (gate, child)
}

#[test]
fn a_run_waits_for_a_server_that_does_not_answer_and_says_so() {
    let mut server = Server::start();
    let team = Team::on(server.url());
    let (gate, mut child) = at_a_gate(&team);
    server.kill();
    let mut stderr = child.stderr.take().expect("it is piped");
    support::until_line(&mut stderr, "does not answer; steps that run go on");
    server.restart();
    support::until_line(&mut stderr, "is back");
    gate.open();
    let said = team.bed.end(child).ends(0);
    assert_eq!(
        (said.stdout.trim(), team.bed.read("results/copy.txt")),
        ("{\"copy\":\"results/copy.txt\"}", "text\n".into())
    );
}

#[test]
fn a_server_that_lost_the_store_in_the_middle_of_a_run_is_told_as_such() {
    let server = Server::start();
    let team = Team::on(server.url());
    let (gate, child) = at_a_gate(&team);
    let mut line = std::net::TcpStream::connect(("127.0.0.1", server.port())).expect("the server is there");
    std::io::Write::write_all(&mut line, b"FLUSHALL\r\n").expect("it listens");
    let mut answer = [0; 5];
    std::io::Read::read_exact(&mut line, &mut answer).expect("it answers");
    assert_eq!(&answer, b"+OK\r\n");
    gate.open();
    let said = team.bed.end(child).ends(7);
    assert!(said.stderr.contains("error[OF0421]: the store has lost its data"), "{}", said.all());
}
