//! Records that clients send, and records that are sent to a server.

use super::lines;
use crate::support::{Bed, signal};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Result, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::Child,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

/// A message of HTTP: its first line, its headers with names in small letters, and its body.
struct Message {
    first: String,
    headers: BTreeMap<String, String>,
    body: String,
}

fn read_message(stream: &TcpStream) -> Result<Message> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut headers) = (String::new(), BTreeMap::new());
    if reader.read_line(&mut first)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Message { first: first.trim_end().to_owned(), headers, body: String::from_utf8_lossy(&body).into_owned() })
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()).expect("a port").port()
}

fn send(port: u16, method: &str, key: Option<&str>, body: &str) -> Result<Message> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
    write!(stream, "{method} / HTTP/1.1\r\nHost: here\r\n{key}Content-Length: {}\r\n\r\n{body}", body.len())?;
    read_message(&stream)
}

fn status(message: &Message) -> u16 {
    message.first.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

/// Sends until the records are durable.
fn send_until_taken(port: u16, key: &str, body: &str) {
    loop {
        match send(port, "POST", Some(key), body) {
            Ok(answer) if status(&answer) == 200 => return,
            Ok(answer) => {
                assert_eq!(status(&answer), 503, "{}: {}", answer.first, answer.body);
                assert!(answer.headers.contains_key("retry-after"));
            }
            // Killed, or not there yet.
            Err(_) => {}
        }
        std::thread::yield_now();
    }
}

fn ingest(port: u16) -> String {
    format!(
        "stream: clicks
sources: {{ sent: {{ http: {port}, record: {{ n: int }}, horizon: 1h }} }}
steps: {{ twice: {{ from: sent, map: {{ n: record.n * 2 }} }} }}
sinks: {{ out: {{ from: twice, file: out.jsonl }} }}
"
    )
}

fn until_listening(port: u16, child: &mut Child) {
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(child.try_wait().expect("a child").is_none(), "it ended");
    }
}

