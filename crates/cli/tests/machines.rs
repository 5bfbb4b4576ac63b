//! Chaos: three workers and a real Redis server, all of which are killed and stopped at random, while a run goes on.

mod chaos;
mod support;

use chaos::Random;
use onceflow_store::testing::redis::Server;
use std::{collections::BTreeSet, process::Stdio, time::Duration};
use support::team::{Team, Worker};

/// Elements; each is two steps with an effect.
const ELEMENTS: usize = 400;

const FLOW: &str = r#"
flow: chaos
inputs: { ns: list<int>, effects: text }
steps:
  one:
    each: n in inputs.ns
    steps:
      make:
        run: t="$$-$RANDOM"; echo "make ${{ n }} $t" >> ${{ inputs.effects }}; echo "$t" > t.txt
        out: { t: { file: t.txt } }
      use:
        run: echo "use ${{ n }} $(cat ${{ make.t }})" >> ${{ inputs.effects }}; echo "${{ n }} $(cat ${{ make.t }})" > u.txt
        out: { u: { file: u.txt } }
    out: { u: use.u }
  all: { run: "cat ${{ one.u }} > all.txt", out: { all: { file: all.txt } } }
outputs: { all: all.all }
"#;

struct Three<'a> {
    team: &'a Team,
    workers: Vec<Worker>,
    random: Random,
}

impl Three<'_> {
    fn start(team: &Team, at: usize) -> Worker {
        team.worker_on(&format!("machine {at}"), &["--jobs", "3", "--lease", "1s"])
    }

    /// Lets some lines pass, or a moment in which nobody says anything.
    fn pass(&mut self, lines: usize) {
        for _ in 0..lines {
            let at = self.random.below(self.workers.len());
            self.workers[at].next(Duration::from_millis(40));
        }
    }

    /// Kills one and starts it again, or stops one for longer than its claims stand.
    fn disturb(&mut self) {
        let at = self.random.below(self.workers.len());
        match self.random.below(2) {
            0 => {
                self.workers[at].signal("KILL");
                self.workers[at] = Three::start(self.team, at);
            }
            _ => {
                self.workers[at].signal("STOP");
                self.pass(60);
                self.workers[at].signal("CONT");
            }
        }
    }
}

#[test]
fn workers_and_the_server_are_killed_and_stopped_and_every_step_counts_once() {
    let mut server = Server::start();
    let team = Team::on(server.url());
    team.bed.write("chaos.yaml", FLOW);
    team.bed.write("effects", "");
    let ns: Vec<_> = (0..ELEMENTS).collect();
    let (ns, effects) = (format!("ns={ns:?}"), format!("effects={}", team.bed.path("effects").display()));
    let run = ["run", "chaos.yaml", "-i", &ns, "-i", &effects];
    team.run(&[&run[..], &["--no-wait"]].concat()).ends(3);
    let workers = (0..3).map(|at| Three::start(&team, at)).collect();
    let mut three = Three { team: &team, workers, random: Random(7) };
    let mut turn = 0;
    loop {
        // Whoever waits may be killed by the server's end, which costs nothing.
        let mut waits = team.command("user", &[&run[..], &["--jobs", "0", "--quiet"]].concat());
        let mut waits = waits.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts");
        let status = loop {
            if let Some(status) = waits.try_wait().expect("it is ours") {
                break status;
            }
            turn += 1;
            three.pass(40);
            match turn {
                10 | 25 => {
                    server.kill();
                    three.pass(10);
                    server.restart();
                }
                ..40 => three.disturb(),
                _ => {}
            }
        };
        if status.success() {
            break;
        }
        assert_eq!(status.code(), Some(75), "the store was away, and nothing else went wrong");
    }
    for worker in three.workers.drain(..) {
        worker.leave();
    }
    let all = team.bed.read("results/all.txt");
    let given: Vec<_> = all.lines().collect();
    let numbers: Vec<_> = given.iter().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    let expected: Vec<_> = (0..ELEMENTS).map(|n| n.to_string()).collect();
    assert_eq!(numbers, expected, "every element once, in order");
    // What was used downstream is what one attempt made, and no other attempt's trace was used.
    let effects = team.bed.read("effects");
    let made: BTreeSet<_> = effects.lines().filter_map(|line| line.strip_prefix("make ")).collect();
    let used: BTreeSet<_> = effects.lines().filter_map(|line| line.strip_prefix("use ")).collect();
    assert!(given.iter().all(|line| made.contains(line) && used.contains(line)));
    assert_eq!(used.len(), ELEMENTS, "a step saw only what was committed");
    assert!(made.len() > ELEMENTS, "nothing was disturbed: {} attempts", made.len());
    team.is_at_rest();
}
