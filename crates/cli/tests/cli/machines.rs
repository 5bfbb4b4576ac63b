//! Chaos: three workers and a real Redis server that syncs every commit, all of which are killed and stopped at random;
//! one worker reaches the server through a proxy that loses, delays and repeats, and is cut off altogether now and
//! then.
//!
//! | harm | waits for |
//! |---|---|
//! | a worker is killed and started again | |
//! | a worker is stopped for longer than its claims stand, and goes on | what others commit meanwhile |
//! | the server is killed and started again | a worker that says so |
//! | the third worker is cut off, and let back | what others commit meanwhile; that it says it is back |

use crate::chaos;
use crate::chaos::proxy;
use crate::support;

use chaos::Random;
use onceflow_store::testing::redis::Server;
use proxy::Proxy;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};
use support::{signal, team::Team};

/// The number of elements; each is two steps with an effect.
const ELEMENTS: usize = 1_000;
const ELEMENTS_LONG: usize = 5_000;

/// Commits between two disturbances.
const CALM: usize = 50;

/// Commits of other workers while one is cut off, or stopped without a step.
const AWAY: usize = 60;

/// The number of kinds of harm.
const HARMS: usize = 4;

/// The limit for something that happens soon on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

const MACHINES: usize = 3;
/// The worker behind the proxy.
const FAR: usize = 2;

const FLOW: &str = r#"
flow: chaos
inputs: { ns: list<int>, effects: text }
steps:
  one:
    each: n in inputs.ns
    steps:
      make:
        run: echo "begin ${{ n }}" >> ${{ inputs.effects }}; sleep 0.1; t="$$-$RANDOM"; echo "make ${{ n }} $t" >> ${{ inputs.effects }}; echo "$t" > t.txt
        out: { t: { file: t.txt } }
      use:
        run: read t < ${{ make.t }}; echo "use ${{ n }} $t" >> ${{ inputs.effects }}; echo "${{ n }} $t" > u.txt
        out: { u: { file: u.txt } }
    out: { u: use.u }
  all: { run: "cat ${{ one.u }} > all.txt", out: { all: { file: all.txt } } }
outputs: { all: all.all }
"#;

/// Output of workers: events on one stream, messages on the other.
enum Said {
    Event(usize, Value),
    Talk(usize, String),
}

/// The workers, and their output so far.
struct Machines<'a> {
    team: &'a Team,
    proxy: Proxy,
    workers: Vec<Child>,
    random: Random,
    tell: Sender<Said>,
    heard: Receiver<Said>,
    /// Steps that committed, as far as the process that committed them lived to print it.
    committed: BTreeSet<String>,
    /// The steps that each worker has begun, as far as it printed them.
    begun: Vec<BTreeSet<String>>,
    /// The number of times that a worker lost its step to another.
    lost: usize,
    /// Workers that have lost the server, and that have it back, since the last disturbance began.
    away: Vec<usize>,
    back: Vec<usize>,
    /// Workers that take steps.
    ready: BTreeSet<usize>,
    /// The run has ended.
    has_ended: bool,
}

impl<'a> Machines<'a> {
    fn start(team: &'a Team, server: &Server, seed: u64) -> Self {
        let (tell, heard) = channel();
        let proxy = Proxy::start(server.port(), seed);
        let mut machines = Machines {
            team,
            proxy,
            workers: vec![],
            random: Random(seed),
            tell,
            heard,
            committed: BTreeSet::new(),
            begun: vec![BTreeSet::new(); MACHINES],
            lost: 0,
            away: vec![],
            back: vec![],
            ready: BTreeSet::new(),
            has_ended: false,
        };
        machines.workers = (0..MACHINES).map(|at| machines.worker(at)).collect();
        machines
    }