#[test]
fn records_that_clients_send_again_count_once_though_the_command_is_killed() {
    const CLIENTS: usize = 4;
    const REQUESTS: usize = 30;
    let (bed, port) = (Bed::new(), free_port());
    bed.write("stream.yaml", &ingest(port));
    let taken = Arc::new(AtomicUsize::new(0));
    let client = |client: usize| {
        let taken = taken.clone();
        std::thread::spawn(move || {
            for request in 0..REQUESTS {
                let number = (client * REQUESTS + request) * 2;
                let body = format!("{{\"n\": {number}}}\n{{\"n\": {}}}\n", number + 1);
                let key = format!("{client}-{request}");
                // The answer to the first may have been lost, as far as the client knows.
                (0..1 + request % 3).for_each(|_| send_until_taken(port, &key, &body));
                taken.fetch_add(1, SeqCst);
            }
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    for until in [10, 40, 80] {
        let mut child = bed.start(&["run", "stream.yaml"]);
        while taken.load(SeqCst) < until {
            assert!(child.try_wait().expect("a child").is_none(), "it ended");
            std::thread::yield_now();
        }
        child.kill().expect("it is at work");
        child.wait().expect("it was killed");
    }
    let child = bed.start(&["run", "stream.yaml"]);
    clients.into_iter().for_each(|client| client.join().expect("a client"));
    signal(&child, "INT");
    let said = bed.end(child);
    assert_eq!(said.code, 130, "{}", said.stderr);
    let expected = (0..CLIENTS * REQUESTS * 2).map(|n| json!({"n": n * 2}));
    assert_eq!(lines(&bed, "out.jsonl"), super::sorted(expected));
    let shown = bed.run(&["show", "clicks", "--json"]).ends(0).json();
    let copies = shown["stages"].as_array().expect("stages").iter().filter_map(|it| it["client_duplicates"].as_u64());
    assert!(copies.sum::<u64>() >= (CLIENTS * REQUESTS) as u64, "every second or third copy was dropped: {shown}");
}

#[test]
fn clients_are_told_what_is_wrong_with_a_request() {
    let (bed, port) = (Bed::new(), free_port());
    bed.write("stream.yaml", &ingest(port));
    let mut child = bed.start(&["run", "stream.yaml"]);
    until_listening(port, &mut child);
    let told = |method, key, body: &str| {
        let answer = send(port, method, key, body).expect("an answer");
        (status(&answer), answer.body)
    };
    assert_eq!(told("GET", None, ""), (405, String::from("{\"error\":\"records are sent with POST\"}\n")));
    let (code, why) = told("POST", None, "{\"n\": 1}");
    assert!(code == 400 && why.contains("Idempotency-Key"), "{code} {why}");
    let (code, why) = told("POST", Some("a"), "[{\"n\": 1}, {\"n\": \"x\"}]");
    assert!(code == 400 && why.contains("record 1: `n`: int wanted"), "{code} {why}");
    let (code, why) = told("POST", Some("b"), "{\"n\": 1}\n{\"n\"\n");
    assert!(code == 400 && why.contains("line 2"), "{code} {why}");
    let (code, why) = told("POST", Some("c"), &" ".repeat((1 << 20) + 1));
    assert!(code == 413 && why.contains("send several"), "{code} {why}");
    assert_eq!(told("POST", Some("d"), ""), (200, String::from("{\"records\":0}\n")));
    assert_eq!(told("POST", Some("a"), "[{\"n\": 1}, {\"n\": 2}]"), (200, String::from("{\"records\":2}\n")));
    bed.write("other.yaml", &ingest(port).replace("clicks", "other").replace("out.jsonl", "other.jsonl"));
    let refused = bed.run(&["run", "other.yaml"]).ends(1);
    assert!(refused.stderr.contains(&format!("cannot listen at 127.0.0.1:{port}")), "{}", refused.stderr);
    signal(&child, "INT");
    bed.end(child);
    assert!(send(port, "POST", Some("e"), "{\"n\": 1}").is_err(), "the port is closed");
    assert_eq!(lines(&bed, "out.jsonl"), [json!({"n": 2}), json!({"n": 4})], "nothing of a wrong request was taken");
}

/// A server that takes records once by their keys, and misbehaves.
#[derive(Default)]
struct Server {
    taken: Mutex<BTreeMap<String, Value>>,
    requests: AtomicUsize,
}

impl Server {
    /// Serves until the test ends; refuses records for which the function says so.
    fn start(refuses: impl Fn(&Value) -> bool + Send + 'static) -> (Arc<Server>, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let (server, port) = (Arc::new(Server::default()), listener.local_addr().expect("an address").port());
        let own = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that was killed is no failure of the server.
                drop(own.answer(stream, &refuses));
            }
        });
        (server, port)
    }

    fn answer(&self, mut stream: TcpStream, refuses: &dyn Fn(&Value) -> bool) -> Result<()> {
        let request = read_message(&stream)?;
        let (n, record) = (self.requests.fetch_add(1, SeqCst), serde_json::from_str(&request.body)?);
        let status = match n % 7 {
            _ if refuses(&record) => "422 Unprocessable\r\nContent-Length: 9\r\nConnection: close\r\n\r\nno thanks",
            2 => "503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            _ => "200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        };
        if status.starts_with("200") {
            let key = request.headers["idempotency-key"].clone();
            let earlier = self.taken.lock().expect("a test").insert(key.clone(), record.clone());
            assert!(earlier.is_none_or(|earlier| earlier == record), "{key} stands for two records");
        }
        // Some answers are lost.
        if n % 7 == 5 {
            return Ok(());
        }
        write!(stream, "HTTP/1.1 {status}")
    }
}

