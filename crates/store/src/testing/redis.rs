//! Real Redis servers for tests: private ports, private directories, gone with the test however it ends.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tempfile::TempDir;

/// A server. It can be killed and started again on the same port and directory; it ends when this is dropped, or when
/// this process ends.
pub struct Server {
    port: u16,
    directory: TempDir,
    arguments: Vec<String>,
    running: Option<Running>,
}

struct Running {
    guard: Child,
    /// When this closes, the guard kills the server.
    stdin: Option<ChildStdin>,
    pid: u32,
}

/// The server binary to test with, a path or a name in `PATH`: `valkey-server`, say. `redis-server` if it is not set.
pub const SERVER_VARIABLE: &str = "ONCEFLOW_TEST_REDIS_SERVER";

/// Starts what follows the name of its log, tells its pid when it is ready, and kills it when its own stdin ends.
const GUARD: &str = r#"log=$1; shift; "$@" </dev/null >"$log" 2>&1 & pid=$!
until grep -q 'eady to accept connections' "$log"; do kill -0 $pid || { cat "$log"; exit 1; }; sleep 0.02; done
echo "pid $pid"; read -r _; kill -9 $pid; wait $pid"#;

impl Server {
    /// A server that loses nothing it has acknowledged.
    ///
    /// # Panics
    /// If there is no `redis-server`; a test that cannot run its service fails.
    pub fn start() -> Self {
        Server::with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A server with these arguments.
    ///
    /// # Panics
    /// If it does not start.
    pub fn with(arguments: &[&str]) -> Self {
        Server::at(free_port(), arguments)
    }

    fn at(port: u16, arguments: &[&str]) -> Self {
        let directory = TempDir::new().expect("a directory for the server");
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut server = Server { port, directory, arguments, running: None };
        server.restart();
        server
    }

    /// Starts it again where it was, after [`Server::kill`].
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "sh"]).arg(self.directory.path().join("log"));
        let server = std::env::var_os(SERVER_VARIABLE).unwrap_or_else(|| "redis-server".into());
        command.arg(server).args(["--bind", "127.0.0.1", "--save", ""]);
        command.args(["--port", &self.port.to_string(), "--dir"]).arg(self.directory.path()).args(&self.arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut guard = command.spawn().expect("there is a shell");
        let (stdin, stdout) = (guard.stdin.take(), guard.stdout.take().expect("it is piped"));
        let mut said = String::new();
        drop(BufReader::new(stdout).read_line(&mut said));
        match said.trim().strip_prefix("pid ").and_then(|pid| pid.parse().ok()) {
            Some(pid) => self.running = Some(Running { guard, stdin, pid }),
            None => {
                drop(guard.wait());
                panic!("redis-server did not start; is it installed? {said}");
            }
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.stdin = None;
            // The guard waits for the server, so both are gone then.
            drop(running.guard.wait());
        }
    }

    /// Its process, to be stopped and continued.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.pid)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its files are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that no process uses now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}

/// The URL of a store on a server that all tests of this process share: another prefix each time, so each store is empty.
pub fn shared_url() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    format!("{}?prefix=t{}", SERVER.get_or_init(Server::start).url(), another())
}

/// The same on a server that keeps no log, for tests that are not about durability and make many small calls.
pub fn forgetful_url() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    format!("{}?accept=no-aof&prefix=t{}", SERVER.get_or_init(|| Server::with(&[])).url(), another())
}

fn another() -> u64 {
    static STORES: AtomicU64 = AtomicU64::new(0);
    STORES.fetch_add(1, Relaxed)
}

/// Three nodes that are a cluster.
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts one.
    ///
    /// # Panics
    /// If it does not form.
    pub fn start() -> Self {
        let node = || {
            // A node's bus is 10 000 above its port.
            let port = std::iter::repeat_with(free_port).find(|port| *port < 55_000).expect("some are low");
            let always = ["--appendonly", "yes", "--appendfsync", "always", "--cluster-enabled", "yes"];
            Server::at(port, &always)
        };
        let nodes: Vec<_> = (0..3).map(|_| node()).collect();
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create", "--cluster-replicas", "0", "--cluster-yes"]);
        create.args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect::<Vec<_>>());
        let created = create.output().expect("there is a redis-cli");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
        let cluster = Cluster { nodes };
        for node in &cluster.nodes {
            while !cluster.ask(node.port(), &["CLUSTER", "INFO"]).contains("cluster_state:ok") {
                std::thread::yield_now();
            }
        }
        cluster
    }

    /// The URL of its first node.
    pub fn url(&self) -> String {
        self.nodes[0].url()
    }

    /// The port of the node that has a key.
    pub fn node_of(&self, key: &str) -> u16 {
        let slot = self.slot_of(key);
        let mut nodes = self.nodes.iter().map(Server::port);
        let is_there = |port: &u16| self.slots_of(*port).iter().any(|(from, to)| (*from..=*to).contains(&slot));
        nodes.find(is_there).expect("every slot is somewhere")
    }

    /// Moves the slot of a key, with everything in it, to another node.
    ///
    /// # Panics
    /// If a node does not do as it is told.
    pub fn move_slot_of(&self, key: &str) {
        let (slot, from) = (self.slot_of(key).to_string(), self.node_of(key));
        let to = self.nodes.iter().map(Server::port).find(|port| *port != from).expect("there are three");
        let id = |port| self.ask(port, &["CLUSTER", "MYID"]);
        self.ask(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        self.ask(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
        for key in self.ask(from, &["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]).lines() {
            let moved = self.ask(from, &["MIGRATE", "127.0.0.1", &to.to_string(), key, "0", "5000"]);
            assert_eq!(moved, "OK");
        }
        for port in [to, from] {
            assert_eq!(self.ask(port, &["CLUSTER", "SETSLOT", &slot, "NODE", &id(to)]), "OK");
        }
    }

    fn slot_of(&self, key: &str) -> u32 {
        self.ask(self.nodes[0].port(), &["CLUSTER", "KEYSLOT", key]).parse().expect("a number")
    }

    /// The slots that a node says it has.
    fn slots_of(&self, port: u16) -> Vec<(u32, u32)> {
        let nodes = self.ask(port, &["CLUSTER", "NODES"]);
        let mine = nodes.lines().find(|line| line.contains("myself")).expect("it knows itself");
        let range = |word: &str| {
            let (from, to) = word.split_once('-').unwrap_or((word, word));
            Some((from.parse().ok()?, to.parse().ok()?))
        };
        mine.split_whitespace().skip(8).filter_map(range).collect()
    }

    fn ask(&self, port: u16, words: &[&str]) -> String {
        let answer = Command::new("redis-cli").args(["-p", &port.to_string()]).args(words).output();
        String::from_utf8_lossy(&answer.expect("there is a redis-cli").stdout).trim().to_owned()
    }
}

/// The URL of a store on a cluster that all tests of this process share, with a prefix of its own.
pub fn shared_cluster_url() -> String {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    format!("{}?prefix=t{}", CLUSTER.get_or_init(Cluster::start).url(), another())
}
