//! crossflow: an app without a window that is updated until the outcome is there.

use crossflow::{bevy_app::App, prelude::*};

/// An app with a workflow in it.
pub(super) struct Peer<O: Send + Sync + 'static> {
    app: App,
    workflow: Service<u64, O>,
}

impl<O: Send + Sync + 'static> Peer<O> {
    pub(super) fn new(build: impl FnOnce(Scope<u64, O>, &mut Builder)) -> Self {
        let mut app = App::new();
        app.add_plugins(CrossflowExecutorApp::default());
        let workflow = app.world_mut().command(|commands| commands.spawn_io_workflow(build));
        Peer { app, workflow }
    }

    /// Sends a request and updates the app until its outcome is there.
    pub(super) fn request(&mut self, input: u64) -> anyhow::Result<O> {
        let workflow = self.workflow;
        let mut outcome = self.app.world_mut().command(|commands| commands.request(input, workflow).outcome());
        loop {
            self.app.update();
            if let Some(result) = outcome.try_recv() {
                return result.map_err(|cancelled| anyhow::anyhow!("crossflow cancelled the request: {cancelled:?}"));
            }
        }
    }
}

/// Maps that add one each, in a row.
pub(super) fn chain(maps: usize) -> Peer<u64> {
    Peer::new(|scope, builder| {
        let mut chain = builder.chain(scope.start);
        for _ in 0..maps {
            chain = chain.map_block(|x: u64| x + 1);
        }
        chain.connect(scope.terminate);
    })
}

/// A clone for each branch, a map in each, and a join of all.
pub(super) fn fanout(branches: usize) -> Peer<u64> {
    Peer::new(|scope, builder| {
        let (input, fork) = builder.create_fork_clone::<u64>();
        builder.connect(scope.start, input);
        let buffers: Vec<Buffer<u64>> = (0..branches as u64)
            .map(|branch| {
                let buffer = builder.create_buffer(BufferSettings::keep_all());
                let output = fork.clone_output(builder);
                builder.chain(output).map_block(move |x: u64| x + branch).connect(buffer.input_slot());
                buffer
            })
            .collect();
        builder.join(buffers).map_block(|all: Vec<u64>| all.iter().sum::<u64>()).connect(scope.terminate);
    })
}
