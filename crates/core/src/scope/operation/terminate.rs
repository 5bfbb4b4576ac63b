//! Ends the session with the message as its result. Later messages find the session ended, and are refused.

use crate::scope::{check::Setup, definition::OpId, effect::Contents, session::Machine};

pub(crate) fn set_up(setup: &mut Setup<'_>, at: OpId) {
    setup.ports(at, 0, 0);
}

pub(crate) fn execute<M, C: Contents<M>>(machine: &mut Machine<'_, M, C>, message: M) {
    machine.end(Ok(message));
}
