//! Our own sources and sinks pass the suites, and deliberately wrong ones do not.

use onceflow_stream::{
    DatedFileSink, DatedName, EventTime, FileLines, FileSink, FollowedFiles, Generator, HttpSink, LineDecoder,
    NextRecord, SinkChunk, SinkWriter, SplitReader, StdinLines, StreamSink, StreamSource,
    pipeline::tail::ListFiles,
    testing::{
        sink::{self, SinkBed, SinkPromise},
        source::{self, Lateness},
    },
};
use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};
use tempfile::TempDir;

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

#[test]
fn our_sources_go_on_at_every_position() {
    let directory = tempfile::tempdir().unwrap();
    let paths = vec![log(directory.path(), "a.log", 10), log(directory.path(), "b.log", 7)];
    let make = |n: u64| (n, EventTime(n as i64 - (n as i64 * 7) % 5));
    source::check(|| Generator::new(50, make).splits(3).out_of_order_ms(20), Lateness::OnTime).unwrap();
    source::check(|| FileLines::new(paths.clone(), time).out_of_order_ms(10), Lateness::OnTime).unwrap();
    let list: ListFiles = Arc::new(move || Ok(paths.clone()));
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

struct FileBed {
    directory: TempDir,
    is_dated: bool,
}

impl FileBed {
    fn path(&self, part: &str, partition: u16, of: u16) -> PathBuf {
        let name = if self.is_dated { part } else { "out" };
        self.directory.path().join(if of > 1 { format!("{name}.{partition}") } else { name.to_owned() })
    }
}

/// One of the two sinks that write files.
enum AnyFileSink {
    One(FileSink),
    Dated(DatedFileSink),
}

impl StreamSink for AnyFileSink {
    fn open(&self, partition: u16, of: u16) -> io::Result<Box<dyn SinkWriter>> {
        match self {
            AnyFileSink::One(sink) => sink.open(partition, of),
            AnyFileSink::Dated(sink) => sink.open(partition, of),
        }
    }

    fn parts(&self) -> Option<Arc<dyn onceflow_stream::SinkParts>> {
        match self {
            AnyFileSink::One(sink) => sink.parts(),
            AnyFileSink::Dated(sink) => sink.parts(),
        }
    }
}

impl SinkBed for FileBed {
    type Sink = AnyFileSink;

    fn clear(&mut self) {
        self.directory = tempfile::tempdir().unwrap();
    }

    fn sink(&self) -> AnyFileSink {
        match self.is_dated {
            false => AnyFileSink::One(FileSink::new(self.directory.path().join("out"))),
            true => {
                let name = DatedName::parse("%Y/out-%Y%m%d").unwrap().unwrap();
                AnyFileSink::Dated(DatedFileSink::new(self.directory.path(), name))
            }
        }
    }

    fn lines(&self, part: &str, partition: u16, of: u16) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(part, partition, of)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn spoil(&mut self, part: &str) -> bool {
        let path = self.path(part, 0, 1);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "of another\n").unwrap();
        true
    }
}

#[tokio::test(flavor = "current_thread")]
async fn our_files_have_every_chunk_once() {
    for is_dated in [false, true] {
        let mut bed = FileBed { directory: tempfile::tempdir().unwrap(), is_dated };
        sink::check(&mut bed, SinkPromise::ExactlyOnce).await.unwrap();
    }
}

/// A server that takes a record once by its key, and what it has taken, in order.
struct HttpBed {
    port: u16,
    taken: Arc<Mutex<Vec<(String, String)>>>,
}

impl HttpBed {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, taken) = (listener.local_addr().unwrap().port(), Arc::default());
        let own: Arc<Mutex<Vec<(String, String)>>> = Arc::clone(&taken);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(&stream);
                let (mut key, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    let Some((name, value)) = line.trim_end().split_once(": ") else {
                        if line.trim_end().is_empty() {
                            break;
                        }
                        continue;
                    };
                    match name.to_lowercase().as_str() {
                        "idempotency-key" => key = value.to_owned(),
                        "content-length" => length = value.parse().unwrap(),
                        _ => {}
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let body = String::from_utf8(body).unwrap();
                let mut taken = own.lock().unwrap();
                match taken.iter().find(|(known, _)| *known == key) {
                    Some((_, earlier)) => assert_eq!(*earlier, body, "a key stands for one record"),
                    None => taken.push((key, body)),
                }
                (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            }
        });
        HttpBed { port, taken }
    }
}

impl SinkBed for HttpBed {
    type Sink = HttpSink;

    fn clear(&mut self) {
        self.taken.lock().unwrap().clear();
    }

    fn sink(&self) -> HttpSink {
        HttpSink::new(&format!("http://127.0.0.1:{}/", self.port), "p/out").unwrap()
    }

    fn lines(&self, _: &str, partition: u16, _: u16) -> Vec<String> {
        let of = format!("p/out/{partition}/");
        let taken = self.taken.lock().unwrap();
        taken.iter().filter(|(key, _)| key.starts_with(&of)).map(|(_, body)| body.clone()).collect()
    }

    fn spoil(&mut self, _: &str) -> bool {
        false
    }
}

