//! Ctrl-C and SIGTERM: the first asks to stop, the second ends the process at once, or asks once more. Children end with
//! us, however we end: a guard holds their groups.

use crate::{exit::Exit, fault::Fault};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// Whether, and how, we were asked to stop.
#[derive(Clone)]
pub(crate) struct Signals {
    /// How we were last asked, and how often.
    asked: watch::Receiver<Option<(Exit, u8)>>,
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// If the system does not let us.
    pub(crate) fn listen() -> Result<Self, Fault> {
        Signals::listen_to(1)
    }

    /// Listens from now on, to so many; the next ends the process.
    ///
    /// # Errors
    /// If the system does not let us.
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

    /// Ends when we are asked to stop.
    pub(crate) async fn asked(&mut self) -> Exit {
        self.asked_times(1).await
    }

    /// Ends when we were asked to stop so often.
    pub(crate) async fn asked_times(&mut self, many: u8) -> Exit {
        let enough = |asked: &Option<(Exit, u8)>| asked.is_some_and(|(_, times)| times >= many);
        match self.asked.wait_for(enough).await {
            Ok(asked) => asked.expect("just waited for it").0,
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