    fn worker(&self, at: usize) -> Child {
        let args = ["worker", "--json", "--jobs", "3", "--lease", "2s"];
        let mut command = self.team.command(&format!("machine {at}"), &args);
        if at == FAR {
            command.env("ONCEFLOW_STORE", format!("redis://127.0.0.1:{}", self.proxy.port));
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let (out, err) = (child.stdout.take().expect("it is piped"), child.stderr.take().expect("it is piped"));
        forward(out, self.tell.clone(), move |line| Some(Said::Event(at, serde_json::from_str(&line).ok()?)));
        forward(err, self.tell.clone(), move |line| Some(Said::Talk(at, line)));
        child
    }

    /// Reads the next output; returns whether there was one.
    fn hear(&mut self, within: Duration) -> bool {
        match self.heard.recv_timeout(within) {
            Ok(Said::Event(at, event)) => {
                let step = event["step"].as_str().unwrap_or_default().to_owned();
                match event["event"].as_str() {
                    Some("did-commit") if step.ends_with("/make") || step.ends_with("/use") => {
                        // A worker that lost a reply and finds the step gone prints this too, and cannot know better.
                        // The input of the next step shows that the step took effect once.
                        self.committed.insert(step);
                    }
                    Some("will-run") => drop(self.begun[at].insert(step)),
                    Some("did-lose") => self.lost += 1,
                    Some("did-end") => self.has_ended = true,
                    Some("did-come") => {
                        self.ready.insert(at);
                        self.back.push(at);
                    }
                    _ => {}
                }
            }
            Ok(Said::Talk(at, line)) if line.contains("does not answer") => self.away.push(at),
            Ok(Said::Talk(at, line)) if line.contains("is back") => self.back.push(at),
            Ok(Said::Talk(..)) => {}
            Err(_) => return false,
        }
        true
    }

    /// Reads output until a condition holds.
    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        const LOOK: Duration = Duration::from_millis(100);
        let looks = PATIENCE.as_millis() / LOOK.as_millis();
        let mut silent = 0;
        while !is_so(self) {
            silent = if self.hear(LOOK) { 0 } else { silent + 1 };
            self.revive();
            assert!(silent < looks, "no process prints anything, and it does not happen: {what}");
        }
    }

    /// Reads output until so many more commits, or the end.
    fn more(&mut self, many: usize) {
        let goal = self.committed.len() + many;
        self.until("steps are committed", |all| all.has_ended || all.committed.len() >= goal);
    }

    /// Does some harm, of each kind in turn.
    fn disturb(&mut self, server: &mut Server, turn: usize) {
        (self.away, self.back) = (vec![], vec![]);
        let at = self.random.below(self.workers.len());
        match turn % HARMS {
            0 => {
                self.end(at);
                self.replace(at);
            }
            1 => {
                server.kill();
                self.until("a worker misses the server", |all| !all.away.is_empty());
                server.restart();
                self.until("a worker has the server back", |all| !all.back.is_empty());
            }
            2 => {
                self.proxy.cut(true);
                self.more(AWAY);
                self.proxy.cut(false);
                self.until("the far worker is back", |all| all.back.contains(&FAR));
            }
            _ => {
                signal(&self.workers[at], "STOP");
                self.until_taken_over(at);
                signal(&self.workers[at], "CONT");
            }
        }
    }

    /// Reads output until another worker commits a step that a stopped worker has begun, which is after the claim has
    /// expired.
    fn until_taken_over(&mut self, at: usize) {
        let begun: Vec<_> = self.begun[at].difference(&self.committed).cloned().collect();
        if begun.is_empty() {
            return self.more(AWAY);
        }
        // The run cannot end before that, unless all steps it has begun were committed, and only not printed.
        let is_so = |all: &Self| all.has_ended || begun.iter().any(|step| all.committed.contains(step));
        self.until("steps of a stopped worker are taken over", is_so);
    }

    /// Restarts workers that found no server when they started.
    fn revive(&mut self) {
        for at in 0..self.workers.len() {
            if self.workers[at].try_wait().expect("it is ours").is_some() {
                self.replace(at);
            }
        }
    }

    fn replace(&mut self, at: usize) {
        self.ready.remove(&at);
        self.workers[at] = self.worker(at);
    }

    /// Kills a worker, as by `kill -9`.
    fn end(&mut self, at: usize) {
        let _gone = self.workers[at].kill();
        let _reaped = self.workers[at].wait();
    }

    /// Asks all workers to leave, and reads the rest of their output.
    fn leave(&mut self) {
        self.until("all take steps", |all| all.ready.len() == MACHINES);
        for worker in &self.workers {
            signal(worker, "TERM");
        }
        for worker in &mut self.workers {
            assert!(worker.wait().expect("it ends").success(), "a worker did not leave well");
        }
        while self.hear(Duration::from_millis(100)) {}
    }
}

impl Drop for Machines<'_> {
    fn drop(&mut self) {
        (0..self.workers.len()).for_each(|at| self.end(at));
    }
}

fn forward(from: impl Read + Send + 'static, to: Sender<Said>, read: impl Fn(String) -> Option<Said> + Send + 'static) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if read(line).is_some_and(|said| to.send(said).is_err()) {
                return;
            }
        }
    });
}

/// Returns a number from the server.
fn number(server: &Server, command: &str) -> usize {
    let mut link = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    write!(link, "{command}\r\n").expect("it reads");
    let mut answer = String::new();
    BufReader::new(link).read_line(&mut answer).expect("it answers");
    answer.trim().trim_start_matches(':').parse().unwrap_or_else(|_| panic!("{command}: {answer}"))
}