#[test]
fn every_record_has_one_key_at_a_server_that_is_busy_and_loses_answers_though_the_command_is_killed() {
    let bed = Bed::new();
    let (server, port) = Server::start(|_| false);
    let stream = format!(
        "stream: sends
sources: {{ n: {{ generate: \"{{'n': n}}\", count: 20 }} }}
sinks: {{ out: {{ from: n, http: \"http://127.0.0.1:{port}/records\" }} }}
"
    );
    bed.write("stream.yaml", &stream);
    for until in [1, 6] {
        let mut child = bed.start(&["run", "stream.yaml"]);
        let before = server.requests.load(SeqCst);
        while server.requests.load(SeqCst) < before + until {
            assert!(child.try_wait().expect("a child").is_none(), "it ended");
            std::thread::yield_now();
        }
        child.kill().expect("it is at work");
        child.wait().expect("it was killed");
    }
    bed.run(&["run", "stream.yaml"]).ends(0);
    let taken = super::sorted(server.taken.lock().expect("a test").values().cloned());
    assert_eq!(taken, super::sorted((0..20).map(|n| json!({"n": n}))));
    assert!(server.requests.load(SeqCst) > 20, "some were sent again");
}

#[test]
fn record_that_a_server_refuses_stops_the_stream_and_is_named() {
    let bed = Bed::new();
    let (_, port) = Server::start(|record| record["n"] == json!(3));
    let stream = format!(
        "stream: sends
sources: {{ n: {{ generate: \"{{'n': n}}\", count: 5 }} }}
sinks: {{ out: {{ from: n, http: \"http://127.0.0.1:{port}/records\" }} }}
"
    );
    bed.write("stream.yaml", &stream);
    let said = bed.run(&["run", "stream.yaml"]).ends(1).stderr;
    let told = "was refused with 422 Unprocessable Entity, \"no thanks\"; sent was {\"n\":3}";
    assert!(said.contains("error[OF0460]: to out: POST") && said.contains(told), "{said}");
}

#[test]
fn secrets_go_into_headers_and_nowhere_else() {
    let bed = Bed::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    bed.write(
        "stream.yaml",
        &format!(
            "stream: sends
secrets: [TOKEN]
sources: {{ n: {{ generate: n, count: 2 }} }}
sinks:
  out: {{ from: n, http: \"http://127.0.0.1:{port}/\", headers: {{ Authorization: \"Bearer ${{{{ secrets.TOKEN }}}}\", X-Of: a b }} }}
"
        ),
    );
    let missing = bed.run(&["run", "stream.yaml"]).ends(2);
    assert!(
        missing.stderr.contains("the stream takes secrets") && missing.stderr.contains("`TOKEN`"),
        "{}",
        missing.stderr
    );
    let with_secret = |args: &[&str]| {
        let mut command = bed.command(args);
        command.env("TOKEN", "s3cr3t-t0ken");
        command
    };
    // The first request is refused by a server that repeats what it was sent; then both are taken.
    let server = std::thread::spawn(move || {
        let mut seen = Vec::new();
        for (at, stream) in listener.incoming().flatten().take(3).enumerate() {
            let request = read_message(&stream).expect("a request");
            let authorization = request.headers["authorization"].clone();
            let body = format!("not {authorization}");
            let answer = match at {
                0 => format!("403 Forbidden\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()),
                _ => String::from("200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
            };
            write!(&stream, "HTTP/1.1 {answer}").expect("an answer");
            seen.push((authorization, request.headers["x-of"].clone(), request.headers["idempotency-key"].clone()));
        }
        seen
    });
    let refused = bed.said(with_secret(&["run", "stream.yaml"]).output().expect("it runs")).ends(1);
    assert!(refused.stderr.contains("not ***") && !refused.all().contains("s3cr3t"), "{}", refused.stderr);
    bed.said(with_secret(&["run", "stream.yaml"]).output().expect("it runs")).ends(0);
    let seen = server.join().expect("a server");
    assert!(seen.iter().all(|(token, of, _)| token == "Bearer s3cr3t-t0ken" && of == "a b"), "{seen:?}");
    assert_eq!(seen[0].2, seen[1].2, "the key is the same at the second try");
    let shown = bed.said(with_secret(&["show", "sends", "--json"]).output().expect("it shows"));
    assert!(!shown.all().contains("s3cr3t"));
    for (path, bytes, _) in bed.store() {
        assert!(!bytes.windows(6).any(|part| part == b"s3cr3t"), "{} has the secret", path.display());
    }
}

#[test]
fn a_source_lets_in_requests_with_its_token_only_and_keeps_the_token_to_itself() {
    let (bed, port) = (Bed::new(), free_port());
    let source = ingest(port).replace("horizon: 1h", "horizon: 1h, headers: { X-Token: \"t ${{ secrets.TOKEN }}\" }");
    bed.write("stream.yaml", &source.replace("sources:", "secrets: [TOKEN]\nsources:"));
    let said = bed.run(&["run", "stream.yaml"]);
    assert!(said.stderr.contains("TOKEN"), "{}", said.stderr);
    let mut command = bed.command(&["run", "stream.yaml"]);
    let mut child = command.env("TOKEN", "s3cr3t").stderr(std::process::Stdio::piped()).spawn().expect("the command");
    until_listening(port, &mut child);
    let send = |token: &str, key: &str| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        let body = "{\"n\": 1}";
        let headers = format!("{token}Idempotency-Key: {key}\r\nContent-Length: {}", body.len());
        write!(stream, "POST / HTTP/1.1\r\nHost: here\r\n{headers}\r\n\r\n{body}").expect("a request");
        read_message(&stream).expect("an answer")
    };
    for wrong in ["", "X-Token: t\r\n", "X-Token: t S3CR3T\r\n", "X-Token: t s3cr3t\r\nX-Token: t s3cr3t\r\n"] {
        let answer = send(wrong, "a");
        assert_eq!((status(&answer), answer.body.contains("s3cr3t")), (401, false), "{wrong:?}: {}", answer.body);
    }
    assert_eq!(status(&send("X-Token: t s3cr3t\r\n", "a")), 200);
    signal(&child, "INT");
    let said = bed.end(child);
    assert_eq!(said.code, 130, "{}", said.stderr);
    assert_eq!(lines(&bed, "out.jsonl"), [json!({"n": 2})]);
    let is_kept = |bytes: &[u8]| bytes.windows(6).any(|part| part == b"s3cr3t");
    assert!(!said.all().contains("s3cr3t") && !bed.store().iter().any(|(_, bytes, _)| is_kept(bytes)));
}
