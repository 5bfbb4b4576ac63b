//! Sinks, and the places they write to.

use onceflow_stream::{
    DatedFileSink, DatedName, FileSink, HttpSink, SinkChunk, SinkWriter, StdoutSink, StreamSink,
    testing::sink::{self, SinkBed, SinkPromise},
};
use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::PathBuf,
    sync::{Arc, Mutex},
};
use tempfile::TempDir;

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
    #[expect(clippy::disallowed_methods, reason = "a real server has a thread of its own")]
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

/// An output that only grows, as a terminal or a pipe does.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SinkBed for Printed {
    type Sink = StdoutSink;

    fn clear(&mut self) {
        *self = Printed::default();
    }

    fn sink(&self) -> StdoutSink {
        StdoutSink::of(self.clone())
    }

    fn lines(&self, _: &str, partition: u16, of: u16) -> Vec<String> {
        // All partitions print to one output: the second one's numbers begin at 1000.
        let is_own = |line: &&str| of == 1 || (line.len() > r#"{"n":99}"#.len()) == (partition == 1);
        let printed = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        printed.lines().filter(is_own).map(str::to_owned).collect()
    }

    fn spoil(&mut self, _: &str) -> bool {
        false
    }
}

#[tokio::test(flavor = "current_thread")]
async fn an_output_has_every_record_at_least_once() {
    sink::check(&mut Printed::default(), SinkPromise::AtLeastOnce).await.unwrap();
    let once = sink::check(&mut Printed::default(), SinkPromise::ExactlyOnce).await;
    assert!(once.is_err(), "nothing that was printed can be taken back");
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
