//! A store that several processes share, as a directory or on a server; and workers on it.

use super::{Bed, Said, signal};
use onceflow_store::testing::redis::shared_url;
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

/// The limit for something that happens at once on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store, and a directory to run commands in.
pub(crate) struct Team {
    pub(crate) bed: Bed,
    store: String,
}

/// Returns a store of each kind.
pub(crate) fn stores() -> Vec<Team> {
    [String::from("store"), shared_url()].map(Team::on).into()
}

impl Team {
    pub(crate) fn on(store: String) -> Self {
        Team { bed: Bed::new(), store }
    }

    /// Returns the address of the store.
    pub(crate) fn url(&self) -> String {
        self.store.clone()
    }

    pub(crate) fn is_server(&self) -> bool {
        self.store.contains("://")
    }

    /// Returns a command on the store, as on the machine of this name.
    pub(crate) fn command(&self, machine: &str, args: &[&str]) -> Command {
        let mut command = self.bed.command(args);
        command.env("ONCEFLOW_STORE", &self.store).env("XDG_CACHE_HOME", self.bed.path(&format!("cache-{machine}")));
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Said {
        self.bed.said(self.command("user", args).output().expect("the command starts"))
    }

    /// Starts a run and leaves it to workers.
    pub(crate) fn start(&self, args: &[&str]) -> Said {
        self.run(&[&["run"], args, &["--shared", "--no-wait"]].concat()).ends(3)
    }

    /// Waits for the result of a run, without working on it.
    pub(crate) fn wait(&self, args: &[&str]) -> Said {
        self.run(&[&["run"], args, &["--shared", "--jobs", "0"]].concat())
    }

    /// Starts a worker.
    pub(crate) fn worker(&self, args: &[&str]) -> Worker {
        self.worker_on("user", args)
    }

    /// Starts a worker, as on the machine of this name.
    pub(crate) fn worker_on(&self, machine: &str, args: &[&str]) -> Worker {
        let mut command = self.command(machine, &[&["worker"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let (sender, lines) = channel();
        let err = child.stderr.take().expect("it is piped");
        std::thread::spawn(move || forward(BufReader::new(err), &sender));
        let mut worker = Worker { child, lines, said: String::new() };
        worker.until("takes steps of");
        worker
    }

    /// Checks that nothing is wrong, that no worker is there and nothing waits. A killed worker is missed only after a
    /// while.
    pub(crate) fn is_at_rest(&self) {
        let nobody = serde_json::json!({"workers": [], "backlog": []});
        for _ in 0..2_000 {
            self.run(&["reclaim"]).ends(0);
            if self.run(&["workers", "--json"]).ends(0).json() == nobody {
                break;
            }
        }
        let fsck = self.run(&["fsck", "--json"]).ends(0).json();
        assert_eq!((fsck["problems"].as_array(), fsck["leaks"].as_array()), (Some(&vec![]), Some(&vec![])), "{fsck}");
        let workers = self.run(&["workers", "--json"]).ends(0).json();
        assert_eq!(workers, nobody);
    }
}

fn forward(lines: impl BufRead, to: &Sender<String>) {
    for line in lines.lines().map_while(Result::ok) {
        if to.send(line).is_err() {
            return;
        }
    }
}

/// A worker process.
pub(crate) struct Worker {
    pub(crate) child: Child,
    lines: Receiver<String>,
    said: String,
}

impl Worker {
    /// Waits until the worker prints this.
    #[track_caller]
    pub(crate) fn until(&mut self, word: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.said.push_str(&format!("{line}\n"));
                    if line.contains(word) {
                        return line;
                    }
                }
                Err(error) => panic!("{error}: it does not say `{word}`:\n{}", self.said),
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits for its end; returns the exit code and all output.
    pub(crate) fn end(mut self) -> (i32, String) {
        let status = self.child.wait().expect("it ends");
        self.said.extend(self.lines.iter().map(|line| format!("{line}\n")));
        (status.code().unwrap_or(-1), self.said.clone())
    }

    /// Asks the worker to stop; returns all output.
    #[track_caller]
    pub(crate) fn leave(self) -> String {
        self.signal("TERM");
        let (code, said) = self.end();
        assert_eq!(code, 0, "{said}");
        said
    }
}

/// A worker does not outlive a test that fails.
impl Drop for Worker {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
