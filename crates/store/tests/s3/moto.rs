//! A moto server in a process of its own. Installed below the target directory when it is missing; if that fails, or
//! the server does not come up, the test fails: a test that is skipped proves nothing.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

/// A running server; dropping it ends it.
pub struct Moto {
    process: Child,
    port: u16,
}

impl Moto {
    /// Starts a server with one bucket in it.
    pub fn start(bucket: &str) -> Self {
        let python = installed();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("moto-{port}.log"));
        let output = File::create(&log).unwrap();
        let process = Command::new(python)
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let mut moto = Moto { process, port };
        moto.wait_until_ready(&log);
        let made = moto.request("PUT", &format!("/{bucket}"));
        assert!(made.contains(" 200 "), "the bucket was not made: {made}");
        moto
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// How many uploads were begun and neither completed nor aborted.
    pub fn open_uploads(&self, bucket: &str) -> usize {
        let answer = self.request("GET", &format!("/{bucket}?uploads"));
        assert!(answer.contains("ListMultipartUploadsResult"), "{answer}");
        answer.matches("<UploadId>").count()
    }

    fn wait_until_ready(&mut self, log: &Path) {
        for _ in 0..600 {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none(), "moto ended: {}", fs::read_to_string(log).unwrap());
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return;
            }
            pause();
        }
        panic!("moto did not come up in a minute: {}", fs::read_to_string(log).unwrap());
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

/// While a server in another process does its part.
#[expect(clippy::disallowed_methods, reason = "a real server takes real time")]
pub fn pause() {
    std::thread::sleep(Duration::from_millis(100));
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
