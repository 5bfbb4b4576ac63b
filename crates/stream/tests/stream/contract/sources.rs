//! Sources that can be read again from a position, and those that deliver again until they hear of a commit.

use onceflow_stream::{
    EventTime, FileLines, FollowedFiles, Generator, HttpIngest, IngestRequest, IngestedRecord, LineDecoder, NextRecord,
    Pipeline, SplitReader, StdinLines, StreamSource,
    pipeline::tail::ListFiles,
    testing::{
        acknowledged::{self, SenderBed},
        source::{self, Lateness},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

fn time(line: &str) -> EventTime {
    EventTime(line.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0))
}

fn decoder() -> LineDecoder<String> {
    Arc::new(|line| Ok((line.to_owned(), time(line))))
}

fn log(directory: &Path, name: &str, step: i64) -> PathBuf {
    let path = directory.join(name);
    let lines: String = (0..30).map(|n| format!("{} {name}\n", n * step - n % 3)).collect();
    std::fs::write(&path, lines).unwrap();
    path
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn our_sources_go_on_at_every_position() {
    let directory = tempfile::tempdir().unwrap();
    let paths = vec![log(directory.path(), "a.log", 10), log(directory.path(), "b.log", 7)];
    let make = |n: u64| (n, EventTime(n as i64 - (n as i64 * 7) % 5));
    source::check(|| Generator::new(50, make).splits(3).out_of_order_ms(20), Lateness::OnTime).unwrap();
    source::check(|| FileLines::new(paths.clone(), time).out_of_order_ms(10), Lateness::OnTime).unwrap();
    // Files of a directory, one of them compressed, and one renamed as rotation does while it is read.
    let packed = directory.path().join("c.log.gz");
    std::fs::write(&packed, gzip(&(0..30).map(|n| format!("{} packed\n", n * 9)).collect::<String>())).unwrap();
    let paths = [paths, vec![packed]].concat();
    let (opened, rotated) = (AtomicU64::new(0), directory.path().join("a.log.1"));
    let list: ListFiles = Arc::new(move || {
        if opened.fetch_add(1, SeqCst) == 20 {
            std::fs::rename(&paths[0], &rotated)?;
        }
        Ok([&paths[..], std::slice::from_ref(&rotated)].concat())
    });
    let files = || FollowedFiles::new(list.clone(), decoder(), Arc::new(|| 0)).out_of_order_ms(10);
    source::check(files, Lateness::OnTime).unwrap();
    let text = "1 a\n3 b\n2 c\n5 d";
    let stdin = || StdinLines::of(decoder(), move || Box::new(text.as_bytes())).out_of_order_ms(1);
    source::check(stdin, Lateness::OnTime).unwrap();
}

/// A source of numbers that is wrong in one way, and how often it was opened.
#[derive(Clone)]
struct Wrong(&'static str, Arc<AtomicU64>);

struct WrongReader(&'static str, u64, u64);

impl StreamSource for Wrong {
    type Item = u64;

    fn splits(&self) -> u16 {
        if self.0 == "other splits" { u16::try_from(self.1.fetch_add(1, SeqCst)).unwrap() + 1 } else { 1 }
    }

    fn open(&self, _: u16, position: Option<&[u8]>) -> io::Result<Box<dyn SplitReader<u64>>> {
        let next = position.map_or(0, |position| u64::from_be_bytes(position.try_into().unwrap()));
        let next = if self.0 == "begins again" { 0 } else { next };
        let opened = self.1.fetch_add(1, SeqCst);
        Ok(Box::new(WrongReader(self.0, next, opened)))
    }
}

impl SplitReader<u64> for WrongReader {
    fn next(&mut self) -> io::Result<NextRecord<u64>> {
        let (n, has_ended) = (self.1, self.1 >= 9);
        let goes_on = self.0 == "never ends" || self.0 == "goes on after its end" && n > 9;
        self.1 += u64::from(!has_ended || self.0 == "goes on after its end");
        if has_ended && !goes_on {
            return Ok(NextRecord::Ended);
        }
        let record = if self.0 == "other records" { n + self.2 } else { n };
        let time = if self.0 == "late" && n == 5 { 1 } else { n };
        Ok(NextRecord::Record(record, EventTime(time as i64)))
    }

    fn position(&self) -> Vec<u8> {
        let at = match self.0 {
            "position before" => self.1.saturating_sub(1),
            "position behind" => self.1 + 1,
            _ => self.1,
        };
        at.to_be_bytes().to_vec()
    }

    fn watermark(&self) -> EventTime {
        EventTime(if self.0 == "watermark goes back" && self.1 == 6 { 2 } else { self.1 as i64 - 1 })
    }
}

#[test]
fn wrong_sources_are_noticed() {
    let check = |what| {
        let opened = Arc::new(AtomicU64::new(0));
        source::check(|| Wrong(what, opened.clone()), Lateness::OnTime)
    };
    assert_eq!(check("right"), Ok(()));
    for what in [
        "begins again",
        "position before",
        "position behind",
        "other records",
        "late",
        "watermark goes back",
        "never ends",
        "goes on after its end",
        "other splits",
    ] {
        assert!(check(what).is_err(), "{what}");
    }
}

/// Clients of an HTTP source: each is a thread that sends its record until it is told that the record is durable.
struct Clients {
    address: SocketAddr,
    /// By number, how many were sent, and how many of them are acknowledged.
    told: Arc<Mutex<BTreeMap<u64, (u64, u64)>>>,
}

fn post(address: SocketAddr, number: u64) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "POST / HTTP/1.1\r\nHost: h\r\nIdempotency-Key: {number}\r\nContent-Length: 0\r\n\r\n")?;
    let mut status = String::new();
    BufReader::new(stream).read_line(&mut status)?;
    Ok(status.starts_with("HTTP/1.1 200"))
}

impl SenderBed for Clients {
    type Source = HttpIngest<()>;

    fn source(&mut self) -> HttpIngest<()> {
        let decode = |request: &IngestRequest| {
            let id = request.key.clone().ok_or("a request has a key")?;
            Ok(vec![IngestedRecord { time: id.parse().ok().map(EventTime), id, record: () }])
        };
        HttpIngest::new(self.address, Pipeline::new("p").control(), Arc::new(|| 0), Arc::new(decode))
            .out_of_order_ms(1000)
    }

    #[expect(clippy::disallowed_methods, reason = "real clients wait for their answers")]
    fn send(&mut self, number: u64) {
        let (address, told) = (self.address, self.told.clone());
        told.lock().unwrap().entry(number).or_default().0 += 1;
        std::thread::spawn(move || {
            while !post(address, number).unwrap_or(false) {
                std::thread::yield_now();
            }
            told.lock().unwrap().entry(number).or_default().1 += 1;
        });
    }

    fn number(&self, (id, ()): &(String, ())) -> u64 {
        id.parse().unwrap()
    }

    fn is_acknowledged(&self, number: u64) -> bool {
        self.told.lock().unwrap().get(&number).is_some_and(|(sent, told)| sent == told)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_over_http_are_answered_when_their_records_are_durable() {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr()).unwrap();
    acknowledged::check(&mut Clients { address, told: Arc::default() }, 60_000).await.unwrap();
}

/// A broker that is wrong in one way: what waits, and what was read by which reader and is not acknowledged.
#[derive(Clone)]
struct Broker(&'static str, Arc<Mutex<BrokerState>>);

#[derive(Default)]
struct BrokerState {
    waiting: Vec<u64>,
    read: Vec<(u64, u64)>,
    count: u64,
    acknowledged: BTreeSet<u64>,
}

impl StreamSource for Broker {
    type Item = u64;

    fn splits(&self) -> u16 {
        1
    }

    fn open(&self, _: u16, _: Option<&[u8]>) -> io::Result<Box<dyn SplitReader<u64>>> {
        let mut state = self.1.lock().unwrap();
        let again = std::mem::take(&mut state.read);
        if self.0 != "loses what was read" {
            state.waiting.extend(again.into_iter().map(|(_, record)| record));
        }
        Ok(Box::new(self.clone()))
    }
}

impl SplitReader<u64> for Broker {
    fn next(&mut self) -> io::Result<NextRecord<u64>> {
        let mut state = self.1.lock().unwrap();
        let Some(record) = state.waiting.pop() else {
            return Ok(if self.0 == "ends" { NextRecord::Ended } else { NextRecord::Pending });
        };
        let number = state.count;
        state.count += 1;
        state.read.push((number, record));
        if self.0 == "acknowledges what is read" {
            state.acknowledged.insert(record);
        }
        Ok(NextRecord::Record(record, EventTime(0)))
    }

    fn position(&self) -> Vec<u8> {
        self.1.lock().unwrap().count.to_be_bytes().to_vec()
    }

    fn watermark(&self) -> EventTime {
        let back = if self.0 == "watermark goes back" { self.1.lock().unwrap().count as i64 } else { 0 };
        EventTime(-back)
    }

    fn committed(&mut self, position: &[u8]) -> io::Result<()> {
        let before = u64::from_be_bytes(position.try_into().map_err(io::Error::other)?);
        let mut state = self.1.lock().unwrap();
        let (kept, gone): (Vec<_>, Vec<_>) =
            state.read.iter().partition(|(number, _)| *number >= before && self.0 != "acknowledges everything");
        state.read = kept;
        state.acknowledged.extend(gone.into_iter().map(|(_, record)| record));
        Ok(())
    }
}

impl SenderBed for Broker {
    type Source = Broker;

    fn source(&mut self) -> Broker {
        self.clone()
    }

    fn send(&mut self, number: u64) {
        let mut state = self.1.lock().unwrap();
        state.acknowledged.remove(&number);
        state.waiting.push(number);
    }

    fn number(&self, record: &u64) -> u64 {
        *record
    }

    fn is_acknowledged(&self, number: u64) -> bool {
        self.1.lock().unwrap().acknowledged.contains(&number)
    }
}

#[tokio::test(flavor = "current_thread")]
async fn wrong_brokers_are_noticed() {
    let check = async |what| acknowledged::check(&mut Broker(what, Arc::default()), 50).await;
    assert_eq!(check("right").await, Ok(()));
    for what in
        ["acknowledges what is read", "acknowledges everything", "loses what was read", "ends", "watermark goes back"]
    {
        assert!(check(what).await.is_err(), "{what}");
    }
}
