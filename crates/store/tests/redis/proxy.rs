//! A proxy between a client and a server, which loses the calls or replies it is told to.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Handle,
};

/// The fate of the next call that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The server gets it, the client never hears, and the connection is gone.
    LoseReply,
    /// The server never gets it, and the connection is gone.
    LoseRequest,
}

/// A proxy on a port of its own.
pub(crate) struct Proxy {
    port: u16,
    next: Arc<Mutex<Option<Fate>>>,
}

impl Proxy {
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, next) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(None)));
        let fates = next.clone();
        Handle::current().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let fates = fates.clone();
                Handle::current().spawn(async move {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await {
                        pass(client, server, &fates).await;
                    }
                });
            }
        });
        Proxy { port, next }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Loses the next script call.
    pub(crate) fn next(&self, fate: Fate) {
        *self.next.lock().unwrap() = Some(fate);
    }
}

/// Passes bytes on, both ways, until one side ends or a fate is met.
async fn pass(mut client: TcpStream, mut server: TcpStream, fates: &Mutex<Option<Fate>>) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let mute = AtomicBool::new(false);
    let requests = async {
        let mut bytes = vec![0; 1 << 16];
        loop {
            let read = from_client.read(&mut bytes).await.unwrap_or(0);
            if read == 0 {
                return;
            }
            let is_script = bytes[..read].windows(7).any(|window| window == b"EVALSHA");
            let fate = if is_script { fates.lock().unwrap().take() } else { None };
            match fate {
                Some(Fate::LoseRequest) => return,
                Some(Fate::LoseReply) => mute.store(true, SeqCst),
                None => {}
            }
            if to_server.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    };
    let replies = async {
        let mut bytes = vec![0; 1 << 16];
        loop {
            let read = from_server.read(&mut bytes).await.unwrap_or(0);
            // The reply has come, so the server has executed the call; the client never gets the reply.
            if read == 0 || mute.load(SeqCst) || to_client.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    };
    futures_util::future::select(std::pin::pin!(requests), std::pin::pin!(replies)).await;
}
