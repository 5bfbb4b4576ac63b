//! A proxy between a worker and a Redis server that is as bad as a network can be: it loses requests, loses replies,
//! delays replies, delivers a request twice, and cuts all connections. It parses requests and replies, so that it harms
//! whole calls of scripts; everything else is passed on.

use crate::chaos::Random;
use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

/// The fate of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Pass,
    /// The reply is passed on after this time.
    Delay(Duration),
    /// The reply is dropped, because it answers a duplicate that the client did not send.
    Swallow,
    /// The reply is dropped, and the connection is closed.
    Lose,
}

/// A proxy on a port of its own.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    line: Arc<Line>,
}

struct Line {
    server: u16,
    is_cut: AtomicBool,
    random: Mutex<Random>,
    open: Mutex<Vec<TcpStream>>,
    /// The number of times that each kind of harm was done.
    harm: Mutex<BTreeMap<&'static str, usize>>,
}

impl Proxy {
    pub(crate) fn start(server: u16, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let line = Arc::new(Line {
            server,
            is_cut: AtomicBool::new(false),
            random: Mutex::new(Random(seed)),
            open: Mutex::default(),
            harm: Mutex::default(),
        });
        let accepting = line.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if let Err(error) = accepting.connect(client) {
                    drop(error); // Cut off, or there is no server now.
                }
            }
        });
        Proxy { port, line }
    }

    /// Cuts all connections, or lets them pass again.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.line.is_cut.store(is_cut, SeqCst);
        if is_cut {
            for stream in self.line.open.lock().expect("no thread panics while it holds the lock").drain(..) {
                drop(stream.shutdown(Shutdown::Both));
            }
        }
    }

    /// Returns the number of times that each kind of harm was done.
    pub(crate) fn harm(&self) -> BTreeMap<&'static str, usize> {
        self.line.harm.lock().expect("no thread panics while it holds the lock").clone()
    }
}

impl Line {
    fn connect(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        if self.is_cut.load(SeqCst) {
            return client.shutdown(Shutdown::Both);
        }
        let server = TcpStream::connect(("127.0.0.1", self.server))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let mut open = self.open.lock().expect("no thread panics while it holds the lock");
        open.retain(|stream| stream.peer_addr().is_ok());
        open.extend([client.try_clone()?, server.try_clone()?]);
        drop(open);
        let (expect, expected) = channel();
        let (from, to) = (client.try_clone()?, server.try_clone()?);
        let line = self.clone();
        std::thread::spawn(move || {
            drop(line.requests(&from, &to, &expect));
            close(&from, &to);
        });
        std::thread::spawn(move || {
            drop(replies(&server, &client, &expected));
            close(&server, &client);
        });
        Ok(())
    }

    fn requests(&self, client: &TcpStream, mut server: &TcpStream, expect: &Sender<Option<Reply>>) -> io::Result<()> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        let mut reader = BufReader::new(client);
        loop {
            let request = frame(&mut reader)?;
            let has = |word: &[u8]| request.windows(word.len()).any(|window| window == word);
            if has(b"SUBSCRIBE") {
                // From now on the server sends messages without requests.
                expect.send(None).map_err(gone)?;
            } else if has(b"EVALSHA") {
                match self.fate() {
                    None => return Ok(()),
                    Some((first, again)) => {
                        expect.send(Some(first)).map_err(gone)?;
                        if again {
                            expect.send(Some(Reply::Swallow)).map_err(gone)?;
                            server.write_all(&request)?;
                        }
                    }
                }
            } else {
                expect.send(Some(Reply::Pass)).map_err(gone)?;
            }
            server.write_all(&request)?;
        }
    }

    /// Decides the fate of a call's reply, and whether the call is delivered twice; `None` if the call is lost.
    fn fate(&self) -> Option<(Reply, bool)> {
        let mut random = self.random.lock().expect("no thread panics while it holds the lock");
        let (name, fate) = match random.below(100) {
            0 => ("lost requests", None),
            1 => ("lost replies", Some((Reply::Lose, false))),
            2 | 3 => ("delayed", Some((Reply::Delay(Duration::from_millis(random.below(400) as u64)), false))),
            4..8 => ("repeated", Some((Reply::Pass, true))),
            _ => return Some((Reply::Pass, false)),
        };
        *self.harm.lock().expect("no thread panics while it holds the lock").entry(name).or_default() += 1;
        fate
    }
}

fn replies(server: &TcpStream, mut client: &TcpStream, expected: &Receiver<Option<Reply>>) -> io::Result<()> {
    let mut reader = BufReader::new(server);
    let mut is_unasked = false;
    // Nothing is ever sent on this channel: it is only waited on.
    let (_never, nothing) = channel::<()>();
    loop {
        let reply = frame(&mut reader)?;
        let fate = if is_unasked { None } else { expected.recv().unwrap_or(Some(Reply::Lose)) };
        match fate {
            None => is_unasked = true,
            Some(Reply::Pass) => {}
            Some(Reply::Swallow) => continue,
            Some(Reply::Delay(time)) => drop(nothing.recv_timeout(time)),
            Some(Reply::Lose) => return Ok(()),
        }
        client.write_all(&reply)?;
    }
}

fn close(one: &TcpStream, other: &TcpStream) {
    drop(one.shutdown(Shutdown::Both));
    drop(other.shutdown(Shutdown::Both));
}

/// Reads one request or reply, as it is on the wire.
fn frame(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    read_frame(reader, &mut bytes)?;
    Ok(bytes)
}

fn read_frame(reader: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<()> {
    let start = bytes.len();
    reader.read_until(b'\n', bytes)?;
    let line = &bytes[start..];
    if line.last() != Some(&b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let number = || std::str::from_utf8(&line[1..]).ok().and_then(|text| text.trim().parse::<i64>().ok()).unwrap_or(0);
    match line[0] {
        b'$' | b'=' if number() >= 0 => {
            let length = number().unsigned_abs() + 2;
            let read = reader.take(length).read_to_end(bytes)?;
            if read as u64 == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        }
        b'*' | b'~' | b'>' => (0..number()).try_for_each(|_| read_frame(reader, bytes)),
        b'%' => (0..2 * number()).try_for_each(|_| read_frame(reader, bytes)),
        _ => Ok(()),
    }
}