/// Returns the number of rows, and of keys.
fn rows(server: &Server) -> (usize, usize) {
    (number(server, "HLEN {onceflow:0}:rows"), number(server, "DBSIZE"))
}

#[test]
fn every_step_takes_effect_once_and_nothing_is_left_under_kills_stops_and_cut_connections() {
    let elements = if std::env::var_os("ONCEFLOW_LONG").is_some() { ELEMENTS_LONG } else { ELEMENTS };
    let mut server = Server::start();
    let team = Team::on(server.url());
    team.bed.write("chaos.yaml", FLOW);
    team.bed.write("effects", "");
    let effects = format!("effects={}", team.bed.path("effects").display());
    // The rows and keys that one finished run leaves when it is not disturbed.
    team.run(&["run", "chaos.yaml", "--key", "calm", "-i", "ns=[1,2]", "-i", &effects, "--out", "calm"]).ends(0);
    team.is_at_rest();
    let (calm_rows, calm_keys) = rows(&server);

    team.bed.write("effects", "");
    let ns: Vec<_> = (0..elements).collect();
    let ns = format!("ns={ns:?}");
    let run = ["run", "chaos.yaml", "--key", "chaos", "-i", &ns, "-i", &effects];
    team.run(&[&run[..], &["--no-wait"]].concat()).ends(3);
    let mut machines = Machines::start(&team, &server, 7);
    let mut turn = 0;
    loop {
        // The waiting command may be ended by the end of the server, which does no harm.
        let mut waits = team.command("user", &[&run[..], &["--jobs", "0", "--quiet"]].concat());
        let talk = std::fs::File::create(team.bed.path("talk")).expect("a file for what it says");
        let mut waits = waits.stdout(Stdio::null()).stderr(talk).spawn().expect("the command starts");
        let status = loop {
            if let Some(status) = waits.try_wait().expect("it is ours") {
                break status;
            }
            if machines.has_ended {
                break waits.wait().expect("it is ours");
            }
            machines.more(CALM);
            // The last commits are not disturbed, so that the end is not reported by a worker that is then killed.
            if !machines.has_ended && machines.committed.len() < elements * 9 / 5 {
                machines.disturb(&mut server, turn);
                turn += 1;
            }
        };
        if status.success() {
            break;
        }
        let talk = team.bed.read("talk");
        assert_eq!(status.code(), Some(75), "the store was away, and nothing else went wrong: {talk}");
    }
    machines.leave();
    let (harm, lost, told) = (machines.proxy.harm(), machines.lost, machines.committed.len());
    drop(machines);

    let all = team.bed.read("results/all.txt");
    let given: Vec<_> = all.lines().collect();
    let numbers: Vec<_> = given.iter().map(|line| line.split(' ').next().unwrap_or_default()).collect();
    let expected: Vec<_> = (0..elements).map(|n| n.to_string()).collect();
    assert_eq!(numbers, expected, "every element once, in order");
    // The value used downstream is that of one attempt, and no other attempt's output was used.
    let effects = team.bed.read("effects");
    let made: BTreeSet<_> = effects.lines().filter_map(|line| line.strip_prefix("make ")).collect();
    let used: BTreeSet<_> = effects.lines().filter_map(|line| line.strip_prefix("use ")).collect();
    assert!(given.iter().all(|line| made.contains(line) && used.contains(line)));
    assert_eq!(used.len(), elements, "a step saw only what was committed, and of each step one commit");
    let begun = effects.lines().filter(|line| line.starts_with("begin ")).count();
    assert!(begun > elements, "no step was disturbed: {begun} attempts");
    assert!(turn >= HARMS, "every kind of harm had its turn");
    for kind in ["lost requests", "lost replies", "delayed", "repeated"] {
        assert!(harm.get(kind).is_some_and(|times| *times > 0), "no {kind}: {harm:?}");
    }
    team.is_at_rest();
    let (rows, keys) = rows(&server);
    eprintln!(
        "{turn} disturbances, {harm:?}, {begun} attempts at {elements} elements, {told} commits told, {lost} refused; \
         {rows} rows and {keys} keys, {calm_rows} and {calm_keys} after the calm run"
    );
    // The event log of the calm run is short and stays as rows. That of the other is sealed into a value, which has rows
    // of its own: value, count, edge, deadline and object.
    assert!(rows <= 2 * calm_rows + 8, "{rows} rows are left, {calm_rows} after a calm run");
    assert!(keys <= 2 * calm_keys + 2, "{keys} keys are left, {calm_keys} after a calm run");
}
