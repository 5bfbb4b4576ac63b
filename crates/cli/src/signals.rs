//! Ctrl-C and SIGTERM: the first asks this process to stop, the second ends it at once, or asks once more. Its children
//! end with it, however it ends: a guard holds their groups.

use crate::{exit::Exit, fault::Fault};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// The signals that asked this process to stop.
#[derive(Clone)]
pub(crate) struct Signals {
    /// The exit code of the last signal, and the number of signals.
    asked: watch::Receiver<Option<(Exit, u8)>>,
}

impl Signals {
    /// Listens to one signal from now on; the next ends the process.
    ///
    /// # Errors
    /// If the system refuses a signal handler.
    pub(crate) fn listen() -> Result<Self, Fault> {
        Signals::listen_to(1)
    }

    /// Listens to so many signals from now on; the next ends the process.
    ///
    /// # Errors
    /// If the system refuses a signal handler.
    pub(crate) fn listen_to(many: u8) -> Result<Self, Fault> {
        let (sender, asked) = watch::channel(None);
        let to = |kind: SignalKind| signal(kind).map_err(Fault::system("no signals"));
        let (mut int, mut term) = (to(SignalKind::interrupt())?, to(SignalKind::terminate())?);
        let times = AtomicU8::new(0);
        tokio::spawn(async move {
            loop {
                let exit = tokio::select! {
                    _ = int.recv() => Exit::Interrupted,
                    _ = term.recv() => Exit::Terminated,
                };
                let times = times.fetch_add(1, SeqCst) + 1;
                if times > many {
                    std::process::exit(exit as i32);
                }
                sender.send_replace(Some((exit, times)));
            }
        });
        Ok(Signals { asked })
    }

    /// Waits for the first signal.
    pub(crate) async fn asked(&mut self) -> Exit {
        self.asked_times(1).await
    }

    /// Waits until so many signals have come.
    pub(crate) async fn asked_times(&mut self, many: u8) -> Exit {
        let enough = |asked: &Option<(Exit, u8)>| asked.is_some_and(|(_, times)| times >= many);
        match self.asked.wait_for(enough).await {
            Ok(asked) => asked.expect("just waited for it").0,
            // The listener is gone, so no signal will be seen.
            Err(_) => std::future::pending().await,
        }
    }

    /// Runs a future to its end, unless a signal comes before: then the future is dropped where it is, as by a kill.
    pub(crate) async fn unless_asked<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Exit> {
        tokio::select! {
            given = work => Ok(given),
            exit = self.asked() => Err(exit),
        }
    }
}
