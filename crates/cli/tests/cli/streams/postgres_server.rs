//! A server of PostgreSQL for tests, of the command and of the sinks' contract.

use std::{
    net::TcpListener,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

/// A server of the test's own, which cannot run as root.
pub(crate) struct PostgresServer {
    directory: tempfile::TempDir,
    programs: PathBuf,
    pub(crate) port: u16,
}

impl PostgresServer {
    pub(crate) fn start() -> Self {
        let versions = std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed (./test does it)");
        let mut versions: Vec<PathBuf> = versions.map(|entry| entry.expect("a version").path()).collect();
        versions.sort();
        let programs = versions.pop().expect("a version").join("bin");
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("a directory");
        let data = directory.path().join("pg");
        std::fs::create_dir(&data).expect("a directory");
        if let Some((user, group)) = postgres_user() {
            chown(&data, Some(user), Some(group)).expect("the directory is PostgreSQL's");
        }
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let server = PostgresServer { directory, programs, port };
        let data = server.data();
        output(server.command("initdb").args(["-D"]).arg(&data).args(["-A", "trust", "-U", "postgres", "--no-sync"]));
        server.up();
        server
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("pg/data")
    }

    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = match postgres_user() {
            None => Command::new(program),
            Some((user, group)) => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={user}"), format!("--regid={group}"), String::from("--clear-groups")]);
                command.arg(program);
                command
            }
        };
        command.current_dir("/");
        command
    }

    pub(crate) fn up(&self) {
        let (data, sockets) = (self.data(), self.directory.path().join("pg"));
        let options =
            format!("-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories={}", self.port, sockets.display());
        let log = sockets.join("log");
        let started = self
            .command("pg_ctl")
            .arg("-D")
            .arg(data)
            .args(["-w", "-o", &options, "-l"])
            .arg(log)
            .arg("start")
            .stdout(std::process::Stdio::null())
            .status();
        assert!(started.expect("pg_ctl starts").success());
    }

    pub(crate) fn stop(&self, how: &str) {
        let stopped = self.command("pg_ctl").arg("-D").arg(self.data()).args(["-m", how, "-w", "stop"]).output();
        drop(stopped.expect("pg_ctl starts"));
    }

    pub(crate) fn query(&self, sql: &str) -> Vec<String> {
        let port = self.port.to_string();
        output(self.command("psql").args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-Atc", sql]))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop("immediate");
    }
}

/// The user and group of PostgreSQL, if the test runs as root.
fn postgres_user() -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt;
    if Path::new("/proc/self").metadata().expect("a process").uid() != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("users");
    let line = users.lines().find(|line| line.starts_with("postgres:")).expect("the user of PostgreSQL");
    let mut numbers = line.split(':').skip(2).map(|number| number.parse().expect("a number"));
    Some((numbers.next().expect("a user"), numbers.next().expect("a group")))
}

fn output(command: &mut Command) -> Vec<String> {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}
