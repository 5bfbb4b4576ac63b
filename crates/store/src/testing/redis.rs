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

/// Starts what follows, tells its pid, and kills it when its own stdin ends.
const GUARD: &str = r#""$@" </dev/null & pid=$!; echo "pid $pid"; read -r _; kill -9 $pid; wait $pid"#;

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
        let directory = TempDir::new().expect("a directory for the server");
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut server = Server { port: free_port(), directory, arguments, running: None };
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
        command.args(["-c", GUARD, "sh", "redis-server", "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--port", &self.port.to_string(), "--dir"]).arg(self.directory.path()).args(&self.arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut guard = command.spawn().expect("there is a shell");
        let stdin = guard.stdin.take();
        let mut lines = BufReader::new(guard.stdout.take().expect("it is piped")).lines();
        let mut pid = 0;
        let mut said = Vec::new();
        for line in lines.by_ref().map_while(Result::ok) {
            if let Some(found) = line.strip_prefix("pid ") {
                pid = found.parse().unwrap_or(0);
            }
            if line.contains("eady to accept connections") {
                self.running = Some(Running { guard, stdin, pid });
                // It goes on talking, and must not be stopped by a full pipe.
                std::thread::spawn(move || lines.for_each(drop));
                return;
            }
            said.push(line);
        }
        panic!("redis-server did not start; is it installed? {}", said.join("\n"));
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

/// A port nobody uses now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}

/// The URL of a store on a server that all tests of this process share: another prefix each time, so each store is empty.
pub fn shared_url() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static STORES: AtomicU64 = AtomicU64::new(0);
    let store = STORES.fetch_add(1, Relaxed);
    format!("{}?prefix=t{store}", SERVER.get_or_init(Server::start).url())
}
