//! The HTTP source of streams. Whatever a client sends, an answer of 200 says how many records were taken, and so many are;
//! nothing of a refused request is; and the next client is served.

use super::Target;
use onceflow_stream::{
    DecodeRequest, HttpIngest, IngestRequest, IngestedRecord, NextRecord, SplitReader, StreamControl, StreamSource,
    pipeline::http_ingest::BODY_BYTES_MAX,
};
use std::{
    cell::RefCell,
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};
use tokio::runtime::Runtime;

pub(super) const TARGET: Target = Target {
    name: "ingest",
    run,
    seeds,
    words: &[
        b"POST / HTTP/1.1\r\n",
        b"Host: here\r\n",
        b"Idempotency-Key: k\r\n",
        b"Content-Length: 8\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"\r\n\r\n",
        b"{\"n\":1}\n",
        b"0\r\n\r\n",
    ],
};

/// A client that hears nothing for so long has all answers: the rest of its request is not there.
const SILENCE_MS: u64 = 10;

/// Rounds of silence after which an answer that must come does not.
const ROUNDS_MAX: usize = 1000;

struct Server {
    port: u16,
    reader: Box<dyn SplitReader<(String, String)>>,
    /// The records of the last input.
    taken: Vec<String>,
    _runtime: Runtime,
}

thread_local! {
    static SERVER: RefCell<Server> = RefCell::new(Server::start());
}

impl Server {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let inside = runtime.enter();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let port = free.expect("a port").port();
        let decode: DecodeRequest<String> = Arc::new(|request: &IngestRequest| {
            let text = std::str::from_utf8(&request.body).map_err(|_| String::from("no text"))?;
            let key = request.key.as_deref().ok_or("no key")?;
            let record = |(at, line): (usize, &str)| match serde_json::from_str::<serde_json::Value>(line) {
                Ok(_) => Ok(IngestedRecord { id: format!("{key}/{at}"), record: line.to_owned(), time: None }),
                Err(error) => Err(error.to_string()),
            };
            text.lines().enumerate().map(record).collect()
        });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let ingest = HttpIngest::new(address, StreamControl::default(), Arc::new(|| 0), decode);
        let reader = ingest.open(0, None).expect("the port was free");
        drop(inside);
        Server { port, reader, taken: Vec::new(), _runtime: runtime }
    }

    /// Takes records as a partition does, and says that they are durable. Returns how many.
    fn pump(&mut self) -> usize {
        let mut count = 0;
        while let NextRecord::Record((id, record), _) = self.reader.next().expect("memory is read") {
            assert!(id.contains('/'), "a record has the id {id:?}");
            assert!(
                serde_json::from_str::<serde_json::Value>(&record).is_ok(),
                "a record that was refused: {record:?}"
            );
            self.taken.push(record);
            count += 1;
        }
        let position = self.reader.position();
        self.reader.committed(&position).expect("clients are answered");
        count
    }

    /// Sends bytes, and returns what was answered until the server is silent or has closed the connection.
    fn talk(&mut self, bytes: &[u8], is_done: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_millis(SILENCE_MS))).expect("a timeout");
        // It may close before it has heard all of it.
        let _heard = stream.write_all(bytes);
        let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
        for _ in 0..ROUNDS_MAX {
            let has_taken = self.pump() > 0;
            match stream.read(&mut piece) {
                Ok(0) => return answer,
                Ok(length) => answer.extend_from_slice(&piece[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if !has_taken && is_done(&answer) {
                        return answer;
                    }
                }
                Err(_) => return answer,
            }
        }
        panic!("the source does not come to an end with {} bytes", bytes.len());
    }
}

fn run(input: &[u8]) -> String {
    SERVER.with_borrow_mut(|server| {
        server.pump();
        server.taken.clear();
        let answer = String::from_utf8_lossy(&server.talk(input, |_| true)).into_owned();
        let told: usize = counts(&answer).sum();
        assert!(told <= server.taken.len(), "{told} records were answered, and {} taken: {answer}", server.taken.len());
        let good = b"POST / HTTP/1.1\r\nHost: here\r\nIdempotency-Key: good\r\nContent-Length: 8\r\nConnection: close\r\n\r\n{\"n\":1}\n";
        let after = server.talk(good, |answer| answer.ends_with(b"\n"));
        let after = String::from_utf8_lossy(&after).into_owned();
        assert!(after.starts_with("HTTP/1.1 200") && counts(&after).eq([1]), "the next client is told {after}");
        let codes = answer.split("HTTP/1.1 ").skip(1).filter_map(|rest| rest.get(..3));
        let codes: Vec<&str> = codes.take(3).collect();
        format!("{codes:?} {}", server.taken.len().min(4))
    })
}

/// The numbers of records in answers of 200.
fn counts(answer: &str) -> impl Iterator<Item = usize> {
    let answers = answer.split("HTTP/1.1 ").skip(1).filter(|rest| rest.starts_with("200"));
    answers.filter_map(|rest| {
        let number = rest.split("{\"records\":").nth(1)?;
        number.split('}').next()?.parse().ok()
    })
}

fn seeds() -> Vec<Vec<u8>> {
    let too_large = format!("POST / HTTP/1.1\r\nIdempotency-Key: k\r\nContent-Length: {}\r\n\r\n", BODY_BYTES_MAX + 1);
    vec![too_large.into_bytes()]
}
