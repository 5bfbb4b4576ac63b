//! A moto server in a process of its own. Installed below the target directory when it is missing; if that fails, or
//! the server does not come up, the test fails: a test that is skipped proves nothing.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, mpsc},
    time::Duration,
};

/// A running server; dropping it ends it.
pub(crate) struct Moto {
    process: Child,
    port: u16,
}

/// The text that the server prints before the port it has found for itself.
const READY: &str = "Running on http://127.0.0.1:";

impl Moto {
    /// Starts a server with one bucket in it.
    pub(crate) fn start(bucket: &str) -> Self {
        let mut process = Command::new(installed())
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut moto = Moto { process, port: 0 };
        moto.port = port(lines.map_while(Result::ok));
        let made = moto.request("PUT", &format!("/{bucket}"));
        assert!(made.contains(" 200 "), "the bucket was not made: {made}");
        moto
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// How many uploads were begun and neither completed nor aborted.
    pub(crate) fn open_uploads(&self, bucket: &str) -> usize {
        let answer = self.request("GET", &format!("/{bucket}?uploads"));
        assert!(answer.contains("ListMultipartUploadsResult"), "{answer}");
        answer.matches("<UploadId>").count()
    }

    fn request(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        let key =
            "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {key}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads the server's output to its end, so that the server never waits for us; returns the port it prints.
fn port(lines: impl Iterator<Item = String> + Send + 'static) -> u16 {
    let (said, heard) = mpsc::channel();
    let read = move || lines.for_each(|line| drop(said.send(line)));
    std::thread::Builder::new().name("moto".into()).spawn(read).unwrap();
    let mut before = Vec::new();
    while let Ok(line) = heard.recv_timeout(Duration::from_secs(120)) {
        if let Some((_, port)) = line.split_once(READY) {
            return port.trim_end_matches(|end: char| !end.is_ascii_digit()).parse().unwrap();
        }
        before.push(line);
    }
    panic!("moto did not come up in two minutes, or ended: {before:#?}");
}

/// The Python that has moto, installed once for all tests and runs.
fn installed() -> PathBuf {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock();
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moto");
    let (python, complete) = (venv.join("bin/python"), venv.join("complete"));
    if !complete.exists() {
        let _ = fs::remove_dir_all(&venv);
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "moto[server]==5.2.5"]));
        fs::write(complete, "").unwrap();
    }
    python
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