#[tokio::test]
async fn a_server_that_remembers_keys_has_every_record_once() {
    sink::check(&mut HttpBed::start(), SinkPromise::ExactlyOnce).await.unwrap();
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use onceflow_stream::{SqlColumnType, SqlSinkId, SqlTable, SqliteSink};

    struct SqliteBed(TempDir);

    impl SqliteBed {
        fn path(&self) -> PathBuf {
            self.0.path().join("rows.db")
        }

        fn id(&self) -> SqlSinkId {
            SqlSinkId { stream: "s".into(), sink: "db".into() }
        }
    }

    impl SinkBed for SqliteBed {
        type Sink = SqliteSink;

        fn clear(&mut self) {
            self.0 = tempfile::tempdir().unwrap();
        }

        fn sink(&self) -> SqliteSink {
            // Without a key: a row that is written twice is there twice.
            let columns = Some(vec![(String::from("n"), SqlColumnType::Int)]);
            SqliteSink::new(self.path(), self.id(), SqlTable { name: "numbers".into(), key: Vec::new(), columns })
        }

        fn lines(&self, _: &str, partition: u16, of: u16) -> Vec<String> {
            let database = rusqlite::Connection::open(self.path()).unwrap();
            let Ok(mut select) = database.prepare("SELECT n FROM numbers ORDER BY rowid") else { return Vec::new() };
            let numbers = select.query_map([], |row| row.get::<_, i64>(0)).unwrap().map(Result::unwrap);
            let is_own = |n: &i64| of == 1 || (*n >= 1000) == (partition == 1);
            numbers.filter(is_own).map(|n| format!("{{\"n\":{n}}}")).collect()
        }

        fn spoil(&mut self, _: &str) -> bool {
            let database = rusqlite::Connection::open(self.path()).unwrap();
            let create = "CREATE TABLE onceflow_positions (stream TEXT, sink TEXT, \"partition\" INTEGER, written INTEGER, \
                          crc INTEGER, PRIMARY KEY (stream, sink, \"partition\")); \
                          INSERT INTO onceflow_positions VALUES ('s', 'db', 0, 700, 7)";
            database.execute_batch(create).unwrap();
            true
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn rows_of_sqlite_are_there_once_though_the_table_has_no_key() {
        let mut bed = SqliteBed(tempfile::tempdir().unwrap());
        sink::check(&mut bed, SinkPromise::ExactlyOnce).await.unwrap();
        let id = bed.id();
        assert!(SqliteSink::forget(&bed.path(), &id).unwrap(), "it is forgotten once");
        assert!(!SqliteSink::forget(&bed.path(), &id).unwrap());
    }
}

/// Lines in memory, by part and partition, written by a sink that is wrong in one way.
struct WrongBed(&'static str, Place);

type Place = Arc<Mutex<BTreeMap<u16, Vec<u8>>>>;

struct WrongSink(&'static str, Place);

struct WrongWriter(&'static str, Place, u16);

impl StreamSink for WrongSink {
    fn open(&self, partition: u16, _: u16) -> io::Result<Box<dyn SinkWriter>> {
        if self.0 == "begins again" {
            self.1.lock().unwrap().remove(&partition);
        }
        let partition = if self.0 == "one place for all" { 0 } else { partition };
        Ok(Box::new(WrongWriter(self.0, self.1.clone(), partition)))
    }
}

impl SinkWriter for WrongWriter {
    fn resume(&mut self, _: &str, _: u64, committed: u64) -> io::Result<()> {
        let length = self.1.lock().unwrap().get(&self.2).map_or(0, Vec::len) as u64;
        match length > committed && !["replaces others", "appends"].contains(&self.0) {
            true => Err(io::Error::other("bytes of another")),
            false => Ok(()),
        }
    }

    fn write(&mut self, chunk: &SinkChunk) -> io::Result<()> {
        let mut places = self.1.lock().unwrap();
        let bytes = places.entry(self.2).or_default();
        let at = usize::try_from(chunk.offset).unwrap();
        match self.0 {
            "appends" => bytes.extend_from_slice(&chunk.bytes),
            "loses the last chunk" if chunk.number == 4 => {}
            _ => {
                let end = at + chunk.bytes.len();
                bytes.resize(bytes.len().max(end), b' ');
                bytes[at..end].copy_from_slice(&chunk.bytes);
            }
        }
        Ok(())
    }
}

impl SinkBed for WrongBed {
    type Sink = WrongSink;

    fn clear(&mut self) {
        self.1 = Place::default();
    }

    fn sink(&self) -> WrongSink {
        WrongSink(self.0, self.1.clone())
    }

    fn lines(&self, _: &str, partition: u16, _: u16) -> Vec<String> {
        let bytes = self.1.lock().unwrap().get(&partition).cloned().unwrap_or_default();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    fn spoil(&mut self, _: &str) -> bool {
        // A sink that only appends has no place that could hold anything else.
        if self.0 == "appends" {
            return false;
        }
        self.1.lock().unwrap().insert(0, b"of another, and longer than all of ours\n".repeat(9));
        true
    }
}

#[tokio::test(flavor = "current_thread")]
async fn wrong_sinks_are_noticed() {
    let check = async |what| sink::check(&mut WrongBed(what, Place::default()), SinkPromise::ExactlyOnce).await;
    assert_eq!(check("right").await, Ok(()));
    for what in ["appends", "begins again", "one place for all", "replaces others", "loses the last chunk"] {
        assert!(check(what).await.is_err(), "{what}");
    }
    let appends = sink::check(&mut WrongBed("appends", Place::default()), SinkPromise::AtLeastOnce).await;
    assert_eq!(appends, Ok(()), "that is what at least once means");
}
