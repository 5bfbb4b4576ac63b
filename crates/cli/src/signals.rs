//! Ctrl-C and SIGTERM: the first asks to stop, the second ends the process at once. Children end with us, however we
//! end: a guard holds their groups.

use crate::exit::Exit;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// Whether, and how, we were asked to stop.
#[derive(Clone)]
pub(crate) struct Signals {
    asked: watch::Receiver<Option<Exit>>,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let (sender, asked) = watch::channel(None);
        let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let times = AtomicU8::new(0);
        tokio::spawn(async move {
            loop {
                let exit = tokio::select! {
                    _ = int.recv() => Exit::Interrupted,
                    _ = term.recv() => Exit::Terminated,
                };
                if times.fetch_add(1, SeqCst) > 0 {
                    std::process::exit(exit as i32);
                }
                sender.send_replace(Some(exit));
            }
        });
        Ok(Signals { asked })
    }

    /// Ends when we are asked to stop.
    pub(crate) async fn asked(&mut self) -> Exit {
        match self.asked.wait_for(Option::is_some).await {
            Ok(exit) => exit.expect("just waited for it"),
            // Nobody listens: nobody will ask.
            Err(_) => std::future::pending().await,
        }
    }

    /// What this gives, unless we are asked to stop before: then it is dropped where it is, as if we had been killed.
    pub(crate) async fn unless_asked<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Exit> {
        tokio::select! {
            given = work => Ok(given),
            exit = self.asked() => Err(exit),
        }
    }
}
